"""Matmuls: `matmul`, `gemm`, `einsum`, and `det`. Floats below 32 bits are summed in f32 and rounded once."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind, Attrs
from ...constant import Array
from ...dims import Dim, product
from ...dims.constraints import require_equal
from ...errors import ShapeError, TypeRuleError
from ...op import FLOATS, INTEGERS, Op, Trait, op
from ...types import DType, TensorType, Type
from ..elementwise import is_small_float
from ..rules import broadcast_shapes, require_rank

_MATMUL_DTYPES = FLOATS | {DType.U32, DType.U64, DType.I32, DType.I64}


def accumulated(x: Array) -> Array:
    """`x` in the dtype in which products of it are summed: f32 for smaller floats, else its own."""
    return x.astype(np.float32) if is_small_float(x) else x


# ---- matmul


def matmul_type(a: TensorType, b: TensorType, **_attrs: Any) -> TensorType:
    """The type of a matmul, with leading axes broadcast and vectors as in NumPy."""
    return a.with_shape(matmul_shape(a.dims, b.dims))


def matmul_shape(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape of `matmul`. Raises `TypeRuleError` for a scalar operand, `ShapeError` for sizes that do not fit."""
    if not a or not b:
        raise TypeRuleError("matmul takes vectors and matrices, not scalars")
    require_equal(a[-1], b[-2] if len(b) > 1 else b[0], "the inner sizes of a matmul must be equal")
    leading = broadcast_shapes(a[:-2], b[:-2])
    return (*leading, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def matmul(a: Array, b: Array) -> Array:
    """Matmul of `[..., M, K]` and `[..., K, N]`, as `numpy.matmul` and ONNX MatMul.

    Leading axes broadcast; a vector is a row on the left and a column on the right. Integers wrap.
    """
    result = multiply(accumulated(a), accumulated(b))
    return result.astype(a.dtype, copy=False)


def multiply(a: Array, b: Array) -> Array:
    """`numpy.matmul`, as one matmul where `b` is a single matrix."""
    if b.ndim == 2 and a.ndim > 2:
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        return np.asarray(np.matmul(rows, b)).reshape(*a.shape[:-1], b.shape[1])
    return np.asarray(np.matmul(a, b))


def matmul_flops(inputs: Sequence[Type | None], outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    """A multiply-add for each result element and each step along the inner axis."""
    a, result = inputs[0], outputs[0]
    assert isinstance(a, TensorType)
    assert isinstance(result, TensorType)
    return 2 * result.size * a.dims[-1]


# ---- gemm


def _gemm_type(
    a: TensorType, b: TensorType, c: TensorType | None, *, alpha: float, beta: float, trans_a: bool, trans_b: bool
) -> TensorType:
    require_rank(a, 2, "operand a of gemm")
    require_rank(b, 2, "operand b of gemm")
    left = a.dims[::-1] if trans_a else a.dims
    right = b.dims[::-1] if trans_b else b.dims
    shape = matmul_shape(left, right)
    if c is not None:
        _require_broadcasts(c, shape)
    return a.with_shape(shape)


def _require_broadcasts(c: TensorType, shape: tuple[Dim, ...]) -> None:
    if c.rank > 2:
        raise TypeRuleError(f"operand c of gemm must broadcast to rank 2, not {c}")
    for size, wanted in zip(c.dims[::-1], shape[::-1], strict=False):
        if size != 1:
            require_equal(size, wanted, "operand c of gemm must broadcast to a @ b")


def gemm(a: Array, b: Array, c: Array | None, *, alpha: float, beta: float, trans_a: bool, trans_b: bool) -> Array:
    """`alpha * a' @ b' + beta * c` for matrices a' `[M, K]` and b' `[K, N]`, as ONNX Gemm.

    a' is `a`, or its transpose with `trans_a`; so for b. `c` broadcasts to `[M, N]`, and is not read where beta is 0,
    as in BLAS: it may hold NaN. Integers are exact where alpha and beta are whole numbers, and otherwise truncated at
    the end.
    """
    left, right = accumulated(a), accumulated(b)
    result = np.matmul(left.T if trans_a else left, right.T if trans_b else right)
    if alpha != 1.0:
        result = result * _factor(alpha, result.dtype)
    if c is not None and beta != 0.0:
        addend = accumulated(c)
        result = result + (addend if beta == 1.0 else addend * _factor(beta, addend.dtype))
    return np.asarray(result).astype(a.dtype, copy=False)


def _factor(value: float, dtype: Any) -> Any:
    if dtype.kind in "iu":
        return dtype.type(int(value)) if value.is_integer() and (value >= 0 or dtype.kind == "i") else np.float64(value)
    return dtype.type(value)


def _gemm_flops(inputs: Sequence[Type | None], outputs: Sequence[Type], attrs: Attrs) -> Dim:
    a, result = inputs[0], outputs[0]
    assert isinstance(a, TensorType)
    assert isinstance(result, TensorType)
    added = 0 if inputs[2] is None else 1
    return 2 * result.size * a.dims[0 if attrs["trans_a"] else 1] + added * result.size


# ---- einsum

_TERM = re.compile(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)")


def _parse_term(term: str, rank: int | None = None) -> list[str | int]:
    """The subscripts of a term; the axes that `...` stands for are counted from the last, as -1, -2, ..."""
    matched = _TERM.fullmatch(term)
    if matched is None:
        raise TypeRuleError(f"einsum cannot read {term!r}", remedy="a term is letters, with at most one '...'")
    before, dots, after = matched.groups()
    letters = len(before) + len(after)
    if rank is not None and (rank < letters or (rank > letters and not dots)):
        raise TypeRuleError(f"einsum's term {term!r} has {letters} letters, but the operand has rank {rank}")
    hidden = rank - letters if rank is not None and dots else 0
    return [*before, *range(-hidden, 0), *after]


def einsum_subscripts(equation: str, ranks: Sequence[int]) -> tuple[list[list[str | int]], list[str | int]]:
    """The subscripts of each operand's axes and of the result's; axes under `...` are -1, -2, ... from the last."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [_parse_term(term, rank) for term, rank in zip(left.split(","), ranks, strict=True)]
    names = [name for term in terms for name in term]
    hidden: list[str | int] = sorted({name for name in names if isinstance(name, int)})
    if not arrow:
        return terms, [*hidden, *sorted({name for name in names if isinstance(name, str) and names.count(name) == 1})]
    return terms, _result_subscripts(right, hidden, dict.fromkeys(names, 1))


def _einsum_dims(equation: str, operands: Sequence[TensorType]) -> tuple[dict[str | int, Dim], list[str | int]]:
    """The size of every subscript, and the subscripts of the result."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise TypeRuleError(f"einsum's equation {equation!r} has {len(terms)} terms for {len(operands)} operands")
    subscripts = [_parse_term(term, operand.rank) for term, operand in zip(terms, operands, strict=True)]
    sizes: dict[str | int, Dim] = {}
    for names, operand in zip(subscripts, operands, strict=True):
        for name, dim in zip(names, operand.dims, strict=True):
            sizes[name] = _joined(sizes.get(name, 1), dim)
    hidden: list[str | int] = sorted(name for name in sizes if isinstance(name, int))
    if not arrow:
        letters = [name for names in subscripts for name in names if isinstance(name, str)]
        return sizes, [*hidden, *sorted(name for name in set(letters) if letters.count(name) == 1)]
    return sizes, _result_subscripts(right, hidden, sizes)


def _result_subscripts(term: str, hidden: list[str | int], sizes: dict[str | int, Dim]) -> list[str | int]:
    matched = _TERM.fullmatch(term)
    if matched is None:
        raise TypeRuleError(f"einsum cannot read the result {term!r}")
    before, dots, after = matched.groups()
    names = [*before, *(hidden if dots else ()), *after]
    unknown = [name for name in names if name not in sizes]
    if unknown or len(set(names)) != len(names):
        raise TypeRuleError(f"einsum's result {term!r} must name subscripts of the operands, each once")
    return names


def _joined(known: Dim, dim: Dim) -> Dim:
    if known == 1:
        return dim
    return known if dim == 1 else require_equal(known, dim, "einsum's subscript must have one size")


def _einsum_type(*operands: TensorType, equation: str) -> TensorType:
    if not operands:
        raise TypeRuleError("einsum needs an operand")
    sizes, result = _einsum_dims(equation, operands)
    return operands[0].with_shape(tuple(sizes[name] for name in result))


def einsum(*operands: Array, equation: str) -> Array:
    """Sum of products in Einstein's notation, as ONNX Einsum and `numpy.einsum`; `...` broadcasts. Integers wrap."""
    wide = [accumulated(operand) for operand in operands]
    result = np.einsum(equation.replace(" ", ""), *wide, optimize=len(operands) > 1)
    return np.asarray(result).astype(operands[0].dtype, copy=False)


def _einsum_flops(inputs: Sequence[Type | None], _outputs: Sequence[Type], attrs: Attrs) -> Dim:
    operands = [ty for ty in inputs if isinstance(ty, TensorType)]
    sizes, _ = _einsum_dims(attrs["equation"], operands)
    return product(sizes.values()) * max(2 * (len(operands) - 1), 1)


# ---- det


def _det_type(x: TensorType) -> TensorType:
    if x.rank < 2:
        raise ShapeError(f"det takes matrices [..., M, M], not {x}")
    require_equal(x.dims[-1], x.dims[-2], "det takes square matrices")
    return x.with_shape(x.dims[:-2])


def det(x: Array) -> Array:
    """Determinant of each matrix of `[..., M, M]`, as ONNX Det."""
    return np.asarray(np.linalg.det(accumulated(x))).astype(x.dtype)


OPS: tuple[Op, ...] = (
    op(
        "matmul",
        "a: T, b: T",
        T=_MATMUL_DTYPES,
        infer=matmul_type,
        meaning=matmul,
        flops=matmul_flops,
        traits=Trait.ANCHOR | Trait.CONTRACTION,
    ),
    op(
        "gemm",
        "a: T, b: T, c: T?",
        T=_MATMUL_DTYPES,
        attrs=(
            Attribute("alpha", AttrKind.FLOAT, 1.0),
            Attribute("beta", AttrKind.FLOAT, 1.0),
            Attribute("trans_a", AttrKind.BOOL, False),
            Attribute("trans_b", AttrKind.BOOL, False),
        ),
        infer=_gemm_type,
        meaning=gemm,
        traits=Trait.ANCHOR | Trait.CONTRACTION,
        flops=_gemm_flops,
    ),
    op(
        "einsum",
        "*operands: T",
        T=FLOATS | INTEGERS,
        attrs=(Attribute("equation", AttrKind.STRING),),
        infer=_einsum_type,
        meaning=einsum,
        flops=_einsum_flops,
    ),
    op("det", "x: T", T=FLOATS, infer=_det_type, meaning=det),
)
