"""Steps that are heavy work with pointwise work around it: which node is the heavy one, and what lies where.

A region is a `fused` node whose body holds one matmul, convolution or attention, or such a node by itself. Its
lowering does the heavy node with as much of what follows as the kernel can take along (the epilogue) and leaves the
rest of the body to generated pointwise code.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .....ir.analysis.extract import part_of
from .....ir.graph import Graph, Node, Value
from .....ir.op import Trait
from .....ir.ops import native
from .....ir.ops.rules import normal_axis
from .....ir.plan import contiguous_strides, element_bytes
from ...kernel_ir.launch import BufferPlace, Candidate, Launch, Task
from ...kernel_ir.sources import Source, permuted, source_of, source_of_constant, view_of
from .weight_formats import ColumnWeight


@dataclass(frozen=True, slots=True)
class Scaled:
    """An operand of a matmul that is dequantized in its region: numbers of 8 bits, to be multiplied by one scale."""

    codes: Source
    scale: Source


HEAVY = frozenset({"attention", "conv", "conv_transpose", "matmul", "gemm"})
"""Ops that a region is built around."""


@dataclass
class AnchoredRegion:
    """A task with its heavy node `anchor`, and where each value lies that is not made inside."""

    task: Task
    anchor: Node
    sources: Mapping[Value, Source]
    results: tuple[Value, ...]
    norm: Node | None = None
    """A norm of the rows that the heavy node is to read: its operand stands for the heavy node's."""

    partner: Node | None = None
    """A second matmul, of the same rows normed in the same way, with a weight of the same size."""

    scaled: Mapping[Value, Scaled] = field(default_factory=dict[Value, Scaled])
    """Operands of the heavy node that are dequantized here; `operand` gives their numbers as they are before that."""

    coded: Mapping[Value, ColumnWeight] = field(default_factory=dict[Value, ColumnWeight])
    """Right operands that are dequantized here while left ones are not; `operand` gives their codes."""

    @property
    def is_alone(self) -> bool:
        """Whether the heavy node is all there is."""
        return self.anchor is self.task.node

    def operand(self, index: int) -> Source | None:
        """Where operand `index` of the heavy node lies, None where it is left out."""
        value = self.anchor.inputs[index] if index < len(self.anchor.inputs) else None
        return self.sources[value] if value is not None else None

    def result_of(self, value: Value) -> Source | None:
        """Where the task wants `value`, None if it is not one of its results."""
        if value not in self.results:
            return None
        return source_of(self.task.results[self.results.index(value)])


def region_of(task: Task) -> AnchoredRegion | None:
    """The region that a task is; None if it holds no heavy node, several, or one whose operands are made inside."""
    if task.node.op.name != "fused":
        sources = {
            value: source_of(view, task.constants.get(index))
            for index, (value, view) in enumerate(zip(task.node.inputs, task.operands, strict=True))
            if value is not None and view is not None
        }
        return AnchoredRegion(task, task.node, sources, task.node.outputs)
    body = body_of(task.node)
    heavy = [node for node in body.nodes if node.op.name in HEAVY or node.op.has(Trait.ANCHOR)]
    if len(heavy) != 1:
        return None
    sources = dict(_sources_of_body(task, body))
    norm = _norm_before(heavy[0], sources)
    if norm is not None:
        sources[norm.output] = sources[norm.operands[0]]
    scaled = _scaled_operands(heavy[0], sources)
    sources.update({value: operand.codes for value, operand in scaled.items()})
    coded = _coded_weights(heavy, sources)
    sources.update({value: weight.codes for value, weight in coded.items()})
    if not all(value in sources for value in heavy[0].operands):
        return None
    return AnchoredRegion(task, heavy[0], sources, body.outputs, norm, scaled=scaled, coded=coded)


def paired_region_of(task: Task) -> AnchoredRegion | None:
    """The region of two matmuls of the same normed rows with weights of one size; None for any other task."""
    if task.node.op.name != "fused":
        return None
    body = body_of(task.node)
    heavy = [node for node in body.nodes if node.op.name in HEAVY or node.op.has(Trait.ANCHOR)]
    if len(heavy) != 2:
        return None
    sources = dict(_sources_of_body(task, body))
    norms = [_norm_before(node, sources) for node in heavy]
    if norms[0] is None or norms[1] is None or norms[0].inputs != norms[1].inputs or norms[0].attrs != norms[1].attrs:
        return None
    coded = _coded_weights(heavy, sources)
    sources.update({value: weight.codes for value, weight in coded.items()})
    weights = [node.operands[1] for node in heavy]
    if weights[0].type != weights[1].type or not all(weight in sources for weight in weights):
        return None
    sources |= {norm.output: sources[norm.operands[0]] for norm in norms if norm is not None}
    return AnchoredRegion(task, heavy[0], sources, body.outputs, norms[0], heavy[1], coded=coded)


def _scaled_operands(heavy: Node, sources: Mapping[Value, Source]) -> dict[Value, Scaled]:
    """Both operands of a matmul, or none."""
    if heavy.op.name not in ("matmul", "gemm"):
        return {}
    found = {value: _scaled(value, sources) for value in heavy.operands[:2]}
    known = {value: operand for value, operand in found.items() if operand is not None}
    return known if len(known) == len(found) else {}


def _scaled(value: Value, sources: Mapping[Value, Source]) -> Scaled | None:
    node = value.producer
    if node is not None and node.op.name == "transpose":
        before = _scaled(node.operands[0], sources)
        return None if before is None else replace(before, codes=permuted(before.codes, node.attrs["perm"]))
    if node is None or node.op.name != "dequantize_linear" or not all(each in sources for each in node.operands):
        return None
    return Scaled(sources[node.operands[0]], sources[node.operands[1]])


def _coded_weights(matmuls: Sequence[Node], sources: Mapping[Value, Source]) -> dict[Value, ColumnWeight]:
    """Right operands that are dequantized in the region."""
    found = {node.operands[1]: _coded(node.operands[1], sources) for node in matmuls if _is_matmul(node)}
    return {value: weight for value, weight in found.items() if weight is not None and value not in sources}


def _is_matmul(node: Node) -> bool:
    return node.op.name in ("matmul", "gemm")


def _coded(value: Value, sources: Mapping[Value, Source]) -> ColumnWeight | None:
    node = value.producer
    if node is not None and node.op.name == "transpose":
        before = _coded(node.operands[0], sources)
        return None if before is None else before.permuted(node.attrs["perm"])
    if node is None or node.op.name != "dequantize_linear" or not all(each in sources for each in node.operands):
        return None
    codes, scale, *zeros = (sources[each] for each in node.operands)
    shift = _common(zeros[0]) if zeros else 0.0
    axis, block = node.attrs["axis"], node.attrs["block_size"]
    scale_by_block = _by_block(scale, codes.shape, axis, block)
    zero = _by_block(zeros[0], codes.shape, axis, block) if shift is None else None
    if scale_by_block is None or (shift is None and zero is None):
        return None
    return ColumnWeight(codes, scale_by_block, zero, shift or 0.0)


def _common(zero: Source) -> float | None:
    """The zero point that all have, None if they differ or are not known."""
    if zero.constant is None or not zero.constant.is_at_hand or not zero.size:
        return None
    items = zero.constant.array.reshape(-1).astype(np.float32)
    return float(items[0]) if np.all(items == items[0]) else None


def _by_block(source: Source, shape: tuple[int, ...], axis: int, block: int) -> Source | None:
    """Scales or zero points of a matrix as one: with a size of 1 where an axis shares them, None if blocks are cut."""
    if len(shape) != 2:
        return None
    if source.size == 1:
        return replace(source, shape=(1, 1), strides=(0, 0))
    at = normal_axis(axis, 2)
    if len(source.shape) == 1:
        sizes, strides = [1, 1], [0, 0]
        sizes[at], strides[at] = source.size, source.strides[0]
        return replace(source, shape=tuple(sizes), strides=tuple(strides))
    return source if source.shape[at] * block == shape[at] else None


def _norm_before(heavy: Node, sources: Mapping[Value, Source]) -> Node | None:
    norm = heavy.operands[0].producer
    if norm is None or norm.op.name not in ("rms_norm", "layer_norm") or not _multiplies_rows(heavy):
        return None
    return norm if all(value in sources for value in norm.operands) else None


def _multiplies_rows(node: Node) -> bool:
    return node.op.name == "matmul" or (node.op.name == "gemm" and not node.attrs["trans_a"])


def body_of(node: Node) -> Graph:
    """The body of a `fused` node."""
    body = node.attrs["body"]
    assert isinstance(body, Graph)
    return body


def _sources_of_body(task: Task, body: Graph) -> Iterator[tuple[Value, Source]]:
    for index, (value, view) in enumerate(zip(body.inputs, task.operands, strict=True)):
        assert view is not None  # a fused node has no operand that is left out
        yield value, source_of(view, task.constants.get(index))
    for node in body.nodes:
        if node.op.name == "constant":
            yield node.output, source_of_constant(node.attrs["value"])


def next_step(region: AnchoredRegion, value: Value) -> Node | None:
    """The one node that takes `value` further inside of the region; None if it is a result or has several readers."""
    if region.is_alone or value in region.results:
        return None
    users = set(value.users)
    if len(users) != 1 or len(value.uses) != 1:
        return None
    (user,) = users
    return user if user.op.has(Trait.ELEMENTWISE) and len(user.outputs) == 1 else None


def other_operand(node: Node, value: Value) -> Value | None:
    """The second operand of a binary node that takes `value`."""
    if len(node.operands) != 2:
        return None
    return node.operands[1] if node.operands[0] is value else node.operands[0]


# ---- what is left over


@dataclass(frozen=True, slots=True)
class Made:
    """A value of a region, where its first half puts it, and the bytes of scratch that are taken from the front."""

    value: Value
    source: Source
    scratch_bytes: int = 0


def made_in(region: AnchoredRegion, value: Value) -> Made | None:
    """Memory for `value` while a region runs: that of the result which it is, else the front of the scratch.

    None when there is less scratch than that.
    """
    wanted = region.result_of(value)
    if wanted is not None:
        return Made(value, wanted)
    shape, dtype = static_shape(value), value.tensor.dtype
    nbytes = aligned(math.prod(shape) * element_bytes(dtype))
    scratch = region.task.scratch
    if scratch is None or nbytes > region.task.scratch_bytes:
        return None
    return Made(value, Source(dtype, shape, contiguous_strides(shape, 1), scratch), nbytes)


def scratch_behind(task: Task, used: int, wanted: int | None = None) -> tuple[BufferPlace | None, int]:
    """What is left of the scratch behind its first `used` bytes, at most `wanted` bytes of it."""
    room = task.scratch_bytes - used
    if task.scratch is None or room <= 0:
        return None, 0
    return BufferPlace(task.scratch.buffer, task.scratch.offset + used), room if wanted is None else min(room, wanted)


def aligned(nbytes: int) -> int:
    """Rounded up to 256 bytes."""
    return -(-nbytes // 256) * 256


def static_shape(value: Value) -> tuple[int, ...]:
    """The sizes of a value of a specialized graph."""
    return tuple(dim for dim in value.shape if isinstance(dim, int))


def completed(
    name: str, region: AnchoredRegion, made: Made, launches: Sequence[Launch], scratch: int = 0
) -> Iterator[Candidate]:
    """Candidates that make a value by `launches` and then do the rest of the region.

    `scratch` is how much the launches take themselves, behind what `made` takes.
    """
    if len(region.results) == 1 and made.value is region.results[0]:
        yield Candidate(name, tuple(launches), made.scratch_bytes + scratch)
        return
    task = _rest_task(region, made)
    if task is None:
        return
    from ..fused import lower_fused

    for rest in lower_fused(task):
        used = made.scratch_bytes + max(scratch, rest.scratch_bytes)
        yield Candidate(f"{name}+{rest.name}", (*launches, *rest.launches), used)


def made_before(value: Value) -> set[Node]:
    """The nodes of a body that lead to `value`."""
    done: set[Node] = set()
    pending = [value]
    while pending:
        node = pending.pop().producer
        if node is not None and node not in done and node.inputs:
            done.add(node)
            pending += node.operands
    return done


def _rest_task(region: AnchoredRegion, made: Made) -> Task | None:
    """What follows a made value as a task of its own; None if it needs a value that was only made on the way there."""
    body = body_of(region.task.node)
    done = made_before(made.value)
    nodes = [node for node in body.nodes if node not in done and node.inputs]
    sources = {**region.sources, made.value: made.source}
    inside = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.operands if value not in inside)
    wanted = [value for value in region.results if value is not made.value]
    if any(value not in sources for value in read) or any(value not in inside for value in wanted):
        return None
    constants = [value.producer for value in read if value.producer is not None and not value.producer.inputs]
    outer = [value for value in read if value.producer not in constants]
    views = [view_of(sources[value]) for value in outer]
    part = part_of(body, [*(node for node in constants if node is not None), *nodes], outer, wanted)
    graph = Graph("rest", symbols=part.symbols)
    inputs = [graph.add_input(value.name, value.type) for value in outer]
    node = graph.append(native("fused"), inputs, {"body": part})
    known = {index: constant for index, value in enumerate(outer) if (constant := sources[value].constant) is not None}
    results = tuple(region.task.results[region.results.index(value)] for value in wanted)
    scratch, room = scratch_behind(region.task, made.scratch_bytes)
    return replace(
        region.task,
        node=node,
        operands=tuple(views),
        results=results,
        constants=known,
        scratch=scratch,
        scratch_bytes=room,
    )
