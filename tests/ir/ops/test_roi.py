"""Pools over regions against onnx's reference evaluator and ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.errors import CapgraphError
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import assert_close, random, reference, run, runtime

coordinate = st.floats(-4, 24, width=32)
regions_of = st.lists(st.tuples(coordinate, coordinate, coordinate, coordinate), max_size=3)


@given(
    regions=regions_of,
    mode=st.sampled_from(["avg", "max"]),
    coordinate_mode=st.sampled_from(["half_pixel", "output_half_pixel"]),
    sampling_ratio=st.integers(0, 2),
    scale=st.sampled_from([1.0, 0.5]),
)
def test_roi_align_agrees_with_the_reference(
    regions: Any, mode: str, coordinate_mode: str, sampling_ratio: int, scale: float
) -> None:
    x = random(1, 2, 2, 5, 6)
    corners = np.array(regions, np.float32).reshape(-1, 4)
    corners[:, 2:] = corners[:, :2] + np.abs(corners[:, 2:]) / 2  # a region does not end before it begins
    images = np.arange(len(regions), dtype=np.int64) % 2
    attrs: dict[str, Any] = {"mode": mode, "sampling_ratio": sampling_ratio, "spatial_scale": scale}
    (found,) = run("roi_align", x, corners, images, output_size=[3, 2], coordinate_mode=coordinate_mode, **attrs)
    if regions:
        expected = reference(
            "RoiAlign", x, corners, images, output_height=3, output_width=2,
            coordinate_transformation_mode=coordinate_mode, **attrs,
        )[0]  # fmt: skip
        assert_close(found, expected, atol=1e-4)


@pytest.mark.parametrize("sampling_ratio", [0, 3])
def test_roi_align_agrees_with_onnx_runtime(sampling_ratio: int) -> None:
    x = random(1, 2, 3, 12, 10)
    corners = np.array([[0, 0, 9, 9], [2.3, 1.7, 4.4, 9.9], [5, 5, 30, 20]], np.float32)
    images = np.array([0, 1, 1])
    (found,) = run("roi_align", x, corners, images, output_size=[4, 3], sampling_ratio=sampling_ratio)
    expected = runtime(
        "RoiAlign", x, corners, images, opset=16, output_height=4, output_width=3, sampling_ratio=sampling_ratio
    )[0]
    assert_close(found, expected)


@given(
    regions=st.lists(st.tuples(*[st.integers(0, 22)] * 4), min_size=1, max_size=3),
    scale=st.sampled_from([1.0, 0.5, 0.25]),
    output_size=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_max_roi_pool_agrees_with_onnx_runtime(regions: Any, scale: float, output_size: tuple[int, int]) -> None:
    x = random(1, 2, 2, 6, 7)
    corners = np.array([[index % 2, *region] for index, region in enumerate(regions)], np.float32)
    (found,) = run("max_roi_pool", x, corners, output_size=output_size, spatial_scale=scale)
    expected = runtime("MaxRoiPool", x, corners, opset=20, pooled_shape=list(output_size), spatial_scale=scale)[0]
    assert_close(found, expected)


@pytest.mark.parametrize("shape", [(1, 0, 0, 5), (1, 2, 0, 5), (0, 2, 3, 3)])
def test_a_picture_without_elements_gives_zeros(shape: tuple[int, ...]) -> None:
    corners, images = np.array([[0, 1, 3, 2]], np.float32), np.array([0])
    found = run("roi_align", np.ones(shape, np.float32), corners, images, output_size=[2, 3])[0]
    assert found.shape == (1, shape[1], 2, 3)
    assert not found.any()


def test_no_regions_give_nothing() -> None:
    x = random(1, 1, 2, 4, 4, dtype=np.float16)
    assert run("max_roi_pool", x, np.zeros((0, 5), np.float16), output_size=[2, 2])[0].shape == (0, 2, 2, 2)


@pytest.mark.parametrize(
    ("name", "shapes", "output_size"),
    [
        ("roi_align", [(1, 2, 4, 4), (3, 4), (2,)], [2, 2]),
        ("roi_align", [(1, 2, 4, 4), (3, 5), (3,)], [2, 2]),
        ("roi_align", [(1, 2, 4), (3, 4), (3,)], [2, 2]),
        ("max_roi_pool", [(1, 2, 4, 4), (3, 4)], [2, 2]),
        ("max_roi_pool", [(1, 2, 4, 4), (3, 5)], [0, 2]),
        ("max_roi_pool", [(1, 2, 4, 4), (3, 5)], [2]),
    ],
)
def test_refused(name: str, shapes: list[tuple[int, ...]], output_size: list[int]) -> None:
    op = native(name)
    types = [TensorType(DType.I64 if len(shape) == 1 else DType.F32, shape) for shape in shapes]
    with pytest.raises(CapgraphError):
        op.result_types(types, op.complete_attrs({"output_size": output_size}))
