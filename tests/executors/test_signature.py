from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.executors.signature import Signature
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.errors import InputError
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType, OptionalType, SequenceType, TensorType, Type
from hypothesis import given
from hypothesis import strategies as st

B, T = symbol("B"), symbol("T")


def signature(**inputs: Type) -> Signature:
    graph = Graph()
    for name, ty in inputs.items():
        graph.add_input(name, ty)
    return Signature(graph)


def f32(*shape: Any) -> TensorType:
    return TensorType(DType.F32, shape)


def test_arrays_come_in_the_order_of_the_graph_with_the_sizes_they_determine() -> None:
    x, y = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    values, sizes = signature(x=f32(B, T), y=f32(B)).bind({"y": y, "x": x})
    assert values[0] is x
    assert values[1] is y
    assert sizes == {"B": 2, "T": 3}


@given(st.integers(0, 9), st.integers(1, 4))
def test_a_multiple_may_stand_before_the_symbol_that_it_is_of(size: int, factor: int) -> None:
    bound = signature(x=f32(factor * T), y=f32(T))
    _, sizes = bound.bind({"x": np.zeros(factor * size, np.float32), "y": np.zeros(size, np.float32)})
    assert sizes == {"T": size}
    with pytest.raises(InputError, match="instead of"):
        bound.bind({"x": np.zeros(factor * size, np.float32), "y": np.zeros(size + 1, np.float32)})


def test_arrays_need_not_be_contiguous_or_own_their_memory() -> None:
    x = np.zeros((6, 8), np.float32)[::2, ::-1].T
    values, _ = signature(x=f32(8, 3)).bind({"x": x})
    assert values[0] is x


def test_foreign_byte_order_is_converted() -> None:
    values, _ = signature(x=f32(2)).bind({"x": np.array([1, 2], dtype=">f4")})
    assert values[0].dtype == np.float32
    assert values[0].tolist() == [1, 2]


def test_the_remedy_reads_somebody_elses_array() -> None:
    class Exchanged:
        def __dlpack__(self) -> Any: ...

    class Converted(Exchanged):
        def __array__(self) -> Any: ...

    for array, remedy in ((Exchanged(), "from_dlpack"), (Converted(), "asarray"), (object(), "asarray")):
        with pytest.raises(InputError, match="not a NumPy array") as told:
            signature(x=f32(2)).bind({"x": array})
        assert told.value.remedy == f"pass numpy.{remedy}(...) of it"


def test_an_input_with_a_default_may_be_left_out() -> None:
    graph = Graph()
    graph.add_input("x", f32(1))
    weight = graph.add_input("w", f32(1))
    graph.set_default(weight, Constant(np.array([5], np.float32)))
    x, own = np.zeros(1, np.float32), np.ones(1, np.float32)
    assert Signature(graph).bind({"x": x})[0][1].tolist() == [5]
    assert Signature(graph).bind({"x": x, "w": own})[0][1] is own
    with pytest.raises(InputError, match=r"'x'.*missing") as caught:
        Signature(graph).bind({})
    assert "'w' (optional)" in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input 'x' \(f32\[B, 4\]\) is missing"),
        ({"x_": np.zeros((1, 4), np.float32)}, r"'x' .* missing; there is no input 'x_' \(did you mean 'x'\?\)"),
        ({"x": np.zeros((1, 4), np.float32), "extra": 1}, "there is no input 'extra'"),
        ({"x": np.zeros((1, 4))}, r"dtype float64.*\n.*x.astype\(numpy.float32\)"),
        ({"x": np.zeros((1, 4), np.float16)}, "dtype float16"),
        ({"x": np.zeros((1, 5), np.float32)}, r"got shape \[1, 5\] instead of f32\[B, 4\]"),
        ({"x": np.zeros(4, np.float32)}, r"got shape \[4\] instead of f32\[B, 4\]"),
        ({"x": np.float32(1)}, r"got shape \[\]"),
        ({"x": None}, "NoneType, not a NumPy array"),
        ({"x": {}}, "dict, not a NumPy array"),
        ({"x": np.ma.zeros((1, 4), np.float32)}, "MaskedArray"),
        ({"x": np.zeros((1, 4), dtype="M8[s]")}, "datetime64"),
        ({"x": "text"}, "dtype <U4"),
        ({"x": [[1, 2], [3]]}, "cannot become"),
        ({"x": [["a"] * 4]}, "dtype <U1"),
    ],
)
def test_what_does_not_fit_is_named(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        signature(x=f32(B, 4)).bind(inputs)


def test_sizes_must_agree_between_inputs() -> None:
    with pytest.raises(InputError, match=r"input 'y': got shape \[3\] instead of f32\[B\] with B=2"):
        signature(x=f32(B), y=f32(B)).bind({"x": np.zeros(2, np.float32), "y": np.zeros(3, np.float32)})


def test_inputs_are_a_mapping() -> None:
    with pytest.raises(InputError, match=r"mapping .* not as ndarray"):
        signature(x=f32(1)).bind(np.zeros(1))  # type: ignore[arg-type]


def test_the_cast_to_a_small_float_is_named() -> None:
    with pytest.raises(InputError, match=r"ml_dtypes\.bfloat16"):
        signature(x=TensorType(DType.BF16, (1,))).bind({"x": np.zeros(1, np.float32)})


@pytest.mark.parametrize(
    ("dtype", "given_value", "array"),
    [
        (DType.F32, 1, np.float32(1)),
        (DType.F32, [1, 2.5], np.array([1, 2.5], np.float32)),
        (DType.BF16, [1.5], np.array([1.5], ml_dtypes.bfloat16)),
        (DType.I64, [[1, -2]], np.array([[1, -2]])),
        (DType.U8, [255], np.array([255], np.uint8)),
        (DType.BOOL, True, np.bool_(True)),
        (DType.F32, [], np.zeros(0, np.float32)),
        (DType.STRING, ["a", "bc"], np.array(["a", "bc"], object)),
    ],
)
def test_numbers_and_lists_become_arrays(dtype: DType, given_value: Any, array: Any) -> None:
    ty = TensorType(dtype, np.shape(array))
    (value,), _ = signature(x=ty).bind({"x": given_value})
    assert value.dtype == dtype.numpy
    assert np.array_equal(value, array)


@pytest.mark.parametrize(
    ("dtype", "given_value"), [(DType.I64, 1.5), (DType.U8, 256), (DType.U8, -1), (DType.BOOL, 1), (DType.F32, 1j)]
)
def test_numbers_are_not_changed_to_fit(dtype: DType, given_value: Any) -> None:
    with pytest.raises(InputError):
        signature(x=TensorType(dtype, ())).bind({"x": given_value})


def test_fixed_width_strings_become_objects() -> None:
    (value,), _ = signature(x=TensorType(DType.STRING, (2,))).bind({"x": np.array(["a", "bc"])})
    assert value.dtype == object
    assert value.tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    "given",
    [np.array(["aé".encode(), b""]), np.array(["aé".encode(), ""], object), ["aé".encode(), b""], ["aé", ""]],
)
def test_bytes_are_strings_in_utf_8(given: Any) -> None:
    (value,), _ = signature(x=TensorType(DType.STRING, (2,))).bind({"x": given})
    assert value.tolist() == ["aé", ""]


@pytest.mark.parametrize("wrong", [1, None, b"\xff", np.float32(1)])
def test_what_is_no_string_is_named(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"input 'x' has .* at \[1\], which is neither a str nor UTF-8"):
        signature(x=TensorType(DType.STRING, (2,))).bind({"x": np.array(["a", wrong], object)})


def test_sequences_and_optionals() -> None:
    bound = signature(s=SequenceType(f32(2)), o=OptionalType(f32(2)))
    values, _ = bound.bind({"s": [[1, 2], np.zeros(2, np.float32)], "o": None})
    assert [item.dtype for item in values[0]] == [np.float32, np.float32]
    assert values[1] is None
    with pytest.raises(InputError, match="instead of a sequence"):
        bound.bind({"s": np.zeros(2), "o": None})
    with pytest.raises(InputError, match="dtype float64"):
        bound.bind({"s": [np.zeros(2)], "o": None})


@pytest.mark.parametrize(
    ("types", "arrays"),
    [
        ((f32(B, 3), f32(B)), ((2, 3), (2,))),
        ((f32(B, 3), f32(B)), ((2, 3), (4,))),
        ((f32(B, B),), ((2, 3),)),
        ((f32(B, 3),), ((0, 3),)),
        ((f32(2, 3),), ((2, 3),)),
        ((f32(2, 3),), ((3, 2),)),
        ((f32(2, 3),), ((2,),)),
        ((f32(B),), ((2, 2),)),
    ],
)
def test_the_quick_way_says_the_same_as_the_careful_one(types: Any, arrays: Any) -> None:
    bound = signature(**{f"x{i}": ty for i, ty in enumerate(types)})
    given = {f"x{i}": np.ones(shape, np.float32) for i, shape in enumerate(arrays)}
    quick = bound._bind_plainly(given)
    try:
        careful = bound._bind_carefully(given)
    except InputError:
        assert quick is None
        return
    assert quick is not None
    assert quick[1] == careful[1]
    assert all(a is b for a, b in zip(quick[0], careful[0], strict=True))


def test_a_call_like_the_one_before_takes_its_sizes() -> None:
    bound = signature(x=f32(B, T), y=f32(B))
    x, y = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    assert bound._bind_as_before({"x": x, "y": y}) is None
    _, sizes = bound.bind({"x": x, "y": y})
    sizes["found"] = 7  # the sizes are the caller's, who may add to them
    again = bound._bind_as_before({"y": y, "x": x})
    assert again is not None
    assert again[0][0] is x
    assert again[0][1] is y
    assert again[1] == {"B": 2, "T": 3}
    assert bound.bind({"x": x[:1], "y": y[:1]})[1] == {"B": 1, "T": 3}


def test_sizes_that_a_sum_determines_are_remembered_too() -> None:
    bound = signature(x=f32(T), mask=f32(T + 1))
    arrays = {"x": np.zeros(2, np.float32), "mask": np.zeros(3, np.float32)}
    assert bound.bind(arrays)[1] == {"T": 2}
    again = bound._bind_as_before(arrays)
    assert again is not None
    assert again[1] == {"T": 2}
    with pytest.raises(InputError, match="instead of"):
        bound.bind({"x": np.zeros(3, np.float32), "mask": np.zeros(3, np.float32)})


@pytest.mark.parametrize(
    ("ty", "array"),
    [(f32(2), [1, 2]), (f32(2), np.zeros(2, ">f4")), (TensorType(DType.STRING, (1,)), np.array(["a"], object))],
)
def test_what_has_to_be_looked_at_in_each_call_is_not_remembered(ty: Type, array: Any) -> None:
    bound = signature(x=ty)
    bound.bind({"x": array})
    assert bound._bind_as_before({"x": array}) is None
    assert bound._latest is None


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": np.zeros(2)}, "dtype float64"),
        ({"x": np.zeros((2, 1), np.float32)}, r"\[2, 1\]"),
        ({"x": [1, "a"]}, "dtype <U21"),
        ({"y": np.zeros(2, np.float32)}, "missing"),
        ({"x": np.zeros(2, np.float32), "y": 1}, "no input 'y'"),
    ],
)
def test_a_call_unlike_the_one_before_is_checked_as_ever(inputs: dict[str, Any], message: str) -> None:
    bound = signature(x=f32(B))
    bound.bind({"x": np.zeros(2, np.float32)})
    with pytest.raises(InputError, match=message):
        bound.bind(inputs)


def test_the_quick_way_leaves_what_is_unusual_to_the_careful_one() -> None:
    bound = signature(x=f32(B))
    assert bound._bind_plainly({"x": np.ones(2, np.float32)}) is not None
    for unusual in ({"x": [1, 2]}, {"x": np.ones(2)}, {}, {"y": np.ones(2)}, {"x": np.ma.ones(2, np.float32)}):
        assert bound._bind_plainly(unusual) is None
    assert signature(s=TensorType(DType.STRING, (2,)))._bind_plainly({"s": np.array(["a", "b"], object)}) is None
    assert signature(x=f32(2 * T))._bind_plainly({"x": np.ones(2, np.float32)}) is None
