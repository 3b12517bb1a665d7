"""Random graphs, served at random sizes with padding wherever the analysis allows it: always the numbers of eager.

Every capture is verified with poisoned tails, so a refused bucket is a hole in the analysis or in the recorder.
"""

import pytest
from capgraph.executors.eager import EagerExecutor
from capgraph.executors.replay.routing import input_symbols
from capgraph.ir.errors import CapgraphError
from capgraph.ir.op import Trait
from capgraph.passes.exactness import Exactness
from capgraph.passes.numeric import difference

from tests.executors.replay.programs import compiled
from tests.strategies.graphs import random_graph, random_inputs

LARGEST = 8
TERMS = 512
SEEDS = 20


@pytest.mark.parametrize("block", range(6))
def test_whatever_is_served_is_right(block: int) -> None:
    replayed = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        graph = random_graph(seed)
        if any(node.op.has(Trait.IMPURE) for node in graph.nodes):
            continue
        dynamic = dict.fromkeys(input_symbols(graph), (0, LARGEST))
        program = compiled(graph, dynamic=dynamic, buckets=dict.fromkeys(dynamic, (4, LARGEST)))
        oracle = EagerExecutor().compile(graph)
        for call in range(6):
            _sizes, arrays = random_inputs(graph, 1000 * call + seed)
            inputs = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
            try:
                expected = oracle.run(inputs)
            except CapgraphError:
                continue
            for name, given in program.run(inputs).items():
                problem = difference(expected[name], given, Exactness.ROUNDING, TERMS)
                assert problem == "", f"seed {seed}, call {call}, output {name} {problem}\n{graph}"
        stats = program.stats()
        assert stats.refused == (), f"seed {seed}"
        assert [bucket.refusals for bucket in stats.buckets if bucket.refusals] == [], f"seed {seed}"
        replayed += stats.counters.replayed_calls
    assert replayed > SEEDS // 2
