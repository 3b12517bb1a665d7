"""Sizes that a run finds, on a device: counts are read once, and outputs are cut to them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.text.parser import parse

from tests.executors.cuda.fake import GpuArray, fake_device, gpu_arrays, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.test_measured import chain

DYNAMIC: dict[str, Any] = {"dynamic": {"B": (1, 8)}, "buckets": {"B": [4, 8]}}


@pytest.mark.parametrize("options", [{}, {"copy_outputs": False}])
@pytest.mark.parametrize("on_device", [False, True])
def test_one_size_behind_another(on_device: bool, options: dict[str, Any], tmp_path: Path) -> None:
    graph, random = chain(), np.random.default_rng(0)
    oracle = EagerExecutor().compile(graph)
    with meanings(), gpu_arrays():
        program = recorded(graph, fake_device(tmp_path), **DYNAMIC, **options)
        for call, batch in enumerate([4, 8, 4, 4, 3, 5, 1, 8, 8, 2]):
            x = random.standard_normal((batch, 4)).astype(np.float32) - (9 if call == 5 else 0)
            given = program.run({"x": GpuArray(x) if on_device else x})
            for name, old in oracle.run({"x": x}).items():
                array = np.asarray(getattr(given[name], "content", given[name]))
                assert array.shape == old.shape
                np.testing.assert_allclose(array, old, rtol=1e-5)
        stats = program.stats()
    assert (stats.counters.replayed_calls, stats.counters.size_reads) == (8, 8)
    assert all((bucket.segments, bucket.eager_segments) == (1, 0) for bucket in stats.buckets)


def test_a_size_that_is_recorded_at_its_second_call_has_its_bound(tmp_path: Path) -> None:
    graph = parse("""
        graph @main(%x: f32[3, 4]) {
          %i: i64[2, n] = non_zero(%x)
          %t: i64[n, 2] = transpose(%i) {perm = [1, 0]}
          %y: f32[n, 2] = cast(%t) {to = "f32"}
          return %y
        }
    """)
    with meanings():
        program = recorded(graph, fake_device(tmp_path))
        x = np.eye(3, 4, dtype=np.float32)
        for _ in range(3):
            np.testing.assert_array_equal(program.run({"x": x})["y"], np.argwhere(x))
        stats = program.stats()
    assert [(bucket.segments, bucket.eager_segments, len(bucket.bounded)) for bucket in stats.buckets] == [(1, 0, 1)]
