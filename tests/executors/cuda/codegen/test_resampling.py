"""Resize: vectors of nearest elements along the axis that is contiguous in the result; regions that operands give."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernels.resize import resampling
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Value

from tests.executors.cuda.codegen.cases import Case, Drawn, made
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER

NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def nearest(shape: tuple[int, ...], axes: tuple[int, ...], sizes: tuple[int, ...], dtype: str = "f16") -> Case:
    def build(b: Builder, x):
        return b.op("resize", x, None, axes=axes, sizes=sizes, mode="nearest")

    return made(f"nearest {shape} {axes} {sizes} {dtype}", build, Drawn().array(dtype, *shape))


def test_nearest_elements_are_written_in_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "ENOUGH_THREADS", 1)
    cases = [
        nearest((2, 3, 5, 6), (2, 3), (10, 16)),
        nearest((2, 3, 5, 6), (2, 3), (7, 9)),
        nearest((1, 4, 6, 16), (1, 2), (8, 3)),
        nearest((3, 8), (1,), (24,), "f32"),
        nearest((2, 2, 3, 8), (2, 3), (5, 8), "u8"),
        nearest((2, 16), (0,), (0,), "f32"),
    ]
    first = prepared(cases[0])
    assert first is not None
    (candidate,) = generated(first.lowered[-1])
    assert "pack<unsigned short, 8>" in candidate.launches[0].kernel.text  # type: ignore[union-attr]
    assert not emulated_problems(cases, tmp_path)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_integers_that_overshoot_stay_in_range(tmp_path: Path) -> None:
    def build(b: Builder, x: Value) -> Value:
        return b.op("resize", x, None, axes=(1,), sizes=(24,), mode="cubic")

    cases = []
    for dtype in (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64):
        limits = np.iinfo(dtype)
        x = np.array([[limits.min, limits.max] * 4, [limits.max, limits.max, limits.min, limits.min] * 2], dtype)
        cases.append(made(f"overshooting {x.dtype}", build, x))
    assert not emulated_problems(cases, tmp_path)


def test_samples_as_far_off_as_numbers_go_are_those_of_the_border(tmp_path: Path) -> None:
    far = np.array([np.finfo(np.float64).max, -np.finfo(np.float64).max, np.inf, np.nan])
    grid = np.stack([far, far[::-1]], -1).reshape(1, 1, 4, 2)
    options = {"mode": "nearest", "padding": "border", "align_corners": True}
    case = made(
        "far", lambda b, x, grid: b.op("grid_sample", x, grid, **options), Drawn().array("f64", 1, 2, 3, 4), grid
    )
    assert not emulated_problems([case], tmp_path)


def test_small_images_keep_a_thread_for_each_element() -> None:
    case = prepared(nearest((1, 1, 4, 8), (2, 3), (8, 16)))
    assert case is not None
    (candidate,) = generated(case.lowered[-1])
    assert "pack<" not in candidate.launches[0].kernel.text  # type: ignore[union-attr]


def cropped(dtype: str, region: tuple[float, ...], sizes: tuple[int, int], **modes: Any) -> Case:
    """Rows and columns of a region; outside of the image is 10."""
    settings = {"coordinate_mode": "tf_crop_and_resize", "extrapolation_value": 10.0, **modes}
    roi = np.array(region, np.float32)

    def build(b: Builder, x: Value, roi: Value) -> Value:
        return b.op("resize", x, roi, axes=(2, 3), sizes=sizes, **settings)

    return made(f"{dtype} {region} {sizes} {modes}", build, Drawn().array(dtype, 2, 3, 5, 7), roi)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_regions_that_an_operand_gives(tmp_path: Path) -> None:
    inside, across = (0.1, 0.25, 0.9, 0.75), (-0.25, 0.5, 0.5, 1.25)
    cases = [
        *(cropped("f32", across, (4, 6), mode="nearest", nearest_mode=each) for each in NEAREST),
        *(cropped(dtype, inside, (4, 9), mode="linear") for dtype in ("f32", "f16", "f64", "u8", "i64")),
        cropped("i32", across, (3, 6), mode="nearest"),
        cropped("f32", across, (1, 6), mode="linear"),
        *(cropped("f32", (begin, 0.3, 1.0, 1.0), (11, 49), mode="linear") for begin in (0.1, 0.7)),
        cropped("f32", across, (8, 6), mode="cubic"),
        cropped("f32", across, (8, 6), mode="cubic", exclude_outside=True),
        cropped("f32", (0.0, 0.0, 1.0, 1.0), (3, 3), mode="cubic", antialias=True),
        cropped("f32", (0.0, 0.0, 1.0, 1.0), (2, 3), mode="linear", antialias=True, exclude_outside=True),
    ]
    assert not emulated_problems(cases, tmp_path)
