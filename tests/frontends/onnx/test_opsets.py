"""Operators in the forms that they had over time, from opset 7 to the newest, against ONNX Runtime.

A form is tested at the first and the last version in which it is valid, so that both sides of every change are.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.constant import Array
from capgraph.ir.evaluate import evaluate_graph
from onnx import ModelProto

OLDEST, NEWEST = 7, onnx.defs.onnx_opset_version()
KNOWN_TO_ORT = 26
FEED = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
SCALES = np.array([0.5, 1, 2], np.float32)


class Form(NamedTuple):
    """Nodes that compute `y` from `x`, f32[2, 3, 4, 6], and `s`, f32[3], as opsets `first` to `last` have them."""

    nodes: str
    first: int = OLDEST
    last: int = NEWEST
    rank: int = 4


def vector(*values: int) -> str:
    return f"int64[{len(values)}] {{{', '.join(map(str, values))}}}"


def constant(name: str, *values: int) -> str:
    return f"{name} = Constant<value = {vector(*values)}>() "


def reductions() -> Iterator[Form]:
    for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"):
        changed = 13 if name == "Sum" else 18  # axes became an input
        yield Form(f"y = Reduce{name}<axes = [1, 3], keepdims = 0>(x)", last=changed - 1, rank=2)
        yield Form(f"y = Reduce{name}<axes = [-1]>(x)", 11, changed - 1)
        yield Form(f"{constant('a', 1, -1)} y = Reduce{name}<keepdims = 0>(x, a)", changed, rank=2)


FORMS = (
    *reductions(),
    Form("y = Softmax<axis = 2>(x)", last=12),  # over all axes from 2 on
    Form("y = Softmax(x)", last=12),
    Form("y = Softmax(x)", 13),
    Form("y = LogSoftmax<axis = 1>(x)", last=12),
    Form("y = LogSoftmax<axis = 1>(x)", 13),
    Form("y = Hardmax<axis = 1>(x)", last=12),
    Form("y = Hardmax<axis = 1>(x)", 13),
    Form("y = Slice<axes = [1, 3], starts = [1, -4], ends = [100, -1]>(x)", last=9),
    Form("y = Slice<starts = [1, 0], ends = [2, 2]>(x)", last=9),
    Form(
        constant("b", 5, 1)
        + constant("e", 0, 3)
        + constant("a", 3, 1)
        + constant("t", -2, 1)
        + "y = Slice(x, b, e, a, t)",
        10,
    ),
    Form("y = Clip<min = -0.5, max = 0.25>(x)", last=10),
    Form("y = Clip<min = -0.5>(x)", last=10),
    Form("l = Constant<value = float {-0.5}>() y = Clip(x, l)", 11),
    Form('y = Pad<mode = "reflect", pads = [0, 0, 1, 2, 0, 0, 1, 2]>(x)', last=10),
    Form("y = Pad<pads = [0, 0, 1, 2, 0, 0, -1, 2], value = 1.5>(x)", last=10),
    Form(constant("p", 0, 0, 1, 2, 0, 0, 1, 2) + "v = Constant<value = float {2.0}>() y = Pad(x, p, v)", 11),
    Form("a = Unsqueeze<axes = [0, 3]>(x) y = Squeeze<axes = [3]>(a)", last=12, rank=5),
    Form("a = Unsqueeze<axes = [0, 3]>(x) y = Squeeze(a)", last=12),
    Form(constant("p", 0, 3) + constant("q", 3) + "a = Unsqueeze(x, p) y = Squeeze(a, q)", 13, rank=5),
    Form("p, y = Split<axis = 3, split = [2, 4]>(x)", last=12),
    Form("p, y = Split<axis = 3>(x)", last=12),
    Form(constant("n", 2, 4) + "p, y = Split<axis = 3>(x, n)", 13),
    Form("p, q, y = Split<axis = 3, num_outputs = 3>(x)", 18),
    Form("y, i = TopK<k = 2, axis = 3>(x)", last=9),
    Form(constant("k", 2) + "y, i = TopK<axis = 3>(x, k)", 10),
    Form(constant("k", 2) + "y, i = TopK<axis = 3, largest = 0>(x, k)", 11),
    Form("y, m = Dropout<ratio = 0.3>(x)", last=11),
    Form("y = Dropout(x)", 12),
    Form('y = Upsample<mode = "nearest", scales = [1.0, 1.0, 2.0, 3.0]>(x)', last=8),
    Form('y = Upsample<mode = "linear", scales = [1.0, 1.0, 2.0, 2.0]>(x)', last=8),
    Form('c = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>() y = Upsample<mode = "linear">(x, c)', 9, 9),
    Form("c = Constant<value = float[4] {1.0, 1.0, 0.5, 1.5}>() y = Resize(x, c)", 10, 10),
    Form('c = Constant<value = float[4] {1.0, 1.0, 2.0, 1.5}>() y = Resize<mode = "linear">(x, c)', 10, 10),
    Form('c = Constant<value = float[4] {1.0, 1.0, 2.0, 1.5}>() y = Resize<mode = "linear">(x, , c)', 13),
    Form("y = BatchNormalization<epsilon = 0.001>(x, s, s, s, s)", last=8),
    Form("y = BatchNormalization<epsilon = 0.001>(x, s, s, s, s)", 9, 13),
    Form("y = BatchNormalization<epsilon = 0.001>(x, s, s, s, s)", 14),
    Form("y = InstanceNormalization<epsilon = 0.001>(x, s, s)"),
    Form("g = Constant<value = float[1] {2.0}>() y = GroupNormalization<num_groups = 1>(x, g, g)", 18, 20),
    Form("y = GroupNormalization<num_groups = 1>(x, s, s)", 21),
    Form('y = MaxPool<kernel_shape = [2, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x)'),
    Form("y, i = MaxPool<kernel_shape = [2, 3], pads = [1, 1, 0, 1]>(x)", 8),
    Form("y = MaxPool<kernel_shape = [2, 2], ceil_mode = 1, dilations = [1, 2], strides = [2, 2]>(x)", 10),
    Form("y = AveragePool<kernel_shape = [2, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)"),
    Form("y = LpPool<kernel_shape = [2, 2], p = 3>(x)"),
    Form("y = Flatten<axis = 3>(x)", rank=2),
    Form("y = Flatten<axis = -1>(x)", 11, rank=2),
    Form("y = Concat<axis = 1>(x, x)"),
    Form(constant("i", 0, 2) + "y = Gather<axis = 1>(x, i)"),
    Form(constant("i", 0, -1) + "y = Gather<axis = 1>(x, i)", 11),
    Form(
        "i = Constant<value = int64[1,1,1,1] {1}>() u = Constant<value = float[1,1,1,1] {9.0}>() y = Scatter(x, i, u)",
        9,
        10,
    ),
    Form("a = Constant<value = float {2.0}>() y = Pow(x, a)"),
    Form("a = Constant<value = int64 {2}>() y = Pow(x, a)", 12),
    Form("y = Sum(x, x)"),
    Form("a = Constant<value = float {0.5}>() y = Max(x, a, x)", 8),
    Form("i = ArgMax<axis = 1>(x) y = Cast<to = 1>(i)"),
    Form("i = ArgMin<axis = 1, select_last_index = 1>(x) y = Cast<to = 1>(i)", 12),
    Form(constant("t", 1, 2, 1, 2) + "y = Tile(x, t)"),
    Form(constant("t", 0, -1) + "y = Reshape(x, t)", rank=2),
    Form(constant("t", 2, -1) + "y = Reshape<allowzero = 1>(x, t)", 14, rank=2),
    Form("n = Shape(x) y = Cast<to = 1>(n)", rank=1),
    Form("n = Shape<start = 1, end = -1>(x) y = Cast<to = 1>(n)", 15, rank=1),
    Form("z = Constant<value = float {0.0}>() g = Greater(x, z) n = Not(g) y = Cast<to = 1>(n)"),
    Form('y = Einsum<equation = "abcd,abed->abce">(x, x)', 12),
    Form(constant("t", 2, 12, 2, 3) + "q = Reshape(x, t) y = DepthToSpace<blocksize = 2>(q)"),
    Form(constant("t", 2, 12, 2, 3) + 'q = Reshape(x, t) y = DepthToSpace<blocksize = 2, mode = "CRD">(q)', 11),
    Form(
        "c = Constant<value = float {0.05}>() z = Constant<value = uint8 {128}>() "
        "q = QuantizeLinear(x, c, z) y = DequantizeLinear(q, c, z)",
        10,
    ),
    Form(
        "c = Constant<value = float[3] {0.05, 0.1, 0.02}>() z = Constant<value = int8[3] {0, 1, -1}>() "
        "q = QuantizeLinear<axis = 1>(x, c, z) y = DequantizeLinear<axis = 1>(q, c, z)",
        13,
    ),
    Form(
        "m = ReduceSum<keepdims = 0>(x) z = Constant<value = float {0.0}>() g = Greater(m, z) "
        "y = If<then_branch = a () => (float[2, 3, 4, 6] p) { p = Neg(x) }, "
        "else_branch = b () => (float[2, 3, 4, 6] p) { p = Abs(x) }>(g)"
    ),
    Form(
        "n = Constant<value = int64 {3}>() t = Constant<value = bool {1}>() "
        "y = Loop<body = b (int64 i, bool go, float[2, 3, 4, 6] h) => (bool on, float[2, 3, 4, 6] k) "
        "{ on = Identity(go) k = Add(h, x) }>(n, t, x)"
    ),
    Form(
        "f = ReduceSum<axes = [0], keepdims = 0>(x) h, y = Scan<num_scan_inputs = 1, scan_output_directions = [1], "
        "body = b (float[3, 4, 6] h, float[3, 4, 6] t) => (float[3, 4, 6] k, float[3, 4, 6] o) "
        "{ k = Add(h, t) o = Mul(k, t) }>(f, x)",
        9,
        12,
    ),
)


def model_of(form: Form, version: int) -> ModelProto:
    sizes = ", ".join("abcde"[: form.rank])
    head = f'<ir_version: {13 if version > 23 else 10}, opset_import: ["": {version}]>'
    text = f"{head} net (float[2, 3, 4, 6] x, float[3] s) => (float[{sizes}] y) {{ {form.nodes} }}"
    return onnx.parser.parse_model(text)


def by_onnxruntime(model: ModelProto) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
    )
    taken = {value.name for value in session.get_inputs()}
    (result,) = session.run(None, {name: array for name, array in (("x", FEED), ("s", SCALES)) if name in taken})
    return np.asarray(result)


@pytest.mark.parametrize("form", FORMS, ids=[f"{form.nodes.split('<')[0][-40:]}-{form.first}" for form in FORMS])
def test_a_form_means_the_same_in_its_first_and_its_last_version(form: Form) -> None:
    for version in sorted({form.first, min(form.last, KNOWN_TO_ORT)}):
        model = model_of(form, version)
        graph = import_model(model).graph
        assert not any(node.op.is_foreign for node in graph.nodes)
        (found,) = evaluate_graph(graph, [FEED, SCALES])
        expected = by_onnxruntime(model)
        assert found.shape == expected.shape, version
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=f"opset {version}")


@pytest.mark.parametrize("version", range(OLDEST, NEWEST + 1))
def test_every_version_is_taken(version: int) -> None:
    (found,) = evaluate_graph(import_model(model_of(Form("y = Relu(x)"), version)).graph, [FEED, SCALES])
    np.testing.assert_array_equal(found, np.maximum(FEED, 0))


@pytest.mark.parametrize("form", FORMS, ids=[f"{form.nodes.split('<')[0][-40:]}-{form.first}" for form in FORMS])
def test_a_form_goes_out_at_the_opset_that_it_came_in(form: Form) -> None:
    for version in sorted({form.first, min(form.last, KNOWN_TO_ORT)}):
        graph = import_model(model_of(form, version)).graph
        written = export_model(graph, keep_versions=True, dialect=Dialect.STANDARD)
        assert written.opset_import[0].version == version
        (wanted,) = evaluate_graph(graph, [FEED, SCALES])
        np.testing.assert_allclose(by_onnxruntime(written), wanted, rtol=1e-4, atol=1e-5, err_msg=f"opset {version}")
