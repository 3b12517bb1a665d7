"""Rotary position embedding by tables, which needs no new opset as ONNX's own operator does."""

from collections.abc import Collection, Mapping

from ....ir.dims import Truth, compare
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.export_context import ExportContext, Operand
from .group import DOMAIN, Group, Operator

_NAME = "RotaryEmbedding"

OPERATORS = frozenset(Operator(_NAME, dtype) for dtype in (DType.F32, DType.F16, DType.BF16))


def rotary_embedding(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """RotaryEmbedding of tables [most positions, pairs] at positions [B, T]."""
    x, cos, sin, positions = node.inputs
    if x is None or cos is None or sin is None or positions is None:
        return None
    if cos.tensor.dtype is not x.tensor.dtype:
        return None
    if Operator(_NAME, x.tensor.dtype) not in available or not _is_for_each(positions, x):
        return None
    heads = node.attrs["heads"] or x.shape[1]
    if not isinstance(heads, int) or compare(cos.shape[0], sin.shape[0]) is not Truth.YES:
        return None

    def write(ctx: ExportContext) -> None:
        written: Operand = positions
        if positions.tensor.dtype is not DType.I64:
            written = ctx.emit_value("Cast", (positions,), to=DType.I64)
        ctx.emit(
            _NAME, (x, written, cos, sin), node.outputs, domain=DOMAIN, interleaved=node.attrs["interleaved"],
            num_heads=heads, rotary_embedding_dim=node.attrs["rotary_dim"] or None,
        )  # fmt: skip

    return Group(node, frozenset(), node.outputs, write)


def _is_for_each(positions: Value, x: Value) -> bool:
    """Whether there is a position for each step of each sample: the operator does not broadcast them."""
    steps = x.shape[2] if x.tensor.rank == 4 else x.shape[1]
    wanted = (x.shape[0], steps)
    return all(compare(*pair) is Truth.YES for pair in zip(positions.shape, wanted, strict=True))


RULES = {"rotary_embedding": (rotary_embedding,)}
