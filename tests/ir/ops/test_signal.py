"""Spectra against onnx's reference evaluator."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import assert_close, random, reference, run


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    axis=st.integers(-4, 2),
    parts=st.sampled_from([1, 2]),
    length=st.none() | st.integers(1, 7),
    inverse=st.booleans(),
    onesided=st.booleans(),
)
def test_dft_agrees_with_the_reference(
    shape: list[int], axis: int, parts: int, length: int | None, inverse: bool, onesided: bool
) -> None:
    assume(-len(shape) - 1 <= axis < len(shape) and axis != -1)
    assume(not onesided or parts == (2 if inverse else 1))
    assume(length is not None or not (inverse and onesided) or shape[axis if axis >= 0 else axis + 1] > 1)
    x = random(1, *shape, parts)
    (found,) = run("dft", x, axis=axis, length=length, inverse=inverse, onesided=onesided)
    size = None if length is None else np.array(length)
    attrs = {"inverse": int(inverse), "onesided": int(onesided)}
    expected = reference("DFT", x, size, np.array(axis), opset=20, **attrs)[0]
    assert_close(found, expected, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, DType.BF16.numpy])
def test_a_round_trip_gives_the_signal_back(dtype: Any) -> None:
    x = random(1, 2, 6, 1).astype(dtype)
    (spectrum,) = run("dft", x, onesided=True)
    (back,) = run("dft", spectrum, inverse=True, onesided=True)
    assert_close(back, x, atol=1e-12 if dtype is np.float64 else 0.05)


def test_the_transform_of_nothing_is_empty() -> None:
    empty = np.zeros((2, 0, 1), np.float32)
    assert run("dft", empty)[0].shape == (2, 0, 2)
    assert run("dft", empty, inverse=True, onesided=True)[0].shape == (2, 0, 1)
    assert run("dft", empty, onesided=True)[0].tolist() == [[[0, 0]], [[0, 0]]]


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("onesided", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_nothing_padded_to_a_length_is_zeros(inverse: bool, onesided: bool, parts: int) -> None:
    x = np.zeros((2, 0, parts), np.float32)
    (found,) = run("dft", x, length=5, inverse=inverse, onesided=onesided)
    assert found.shape[1] == (3 if onesided and not inverse else 5)
    assert not found.any()


@given(
    batch=st.integers(1, 2),
    frame_length=st.integers(1, 6),
    rest=st.integers(0, 7),
    frame_step=st.integers(1, 4),
    parts=st.sampled_from([1, 2]),
    has_window=st.booleans(),
    onesided=st.booleans(),
)
def test_stft_agrees_with_the_reference(
    batch: int, frame_length: int, rest: int, frame_step: int, parts: int, has_window: bool, onesided: bool
) -> None:
    onesided = onesided and parts == 1
    x = random(1, batch, frame_length + rest, parts)
    window = random(2, frame_length) if has_window else None
    (found,) = run("stft", x, window, frame_step=frame_step, frame_length=frame_length, onesided=onesided)
    step, length = np.array(frame_step), np.array(frame_length)
    expected = reference("STFT", x, step, window, length, opset=17, onesided=int(onesided))[0]
    assert_close(found, expected, atol=1e-4)


@given(st.integers(1, 10), st.integers(8, 64), st.sampled_from([8000, 8192, 16000]))
def test_mel_weights_agree_with_the_reference(bands: int, dft_length: int, rate: int) -> None:
    low, high = np.array(0.0, np.float32), np.array(rate / 2, np.float32)
    for dtype in (DType.F32, DType.F64):
        (found,) = run("mel_weight_matrix", np.array(rate), low, high, bands=bands, dft_length=dft_length, dtype=dtype)
        expected = reference(
            "MelWeightMatrix", np.array(bands), np.array(dft_length), np.array(rate), low, high,
            output_datatype=1 if dtype is DType.F32 else 11, opset=17,
        )[0]  # fmt: skip
        assert_close(found, expected)


def test_sizes_stay_exact_for_symbols() -> None:
    length, batch = symbol("L"), symbol("B")
    op = native("stft")
    attrs = op.complete_attrs({"frame_step": 4, "frame_length": 16})
    (ty,) = op.result_types([TensorType(DType.F32, (batch, length, 1)), None], attrs)
    assert ty == TensorType(DType.F32, (batch, (length - 16) // 4 + 1, 9, 2))
    op = native("dft")
    (ty,) = op.result_types([TensorType(DType.F32, (batch, length, 1))], op.complete_attrs({"onesided": True}))
    assert ty == TensorType(DType.F32, (batch, length // 2 + 1, 2))


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("dft", [(2, 4, 3)], {}),
        ("dft", [(2, 4, 1)], {"axis": 2}),
        ("dft", [(2, 4, 1)], {"axis": 5}),
        ("stft", [(1, 8, 1), (3,)], {"frame_step": 1, "frame_length": 4}),
        ("stft", [(1, 8, 2), None], {"frame_step": 1, "frame_length": 4}),
        ("stft", [(1, 8, 1), None], {"frame_step": 1, "frame_length": 9}),
        ("stft", [(8, 1), None], {"frame_step": 1, "frame_length": 4}),
        ("stft", [(1, 8, 1), None], {"frame_step": 0, "frame_length": 4}),
        ("stft", [(1, 8, 1), None], {"frame_step": 1, "frame_length": 0}),
        ("stft", [(1, 8, 1), None], {"frame_step": 1, "frame_length": -2}),
    ],
)
def test_refused(name: str, shapes: list[tuple[int, ...] | None], attrs: dict[str, Any]) -> None:
    op = native(name)
    with pytest.raises(CapgraphError):
        op.result_types([s and TensorType(DType.F32, s) for s in shapes], op.complete_attrs(attrs))
