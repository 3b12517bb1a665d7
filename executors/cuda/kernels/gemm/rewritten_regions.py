"""Regions whose operands are dequantized or normed in them, written anew around what is made of the matmul."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from .....ir.attrs import AttrValue
from .....ir.constant import Constant
from .....ir.errors import UnsupportedError
from .....ir.graph import Graph, Node, Value
from .....ir.ops import native
from .....ir.ops.rules import normal_axis
from .....ir.plan import View, contiguous_strides, element_bytes
from .....ir.types import DType, TensorType
from ...kernel_ir.copies import copied
from ...kernel_ir.launch import BufferPlace, Candidate, Launch, Task
from ...kernel_ir.sources import Source, packed_weight, permuted, transposed, view_of
from ..fused import lower_fused
from .operands import GemmOperands, gemm_operands
from .regions import AnchoredRegion, aligned, body_of, scratch_behind, static_shape


@dataclass
class Scratch:
    """The scratch memory of a task, given out from the front on."""

    task: Task
    used: int = 0

    def take(self, dtype: DType, shape: tuple[int, ...]) -> Source:
        """A tensor in order. Raises `UnsupportedError` when there is not enough."""
        nbytes = aligned(math.prod(shape) * element_bytes(dtype))
        place, room = scratch_behind(self.task, self.used)
        if place is None or nbytes > room:
            raise UnsupportedError("a step takes more scratch memory than was planned")
        self.used += nbytes
        return Source(dtype, shape, contiguous_strides(shape, 1), place)

    def rest_of(self, task: Task) -> Task:
        """A task that works in what is left."""
        place, room = scratch_behind(self.task, self.used)
        return replace(task, scratch=place, scratch_bytes=room)


def within_scratch(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, none where one cannot be made: mostly as it takes more scratch memory than there is."""
    try:
        return list(candidates)
    except UnsupportedError:
        return []


@dataclass
class _Body:
    """A body in the making: values of a region by what they are here, and where its operands lie."""

    region: AnchoredRegion
    graph: Graph = field(default_factory=lambda: Graph("fused"))
    where: dict[Value, Value] = field(default_factory=dict[Value, Value])
    sources: list[Source] = field(default_factory=list[Source])

    def given(self, source: Source) -> Value:
        """An operand."""
        self.sources.append(source)
        return self.graph.add_input(f"operand{len(self.sources)}", TensorType(source.dtype, source.shape))

    def of(self, value: Value) -> Value:
        """A value of the region, which is made here, stands in its body, or lies in memory."""
        if value not in self.where:
            self.where[value] = self._brought(value)
        return self.where[value]

    def _brought(self, value: Value) -> Value:
        node = value.producer
        if node is not None and node.op.name == "constant":
            return self.graph.append(node.op, [], dict(node.attrs)).output
        return self.given(self.region.sources[value])

    def add(self, op: str, *operands: Value, **attrs: AttrValue) -> Value:
        """The result of a new node."""
        return self.graph.append(native(op), operands, attrs).output

    def spread(self, value: Value, behind: int) -> Value:
        """A vector of the region, with `behind` axes of size 1 behind its own."""
        source = self.region.sources[value]
        shape = (source.size, *(1,) * behind)
        if source.constant is not None:
            content = Constant(source.constant.array.reshape(shape))
            return self.graph.append(native("constant"), [], {"value": content}).output
        return self.given(replace(source, shape=shape, strides=(*source.strides, *(0,) * behind)))

    def number(self, number: float) -> Value:
        """A constant in f32."""
        return self.graph.append(native("constant"), [], {"value": Constant(np.float32(number))}).output

    def copy(self, nodes: Iterable[Node]) -> None:
        """Nodes of the region."""
        for node in nodes:
            operands = [None if value is None else self.of(value) for value in node.inputs]
            made = self.graph.append(node.op, operands, dict(node.attrs))
            self.where.update(zip(node.outputs, made.outputs, strict=True))

    def task(self, outputs: Iterable[Value], results: tuple[View, ...], like: Task) -> Task:
        """What the body computes as a task. Raises `UnsupportedError` for packed operands, which are no views."""
        self.graph.set_outputs(list(outputs))
        outer = Graph("rewritten")
        inputs = [outer.add_input(value.name, value.type) for value in self.graph.inputs]
        node = outer.append(native("fused"), inputs, {"body": self.graph})
        views = [view_of(source) for source in self.sources]
        if None in views:
            raise UnsupportedError("a packed constant has no view")
        constants = {i: source.constant for i, source in enumerate(self.sources) if source.constant is not None}
        return replace(like, node=node, operands=tuple(views), results=results, constants=constants)


def with_operands_dequantized(region: AnchoredRegion, scratch: Scratch) -> tuple[Task, list[Launch]]:
    """The region with its operands in scratch memory, and the launches that dequantize them."""
    body = _Body(region)
    before: list[Launch] = []
    for value in region.scaled:
        made, launches = _dequantized_operand(region, value, scratch)
        body.where[value] = body.given(made)
        before += launches
    body.copy([region.anchor, *_behind(region)])
    task = body.task([body.of(value) for value in region.results], region.task.results, region.task)
    return scratch.rest_of(task), before


def with_rows_normed(region: AnchoredRegion, norm: Node, scratch: Scratch) -> tuple[Task, tuple[Launch, ...]]:
    """The region with normed rows in scratch memory, and the launches that norm them."""
    alone, body = _Body(region), _Body(region)
    alone.copy([norm])
    made = scratch.take(norm.output.tensor.dtype, static_shape(norm.output))
    body.where[norm.output] = body.given(made)
    body.copy([region.anchor, *_behind(region)])
    task = body.task([body.of(value) for value in region.results], region.task.results, region.task)
    return scratch.rest_of(task), _pointwise(alone, alone.of(norm.output), made)


def without_matmul(region: AnchoredRegion, total: Source, scratch: Scratch, *, is_scaled: bool) -> Task:
    """What follows the sum of products `total`, which holds the scales already if it `is_scaled`."""
    body = _Body(region)
    anchor = region.anchor
    value = body.add("cast", body.given(total), to=DType.F32)
    for index, operand in enumerate(() if is_scaled else anchor.operands[:2]):
        value = body.add("mul", value, _scale(body, operand, behind=1 - index))
    if anchor.op.name == "gemm":
        value = _gemm(body, anchor, value)
    body.where[anchor.output] = body.add("cast", value, to=anchor.output.tensor.dtype)
    body.copy(_behind(region))
    task = body.task([body.of(result) for result in region.results], region.task.results, region.task)
    return scratch.rest_of(task)


def quantized_again(region: AnchoredRegion, total: Source, scratch: Scratch) -> Task:
    """What a `qlinear_matmul` makes of its exact sum `total`, in the order in which its meaning rounds."""
    _, a_scale, _, _, b_scale, _, y_scale, y_zero = region.anchor.operands
    result = region.anchor.output
    body = _Body(region)
    value = body.add("cast", body.given(total), to=DType.F32)
    scale = body.add("mul", _of_rows(body, a_scale), body.add("cast", body.of(b_scale), to=DType.F32))
    scale = body.add("div", scale, _of_rows(body, y_scale))
    rounded = body.add("round", body.add("mul", value, scale))
    limits = np.iinfo(result.tensor.dtype.numpy)
    moved = body.add("add", rounded, _of_rows(body, y_zero))
    held = body.add("clip", moved, body.number(limits.min), body.number(limits.max))
    made = body.add("cast", held, to=result.tensor.dtype)
    return scratch.rest_of(body.task([made], region.task.results, region.task))


def signed_bytes(region: AnchoredRegion, value: Value, made: Source) -> tuple[Launch, ...]:
    """The launches that write bytes of a region less 128 to `made`, as i8."""
    body = _Body(region)
    middle = body.graph.append(native("constant"), [], {"value": Constant(np.int32(128))}).output
    shifted = body.add("sub", body.add("cast", body.of(value), to=DType.I32), middle)
    return _pointwise(body, body.add("cast", shifted, to=DType.I8), made)


def _of_rows(body: _Body, value: Value) -> Value:
    """A parameter in f32: a vector has an element for each row."""
    is_vector = value.tensor.rank == 1 and value.tensor.size != 1
    return body.add("cast", body.spread(value, 1) if is_vector else body.of(value), to=DType.F32)


def scale_in_f32(region: AnchoredRegion, operand: Value, scratch: Scratch) -> tuple[Source, tuple[Launch, ...]]:
    """The scale of an operand in scratch memory, and the launches that bring it there."""
    value = _scaling(operand).operands[1]
    made = scratch.take(DType.F32, static_shape(value))
    body = _Body(region)
    return made, _pointwise(body, body.add("cast", body.of(value), to=DType.F32), made)


def _dequantized_operand(region: AnchoredRegion, operand: Value, scratch: Scratch) -> tuple[Source, tuple[Launch, ...]]:
    back = _scaling(operand)
    made = scratch.take(back.output.tensor.dtype, static_shape(back.output))
    body = _Body(region)
    codes = body.add("cast", body.of(back.operands[0]), to=DType.F32)
    product = body.add("mul", codes, _scale(body, operand, _axes_behind_scales(back)))
    launches = _pointwise(body, body.add("cast", product, to=made.dtype), made)
    node = operand.producer
    is_turned = node is not None and node is not back
    return permuted(made, node.attrs["perm"]) if node is not None and is_turned else made, launches


def _pointwise(body: _Body, value: Value, made: Source) -> tuple[Launch, ...]:
    """The launches that compute `value` of a body into `made`."""
    view = view_of(made)
    assert view is not None  # scratch memory is a view
    first = next(
        lower_fused(body.task([value], (view,), replace(body.region.task, scratch=None, scratch_bytes=0))), None
    )
    if first is None:
        raise UnsupportedError("there is no kernel for a dtype of an operand")
    return first.launches


def _scaling(operand: Value) -> Node:
    """The node that dequantizes an operand; a transpose may stand behind it."""
    node = operand.producer
    assert node is not None  # an operand that is not dequantized is none of these regions
    return node if node.op.name == "dequantize_linear" else _scaling(node.operands[0])


def _axes_behind_scales(back: Node) -> int:
    """How many axes lie behind the one that scales lie along, none for a single scale."""
    if back.operands[1].tensor.size == 1:
        return 0
    rank = back.output.tensor.rank
    return rank - 1 - normal_axis(back.attrs["axis"], rank)


def _scale(body: _Body, operand: Value, behind: int) -> Value:
    """The scales of an operand in f32; those of an axis with `behind` axes of their own behind it."""
    value = _scaling(operand).operands[1]
    known = body.of(value) if body.region.sources[value].size == 1 else body.spread(value, behind)
    return body.add("cast", known, to=DType.F32)


def _gemm(body: _Body, gemm: Node, matmul: Value) -> Value:
    """What the op makes of the matmul of its operands, in f32."""
    alpha, beta, c = gemm.attrs["alpha"], gemm.attrs["beta"], gemm.inputs[2]
    if alpha != 1.0:
        matmul = body.add("mul", matmul, body.number(alpha))
    if c is None or beta == 0.0:
        return matmul
    added = body.add("cast", body.of(c), to=DType.F32)
    return body.add("add", matmul, added if beta == 1.0 else body.add("mul", added, body.number(beta)))


def _behind(region: AnchoredRegion) -> list[Node]:
    """The nodes of the body behind its matmul."""
    nodes = body_of(region.task.node).nodes
    before = {*_leading_to(region.anchor), region.anchor}
    return [node for node in nodes if node not in before and node.inputs]


def _leading_to(matmul: Node) -> set[Node]:
    pending = [value.producer for value in matmul.operands[:2]]
    found: set[Node] = set()
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [value.producer for value in node.operands]
    return found


# ---- operands of 8 bits, as tensor cores read them: the inner axis side by side, rows in whole pieces

PIECE = 16
"""Multiples of which sizes, strides and addresses of operands in bytes have to be."""


def byte_operands(
    a: Source, b: Source, d: Source, c: Source | None, scratch: Scratch
) -> tuple[GemmOperands, list[Launch]]:
    """The operands of a matmul with the inner axis side by side, and the copies of those that lie otherwise.

    Raises `UnsupportedError` when there is not enough scratch memory for a copy.
    """
    before: list[Launch] = []
    a = _along_inner(a, scratch, before)
    b = transposed(_along_inner(transposed(packed_weight(b)), scratch, before))
    return gemm_operands(a, b, d, c), before


def _along_inner(rows: Source, scratch: Scratch, before: list[Launch]) -> Source:
    """An operand [..., inner] as it is, or a copy of it."""
    if is_in_pieces(rows):
        return rows
    source = view_of(rows)
    made = scratch.take(rows.dtype, rows.shape)
    target = view_of(made)
    if source is None or target is None:
        raise UnsupportedError("a constant that is packed has no view")
    before += copied(source, target, scratch.task.chip)
    return made


def is_in_pieces(rows: Source) -> bool:
    """Whether elements of a row lie side by side, and each row begins at a multiple of 16 bytes."""
    itemsize = rows.dtype.numpy.itemsize
    outer = [stride * itemsize for size, stride in zip(rows.shape[:-1], rows.strides[:-1], strict=True) if size != 1]
    offset = rows.argument.offset if isinstance(rows.argument, BufferPlace) else 0
    return rows.strides[-1] == 1 and all(each % PIECE == 0 for each in (*outer, offset))
