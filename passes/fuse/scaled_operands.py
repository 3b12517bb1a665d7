"""Matmuls of numbers of 8 bits: operands that are dequantized by one scale each, right before they are multiplied.

Libraries multiply such numbers as they are and bring the scales in afterwards, so a backend that has them wants the
nodes that dequantize in the region of the matmul.
"""

import math
from collections.abc import Sequence

import numpy as np

from ...ir.analysis.contents import any_constant_of, constant_of
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import DEQUANTIZE, GEMM, MATMUL, TRANSPOSE
from ...ir.ops.rules import normal_axis
from ...ir.types import DType
from ..framework.rewriter import Rewriter

FP8 = frozenset({DType.F8E4M3FN, DType.F8E5M2})
"""The floats of 8 bits that tensor cores multiply."""


CODES = FP8 | {DType.I8, DType.U8, DType.I4, DType.U4}
"""The numbers that a matmul reads as the codes of its weight."""


def scaled_operands(matmul: Node) -> tuple[Node, ...]:
    """The nodes that dequantize both operands of `matmul`, with transposes behind them; none if one is otherwise.

    Both are fp8 or both i8, with a zero point that is 0 and one scale: for the whole tensor, or for each row of the
    left and column of the right operand where that is a matrix.
    """
    if not matmul.op.has(Trait.CONTRACTION):
        return ()
    ways = [_way_to(value) for value in matmul.operands[:2]]
    if not all(ways) or not all(_is_outside_of_sums(matmul, index, way) for index, way in enumerate(ways)):
        return ()
    dtypes = {way[0].operands[0].tensor.dtype for way in ways}
    return tuple(dict.fromkeys(node for way in ways for node in way)) if dtypes <= FP8 or len(dtypes) == 1 else ()


def coded_weight(matmul: Node, most_rows: int) -> tuple[Node, ...]:
    """The nodes that dequantize the constant matrix on the right of a matmul of few rows, which are no codes.

    Codes have 4 or 8 bits. Scales and zero points are constants, and any that the op takes: by tensor, axis or block.
    """
    if matmul.op not in (MATMUL, GEMM) or matmul.operands[1].tensor.rank != 2 or scaled_operands(matmul):
        return ()
    if not has_few_rows(matmul, most_rows):
        return ()
    node = matmul.operands[1].producer
    turned = node if node is not None and node.op is TRANSPOSE else None
    back = node if turned is None else turned.operands[0].producer
    if back is None or back.op is not DEQUANTIZE or back.operands[0].tensor.dtype not in CODES:
        return ()
    if any(any_constant_of(value) is None for value in back.operands) or back is matmul.operands[0].producer:
        return ()
    return (back,) if turned is None else (back, turned)


def has_few_rows(matmul: Node, most: int) -> bool:
    """Whether a matmul has at most so many rows."""
    *outer, _ = matmul.output.shape
    return math.prod(dim for dim in outer if isinstance(dim, int)) <= most and all(
        isinstance(dim, int) for dim in outer
    )


def _way_to(operand: Value) -> tuple[Node, ...]:
    """The node that dequantizes an operand and the transpose behind it, if there is one; empty otherwise."""
    node = operand.producer
    if node is not None and node.op is TRANSPOSE:
        before = node.operands[0].producer
        return (before, node) if before is not None and _is_scaling(before) else ()
    return (node,) if node is not None and _is_scaling(node) else ()


def _is_outside_of_sums(matmul: Node, index: int, way: Sequence[Node]) -> bool:
    """Whether all that is summed has the same scale: scales lie along the axis that is not summed over."""
    back = way[0]
    if back.operands[1].tensor.shape in ((), (1,)):
        return True
    shape = back.operands[0].tensor.shape
    if shape is None or len(shape) != 2:
        return False
    axis = normal_axis(back.attrs["axis"], 2)
    is_turned = matmul.op is GEMM and matmul.attrs["trans_a" if index == 0 else "trans_b"]
    return (axis == index) != (is_turned != (len(way) > 1))


def _is_scaling(node: Node) -> bool:
    if node.op is not DEQUANTIZE or node.operands[0].tensor.dtype not in {*FP8, DType.I8}:
        return False
    scale = node.operands[1].tensor
    is_of_one_axis = scale.shape is not None and scale.rank < 2 and not node.attrs["block_size"]
    return is_of_one_axis and all(_is_zero(value) for value in node.operands[2:])


def _is_zero(value: Value) -> bool:
    content = constant_of(value)
    return content is not None and not np.any(content.array.astype(np.float32))


def scale_each_matmul(graph: Graph, most_rows: int, rewriter: Rewriter) -> None:
    """Gives matmuls that share a dequantized operand one each, where they are all that reads it."""
    for node in graph.nodes:
        if node.op is not DEQUANTIZE or node.output.is_graph_output or node.output.use_count < 2:
            continue
        users = tuple(dict.fromkeys(node.output.users))
        if len(users) < 2 or any(
            node not in (*scaled_operands(user), *coded_weight(user, most_rows)) for user in users
        ):
            continue
        if not rewriter.may_rewrite("scale-each-matmul", node):
            return
        _repeat(node, users[1:], rewriter)


def _repeat(node: Node, users: Sequence[Node], rewriter: Rewriter) -> None:
    for user in users:
        rewriter.at(user)
        own = rewriter.node(node.op, node.inputs, dict(node.attrs)).output
        inputs = [own if value is node.output else value for value in user.inputs]
        rewriter.replace(user, rewriter.node(user.op, inputs, dict(user.attrs)).output)
