"""The held-out plans, in small: their kernels give what they mean, and the simulation has an answer."""

from pathlib import Path

import pytest
from capgraph.ir.graph import Graph
from capgraph.ir.target import CUDA
from capgraph.passes.catalog import level_pipeline
from capgraph.passes.planning.planner import make_plan
from capgraph.passes.planning.simulation import simulate

from benchmarks.gpu.held_out import PLANS, bert, gates, gpt2
from tests.benchmarks.gpu.test_lowering import check, needs_compiler

SMALL = {
    "gpt2": (lambda: gpt2(2, 16, 2, 5, vocabulary=1000), 1e-5),
    "bert": (lambda: bert(2, 16, 2, 6, "f16", vocabulary=1000), 5e-3),
    "gates": (lambda: gates(2, 5, 24), 1e-5),
}


def optimized(name: str) -> Graph:
    graph = SMALL[name][0]()
    level_pipeline(2).run(graph)
    return graph


@needs_compiler
@pytest.mark.parametrize("name", SMALL)
def test_kernels_give_what_the_model_means(name: str, tmp_path: Path):
    check(optimized(name), tmp_path, SMALL[name][1])


@pytest.mark.parametrize("name", SMALL)
def test_the_simulation_knows_every_kernel(name: str):
    found = simulate(make_plan(optimized(name), {}, CUDA))
    assert found.full_us is not None
    assert all(kernel.device_us > 0 and kernel.nbytes > 0 for kernel in found.kernels)


def test_three_plans_are_held_out():
    assert len(PLANS) == 3
