"""Inputs whose values shape a graph: a program for values that come again, the general one for all others."""

from typing import Any

import capgraph
import numpy as np
import onnx
import pytest
from capgraph.executors.replay.by_value import KEPT, shaping_inputs
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS
from capgraph.ir.text.parser import parse

SUM = """
    graph @main(%x: f32[3, 4], %axes: i64[1]) {
      %y: f32[u0, u1] = dynamic_reduce(%x, %axes) {kind = "sum"}
      %z: f32[u0, u1] = exp(%y)
      return %z
    }"""


def program(text: str) -> capgraph.Program:
    return capgraph.optimize(parse(text), executor="graph", device="host")


def expected(text: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return capgraph.optimize(parse(text), executor="eager", level=0).run(inputs)


def summed(axis: int) -> dict[str, Any]:
    return {"x": np.arange(12, dtype=np.float32).reshape(3, 4) / 10, "axes": np.array([axis])}


def test_the_first_values_are_recorded_and_others_when_they_come_again() -> None:
    made = program(SUM)
    for axis in (0, 0, 1, 1, 1, 0):
        given = made.run(summed(axis))
        np.testing.assert_allclose(given["z"], expected(SUM, summed(axis))["z"], rtol=1e-6)
    counters = made.stats().counters
    assert (counters.calls, counters.replayed_calls) == (6, 3)  # not the first call of each, nor axis 1 when it was new
    assert "values: 2 sets of axes have a program of their own, in which they are constants" in made.explain()


def test_ops_that_read_values_on_the_host_say_which_shape_them() -> None:
    reading = [op for op in OPS.values() if op.name.startswith("dynamic_") and op.has(Trait.READS_HOST)]
    assert [op.name for op in reading if not any(each.is_shaping for each in op.operands)] == []


def test_an_axis_that_is_an_input_is_recorded() -> None:
    text = """
        graph @main(%x: f32[3, 4], %axis: i64[]) {
          %y: f32[3, 4] = dynamic_cumsum(%x, %axis)
          return %y
        }"""
    made = program(text)
    for _ in range(2):
        given = made.run({"x": np.ones((3, 4), np.float32), "axis": np.array(1)})["y"]
        np.testing.assert_array_equal(given, np.ones((3, 4)).cumsum(1))
    assert made.stats().counters.replayed_calls == 1


def test_sizes_that_the_values_do_not_go_with_are_not_run_by_their_program() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
        drawn (int64[2] sizes, float[s, 2] x) => (float[a, b] y) { z = ConstantOfShape(sizes)  y = Add(x, z) }"""
    made = capgraph.optimize(onnx.parser.parse_model(text), executor="graph", device="host", dynamic={"s": (1, 8)})
    for size in (4, 4, 1, 1, 4):
        given = made.run({"sizes": np.array([4, 2]), "x": np.ones((size, 2), np.float32)})["y"]
        np.testing.assert_array_equal(given, np.ones((4, 2), np.float32))


def test_values_that_change_with_each_call_cost_no_recordings() -> None:
    text = """
        graph @main(%x: f32[40], %k: i64[1]) {
          %v: f32[u0], %i: i64[u0] = dynamic_top_k(%x, %k)
          return %v
        }"""
    made = program(text)
    x = np.random.default_rng(0).standard_normal(40).astype(np.float32)
    for k in range(1, 30):
        np.testing.assert_array_equal(made.run({"x": x, "k": np.array([k])})["v"], np.sort(x)[::-1][:k])
    assert made.stats().counters.captures <= 1
    for _ in range(2):
        for k in range(1, KEPT + 5):
            made.run({"x": x, "k": np.array([k])})
    assert len(made.stats().buckets) == 1 + KEPT  # one is the general program's


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (SUM, ("axes",)),
        ("graph @main(%x: f32[10]) { %i: i64[1, u0] = non_zero(%x) return %i }", ()),  # data
        (
            "graph @main(%x: f32[4], %p: i64[2], %v: f32[]) { %y: f32[u0] = dynamic_pad(%x, %p, %v, _) return %y }",
            ("p",),
        ),
        (
            "graph @main(%x: f32[4, 500], %y: i64[500]) { %n: i64[1] = reduce_max(%y) {axes = [0], keep_dims = true} "
            "%r: f32[u0] = dynamic_reshape(%x, %n) return %r }",
            (),  # of many elements
        ),
    ],
)
def test_small_inputs_shape_a_graph_and_data_does_not(text: str, names: tuple[str, ...]) -> None:
    assert shaping_inputs(parse(text)) == names


def test_a_wrong_input_is_refused() -> None:
    made = program(SUM)
    with pytest.raises(capgraph.CapgraphError, match="axes"):
        made.run({"x": summed(0)["x"]})
    with pytest.raises(capgraph.CapgraphError, match="axes"):
        made.run({**summed(0), "axes": np.array([0], np.int32)})
    with pytest.raises(capgraph.CapgraphError):
        made.run(summed(7))
    np.testing.assert_allclose(made.run(summed(1))["z"], expected(SUM, summed(1))["z"], rtol=1e-6)


def test_scales_give_sizes() -> None:
    text = """
        graph @main(%x: f32[1, 1, 3, 4], %s: f32[2]) {
          %y: f32[1, 1, u0, u1] = dynamic_resize(%x, _, %s, _) {axes = [2, 3]}
          return %y
        }"""
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4), "s": np.array([1.7, 0.6], np.float32)}
    made = program(text)
    for _ in range(2):
        np.testing.assert_array_equal(made.run(inputs)["y"], expected(text, inputs)["y"])
    assert made.stats().counters.replayed_calls == 1


def test_sizes_that_reading_with_the_values_takes_for_others_run_without_them() -> None:
    text = """g (bool c, float[2, N, 4] x) => (float[?, ?] y) <float[2, 1, 4] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        z = If (c) <then_branch = t () => (float[?, ?, ?] p) { p = Abs (x) },
                    else_branch = e () => (float[?, ?, ?] q) { q = Neg (w) }>
        y = Squeeze (z) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    made = capgraph.optimize(model.SerializeToString(), executor="graph", device="host")
    for rows in (1, 3, 1, 3):
        x = np.ones((2, rows, 4), np.float32)
        np.testing.assert_array_equal(made.run({"c": np.array(True), "x": x})["y"], np.squeeze(x))
