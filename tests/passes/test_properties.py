"""Every pass and every level, on random graphs: valid in, valid out, the same meaning, stable, and honest about change.

`python -m tests.fuzz_passes` does the same without end.
"""

import pytest
from capgraph.ir.equality import first_difference
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.aimed import aimed_graph, all_rules, fires
from tests.passes.regressions import regressions, text_of
from tests.passes.semantics import broken_for, broken_promises, pipelines
from tests.passes.sources import SOURCES
from tests.strategies.graphs import graphs, inputs_for

SEEDS = 25
SEEDS_OF_RULES = 3
PIPELINES = pipelines()
HARD_TO_AIM_AT = 0.5  # of all rules: those that look at more than their pattern says


def held(graph: Graph, seed: int) -> None:
    found = broken_promises(graph, seed, PIPELINES)
    assert not found, "\n".join([*(f"{name}: {problem}" for name, problem in found.items()), text_of(graph)])


@pytest.mark.parametrize("source", SOURCES)
def test_passes_keep_their_promises_on_seeded_graphs(source: str) -> None:
    for seed in range(SEEDS):
        held(SOURCES[source](seed), seed)


def test_passes_keep_their_promises_on_graphs_aimed_at_each_rule() -> None:
    for _, rule in all_rules():
        for seed in range(SEEDS_OF_RULES):
            held(aimed_graph(seed, [rule]), seed)


def test_aimed_graphs_meet_their_rules() -> None:
    rules = [rule for _, rule in all_rules()]
    met = [rule for rule in rules if any(fires(rule, aimed_graph(seed, [rule])) for seed in range(6))]
    assert len(met) >= HARD_TO_AIM_AT * len(rules)


@pytest.mark.parametrize("name", regressions())
def test_what_once_went_wrong(name: str) -> None:
    for seed in range(3):
        held(regressions()[name], seed)


def test_graphs_are_kept_whole() -> None:
    for seed in range(SEEDS):
        graph = SOURCES["network"](seed)
        assert first_difference(graph, parse(text_of(graph, "a remark\nof two lines"))) is None


@given(st.data())
def test_passes_keep_their_promises_on_drawn_graphs(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    inputs = data.draw(inputs_for(graph))[1]
    name = data.draw(st.sampled_from(sorted(PIPELINES)))
    assert broken_for(graph, inputs, {name: PIPELINES[name]}) == {}
