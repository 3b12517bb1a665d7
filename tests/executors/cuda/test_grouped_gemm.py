"""Grouped matmuls, their kernels emulated on the host, and compiled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Chip, KernelLaunch
from capgraph.executors.cuda.kernels.gemm.grouped_gemm import lower_grouped
from capgraph.executors.cuda.kernels.gemm.grouped_tiles import most_tiles
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.ops.nn.grouped import group_ends
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.matmul_cases import every_other, swapped
from tests.executors.cuda.solving import Layout, Setting, setting

LAYOUTS: dict[str, Layout] = {"given": lambda x: x, "transposed": swapped, "gaps": every_other}


def grouped(
    rows: int,
    inner: int,
    columns: int,
    ends: list[int],
    dtype: DType = DType.F32,
    lies: str = "given",
    chip: Chip | None = None,
    planted: Sequence[tuple[str, tuple[int, ...], float]] = (),
) -> Setting:
    """Random operands, in which numbers are `planted`: an operand, a place in it, what lies there."""
    rng = np.random.default_rng(rows)
    arrays: dict[str, Array] = {
        "a": rng.standard_normal((rows, inner)).astype(dtype.numpy),
        "b": rng.standard_normal((len(ends), inner, columns)).astype(dtype.numpy),
        "ends": np.array(ends, np.int32),
    }
    for name, place, number in planted:
        arrays[name][place] = number
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in arrays.items()]
    graph.set_outputs([graph.append(native("grouped_matmul"), values).output])
    return setting(graph, arrays, {"b": LAYOUTS[lies]}, chip=chip)


def names(made: Setting) -> list[str]:
    return [candidate.name for candidate in lower_grouped(made.task)]


def check(made: Setting, name: str, folder: Path) -> None:
    (candidate,) = (each for each in lower_grouped(made.task) if each.name == name)
    (found,), (expected,) = made.found(candidate, folder), made.expected
    tolerance = 1e-5 if found.dtype.itemsize > 2 else 2e-2
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), tolerance, tolerance)


@pytest.mark.parametrize("lies", LAYOUTS)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16], ids=str)
@pytest.mark.parametrize("name", ["grouped-rows", "grouped-tiles"])
def test_any_dtype_and_layout(name: str, dtype: DType, lies: str, tmp_path: Path) -> None:
    check(grouped(37, 24, 70, [5, 5, 40, 36, 2], dtype, lies), name, tmp_path)


@pytest.mark.parametrize("lies", ["given", "transposed"])
@pytest.mark.parametrize(
    ("rows", "columns", "ends"),
    [(3, 40, [0, 1, 3]), (37, 72, [5, 5, 36]), (20, 8, [-3, 9, 4, 15]), (6, 264, [2, 2, 6])],
)
def test_tensor_cores(rows: int, columns: int, ends: list[int], lies: str, tmp_path: Path) -> None:
    inner = 136 if rows == 37 else 72  # more steps than a ring has stages, and fewer
    made = grouped(rows, inner, columns, ends, DType.F16 if rows < 30 else DType.BF16, lies)
    on_cores = [name for name in names(made) if name not in ("grouped-rows", "grouped-tiles")]
    assert len(on_cores) == 4
    check(made, on_cores[rows % 4], tmp_path)


@pytest.mark.parametrize("lies", ["given", "transposed"])
@pytest.mark.parametrize("tile", ["16x128", "64x64", "128x128"])
def test_single_precision_on_tensor_cores(tile: str, lies: str, tmp_path: Path) -> None:
    check(grouped(70, 72, 140, [9, 9, 66], DType.F32, lies), f"grouped-{tile}", tmp_path)


def test_sums_of_single_precision_err_as_numpys(tmp_path: Path) -> None:
    made = grouped(16, 512, 16, [16])
    (candidate,) = (each for each in lower_grouped(made.task) if each.name == "grouped-16x128")
    (found,) = made.found(candidate, tmp_path)
    a, b = (np.asarray(each, np.float64) for each in made.operands()[:2] if each is not None)
    error, usual = (np.linalg.norm(each - a @ b[0]) for each in (found, made.expected[0]))
    assert error <= 1.5 * usual


@pytest.mark.parametrize(
    "planted",
    [
        [("a", (4, 3), np.inf)],
        [("b", (0, 9, 7), -np.inf), ("a", (4, 9), np.nan)],
        [("a", (5, 3), 3.4e38), ("b", (0, 3), 0.25)],
    ],
)
def test_infinities_in_single_precision(planted: list[tuple[str, tuple[int, ...], float]], tmp_path: Path) -> None:
    with np.errstate(all="ignore"):
        made = grouped(70, 72, 140, [9, 66], DType.F32, planted=planted)
        check(made, "grouped-64x64", tmp_path)


@pytest.mark.parametrize("candidate", ["128x128", "128x256"])
@pytest.mark.parametrize("lies", ["given", "transposed"])
@pytest.mark.parametrize(
    ("columns", "inner", "ends", "blocks"),
    [(264, 136, [130, 200], 132), (7 * 8, 64, [0], 2), (520, 72, [-1, 130, 120], 3)],
)
def test_the_instructions_of_hopper(
    columns: int, inner: int, ends: list[int], blocks: int, lies: str, candidate: str, tmp_path: Path
) -> None:
    """Emulated by the places in shared memory that they read; few blocks have several tiles each."""
    made = grouped(305, inner, columns, ends, DType.BF16, lies, Chip(multiprocessors=blocks))
    check(made, f"grouped-wgmma-{candidate}", tmp_path)


def test_many_rows_of_a_group_are_gone_through_in_bands(tmp_path: Path) -> None:
    made = grouped(2600, 8, 136, [100, 2500], DType.F16, "given", Chip(multiprocessors=5))
    check(made, "grouped-wgmma-128x128", tmp_path)


@pytest.mark.parametrize("groups", [33, 70])
def test_more_groups_than_a_warp_has_lanes(groups: int, tmp_path: Path) -> None:
    ends = np.cumsum(np.random.default_rng(0).integers(0, 3, groups)).tolist()
    for name in ("grouped-rows", "grouped-tiles"):
        check(grouped(60, 5, 9, ends), name, tmp_path)


@pytest.mark.parametrize(("inner", "ends"), [(0, [2, 3]), (4, []), (4, [0, 0])])
def test_nothing_to_multiply_gives_zeros(inner: int, ends: list[int], tmp_path: Path) -> None:
    for name in ("grouped-rows", "grouped-tiles"):
        made = grouped(5, inner, 6, ends)
        check(made, name, tmp_path)
        assert not made.expected[0].any()


@given(st.lists(st.integers(-5, 300), max_size=40), st.integers(0, 200), st.sampled_from((16, 32, 64, 128)))
def test_there_are_tiles_for_all_groups(ends: list[int], rows: int, tile: int) -> None:
    starts = np.append(0, group_ends(np.array(ends, np.int64), rows))
    sizes = np.diff(np.append(starts, rows))
    assert sum(-(-size // tile) for size in sizes.tolist()) <= most_tiles(rows, len(ends), tile)


@pytest.mark.parametrize(
    ("rows", "groups", "first", "single"),
    [
        (2, 8, "rows", "rows"),
        (16, 8, "16x128", "rows"),
        (256, 8, "64x64", "16x128"),
        (4096, 60, "128x128", "64x64"),
        (4096, 8, "wgmma-128x128", "128x128"),
        (60, 61, "rows", "rows"),
    ],
)
def test_the_guess_goes_by_rows_a_group(rows: int, groups: int, first: str, single: str) -> None:
    made = grouped(rows, 8, 8, [rows] * groups, DType.F16)
    assert names(made)[0] == f"grouped-{first}"
    assert len(set(names(made))) == 6 + 2 * first.startswith("wgmma")
    in_f32 = names(grouped(rows, 8, 8, [rows] * groups))
    assert in_f32[0] == f"grouped-{single}"
    assert len(set(in_f32)) == 5


def test_what_is_not_aligned_stays_off_tensor_cores() -> None:
    assert all(name.startswith("grouped-") for name in names(grouped(8, 64, 16, [8], DType.F16)))
    for made in (
        grouped(8, 60, 16, [8], DType.F16),
        grouped(8, 64, 15, [8], DType.F16),
        grouped(8, 64, 16, [8], DType.F64),
    ):
        assert set(names(made)) == {"grouped-rows", "grouped-tiles"}


def test_the_instructions_of_hopper_compile() -> None:
    made = [
        grouped(200, 128, 64, [200], dtype, lies)
        for dtype in (DType.F16, DType.BF16)
        for lies in ("given", "transposed")
    ]
    candidates = [
        candidate
        for each in made
        for candidate in lower_grouped(each.task)
        if candidate.name.startswith("grouped-wgmma")
    ]
    launches = [candidate.launches[0] for candidate in candidates]
    assert not compile_problems([launch.kernel for launch in launches if isinstance(launch, KernelLaunch)], [90])


def test_kernels_compile() -> None:
    made: list[Any] = [
        grouped(rows, 128, 64, [rows] * 9, dtype, lies)
        for rows, dtype in ((100, DType.F16), (8, DType.BF16), (8, DType.F32), (100, DType.F64))
        for lies in ("given", "transposed")
    ]
    launches = [launch for each in made for candidate in lower_grouped(each.task) for launch in candidate.launches]
    kernels = [launch.kernel for launch in launches if isinstance(launch, KernelLaunch)]
    assert not compile_problems(kernels)
