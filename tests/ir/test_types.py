"""Types: the facts of dtypes, content equality, binding, and what may stand for what."""

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.dims import Truth, symbol
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.types import (
    DType,
    Kind,
    OpaqueType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    bind_type,
    compatible,
    type_symbols,
)

B, T = symbol("B"), symbol("T")
F32 = DType.F32


@pytest.mark.parametrize("dtype", DType)
def test_a_dtype_is_found_by_itself_its_name_and_its_numpy_type(dtype: DType) -> None:
    assert DType.of(dtype) is dtype
    assert DType.of(str(dtype)) is dtype
    assert DType.of(dtype.numpy) is dtype
    assert dtype.itemsize == dtype.bits / 8
    assert hash(dtype) == hash(DType(dtype.value))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (float, DType.F64),
        (np.float32, DType.F32),
        ("float16", DType.F16),
        (ml_dtypes.bfloat16, DType.BF16),
        (np.dtype("<U7"), DType.STRING),
        (np.dtype("S3"), DType.STRING),
        ("i4", DType.I4),  # ours before NumPy's
        (bool, DType.BOOL),
    ],
)
def test_what_numpy_calls_it(given: object, expected: DType) -> None:
    assert DType.of(given) is expected


@pytest.mark.parametrize("given", ["f99", "datetime64[s]", np.dtype(">f4"), np.dtype([("a", "f4")]), 3])
def test_what_is_no_element_type(given: object) -> None:
    with pytest.raises(TypeRuleError, match="no element type"):
        DType.of(given)


def test_families() -> None:
    assert {dtype for dtype in DType if dtype.is_small_float} == {
        dtype for dtype in DType if dtype.is_float and dtype not in (DType.F32, DType.F64)
    }
    assert DType.BF16.kind is Kind.FLOAT
    assert DType.U4.is_integer
    assert not DType.BOOL.is_integer
    assert not DType.C64.is_float
    assert DType.I4.itemsize == 0.5


def test_shapes() -> None:
    ty = TensorType(F32, (B, 4))
    assert (ty.rank, ty.dims, ty.size) == (2, (B, 4), 4 * B)
    assert str(ty) == "f32[B, 4]"
    assert not ty.is_static
    assert TensorType(F32, ()).is_static
    assert TensorType(F32, ()).size == 1
    assert ty.with_shape(None) == TensorType(F32, None)
    assert ty.with_dtype(DType.F16) == TensorType(DType.F16, (B, 4))
    assert ty == TensorType(F32, (symbol("B"), 4))
    assert hash(ty) == hash(TensorType(F32, (symbol("B"), 4)))
    unranked = TensorType(F32, None)
    assert str(unranked) == "f32[*]"
    assert not unranked.is_static
    with pytest.raises(TypeRuleError, match="rank of f32"):
        _ = unranked.rank


NESTED: Type = SequenceType(OptionalType(TensorType(F32, (B, T * 2))))


def test_symbols_are_found_and_bound_at_any_depth() -> None:
    assert type_symbols(NESTED) == {"B", "T"}
    assert type_symbols(OpaqueType("map")) == type_symbols(TensorType(F32, None)) == frozenset()
    assert str(NESTED) == "seq(optional(f32[B, 2*T]))"
    assert str(bind_type(NESTED, {"T": 4})) == "seq(optional(f32[B, 8]))"
    assert bind_type(OpaqueType("map"), {"T": 4}) == OpaqueType("map")
    static = TensorType(F32, (3,))
    assert bind_type(static, {"T": 4}) is static


def of(*shape: object) -> TensorType:
    return TensorType(F32, shape)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "inferred", "expected"),
    [
        (of(B, 4), of(B, 4), Truth.YES),
        (of(B + B, 4), of(2 * B, 4), Truth.YES),
        (of(B), of(T), Truth.UNKNOWN),
        (of(8), of(B), Truth.UNKNOWN),
        (of(B, 4), of(T, 5), Truth.NO),
        (of(B + 1), of(B), Truth.NO),
        (of(2), of(2, 1), Truth.NO),
        (of(2), TensorType(DType.F16, (2,)), Truth.NO),
        (TensorType(F32, None), of(2), Truth.UNKNOWN),
        (SequenceType(of(B)), SequenceType(of(T)), Truth.UNKNOWN),
        (OptionalType(of(2)), OptionalType(of(3)), Truth.NO),
        (SequenceType(of(2)), OptionalType(of(2)), Truth.NO),
        (OpaqueType("a"), OpaqueType("a"), Truth.YES),
        (OpaqueType("a"), OpaqueType("b"), Truth.NO),
    ],
)
def test_what_may_stand_for_what(declared: Type, inferred: Type, expected: Truth) -> None:
    assert compatible(declared, inferred) is expected
    assert compatible(inferred, declared) is expected
