"""Conversions beside exact arithmetic on Python's numbers and onnx's reference evaluator."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.op import ANY, FLOAT8, NUMBERS, SUB_BYTE
from capgraph.ir.ops import native
from capgraph.ir.types import DType, Kind, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.drawn_arrays import arrays, assert_same, shapes
from tests.ir.ops.onnx_oracle import reference, run

T = symbol("T")
NUMERIC = sorted(ANY - {DType.STRING, DType.C64, DType.C128}, key=str)
SATURATING = sorted(FLOAT8 - {DType.F8E8M0}, key=str)


def drawn(dtypes):
    return st.sampled_from(sorted(dtypes, key=str))


def onnx_type(dtype):
    return onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy)


# ---- cast


@pytest.mark.parametrize("to", NUMERIC, ids=str)
@given(data=st.data(), source=drawn(NUMERIC))
def test_a_value_that_fits_comes_through(to, data, source):
    """Every pair of numeric dtypes, on the values that both hold."""
    codes = np.arange(256, dtype=np.uint8)
    if to.bits <= 8 and to.kind is not Kind.BOOL:
        held = native("bit_cast").meaning(codes[: 2**to.bits], to=to) if to.bits < 8 else codes.view(to.numpy)
        held = held.astype(np.float32)
    else:
        held = np.array([0, 1] if to.kind is Kind.BOOL else [0, 0.5, 1, 2, 3, 100, -1, -2], np.float32)
    x = data.draw(st.lists(st.sampled_from([v for v in held.tolist() if math.isfinite(v)]), max_size=5))
    with np.errstate(all="ignore"):
        exact = np.array(x, np.float32)
        given_ = native("cast").meaning(exact, to=source, saturate=True, round_mode="up")
        fits = given_.astype(np.float32) == exact
    if to.is_integer:
        fits &= exact == np.trunc(exact)
        fits &= (exact >= 0) if to.kind is Kind.UINT else True
    (result,) = run("cast", given_[fits], to=to)
    assert result.astype(np.float32).tolist() == exact[fits].tolist()


@given(data=st.data(), shape=shapes(), source=drawn(NUMERIC), to=drawn(NUMERIC))
def test_types_of_every_pair(data, shape, source, to):
    assert run("cast", data.draw(arrays(source, shape)), to=to)[0].dtype == to.numpy


@pytest.mark.parametrize("to", [DType.U32, DType.U64], ids=str)
@given(source=drawn([DType.F16, DType.BF16, DType.F32, DType.F64]), length=st.integers(1, 40))
def test_a_float_out_of_the_range_of_an_unsigned_integer_has_one_result_wherever_it_stands(to, source, length):
    for number in (np.nan, np.inf, -np.inf, -1.0, -3.5, 2.0**32, 2.0**63, 2.0**64, 1e30):
        with np.errstate(over="ignore"):
            x = np.full(length, number).astype(source.numpy)
        (result,) = run("cast", x, to=to)
        assert len(set(result.tolist())) == 1
    (inside,) = run("cast", np.array([0.0, 1.9, 2.0**31, 2.0**63 * (to is DType.U64)]), to=to)
    assert inside.tolist() == [0, 1, 2**31, 2**63 * (to is DType.U64)]


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("to", SATURATING, ids=str)
@given(data=st.data(), source=drawn([DType.F16, DType.BF16, DType.F32, DType.F64, *SATURATING]))
def test_fp8_out_of_range(to, saturate, data, source):
    x = data.draw(arrays(source, shapes()))
    (result,) = run("cast", x, to=to, saturate=saturate)
    if source is to:
        return assert_same(result, x)
    found, exact = result.astype(np.float32), x.astype(np.float64)
    most = float(ml_dtypes.finfo(to.numpy).max)
    nearest = np.clip(exact, -most, most).astype(np.float32).astype(to.numpy).astype(np.float32)
    overflow = np.inf if to is DType.F8E5M2 else np.nan
    beyond = np.abs(exact.astype(np.float32)) >= most * (1 + 2.0 ** -(ml_dtypes.finfo(to.numpy).nmant + 2))
    expected = nearest if saturate else np.where(beyond & ~np.isnan(exact), np.copysign(overflow, exact), nearest)
    return np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_fp8_of_infinity_and_nan():
    x = np.array([np.inf, -np.inf, np.nan, 1e6, -0.0], np.float32)
    assert run("cast", x, to=DType.F8E5M2)[0].astype(np.float32).tolist()[:2] == [57344, -57344]
    open_ended = run("cast", x, to=DType.F8E5M2, saturate=False)[0].astype(np.float32)
    np.testing.assert_array_equal(open_ended, [np.inf, -np.inf, np.nan, np.inf, 0])
    without = run("cast", x, to=DType.F8E4M3FNUZ, saturate=False)[0].astype(np.float32)
    np.testing.assert_array_equal(without, [np.nan, np.nan, np.nan, np.nan, 0])


E8M0 = [2.0**-127, 2.0**-126, 1.0, 1.25, 1.5, 1.75, 2.0, 3e38, -1.25]


@pytest.mark.parametrize(
    ("round_mode", "expected"),
    [
        ("up", [2.0**-127, 2.0**-126, 1, 2, 2, 2, 2, 2.0**127, 2]),
        ("down", [2.0**-127, 2.0**-126, 1, 1, 1, 1, 2, 2.0**127, 1]),
        ("nearest", [2.0**-127, 2.0**-126, 1, 1, 2, 2, 2, 2.0**127, 1]),
    ],
)
def test_e8m0_rounds_to_powers_of_two(round_mode, expected):
    (result,) = run("cast", np.array(E8M0, np.float32), to=DType.F8E8M0, round_mode=round_mode)
    assert result.astype(np.float64).tolist() == expected


def test_e8m0_out_of_range():
    x = np.array([0.0, np.nan, np.inf, 3.4e38, 1e-40, 2.0**-127])
    held = run("cast", x, to=DType.F8E8M0)[0].astype(np.float64)
    np.testing.assert_array_equal(held, [2.0**-127, np.nan, 2.0**127, 2.0**127, 2.0**-127, 2.0**-127])
    strict = run("cast", x, to=DType.F8E8M0, saturate=False)[0].astype(np.float64)
    np.testing.assert_array_equal(strict, [np.nan, np.nan, np.nan, np.nan, np.nan, 2.0**-127])


@given(data=st.data(), round_mode=st.sampled_from(["up", "down", "nearest"]))
def test_e8m0_is_onnxs_within_the_normal_range(data, round_mode):
    magnitudes = st.floats(2.0**-126, 2.0**126, width=32)
    x = np.array(data.draw(st.lists(magnitudes)), np.float32)
    expected = onnx.numpy_helper.to_float8e8m0(x, True, round_mode)
    assert_same(run("cast", x, to=DType.F8E8M0, round_mode=round_mode)[0], expected)


@given(data=st.data(), source=drawn(d for d in NUMERIC if d.is_integer), to=drawn(d for d in NUMERIC if d.is_integer))
def test_integers_keep_their_low_bits(data, source, to):
    x = data.draw(arrays(source, shapes()))
    (result,) = run("cast", x, to=to)
    for value, found in zip(x.reshape(-1), result.reshape(-1), strict=True):
        assert (int(value) - int(found)) % 2**to.bits == 0


@given(data=st.data(), source=drawn(NUMERIC), shape=shapes())
def test_everything_but_zero_is_true(data, source, shape):
    x = data.draw(arrays(source, shape))
    assert_same(run("cast", x, to=DType.BOOL)[0], x.astype(np.float64) != 0)


def test_complex_numbers_keep_their_real_part():
    x = np.array([1.5 - 2j, 1j], np.complex64)
    assert run("cast", x, to=DType.I32)[0].tolist() == [1, 0]
    assert run("cast", x, to=DType.BOOL)[0].tolist() == [True, True]
    assert run("cast", x, to=DType.C128)[0].tolist() == [1.5 - 2j, 1j]
    assert run("cast", np.array([2], np.int8), to=DType.C64)[0].tolist() == [2]


def strings(*texts):
    return np.array(texts, object)


def test_numbers_are_read_from_strings():
    x = strings("3.14", "1e-5", "+INF", "-inf", "NaN", b"7")
    expected = np.array([3.14, 1e-5, np.inf, -np.inf, np.nan, 7])
    np.testing.assert_array_equal(run("cast", x, to=DType.F64)[0], expected)
    for dtype in (DType.F32, DType.F16, DType.BF16):
        assert_same(run("cast", x, to=dtype)[0], expected.astype(dtype.numpy))
    assert run("cast", strings("100.5", "-7", "2", "9007199254740993"), to=DType.I64)[0].tolist()[:2] == [100, -7]
    assert run("cast", strings("9007199254740993"), to=DType.I64)[0].tolist() == [9007199254740993]
    assert run("cast", strings(str(2**64 - 1)), to=DType.U64)[0].tolist() == [2**64 - 1]
    assert run("cast", strings("-3", "7"), to=DType.I4)[0].astype(int).tolist() == [-3, 7]
    assert run("cast", strings("0", "1", "True", "false"), to=DType.BOOL)[0].tolist() == [False, True, True, False]
    assert run("cast", strings("1+2j"), to=DType.C64)[0].tolist() == [1 + 2j]
    with pytest.raises(ValueError, match="Hello"):
        run("cast", strings("Hello"), to=DType.I32)


@given(data=st.data(), dtype=drawn(NUMBERS), shape=shapes())
def test_numbers_come_back_from_strings(data, dtype, shape):
    x = data.draw(arrays(dtype, shape))
    (text,) = run("cast", x, to=DType.STRING)
    assert all(isinstance(item, str) for item in text.reshape(-1).tolist())
    assert_same(run("cast", text, to=dtype)[0], x)


def test_strings_are_written_as_onnx_writes_them():
    x = np.array([0.47892547, 1.0, np.nan, np.inf, 1e10], np.float32)
    expected = reference("Cast", x, opset=19, to=onnx.TensorProto.STRING)[0]
    assert run("cast", x, to=DType.STRING)[0].tolist() == expected.tolist()
    assert run("cast", np.array([1.5], ml_dtypes.bfloat16), to=DType.STRING)[0].tolist() == ["1.5"]
    assert run("cast", np.array([True]), to=DType.STRING)[0].tolist() == ["True"]


def test_symbolic_cast_between_integers_only():
    cast = native("cast")
    assert cast.symbolic is not None
    known = np.array([T, 2], object)
    assert cast.symbolic([None], [known], cast.complete_attrs({"to": DType.I32})).tolist() == [T, 2]
    truths = np.array([True, False], object)
    found = cast.symbolic([None], [truths], cast.complete_attrs({"to": DType.I64}))
    assert [type(item) for item in found] == [int, int]
    assert cast.symbolic([None], [known], cast.complete_attrs({"to": DType.F32})) is None
    assert cast.symbolic([None], [np.array([2**31], object)], cast.complete_attrs({"to": DType.I32})) is None
    assert cast.symbolic([None], [np.array(T, object)], cast.complete_attrs({"to": DType.I64})).shape == ()


# ---- bit_cast


@given(data=st.data(), shape=shapes(), source=drawn(ANY - {DType.STRING}))
def test_bits_come_back(data, shape, source):
    x = data.draw(arrays(source, shape)) if source.kind is not Kind.COMPLEX else np.full(shape, 1 - 2j, source.numpy)
    to = data.draw(drawn(dtype for dtype in ANY - {DType.STRING} if dtype.bits == source.bits))
    (there,) = run("bit_cast", x, to=to)
    (back,) = run("bit_cast", there, to=source)
    mask = (2 ** min(source.bits, 8)) - 1
    raw, again = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) & mask for a in (x, back))
    assert raw.tolist() == again.tolist()


def test_bits_of_numbers():
    assert run("bit_cast", np.array([1.0], np.float32), to=DType.U32)[0].tolist() == [0x3F800000]
    nibbles = np.array([-1, 7], np.int8).astype(ml_dtypes.int4)
    assert run("bit_cast", nibbles, to=DType.U4)[0].astype(int).tolist() == [15, 7]
    assert run("bit_cast", nibbles, to=DType.F4E2M1)[0].astype(float).tolist() == [-6, 6]
    strided = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert run("bit_cast", strided, to=DType.F32)[0].view(np.int32).tolist() == strided.tolist()


@pytest.mark.parametrize(("source", "to"), [(DType.F32, DType.I64), (DType.STRING, DType.I64), (DType.U2, DType.U8)])
def test_other_widths_are_refused(source, to):
    bit_cast = native("bit_cast")
    with pytest.raises(TypeRuleError, match=r"same bits|cannot be string"):
        bit_cast.result_types([TensorType(source, (2,))], bit_cast.complete_attrs({"to": to}))


# ---- quantization

QUANTIZED = sorted({DType.U8, DType.I8, DType.U16, DType.I16, *SATURATING} | SUB_BYTE, key=str)
REALS = [DType.F32, DType.F16, DType.BF16]


@given(data=st.data(), to=drawn(QUANTIZED), layout=st.sampled_from(["tensor", "axis", "block"]), real=drawn(REALS))
def test_quantization_there_and_back_is_onnxs(data, to, layout, real):
    x = data.draw(arrays(real, (2, 5, 2), finite=True))
    side, block = {"tensor": ((), 0), "axis": ((5,), 0), "block": ((2, 2, 2), 3)}[layout]
    scale = data.draw(arrays(real, side, finite=True))
    scale = (np.abs(scale.astype(np.float32)) + 0.25).astype(real.numpy)
    zero = None
    if to.is_integer:
        zero = data.draw(st.none() | arrays(to, side))
    result, back = _there_and_back(x, scale, zero, to, block)
    known = {"axis": 1, "block_size": block}
    operands = (x, scale) if zero is None else (x, scale, zero)
    expected = reference("QuantizeLinear", *operands, opset=25, output_dtype=onnx_type(to), **known)[0]
    assert_same(result, expected)
    operands = (result, scale) if zero is None else (result, scale, zero)
    expected = reference("DequantizeLinear", *operands, opset=25, **known)[0]
    assert_same(back, expected)


def _there_and_back(x, scale, zero, to, block):
    (result,) = run("quantize_linear", x, scale, zero, to=to, axis=-2, block_size=block)
    (back,) = run("dequantize_linear", result, scale, zero, to=DType.of(x.dtype), axis=1, block_size=block)
    return result, back


def test_quantization_rounds_halves_to_even_and_saturates():
    x = np.array([-2.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30, np.inf], np.float32)
    one, zero = np.array(1, np.float32), np.array(10, np.uint8)
    assert run("quantize_linear", x, one, zero, to=DType.U8)[0].tolist() == [8, 10, 10, 12, 12, 255, 0, 255]
    assert run("quantize_linear", x, one, None, to=DType.I16)[0].tolist() == [-2, 0, 0, 2, 2, 32767, -32768, 32767]
    open_ended = run("quantize_linear", x, one, None, to=DType.F8E5M2, saturate=False)[0].astype(np.float32)
    assert open_ended.tolist()[-3:] == [np.inf, -np.inf, np.inf]


def test_the_quotient_is_rounded_to_the_precision():
    x = np.array([2049.0], np.float32)  # halfway between two f16: becomes 2048
    scale = np.array(1.0, np.float32)
    assert run("quantize_linear", x, scale, None, to=DType.I16)[0].tolist() == [2049]
    assert run("quantize_linear", x, scale, None, to=DType.I16, precision=DType.F16)[0].tolist() == [2048]
    assert run("quantize_linear", x, scale.astype(np.float16), None, to=DType.I16)[0].tolist() == [2048]
    power = np.array(2.0, ml_dtypes.float8_e8m0fnu)
    assert run("quantize_linear", np.array([5.0], np.float32), power, None, to=DType.I8)[0].tolist() == [2]
    whole = np.array([7, -9], np.int32), np.array(2, np.int32)
    assert run("quantize_linear", *whole, None, to=DType.I8)[0].tolist() == [4, -4]


def test_dequantization_of_i32_and_by_powers_of_two():
    x = np.array([-3, 100], np.int32)
    half = np.array(0.5, np.float16)
    assert run("dequantize_linear", x, half, None, to=DType.F16)[0].tolist() == [-1.5, 50]
    assert run("dequantize_linear", x, np.array(0.5, ml_dtypes.float8_e8m0fnu), None, to=DType.F32)[0].tolist() == [
        -1.5,
        50,
    ]


@pytest.mark.parametrize(
    ("scale", "attrs", "message"),
    [
        ((4,), {}, "one scale for each index"),
        ((2, 5), {}, "rank 1"),
        ((2, 3), {"block_size": 3}, "scales of blocks"),
        ((2,), {"block_size": 3}, "rank 2"),
        ((5,), {"axis": 2}, "out of range"),
        ((), {"block_size": -1}, "-1 elements"),
    ],
)
def test_scales_that_do_not_fit_are_refused(scale, attrs, message):
    quantize = native("quantize_linear")
    types = [TensorType(DType.F32, (2, 5)), TensorType(DType.F32, scale), None]
    with pytest.raises((ShapeError, TypeRuleError), match=message):
        quantize.result_types(types, quantize.complete_attrs({"to": DType.I8, **attrs}))


def test_blocks_of_a_symbolic_axis():
    quantize = native("quantize_linear")
    attrs = quantize.complete_attrs({"to": DType.I4, "block_size": 4})
    types = [TensorType(DType.F32, (2, 4 * T)), TensorType(DType.F32, (2, T)), None]
    assert quantize.result_types(types, attrs) == (TensorType(DType.I4, (2, 4 * T)),)
    with pytest.raises(ShapeError, match="scales of blocks"):
        quantize.result_types([types[0], TensorType(DType.F32, (2, T + 1)), None], attrs)


def test_dtypes_that_do_not_fit_are_refused():
    quantize, dequantize = native("quantize_linear"), native("dequantize_linear")
    x, scale, zero = TensorType(DType.F32, (2,)), TensorType(DType.F32, ()), TensorType(DType.I8, ())
    for attrs, message in [
        ({"to": DType.F32}, "no quantization to f32"),
        ({"to": DType.U8}, "zero point is i8"),
        ({"to": DType.I8, "precision": DType.I8}, "rounded to i8"),
    ]:
        with pytest.raises(TypeRuleError, match=message):
            quantize.result_types([x, scale, zero], quantize.complete_attrs(attrs))
    with pytest.raises(TypeRuleError, match="cannot be f64"):
        dequantize.result_types([zero, scale, None], dequantize.complete_attrs({"to": DType.F64}))


def has_scale(x) -> bool:
    """Whether a 255th of the range is more than 0."""
    return bool((np.max(x, initial=np.float32(0)) - np.min(x, initial=np.float32(0))) / np.float32(255))


@pytest.mark.parametrize("value", [0, 3.9e-44, -1e-44])
def test_a_range_without_a_scale_has_the_scale_1(value):
    quantized, scale, zero = run("dynamic_quantize_linear", np.full((2, 3), value, np.float32))
    assert (scale, zero, quantized.any()) == (1, 0, False)


@given(data=st.data(), shape=shapes())
def test_dynamic_quantization(data, shape):
    x = data.draw(arrays(DType.F32, shape, finite=True))
    quantized, scale, zero = run("dynamic_quantize_linear", x)
    if not has_scale(x):
        assert (scale, zero, quantized.any()) == (1, 0, False)
        return
    for found, expected in zip((quantized, scale, zero), reference("DynamicQuantizeLinear", x, outputs=3), strict=True):
        assert_same(found, expected)
