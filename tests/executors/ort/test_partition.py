import pytest
from capgraph.executors.ort import segments as module
from capgraph.executors.ort.segments import OrtPartition, whole
from capgraph.executors.ort.session import RunFailure
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

PLAIN = "graph @main(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = abs(%a) %c: f32[2] = relu(%b) return %c as out }"
UNKNOWN = "graph @main(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = com.example.mystery(%a) return %b }"


def failure(node_name: str) -> RunFailure:
    made = RunFailure("it failed")
    made.node_name = node_name
    return made


def eager(partition: OrtPartition) -> list[str]:
    return [node.outputs[0].name for segment in partition.segments if segment.session is None for node in segment.nodes]


def made(text: str = PLAIN) -> tuple[Graph, OrtPartition]:
    graph = parse(text)
    return graph, OrtPartition(graph, threads=1, strict=False)


def test_a_plain_graph_is_one_segment() -> None:
    graph, partition = made()
    (segment,) = partition.segments
    assert segment.graph is graph
    assert partition.why == ""


def test_what_is_refused_is_cut_out() -> None:
    _, partition = made(UNKNOWN)
    assert eager(partition) == ["b"]
    assert "com.example" in partition.why


def test_known_faults_are_cut_out() -> None:
    _, partition = made("graph @main(%x: f64[2]) { %a: f64[2] = neg(%x) %b: f64[2] = gelu(%a) return %b }")
    assert eager(partition) == ["b"]


@pytest.mark.parametrize(
    ("name", "guilty"),
    [("a", ["a"]), ("b_size", ["b"]), ("out", ["c"]), ("elsewhere", ["a", "b", "c"]), ("", ["a", "b", "c"])],
)
def test_the_node_that_failed_is_cut_out(name: str, guilty: list[str]) -> None:
    _, partition = made()
    partition.refuse(partition.segments[0], failure(name))
    assert eager(partition) == guilty
    assert partition.why == "it failed"


def test_nodes_are_found_by_the_names_of_their_origins() -> None:
    _, partition = made('graph @main(%x: f32[2]) { %a: f32[2] = neg(%x) loc("layer/Neg") return %a }')
    partition.refuse(partition.segments[0], failure("layer/Neg"))
    assert eager(partition) == ["a"]


def test_a_failure_that_is_known_changes_nothing() -> None:
    _, partition = made()
    segment = partition.segments[0]
    partition.refuse(segment, failure("b"))
    segments = partition.segments
    partition.refuse(segment, failure("b"))
    assert partition.segments is segments


def test_failures_add_up() -> None:
    _, partition = made()
    partition.refuse(partition.segments[0], failure("a"))
    partition.refuse(partition.segments[1], failure("c"))
    assert eager(partition) == ["a", "c"]


@pytest.mark.parametrize("text", [UNKNOWN, "graph @main(%x: f64[2]) { %b: f64[2] = gelu(%x) return %b }"])
def test_strict_refuses_what_does_not_run_as_a_whole(text: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot run the whole graph") as caught:
        OrtPartition(parse(text), threads=None, strict=True)
    assert caught.value.remedy == "leave strict out"


def test_the_threads_reach_every_session(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | None] = []

    def noted(graph: Graph, *, threads: int | None) -> object:
        seen.append(threads)
        return whole(graph, threads=threads)

    monkeypatch.setattr(module, "whole", noted)
    OrtPartition(parse(PLAIN), threads=3, strict=False)
    assert seen == [3]
