"""Ops whose ONNX operator is newer than the opset being written, as older operators.

Each body means what the node means, takes its operands and gives its results; it is written in the node's place, by
the export rules of its own nodes. In f16 and bf16 statistics of norms are computed in f32, as the operators do.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ....ir.builder import Builder
from ....ir.constant import Constant
from ....ir.dims import Dim
from ....ir.graph import Graph, Node, Value
from ....ir.ops.rules import normal_axis
from ....ir.types import DType
from ..context.export_context import ExportContext
from .attention_parts import attention_parts

_SMALL_FLOATS = (DType.F16, DType.BF16)
_GROUP_AXIS = 2


class Parts(NamedTuple):
    """The opset from which on an op is one operator, and how its parts are written before."""

    since: int
    write: Callable[[ExportContext, Node], None]


def _in_line(body: Callable[[Builder, Node, tuple[Value | None, ...]], Value]) -> Callable[[ExportContext, Node], None]:
    def write(ctx: ExportContext, node: Node) -> None:
        ctx.inline(_body(body, node))

    return write


def _body(make: Callable[[Builder, Node, tuple[Value | None, ...]], Value], node: Node) -> Graph:
    """The graph of a node's parts over the symbols of the graph around it; absent operands are no inputs."""
    b = Builder(node.op.name, symbols=node.graph.symbols if node.graph is not None else None)
    names = {index: operand.name for index, operand in enumerate(node.op.operands)}
    given = tuple(
        None if value is None else b.input(f"{names.get(index, 'x')}", value.type)
        for index, value in enumerate(node.inputs)
    )
    return b.finish([make(b, node, given)])


def _first(given: tuple[Value | None, ...]) -> Value:
    x = given[0]
    assert x is not None  # no op here goes without its first operand
    return x


def _scalar(b: Builder, number: float, like: Value) -> Value:
    dtype = like.tensor.dtype
    return b.op("constant", value=Constant(np.asarray(number, dtype.numpy), dtype))


# ---- activations


def _composed(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x = _first(given)
    assert node.op.scalar is not None  # asked for such ops only
    return node.op.scalar.written(x, lambda number: _scalar(b, number, x), lambda op, parts: b.op(op, *parts))


write_composed = _in_line(_composed)
"""Writes an op without an operator as the ops that it is made from."""


def _gelu(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x = _first(given)
    if node.attrs["approximate"] == "tanh":
        cube = b.op("mul", b.op("pow", x, _scalar(b, 3, x)), _scalar(b, 0.044715, x))
        curve = b.op("tanh", b.op("mul", b.op("add", x, cube), _scalar(b, math.sqrt(2 / math.pi), x)))
    else:
        curve = b.op("erf", b.op("div", x, _scalar(b, math.sqrt(2), x)))
    return b.op("mul", b.op("mul", x, _scalar(b, 0.5, x)), b.op("add", curve, _scalar(b, 1, x)))


def _hard_swish(b: Builder, _node: Node, given: tuple[Value | None, ...]) -> Value:
    x = _first(given)
    return b.op("mul", x, b.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5))


def _mish(b: Builder, _node: Node, given: tuple[Value | None, ...]) -> Value:
    x = _first(given)
    return b.op("mul", x, b.op("tanh", b.op("softplus", x)))


def _celu(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x, alpha = _first(given), node.attrs["alpha"]
    if alpha == 1:
        return b.op("elu", x)
    factor = _scalar(b, alpha, x)
    return b.op("mul", b.op("elu", b.op("div", x, factor)), factor)


# ---- norms


def _wide(b: Builder, x: Value) -> Value:
    return b.op("cast", x, to=DType.F32) if x.tensor.dtype in _SMALL_FLOATS else x


def _like(b: Builder, x: Value, dtype: DType) -> Value:
    return x if x.tensor.dtype is dtype else b.op("cast", x, to=dtype)


def _trailing(x: Value, axis: int) -> list[int]:
    return list(range(normal_axis(axis, x.tensor.rank), x.tensor.rank))


def _normalized(b: Builder, x: Value, axes: list[int], epsilon: float) -> Value:
    square = b.op("pow", x, _scalar(b, 2, x))
    variance = b.op("reduce_mean", square, axes=axes, keep_dims=True)
    guarded = b.op("add", variance, _scalar(b, epsilon, x)) if epsilon else variance
    return b.op("div", x, b.op("sqrt", guarded))


def _layer_norm(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x, scale, bias = _first(given), *given[1:]
    wide = _wide(b, x)
    axes = _trailing(x, node.attrs["axis"])
    centered = b.op("sub", wide, b.op("reduce_mean", wide, axes=axes, keep_dims=True))
    y = _like(b, _normalized(b, centered, axes, node.attrs["epsilon"]), x.tensor.dtype)
    y = y if scale is None else b.op("mul", y, scale)
    return y if bias is None else b.op("add", y, bias)


def _rms_norm(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x, scale = _first(given), given[1]
    wide = _wide(b, x)
    y = _normalized(b, wide, _trailing(x, node.attrs["axis"]), node.attrs["epsilon"])
    y = _like(b, y, x.tensor.dtype)
    return y if scale is None else b.op("mul", y, scale)


def _group_norm(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x, scale, bias = _first(given), *given[1:]
    assert scale is not None  # the op requires both
    assert bias is not None
    groups = node.attrs["groups"]
    batch, *rest = x.shape
    size: Dim = 1
    for dim in rest:
        size = size * dim
    rows = b.op("reshape", _wide(b, x), shape=(batch, groups, size // groups))
    centered = b.op("sub", rows, b.op("reduce_mean", rows, axes=[_GROUP_AXIS], keep_dims=True))
    y = _normalized(b, centered, [_GROUP_AXIS], node.attrs["epsilon"])
    y = _like(b, b.op("reshape", y, shape=x.shape), x.tensor.dtype)
    by_channel = (rest[0], *(1 for _ in rest[1:]))
    return b.op(
        "add",
        b.op("mul", y, b.op("reshape", scale, shape=by_channel)),
        b.op("reshape", bias, shape=by_channel),
    )


# ---- the rest


def _rotary_embedding(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x, cos, sin, positions = _first(given), *given[1:]
    assert cos is not None  # the op requires both tables
    dtype, wide = x.tensor.dtype, cos.tensor.dtype
    x = x if dtype is wide else b.op("cast", x, to=wide)
    heads, is_apart = node.attrs["heads"], x.tensor.rank == 4  # axes of heads apart
    depth = x.shape[3] if is_apart else x.shape[2] // heads
    by_head = x if is_apart else b.op("reshape", x, shape=(x.shape[0], x.shape[1], heads, depth))
    count: Dim = node.attrs["rotary_dim"] or depth

    def table(values: Value | None) -> Value:
        assert values is not None  # the op requires both tables
        chosen = values if positions is None else b.op("gather", values, positions, axis=0)
        return b.op("unsqueeze", chosen, axes=[1 if is_apart else 2])

    def part(start: Dim, end: Dim, step: int) -> Value:
        return b.op("slice", by_head, axes=(3,), starts=(start,), ends=(end,), steps=(step,))

    c, s = table(cos), table(sin)
    if node.attrs["interleaved"]:
        first, second = part(0, count, 2), part(1, count, 2)
    else:
        first, second = part(0, count // 2, 1), part(count // 2, count, 1)
    turned = [
        b.op("sub", b.op("mul", first, c), b.op("mul", second, s)),
        b.op("add", b.op("mul", first, s), b.op("mul", second, c)),
    ]
    if node.attrs["interleaved"]:
        pairs = b.op("concat", *(b.op("unsqueeze", each, axes=[4]) for each in turned), axis=4)
        turned = [b.op("reshape", pairs, shape=(*by_head.shape[:3], count))]
    if count != depth:
        turned.append(part(count, depth, 1))
    joined = turned[0] if len(turned) == 1 else b.op("concat", *turned, axis=3)
    turned_back = joined if is_apart else b.op("reshape", joined, shape=x.shape)
    return turned_back if dtype is wide else b.op("cast", turned_back, to=dtype)


def _trilu(b: Builder, node: Node, given: tuple[Value | None, ...]) -> Value:
    x, diagonal = _first(given), node.attrs["diagonal"]
    row = b.op("unsqueeze", b.op("arange", limit=x.shape[-2]), axes=[1])
    column = b.op("arange", limit=x.shape[-1])
    edge = b.op("add", row, b.constant(np.int64(diagonal))) if diagonal else row
    kept = b.op("greater_equal" if node.attrs["upper"] else "less_equal", column, edge)
    return b.op("where", kept, x, _scalar(b, 0, x))


def _or_equal(strict: str) -> Callable[[Builder, Node, tuple[Value | None, ...]], Value]:
    return lambda b, _node, given: b.op("logical_or", b.op(strict, *given), b.op("equal", *given))


PARTS: Mapping[str, Parts] = {
    "attention": Parts(23, attention_parts),
    "celu": Parts(12, _in_line(_celu)),
    "gelu": Parts(20, _in_line(_gelu)),
    "greater_equal": Parts(12, _in_line(_or_equal("greater"))),
    "group_norm": Parts(21, _in_line(_group_norm)),
    "hard_swish": Parts(14, _in_line(_hard_swish)),
    "layer_norm": Parts(17, _in_line(_layer_norm)),
    "less_equal": Parts(12, _in_line(_or_equal("less"))),
    "mish": Parts(18, _in_line(_mish)),
    "rms_norm": Parts(23, _in_line(_rms_norm)),
    "rotary_embedding": Parts(23, _in_line(_rotary_embedding)),
    "trilu": Parts(14, _in_line(_trilu)),
}
