"""Resampling against onnx's reference evaluator and ONNX Runtime."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CapgraphError, ShapeError
from capgraph.ir.op import FRESH
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import example, given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import Array, assert_close, random, reference, run, runtime

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
ROUNDED: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda at: math.ceil(at - Fraction(1, 2)),
    "round_prefer_ceil": lambda at: math.floor(at + Fraction(1, 2)),
}


def onnx_attrs(axes: list[int], modes: dict[str, Any]) -> dict[str, Any]:
    return {
        "axes": axes,
        "mode": modes["mode"],
        "coordinate_transformation_mode": modes["coordinate_mode"],
        "nearest_mode": modes.get("nearest_mode", "round_prefer_floor"),
        "antialias": int(modes.get("antialias", False)),
        "exclude_outside": int(modes.get("exclude_outside", False)),
        "cubic_coeff_a": modes.get("cubic_coefficient", -0.75),
        "keep_aspect_ratio_policy": modes.get("policy", "stretch"),
        "extrapolation_value": modes.get("extrapolation_value", 0.0),
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_integers_that_overshoot_stay_in_range(dtype: type[np.integer[Any]]) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max] * 4, dtype)
    (found,) = run("resize", x, None, axes=(0,), sizes=(24,), mode="cubic")
    (wide,) = run("resize", x.astype(np.float64), None, axes=(0,), sizes=(24,), mode="cubic")
    assert wide.min() < limits.min
    assert wide.max() > limits.max
    assert np.all(found[wide <= limits.min] == limits.min)
    assert np.all(found[wide >= limits.max] >= limits.max - limits.max // 2**53)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("value", "fill"), [(-1.5, 0), (300.0, 255), (7.9, 7), (math.nan, 0)])
def test_an_extrapolation_value_that_no_element_holds_is_held_in_range(mode: str, value: float, fill: int) -> None:
    modes = {"mode": mode, "coordinate_mode": "tf_crop_and_resize", "extrapolation_value": value}
    region = np.array([-0.5, 1.5], np.float32)
    (found,) = run("resize", np.array([1, 2, 3], np.uint8), region, axes=(0,), sizes=(3,), **modes)
    assert found.tolist() == [fill, 2, fill]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_integers_that_no_float_holds_stay_themselves_at_scale_1(mode: str) -> None:
    x = np.array([[2**63 - 1, -(2**63), 2**53 + 1]])
    (found,) = run("resize", x, None, axes=(0, 1), sizes=(1, 3), mode=mode)
    assert found.tolist() == x.tolist()


@st.composite
def modes_of(draw: st.DrawFn) -> dict[str, Any]:
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    return {
        "mode": mode,
        "coordinate_mode": draw(st.sampled_from(COORDINATES)),
        "nearest_mode": draw(st.sampled_from(NEAREST)),
        "antialias": mode != "nearest" and draw(st.booleans()),
        "exclude_outside": mode == "cubic" and draw(st.booleans()),
        "cubic_coefficient": draw(st.sampled_from([-0.75, -0.5])),
    }


def hangs_on_a_rounding(before: int, after: int, scale: float, mode: str) -> Array:
    """Which positions of an axis rounding may put just past an element.

    There the reference takes the element before: it loses the difference when it adds its padding, not in the weights.
    """
    index, length = np.arange(after), scale * before
    if mode == "align_corners":
        position = index * (before - 1) / (length - 1 if length != 1 else 1)
    elif mode == "asymmetric":
        position = index / scale
    else:
        position = (index + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        position += before / 2 * (1 - after / length)
    is_exact = math.frexp(scale)[0] == 0.5 and mode not in ("align_corners", "half_pixel_symmetric")
    return (np.abs(position - np.rint(position)) < 1e-5) & (not is_exact)


@given(
    before=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    after=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    modes=modes_of(),
)
def test_resizing_to_sizes_agrees_with_the_reference(before: Any, after: Any, modes: dict[str, Any]) -> None:
    x = random(1, 2, *before, 2)
    (found,) = run("resize", x, None, axes=[1, -2], sizes=list(after), **modes)
    expected = reference("Resize", x, None, None, np.array(after), opset=19, **onnx_attrs([1, 2], modes))[0]
    if modes["coordinate_mode"] == "pytorch_half_pixel" and 1 in after:
        return  # the reference puts the one sample at -0.5, the text of the operator at 0
    rows, columns = (
        hangs_on_a_rounding(b, a, a / b, modes["coordinate_mode"]) for b, a in zip(before, after, strict=True)
    )
    open_ = (rows[:, None] | columns)[None, :, :, None]
    assert_close(np.where(open_, expected, found).astype(np.float32), expected.astype(np.float32), atol=1e-4)


@given(
    before=st.integers(1, 8),
    scale=st.sampled_from([0.4, 0.5, 0.6, 0.8, 1.0, 1.3, 2.0, 2.6, 3.0]),
    modes=modes_of(),
)
def test_resizing_by_scales_agrees_with_the_reference(before: int, scale: float, modes: dict[str, Any]) -> None:
    x, scales = random(1, 2, before), np.array([scale], np.float32)
    size = int(np.float64(scales[0]) * before)
    if size == 0 or (modes["coordinate_mode"] == "pytorch_half_pixel" and size == 1):
        return
    (found,) = run("resize", x, None, axes=[1], sizes=[size], scales=scales.tolist(), **modes)
    expected = reference("Resize", x, None, scales, opset=19, **onnx_attrs([1], modes))[0]
    open_ = hangs_on_a_rounding(before, size, float(scales[0]), modes["coordinate_mode"])
    assert_close(np.where(open_, expected, found).astype(np.float32), expected.astype(np.float32), atol=1e-4)


@pytest.mark.parametrize("before", [3, 49, 98, 107])  # (1 / 49) * 49 is less than 1
def test_the_size_of_one_element_is_exact(before: int) -> None:
    x = np.arange(before, dtype=np.float32)
    assert run("resize", x, None, axes=[0], sizes=[1], mode="linear", coordinate_mode="pytorch_half_pixel")[0] == 0


@pytest.mark.parametrize("before", [3, 7, 15])
@pytest.mark.parametrize(("coordinates", "part"), [("pytorch_half_pixel", 0), ("tf_crop_and_resize", 0.5)])
def test_one_element_is_made_by_a_scale_that_f32_rounds(before: int, coordinates: str, part: float) -> None:
    x, scales = np.arange(before, dtype=np.float32), np.float32([1 / before])
    region = np.array([0, 1], np.float32) if coordinates == "tf_crop_and_resize" else None
    modes = {"axes": [0], "mode": "nearest", "coordinate_mode": coordinates}
    wanted = [part * (before - 1)]
    assert run("resize", x, region, sizes=[1], scales=scales.tolist(), **modes)[0].tolist() == wanted
    roi = (np.zeros(0, np.float32) if region is None else region,)
    attrs = {"mode": "nearest", "coordinate_transformation_mode": coordinates}
    assert runtime("Resize", x, *roi, scales, opset=19, **attrs)[0].tolist() == wanted


@given(
    before=st.integers(1, 40),
    after=st.integers(1, 40),
    coordinates=st.sampled_from(["half_pixel", "half_pixel_symmetric", "asymmetric"]),
    nearest=st.sampled_from(NEAREST),
)
@example(7, 17, "half_pixel", "ceil")
def test_the_nearest_element_is_that_of_the_exact_position(
    before: int, after: int, coordinates: str, nearest: str
) -> None:
    x = np.arange(before, dtype=np.float32)
    modes = {"mode": "nearest", "coordinate_mode": coordinates, "nearest_mode": nearest}
    half = 0 if coordinates == "asymmetric" else Fraction(1, 2)
    exact = [(index + half) * Fraction(before, after) - half for index in range(after)]
    found = run("resize", x, None, axes=[0], sizes=[after], **modes)[0]
    assert found.tolist() == [min(max(ROUNDED[nearest](at), 0), before - 1) for at in exact]


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 9)),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 9)),
    policy=st.sampled_from(["not_larger", "not_smaller"]),
    coordinates=st.sampled_from(COORDINATES),
    nearest=st.sampled_from(NEAREST),
)
@example((4, 3), (2, 3), "not_larger", "half_pixel_symmetric", "ceil")
@example((9, 5), (1, 7), "not_smaller", "half_pixel", "ceil")
@example((6, 9), (6, 4), "not_larger", "align_corners", "floor")
def test_the_nearest_element_is_that_of_the_exact_position_under_a_policy(
    shape: tuple[int, int], sizes: tuple[int, int], policy: str, coordinates: str, nearest: str
) -> None:
    x = np.arange(shape[0], dtype=np.float32)[:, None] * np.ones(shape[1], np.float32)
    modes = {"mode": "nearest", "coordinate_mode": coordinates, "nearest_mode": nearest}
    ratios = [Fraction(after, before) for before, after in zip(shape, sizes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    exact = exact_positions(shape[0], scale, math.floor(shape[0] * scale + Fraction(1, 2)), coordinates)
    found = run("resize", x, None, axes=[0, 1], sizes=list(sizes), policy=policy, **modes)[0][:, :1]
    assert found.ravel().tolist() == [min(max(ROUNDED[nearest](at), 0), shape[0] - 1) for at in exact][: found.size]


@given(
    before=st.integers(1, 40),
    scale=st.sampled_from([0.25, 0.5, 0.75, 1.25, 1.5, 2.5]),
    coordinates=st.sampled_from(COORDINATES),
    nearest=st.sampled_from(NEAREST),
)
@example(3, 1.5, "half_pixel_symmetric", "ceil")
@example(11, 0.5, "half_pixel_symmetric", "floor")
def test_the_nearest_element_is_that_of_the_exact_position_by_a_scale(
    before: int, scale: float, coordinates: str, nearest: str
) -> None:
    x, after = np.arange(before, dtype=np.float32), int(before * scale)
    modes = {"mode": "nearest", "coordinate_mode": coordinates, "nearest_mode": nearest}
    exact = exact_positions(before, Fraction(scale), after, coordinates)
    found = run("resize", x, None, axes=[0], sizes=[after], scales=[scale], **modes)[0]
    assert found.tolist() == [min(max(ROUNDED[nearest](at), 0), before - 1) for at in exact]


def exact_positions(before: int, scale: Fraction, after: int, coordinates: str) -> list[Fraction]:
    """Where the output elements of an axis lie, by the text of the operator."""
    half, length = Fraction(1, 2), before * scale
    if coordinates == "align_corners" or (coordinates == "pytorch_half_pixel" and length == 1):
        return [Fraction(index * (before - 1)) / (length - 1) if length != 1 else Fraction(0) for index in range(after)]
    if coordinates == "asymmetric":
        return [index / scale for index in range(after)]
    moved = Fraction(before, 2) * (1 - after / length) if coordinates == "half_pixel_symmetric" else 0
    return [moved + (index + half) / scale - half for index in range(after)]


@given(start=st.floats(0, 0.875, width=32), before=st.integers(2, 64), after=st.integers(2, 128))
def test_a_region_up_to_the_edge_is_inside(start: float, before: int, after: int) -> None:
    x, roi = np.ones(before, np.float32), np.array([start, 1], np.float32)
    modes = {"mode": "linear", "coordinate_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    np.testing.assert_allclose(run("resize", x, roi, axes=[0], sizes=[after], **modes)[0], 1, rtol=1e-6)


@given(
    region=st.tuples(*[st.integers(-2, 12)] * 4),
    after=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
)
def test_cropping_agrees_with_the_reference(region: Any, after: Any, mode: str) -> None:
    x, roi = random(1, 1, 1, 4, 5), np.array(region, np.float32) / np.float32(8)
    roi[2:] = np.maximum(roi[2:], roi[:2])
    modes = {"mode": mode, "coordinate_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    (found,) = run("resize", x, roi, axes=[2, 3], sizes=list(after), **modes)
    if 1 in after:
        return  # the reference adds the begin twice
    expected = reference("Resize", x, roi, None, np.array(after), opset=19, **onnx_attrs([2, 3], modes))[0]
    assert_close(found, expected.astype(np.float32), atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinate_mode", [*COORDINATES, "tf_crop_and_resize"])
@pytest.mark.parametrize("after", [(7, 11), (3, 3), (1, 1)])
def test_resizing_agrees_with_onnx_runtime(mode: str, coordinate_mode: str, after: tuple[int, int]) -> None:
    # With odd sizes no position lies half-way, where f32 and f64 would choose different neighbors.
    x = random(1, 1, 2, 5, 7)
    is_crop = coordinate_mode == "tf_crop_and_resize"
    roi = np.array([0, 0, 0.25, 0.5, 1, 1, 0.75, 1.25], np.float32) if is_crop else None
    modes = {"mode": mode, "coordinate_mode": coordinate_mode}
    sizes = [1, 2, *after]
    (found,) = run("resize", x, roi, axes=[0, 1, 2, 3], sizes=sizes, **modes)
    attrs = onnx_attrs([0, 1, 2, 3], modes)
    expected = runtime("Resize", x, roi, None, np.array(sizes), opset=19, **attrs)[0]
    assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@given(before=st.tuples(st.integers(1, 9), st.integers(1, 9)), after=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_the_aspect_ratio_is_kept(policy: str, before: Any, after: Any) -> None:
    x = random(1, *before)
    modes = {"mode": "linear", "coordinate_mode": "half_pixel", "policy": policy}
    (found,) = run("resize", x, None, axes=[0, 1], sizes=list(after), **modes)
    ratios = [a / b for a, b in zip(after, before, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    if all(abs(scale * b % 1 - 0.5) > 1e-9 for b in before) and 0 not in found.shape:
        expected = reference("Resize", x, None, None, np.array(after), opset=19, **onnx_attrs([0, 1], modes))[0]
        rows, columns = (
            hangs_on_a_rounding(b, a, scale, "half_pixel") for b, a in zip(before, found.shape, strict=True)
        )
        assert_close(np.where(rows[:, None] | columns, expected, found).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [d for d in DType if d.bits >= 8])
def test_nearest_takes_every_dtype(dtype: DType) -> None:
    x: Array = np.array([["a", "b"]], object) if dtype is DType.STRING else np.array([[0, 1]]).astype(dtype.numpy)
    (found,) = run("resize", x, None, axes=[1], sizes=[4])
    assert found.tobytes() == np.repeat(x, 2, axis=1).tobytes()


@pytest.mark.parametrize("dtype", [DType.U8, DType.I64, DType.BF16, DType.F16, DType.F64])
def test_interpolation_keeps_the_dtype(dtype: DType) -> None:
    x = np.array([10, 20]).astype(dtype.numpy)
    (found,) = run("resize", x, None, axes=[0], sizes=[3], mode="linear", coordinate_mode="align_corners")
    np.testing.assert_array_equal(found.astype(np.float64), [10, 15, 20])


def test_sizes_known_only_at_run_time() -> None:
    x = random(1, 1, 4, 6)
    op = native("dynamic_resize")
    attrs = op.complete_attrs({"axes": [1, 2], "mode": "linear"})
    (found,) = (op.meaning(x, None, None, np.array([3, 9]), **attrs),)
    np.testing.assert_array_equal(found, run("resize", x, None, axes=[1, 2], sizes=[3, 9], mode="linear")[0])
    scales = np.array([0.7, 1.5], np.float32)
    found = op.meaning(x, None, scales, None, **attrs)
    assert_close(found, runtime("Resize", x, None, np.array([1, *scales], np.float32), opset=19, mode="linear")[0])
    types = [TensorType(DType.F32, (1, symbol("H"), 6)), None, None, TensorType(DType.I64, (2,))]
    assert op.result_types(types, attrs) == (TensorType(DType.F32, (1, FRESH, FRESH)),)


def test_symbolic_sizes_with_an_aspect_policy() -> None:
    height, width = symbol("H"), symbol("W")
    op = native("resize")
    attrs = op.complete_attrs({"axes": [0, 1], "sizes": [8, 6], "policy": "not_larger"})
    (ty,) = op.result_types([TensorType(DType.F32, (height, width)), None], attrs)
    x = random(1, 5, 7)
    bound = tuple(dim.bind({"H": 5, "W": 7}) for dim in ty.dims)  # type: ignore[union-attr]
    assert bound == op.meaning(x, None, **attrs).shape


def test_empty_tensors() -> None:
    assert run("resize", np.zeros((0, 3), np.float32), None, axes=[1], sizes=[5], mode="cubic")[0].shape == (0, 5)
    assert run("resize", random(1, 2, 3), None, axes=[1], sizes=[0], mode="linear")[0].shape == (2, 0)
    with pytest.raises(ShapeError, match="of nothing"):
        run("resize", np.zeros((1, 0), np.float32), None, axes=[1], sizes=[5])


def test_an_aspect_ratio_of_nothing_is_refused() -> None:
    op = native("resize")
    attrs = op.complete_attrs({"axes": [0, 1], "sizes": [3, 3], "policy": "not_larger"})
    with pytest.raises(ShapeError, match="axis of size 0"):
        op.result_types([TensorType(DType.F32, (0, 4)), None], attrs)


@pytest.mark.parametrize(
    "attrs",
    [
        {"axes": [0], "sizes": [3, 4]},
        {"axes": [0, 0], "sizes": [3, 4]},
        {"axes": [2], "sizes": [3]},
        {"axes": [0], "sizes": [-1]},
        {"axes": [0], "sizes": [3], "scales": [1.0, 2.0]},
        {"axes": [0], "sizes": [3], "scales": [1.0], "policy": "not_larger"},
        {"axes": [0], "sizes": [3], "coordinate_mode": "tf_crop_and_resize"},
    ],
)
def test_refused(attrs: dict[str, Any]) -> None:
    op = native("resize")
    with pytest.raises(CapgraphError):
        op.result_types([TensorType(DType.F32, (4, 4)), None], op.complete_attrs(attrs))
