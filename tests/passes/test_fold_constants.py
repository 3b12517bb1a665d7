"""Constant folding: values in their own dtype, sizes as dims, nothing that grows, nothing that is random."""

from textwrap import dedent

import numpy as np
import pytest
from capgraph.ir.text.parser import parse
from capgraph.passes.cleanup.redundancy import FoldConstants
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass


def test_what_depends_on_constants_alone_is_computed() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main(%x: f32[2]) {
          %a = constant() {value = dense<f32[2]: [1.0, 2.0]>}
          %b = constant() {value = dense<f32[]: 3.0>}
          %c = mul(%a, %b)
          %d = neg(%c)
          %e = add(%x, %d)
          return %e
        }""",
        """
        graph @main(%x: f32[2]) {
          %d = constant() {value = dense<f32[2]: [-3.0, -6.0]>}
          %e = add(%x, %d)
          return %e
        }""",
    )


def test_what_has_no_elements_is_known() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main(%x: f32[2, 0], %y: f32[0, 1], %z: f32[0, 3]) {
          %a = matmul(%x, %y)
          %b = neg(%z)
          return %a, %b
        }""",
        """
        graph @main(%x: f32[2, 0], %y: f32[0, 1], %z: f32[0, 3]) {
          %a = constant() {value = dense<f32[2, 1]: [0.0, 0.0]>}
          %b = neg(%z)
          return %a, %b
        }""",
    )


@pytest.mark.parametrize(
    ("dtype", "a", "b", "sum_"),
    [
        ("u8", "200", "100", "44"),  # wraps
        ("i8", "100", "100", "-56"),
        ("f16", "2048.0", "1.0", "2048.0"),  # rounds
        ("bf16", "256.0", "1.0", "256.0"),
        ("f64", "1e16", "1.0", "1e16"),
        ("f32", "inf", "-inf", "0xffc00000"),  # the NaN that the sum gives
        ("i64", "9007199254740993", "0", "9007199254740993"),
    ],
)
def test_folding_keeps_dtype_and_bits(dtype: str, a: str, b: str, sum_: str) -> None:
    check_pass(
        FoldConstants(),
        f"""
        graph @main() {{
          %a = constant() {{value = dense<{dtype}[1]: [{a}]>}}
          %b = constant() {{value = dense<{dtype}[]: {b}>}}
          %c = add(%a, %b)
          return %c
        }}""",
        f"""
        graph @main() {{
          %c = constant() {{value = dense<{dtype}[1]: [{sum_}]>}}
          return %c
        }}""",
    )


GROWING = """
    graph @main() {
      %a = constant() {value = dense<f32[]: 1.0>}
      %b = expand(%a) {shape = [8, 8]}
      %c = neg(%b)
      return %c
    }
"""


@pytest.mark.parametrize(("limit", "left"), [(255, ["constant", "expand", "neg"]), (256, ["constant"])])
def test_results_that_outgrow_their_operands_are_bounded(limit: int, left: list[str]) -> None:
    graph = parse(dedent(GROWING))
    Pipeline(((FoldConstants(limit=limit),),)).run(graph, check="numeric")
    assert [node.op.name for node in graph.nodes] == left


def test_results_as_large_as_their_operands_are_always_computed() -> None:
    graph = parse(
        "graph @main() {\n %a = constant() {value = dense<f32[4]: [1.0, 2.0, 3.0, 4.0]>}\n"
        " %b = reshape(%a) {shape = [2, 2]}\n return %b\n}"
    )
    Pipeline(((FoldConstants(limit=0),),)).run(graph)
    assert len(graph) == 1


def test_all_results_of_a_node() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main() {
          %a = constant() {value = dense<f32[3]: [3.0, 1.0, 2.0]>}
          %v, %i = top_k(%a) {k = 2, axis = 0}
          return %v, %i
        }""",
        """
        graph @main() {
          %v = constant() {value = dense<f32[2]: [3.0, 2.0]>}
          %i = constant() {value = dense<i64[2]: [0, 2]>}
          return %v, %i
        }""",
    )


def test_an_absent_operand_is_no_operand_that_is_unknown() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main() {
          %a = constant() {value = dense<f32[2]: [-1.0, 9.0]>}
          %h = constant() {value = dense<f32[]: 4.0>}
          %b = clip(%a, _, %h)
          return %b
        }""",
        "graph @main() {\n %b = constant() {value = dense<f32[2]: [-1.0, 4.0]>}\n return %b\n}",
    )


def test_random_nodes_and_control_flow_are_not_folded() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main() {
          %p = constant() {value = dense<f32[2]: [0.5, 0.5]>}
          %c = constant() {value = dense<bool[]: true>}
          %n = bernoulli(%p) {dtype = f32}
          %y = if(%c, %p) {then_body = @then, else_body = @else}
          return %n, %y
        }

        graph @then(%a: f32[2]) {
          %n = bernoulli(%a) {dtype = f32}
          return %n
        }

        graph @else(%a: f32[2]) {
          return %a
        }
        """,
        None,
        numeric=False,
    )


def test_a_node_that_fails_is_left_to_fail_when_it_runs() -> None:
    graph = parse(
        "graph @main() {\n %a = constant() {value = dense<f32[2]: [1.0, 2.0]>}\n"
        " %i = constant() {value = dense<i64[]: 7>}\n %b = gather(%a, %i) {axis = 0}\n return %b\n}"
    )
    assert not Pipeline(((FoldConstants(),),)).run(graph).changed


def test_what_nobody_reads_is_not_computed() -> None:
    graph = parse("graph @main(%x: f32[2]) {\n %a = full() {shape = [2], value = dense<f32[]: 1.0>}\n return %x\n}")
    assert not Pipeline(((FoldConstants(),),)).run(graph).changed


# ---- sizes


def test_shape_arithmetic_becomes_dims() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main(%x: f32[B, T, 64]) {
          %s = shape(%x) {start = 0, end = 2}
          %two = constant() {value = dense<i64[]: 2>}
          %m = mul(%s, %two)
          return %m
        }""",
        """
        graph @main(%x: f32[B, T, 64]) {
          %m = dims() {values = [2*B, 2*T]}
          return %m
        }""",
    )


def test_one_size_becomes_a_dim_and_known_sizes_a_constant() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main(%x: f32[B, 64]) {
          %n = size(%x)
          %s = shape(%x) {start = 1, end = 2}
          return %n, %s
        }""",
        """
        graph @main(%x: f32[B, 64]) {
          %n = dim() {value = 64*B}
          %s = constant() {value = dense<i64[1]: [64]>}
          return %n, %s
        }""",
    )


def test_sizes_that_only_running_tells_are_not_written_down() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main(%x: f32[B], %c: bool[B]) {
          %a = compress(%x, %c) {axis = 0}
          %s = shape(%a) {start = 0, end = 1}
          return %s
        }""",
        None,
    )


def test_what_is_empty_and_too_large_for_numpy_stays() -> None:
    graph = parse(
        "graph @main(%x: f32[0, 4294967296, 4294967296]) {\n"
        " %y = reduce_sum(%x) {axes = [0, 1, 2], keep_dims = false}\n return %y\n}"
    )
    Pipeline(((FoldConstants(),),)).run(graph)
    assert [node.op.name for node in graph.nodes] == ["reduce_sum"]


def test_infinities_raise_no_warning() -> None:
    graph = parse(
        "graph @main() {\n %a = constant() {value = dense<f32[1]: [0.0]>}\n"
        " %b = log(%a)\n %c = div(%b, %a)\n return %c\n}"
    )
    Pipeline(((FoldConstants(),),)).run(graph)
    (node,) = graph.nodes
    assert np.isneginf(node.attrs["value"].array).all()
