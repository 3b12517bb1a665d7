"""If, Loop and Scan in and out of ONNX: captured values, sizes that change, nesting."""

import contextlib
from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.equality import assert_equal
from capgraph.ir.errors import ExecutionError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

from tests.frontends.onnx.ops.there_and_back import check, compare, evaluated, imported, op_names, runtime_of

X, Y = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)


def model(text: str, opset: int = 21) -> onnx.ModelProto:
    """A model from the text form of a graph."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def the(graph: Graph, name: str) -> Any:
    """The one node of this op."""
    (node,) = [node for node in graph.nodes if node.op.name == name]
    return node


@pytest.mark.parametrize("cond", [True, False])
@pytest.mark.parametrize("shape", ["", "[1]"])
@pytest.mark.parametrize("opset", [11, 21])
def test_if_captures_what_either_branch_reads(cond, shape, opset):
    text = f"""choose (bool{shape} c, float[n] x, float[n] y) => (float[n] z, float[n] w) {{
        s = Add (x, y)
        z, w = If (c) <
            then_branch = yes () => (float[n] a, float[n] b) {{ a = Mul (y, s)  b = Identity (y) }},
            else_branch = no () => (float[n] d, float[n] e) {{ d = Sub (x, s)  e = Identity (s) }}
        >
    }}"""
    feeds = {"c": np.array(cond).reshape((1,) if shape else ()), "x": X, "y": Y}
    graph = check(model(text, opset), feeds, native=False)
    node = the(graph, "if")
    assert len(node.inputs) == 4
    assert [str(value.type) for value in node.outputs] == ["f32[n]", "f32[n]"]


@pytest.mark.parametrize("cond", [True, False])
def test_one_branch_of_a_constant_condition_is_taken_whatever_the_other_gives(cond):
    text = f"""decided (float[n] x) => (float[a, b] z) {{
        c = Constant <value = bool {{{int(cond)}}}> ()
        y = If (c) <
            then_branch = yes () => (float[n] t) {{ t = Neg (x) }},
            else_branch = no () => (float[1, n] e) {{
                axes = Constant <value = int64[1] {{0}}> ()
                e = Unsqueeze (x, axes)
            }}
        >
        shape = Constant <value = int64[2] {{1, -1}}> ()
        z = Reshape (y, shape)
    }}"""
    assert "if" not in op_names(check(model(text), {"x": X}))


def test_a_taken_branch_may_mention_sizes_that_only_a_value_around_it_tells():
    text = """sized (float[3, 1] x, int64 count) => (float[a, b] z) {
        c = Constant <value = bool {1}> ()
        seen = Loop (count, c) <body = round (int64 i, bool k) => (bool l, int64 j) {
            l = Identity (k)
            j = Identity (i)
        }>
        up = Ceil (x)
        z = If (c) <
            then_branch = yes () => (float[p, q] t) { size = Shape (seen)  t = Expand (up, size) },
            else_branch = no () => (float[3, 1] e) { e = Neg (x) }
        >
    }"""
    feeds = {"x": np.arange(3, dtype=np.float32).reshape(3, 1), "count": np.array(1)}
    assert "if" not in op_names(check(model(text, 13), feeds, native=False))


def test_a_branch_that_is_taken_asks_for_sizes_that_running_makes():
    text = """decided (float[n] x, bool[n] k) => (int64 z) {
        c = Constant <value = bool {1}> ()
        y = Compress <axis = 0> (x, k)
        z = If (c) <
            then_branch = yes () => (int64 t) { t = Size (y) },
            else_branch = no () => (int64 e) { e = Size (x) }
        >
    }"""
    assert "if" not in op_names(check(model(text), {"x": X, "k": np.array([True, False, True])}))


def test_captured_values_come_in_the_order_in_which_the_branches_read_them():
    text = """choose (bool c, float[n] x, float[n] y, float[n] z) => (float[n] w) {
        same = Identity (x)
        w = If (c) <
            then_branch = yes () => (float[n] a) { s = Add (z, x)  t = Neg (y)  a = Add (s, same) },
            else_branch = no () => (float[n] b) { b = Sub (y, z) }
        >
    }"""
    graph = imported(model(text), native=False)
    assert [value.name for value in the(graph, "if").operands] == ["c", "z", "x", "y"]
    assert_equal(imported(export_model(graph), native=False), graph)


def test_captured_values_that_are_listed_otherwise_are_put_in_order():
    text = """
    graph @main(%i: i64[], %x: f32[2], %y: f32[2], %z: f32[2]) {
      %s: f32[2] = loop(%i, _, %x, %z, %x, %y) {body = @body, carried = 1}
      return %s
    }

    graph @body(%i: i64[], %c: bool[], %s: f32[2], %z: f32[2], %x: f32[2], %y: f32[2]) {
      %a: f32[2] = sub(%y, %x)
      %b: f32[2] = add(%a, %s)
      return %c, %b
    }
    """
    graph = parse(text)
    again = imported(export_model(graph), native=False)
    assert [value.name for value in the(again, "loop").operands] == ["i", "x", "y", "x"]
    assert_equal(imported(export_model(again), native=False), again)
    feeds = {"i": np.array(3), "x": X[:2], "y": Y[:2], "z": Y[:2]}
    compare(evaluated(again, feeds), evaluated(graph, feeds))


@pytest.mark.parametrize("operands", ["%i, _", "_, %go", "%i, %go"])
def test_a_loop_that_carries_nothing_has_both_of_its_operands(operands):
    text = f"""
    graph @main(%i: i64[], %go: bool[]) {{
      %s: i64[n] = loop({operands}) {{body = @body, carried = 0}}
      return %s
    }}

    graph @body(%i: i64[], %c: bool[]) {{
      %two: i64[] = constant() {{value = dense<i64[]: 2>}}
      %d: bool[] = less(%i, %two)
      return %d, %i
    }}
    """
    graph = parse(text)
    exported = export_model(graph)
    (loop,) = exported.graph.node
    assert list(loop.input) == operands.replace("%", "").replace("_", "").split(", ")
    assert_equal(imported(exported, native=False), graph)
    feeds = {"i": np.array(3), "go": np.array(True)}
    compare(runtime_of(exported, feeds), evaluated(graph, feeds))


def test_branches_of_different_sizes_and_constants_repeated_inside():
    text = """choose (bool c, float[n] x) => (float[m] z) <float[2] k = {7.0, 8.0}> {
        z = If (c) <
            then_branch = yes () => (float[m1] a) { a = Concat <axis = 0> (x, k) },
            else_branch = no () => (float[m2] b) { b = Identity (k) }
        >
    }"""
    for cond in (True, False):
        graph = check(model(text), {"c": np.array(cond), "x": X}, native=False)
    assert len(the(graph, "if").inputs) == 2


def test_branches_of_different_ranks_stay_foreign():
    text = """choose (bool c, float[n] x) => (z) {
        z = If (c) <
            then_branch = yes () => (a) { a = ReduceSum <keepdims = 0> (x) },
            else_branch = no () => (b) { b = Identity (x) }
        >
    }"""
    broken = model(text)
    broken.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    assert "onnx.If" in op_names(imported(broken, native=False))


def test_the_declared_shape_of_an_output_is_kept_where_nothing_else_tells_its_rank():
    text = """choose (bool c, float[n] x) => (float y) {
        z = If (c) <
            then_branch = yes () => (a) { a = ReduceSum <keepdims = 0> (x) },
            else_branch = no () => (b) { b = Identity (x) }
        >
        y = ReduceSum <keepdims = 0> (z)
    }"""
    graph = imported(model(text), native=False)
    assert graph.outputs[0].tensor.shape is None
    for dialect in (Dialect.STANDARD, Dialect.ORT):
        written = export_model(graph, dialect=dialect)
        onnx.checker.check_model(written, full_check=True)
        assert written.graph.output[0].type.tensor_type.HasField("shape")


LOOP = """count (int64{shape} trip, bool{shape} go, float[n] x, float[n] y) => (float[{last}] z, float[s, n] all) {{
    z, all = Loop (trip, go, x) <
        body = b (int64{shape} i, bool{shape} c, float[{carried}] v) => (bool{shape} d, float[{out}] w, float[n] u) {{
            d = Identity (c)
            {statement}
            u = Neg (y)
        }}
    >
}}"""


@pytest.mark.parametrize(("size", "opset"), [("3", 11), ("2", 9), ("N", 9)])
def test_branches_whose_results_have_other_shapes_need_opset_11(size: str, opset: int) -> None:
    graph = parse(
        f"""graph @main(%c: bool[], %x: f32[2], %z: f32[{size}]) {{
          %y: f32[{"2" if size == "2" else "u0"}] = if(%c, %x, %z) {{else_body = @e, then_body = @t}}
          return %y
        }}
        graph @e(%x: f32[2], %z: f32[{size}]) {{ %v: f32[2] = abs(%x) return %v }}
        graph @t(%x: f32[2], %z: f32[{size}]) {{ %w: f32[{size}] = abs(%z) return %w }}"""
    )
    assert _least(graph) == opset


def test_branches_that_onnx_takes_for_others_need_opset_11() -> None:
    """It takes the result of the inner one, of one size or another, to have the one that is known."""
    text = """net (bool c, float[N] x, float[1] b) => (float[M] y) {
        y = If (c) <
            then_branch = t () => (float[K] p) {
                p = If (c) <
                    then_branch = a () => (float[N] q) { q = Neg(x) },
                    else_branch = e () => (float[1] r) { r = Neg(b) }
                >
            },
            else_branch = u () => (float[2] s) { s = Constant <value = float[2] {1, 2}> () }
        >
    }"""
    graph = imported(model(text, 9))
    assert _least(graph) == 11
    assert export_model(graph, keep_versions=True).opset_import[0].version == 11


def test_branches_of_unknown_ranks_are_written_at_opset_11() -> None:
    """ONNX Runtime infers more of them than is checked."""
    text = """net (bool c, float[] x, float[1] b) => (float[] y) {
        y = If (c) <
            then_branch = t () => (float[] p) { p = Identity(x) },
            else_branch = e () => (float[2] q) { q = Concat <axis = 0> (b, b) }
        >
    }"""
    graph = imported(model(text, 9), native=False)
    assert export_model(graph, keep_versions=True).opset_import[0].version == 11
    assert export_model(graph, opset=9).opset_import[0].version == 9


def test_a_scan_whose_state_changes_its_size_is_not_written() -> None:
    """The standard requires states "to have the same shape in each iteration of the loop"."""
    text = """net (float[1] x, float[T] s) => (float[M] y) {
        y = Scan <
            num_scan_inputs = 1,
            body = step (float[A] v, float e) => (float[B] w) { w = Concat <axis = 0> (v, v) }
        > (x, s)
    }"""
    graph = imported(model(text))
    (y,) = evaluate_graph(graph, [X[:1], Y[:2]])
    assert y.tolist() == [1, 1, 1, 1]
    with pytest.raises(UnsupportedError, match="states change their sizes"):
        export_model(graph)


def _least(graph: Graph) -> int:
    for opset in range(9, 14):
        with contextlib.suppress(UnsupportedError):
            return int(export_model(graph, opset=opset).opset_import[0].version)
    raise AssertionError


@pytest.mark.parametrize("trip", [0, 3])
@pytest.mark.parametrize("go", [True, False])
@pytest.mark.parametrize("shape", ["", "[1]"])
@pytest.mark.parametrize("opset", [11, 21])
def test_loop_with_an_invariant_size(trip, go, shape, opset):
    sizes = {"last": "n", "carried": "n", "out": "n", "statement": "w = Add (v, y)", "shape": shape}
    feeds = {"trip": np.array(trip).reshape((1,) if shape else ()), "go": np.array(go).reshape((1,) if shape else ())}
    count = trip if go else 0
    expected = [X + count * Y, np.tile(-Y, (count, 1)).reshape(count, 3)]
    graph = imported(model(LOOP.format(**sizes), opset), native=False)
    assert str(the(graph, "loop").outputs[0].type) == "f32[n]"
    checked = {**feeds, "x": X, "y": Y}
    if shape or not count:  # the reference stacks nothing, and its Loop wants scalars
        compare(evaluated(graph, checked), expected)
    else:
        check(model(LOOP.format(**sizes), opset), checked, expected, native=False)


def test_loop_with_a_size_that_grows():
    sizes = {"last": "m", "carried": "k", "out": "k1", "statement": "w = Concat <axis = 0> (v, y)", "shape": ""}
    feeds = {"trip": np.array(2), "go": np.array(True), "x": X, "y": Y}
    graph = check(model(LOOP.format(**sizes)), feeds, [np.concatenate([X, Y, Y]), np.stack([-Y, -Y])], native=False)
    (dim,) = the(graph, "loop").outputs[0].shape
    assert not dim.symbols & {"n", "m", "k"}


def test_a_static_initial_size_that_grows():
    text = """grow (int64 trip, float[n] y) => (float[m] z) {
        e = Constant <value = float[0] {}> ()
        z = Loop (trip, , e) <
            body = step (int64 i, bool c, float[k] v) => (bool d, float[j] w) {
                d = Identity (c)
                w = Concat <axis = 0> (v, y)
            }
        >
    }"""
    graph = imported(model(text), native=False)
    compare(evaluated(graph, {"trip": np.array(2), "y": Y}), [np.concatenate([Y, Y])])


def test_control_flow_in_control_flow_reads_values_of_all_levels():
    text = """nest (int64 trip, bool go, float[n] x, float[n] y) => (float[n] z) {
        s = Add (x, y)
        z = Loop (trip, go, x) <
            body = step (int64 i, bool c, float[n] v) => (bool d, float[n] w) {
                d = Identity (c)
                two = Constant <value_int = 2> ()
                small = Less (i, two)
                w = If (small) <
                    then_branch = yes () => (float[n] a) { a = Add (v, s) },
                    else_branch = no () => (float[n] b) { t = Mul (v, y)  b = Sub (t, x) }
                >
            }
        >
    }"""
    feeds = {"trip": np.array(3), "go": np.array(True), "x": X, "y": Y}
    graph = check(model(text), feeds, [(X + 2 * (X + Y)) * Y - X], native=False)
    assert the(graph, "loop") is not None


def test_a_branch_reads_sizes_of_the_graph_around_it():
    text = """sized (bool c, float[n, 4] x) => (float[m] z) {
        z = If (c) <
            then_branch = yes () => (float[a1] a) {
                h = Shape (x)
                g = ConstantOfShape (h)
                f = Add (g, x)
                flat = Constant <value_ints = [-1]> ()
                a = Reshape (f, flat)
            },
            else_branch = no () => (float[b1] b) {
                flat = Constant <value_ints = [-1]> ()
                b = Reshape (x, flat)
            }
        >
    }"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for cond in (True, False):
        check(model(text), {"c": np.array(cond), "x": x}, [x.reshape(-1)], native=False)


@pytest.mark.parametrize("opset", [9, 11, 21])
def test_scan_with_axes_directions_and_a_captured_value(opset):
    text = """sum (float[n] s, float[n, t] x, float[n] y) => (float[n] last, float[n, t] all) {
        last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                          scan_input_directions = [1], scan_output_directions = [1],
            body = step (float[n] a, float[n] b) => (float[n] d, float[n] e) {
                c = Add (a, b)
                d = Mul (c, y)
                e = Identity (d)
            }
        > (s, x)
    }"""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    first = (X + x[:, 1]) * Y
    second = (first + x[:, 0]) * Y
    feeds = {"s": X, "x": x, "y": Y}
    graph = imported(model(text, opset), native=False)
    assert [str(value.type) for value in the(graph, "scan").outputs] == ["f32[n]", "f32[n, t]"]
    compare(evaluated(graph, feeds), [second, np.stack([second, first], axis=1)])


def test_scan_of_opset_8_runs_over_a_batch():
    text = """sum (float[b, n] s, float[b, t, n] x) => (float[b, n] last, float[b, t, n] all) {
        last, all = Scan <num_scan_inputs = 1,
            body = step (float[n] a, float[n] b) => (float[n] d, float[n] e) { d = Add (a, b)  e = Identity (d) }
        > (, s, x)
    }"""
    s, x = np.ones((2, 3), np.float32), np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    graph = imported(model(text, 8), native=False)
    sums = s[:, np.newaxis] + np.cumsum(x, axis=1)
    compare(evaluated(graph, {"s": s, "x": x}), [sums[:, -1], sums])


def test_a_branch_that_can_never_run_fails_where_it_runs():
    text = """never (bool c, float[n, 3] x, float[n, 4] y) => (float[?, ?] z) {
        z = If (c) <
            then_branch = yes () => (float[?, ?] a) { a = Add (x, y) },
            else_branch = no () => (float[?, ?] b) { b = Neg (x) }
        >
    }"""
    graph = imported(model(text), native=False)
    x, y = np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)
    compare(evaluated(graph, {"c": np.array(False), "x": x, "y": y}), [-x])
    with pytest.raises(ExecutionError):
        evaluated(graph, {"c": np.array(True), "x": x, "y": y})


@pytest.mark.parametrize("given", ["b", "state", "'x'"])
def test_strings_that_a_body_hands_on_stay_where_they_came_from(given):
    """ONNX Runtime moves the strings that a round gives: Identity is no copy of them."""
    giver = "Constant <value = string {'x'}> ()".replace("'", '"') if given == "'x'" else f"Identity ({given})"
    text = f"""hand (string b, int64 n) => (string last, string[?] all, string both) {{
        last, all = Loop (n, "", b) <body = round (int64 i, bool c, string state) => (bool d, string s, string r) {{
            d = Identity (c)  s = StringConcat (state, b)  r = {giver}
        }}>
        both = StringConcat (last, b)
    }}"""
    feeds = {"b": np.array("x", object), "n": np.array(3)}
    graph = imported(model(text), native=False)
    result = ["xxxx", {"b": ["x"] * 3, "'x'": ["x"] * 3, "state": ["x", "xx", "xxx"]}[given], "xxxxx"]
    for found in (evaluated(graph, feeds), runtime_of(export_model(graph), feeds)):
        assert [np.asarray(each).tolist() for each in found] == result
