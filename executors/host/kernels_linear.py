"""Matmuls and convolutions, written into their result."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.evaluate import bound_attrs
from ...ir.graph import Node
from ...ir.ops.nn.conv import convolve_into, unfolded_size
from ...ir.types import DType
from ..steps import feeds_softmax
from .calls import ArrayCall
from .kernels_elementwise import is_float

_Operands = Sequence[Array | None]
_Results = tuple[Array, ...]


def _matmul(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    a, b = operands
    if a is None or b is None or not is_float(a):
        return None
    if b.ndim == 2 and a.ndim > 2:
        (result,) = results
        rows = result.reshape(-1, b.shape[1]) if result.size else result.reshape(0, b.shape[1])
        if not result.size or not a.size:
            return None
        flat = a.reshape(-1, a.shape[-1])
        if not np.may_share_memory(flat, a):
            return ArrayCall(matmul_rows_into, (a, b), (rows,))
        return ArrayCall(np.matmul, (flat, b), (rows,))
    return ArrayCall(np.matmul, (a, b), results)


def matmul_rows_into(a: Array, b: Array, rows: Array) -> None:
    """One matmul for all leading axes of a strided `a`, whose rows have to be gathered first."""
    np.matmul(a.reshape(-1, a.shape[-1]), b, rows)


def _gemm(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    a, b, c = operands
    if a is None or b is None or not is_float(a):
        return None
    c = c if node.attrs["beta"] else None
    left = a.T if node.attrs["trans_a"] else a
    right = b.T if node.attrs["trans_b"] else b
    alpha, beta = node.attrs["alpha"], node.attrs["beta"]
    return ArrayCall(partial(gemm_into, alpha=alpha, beta=beta), (left, right, c), results)


def gemm_into(a: Array, b: Array, c: Array | None, result: Array, *, alpha: float, beta: float) -> None:
    """`alpha * a @ b + beta * c`."""
    np.matmul(a, b, result)
    if alpha != 1.0:
        np.multiply(result, result.dtype.type(alpha), result)
    if c is not None:
        np.add(result, c if beta == 1.0 else c * result.dtype.type(beta), result)


def _conv(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    x, weight, bias = operands
    if x is None or weight is None or not is_float(x) or feeds_softmax(node):
        return None
    function = partial(conv_into, attrs=bound_attrs(node, {}))
    return ArrayCall(function, (x, weight, _per_channel(bias, results[0].ndim)), results)


def conv_scratch(node: Node) -> int:
    """Bytes for the unfolded windows of a convolution of known sizes in f32 or f64; none where its meaning runs."""
    if feeds_softmax(node):
        return 0
    shapes = [value.shape for value in (*node.operands[1:2], *node.outputs)]
    dtype = node.outputs[0].tensor.dtype
    if dtype not in (DType.F32, DType.F64) or not all(isinstance(dim, int) for shape in shapes for dim in shape):
        return 0
    weight, result = ([int(dim) for dim in shape if isinstance(dim, int)] for shape in shapes)
    itemsize = dtype.numpy.itemsize
    return itemsize * unfolded_size(weight, result, node.attrs["strides"], node.attrs["groups"], itemsize)


def conv_over_scratch(node: Node, operands: _Operands, results: _Results, scratch: Array) -> ArrayCall | None:
    """A convolution that unfolds windows into planned bytes."""
    made = _conv(node, operands, results)
    if made is None:
        return None
    x, weight, bias = operands
    function = partial(conv_into, attrs={**bound_attrs(node, {}), "columns": scratch.view(results[0].dtype)})
    return ArrayCall(function, (x, weight, _per_channel(bias, results[0].ndim)), results)


def _per_channel(bias: Array | None, rank: int) -> Array | None:
    return None if bias is None else bias.reshape(-1, *[1] * (rank - 2))


def conv_into(x: Array, weight: Array, bias: Array | None, result: Array, *, attrs: dict[str, Any]) -> None:
    """A convolution with its bias, which is shaped to broadcast."""
    convolve_into(x, weight, result, **attrs)
    if bias is not None:
        np.add(result, bias, result)


LINEAR: dict[str, Any] = {"matmul": _matmul, "gemm": _gemm, "conv": _conv}
"""Kernels by op name."""

OVER_SCRATCH: dict[str, Any] = {"conv": (conv_scratch, conv_over_scratch)}
"""For ops whose kernels want memory of their own: how many bytes, and the kernel that uses them."""
