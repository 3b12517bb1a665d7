"""Constants: shared, lazy, read-only, compared by content."""

import numpy as np
import pytest
from capgraph.ir.constant import Constant
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst


def test_the_array_is_shared_and_read_only() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    constant = Constant(array)
    assert np.shares_memory(constant.array, array)
    assert (constant.type, constant.size, constant.nbytes) == (TensorType(DType.F32, (2, 3)), 6, 24)
    assert array.flags.writeable  # the caller's own view stays as it was
    with pytest.raises(ValueError, match="read-only"):
        constant.array[0, 0] = 1


def test_a_dtype_may_be_asked_for() -> None:
    assert Constant(1.5, DType.BF16).type == TensorType(DType.BF16, ())
    assert Constant([1, 2], DType.I4).nbytes == 1
    assert np.isinf(Constant(1e10, DType.F16).array)


def test_lazy_content_is_loaded_once_when_needed() -> None:
    calls = []

    def load() -> np.ndarray:
        calls.append(1)
        return np.ones((2, 2), np.float32)

    constant = Constant.lazy(TensorType(DType.F32, (2, 2)), load)
    assert (constant.dtype, constant.shape, constant.size, repr(constant)) == (
        DType.F32,
        (2, 2),
        4,
        "Constant(f32[2, 2])",
    )
    assert not calls
    assert constant == Constant(np.ones((2, 2), np.float32))
    assert constant.array.sum() == 4
    assert len(calls) == 1


@pytest.mark.parametrize("loaded", [np.ones((2, 3), np.float32), np.ones((2, 2))])
def test_a_loader_must_keep_its_word(loaded: np.ndarray) -> None:
    constant = Constant.lazy(TensorType(DType.F32, (2, 2)), lambda: loaded)
    with pytest.raises(TypeRuleError, match=r"declared as f32\[2, 2\] was loaded as"):
        _ = constant.array


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0.0, -0.0),
        (np.float32(1), np.float64(1)),
        (np.zeros((1, 2)), np.zeros((2, 1))),
        (np.array([0x7FC00001], np.uint32).view(np.float32), np.array([np.nan], np.float32)),
        (np.array(["ab", "c"]), np.array(["a", "bc"])),
        (True, 1),
    ],
)
def test_different_content_is_different(a: object, b: object) -> None:
    assert Constant(a) != Constant(b)
    assert Constant(a).digest != Constant(b).digest
    assert Constant(a) != a


@given(npst.arrays(st.sampled_from([np.float32, np.int8, np.complex64, np.bool_]), npst.array_shapes(min_dims=0)))
def test_equal_content_is_equal_whatever_its_layout(array: np.ndarray) -> None:
    a, b = Constant(array), Constant(np.array(array, order="F"))
    assert a == b
    assert hash(a) == hash(b)
    assert a.digest == b.digest
    assert len(a.digest) == 32


@given(st.lists(st.text(alphabet=st.characters(codec=None), max_size=3), min_size=1, max_size=3))
def test_strings_are_equal_in_each_of_numpys_types(texts: list[str]) -> None:
    boxed = np.empty(len(texts), object)
    boxed[:] = texts
    assert Constant(boxed).type.dtype is DType.STRING
    if not any(text.endswith("\0") for text in texts):  # NumPy's own type drops these
        assert Constant(np.array(texts)) == Constant(boxed)
