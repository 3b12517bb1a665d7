"""Random graphs on a GPU, served at random sizes with padding where the analysis allows it: always eager's numbers."""

import warnings

import pytest

with warnings.catch_warnings(action="ignore"):
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

import capgraph
from capgraph.executors.cuda.executor import cuda_problem
from capgraph.executors.replay.routing import input_symbols
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.errors import CapgraphError
from capgraph.ir.op import Trait
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference

from tests.strategies.graphs import random_graph, random_inputs

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

LARGEST = 8
TERMS = 2048  # sums in f32 in another order, and functions that are a few roundings off
SEEDS = 25


@pytest.mark.parametrize("block", range(4))
def test_whatever_is_served_is_right(block: int) -> None:
    replayed = 0
    wrong: list[str] = []
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        graph = random_graph(seed)
        if any(node.op.has(Trait.IMPURE) for node in graph.nodes):
            continue
        dynamic = dict.fromkeys(input_symbols(graph), (0, LARGEST))
        program = capgraph.optimize(
            graph,
            executor="graph",
            device="cuda",
            dynamic=dynamic,
            buckets=dict.fromkeys(dynamic, (4, LARGEST)),
            tune=False,
        )
        oracle = EagerExecutor().compile(graph)
        for call in range(3):
            _sizes, arrays = random_inputs(graph, 1000 * call + seed)
            inputs = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
            try:
                expected = oracle.run(inputs)
            except CapgraphError:
                continue
            for name, given in program.run(inputs).items():
                problem = difference(expected[name], given, Exactness.ROUNDING, TERMS)
                if problem:
                    wrong.append(f"seed {seed}, call {call}, output {name} {problem}")
        stats = program.stats()
        wrong += [f"seed {seed}: {why}" for why in stats.refused]
        wrong += [f"seed {seed}: {bucket.refusals}" for bucket in stats.buckets if bucket.refusals]
        replayed += stats.counters.replayed_calls
        program.close()
    assert not wrong, "\n".join(wrong)
    assert replayed >= 5  # many calls find their bucket for the first time
