"""Matmuls: a bias that another operator adds, and operands that are transposed or scaled on the way."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ....ir.analysis.contents import any_constant_of
from ....ir.constant import Constant
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.export_context import ExportContext, Operand
from .block_matmuls import dequantizes_blocks
from .group import DOMAIN, Group, Operator, have_equal_shapes, is_vector, scalar_of, sole_producer

OPERATORS = frozenset(Operator("FusedMatMul", dtype) for dtype in (DType.F32, DType.F16, DType.BF16))

_MATRIX = 2  # axes


@dataclass(frozen=True)
class Biased:
    """A matmul and the bias that is added to its last axis; `inner` are the nodes that make it.

    `matmul` is written as it is; where it is None, `x` times `weight` (`is_transposed`: its transpose) is.
    """

    inner: frozenset[Node]
    bias: Value
    matmul: Value | None = None
    x: Value | None = None
    weight: Value | None = None
    is_transposed: bool = False

    def write(self, ctx: ExportContext) -> Operand:
        """The matmul without its bias."""
        if self.matmul is not None:
            return self.matmul
        assert self.x is not None
        assert self.weight is not None
        return ctx.emit_value("MatMul", (self.x, _weight(ctx, self.weight, self.is_transposed)))


def biased(value: Value) -> Biased | None:
    """`value` as a matmul and a bias of one axis, if nothing else reads what lies between."""
    node = sole_producer(value, "gemm")
    if node is not None:
        return _of_gemm(node)
    node = sole_producer(value, "add")
    if node is None:
        return None
    for matmul, bias in (node.operands, node.operands[::-1]):
        is_matmul = matmul.producer is not None and matmul.producer.op.name in ("matmul", "gemm")
        if is_matmul and is_vector(bias, value.shape[-1]) and have_equal_shapes(matmul, value):
            return Biased(frozenset({node}), bias, matmul)
    return None


def _of_gemm(node: Node) -> Biased | None:
    x, weight, bias = node.inputs
    attrs = node.attrs
    if attrs["trans_a"] or attrs["alpha"] != 1 or attrs["beta"] != 1 or bias is None or x is None or weight is None:
        return None
    if not is_vector(bias, node.output.shape[-1]) or dequantizes_blocks(weight):
        return None
    return Biased(frozenset({node}), bias, None, x, weight, attrs["trans_b"])


def _weight(ctx: ExportContext, weight: Value, is_transposed: bool) -> Operand:
    if not is_transposed:
        return weight
    content = any_constant_of(weight)
    if content is None:
        return ctx.emit_value("Transpose", (weight,), perm=(1, 0))
    return ctx.constant(Constant(np.ascontiguousarray(content.array.T), content.dtype))


# ---- transposed and scaled operands


def fused_matmul(node: Node, available: Collection[Operator], _order: Mapping[Node, int]) -> Group | None:
    """FusedMatMul: a matmul of operands whose last two axes change places, or that is scaled by a number."""
    scaled = _scaled(node) if node.op.name == "mul" else (node, 1.0)
    if scaled is None or Operator("FusedMatMul", node.output.tensor.dtype) not in available:
        return None
    matmul, factor = scaled
    (a, first), (b, second) = (_transposed(value) for value in matmul.operands)
    inner = {each for each in (first, second) if each is not None} | ({matmul} - {node})
    if not inner or len(set(matmul.operands)) != len(matmul.operands):
        return None
    if first is not None and b.tensor.rank < _MATRIX:
        return None  # with a vector on the right ONNX Runtime reads the matrix as it lies

    def write(ctx: ExportContext) -> None:
        attributes = {"transA": first is not None, "transB": second is not None, "alpha": factor}
        ctx.emit("FusedMatMul", (a, b), node.outputs, domain=DOMAIN, **attributes)

    return Group(node, frozenset(inner), node.outputs, write)


def _scaled(node: Node) -> tuple[Node, float] | None:
    for value, factor in (node.operands, node.operands[::-1]):
        matmul, number = sole_producer(value, "matmul"), scalar_of(factor)
        if matmul is None or number is None or dequantizes_blocks(matmul.operands[1]):
            continue
        if factor.tensor.rank <= value.tensor.rank:
            return matmul, number
    return None


def _transposed(value: Value) -> tuple[Value, Node | None]:
    """What an operand is the transpose of, and the node that transposes it."""
    node = sole_producer(value, "transpose")
    if node is None:
        return value, None
    rank = value.tensor.rank
    if rank < _MATRIX or tuple(node.attrs["perm"]) != (*range(rank - 2), rank - 1, rank - 2):
        return value, None
    return node.operands[0], node


RULES = {"matmul": (fused_matmul,), "mul": (fused_matmul,)}
