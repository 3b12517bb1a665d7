"""Which way a convolution is summed: in its own width, or in twice the width where a softmax follows."""

import numpy as np
import pytest
from capgraph.executors.host.kernels_linear import conv_scratch
from capgraph.executors.steps import Steps, feeds_softmax, host_meaning
from capgraph.ir.graph import Graph, Node
from capgraph.ir.ops.nn.conv import conv, conv_in_own_width
from capgraph.ir.text.parser import parse

from tests.executors.host.running import host_plan, run_plan

HEAD = """
  %c = conv(%x, %w, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1}
  %r = relu(%c)
"""
POOLED = HEAD + "  %m = reduce_mean(%r) {axes = [2, 3], keep_dims = false}\n"


def graph_of(body: str) -> Graph:
    return parse(f"graph @main(%x: f32[1, 64, 7, 7], %w: f32[40, 64, 1, 1], %v: f32[40, 40]) {{{body}}}")


def convolution(graph: Graph) -> Node:
    return next(node for node in graph.nodes if node.op.name == "conv")


@pytest.mark.parametrize(
    ("body", "is_wide"),
    [
        (POOLED + "  %y = softmax(%m) {axis = 1}\n  return %y", True),
        (POOLED + "  %y = log_softmax(%m) {axis = 1}\n  return %y, %c", True),
        (POOLED + "  return %m", False),
        (POOLED + "  %p = matmul(%m, %v)\n  %y = softmax(%p) {axis = 1}\n  return %y", False),
        (POOLED + "".join(f"  %n{i} = neg(%m)\n" for i in range(40)) + "  return " + "%n0", False),
    ],
    ids=["softmax", "log_softmax", "nothing", "a matmul in between", "many readers"],
)
def test_scores_of_a_softmax_are_summed_in_twice_the_width(body: str, is_wide: bool) -> None:
    node = convolution(graph_of(body))
    assert feeds_softmax(node) is is_wide
    assert host_meaning(node) is (conv if is_wide else conv_in_own_width)


def test_other_ops_run_by_their_meaning() -> None:
    (node,) = graph_of("%y = softmax(%v) {axis = 0}\n return %y").nodes
    assert host_meaning(node) is node.op.meaning


def test_a_long_way_is_not_followed_to_its_end() -> None:
    body = HEAD + "  %n0 = neg(%r)\n" + "".join(f"  %n{i + 1} = neg(%n{i})\n" for i in range(30))
    assert not feeds_softmax(convolution(graph_of(body + "  %y = softmax(%n30) {axis = 1}\n  return %y")))


def test_equal_filters_give_equal_scores() -> None:
    """Sums of the size of 1e9, of which BLAS may round some rows in another order than others."""
    graph = graph_of(HEAD + "  %y = softmax(%r) {axis = 1}\n  return %y")
    random = np.random.default_rng(0)
    x = (random.random((1, 64, 7, 7)) * 1e9).astype(np.float32)
    given = [x, np.full((40, 64, 1, 1), 0.3, np.float32), np.zeros((40, 40), np.float32)]
    (eager,) = Steps(graph).run(given, {})
    (planned,) = run_plan(host_plan(graph), given)
    assert (eager == np.float32(1 / 40)).all()
    assert (planned == eager).all()


@pytest.mark.parametrize(("last", "planned"), [("softmax", False), ("log", True)])
def test_what_runs_by_its_meaning_wants_no_planned_memory(last: str, planned: bool) -> None:
    body = HEAD.replace("pads = [0, 0, 0, 0]", "pads = [1, 1, 1, 1]").replace("%w", "%k")
    attrs = " {axis = 1}" if last == "softmax" else ""
    graph = parse(
        f"graph @main(%x: f32[1, 64, 7, 7], %k: f32[40, 64, 3, 3]) {{{body}  %y = {last}(%r){attrs}\n  return %y}}"
    )
    assert (conv_scratch(convolution(graph)) > 0) is planned
