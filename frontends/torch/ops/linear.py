"""Matmuls."""

from collections.abc import Sequence
from typing import Any

from ....ir.graph import Value
from ..call import Call, Lowering, NoLowering, Scalar

_BATCH = 3  # axes


def _linear(c: Call, x: Value, weight: Value, bias: Value | None) -> Value:
    if weight.tensor.rank == 1:
        return _with_bias(c, _matmul(c, x, weight), bias)
    return _with_bias(c, c.op("matmul", x, c.swap(weight, 0, 1)), bias)


def _with_bias(c: Call, matmul: Value, bias: Value | None) -> Value:
    return matmul if bias is None else c.op("add", matmul, bias)


def _matmul(c: Call, a: Value, b: Value) -> Value:
    """The matmul of the last two axes; a vector stands for one row or one column."""
    left = c.unsqueeze(a, 0) if a.tensor.rank == 1 else a
    right = c.unsqueeze(b, 1) if b.tensor.rank == 1 else b
    matmul = c.op("matmul", left, right)
    last = matmul.tensor.rank - 1
    dropped = [*([last - 1] if a.tensor.rank == 1 else []), *([last] if b.tensor.rank == 1 else [])]
    return c.squeeze(matmul, *dropped)


def _mm(c: Call, a: Value, b: Value) -> Value:
    if not a.tensor.dtype.is_float and a.tensor.dtype.bits < 32:
        raise NoLowering("matmuls of small integers")
    return c.op("matmul", a, b)


def _scaled(c: Call, x: Value, factor: Scalar) -> Value:
    return x if isinstance(factor, int | float) and factor == 1 else c.op("mul", x, c.full_like(x, factor))


def _addmm(c: Call, addend: Value, a: Value, b: Value, beta: Scalar, alpha: Scalar) -> Value:
    """`beta` addend + `alpha` a @ b; what is times 0 does not count, whatever it holds."""
    is_single = len(c.shape) < _BATCH
    if isinstance(alpha, int | float) and alpha == 0 and is_single:
        return c.expand(c.full_like(addend, 0) if beta == 0 else _scaled(c, addend, beta), c.shape)
    matmul = _scaled(c, _matmul(c, a, b), alpha)
    if isinstance(beta, int | float) and beta == 0:
        return matmul
    return c.op("add", matmul, _scaled(c, addend, beta))


def _summed(c: Call, addend: Value, a: Value, b: Value, beta: Scalar, alpha: Scalar) -> Value:
    """addbmm: the matmuls of a batch, added up."""
    matmuls = _scaled(c, c.op("matmul", a, b), alpha)
    total = c.op("reduce_sum", matmuls, axes=(0,), keep_dims=False)
    return total if isinstance(beta, int | float) and beta == 0 else c.op("add", total, _scaled(c, addend, beta))


def _addr(c: Call, addend: Value, a: Value, b: Value, beta: Scalar, alpha: Scalar) -> Value:
    product = _scaled(c, c.op("mul", c.unsqueeze(c.cast(a, c.dtype), 1), c.unsqueeze(c.cast(b, c.dtype), 0)), alpha)
    return product if isinstance(beta, int | float) and beta == 0 else c.op("add", product, _scaled(c, addend, beta))


def _trilinear(
    c: Call,
    a: Value,
    b: Value,
    d: Value,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_d: Sequence[int],
    summed: Sequence[int],
    *_: Any,
) -> Value:
    """The product of three tensors, each with axes of size 1 where it is told, added up over axes."""
    rank = a.tensor.rank + len(expand_a)
    letters = "abcdefghijklmnop"[:rank]
    inputs = ["".join(x for i, x in enumerate(letters) if i not in axes) for axes in (expand_a, expand_b, expand_d)]
    kept = "".join(letter for axis, letter in enumerate(letters) if axis not in summed)
    return c.op("einsum", a, b, d, equation=f"{','.join(inputs)}->{kept}")


def _determinant(c: Call, x: Value) -> tuple[Value, None, None]:
    if c.wants(1) or c.wants(2):
        raise NoLowering("the factors of a matrix")
    return c.op("det", x), None, None


def _grouped(
    c: Call, a: Value, b: Value, ends: Value | None = None, bias: Value | None = None, _dtype: Any = None
) -> Value:
    """Rows of `a`, sorted by group, with a matrix for each group; or one matrix with one."""
    if bias is not None or c.dtype is not a.tensor.dtype:
        raise NoLowering("grouped matmuls in another dtype")
    if ends is None and a.tensor.rank == b.tensor.rank == 3:
        return c.op("matmul", a, b)
    if ends is None or (a.tensor.rank, b.tensor.rank) != (2, 3):
        raise NoLowering("grouped matmuls whose inner axis or columns are in groups")
    return c.op("grouped_matmul", a, b, ends)


TABLE: dict[str, Lowering] = {
    "aten._grouped_mm": _grouped,
    "transformers.grouped_mm_fallback": _grouped,
    "aten.linear": _linear,
    "aten.matmul": _matmul,
    "aten.mm.default": _mm,
    "aten.bmm.default": _mm,
    "aten.mv": _matmul,
    "aten.dot": _matmul,
    "aten.vdot": _matmul,
    "aten.addmm.default": _addmm,
    "aten.addmv": _addmm,
    "aten.baddbmm.default": _addmm,
    "aten.addbmm": _summed,
    "aten.addr": _addr,
    "aten._trilinear": _trilinear,
    "aten._linalg_det": _determinant,
}
