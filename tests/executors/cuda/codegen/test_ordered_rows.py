"""Keys: unsigned numbers in the order of elements, whatever these are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernels.sort import short_sorts, sorting
from capgraph.executors.cuda.kernels.sort.ordered_rows import Key
from capgraph.executors.cuda.kernels.sort.radix import Tile
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.types import DType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.executors.cuda.codegen.cases import made, outputs_of
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER, Emulator, compiled

LENGTH = 24
DTYPES = ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "i32", "u32", "i64", "u64", "bool")


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [("f32", 4), ("f16", 2), ("f64", 8), ("i64", 8), ("u8", 1), ("bool", 1)],
)
def test_a_key_is_as_wide_as_its_element(dtype: str, nbytes: int):
    assert Key(DType(dtype), is_descending=False).nbytes == nbytes


def drawn(dtype: DType, bits: int, seed: int) -> np.ndarray:
    """Any bit patterns, each of them several times: `bits` of them chosen from."""
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, (1, LENGTH)).astype(np.bool_)
    size = dtype.numpy.itemsize
    known = rng.integers(0, 256, (bits, size), dtype=np.uint8)
    known[0] = 0
    known[-1] = [*[0] * (size - 1), 128]  # zero of the other sign, or the least integer
    return known[rng.integers(0, bits, LENGTH)].reshape(-1).view(dtype.numpy).reshape(1, LENGTH)


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@pytest.mark.parametrize("candidate", ["warp", "chip"])
def test_any_elements_come_in_order(candidate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if candidate == "chip":  # where elements are made of their keys again
        monkeypatch.setattr(short_sorts, "MOST", 0)
        monkeypatch.setattr(sorting, "LARGE_TILE", Tile(256, 0))
        monkeypatch.setattr(sorting, "SMALL_TILE", Tile(256, 1))
        monkeypatch.setattr(sorting, "FEW", 0)
    every: list[Any] = []
    for name in DTYPES:
        for down in (False, True):
            x = drawn(DType(name), 4, 0)
            case = made(name, lambda b, x, d=down: outputs_of(b, "sort", x, axis=1, descending=d), x)
            every.append(prepared(case))
    assert all(generated(each.lowered[-1])[0].name == candidate for each in every)
    library = compiled((kernel for each in every for kernel in each.kernels()), tmp_path)

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
    @given(st.sampled_from(every), st.integers(2, 20), st.integers(0, 2**32 - 1))
    def holds(each: Any, bits: int, seed: int) -> None:
        x = drawn(DType(each.case.name), bits, seed)
        emulator = Emulator(each.plan, library)
        emulator.placement.array(each.plan.graph.inputs[0])[...] = x
        emulator.run(generated(each.lowered[-1])[0])
        values, places = (emulator.placement.array(value) for value in each.plan.graph.outputs)
        _, wanted = evaluate_graph(each.case.graph, [x], {})
        np.testing.assert_array_equal(places, wanted)
        assert values.tobytes() == np.take_along_axis(x, places, 1).tobytes(), "elements keep their bits"

    holds()
