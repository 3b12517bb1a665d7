"""Random graphs, served at random sizes with padding wherever the analysis allows it: always the numbers of eager.

Every capture is verified with poisoned tails, so a refused bucket is a hole in the analysis or in the recorder.
"""

from typing import Any

import numpy as np
import pytest
from capgraph.executors.host import device as programs
from capgraph.executors.replay.routing import input_symbols
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.errors import CapgraphError
from capgraph.ir.op import Trait
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference

from tests.executors.replay.programs import compiled
from tests.strategies.graphs import random_graph, random_inputs

LARGEST = 8
TERMS = 512
SEEDS = 20


@pytest.mark.parametrize("block", range(6))
def test_whatever_is_served_is_right(block: int) -> None:
    serve(block)


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("policy", ["auto", "repoint"])
def test_results_in_memory_of_their_own_are_right_and_the_callers(
    block: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "FRESH_BYTES", 1)
    serve(block, inputs={"": policy})


def serve(block: int, **options: Any) -> None:
    """Serves the graphs of a block; results stay what they are while others are overwritten by their owner."""
    replayed = 0
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        graph = random_graph(seed)
        if any(node.op.has(Trait.IMPURE) for node in graph.nodes):
            continue
        dynamic = dict.fromkeys(input_symbols(graph), (0, LARGEST))
        program = compiled(graph, dynamic=dynamic, buckets=dict.fromkeys(dynamic, (4, LARGEST)), **options)
        kept: list[tuple[Any, Any]] = []
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
                if isinstance(given, np.ndarray) and call % 2:
                    given[...] = np.zeros((), given.dtype)
                elif isinstance(given, np.ndarray):
                    kept.append((given, given.copy()))
        assert all(found.tobytes() == before.tobytes() for found, before in kept), f"seed {seed}"
        stats = program.stats()
        assert stats.refused == (), f"seed {seed}"
        assert [bucket.refusals for bucket in stats.buckets if bucket.refusals] == [], f"seed {seed}"
        replayed += stats.counters.replayed_calls
    assert replayed > SEEDS // 2
