"""Normalizations in and out of ONNX, over opset versions, with symbolic sizes."""

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.text.parser import parse

from tests.frontends.onnx.ops.there_and_back import (
    check,
    check_in_runtime,
    compare,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import assert_close, one_node, random, runtime
from tests.onnx_models.peers import session
from tests.onnx_models.ways import read


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_in_both_of_its_meanings(operator, axis, opset):
    attrs = {} if axis is None else {"axis": axis}
    graph = check_in_runtime(operator, random(1, 2, 3, 4), opset=opset, attrs=attrs, symbols=["x0"])
    is_flat = opset == 11 and axis not in {2, -1}
    assert ("reshape" in op_names(graph)) == is_flat


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_over_several_axes_of_no_elements_keeps_a_size_that_only_running_tells(operator):
    text = """<ir_version: 10, opset_import: ["" : 9]>
    drawn (float[2,s0,0] x, bool[4] chosen) => (float[?,?,?] y)
    {
        some = Compress <axis: int = 1> (x, chosen)
        y = OPERATOR (some)
    }"""
    graph = imported(onnx.parser.parse_model(text.replace("OPERATOR", operator)))
    given = {"x": np.zeros((2, 5, 0), np.float32), "chosen": np.array([True, False, False, True])}
    assert evaluated(graph, given)[0].shape == (2, 2, 0)


@pytest.mark.parametrize(("axis", "nodes"), [(0, 3), (1, 1), (2, 1), (-2, 1)])
def test_softmax_along_an_inner_axis_is_moved_to_the_end_before_opset_13(axis, nodes):
    x = random(1, 2, 3, 1)
    graph = imported(one_node("Softmax", [x], 1, 13, {"axis": axis}))
    assert len(export_model(graph, dialect=Dialect.STANDARD, opset=13).graph.node) == 1
    model = export_model(graph, dialect=Dialect.STANDARD, opset=12)
    assert len(model.graph.node) == nodes
    compare(runtime_of(model, feeds_of(x)), evaluated(graph, feeds_of(x)))


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize(("axis", "scale"), [(-1, (4,)), (1, (3, 4)), (1, (4,)), (-1, (1,))])
@pytest.mark.parametrize("has_bias", [True, False])
def test_layer_norm(axis, scale, has_bias, opset):
    inputs = [random(1, 2, 3, 4), random(2, *scale), random(3, 4) if has_bias else None]
    model = with_symbols(one_node("LayerNormalization", inputs, 1, opset, {"axis": axis}), ["x0"])
    assert "layer_norm" in op_names(check(model, feeds_of(*inputs)))


def test_layer_norm_without_scale_gets_ones_on_export():
    graph = imported(with_symbols(one_node("LayerNormalization", [random(1, 2, 4), random(2, 4)], 1, 17, {})))
    node = graph.last
    assert node is not None
    x = random(3, 2, 4)
    expected = evaluated(graph, {"x0": x, "x1": np.ones(4, np.float32)})
    graph.replace_input(node, 1, None)
    exported = export_model(graph, dialect=Dialect.STANDARD)
    (found,) = evaluated(imported(exported), {"x0": x, "x1": np.ones(4, np.float32)})
    assert_close(found, expected[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_statistics_of_layer_norm_are_those_of_numbers_far_from_zero(dtype):
    """The mean of squares less the square of the mean, as in ONNX's function body, has no digit left there."""
    x = (54 + random(1, 2, 3, 4) / 8).astype(dtype)
    model = one_node("LayerNormalization", [x, np.ones(4, dtype)], 3, 17, {"epsilon": 1e-9})
    graph = imported(with_symbols(model, ["x0"]))
    assert op_names(graph)[0] == "layer_norm"
    y, mean, inverse = evaluated(graph, feeds_of(x, np.ones(4, dtype)))
    wide = x.astype(np.float64)
    assert_close(mean, wide.mean(-1, keepdims=True).astype(np.float32))
    assert_close(inverse, (1 / wide.std(-1, keepdims=True)).astype(np.float32), rtol=1e-4)
    assert_close(y, ((wide - mean) * inverse).astype(dtype), atol=1e-2)
    (constant,) = evaluated(graph, feeds_of(np.full_like(x, 54.11119), np.ones(4, dtype)))[:1]
    assert_close(constant, np.zeros_like(x))


def test_statistics_in_another_precision_are_left_to_the_function_body():
    graph = imported(
        one_node("LayerNormalization", [random(1, 2, 4), random(2, 4)], 3, 17, {"stash_type": 16}), native=False
    )
    assert "layer_norm" not in op_names(graph)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("axes", [(0, 2, 3), (-1,), ()])
def test_mean_variance_norm_of_numbers_far_from_zero(dtype, axes):
    """ONNX's function body, and so its reference evaluator, is off by a factor of four there."""
    x = (54 + random(1, 2, 3, 4, 5) / 8).astype(dtype)
    model = one_node("MeanVarianceNormalization", [x], 1, 13, {})
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("axes", axes, attr_type=onnx.AttributeProto.INTS))
    graph = imported(model)
    (y,) = evaluated(graph, feeds_of(x))
    wide, over = x.astype(np.float64), axes or None
    expected = (wide - wide.mean(over, keepdims=True)) / wide.std(over, keepdims=True)
    assert_close(y, expected.astype(dtype), rtol=1e-3, atol=1e-3)


def test_rms_norm():
    inputs = [random(1, 2, 3, 4), random(2, 4)]
    model = with_symbols(one_node("RMSNormalization", inputs, 1, 23, {"epsilon": 1e-3}), ["x0"])
    assert op_names(check(model, feeds_of(*inputs))) == ["rms_norm"]


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_norm(opset):
    inputs = [random(1, 2, 3, 4), *(random(seed, 3) for seed in (2, 3, 4)), np.abs(random(5, 3))]
    model = with_symbols(one_node("BatchNormalization", inputs, 1, opset, {"epsilon": 1e-3}), ["x0"])
    expected = runtime("BatchNormalization", *inputs, opset=15, epsilon=1e-3)
    assert op_names(check(model, feeds_of(*inputs), expected)) == ["batch_norm"]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (1, 3, 2, 4)])
def test_batch_norm_in_training_is_made_of_parts(shape):
    inputs = [random(1, *shape), *(random(seed, 3) for seed in (2, 3, 4)), np.abs(random(5, 3))]
    attributes = {"training_mode": 1, "momentum": 0.75, "epsilon": 1e-3}
    graph = check(one_node("BatchNormalization", inputs, 3, 15, attributes), feeds_of(*inputs))
    assert {"batch_norm", "onnx.BatchNormalization"}.isdisjoint(op_names(graph))


def test_running_statistics_are_not_written_over_the_operands_in_files():
    """As ONNX Runtime does for the operator itself, on each call, wherever they are no outputs of the model."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 15]>
        g (float[2,3] x, float[3] s) => (float[?] m) <float[3] c = {0.5, 1.0, 2.0}> {
          y, n, v = BatchNormalization <training_mode = 1> (x, s, s, c, c)
          m = Neg (v)
        }"""
    )
    feeds = {"x": random(1, 2, 3), "s": random(2, 3)}
    expected = evaluated(imported(model), feeds)
    opened = session(export_model(imported(model)).SerializeToString())
    for _ in range(2):
        assert_close(opened.run(None, feeds)[0], expected[0])


@pytest.mark.parametrize("opset", [7, 22])
def test_instance_norm(opset):
    inputs = [random(1, 2, 3, 4), random(2, 3), random(3, 3)]
    model = with_symbols(one_node("InstanceNormalization", inputs, 1, opset, {}), ["x0"])
    assert op_names(check(model, feeds_of(*inputs))) == ["instance_norm"]


def test_group_norm_has_a_scale_for_each_channel_since_opset_21():
    inputs = [random(1, 2, 6, 4), random(2, 6), random(3, 6)]
    model = one_node("GroupNormalization", inputs, 1, 21, {"num_groups": 3})
    assert op_names(check(model, feeds_of(*inputs))) == ["group_norm"]


def test_group_norm_in_f32_is_written_as_instance_norm_over_the_groups():
    inputs = [random(1, 2, 6, 4, 5), random(2, 6), random(3, 6)]
    graph = check(
        with_symbols(one_node("GroupNormalization", inputs, 1, 21, {"num_groups": 3}), ["x0"]), feeds_of(*inputs)
    )
    written = {node.op_type for node in export_model(graph, dialect=Dialect.STANDARD).graph.node}
    assert "InstanceNormalization" in written
    assert "GroupNormalization" not in written


@pytest.mark.parametrize("shape", [(2, 6, 3, 0), (2, 6, 0, 3), (0, 6, 2, 3), (0, 6, 0, 0), (2, 0, 2, 3), (2, 6, 2, 3)])
def test_group_norm_in_f32_of_nothing(shape):
    """A Reshape of sizes that are computed takes a 0 for the operand's size in its place, unless told otherwise."""
    graph = parse(
        "graph @main(%x: f32[N, C, H, W], %s: f32[C], %b: f32[C]) {"
        "  %y: f32[N, C, H, W] = group_norm(%x, %s, %b) {groups = 2} return %y }"
    )
    feeds = {"x": random(1, *shape), "s": random(2, shape[1]), "b": random(3, shape[1])}
    model = export_model(graph, dialect=Dialect.STANDARD)
    compare(runtime_of(model, feeds), evaluated(graph, feeds))


def test_a_norm_without_scale_is_written_with_ones():
    graph = parse("graph @main(%x: f32[B, 4]) {\n  %y: f32[B, 4] = rms_norm(%x, _)\n  return %y\n}\n")
    exported = export_model(graph, dialect=Dialect.STANDARD)
    assert [node.op_type for node in exported.graph.node] == ["RMSNormalization"]
    assert onnx.numpy_helper.to_array(exported.graph.initializer[0]).tolist() == [1, 1, 1, 1]


def test_group_norm_had_a_scale_for_each_group_before():
    inputs = [random(1, 2, 6, 4), random(2, 3), random(3, 3)]
    model = one_node("GroupNormalization", inputs, 1, 18, {"num_groups": 3})
    assert "group_norm" in op_names(check(model, feeds_of(*inputs)))


@pytest.mark.parametrize("opset", [7, 13])
def test_lrn(opset):
    x = random(1, 2, 5, 3, 3)
    model = with_symbols(one_node("LRN", [x], 1, opset, {"size": 3, "alpha": 0.1}))
    expected = runtime("LRN", x, opset=opset, size=3, alpha=0.1)
    graph = imported(model)
    assert_close(evaluated(graph, feeds_of(x))[0], expected[0])
    exported = onnx.helper.get_node_attr_value(export_model(graph, dialect=Dialect.STANDARD).graph.node[-1], "size")
    assert exported == 3


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p):
    x = np.abs(random(1, 2, 5)) + np.float32(0.1)  # the reference forgets the absolute value
    model = with_symbols(one_node("LpNormalization", [x], 1, 22, {"axis": 0, "p": p}))
    assert op_names(check(model, feeds_of(x))) == ["lp_norm"]


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_over_several_axes_is_one_operator_again_before_opset_13(operator, axis):
    x = random(1, 2, 3, 4)
    graph = imported(with_symbols(one_node(operator, [x], 1, 11, {"axis": axis})))
    model = export_model(graph, keep_versions=True)
    assert [node.op_type for node in model.graph.node] == [operator]
    compare(runtime_of(model, feeds_of(x)), evaluated(graph, feeds_of(x)))
    for opset, most in ((13, 14), (14, 9)):  # of an operand that may be empty each size finds its 0 before opset 14
        newer = export_model(graph, opset=opset)
        assert len(newer.graph.node) <= most
        for feeds in (feeds_of(x), feeds_of(random(1, 2, 0, 4))):
            compare(runtime_of(newer, feeds), evaluated(graph, feeds))


@pytest.mark.parametrize("shape", [(1, 2, 4, 3), (1, 0, 4, 3), (1, 2, 4, 0)])
@pytest.mark.parametrize(
    ("body", "operators"),
    [
        ("z = Flatten(x) y = Softmax(x)", ["Reshape", "Softmax"]),
        ("y = Softmax(x) z = Flatten(y)", ["Softmax", "Flatten"]),
        ("y = Softmax(x) u = Flatten(y) v = Flatten(x) z = Add(u, v)", ["Reshape", "Softmax", "Flatten", "Add"]),
    ],
)
def test_rows_of_a_softmax_before_opset_13_may_be_read_elsewhere(body, operators, shape):
    model = onnx.parser.parse_model(
        f"""<ir_version: 3, opset_import: ["" : 7]>
        g (float[1, A, 4, B] x) => (float[1, A, 4, B] y, float[1, C] z) {{ {body} }}"""
    )
    graph = read(model.SerializeToString())
    written = export_model(graph, keep_versions=True, dialect=Dialect.ORT)
    assert sorted(node.op_type for node in written.graph.node) == sorted(operators)
    x = np.zeros(shape, np.float32)
    compare(runtime_of(written, {"x": x}), evaluated(graph, {"x": x}))
