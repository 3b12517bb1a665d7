"""Resize to the nearest element: vectors along the axis that is contiguous in the result."""

from pathlib import Path

import pytest
from capgraph.executors.cuda.codegen import resampling
from capgraph.ir.builder import Builder

from tests.executors.cuda.codegen.cases import Case, Drawn, made
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared


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
    (candidate,) = generated(first.ways[-1])
    assert "pack<unsigned short, 8>" in candidate.launches[0].kernel.text  # type: ignore[union-attr]
    assert not emulated_problems(cases, tmp_path)


def test_small_images_keep_a_thread_for_each_element() -> None:
    case = prepared(nearest((1, 1, 4, 8), (2, 3), (8, 16)))
    assert case is not None
    (candidate,) = generated(case.ways[-1])
    assert "pack<" not in candidate.launches[0].kernel.text  # type: ignore[union-attr]
