"""From the steps of a plan to launches as plain data: which families of kernels know an op, and what each proposes.

A family is a module with a table `LOWERINGS`. Every family that has the op is asked, in the order of `families`;
where all decline, the step runs on the host by its op's NumPy meaning, for a reason that reports name.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from ....ir.analysis.contents import ROUNDS_NOTHING, Tf32, any_constant_of
from ....ir.constant import Constant
from ....ir.graph import Graph, Node, Value
from ....ir.op import Trait
from ....ir.ops.bounded import PREFIX
from ....ir.ops.known import ARGMAX, ARGMIN, FUSED, NON_ZERO, PAD
from ....ir.plan import Place as Home
from ....ir.plan import Plan, Step, StepKind, View, contiguous_strides, element_bytes
from ....ir.types import TensorType
from ..kernel_ir.launch import BufferPlace, Candidate, Chip, HostCall, Kernel, KernelLaunch, LibraryCall, Lowering, Task
from .alike import Alike

MOST_SCRATCH = 1 << 30
"""How much scratch is offered while a step's memory is not planned yet."""

NO_BUFFER = -1
"""Where scratch would lie that is asked for and is not there."""

_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS = (1024, 1024, 64)
_MOST_THREADS_OF_A_BLOCK = 1024
_MOST_BLOCKS_OF_A_CLUSTER = 8

_TAKES_NOTHING = Trait.WRITES | Trait.JOINS | Trait.REDUCTION
"""Ops beside what is looked for whose kernels take operands without elements, as caches and updates may be. Of any
other op the meaning decides what nothing gives: zeros, or an error."""


@cache
def families() -> tuple[Mapping[str, Lowering], ...]:
    """All families in the order in which they are asked: heavy ops first, then what is generated for any op."""
    from ..kernels import tables
    from ..kernels.attention import attention
    from ..kernels.conv import convolutions, deformed, quantized
    from ..kernels.gemm import einsums, gemv, grouped_gemm, matmul, quantized_gemm
    from ..kernels.rnn import recurrent

    heavy = (matmul, quantized_gemm, einsums, grouped_gemm, gemv, convolutions, quantized, deformed)
    return tuple(family.LOWERINGS for family in (*heavy, attention, recurrent, tables))


@cache
def families_of(op: str) -> tuple[Lowering, ...]:
    """The lowerings that know an op."""
    return tuple(table[op] for table in families() if op in table)


@dataclass(frozen=True, slots=True)
class LoweredStep:
    """A step with its candidates, best guess first; the last may be the host. None at all: nothing is to do.

    `task` is what was lowered, None for a step that only the host can do. `missing_libraries` would have had more
    candidates.
    """

    step: Step
    candidates: tuple[Candidate, ...] = ()
    task: Task | None = None
    missing_libraries: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Backend:
    """What a machine has for lowering: its chip, the libraries that are installed there.

    `tf32` says whose operands in f32 may be rounded to 11 bits, as tensor cores take them.
    """

    chip: Chip = field(default_factory=Chip)
    libraries: frozenset[str] = frozenset()
    tf32: Tf32 = ROUNDS_NOTHING
    _alike: Alike = field(init=False, default_factory=Alike, repr=False, compare=False)
    """The candidates of the steps of the plan that is being made, with as much scratch as they ask for."""

    # ---- what planning asks

    def captures(self, node: Node) -> bool:
        """Whether there is a kernel for a node of a specialized graph; views, constants, empty results need none."""
        if any_constant_of(node.outputs[0]) is not None:
            return True
        if _is_of_nothing(node) or not all(map(_is_planned, (*node.operands, *node.outputs))):
            return False
        if _makes_nothing(node):
            return True
        return any(map(self._has_libraries, self._candidates(self._task_before(node, {}))))

    def scratch_bytes(self, node: Node, views: Mapping[Value, View]) -> int:
        """The most scratch that a candidate for `node` takes."""
        if not node.op.is_capturable or _makes_nothing(node) or _is_of_nothing(node):
            return 0
        candidates = filter(self._has_libraries, self._candidates(self._task_before(node, views)))
        return max((each.scratch_bytes for each in candidates), default=0)

    # ---- what executors ask

    def lower(self, plan: Plan) -> tuple[LoweredStep, ...]:
        """The candidates of every step of a plan, in order."""
        lowered = tuple(self.lower_step(plan, step) for step in plan.steps)
        self._alike.clear()
        return lowered

    def lower_step(self, plan: Plan, step: Step) -> LoweredStep:
        """The candidates of one step; the host comes last."""
        if step.kind is StepKind.ALIAS:
            return LoweredStep(step)
        problem = host_reason(plan, step.node)
        if problem:
            return LoweredStep(step, (_on_host(problem),))
        task = replace(task_of(plan, step, self.chip), tf32=self.tf32.allows(step.node))
        if all(0 in view.shape for view in task.results):
            return LoweredStep(step)
        known = families_of(step.node.op.name)
        found = self._with_its_scratch(task)
        why = _why_on_host(bool(known), bool(found))
        missing = frozenset(name for each in found for name in _libraries_of(each)) - self.libraries
        return LoweredStep(step, (*filter(self._has_libraries, found), _on_host(why)), task, missing)

    def _task_before(self, node: Node, views: Mapping[Value, View]) -> Task:
        return replace(task_before(node, views, self.chip), tf32=self.tf32.allows(node))

    def _candidates(self, task: Task) -> Sequence[Candidate]:
        return self._alike.candidates(task, _that_fit)

    def _with_its_scratch(self, task: Task) -> Sequence[Candidate]:
        """The candidates of a task with the scratch that it has: those that planning saw, where they got all of it.

        Candidates of libraries that are not here got none.
        """
        place = task.scratch or BufferPlace(NO_BUFFER)
        found = self._candidates(replace(task, scratch=place, scratch_bytes=MOST_SCRATCH))
        wanted = max((each.scratch_bytes for each in filter(self._has_libraries, found)), default=0)
        return found if wanted <= task.scratch_bytes else self._candidates(task)

    def _has_libraries(self, candidate: Candidate) -> bool:
        return _libraries_of(candidate) <= self.libraries


def _that_fit(task: Task) -> Iterator[Candidate]:
    """What families propose for the scratch memory that there is, of kernels that the device can launch."""
    for lowering in families_of(task.node.op.name):
        for candidate in lowering(task):
            if candidate.scratch_bytes <= task.scratch_bytes and _can_be_launched(candidate, task.chip):
                yield candidate


def _can_be_launched(candidate: Candidate, chip: Chip) -> bool:
    return all(is_within_limits(each.kernel, chip) for each in candidate.launches if isinstance(each, KernelLaunch))


def is_within_limits(kernel: Kernel, chip: Chip) -> bool:
    """Whether CUDA launches such a grid, such blocks, and as much dynamic shared memory (CUDA C++ Guide, 20.2)."""
    sizes = zip((*kernel.grid, *kernel.block), (*_MOST_BLOCKS, *_MOST_THREADS), strict=True)
    return (
        all(1 <= size <= most for size, most in sizes)
        and math.prod(kernel.block) <= _MOST_THREADS_OF_A_BLOCK
        and math.prod(kernel.cluster) <= _MOST_BLOCKS_OF_A_CLUSTER
        and kernel.shared_bytes <= chip.shared_bytes
    )


def _why_on_host(is_known: bool, has_candidates: bool) -> str:
    if not is_known:
        return "there is no kernel for this op"
    return "none of its kernels runs here" if has_candidates else "no kernel fits its dtypes, layouts or sizes"


def _libraries_of(candidate: Candidate) -> set[str]:
    return {launch.library for launch in candidate.launches if isinstance(launch, LibraryCall)}


def _makes_nothing(node: Node) -> bool:
    """Whether all results are known to be empty; a size that is still to be found is none that a plan has room for."""
    types = [value.type for value in node.outputs]
    return all(isinstance(each, TensorType) and each.is_static and 0 in each.dims for each in types)


def _is_of_nothing(node: Node) -> bool:
    """Whether the meaning has to say what an operand without elements gives."""
    op = node.op
    empty = [value is not None and _has_no_elements(value) for value in node.inputs]
    if _mirrors_nothing(node):
        return True
    if not any(empty):
        return False
    if op.has(Trait.REFUSES_EMPTY) and empty[0] and not _finds_none(node):
        return not (op.has(Trait.WRITES) and empty[1])
    body = node.attrs["body"] if op is FUSED else None
    if isinstance(body, Graph) and any(map(_is_of_nothing, body.nodes)):
        return True
    takes_it = op.name.startswith(PREFIX) or op.has(_TAKES_NOTHING)
    return not takes_it and not _makes_nothing(node)


def _finds_none(node: Node) -> bool:
    """Whether places are looked for along an axis that has some, in no rows."""
    return node.op in (ARGMAX, ARGMIN) and node.operands[0].shape[node.attrs["axis"]] != 0


def _mirrors_nothing(node: Node) -> bool:
    """Whether negative pads leave nothing of an axis that is to be mirrored or repeated."""
    if node.op is not PAD or node.attrs["mode"] == "constant":
        return False
    sizes, pads = node.operands[0].shape, node.attrs["pads"]
    ends = zip(sizes, pads, pads[len(sizes) :], strict=False)
    return any(isinstance(size, int) and size + min(begin, 0) + min(end, 0) <= 0 < size for size, begin, end in ends)


def _is_planned(value: Value) -> bool:
    """Whether a value's size is known before the run."""
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return shape is not None and all(isinstance(dim, int) for dim in shape)


def _has_no_elements(value: Value) -> bool:
    return isinstance(value.type, TensorType) and 0 in (value.type.shape or ())


def _on_host(reason: str) -> Candidate:
    return Candidate("host", (HostCall(reason),))


def host_reason(plan: Plan, node: Node) -> str:
    """Why no kernel can do a node whatever its op: empty where one might."""
    if is_searched(plan, node):
        return "its size depends on values: the device finds them, the host reads what was found"
    if not node.op.is_capturable:
        return "its sizes, regions or launches depend on values"
    if any(value not in plan.views for value in (*node.operands, *node.outputs)):
        return "it has values of unknown size"
    if _is_of_nothing(node):
        return "an operand has no elements"
    return ""


def is_searched(plan: Plan, node: Node) -> bool:
    """Whether the device finds what a step looks for: elements on it, of a dtype of NumPy's own, that are not zero."""
    if node.op is not NON_ZERO:
        return False
    view = plan.views.get(node.operands[0])
    if view is None or not view.shape or 0 in view.shape:
        return False
    return view.dtype.numpy.isbuiltin == 1 and not view.dtype.numpy.hasobject


# ---- tasks


def task_of(plan: Plan, step: Step, chip: Chip) -> Task:
    """A step whose values all have a place, as families take it."""
    node = step.node
    scratch = None if step.scratch is None else BufferPlace(step.scratch)
    return Task(
        node=node,
        operands=tuple(None if value is None else plan.views[value] for value in node.inputs),
        results=tuple(plan.views[value] for value in node.outputs),
        constants=_constants(node),
        chip=chip,
        scratch=scratch,
        scratch_bytes=0 if step.scratch is None else plan.buffers[step.scratch].nbytes,
    )


def task_before(node: Node, views: Mapping[Value, View], chip: Chip) -> Task:
    """A node of a specialized graph as a task before its memory is planned; `views` are what is known of it."""
    values = [*node.inputs, *node.outputs]
    places = [None if v is None else views.get(v) or _some_view(v, index) for index, v in enumerate(values)]
    count = len(node.inputs)
    results = tuple(view for view in places[count:] if view is not None)
    scratch = BufferPlace(len(values))
    return Task(node, tuple(places[:count]), results, _constants(node), chip, scratch, MOST_SCRATCH)


def _some_view(value: Value, buffer: int) -> View:
    shape, dtype = tuple(int(dim) for dim in value.shape if isinstance(dim, int)), value.tensor.dtype
    return View(buffer, 0, dtype, shape, contiguous_strides(shape, element_bytes(dtype)))


def _constants(node: Node) -> dict[int, Constant]:
    found = {index: any_constant_of(value) for index, value in enumerate(node.inputs) if value is not None}
    return {index: content for index, content in found.items() if content is not None}


def constant_buffers(plan: Plan) -> dict[int, Constant]:
    """The contents of the buffers of a plan that hold constants."""
    found: dict[int, Constant] = {}
    for value, view in plan.views.items():
        content = any_constant_of(value)
        if content is not None and plan.buffers[view.buffer].place is Home.CONSTANT:
            found[view.buffer] = content
    return found
