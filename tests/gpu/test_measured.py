"""Sizes that only running tells, recorded on a GPU: detectors, routed experts, masks."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.pytorch.backend import live_programs

from tests.api.test_torch_measured import CASES, Experts
from tests.executors.replay.test_measured import chain, detector, scene

pytestmark = pytest.mark.filterwarnings("default")  # PyTorch warns of what it deprecates itself


def same(given: Any, expected: Any) -> None:
    torch.testing.assert_close(
        given.cpu(), torch.from_numpy(np.asarray(expected)), rtol=1e-4, atol=1e-4, equal_nan=True
    )


SCENES = ((3000, 0), (3000, 0), (2500, -9), (500, 0), (400, 2), (1, 9), (3000, 3))
"""Boxes, and by how much their scores are shifted."""


def test_a_detector_is_one_recording() -> None:
    oracle = capgraph.optimize(detector(9), executor="eager")
    with capgraph.optimize(
        detector(9), executor="graph", device="cuda", dynamic={"N": (1, 3000)}, buckets={"N": [500, 3000]}
    ) as program:
        for seed, (boxes, shift) in enumerate(SCENES):
            inputs = scene(boxes, seed, shift)
            given = program.run({name: torch.from_numpy(each).cuda() for name, each in inputs.items()})
            for name, old in oracle.run(inputs).items():
                same(given[name], old)
        stats = program.stats()
        assert [(bucket.segments, bucket.eager_segments) for bucket in stats.buckets] == [(1, 0)] * 2
        assert stats.counters.size_reads == stats.counters.replayed_calls == 5


def test_one_size_behind_another() -> None:
    oracle, random = capgraph.optimize(chain(), executor="eager"), np.random.default_rng(0)
    with capgraph.optimize(
        chain(), executor="graph", device="cuda", dynamic={"B": (1, 5000)}, buckets={"B": [64, 5000]}
    ) as program:
        for batch in (64, 64, 40, 1, 5000, 5000, 4321):
            x = random.standard_normal((batch, 4)).astype(np.float32)
            given = program.run({"x": torch.from_numpy(x).cuda()})
            for name, old in oracle.run({"x": x}).items():
                same(given[name], old)
        assert program.stats().counters.replayed_calls == 5


@pytest.mark.parametrize("door", ["compile", "optimize"])
def test_experts_are_one_recording(door: str) -> None:
    torch.manual_seed(0)
    module = Experts(64, 8).eval().cuda().half()
    x = torch.randn(40, 64, device="cuda", dtype=torch.float16)
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        if door == "compile":
            torch._dynamo.reset()
            run = torch.compile(module, backend="capgraph", fullgraph=True, options={"executor": "graph"})
        else:
            program = capgraph.optimize(module, args=(x,), executor="graph", device="cuda")

            def run(x: Any) -> Any:
                return next(iter(program.run({"x": x}).values()))

        for call in range(6):
            x = torch.randn_like(x) if call < 4 else x[:1].expand(40, 64).contiguous()
            torch.testing.assert_close(run(x), module(x), rtol=1e-2, atol=1e-2)
    if door == "optimize":
        (bucket,) = program.stats().buckets
        assert (bucket.segments, bucket.eager_segments, len(bucket.bounded)) == (1, 0, 8)


@pytest.mark.parametrize("name", CASES)
def test_masks(name: str) -> None:
    function = CASES[name]
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="capgraph", fullgraph=True, options={"executor": "graph"})
        for _ in range(4):
            x = torch.randn(300, 40, device="cuda")
            given, expected = compiled(x), function(x)
            torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-3)
    torch._dynamo.reset()


def test_distinct_elements_are_one_recording() -> None:
    def distinct(x: Any) -> Any:
        return torch.unique(x, return_inverse=True, return_counts=True)

    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = torch.compile(distinct, backend="capgraph", fullgraph=True, options={"executor": "graph"})
        for limit in (10, 10, 1, 90_000, 300):
            x = torch.randint(0, limit, (300, 400), device="cuda")
            for given, expected in zip(run(x), distinct(x), strict=True):
                assert torch.equal(given, expected)
        (program,) = live_programs()[-1:]
        bucket = program.stats().buckets[0]
        assert (bucket.segments, bucket.eager_segments) == (1, 0), program.explain()
        assert not [line for line in program.remarks if line.startswith("runs on the host:")]
