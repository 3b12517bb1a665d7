"""Random graphs of every op, optimized as for a GPU: what kernels give is what the graphs mean."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from capgraph.ir.errors import CapgraphError
from capgraph.ir.op import Trait
from capgraph.optimization import pipeline_for

from tests.executors.cuda.codegen.cases import Case, expected_of
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.emulator import HAS_COMPILER
from tests.strategies.graphs import random_graph, random_inputs

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")

SEEDS = 100


def optimized_cases() -> Iterator[Case]:
    """The graphs of tests/gpu/test_random_graphs.py, as their programs have them."""
    for seed in range(SEEDS):
        graph = random_graph(seed)
        if any(node.op.has(Trait.IMPURE) for node in graph.nodes):
            continue
        sizes, inputs = random_inputs(graph, seed)
        case = Case(f"random {seed}", graph, sizes, inputs)
        try:
            expected_of(case)
        except CapgraphError:
            continue
        changed = graph.clone()
        pipeline_for(2, "cuda").run(changed, check="none")
        yield Case(case.name, changed, sizes, inputs)


def test_random_graphs_mean_what_they_say(tmp_path: Path):
    cases = list(optimized_cases())
    assert len(cases) >= SEEDS // 2
    assert not emulated_problems(cases, tmp_path)
