"""Reductions beside elementwise work keep their axes, which go behind that work."""

from capgraph.ir.text.parser import parse
from capgraph.passes.cleanup.keep_reduced_axes import KeepReducedAxes
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from tests.passes.checking import check_pass

DEVIATION = """
    graph @main(%x: f32[4, 6]) {
      %m: f32[4, 1] = reduce_mean(%x) {axes = [1]}
      %c: f32[4, 6] = sub(%x, %m)
      %q: f32[4, 6] = mul(%c, %c)
      %s: f32[4] = reduce_sum(%q) {axes = [1], keep_dims = false}
      %n: f32[] = constant() {value = dense<f32[]: 5.0>}
      %v: f32[4] = div(%s, %n)
      %y: f32[4] = sqrt(%v)
      return %y
    }
"""


def test_what_works_on_rows_keeps_their_axes() -> None:
    check_pass(
        KeepReducedAxes(),
        DEVIATION,
        """
        graph @main(%x: f32[4, 6]) {
          %m: f32[4, 1] = reduce_mean(%x) {axes = [1]}
          %c: f32[4, 6] = sub(%x, %m)
          %q: f32[4, 6] = mul(%c, %c)
          %0: f32[4, 1] = reduce_sum(%q) {axes = [1]}
          %n: f32[] = constant() {value = dense<f32[]: 5.0>}
          %1: f32[4, 1] = div(%0, %n)
          %2: f32[4, 1] = sqrt(%1)
          %3: f32[4] = squeeze(%2) {axes = [1]}
          return %3 as y
        }
        """,
    )


def test_a_deviation_is_one_region() -> None:
    graph = parse(DEVIATION)
    Pipeline(((KeepReducedAxes(),), (Fuse(),))).run(graph, check="numeric")
    assert [node.op.name for node in graph.nodes] == ["fused", "squeeze"]


def test_two_reductions_that_are_joined_and_a_row_of_another_shape() -> None:
    check_pass(
        KeepReducedAxes(),
        """
        graph @main(%x: f32[3, 4], %b: f32[4]) {
          %s: f32[4] = reduce_sum(%x) {axes = [0], keep_dims = false}
          %m: f32[4] = reduce_max(%x) {axes = [-2], keep_dims = false}
          %d: f32[4] = sub(%s, %m)
          %y: f32[4] = add(%d, %b)
          return %y
        }
        """,
        """
        graph @main(%x: f32[3, 4], %b: f32[4]) {
          %0: f32[1, 4] = reduce_sum(%x) {axes = [0]}
          %1: f32[1, 4] = reduce_max(%x) {axes = [-2]}
          %2: f32[1, 4] = sub(%0, %1)
          %d: f32[4] = squeeze(%2) {axes = [0]}
          %y: f32[4] = add(%d, %b)
          return %y
        }
        """,
    )


def test_a_mean_whose_kept_axis_is_dropped_elsewhere_goes_on_with_it() -> None:
    check_pass(
        KeepReducedAxes(),
        """
        graph @main(%x: f32[3, 4]) {
          %m: f32[3, 1] = reduce_mean(%x) {axes = [1]}
          %r: f32[3] = reshape(%m) {shape = [3]}
          %y: f16[3] = cast(%r) {to = f16}
          return %m, %y
        }
        """,
        """
        graph @main(%x: f32[3, 4]) {
          %m: f32[3, 1] = reduce_mean(%x) {axes = [1]}
          %0: f16[3, 1] = cast(%m) {to = f16}
          %y: f16[3] = squeeze(%0) {axes = [1]}
          return %m, %y
        }
        """,
    )


def test_a_reduction_alone_stays_as_it_is() -> None:
    graph = parse(
        """
        graph @main(%x: f32[3, 4]) {
          %y: f32[3] = reduce_sum(%x) {axes = [1], keep_dims = false}
          return %y
        }
        """
    )
    assert not Pipeline(((KeepReducedAxes(),),)).run(graph).changed
