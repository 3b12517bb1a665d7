"""Common subexpressions: what is the same, and what only looks the same."""

import numpy as np
import pytest
from capgraph.ir.constant import Constant
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.passes.cleanup.redundancy import Cse
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass


def test_chains_that_compute_the_same_become_one() -> None:
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[B]) {
          %a = exp(%x)
          %b = exp(%x)
          %c = neg(%a)
          %d = neg(%b)
          %e = add(%c, %d)
          return %e
        }""",
        """
        graph @main(%x: f32[B]) {
          %a = exp(%x)
          %c = neg(%a)
          %e = add(%c, %c)
          return %e
        }""",
    )


def test_operands_of_commutative_ops_stand_in_any_order() -> None:
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[4], %y: f32[4]) {
          %a = add(%x, %y)
          %b = add(%y, %x)
          %c = sub(%x, %y)
          %d = sub(%y, %x)
          return %a, %b, %c, %d
        }""",
        """
        graph @main(%x: f32[4], %y: f32[4]) {
          %a = add(%x, %y)
          %c = sub(%x, %y)
          %d = sub(%y, %x)
          return %a, %a as b, %c, %d
        }""",
    )


def test_an_absent_operand_has_its_place() -> None:
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[4], %c: f32[]) {
          %low = clip(%x, %c, _)
          %high = clip(%x, _, %c)
          %again = clip(%x, _, %c)
          return %low, %high, %again
        }""",
        """
        graph @main(%x: f32[4], %c: f32[]) {
          %low = clip(%x, %c, _)
          %high = clip(%x, _, %c)
          return %low, %high, %high as again
        }""",
    )


def test_attributes_tell_nodes_apart() -> None:
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[4, 4]) {
          %a = softmax(%x) {axis = 0}
          %b = softmax(%x) {axis = 1}
          %c = leaky_relu(%x) {alpha = 0.1}
          %d = leaky_relu(%x) {alpha = 0.2}
          return %a, %b, %c, %d
        }""",
        None,
    )


def test_all_results_of_a_node_go_together() -> None:
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[4]) {
          %v, %i = top_k(%x) {k = 2, axis = 0}
          %w, %j = top_k(%x) {k = 2, axis = 0}
          return %v, %j
        }""",
        """
        graph @main(%x: f32[4]) {
          %v, %i = top_k(%x) {k = 2, axis = 0}
          return %v, %i as j
        }""",
    )


def test_constants_are_compared_by_dtype_shape_and_bits() -> None:
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[2]) {
          %a = constant() {value = dense<f32[2]: [1.0, 0.0]>}
          %b = constant() {value = dense<f32[2]: [1.0, 0.0]>}
          %c = constant() {value = dense<f32[2]: [1.0, -0.0]>}
          %d = constant() {value = dense<f32[1, 2]: [1.0, 0.0]>}
          %e = constant() {value = dense<f64[2]: [1.0, 0.0]>}
          return %a, %b, %c, %d, %e
        }""",
        """
        graph @main(%x: f32[2]) {
          %a = constant() {value = dense<f32[2]: [1.0, 0.0]>}
          %c = constant() {value = dense<f32[2]: [1.0, -0.0]>}
          %d = constant() {value = dense<f32[1, 2]: [1.0, 0.0]>}
          %e = constant() {value = dense<f64[2]: [1.0, 0.0]>}
          return %a, %a as b, %c, %d, %e
        }""",
    )


@pytest.mark.parametrize(("limit", "left"), [(0, 2), (1024, 1)])
def test_large_constants_are_not_read(limit: int, left: int) -> None:
    graph = parse(
        """graph @main() {
          %a = constant() {value = dense<f32[3]: [1.0, 2.0, 3.0]>}
          %b = constant() {value = dense<f32[3]: [1.0, 2.0, 3.0]>}
          return %a, %b
        }"""
    )
    Pipeline(((Cse(max_constant_bytes=limit),),)).run(graph)
    assert len(graph) == left, print_graph(graph)


def test_random_nodes_stay_apart() -> None:
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[4]) {
          %a = bernoulli(%x) {dtype = f32}
          %b = bernoulli(%x) {dtype = f32}
          return %a, %b
        }""",
        None,
        numeric=False,
    )


def test_nodes_with_regions_stay_apart_and_regions_are_looked_into() -> None:
    region = "graph @{name}(%a: f32[4]) {{\n %b = exp(%a)\n %c = exp(%a)\n %d = add(%b, %c)\n return %d\n}}\n\n"
    text = (
        "graph @main(%c: bool[], %x: f32[4]) {\n"
        " %y = if(%c, %x) {then_body = @one, else_body = @two}\n"
        " %z = if(%c, %x) {then_body = @three, else_body = @four}\n return %y, %z\n}\n\n"
    )
    graph = parse(text + "".join(region.format(name=name) for name in ("one", "two", "three", "four")))
    report = Pipeline(((Cse(),),)).run(graph)
    assert report.rewrites == 4
    assert len(graph) == 2


def test_sizes_that_only_running_tells_stay_what_they_are() -> None:
    """Both have the same elements, but other things are typed by the name of the second one's size."""
    check_pass(
        Cse(),
        """
        graph @main(%x: f32[B], %c: bool[B]) {
          %a = compress(%x, %c) {axis = 0}
          %b = compress(%x, %c) {axis = 0}
          %d = neg(%b)
          return %a, %d
        }""",
        None,
    )


def test_nan_is_a_number_like_another_here() -> None:
    graph = parse(
        "graph @main(%x: f32[2]) {\n %a = constant() {value = dense<f32[1]: [nan]>}\n"
        " %b = constant() {value = dense<f32[1]: [nan]>}\n return %a, %b\n}"
    )
    Pipeline(((Cse(),),)).run(graph)
    assert len(graph) == 1
    assert np.isnan(graph.outputs[0].producer.attrs["value"].array).all()  # type: ignore[union-attr]


@pytest.mark.parametrize(("is_read", "left"), [(False, 2), (True, 1)])
def test_large_constants_are_compared_where_both_have_been_read_for_it(is_read: bool, left: int) -> None:
    graph, contents = Graph(), [Constant(np.ones(4)) for _ in range(2)]
    graph.set_outputs([graph.append(native("constant"), [], {"value": each}).output for each in contents])
    for content in contents if is_read else ():
        content.with_digest()
    Pipeline(((Cse(max_constant_bytes=8),),)).run(graph)
    assert len(graph) == left
