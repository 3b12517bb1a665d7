from itertools import pairwise

from capgraph.executors.progress import step_name
from capgraph.ir.graph import Node
from capgraph.ir.text.parser import parse


def first(line: str, body: str = "") -> Node:
    graph = parse(f"graph @main(%x: f32[2]) {{ %y: f32[2] = {line} return %y }}\n{body}")
    return next(iter(graph.nodes))


def body(nodes: str) -> str:
    return f"graph @body(%a: f32[2]) {{ {nodes} }}"


def test_a_step_is_its_op_and_origin() -> None:
    assert step_name(first("relu(%x)")) == "relu"
    assert step_name(first('relu(%x) loc("act", "net.py:7")')) == "relu (act (net.py:7))"


def test_of_joined_nodes_those_that_work_are_named() -> None:
    text = (
        "%c: f32[2] = constant() {value = dense<f32[2]: [1.0, 2.0]>} "
        '%b: f32[2] = add(%a, %c) loc("sum") %d: f32[2] = exp(%b) return %d'
    )
    assert step_name(first("fused(%x) {body = @body}", body(text))) == "add (sum), exp"


def test_of_many_nodes_the_first_are_named() -> None:
    names = ["%a", *(f"%b{index}" for index in range(11))]
    lines = [f"{new}: f32[2] = neg({old})" for old, new in pairwise(names)]
    text = f"{' '.join(lines)} return {names[-1]}"
    assert step_name(first("fused(%x) {body = @body}", body(text))) == f"{', '.join(['neg'] * 8)} and 3 more"
