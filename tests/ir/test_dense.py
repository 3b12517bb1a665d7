"""Small constants as text: every dtype comes back bit by bit."""

import numpy as np
import pytest
from capgraph.ir.constant import Constant
from capgraph.ir.errors import ParseError
from capgraph.ir.text.cursor import Cursor
from capgraph.ir.text.dense import elements_text, read_elements
from capgraph.ir.types import DType, Kind, TensorType
from hypothesis import given
from hypothesis import strategies as st

NUMERIC = [dtype for dtype in DType if dtype.kind is not Kind.STRING]


def back(constant: Constant) -> Constant:
    return read_elements(Cursor(elements_text(constant)), constant.type)


@given(st.data(), st.sampled_from(NUMERIC), st.sampled_from([(), (0,), (3,), (2, 2)]))
def test_any_bits_come_back(data: st.DataObject, dtype: DType, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape)) * dtype.numpy.itemsize
    raw = np.frombuffer(data.draw(st.binary(min_size=count, max_size=count)), np.uint8)
    if dtype.kind is Kind.BOOL:
        raw = raw & 1
    if dtype.bits < 8:
        raw = raw & (2**dtype.bits - 1)
    constant = Constant(raw.view(dtype.numpy).reshape(shape) if count else np.zeros(shape, dtype.numpy))
    if dtype.kind in (Kind.INT, Kind.UINT) and dtype.bits < 8:  # the unused high bits are no content
        constant = Constant(constant.array.astype(np.int8).astype(dtype.numpy))
    assert back(constant) == constant


@given(st.lists(st.one_of(st.text(), st.binary()), min_size=1, max_size=4))
def test_strings_and_bytes_come_back(items: list[str | bytes]) -> None:
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    again = back(Constant(array)).array.tolist()
    assert again == items


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.array([1, -0.0, np.inf, np.nan], np.float16), "[1.0, -0.0, inf, nan]"),
        (np.array([1e-5, 1e20]), "[1e-05, 1e+20]"),
        (np.array([0x7FC00001], np.uint32).view(np.float32), "[0x7fc00001]"),
        (np.array([1 - 2j]), "[(1.0, -2.0)]"),
        (np.array([[1, 2], [3, 4]]), "[1, 2, 3, 4]"),
        (np.array([True, False]), "[true, false]"),
        (np.zeros((0, 2)), "[]"),
    ],
)
def test_elements_read_as_a_person_would_write_them(array: np.ndarray, text: str) -> None:
    assert elements_text(Constant(array)) == text
    assert back(Constant(array)) == Constant(array)


@pytest.mark.parametrize(
    ("ty", "text", "problem"),
    [
        (TensorType(DType.U2, (1,)), "[4]", "4 does not fit u2"),
        (TensorType(DType.I4, (1,)), "[-9]", "-9 does not fit i4"),
        (TensorType(DType.I64, ()), "1.5", "expected an integer"),
        (TensorType(DType.F8E5M2, ()), "0x100", "more than 8 bits"),
        (TensorType(DType.F32, ()), "[1.0]", "expected a float"),
        (TensorType(DType.F32, (2,)), "[1.0, 2.0", "expected , or ]"),
        (TensorType(DType.BOOL, ()), "1", "expected true or false"),
        (TensorType(DType.C64, ()), "1.0", "expected a complex number"),
        (TensorType(DType.STRING, ()), "a", "expected a string"),
    ],
)
def test_what_is_no_element_is_refused(ty: TensorType, text: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_elements(Cursor(text), ty)
    assert problem in str(caught.value)


def test_a_float_may_be_written_as_an_integer() -> None:
    assert read_elements(Cursor("[1, -2]"), TensorType(DType.F32, (2,))) == Constant(np.array([1, -2], np.float32))
