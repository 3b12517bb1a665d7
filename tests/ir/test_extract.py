from textwrap import dedent

from capgraph.ir.analysis.extract import cone_boundary, extract
from capgraph.ir.builder import Builder
from capgraph.ir.equality import first_difference
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify
from hypothesis import given
from hypothesis import strategies as st

from tests.counted_work import calls_in
from tests.strategies.graphs import graphs

CHAIN = """
    graph @main(%x: f32[B, 4], %unused: f32[2]) {
      %c = constant() {value = dense<f32[]: 2.0>}
      %a = exp(%x)
      %b = mul(%a, %c)
      %d = neg(%b)
      %e = add(%d, %a)
      return %e
    }
"""


def names(values: object) -> list[str]:
    return [value.name for value in values]  # type: ignore[attr-defined]


def held(graph: Graph, text: str) -> None:
    verify(graph)
    assert first_difference(graph, parse(dedent(text))) is None


def test_the_work_is_that_of_the_part() -> None:
    def work(count: int) -> int:
        b = Builder()
        x = b.input("x", "f32[4]")
        chain = [x]
        for _ in range(count):
            chain.append(b.op("neg", chain[-1]))
        graph = b.finish({"y": chain[-1]})
        return calls_in(lambda: extract(graph, [chain[10]], [chain[5]]))

    assert work(1000) < 1.1 * work(20)  # five nodes are sorted from a set, in any order


def test_a_part_reads_what_was_cut_and_takes_constants_along() -> None:
    graph = parse(dedent(CHAIN))
    part, taken = extract(graph, [graph.value("d")], [graph.value("a")])
    assert names(taken) == ["a"]
    held(
        part,
        """
        graph @main(%a: f32[B, 4]) {
          %c = constant() {value = dense<f32[]: 2.0>}
          %b = mul(%a, %c)
          %d = neg(%b)
          return %d
        }""",
    )


def test_without_a_cut_everything_back_to_the_inputs_is_taken() -> None:
    graph = parse(dedent(CHAIN))
    part, taken = extract(graph, graph.outputs, [])
    assert names(taken) == ["x"]
    assert [node.op.name for node in part.nodes] == [node.op.name for node in graph.nodes]


def test_a_cut_value_that_is_wanted_is_passed_through() -> None:
    graph = parse(dedent(CHAIN))
    part, taken = extract(graph, [graph.value("a"), graph.value("b")], [graph.value("a")])
    assert names(taken) == ["a"]
    assert part.outputs[0] is part.inputs[0]
    verify(part)


def test_the_original_stays_as_it_is() -> None:
    graph = parse(dedent(CHAIN))
    extract(graph, graph.outputs, [graph.value("b")])
    assert first_difference(graph, parse(dedent(CHAIN))) is None


def test_boundaries_lie_one_node_further_with_each_step() -> None:
    graph = parse(dedent(CHAIN))
    roots = [graph.value("e")]
    assert {value.name for value in cone_boundary(roots, 1)} == {"d", "a"}
    assert {value.name for value in cone_boundary(roots, 2)} == {"b"}
    assert cone_boundary(roots, 3) == set()


@given(st.data())
def test_parts_of_any_graph_are_graphs(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    results = [value for node in graph.nodes for value in node.outputs]
    if not results:
        return
    outputs = [data.draw(st.sampled_from(results))]
    part, taken = extract(graph, outputs, cone_boundary(outputs, data.draw(st.integers(1, 5))))
    assert names(part.inputs) == names(taken)
    assert [value.type for value in part.inputs] == [value.type for value in taken]
    assert part.outputs[0].type == outputs[0].type
    assert len(part) <= len(graph)
