"""Expressions: every elementwise op has one, and integers and literals are written so that C++ means the same."""

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.casts import converted
from capgraph.executors.cuda.kernel_ir.expressions import EXPRESSIONS, expression
from capgraph.executors.cuda.kernel_ir.types import Name, computed, literals, number, stored
from capgraph.ir.attrs import Attrs
from capgraph.ir.constant import Constant
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS
from capgraph.ir.types import DType

NONE = Attrs({})


def test_every_elementwise_op_has_an_expression():
    assert {name for name, op in OPS.items() if op.has(Trait.ELEMENTWISE)} <= EXPRESSIONS.keys()


def test_integers_are_added_without_sign_and_cut_to_their_width():
    a, b = Name("a", DType.I8), Name("b", DType.I8)
    assert expression("add", [a, b], NONE, DType.I8).text == "(signed char)((unsigned)a + (unsigned)b)"
    a, b = Name("a", DType.I64), Name("b", DType.I64)
    assert expression("mul", [a, b], NONE, DType.I64).text == "(i64)((u64)a * (u64)b)"


def test_bounds_of_clip_may_be_absent():
    x, high = Name("x", DType.F32), Name("h", DType.F32)
    assert expression("clip", [x, None, high], NONE, DType.F32).text == "least(x, h)"
    assert expression("clip", [x, None, None], NONE, DType.F32).text == "x"


def test_doubles_use_the_functions_of_doubles():
    assert expression("exp", [Name("x", DType.F64)], NONE, DType.F64).text == "exp(x)"
    assert expression("exp", [Name("x", DType.BF16)], NONE, DType.BF16).text == "expf(x)"


@pytest.mark.parametrize(
    ("source", "to", "text"),
    [
        (DType.F32, DType.F16, "rounded<f16>((float)x)"),
        (DType.F64, DType.F16, "rounded<f16>(to_odd(x))"),
        (DType.F32, DType.I32, "(int)to_i32(x)"),
        (DType.F32, DType.U8, "(unsigned char)to_i32(x)"),
        (DType.I64, DType.BOOL, "x != 0"),
        (DType.BOOL, DType.BOOL, "x"),
        (DType.F32, DType.F8E5M2, "rounded<f8e5m2>(least(greatest((float)x, -57344.0f), 57344.0f))"),
        (DType.I32, DType.I4, "get(element<i4>((signed char)x))"),
    ],
)
def test_casts(source, to, text):
    assert converted(Name("x", source), to) == text


def test_small_floats_are_computed_in_float():
    assert {computed(dtype) for dtype in DType if dtype.is_small_float} == {"float"}
    assert (stored(DType.F16), stored(DType.BOOL), computed(DType.BOOL)) == ("f16", "boolean", "bool")


def test_literals_say_their_type():
    assert literals(Constant(np.array([1.5, np.nan, -np.inf], np.float32))) == [
        "1.5f",
        "((float)NOT_A_NUMBER)",
        "((float)-INFINITE)",
    ]
    assert literals(Constant(np.array([-(2**63), 5], np.int64))) == ["(-9223372036854775807ll - 1)", "5ll"]
    assert literals(Constant(np.array([True]))) == ["true"]
    assert literals(Constant(np.array([2 + 1j], np.complex64))) == ["c64{2.0f, 1.0f}"]
    assert number(1e30, "double") == "1e+30"
