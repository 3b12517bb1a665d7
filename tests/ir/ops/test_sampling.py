"""Sampling at fractional positions against onnx's reference evaluator and ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.errors import CapgraphError
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import assert_close, random, reference, run, runtime

PLAIN: dict[str, Any] = {"strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1]}


@given(
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    mode=st.sampled_from(["linear", "nearest", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    align_corners=st.booleans(),
    batch=st.integers(0, 2),
)
def test_grid_sample_agrees_with_the_reference(
    sizes: list[int], mode: str, padding: str, align_corners: bool, batch: int
) -> None:
    x = random(1, batch, 2, *sizes)
    grid = random(2, batch, *[2] * len(sizes), len(sizes)) * np.float32(1.5)
    (found,) = run("grid_sample", x, grid, mode=mode, padding=padding, align_corners=align_corners)
    if batch and (mode, padding) != ("cubic", "border"):  # of which the reference moves the place, not each neighbor
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": int(align_corners)}
        assert_close(found, reference("GridSample", x, grid, **attrs)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_grid_sample_agrees_with_onnx_runtime(mode: str, padding: str, align_corners: int) -> None:
    x, grid = random(1, 2, 3, 4, 5), random(2, 2, 6, 7, 2)
    (found,) = run("grid_sample", x, grid, mode=mode, padding=padding, align_corners=bool(align_corners))
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
    assert_close(found, runtime("GridSample", x, grid, opset=20, **attrs)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_coordinates_that_are_no_numbers_do_no_harm(padding: str) -> None:
    x = random(1, 1, 1, 3, 3)
    grid = np.array([[[[np.nan, 0], [np.inf, 0], [1e30, -1e30]]]], np.float32)
    (found,) = run("grid_sample", x, grid, padding=padding)
    assert np.isfinite(found).all()
    if padding == "zeros":
        np.testing.assert_array_equal(found, np.zeros((1, 1, 1, 3)))


def test_integers_are_sampled_as_floats_and_truncated() -> None:
    x = np.arange(6, dtype=np.int64).reshape(1, 1, 2, 3)
    grid = np.array([[[[0.0, 0.0], [0.5, 0.0]]]], np.float32)
    (found,) = run("grid_sample", x, grid, align_corners=True)
    np.testing.assert_array_equal(found, [[[[2, 3]]]])


@given(st.lists(st.integers(1, 4), min_size=2, max_size=3), st.booleans(), st.integers(0, 2))
def test_affine_grid_agrees_with_the_reference(size: list[int], align_corners: bool, batch: int) -> None:
    rank = len(size)
    theta = random(1, batch, rank, rank + 1)
    (found,) = run("affine_grid", theta, size=size, align_corners=align_corners)
    if batch and not (align_corners and 1 in size):  # the reference divides by zero there
        shape = np.array([batch, 1, *size])
        expected = reference("AffineGrid", theta, shape, align_corners=int(align_corners))[0]
        assert_close(found, expected)


def test_an_axis_of_one_element_lies_in_the_middle() -> None:
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float64)
    (found,) = run("affine_grid", theta, size=[1, 3], align_corners=True)
    np.testing.assert_allclose(found, [[[[-1, 0], [0, 0], [1, 0]]]])


@st.composite
def deformed(draw: st.DrawFn) -> dict[str, Any]:
    groups, offset_groups = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
    return {
        "kernel": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "strides": draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)),
        "pads": draw(st.lists(st.integers(0, 2), min_size=4, max_size=4)),
        "dilations": draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)),
        "groups": groups,
        "offset_groups": offset_groups,
        "extras": draw(st.tuples(st.booleans(), st.booleans())),
        "batch": draw(st.integers(0, 2)),
    }


@given(deformed())
def test_deform_conv_agrees_with_onnx_runtime(case: dict[str, Any]) -> None:
    attrs = {name: case[name] for name in ("strides", "pads", "dilations")}
    x, weight = random(1, case["batch"], 4, 6, 7), random(2, 2, 4 // case["groups"], *case["kernel"])
    (plain,) = run("conv", x, weight, None, groups=case["groups"], **attrs)
    positions = case["offset_groups"] * int(np.prod(case["kernel"]))
    offset = random(3, case["batch"], 2 * positions, *plain.shape[2:]) * np.float32(2)
    bias = random(4, 2) if case["extras"][0] else None
    mask = random(5, case["batch"], positions, *plain.shape[2:]) if case["extras"][1] else None
    native_attrs = attrs | {"groups": case["groups"], "offset_groups": case["offset_groups"]}
    (found,) = run("deform_conv", x, weight, offset, bias, mask, **native_attrs)
    if case["batch"]:
        onnx_attrs = attrs | {"group": case["groups"], "offset_group": case["offset_groups"]}
        expected = runtime("DeformConv", x, weight, offset, bias, mask, opset=19, **onnx_attrs)[0]
        assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_without_offsets_it_is_a_convolution(rank: int) -> None:
    x, weight = random(1, 2, 4, *[5] * rank), random(2, 6, 2, *[2] * rank)
    attrs: dict[str, Any] = {"strides": [2] * rank, "pads": [1] * 2 * rank, "dilations": [1] * rank, "groups": 2}
    (plain,) = run("conv", x, weight, None, **attrs)
    offset = np.zeros((2, 2**rank * rank, *plain.shape[2:]), np.float32)
    assert_close(run("deform_conv", x, weight, offset, None, None, **attrs)[0], plain)


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("grid_sample", [(1, 2, 4, 4), (1, 3, 3, 3)], {}),
        ("grid_sample", [(1, 2, 4, 4), (2, 3, 3, 2)], {}),
        ("grid_sample", [(1, 2), (1, 2)], {}),
        ("affine_grid", [(1, 2, 2)], {"size": [3, 3]}),
        ("affine_grid", [(1, 2, 3)], {"size": [3, 3, 3]}),
        ("deform_conv", [(1, 2, 4, 4), (1, 2, 2, 2), (1, 4, 3, 3), None, None], PLAIN),
        ("deform_conv", [(1, 2, 4, 4), (1, 2, 2, 2), (1, 8, 3, 3), None, (1, 8, 3, 3)], PLAIN),
    ],
)
def test_refused(name: str, shapes: list[tuple[int, ...] | None], attrs: dict[str, Any]) -> None:
    op = native(name)
    with pytest.raises(CapgraphError):
        op.result_types([s and TensorType(DType.F32, s) for s in shapes], op.complete_attrs(attrs))
