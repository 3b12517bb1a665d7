import pytest
from capgraph.executors.ort import session as module
from capgraph.executors.ort.session import Support, is_free
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

from tests.counted_work import lines_in


def problems(text: str) -> list[str]:
    graph = parse(text)
    support = Support(graph, {})
    return [support.problem(node) for node in graph.nodes if not is_free(node)]


def chain(length: int) -> Graph:
    lines = [f"  %v{i + 1}: f32[B, 4] = relu(%v{i})" for i in range(length)]
    return parse("\n".join(("graph @main(%v0: f32[B, 4]) {", *lines, f"  return %v{length}", "}")))


def test_what_runs_has_no_problem() -> None:
    assert problems(
        """graph @main(%x: f32[B, 4], %m: bool[N]) {
  %w: f32[4, 2] = constant() {value = dense<f32[4, 2]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>}
  %y: f32[B, 2] = matmul(%x, %w)
  %z: i64[1, u0] = non_zero(%m)
  %r: f32[B, 4] = expand(%x) {shape = [B, 4]}
  return %y, %z
}"""
    ) == ["", "", ""]


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ("%y: bool[2] = bernoulli(%x) {dtype = bool}", ""),
        ("%y: f64[2] = gelu(%d)", "f32"),
        ("%y: bf16[2] = cast(%x) {to = bf16}", "%y is bf16"),
        ("%y: i64[1] = argmin(%u) {axis = 0}", "ArgMin"),
        ("%y: f32[2] = com.example.mystery(%x)", "com.example"),
    ],
)
def test_what_does_not_run_says_why(node: str, problem: str) -> None:
    (found,) = problems(f"graph @main(%x: f32[2], %d: f64[2], %u: u32[2]) {{\n  {node}\n  return %y\n}}")
    assert problem in found
    if problem:
        assert found


def test_a_node_that_was_refused_keeps_its_reason() -> None:
    graph = chain(2)
    first, second = graph.nodes
    support = Support(graph, {first: "it failed"})
    assert support.problem(first) == "it failed"
    assert support.problem(second) == ""


def test_each_kind_of_node_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(module, "Session", lambda graph, **_: asked.append(graph))
    work = []
    for count in (50, 500):
        graph = chain(count)
        support = Support(graph, {})
        work.append(lines_in(lambda s=support, g=graph: [s.problem(node) for node in g.nodes]) / count)
        assert {support.problem(node) for node in graph.nodes} == {""}
    assert [len(each) for each in asked] == [1, 1]
    assert work[1] <= work[0]


def test_large_constants_are_not_part_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Graph] = []
    monkeypatch.setattr(module, "Session", lambda graph, **_: asked.append(graph))
    monkeypatch.setattr(module, "_SMALL_BYTES", 8)
    problems(
        """graph @main(%x: f32[2]) {
  %a: f32[2] = constant() {value = dense<f32[2]: [1.0, 2.0]>}
  %b: f32[3, 2] = constant() {value = dense<f32[3, 2]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>}
  %y: f32[2] = add(%x, %a)
  %z: f32[3, 2] = add(%y, %b)
  return %z
}"""
    )
    assert [len(graph.inputs) for graph in asked] == [1, 2]
    assert [len(graph) for graph in asked] == [2, 1]


def test_sizes_that_a_node_only_mentions_come_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Graph] = []
    monkeypatch.setattr(module, "Session", lambda graph, **_: asked.append(graph))
    problems(
        "graph @main(%x: f32[B], %y: f32[1]) { %z: f32[B] = expand(%y) {shape = [B]} return %z }",
    )
    assert [value.name for value in asked[0].inputs] == ["y", "x"]
