"""Matmuls against NumPy and onnx's reference evaluator."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.ops import native
from capgraph.ir.ops.nn import linear
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import assert_close, random, reference, run

size = st.integers(0, 3)


@given(
    leading=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["both", "a", "b"])), max_size=2),
    m=st.none() | size,
    k=size,
    n=st.none() | size,
    short=st.integers(0, 2),
)
def test_matmul_is_numpys(leading: Any, m: int | None, k: int, n: int | None, short: int) -> None:
    a_leading = [1 if where == "b" else dim for dim, where in leading] if m is not None else []
    b_leading = [1 if where == "a" else dim for dim, where in leading][short:] if n is not None else []
    a = random(1, *a_leading, *(() if m is None else (m,)), k)
    b = random(2, *b_leading, k, *(() if n is None else (n,)))
    (found,) = run("matmul", a, b)
    assert_close(found, np.asarray(np.matmul(a, b)))


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64, DType.U32, DType.U64])
def test_integers_are_exact_and_wrap(dtype: DType) -> None:
    a, b = random(1, 3, 4, dtype=dtype.numpy), random(2, 4, 2, dtype=dtype.numpy)
    exact = a.astype(object) @ b.astype(object)
    expected = (exact % (1 << dtype.bits)).astype(np.uint64).astype(dtype.numpy)
    np.testing.assert_array_equal(run("matmul", a, b)[0], expected)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_small_floats_are_summed_in_f32_and_rounded_once(dtype: DType) -> None:
    a, b = (random(seed, *shape).astype(dtype.numpy) for seed, shape in enumerate([(2, 3, 500), (500, 4)]))
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype.numpy)
    np.testing.assert_array_equal(run("matmul", a, b)[0], expected)
    np.testing.assert_array_equal(run("einsum", a, b, equation="bik,kj->bij")[0], expected)
    np.testing.assert_array_equal(run("gemm", a[0], b, None)[0], expected[0])


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [((2, 3), (4, 5), ShapeError), ((), (4,), TypeRuleError), ((2, 2, 3), (3, 3, 4), ShapeError)],
)
def test_refused_matmuls(a: tuple[int, ...], b: tuple[int, ...], error: type) -> None:
    with pytest.raises(error):
        native("matmul").result_types(
            [TensorType(DType.F32, a), TensorType(DType.F32, b)], linear.OPS[0].complete_attrs({})
        )


def test_flops_of_matmuls() -> None:
    batch, rows = symbol("B"), symbol("M")
    a, b = TensorType(DType.F32, (batch, rows, 5)), TensorType(DType.F32, (5, 7))
    attrs = native("matmul").complete_attrs({})
    flops = native("matmul").flops([a, b], native("matmul").result_types([a, b], attrs), attrs)
    assert evaluate(flops, {"B": 2, "M": 3}) == 2 * 2 * 3 * 5 * 7
    flat, bias = TensorType(DType.F32, (5, rows)), TensorType(DType.F32, (7,))
    attrs = native("gemm").complete_attrs({"trans_a": True})
    flops = native("gemm").flops([flat, b, bias], native("gemm").result_types([flat, b, bias], attrs), attrs)
    assert evaluate(flops, {"M": 3}) == 2 * 3 * 5 * 7 + 3 * 7


@given(
    sizes=st.tuples(size, size, size),
    trans=st.tuples(st.booleans(), st.booleans()),
    factors=st.tuples(st.sampled_from([0.0, 1.0, -0.5, 2.0]), st.sampled_from([0.0, 1.0, 0.25])),
    c_shape=st.sampled_from([None, "", "n", "1n", "m1", "mn", "1"]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_gemm_agrees_with_the_reference(sizes: Any, trans: Any, factors: Any, c_shape: str | None, dtype: Any) -> None:
    m, k, n = sizes
    a = random(1, *((k, m) if trans[0] else (m, k)), dtype=dtype)
    b = random(2, *((n, k) if trans[1] else (k, n)), dtype=dtype)
    c = None if c_shape is None else random(3, *({"m": m, "n": n, "1": 1}[s] for s in c_shape), dtype=dtype)
    is_read = c is not None and factors[1] != 0.0
    if c is not None and not is_read:
        c = np.full_like(c, np.nan)
    (found,) = run("gemm", a, b, c, alpha=factors[0], beta=factors[1], trans_a=trans[0], trans_b=trans[1])
    matmul = (a.T if trans[0] else a) @ (b.T if trans[1] else b)
    expected = np.asarray(factors[0] * matmul + (factors[1] * c if is_read else 0)).astype(dtype)
    assert_close(found, expected)


def test_gemm_of_integers_is_exact_past_the_precision_of_floats() -> None:
    a, b, c = np.array([[1 << 60]]), np.array([[3]]), np.array([1])
    assert run("gemm", a, b, c, alpha=2.0, beta=1.0)[0].item() == (((1 << 61) * 3 + 1 + (1 << 63)) % (1 << 64)) - (
        1 << 63
    )


def test_gemm_refuses_an_addend_that_does_not_broadcast() -> None:
    op = native("gemm")
    for shape, error in [((2,), ShapeError), ((1, 4, 3), TypeRuleError)]:
        types = [TensorType(DType.F32, dims) for dims in ((4, 5), (5, 3), shape)]
        with pytest.raises(error):
            op.result_types(types, op.complete_attrs({}))


EINSUMS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("b h i d, b h j d -> b h i j", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...ij,jk", [(2, 3, 4), (4, 2)]),
    ("ii->i", [(3, 3)]),
    ("...ii", [(2, 3, 3)]),
    ("ba", [(2, 3)]),
    ("i,i->", [(3,), (3,)]),
    ("i...->...", [(3, 2, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ij->", [(0, 3)]),
    ("i,j->ij", [(0,), (3,)]),
    (",i->i", [(), (3,)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EINSUMS)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_einsum_is_numpys(equation: str, shapes: list[tuple[int, ...]], dtype: Any) -> None:
    operands = [random(seed, *shape, dtype=dtype) for seed, shape in enumerate(shapes)]
    (found,) = run("einsum", *operands, equation=equation)
    assert_close(found, np.asarray(np.einsum(equation.replace(" ", ""), *operands)))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij->ij", [(2, 3, 4)]),
        ("ij,jk->ik", [(2, 3)]),
        ("ij->ii", [(2, 3)]),
        ("ij->ik", [(2, 3)]),
        ("i.j->i", [(2, 3)]),
    ],
)
def test_refused_equations(equation: str, shapes: list[tuple[int, ...]]) -> None:
    op = native("einsum")
    with pytest.raises((ShapeError, TypeRuleError)):
        op.result_types([TensorType(DType.F32, s) for s in shapes], op.complete_attrs({"equation": equation}))


@pytest.mark.parametrize("shape", [(3, 3), (2, 0, 4, 4), (2, 2, 2), (0, 0), (1, 1)])
def test_det_agrees_with_the_reference(shape: tuple[int, ...]) -> None:
    x = random(1, *shape)
    assert_close(run("det", x)[0], reference("Det", x)[0])


def test_det_refuses_what_is_not_square() -> None:
    for shape in [(2, 3), (3,)]:
        with pytest.raises(ShapeError):
            native("det").result_types([TensorType(DType.F32, shape)], native("det").complete_attrs({}))
