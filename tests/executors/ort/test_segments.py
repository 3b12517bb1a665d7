from typing import Any

import numpy as np
import pytest
from capgraph.executors.ort import segments as module
from capgraph.executors.ort.segments import GraphSegment, cut, whole
from capgraph.executors.ort.session import SPINNING, Session
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.evaluate import bind_inputs
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

F32 = np.float32


def run(graph: Graph, segments: tuple[GraphSegment, ...], *inputs: Any) -> list[Any]:
    sizes: dict[str, int] = {}
    bind_inputs(graph, inputs, sizes)
    known = dict(zip(graph.inputs, inputs, strict=True))
    for segment in segments:
        known.update(zip(segment.outputs, segment.run([known[v] for v in segment.inputs], sizes), strict=True))
    return [known[value] for value in graph.outputs]


def kinds(segments: tuple[GraphSegment, ...]) -> str:
    """One letter a segment: s(ession) or e(ager)."""
    return "".join("s" if segment.session is not None else "e" for segment in segments)


def refused(graph: Graph, *names: str) -> tuple[GraphSegment, ...]:
    """The segments when the nodes that give these values are kept out."""
    return cut(graph, {node: "for the test" for node in graph.nodes if node.outputs[0].name in names})


def test_nodes_that_are_kept_out_run_between_sessions() -> None:
    graph = parse(
        """graph @main(%x: f32[2]) {
  %w: f32[2] = constant() {value = dense<f32[2]: [1.0, 2.0]>}
  %a: f32[2] = add(%x, %w)
  %b: f32[2] = neg(%a)
  %c: f32[2] = mul(%b, %w)
  return %c
}"""
    )
    segments = refused(graph, "b")
    assert kinds(segments) == "ses"
    assert [[value.name for value in segment.inputs] for segment in segments] == [["x"], ["a"], ["b"]]
    assert [[value.name for value in segment.outputs] for segment in segments] == [["a"], ["b"], ["c"]]
    assert segments[1].reasons == ("%b = neg(%a): for the test",)
    assert run(graph, segments, np.array([1, 1], F32))[0].tolist() == [-2, -6]


def test_the_order_has_as_few_segments_as_it_can() -> None:
    graph = parse(
        """graph @main(%x: f32[2], %y: f32[2]) {
  %a: f32[2] = neg(%x)
  %b: f32[2] = relu(%a)
  %c: f32[2] = neg(%y)
  %d: f32[2] = relu(%c)
  return %b, %d
}"""
    )
    segments = refused(graph, "a", "c")
    assert kinds(segments) == "es"
    assert [result.tolist() for result in run(graph, segments, np.ones(2, F32), -np.ones(2, F32))] == [[0, 0], [1, 1]]


@pytest.mark.parametrize(("kept_out", "expected"), [("b", ["0", None, "0"]), ("c", ["", None])])
def test_threads_of_sessions_that_take_turns_do_not_spin(kept_out: str, expected: list[str | None]) -> None:
    graph = parse(
        """graph @main(%x: f32[2]) {
  %a: f32[2] = relu(%x)
  %b: f32[2] = neg(%a)
  %c: f32[2] = relu(%b)
  return %c
}"""
    )
    sessions = [segment.session for segment in refused(graph, kept_out)]
    assert [None if each is None else spinning(each) for each in sessions] == expected


def spinning(session: Session) -> str:
    """What ONNX Runtime was told of it, empty where nothing."""
    options = session._session.get_session_options()
    try:
        return str(options.get_session_config_entry(SPINNING))
    except RuntimeError:  # as ONNX Runtime says that it has no such entry
        return ""


def test_a_size_that_no_operand_has_comes_from_an_input() -> None:
    graph = parse(
        """graph @main(%x: f32[B], %y: f32[1]) {
  %a: f32[1] = neg(%y)
  %b: f32[1] = abs(%a)
  %c: f32[B] = expand(%b) {shape = [B]}
  %n: i64[1] = dims() {values = [B]}
  return %c, %n
}"""
    )
    for names in (("a",), ("b",), ("c",), ("a", "c")):
        segments = refused(graph, *names)
        assert len(segments) > 1
        results = run(graph, segments, np.ones(3, F32), np.array([2], F32))
        assert [result.tolist() for result in results] == [[2, 2, 2], [3]]


@pytest.mark.parametrize("kept_out", ["at", "twice", "shown"])
def test_a_size_that_only_running_tells_crosses_from_segment_to_segment(kept_out: str) -> None:
    graph = parse(
        """graph @main(%x: bool[N]) {
  %at: i64[1, u0] = non_zero(%x)
  %twice: i64[1, u0] = add(%at, %at)
  %column: i64[u0, 1] = transpose(%twice) {perm = [1, 0]}
  %shown: i64[u0, 2] = expand(%column) {shape = [u0, 2]}
  return %twice, %shown
}"""
    )
    segments = refused(graph, kept_out)
    assert len(segments) > 1
    twice, shown = run(graph, segments, np.array([True, False, True]))
    assert twice.tolist() == [[0, 4]]
    assert shown.tolist() == [[0, 0], [4, 4]]


@pytest.mark.parametrize("kept_out", ["padded", "last"])
def test_a_size_that_cannot_be_told_from_another_crosses_with_what_tells_it(kept_out: str) -> None:
    graph = parse(
        """graph @main(%x: f32[N], %m: bool[N]) {
  %s: f32[u0] = compress(%x, %m) {axis = 0}
  %padded: f32[max(1, u0)] = pad(%s, _) {pads = [0, max(1, u0) - u0]}
  %last: f32[1] = slice(%padded) {axes = [0], starts = [max(1, u0) - 1], ends = [max(1, u0)], steps = [1]}
  return %last
}"""
    )
    segments = refused(graph, kept_out)
    assert len(segments) > 1
    (last,) = run(graph, segments, np.array([1, 2, 3], F32), np.array([True, True, False]))
    assert last.tolist() == [2]


def test_constants_are_returned_and_shared() -> None:
    graph = parse(
        """graph @main(%x: f32[2]) {
  %w: bf16[2] = constant() {value = dense<bf16[2]: [1.0, 2.0]>}
  %f: f32[2] = cast(%w) {to = f32}
  %a: f32[2] = add(%x, %f)
  return %a, %w, %f
}"""
    )
    a, w, f = run(graph, cut(graph, {}), np.ones(2, F32))
    assert a.tolist() == [2, 3]
    assert w.astype(F32).tolist() == f.tolist() == [1, 2]


def test_inputs_that_are_outputs_need_no_segment() -> None:
    graph = parse("graph @main(%x: f32[2]) { return %x, %x }")
    assert cut(graph, {}) == ()
    assert run(graph, (), np.ones(2, F32))[1].tolist() == [1, 1]


def test_nodes_that_nobody_reads_are_in_no_segment() -> None:
    graph = parse("graph @main(%x: u32[2]) { %a: i64[1] = argmin(%x) {axis = 0} %b: u32[2] = add(%x, %x) return %b }")
    (segment,) = cut(graph, {})
    assert [node.op.name for node in segment.nodes] == ["add"]


def test_sessions_that_cannot_be_made_of_nodes_that_can_become_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Graph, **_options: Any) -> None:
        raise UnsupportedError(f"{len(graph)} nodes are too many")

    monkeypatch.setattr(module, "Session", refuse)
    graph = parse("graph @main(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = abs(%a) return %b }")
    (segment,) = cut(graph, {})
    assert segment.session is None
    assert segment.reasons == ("%a = neg(%x): 2 nodes are too many", "%b = abs(%a): 2 nodes are too many")
    assert run(graph, (segment,), np.ones(2, F32))[0].tolist() == [1, 1]


def test_the_whole_graph_is_one_segment() -> None:
    graph = parse("graph @main(%x: f32[2]) { %a: f32[2] = neg(%x) return %a }")
    segment = whole(graph, threads=1)
    assert segment.graph is graph
    assert run(graph, (segment,), np.ones(2, F32))[0].tolist() == [-1, -1]


def test_states_are_written_after_they_are_read() -> None:
    graph = parse(
        """graph @main(%x: f32[2], %s: f32[2]) {
  %new: f32[2] = add(%s, %x)
  %a: f32[2] = neg(%s)
  %b: f32[2] = abs(%a)
  return %new -> %s, %b
}"""
    )
    new, b = run(graph, refused(graph, "a"), np.ones(2, F32), np.full(2, 3, F32))
    assert new.tolist() == [4, 4]
    assert b.tolist() == [3, 3]
