"""Radix sorts of long rows: tiles, passes, and the memory that they take."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, KernelLaunch
from capgraph.executors.cuda.kernels.sort import radix, sorting
from capgraph.executors.cuda.kernels.sort.radix import ChipSort, Tile
from capgraph.executors.cuda.lower.lowering import MOST_SCRATCH

from tests.executors.cuda.codegen.cases import Case, Drawn, made, outputs_of
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER

SMALL = Tile(256, 2)
HOWS = [ChipSort(SMALL, 64), ChipSort(SMALL, 1)]
NAMES = ["direct", "summed"]


def sorts(dtype: str, *shape: int, k: int = 0) -> Case:
    x = Drawn().array(dtype, *shape)
    if k:
        return made(f"top {k} {shape} {dtype}", lambda b, x: outputs_of(b, "top_k", x, axis=1, k=k), x)
    return made(f"sort {shape} {dtype}", lambda b, x: outputs_of(b, "sort", x, axis=1, descending=True), x)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_entries_in_the_memory_of_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sorting, "LARGE_TILE", Tile(256, 1))
    monkeypatch.setattr(radix, "HUGE_BYTES", 0)
    cases = [sorts("f32", 2, 1300), sorts("i64", 1, 1300), sorts("f32", 3, 1300, k=1200)]
    assert not emulated_problems(cases, tmp_path)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@pytest.mark.parametrize("how", HOWS, ids=NAMES)
def test_rows_of_one_tile_and_of_several(how: ChipSort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sorting, "LARGE_TILE", Tile(256, 1))
    monkeypatch.setattr(sorting, "FEW", 0)
    monkeypatch.setattr(sorting, "chip_sort", lambda rows: how)
    cases = [
        *(sorts("f16", 2, length) for length in (SMALL.size - 1, SMALL.size, SMALL.size + 1, 3 * SMALL.size)),
        sorts("f32", 1, 1300, k=700),
    ]
    assert not emulated_problems(cases, tmp_path)


@pytest.mark.parametrize(("dtype", "passes"), [("u8", 1), ("bf16", 2), ("f32", 4), ("f64", 8)])
def test_a_pass_for_each_byte_of_a_key(dtype: str, passes: int):
    case = prepared(sorts(dtype, 1, 50_000))
    assert case is not None
    (candidate,) = generated(case.lowered[-1])
    entered = [
        launch for launch in candidate.launches if isinstance(launch, KernelLaunch) and "rank[" in launch.kernel.text
    ]
    assert len(entered) == passes
    assert len({launch.kernel.text for launch in entered}) <= 3, "passes in between share a kernel"


@pytest.mark.parametrize("how", HOWS, ids=NAMES)
def test_scratch_memory_is_told_apart(how: ChipSort, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sorting, "chip_sort", lambda rows: how)
    case = prepared(sorts("f32", 2, 20_000))
    assert case is not None
    (candidate,) = generated(case.lowered[-1])
    scratch = case.lowered[-1].task.scratch  # type: ignore[union-attr]
    offsets = {
        argument.offset
        for launch in candidate.launches
        for argument in launch.arguments  # type: ignore[union-attr]
        if isinstance(argument, BufferPlace) and argument.buffer == scratch.buffer  # type: ignore[union-attr]
    }
    assert all(offset % 256 == 0 for offset in offsets)
    assert max(offsets) < candidate.scratch_bytes < MOST_SCRATCH
    assert len(offsets) == 6 + (how.direct == 1), "two sets of keys and indices, a table, totals, bits"


def test_a_block_takes_no_more_shared_memory_than_there_is():
    assert sorting.LARGEST_BLOCK.shared_bytes(8 + 4) < 227 * 1024
    assert radix.Tile(512, 8).shared_bytes(4 + 4) == 4096 * 8 + 4 * (17 * 256 + 32)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.int64])
def test_long_rows_fit_into_scratch_memory(dtype: type):
    x = np.broadcast_to(np.zeros((), dtype), 1 << 26)
    case = prepared(made("s", lambda b, x: outputs_of(b, "sort", x, axis=0), x))
    assert case is not None
    (candidate,) = generated(case.lowered[-1])
    assert candidate.name == "chip"
