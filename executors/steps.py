"""A graph made ready to run node by node in NumPy.

What does not change between calls is found once: which slot holds each value, which values end with which node, the
results of nodes that depend on nothing. What depends on the sizes of a call only (attributes and result shapes with
symbols in them, the memory needed) is found once per set of sizes and kept for the latest few. What is left for each
step of a call is to fetch operands, call the op's meaning, and compare dtype and shape of the result.

Errors, result checks and regions are those of `ir.evaluate`, the oracle.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..ir.attrs import AttrValue
from ..ir.constant import Array, Constant
from ..ir.dims import SymDim, evaluate
from ..ir.errors import CapgraphError, ExecutionError, ResourceError, cause_of
from ..ir.evaluate import (
    FAILURES,
    BoundRegion,
    Sizes,
    as_results,
    bind_inputs,
    bound_attrs,
    checked,
    evaluate_node,
    failure,
)
from ..ir.foreign import meaning_of
from ..ir.graph import Graph, Node
from ..ir.op import Meaning, Trait
from ..ir.ops.known import LOG_SOFTMAX, SOFTMAX
from ..ir.ops.nn.conv import conv_in_own_width
from ..ir.random_state import RandomState, keyed
from ..ir.target import Target
from ..ir.types import TensorType, Type, bind_type, type_symbols
from .memory import available_bytes, size_text
from .signature import Signature, owned

_FASTER: dict[str, Meaning] = {"conv": conv_in_own_width}

_NEAR = 16
"""About how many nodes are looked at between an anchor (a matmul or a convolution) and a softmax."""


def host_meaning(node: Node) -> Meaning:
    """The function that eager steps call for `node`."""
    if node.op.name not in _FASTER or feeds_softmax(node):
        return node.op.meaning
    return _FASTER[node.op.name]


def feeds_softmax(node: Node) -> bool:
    """Whether results of `node` are scores of a softmax: they get there without another anchor in between.

    An exponential makes relative errors of absolute ones, and BLAS may give unlike sums of like terms (OpenBLAS for
    AVX2 adds up the rows of one block in different orders), so such sums are better taken in twice the width.
    """
    near = [node]
    for each in near:
        users = [user for value in each.outputs for user in value.users if not user.op.has(Trait.ANCHOR)]
        if any(user.op in (SOFTMAX, LOG_SOFTMAX) for user in users):
            return True
        if len(near) <= _NEAR:
            near += [user for user in dict.fromkeys(users) if user not in near]
    return False


KEPT_SIZES = 16
"""For how many sets of sizes the bound steps are kept."""

KEPT_BYTES = 1 << 16
"""The largest result of a node without operands that is kept between calls instead of being made again."""

_ABSENT = 0  # the slot of operands that are left out: always None


class _Step(NamedTuple):
    """A node, the slots of its operands and results, and those that end with it.

    `symbols` are those that it mentions, `attr_symbols` those of its attributes; `call` is its meaning with attributes
    when these are the same in every call.
    """

    node: Node
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]
    symbols: frozenset[str]
    attr_symbols: frozenset[str]
    call: Callable[..., Any] | None


class _BoundStep(NamedTuple):
    """A step for one set of sizes.

    `call` is the meaning with its attributes (None where these are only known when the step runs); `dtype` and `shape`
    are those of the only result, None where there are several or running tells the size.
    """

    node: Node
    call: Callable[..., Any] | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] | None


class Steps:
    """The nodes of a graph as steps over numbered slots. The graph must not be edited while they are in use.

    Runs may overlap in several threads: each has slots of its own.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._bodies = {body: Steps(body) for node in graph.nodes for body in node.regions.values()}
        self._slots = {value: slot for slot, value in enumerate(graph.values, start=1)}
        needed = _needed_nodes(graph)
        kept = [node for node in needed if _is_kept(node)]
        self._template = self._filled_template(kept)
        self._steps = self._make_steps([node for node in needed if not _is_kept(node)])
        self._outputs = tuple(self._slots[value] for value in graph.outputs)
        self._symbols = tuple(sorted(frozenset[str]().union(*(step.symbols for step in self._steps))))
        nothing = _Extents({})
        self._fixed = {step.node: _bound(step, nothing) for step in self._steps if not step.symbols}
        self._bound: dict[tuple[int | None, ...], list[_BoundStep]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of steps of a run."""
        return len(self._steps)

    def run(self, inputs: Sequence[Any], sizes: Sizes) -> tuple[Any, ...]:
        """The outputs for inputs that fit the graph under `sizes`; adds the sizes that only running tells to `sizes`.

        The caller silences floating-point warnings. Raises `ExecutionError` and `ResourceError` naming the node.
        """
        slots = self._template.copy()
        slots[1 : 1 + len(inputs)] = inputs
        for node, call, reads, writes, frees, dtype, shape in self._bound_steps(sizes):
            try:
                given = (call or self._late(node, sizes))(*[slots[slot] for slot in reads])
                if type(given) is np.ndarray and given.shape == shape and given.dtype == dtype:
                    slots[writes[0]] = given
                else:
                    _store(node, given, sizes, slots, writes)
            except FAILURES as error:
                raise failure(node, error) from cause_of(error)
            given = None  # else a large result would outlive its last use by one step
            for slot in frees:
                slots[slot] = None
        return tuple([slots[slot] for slot in self._outputs])

    # ---- once per graph

    def _filled_template(self, kept: Iterable[Node]) -> list[Any]:
        template: list[Any] = [None] * (len(self._slots) + 1)
        with np.errstate(all="ignore"):
            for node in kept:
                for value, result in zip(node.outputs, evaluate_node(node, (), {}), strict=True):
                    template[self._slots[value]] = _read_only(result)
        return template

    def _make_steps(self, nodes: Sequence[Node]) -> list[_Step]:
        last_user = {value: node for node in nodes for value in node.operands}
        ending: dict[Node, list[int]] = {node: [] for node in nodes}
        produced = {value: node for node in nodes for value in node.outputs}
        for value in (*self._graph.inputs, *produced):
            last = last_user.get(value) or produced.get(value)
            if last is not None and not value.is_graph_output:
                ending[last].append(self._slots[value])
        return [self._make_step(node, tuple(ending[node])) for node in nodes]

    def _make_step(self, node: Node, frees: tuple[int, ...]) -> _Step:
        reads = tuple(_ABSENT if value is None else self._slots[value] for value in node.inputs)
        writes = tuple(self._slots[value] for value in node.outputs)
        attr_symbols = _attr_symbols(node)
        runs_bodies = bool(node.regions) and not node.op.is_foreign  # the meaning of a foreign op runs its own bodies
        call = None if attr_symbols or runs_bodies else _fixed_call(node)
        return _Step(node, reads, writes, frees, attr_symbols | _result_symbols(node), attr_symbols, call)

    # ---- once per set of sizes

    def _bound_steps(self, sizes: Mapping[str, int]) -> list[_BoundStep]:
        key = tuple([sizes.get(name) for name in self._symbols])
        found = self._bound.get(key)
        return found if found is not None else self._bind(key, sizes)

    def _bind(self, key: tuple[int | None, ...], sizes: Mapping[str, int]) -> list[_BoundStep]:
        extents = _Extents(sizes)
        made = [self._fixed.get(step.node) or _bound(step, extents) for step in self._steps]
        _check_memory(made, extents)
        with self._lock:
            while len(self._bound) >= KEPT_SIZES:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = made
        return made

    # ---- once per run

    def _late(self, node: Node, sizes: Sizes) -> Callable[..., Any]:
        """The call of a node with regions, or with attributes that mention sizes found in this very run."""
        return partial(host_meaning(node), **bound_attrs(node, sizes, self._region))

    def _region(self, body: Graph, sizes: Sizes) -> BoundRegion:
        return CompiledRegion(body, sizes, self._bodies[body])


class CompiledRegion(BoundRegion):
    """A region that runs as steps."""

    __slots__ = ("_steps",)

    def __init__(self, body: Graph, sizes: Sizes, steps: Steps) -> None:
        super().__init__(body, sizes)
        self._steps = steps

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The results of the body."""
        sizes = dict(self.sizes)
        bind_inputs(self.body, arrays, sizes)
        return self._steps.run(arrays, sizes)


def _read_only(result: Any) -> Any:
    """What is kept for all runs: callers get copies of arrays that may not be written to."""
    if not isinstance(result, np.ndarray):
        return result
    kept = result.view()
    kept.flags.writeable = False
    return kept


def _needed_nodes(graph: Graph) -> list[Node]:
    """The nodes that some output depends on, in order: what nobody reads is not computed."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in graph.reversed_nodes:
        if not needed.isdisjoint(node.outputs):
            needed.update(node.operands)
            kept.append(node)
    return kept[::-1]


def _is_kept(node: Node) -> bool:
    """Whether a node's results are computed once: it depends on nothing, and they are small or stand on the node."""
    if node.operands or not node.op.is_pure or node.op.has(Trait.CONTROL_FLOW):
        return False
    if _attr_symbols(node) or _result_symbols(node):
        return False
    attributes = [value.type for value in node.attrs.values() if isinstance(value, Constant)]
    extents = _Extents({})
    return all(value.type in attributes or extents.nbytes(value.type) <= KEPT_BYTES for value in node.outputs)


def _result_symbols(node: Node) -> frozenset[str]:
    return frozenset[str]().union(*(type_symbols(v.type) for v in node.outputs if not _is_static(v.type)))


def _attr_symbols(node: Node) -> frozenset[str]:
    return frozenset[str]().union(*(_symbols_in(node.attrs[name]) for name in node.op.bound_attrs))


def _is_static(ty: Type) -> bool:
    return isinstance(ty, TensorType) and ty.is_static


def _symbols_in(value: AttrValue) -> frozenset[str]:
    if isinstance(value, SymDim):
        return value.symbols
    if isinstance(value, tuple):
        return frozenset[str]().union(*(_symbols_in(item) for item in value))
    return frozenset()


def _fixed_call(node: Node) -> Callable[..., Any]:
    if node.op.is_foreign:
        return lambda *operands: meaning_of(node)(node, operands)
    attrs = node.attrs.as_kwargs()
    return partial(host_meaning(node), **attrs) if attrs else node.op.meaning


class _Extents:
    """Shapes and bytes of types for one set of sizes, each type looked at once."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._shapes: dict[TensorType, tuple[int, ...] | None] = {}

    def shape(self, ty: Type) -> tuple[int, ...] | None:
        """The shape; None for what is no tensor, has no known rank, or has a size that only running tells."""
        if not isinstance(ty, TensorType):
            return None
        if ty not in self._shapes:
            self._shapes[ty] = self._evaluated(ty)
        return self._shapes[ty]

    def _evaluated(self, ty: TensorType) -> tuple[int, ...] | None:
        if ty.shape is None or not (ty.is_static or type_symbols(ty) <= self.sizes.keys()):
            return None
        return tuple([evaluate(dim, self.sizes) for dim in ty.shape])

    def nbytes(self, ty: Type) -> int:
        """The bytes that NumPy takes for a value; 0 where `shape` cannot tell."""
        shape = self.shape(ty)
        if shape is None or not isinstance(ty, TensorType):
            return 0
        count = ty.dtype.numpy.itemsize
        for size in shape:
            count *= max(0, size)
        return count


def _bound(step: _Step, extents: _Extents) -> _BoundStep:
    node, dtype, shape = step.node, None, None
    try:
        call = step.call
        if call is None and not node.regions and step.attr_symbols <= extents.sizes.keys():
            call = partial(host_meaning(node), **bound_attrs(node, dict(extents.sizes)))
        if len(node.outputs) == 1 and not node.op.is_foreign:
            shape = extents.shape(node.outputs[0].type)
            dtype = node.outputs[0].tensor.dtype.numpy
    except CapgraphError as error:
        error.located(node.where())
        raise
    return _BoundStep(node, call, step.reads, step.writes, step.frees, dtype, shape)


def _check_memory(steps: Sequence[_BoundStep], extents: _Extents) -> None:
    """Raises `ResourceError` when the values that live at the same time do not fit into the memory that is left.

    Values whose size only running tells count as nothing, and so do views.
    """
    limit = available_bytes()
    live, held = 0, dict[int, int]()
    for step in steps:
        is_view = step.node.op.has(Trait.VIEW)
        for value, slot in zip(step.node.outputs, step.writes, strict=True):
            held[slot] = 0 if is_view else extents.nbytes(value.type)
            live += held[slot]
        if limit is not None and live > limit:
            wanted = ", ".join(str(bind_type(value.type, extents.sizes)) for value in step.node.outputs)
            raise ResourceError(
                f"{size_text(live)} are needed to compute {wanted}, but {size_text(limit)} are available",
                where=step.node.where(),
                remedy="use smaller sizes, or a machine with more memory",
            )
        live -= sum([held.pop(slot, 0) for slot in step.frees])


def _store(node: Node, given: Any, sizes: Sizes, slots: list[Any], writes: tuple[int, ...]) -> None:
    """Writes what a meaning gave into its slots, brought to the declared types."""
    results = as_results(node, given)
    for value, slot, result in zip(node.outputs, writes, results, strict=True):
        slots[slot] = checked(value, result, sizes)


class EagerExecutor:
    """Runs any graph on any machine; it is the reference for every other executor."""

    def target(self) -> Target:
        """The host, always available."""
        return Target(executor="eager", device="host")

    def compile(self, graph: Graph) -> "EagerExecutable":
        """`graph` as steps. Nodes that depend on nothing are computed here, so their errors are raised here."""
        return EagerExecutable(graph)


class EagerExecutable:
    """A graph as NumPy steps. It may be called from several threads at once.

    Inputs are only read, and outputs are the caller's: they share memory with no input, weight or other output.
    """

    def __init__(self, graph: Graph) -> None:
        drawn = keyed(graph)
        self.draws = drawn.draws
        self._random = RandomState()
        self._signature = Signature(graph)
        self._steps: Steps | None = Steps(drawn.graph)
        self._names = graph.output_names

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        steps = self._steps
        if steps is None:
            raise ExecutionError("the program is closed", remedy="call capgraph.optimize again")
        values, sizes = self._signature.bind(inputs)
        if self.draws:
            values = [*values, self._random.take(self.draws)]
        with np.errstate(all="ignore"):  # infinities and NaN are results like any other
            results = steps.run(values, sizes)
        return dict(zip(self._names, owned(results, values), strict=not self.draws))

    def set_random_state(self, state: Array) -> None:
        """See `Drawing.set_random_state`."""
        self._random.set(state)

    def close(self) -> None:
        """Lets go of the weights."""
        self._steps = None
