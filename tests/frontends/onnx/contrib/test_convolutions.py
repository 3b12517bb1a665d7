from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import ON_CUDA, OPERATORS
from capgraph.frontends.onnx.exporting.exporter import export_model
from hypothesis import given
from hypothesis import strategies as st

from tests.frontends.onnx.contrib.written import graph_of, without, written

BLOCK = """
graph @g(%x: f32[B, 3, 8, 8], %w: f32[4, 3, 3, 3], %b: f32[4], %z: f32[B, 4, 4, 4]) {
  %c: f32[B, 4, 4, 4] = conv(%x, %w, %b) {strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1]}
  %s: f32[B, 4, 4, 4] = add(%c, %z)
  %y: f32[B, 4, 4, 4] = relu(%s)
  return %y
}
"""
ACTIVATED = """
graph @g(%x: f32[B, 3, 8, 8], %w: f32[4, 3, 3, 3], %b: f32[4]) {
  %low: f32[] = constant() {value = dense<f32[]: -0.5>}
  %high: f32[] = constant() {value = dense<f32[]: 0.75>}
  %c: f32[B, 4, 6, 6] = conv(%x, %w, %b) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %y: f32[B, 4, 6, 6] = ACTIVATION
  return %y
}
"""
ACTIVATIONS = {
    "relu(%c)": "Relu",
    "sigmoid(%c)": "Sigmoid",
    "tanh(%c)": "Tanh",
    "leaky_relu(%c) {alpha = 0.25}": "LeakyRelu",
    "hard_sigmoid(%c) {alpha = 0.125, beta = 0.25}": "HardSigmoid",
    "hard_swish(%c)": "HardSwish",
    "clip(%c, %low, %high)": "Clip",
    "clip(%c, %low, _)": "Clip",
    "clip(%c, _, %high)": "Clip",
}


def test_convolution_sum_and_relu_are_one_operator():
    assert written(BLOCK) == [".FusedConv"]
    assert written(BLOCK, without("FusedConv")) == ["Conv", "Add", "Relu"]
    assert written(BLOCK.replace("f32", "f16"), runs=False) == ["Conv", "Add", "Relu"]


@pytest.mark.parametrize(("activation", "name"), ACTIVATIONS.items())
def test_an_activation_behind_a_convolution(activation, name):
    text = ACTIVATED.replace("ACTIVATION", activation)
    assert written(text) == [".FusedConv"]
    fused = export_model(graph_of(text), dialect=Dialect.ORT, operators=OPERATORS).graph.node[0]
    assert next(each.s for each in fused.attribute if each.name == "activation") == name.encode()


def test_what_older_versions_get_wrong_in_blocks_is_not_written_to_files():
    for text, standard in [
        (ACTIVATED.replace("ACTIVATION", "hard_swish(%c)"), ["Conv", "HardSwish"]),
        (BLOCK, ["Conv", "Add", "Relu"]),
        (BLOCK.replace("relu(%s)", "exp(%s)"), ["Conv", "Add", "Exp"]),
    ]:
        graph = graph_of(text)
        assert [node.op_type for node in export_model(graph, dialect=Dialect.ORT).graph.node] == standard


@pytest.mark.parametrize("activation", [each.replace("%c", "%s") for each in ACTIVATIONS if "%low" not in each])
def test_an_activation_behind_a_sum(activation):
    high = "  %high: f32[] = constant() {value = dense<f32[]: 0.75>}\n  %c:"
    text = BLOCK.replace("relu(%s)", activation).replace("  %c:", high if "%high" in activation else "  %c:")
    assert written(text) == [".FusedConv"]


def test_a_sum_without_an_activation():
    text = BLOCK.replace("relu(%s)", "exp(%s)")
    assert written(text) == [".FusedConv", "Exp"]


def test_bounds_that_cross_or_are_not_constant_stay():
    crossed = ACTIVATED.replace("ACTIVATION", "clip(%c, %high, %low)")
    assert written(crossed) == ["Conv", "Clip"]
    given = ACTIVATED.replace("ACTIVATION", "clip(%c, %m, _)").replace("%b: f32[4]", "%b: f32[4], %m: f32[]")
    assert written(given) == ["Conv", "Clip"]


@pytest.mark.parametrize("activation", ["elu(%c)", "softplus(%c)"])
def test_an_activation_that_the_kernel_lacks_stays(activation):
    assert ".FusedConv" not in written(ACTIVATED.replace("ACTIVATION", activation))


def test_on_cuda_only_relu_goes_in():
    assert written(BLOCK, ON_CUDA) == [".FusedConv"]
    assert written(ACTIVATED.replace("ACTIVATION", "sigmoid(%c)"), ON_CUDA) == ["Conv", "Sigmoid"]
    assert written(BLOCK.replace("relu(%s)", "exp(%s)"), ON_CUDA) == ["Conv", "Add", "Exp"]


DEEP = """
graph @g(%x: f32[B, 16, 8, 8], %b: f32[16]) {
CONSTANTS
  %z: f32[B, 16, 8, 8] = BEFORE
  %c: f32[B, 16, 8, 8] = conv(%z, %w, BIAS) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %s: f32[B, 16, 8, 8] = add(%c, %z)
  %y: f32[B, 16, 8, 8] = BEHIND
  return %y
}
"""
SECOND = """
  %d: f32[B, 16, 8, 8] = conv(%y, %v, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %t: f32[B, 16, 8, 8] = add(%y, %d)
  return %t
"""
CONV = "conv(%x, %v, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}"


def deep(before: str, behind: str, bias: str = "%b") -> str:
    """Two convolutions with weights of their own, and a sum."""
    constants = "".join(
        f"  %{name}: f32[16, 16, 1, 1] = constant() {{value = dense<f32[16, 16, 1, 1]: [{numbers}]>}}\n"
        for name, numbers in (("v", ", ".join(["0.5"] * 256)), ("w", ", ".join(["0.25"] * 256)))
    )
    return (
        DEEP.replace("CONSTANTS\n", constants).replace("BEFORE", before).replace("BEHIND", behind).replace("BIAS", bias)
    )


@pytest.mark.parametrize("bias", ["%b", "_"])
@pytest.mark.parametrize("behind", ["relu(%s)", "exp(%s)", "sigmoid(%s)"])
def test_onnx_runtime_makes_the_same_of_it_as_of_standard_operators(behind, bias, tmp_path):
    """It lays channels out in blocks when it loads a model, which is worth more than what is joined here."""
    text = deep(CONV, behind, bias)
    assert ".FusedConv" in written(text)
    ours = export_model(graph_of(text), dialect=Dialect.ORT, operators=OPERATORS)
    standard = export_model(graph_of(text))
    assert _loaded(ours, tmp_path) == _loaded(standard, tmp_path)


def _loaded(model, folder):
    """The operators that ONNX Runtime makes of a model, in no order."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "loaded.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(
        (node.domain, node.op_type, len(node.input)) for node in onnx.load(folder / "loaded.onnx").graph.node
    )


def test_sums_one_behind_the_other():
    assert written(deep(CONV, "relu(%s)").replace("return %y", SECOND)) == ["Conv", ".FusedConv", ".FusedConv"]


def test_a_summand_in_another_layout_stays():
    assert written(deep("exp(%x)", "relu(%s)")) == ["Exp", "Conv", "Add", "Relu"]
    twice = deep("exp(%x)", "relu(%s)").replace("return %y", SECOND)
    assert written(twice) == ["Exp", "Conv", "Add", "Relu", "Conv", "Add"]


def test_a_sum_of_two_convolutions_keeps_one_of_them():
    text = BLOCK.replace("%z: f32[B, 4, 4, 4]", "%v: f32[4, 3, 1, 1]").replace(
        "  %s:",
        "  %z: f32[B, 4, 4, 4] = conv(%x, %v, _) {strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]}\n  %s:",
    )
    assert sorted(written(text)) == [".FusedConv", "Conv"]


def test_a_sum_that_broadcasts_stays():
    assert written(BLOCK.replace("%z: f32[B, 4, 4, 4]", "%z: f32[4, 1, 1]")) == ["Conv", "Add", "Relu"]


@given(
    channels=st.sampled_from([(1, 3), (3, 8), (8, 16), (16, 16), (24, 24)]),
    is_depthwise=st.booleans(),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    has_bias=st.booleans(),
    is_added=st.booleans(),
    behind=st.sampled_from(["exp(%s)", *(each.replace("%c", "%s") for each in ACTIVATIONS)]),
)
def test_drawn_convolutions_mean_the_same(
    channels, is_depthwise, kernel, strides, pads, dilations, has_bias, is_added, behind
):
    """Constant weights, as layouts are changed only then; the summand comes out of another convolution."""
    groups = channels[0] if is_depthwise else 1
    outs = channels[1] - channels[1] % groups
    sizes = [
        (9 + before + after - dilation * (width - 1) - 1) // stride + 1
        for before, after, width, stride, dilation in zip(pads[:2], pads[2:], kernel, strides, dilations, strict=True)
    ]
    result = f"f32[2, {outs}, {sizes[0]}, {sizes[1]}]"
    weight = f"f32[{outs}, {channels[0] // groups}, {kernel[0]}, {kernel[1]}]"
    count = outs * (channels[0] // groups) * kernel[0] * kernel[1]
    numbers = [", ".join(f"{each:.3f}" for each in np.sin(np.arange(count) + start) / 4) for start in (0, 1)]
    attrs = f"strides = {list(strides)}, pads = {list(pads)}, dilations = {list(dilations)}, groups = {groups}"
    text = f"""
graph @g(%x: f32[2, {channels[0]}, 9, 9], %b: f32[{outs}]) {{
  %low: f32[] = constant() {{value = dense<f32[]: -0.5>}}
  %high: f32[] = constant() {{value = dense<f32[]: 0.75>}}
  %v: {weight} = constant() {{value = dense<{weight}: [{numbers[0]}]>}}
  %w: {weight} = constant() {{value = dense<{weight}: [{numbers[1]}]>}}
  %z: {result} = conv(%x, %v, %b) {{{attrs}}}
  %c: {result} = conv(%x, %w, {"%b" if has_bias else "_"}) {{{attrs}}}
  %s: {result} = {"add(%z, %c)" if is_added else "sub(%c, %z)"}
  %y: {result} = {behind}
  return %y
}}
"""
    assert (".FusedConv" in written(text)) is is_added
