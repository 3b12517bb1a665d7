"""Products of bytes: exact in a session, whether or not the processor's kernels saturate."""

from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.executors.ort import session as module
from capgraph.executors.ort.session import Session, saturates
from capgraph.frontends.onnx.exporting.saturation import saturated, without_saturation
from capgraph.frontends.onnx.foreign.meaning import run_foreign
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Value
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = st.sampled_from((np.uint8, np.int8))
LONGEST = 258
"""Products of as many bytes are exact in f32 too, in which ONNX Runtime computes what it does not join."""


@pytest.fixture(autouse=True, params=[True, False], ids=["unsigned", "as-found"])
def _unsigned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test with operands written as u8, and as this processor needs it."""
    if request.param:
        monkeypatch.setattr(module, "saturates", lambda: True)


class Drawn:
    """A graph of one product in the making, whose quantized operands are constants or inputs."""

    def __init__(self, seed: int, *, edges: bool) -> None:
        self.b = Builder()
        self.feeds: list[Any] = []
        self._generator = np.random.default_rng(seed)
        self._edges = edges

    def numbers(self, dtype: Any, *shape: int) -> Any:
        """Of the whole range, or its two ends alone."""
        limits = np.iinfo(dtype)
        if self._edges:
            return self._generator.choice(np.array([limits.min, limits.max], dtype), shape)
        return self._generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)

    def given(self, array: Any) -> Value:
        self.feeds.append(array)
        return self.b.input(f"x{len(self.feeds)}", str(DType.of(array.dtype)) + str(list(array.shape)))

    def value(self, array: Any, *, known: bool) -> Value:
        return self.b.constant(array) if known else self.given(array)

    def check(self, exact: Any, result: Value) -> None:
        graph = self.b.finish([result])
        names = [value.name for value in graph.inputs]
        program = capgraph.optimize(graph, executor="ort")
        (found,) = program.run(dict(zip(names, self.feeds, strict=True))).values()
        np.testing.assert_array_equal(found, exact)


def quantized(exact: Any, scale: float, dtype: Any) -> Any:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(exact * scale) + 3, limits.min, limits.max).astype(dtype)


def convolved(x: Any, weight: Any, groups: int) -> Any:
    """A convolution of integers with windows of 3 by 3 and a border of one zero."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    parts = zip(np.split(windows, groups, 1), np.split(weight, groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", *part) for part in parts], 1)


CASES = {
    "left": DTYPES,
    "right": DTYPES,
    "known": st.booleans(),
    "zeros": st.sampled_from(("none", "scalar", "vector")),
    "edges": st.booleans(),
    "seed": st.integers(0, 99),
}
"""What both kinds of product are drawn from."""


def drawn_zeros(drawn: Drawn, kind: str, left: Any, right: Any, columns: int) -> tuple[Any, Any]:
    """Zero points of both operands, those of the right one maybe for each column; ONNX Runtime's Conv wants one."""
    if kind == "none":
        return np.zeros((), left), np.zeros((), right)
    return drawn.numbers(left), drawn.numbers(right, *((columns,) if kind == "vector" else ()))


@settings(deadline=None, max_examples=60)
@given(
    form=st.sampled_from(("integer", "qlinear", "chain", "matmul", "gemm")),
    rows=st.sampled_from((1, 2, 7)),
    inner=st.sampled_from((1, 2, 5, 64, LONGEST)),
    columns=st.sampled_from((1, 3, 16, 33)),
    **CASES,
)
def test_a_matmul_is_exact(
    form: str,
    rows: int,
    inner: int,
    columns: int,
    left: Any,
    right: Any,
    known: bool,
    zeros: str,
    edges: bool,
    seed: int,
) -> None:
    drawn = Drawn(seed, edges=edges)
    b, one = drawn.b, np.float32(1)
    x, w = drawn.numbers(left, rows, inner), drawn.numbers(right, inner, columns)
    x_zero, w_zero = drawn_zeros(drawn, zeros, left, right, columns)
    exact = (x.astype(np.int64) - x_zero) @ (w.astype(np.int64) - w_zero)
    scale = 2.0 ** -np.ceil(np.log2(max(np.abs(exact).max() / 100, 1)))
    xs, ws = drawn.given(x), drawn.value(w, known=known)
    absent = zeros == "none" and form != "qlinear"
    z = [None if absent else drawn.value(each, known=known) for each in (x_zero, w_zero)]
    scales = [b.constant(one), b.constant(np.full(w_zero.shape, one))]
    to_y = (b.constant(np.float32(1 / scale)), b.constant(left(3)))
    if form == "integer":
        drawn.check(exact, b.op("matmul_integer", xs, ws, *z))
    elif form == "chain":
        product = b.op("cast", b.op("matmul_integer", xs, ws, *z), to="f32")
        drawn.check(
            (exact * 2 + 1).astype(np.float32), b.op("add", b.op("mul", product, b.constant(2 * one)), scales[0])
        )
    elif form == "qlinear":
        y = b.op("qlinear_matmul", xs, scales[0], z[0], ws, scales[1], z[1], *to_y)
        drawn.check(quantized(exact, scale, left), y)
    else:
        floats = [dequantized(b, *each) for each in zip((xs, ws), scales, z, strict=True)]
        plain = {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": False}
        y = b.op("matmul", *floats) if form == "matmul" else b.op("gemm", *floats, None, **plain)
        drawn.check(quantized(exact, scale, left), b.op("quantize_linear", y, *to_y, to=DType.of(np.dtype(left))))


def dequantized(b: Builder, x: Value, scale: Value, zero: Value | None, axis: int = 1) -> Value:
    return b.op("dequantize_linear", x, scale, zero, to="f32", axis=axis)


@settings(deadline=None, max_examples=60)
@given(
    form=st.sampled_from(("integer", "qlinear", "dequantized")),
    channels=st.sampled_from((1, 2, 4, 28)),
    groups=st.sampled_from((1, 2)),
    **CASES,
)
def test_a_convolution_is_exact(
    form: str, channels: int, groups: int, left: Any, right: Any, known: bool, zeros: str, edges: bool, seed: int
) -> None:
    groups = min(groups, channels)
    drawn = Drawn(seed, edges=edges)
    b, one, made = drawn.b, np.float32(1), 6
    x, w = drawn.numbers(left, 2, channels, 5, 4), drawn.numbers(right, made, channels // groups, 3, 3)
    x_zero, w_zero = drawn_zeros(drawn, zeros, left, right, made)
    exact = convolved(x.astype(np.int64) - x_zero, w.astype(np.int64) - w_zero.reshape(-1, 1, 1, 1), groups)
    scale = 2.0 ** -np.ceil(np.log2(max(np.abs(exact).max() / 100, 1)))
    xs, ws = drawn.given(x), drawn.value(w, known=known)
    absent = zeros == "none" and form != "qlinear"
    z = [None if absent else drawn.value(each, known=known) for each in (x_zero, w_zero)]
    scales = [b.constant(one), b.constant(np.full(w_zero.shape, one))]
    to_y = (b.constant(np.float32(1 / scale)), b.constant(left(3)))
    attrs = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1], "groups": groups}
    if form == "integer":
        drawn.check(exact, b.op("conv_integer", xs, ws, *z, **attrs))
    elif form == "qlinear":
        y = b.op("qlinear_conv", xs, scales[0], z[0], ws, scales[1], z[1], *to_y, None, **attrs)
        drawn.check(quantized(exact, scale, left), y)
    else:
        y = b.op(
            "conv", *(dequantized(b, *each, axis=0) for each in zip((xs, ws), scales, z, strict=True)), None, **attrs
        )
        drawn.check(quantized(exact, scale, left), b.op("quantize_linear", y, *to_y, to=DType.of(np.dtype(left))))


DEQUANTIZED = """graph @main(%x: u8[2, 3], %w: i8[3, 4], %s: f32[], %t: f32[4]) {
  %z: i8[4] = constant() {value = dense<i8[4]: [-128, 0, 5, 127]>}
  %a: f32[2, 3] = dequantize_linear(%x, %s, _) {to = f32}
  %b: f32[3, 4] = dequantize_linear(%w, %t, %z) {to = f32}
  %y: f32[2, 4] = matmul(%a, %b)
  return %y
}"""
QUANTIZED = """graph @main(%x: u8[2, 3], %w: f32[3, 4], %s: f32[], %t: f32[4]) {
  %q: i8[3, 4] = quantize_linear(%w, %t, _) {to = i8}
  %b: f32[3, 4] = dequantize_linear(%q, %t, _) {to = f32}
  %v: f32[4, 3] = transpose(%b) {perm = [1, 0]}
  %m: f32[3, 4] = reshape(%v) {shape = [3, 4]}
  %a: f32[2, 3] = dequantize_linear(%x, %s, _) {to = f32}
  %y: f32[2, 4] = matmul(%a, %m)
  return %y, %q
}"""
SHARED = """graph @main(%c: bool[], %x: u8[2, 3]) {
  %w: i8[3, 4] = constant() {value = dense<i8[3, 4]: [-128, 127, 127, 1, 0, -1, 127, 127, -128, 5, 6, 7]>}
  %y: i32[2, 4] = matmul_integer(%x, %w, _, _)
  %z: i32[2, 4] = if(%c, %x, %w) {else_body = @none, then_body = @once}
  return %y, %z
}
graph @none(%x: u8[2, 3], %w: i8[3, 4]) {
  %n: i32[2, 4] = constant() {value = dense<i32[2, 4]: [0, 0, 0, 0, 0, 0, 0, 0]>}
  return %n
}
graph @once(%x: u8[2, 3], %w: i8[3, 4]) {
  %z: i32[2, 4] = matmul_integer(%x, %w, _, _)
  return %z
}"""


def extremes(graph: Graph) -> list[Any]:
    drawn = Drawn(5, edges=True)
    floats = np.random.default_rng(5)
    return [
        np.ones((), bool)
        if value.tensor.dtype is DType.BOOL
        else floats.uniform(0.1, 9, value.tensor.shape).astype(np.float32)
        if value.tensor.dtype.is_float
        else drawn.numbers(value.tensor.dtype.numpy, *(value.tensor.shape or ()))
        for value in graph.inputs
    ]


@pytest.mark.parametrize("text", [DEQUANTIZED, DEQUANTIZED.replace("%z)", "_)"), QUANTIZED, SHARED])
def test_the_other_bytes_mean_the_same(text: str) -> None:
    graph = parse(text)
    inputs = extremes(graph)
    made = without_saturation(graph)
    assert saturated(graph)
    assert not saturated(made)
    for found, expected in zip(evaluate_graph(made, inputs), evaluate_graph(graph, inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(Session(graph).run(inputs), evaluate_graph(graph, inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_is_quantized_here_is_quantized_as_u8() -> None:
    made = without_saturation(parse(QUANTIZED))
    types = [str(node.output.tensor.dtype) for node in made.nodes if node.op.name == "quantize_linear"]
    assert types == ["i8", "u8"]  # the first is an output
    assert not any(node.op.name == "bitwise_xor" for node in made.nodes)


MATMUL = "graph @main(%x: u8[2, 3], %w: i8[3, 4]) { %y: i32[2, 4] = matmul_integer(%x, %w, _, _) return %y }"
WEIGHTS = """graph @main(%x: f32[2, 3], %w: i8[3, 4], %s: f32[]) {
  %b: f32[3, 4] = dequantize_linear(%w, %s, _) {to = f32}
  %y: f32[2, 4] = matmul(%x, %b)
  return %y
}"""


@pytest.mark.parametrize(
    "text",
    [
        MATMUL.replace("i8[", "u8["),
        MATMUL.replace("u8[", "i8["),
        MATMUL.replace("u8", "i16").replace("i8", "u8").replace("i16", "i8"),
        WEIGHTS,
        MATMUL.replace("matmul_integer(%x, %w, _, _)", "com.microsoft.QGemm(%x) {opset_version = 1}"),
        MATMUL.replace("matmul_integer(%x, %w, _, _)", "onnx.Conv(%x)"),
        DEQUANTIZED.replace("%x: u8", "%x: i8").replace("i8[3, 4]", "u8[3, 4]").replace("%z)", "_)"),
    ],
)
def test_other_matmuls_stay_as_they_are(text: str) -> None:
    graph = parse(text)
    assert without_saturation(graph) is graph


def test_matmuls_stay_where_no_kernel_saturates(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_graph: Graph) -> Graph:
        raise AssertionError

    monkeypatch.setattr(module, "without_saturation", refused)
    monkeypatch.setattr(module, "saturates", lambda: False)
    Session(parse(MATMUL))
    monkeypatch.setattr(module, "saturates", lambda: True)
    with pytest.raises(AssertionError):
        Session(parse(MATMUL))


def test_the_processor_is_asked() -> None:
    session = module.opened(
        parse(MATMUL.replace("3]", "64]").replace("[3", "[64")), module._options(1), ["CPUExecutionProvider"]
    )
    x, w = np.full((2, 64), 255, np.uint8), np.full((64, 4), -128, np.int8)
    is_exact = (session.run(None, {"x": x, "w": w})[0] == 64 * 255 * -128).all()
    assert saturates() != is_exact


@pytest.mark.parametrize(
    ("operator", "left", "operands"),
    [
        ("DynamicQuantizeMatMul", "f32[2, 64]", "%x, %w, %t, _"),
        ("DynamicQuantizeMatMul", "f32[2, 64]", "%x, %w, %t, %z"),
        ("MatMulIntegerToFloat", "u8[2, 64]", "%x, %w, %s, %t, _, _"),
        ("MatMulIntegerToFloat", "u8[2, 64]", "%x, %w, %s, %t, _, %z"),
        ("QGemm", "u8[2, 64]", "%x, %s, %o, %w, %t, %z"),
    ],
)
def test_operators_of_onnx_runtime_are_exact(operator: str, left: str, operands: str) -> None:
    graph = parse(f"""graph @main(%x: {left}, %w: i8[64, 16], %s: f32[], %t: f32[16], %o: u8[], %z: i8[16]) {{
      %y: f32[2, 16] = com.microsoft.{operator}({operands}) {{opset_version = 1}}
      return %y
    }}""")
    drawn = Drawn(3, edges=False)
    x, w, z = drawn.numbers(np.uint8, 2, 64), drawn.numbers(np.int8, 64, 16), drawn.numbers(np.int8, 16)
    x[:, :2] = 0, 255  # the range by which it is quantized
    scales = np.ones((), np.float32), np.full(16, 2, np.float32)
    inputs = [x.astype(np.float32) if left.startswith("f32") else x, w, *scales, np.zeros((), np.uint8), z]
    exact = x.astype(int) @ (w.astype(int) - (z if "%z" in operands else 0)) * 2
    np.testing.assert_array_equal(Session(graph).run(inputs)[0], exact)
    node, known = next(iter(graph.nodes)), dict(zip(graph.inputs, inputs, strict=True))
    alone = run_foreign(node, [None if value is None else known[value] for value in node.inputs])
    np.testing.assert_array_equal(alone[0], exact)


@pytest.mark.parametrize(
    ("types", "product"), [("%x: u8, %w: i8", "MatMulInteger(%x, %w)"), ("%w: u8, %x: i8", "ConvInteger(%x, %w)")]
)
def test_operators_of_unknown_ranks_are_exact(types: str, product: str) -> None:
    graph = parse(f"""graph @main({types.replace("8", "8[*]")}) {{
      %y: i32[*] = onnx.{product} {{opset_version = 10}}
      return %y
    }}""")
    ones = (np.full((1, 64, 1, 1), np.iinfo(each.tensor.dtype.numpy).max) for each in graph.inputs)
    inputs = [each.astype(value.tensor.dtype.numpy) for each, value in zip(ones, graph.inputs, strict=True)]
    if "MatMul" in product:
        inputs = [inputs[0].reshape(1, 64), inputs[1].reshape(64, 1)]
    assert Session(graph).run(inputs)[0].item() == 64 * 255 * 127
