"""The generator reaches what there is, and what it draws is worth drawing."""

from collections import Counter

import pytest
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS
from capgraph.ir.text.printer import print_graph
from capgraph.ir.types import type_symbols
from hypothesis import find, given, settings
from hypothesis import strategies as st

from tests.strategies.coverage import EXCEPTIONS, Coverage, coverage_of, covering_graphs
from tests.strategies.draw import GraphDraw, Subject
from tests.strategies.graphs import SAMPLERS, graphs, inputs_for, random_graph, random_inputs, subjects


@pytest.fixture(scope="module")
def covered() -> tuple[Coverage, Counter[str]]:
    """What one graph for each subject reaches, and how often an op's rules refused what a sampler drew for it."""
    refused: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphDraw, "note_refusal", lambda _, op, __: refused.update([op.name]))
        return coverage_of(covering_graphs(len(list(subjects())))), refused


def test_every_op_is_reached_with_every_dtype_of_every_operand(covered: tuple[Coverage, Counter[str]]) -> None:
    coverage, _ = covered
    print(coverage.report())
    assert coverage.missing() == []


def test_exceptions_are_of_what_exists() -> None:
    assert set(EXCEPTIONS) <= set(subjects())


def test_a_report_names_what_is_missing() -> None:
    coverage = coverage_of([random_graph(0, subject=Subject("softmax"), max_nodes=1)])
    assert Subject("lstm", "x") in {Subject(subject.op, subject.operand) for subject in coverage.missing()}
    lines = coverage.report().splitlines()
    assert len(lines) == len(OPS) + 1
    assert any(line.split()[1:3] == ["softmax", "1"] for line in lines)


def test_samplers_are_of_ops_that_exist() -> None:
    assert SAMPLERS.keys() <= OPS.keys()


def test_rules_rarely_refuse_what_samplers_draw(covered: tuple[Coverage, Counter[str]]) -> None:
    """A sampler that asks for what cannot be would hide that its op is hardly tested."""
    coverage, refused = covered
    drawn = coverage.nodes
    assert refused.total() < 0.02 * drawn.total()
    assert {name for name in OPS if refused[name] > drawn[name]} == set()


def test_graphs_have_symbols_regions_states_and_sizes_that_depend_on_data() -> None:
    drawn = [random_graph(seed) for seed in range(1_200)]  # control flow is in 10.6% of many: the least of the shares
    with_symbols = [graph for graph in drawn if any(type_symbols(value.type) for value in graph.inputs)]
    of_data = [graph for graph in drawn if any(node.op.has(Trait.DATA_DEPENDENT) for node in graph.nodes)]
    with_bodies = [graph for graph in drawn if any(node.regions for node in graph.nodes)]
    for found in (with_symbols, of_data, with_bodies):
        assert len(found) > len(drawn) / 10
    for count in (len([graph for graph in drawn if graph.states]), len([graph for graph in drawn if graph.defaults])):
        assert count > len(drawn) / 80


def test_a_seed_gives_the_same_graph_and_inputs_again() -> None:
    for seed in range(30):
        graph, again = random_graph(seed), random_graph(seed)
        assert print_graph(graph, origins=True) == print_graph(again, origins=True)
        sizes, arrays = random_inputs(graph, seed)
        other_sizes, others = random_inputs(again, seed)
        assert sizes == other_sizes
        assert [array.tobytes() for array in arrays] == [array.tobytes() for array in others]


def test_only_the_ops_that_are_asked_for_are_drawn() -> None:
    sources = {"constant", "full", "cast", "dims"}
    for seed in range(50):
        graph = random_graph(seed, ops=["add", "softmax"], symbols=False)
        assert {node.op.name for node in graph.nodes} <= {"add", "softmax", *sources}
        assert not any(type_symbols(value.type) for value in graph.inputs)


@given(st.data())
def test_drawn_inputs_have_the_types_of_the_inputs(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    sizes, arrays = data.draw(inputs_for(graph))
    assert len(arrays) == len(graph.inputs)
    for value, array in zip(graph.inputs, arrays, strict=True):
        assert array.dtype == value.tensor.dtype.numpy
        assert array.ndim == len(value.shape)
        assert type_symbols(value.type) <= sizes.keys()


def test_a_failing_graph_shrinks_to_its_node() -> None:
    def has_softmax(graph: Graph) -> bool:
        return any(node.op.name == "softmax" for node in graph.nodes)

    smallest = find(graphs(ops=["softmax", "add"], max_nodes=5), has_softmax, settings=settings(max_examples=50))
    assert len(smallest) <= 1
