import capgraph
import numpy as np
import onnx
import pytest
from capgraph.executors.ort.faults import dims_to_watch, known_fault, wrong_optimizers
from capgraph.ir.builder import Builder
from capgraph.ir.dims import symbol
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from onnx import ModelProto

GRU = """graph @main(%x: f32[T, B, 3], %w: f32[1, 12, 3], %r: f32[1, 12, 4]) {
  %y: f32[T, 1, B, 4], %h: f32[1, B, 4] = gru(%x, %w, %r, _, _, _)
  return %h
}"""

ROWS = "graph @main(%x: f32[9, 2], %i: i64[5, 1], %u: f32[5, 2]) { %y: f32[9, 2] = scatter_nd(%x, %i, %u)"
DISTINCT = "%y: f16[u0, 2], %f: i64[u0], %i: i64[4], %c: i64[u0] = unique(%x) {axis = 0} return %y"
SORTED = "%y: f32[4], %i: i64[4] = sort(%x) return %y"
STFT = "%y: f32[1, 10, 5, 2] = stft(%x, _) {frame_step = 9, frame_length = 9} return %y"
CELL = "graph @main(%x: f32[*], %w: f32[1, 1, 1], %n: i32[1]) { %y: f32[*]"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("graph @main(%x: f64[2]) { %y: f64[2] = gelu(%x) return %y }", "f32"),
        (f'{ROWS} {{reduction = "add"}} return %y }}', "threads"),
        (f"{ROWS} return %y }}", ""),
        ("graph @main(%x: f32[2]) { %y: f32[2] = gelu(%x) return %y }", ""),
        ("graph @main(%x: bool[2]) { %y: string[2] = cast(%x) {to = string} return %y }", "0 and 1"),
        ("graph @main(%x: f32[2]) { %y: string[2] = cast(%x) {to = string} return %y }", ""),
        ("graph @main(%x: f32[2]) { %y: f8e8m0fnu[2] = cast(%x) {to = f8e8m0fnu} return %y }", "negative"),
        ("graph @main(%x: f32[2]) { %y: f8e5m2[2] = cast(%x) {to = f8e5m2} return %y }", ""),
        ("graph @main(%x: f32[0, 2], %y: f32[B, 2]) { %z: f32[B, 2] = concat(%x, %y) {axis = 0} return %z }", ""),
        ("graph @main(%x: f32[0, 2]) { %y: f32[0, 2] = relu(%x) return %y }", ""),
        ("graph @main(%x: f32[0, 2]) { %y: f32[1, 2] = reduce_sum(%x) {axes = [0]} return %y }", "without elements"),
        ("graph @main(%x: string[2, 3]) { %y: string[2, 3] = roll(%x) {axes = [0], shifts = [1]} return %y }", "strin"),
        ("graph @main(%x: f32[5, 1], %a: i64[]) { %y: f32[5, 2] = onnx.DFT(%x, _, %a) return %y }", "half of the"),
        ("graph @main(%x: string[*], %i: i64[2]) { %y: string[*] = onnx.Gather(%x, %i) return %y }", "first string"),
        ("graph @main(%x: f32[*], %i: i64[2]) { %y: f32[*] = onnx.Gather(%x, %i) return %y }", ""),
        ("graph @main(%x: f32[*], %s: f32[2]) { %y: f32[*] = onnx.Upsample(%x, %s) return %y }", "rounded sizes"),
        ("graph @main(%x: f32[*], %s: f32[2]) { %y: f32[*] = onnx.Resize(%x, _, %s) return %y }", "rounded sizes"),
        ("graph @main(%x: f32[5, 1], %a: i64[]) { %y: f32[5, 2] = onnx.Else(%x, _, %a) return %y }", ""),
        (
            "graph @main(%x: f32[1, 1, 2], %i: i64[1, 1, 2], %s: i64[3]) { "
            "%y: f32[1, 1, u0] = onnx.MaxUnpool(%x, %i, %s) return %y }",
            "counts the indices",
        ),
        (f"{CELL} = onnx.GRU(%x, %w, %w, _, %n, %w) return %y }}", "no step"),
        (f"{CELL} = onnx.RNN(%x, %w, %w, _, %n, %w) return %y }}", "no step"),
        (f"{CELL} = onnx.LSTM(%x, %w, %w, _, %n, _, %w) return %y }}", "no step"),
        (f"{CELL} = onnx.LSTM(%x, %w, %w, _, %n) return %y }}", ""),
        (f"{CELL} = onnx.LSTM(%x, %w, %w, _, _, %w) return %y }}", ""),
        (f"{CELL} = onnx.RNN(%x, %w, %w) {{activation_alpha = [0.5]}} return %y }}", "parameters"),
        ("graph @main(%x: bool[]) { %y: i64[0, u0] = non_zero(%x) return %y }", "scalar"),
        ("graph @main(%x: bool[*]) { %y: i64[u0, u1] = onnx.NonZero(%x) return %y }", "scalar"),
        ("graph @main(%x: f64[2, 3]) { %y: f64[2, 3] = log_softmax(%x) {axis = 1} return %y }", "NaN"),
        ("graph @main(%x: f32[2, 3]) { %y: f32[2, 3] = log_softmax(%x) {axis = 1} return %y }", ""),
        (
            "graph @main(%x: string[2]) { %y: string[2, u0], %n: i64[2] = onnx.StringSplit(%x) "
            '{delimiter = "."} return %y }',
            "empty string",
        ),
        (f"graph @main(%x: f32[4]) {{ {SORTED} }}", "NaN"),
        (f"graph @main(%x: f16[4, 2]) {{ {DISTINCT} }}", "NaN"),
        (f"graph @main(%x: i32[4, 2]) {{ {DISTINCT.replace('f16', 'i32')} }}", ""),
        (f"graph @main(%x: i32[4]) {{ {SORTED.replace('f32', 'i32')} }}", ""),
        ("graph @main(%x: f32[1, 9, 1]) { %y: f32[1, 9, 2] = dft(%x) {axis = 1} return %y }", "power of two"),
        (f"graph @main(%x: f32[1, 90, 1]) {{ {STFT} }}", "power of two"),
        ("graph @main(%x: f32[2, 3]) { %y: f32[2, 1] = reduce_max(%x) {axes = [1]} return %y }", ""),
        ("graph @main(%x: f16[2, 3]) { %y: i64[2, 1] = argmin(%x) {axis = 1} return %y }", "NaN"),
        ("graph @main(%x: i64[2, 3]) { %y: i64[2, 1] = reduce_min(%x) {axes = [1]} return %y }", ""),
        ("graph @main(%x: f32[2, 3], %y: f32[3, 4]) { %z: f32[2, 4] = matmul(%x, %y) return %z }", ""),
        ("graph @main(%x: f32[0, 3], %y: f32[3, 4]) { %z: f32[0, 4] = matmul(%x, %y) return %z }", ""),
        ("graph @main(%x: f32[2, 0], %y: f32[0, 4]) { %z: f32[2, 4] = matmul(%x, %y) return %z }", "without elements"),
    ],
)
def test_known_faults(text: str, fault: str) -> None:
    (node,) = parse(text).nodes
    assert fault in known_fault(node)
    assert bool(fault) is bool(known_fault(node))


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("dtype", ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"])
def test_every_half_becomes_the_eight_bits_that_it_means(dtype: str, saturate: bool) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    b = Builder()
    eight = b.op("cast", b.input("x", f"f16[{halves.size}]"), to=dtype, saturate=saturate)
    graph = b.finish({"y": b.op("cast", eight, to="f32")})
    found, expected = (
        capgraph.optimize(graph, level=0, executor=executor).run({"x": halves})["y"] for executor in ("ort", "eager")
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("given", "fault"), [(", activation_alpha = [0.5]", "parameters"), ("", "")])
def test_parameters_of_activations(given: str, fault: str) -> None:
    text = GRU.replace("_, _, _)", f'_, _, _) {{activations = ["HardSigmoid", "Tanh"]{given}}}')
    assert fault in known_fault(list(parse(text).nodes)[-1])


def test_sizes_of_recurrent_cells_are_watched() -> None:
    graph = parse(GRU)
    assert dims_to_watch(graph) == dict.fromkeys((symbol("T"), symbol("B")), next(iter(graph.nodes)))
    assert dims_to_watch(parse("graph @main(%x: f32[T]) { %y: f32[T] = relu(%x) return %y }")) == {}


def test_sizes_that_only_running_tells_keep_recurrent_cells_out() -> None:
    text = GRU.replace("%x: f32[T, B, 3]", "%s: f32[N, B, 3], %m: bool[N]").replace("T, 1", "u0, 1")
    graph = parse(text.replace(") {\n", ") {\n  %x: f32[u0, B, 3] = compress(%s, %m) {axis = 0}\n"))
    assert "only running tells" in known_fault(list(graph.nodes)[-1])
    assert set(dims_to_watch(graph)) == {symbol("N"), symbol("B")}


RECIPROCAL = """graph @main(%x: i64[4], %z: i64[4]) {
  %one: i64[] = constant() {value = dense<i64[]: 1>}
  %d: i64[4] = div(%one, %x)
  %y: i64[4] = mul(%d, %z)
  return %y
}"""


@pytest.mark.parametrize(("dtype", "names"), [("i64", ("DivMulFusion",)), ("i32", ("DivMulFusion",)), ("f32", ())])
def test_optimizers_that_are_wrong(dtype: str, names: tuple[str, ...]) -> None:
    graph = parse(RECIPROCAL.replace("i64", dtype).replace(": 1>", ": 1.0>" if dtype == "f32" else ": 1>"))
    assert wrong_optimizers(graph) == names


def test_a_reciprocal_keeps_the_axes_of_its_dividend() -> None:
    text = RECIPROCAL.replace("%d: i64[4]", "%d: i64[1, 4]").replace("%y: i64[4]", "%y: i64[1, 4]")
    graph = parse(
        text.replace("%one: i64[]", "%one: i64[1, 1]").replace("i64[]: 1", "i64[1, 1]: [1.0]").replace("i64", "f32")
    )
    with capgraph.optimize(graph, executor="ort", level=0) as program:
        assert program.run(dict.fromkeys("xz", np.ones(4, np.float32)))["y"].shape == (1, 4)


def test_optimizers_are_wrong_in_regions_too() -> None:
    assert wrong_optimizers(parse(BRANCHES)) == ("DivMulFusion",)


BRANCHES = """graph @main(%c: bool[], %x: i64[4]) {
  %y: i64[4] = if(%c, %x) {else_body = @same, then_body = @halves}
  return %y
}

graph @halves(%x: i64[4]) {
  %h: i64[4] = div(%x, %x)
  return %h
}

graph @same(%x: i64[4]) {
  return %x
}"""


@pytest.mark.parametrize(
    ("body", "fault"),
    [("%y: i64[0, u0] = non_zero(%x)", "scalar"), ("%y: f32[4], %i: i64[4] = sort(%x)", "")],
)
def test_faults_in_regions_but_those_of_digits_and_nan(body: str, fault: str) -> None:
    x, y = ("bool[]", "i64[0, u0]") if fault else ("f32[4]", "f32[4]")
    text = f"""graph @main(%c: bool[], %x: {x}) {{
      %y: {y} = if(%c, %x) {{else_body = @else, then_body = @then}}
      return %y
    }}
    graph @else(%x: {x}) {{ {body} return %y }}
    graph @then(%x: {x}) {{ {body} return %y }}"""
    assert fault in known_fault(next(iter(parse(text).nodes)))


@pytest.mark.parametrize("kind", ["average_pool", "lp_pool", "max_pool"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_windows_wider_than_all_that_there_is_give_nothing(kind: str, size: int) -> None:
    graph = parse(f"graph @main(%x: f32[1, 1, N]) {{ %y: f32[1, 1, (N - 1)//2] = {kind}(%x) {{{WINDOW}}} return %y }}")
    assert set(dims_to_watch(graph)) == {symbol("N"), next(iter(graph.nodes)).outputs[0].tensor.dims[2]}
    given = {"x": np.ones((1, 1, size), np.float32)}
    found, expected = (capgraph.optimize(graph, executor=executor).run(given)["y"] for executor in ("ort", "eager"))
    np.testing.assert_allclose(found, expected, strict=True)


WINDOW = "kernel = [3], strides = [2], pads = [0, 0], dilations = [1]"


def test_empty_operands_of_unique_are_watched_or_kept_out() -> None:
    told = parse(
        "graph @main(%x: f32[2, T]) { %y: f32[u0, T], %i: i64[u0], %v: i64[2], %n: i64[u0] = "
        "unique(%x) {axis = 0} return %y }"
    )
    assert list(dims_to_watch(told)) == [symbol("T")]
    assert "only running tells" in known_fault(list(parse(COMPRESSED).nodes)[-1])


COMPRESSED = """graph @main(%x: f32[2, N], %m: bool[N]) {
  %s: f32[2, u0] = compress(%x, %m) {axis = 1}
  %y: f32[u1, u0], %i: i64[u1], %v: i64[2], %n: i64[u1] = unique(%s) {axis = 0}
  return %y, %v
}"""


def test_nan_is_sorted_as_the_greatest() -> None:
    x = np.array([np.nan, np.inf, 2, np.nan, -np.inf, 1], np.float32)
    program = capgraph.optimize(parse(SORTED_6), executor="ort")
    assert np.array_equal(program.run({"x": x})["y"], np.sort(x), equal_nan=True)


@pytest.mark.parametrize("is_sorted", ["true", "false"])
def test_every_nan_is_one_distinct_element_and_no_other_number(is_sorted: str) -> None:
    x = np.array([2, np.nan, -0.0, 1, np.nan, 0.0, 2], np.float32)
    graph = parse(UNIQUE_7.replace("true", is_sorted))
    found, expected = (
        list(capgraph.optimize(graph, executor=each).run({"x": x}).values()) for each in ("ort", "eager")
    )
    assert np.isnan(found[0]).sum() == 1
    assert found[2].sum() == x.size
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


UNIQUE_7 = """graph @main(%x: f32[7]) {
  %y: f32[u0], %f: i64[u0], %i: i64[7], %c: i64[u0] = unique(%x) {sorted = true}
  return %y, %i, %c
}"""
SORTED_6 = "graph @main(%x: f32[6]) { %y: f32[6], %i: i64[6] = sort(%x) return %y }"


def test_a_long_transform_keeps_its_digits() -> None:
    x = np.random.default_rng(0).uniform(-9, 9, (2, 1000, 1)).astype(np.float32)
    program = capgraph.optimize(parse(SPECTRUM), executor="ort")
    exact = np.fft.rfft(x[..., 0].astype(np.float64))
    found = np.asarray(program.run({"x": x})["y"], np.float64)
    assert np.abs(found[..., 0] + 1j * found[..., 1] - exact).max() < 1e-6 * np.abs(exact).max()


SPECTRUM = "graph @main(%x: f32[2, 1000, 1]) { %y: f32[2, 501, 2] = dft(%x) {axis = 1, onesided = true} return %y }"


EXTREMES = """graph @main(%x: f32[2, 5]) {
  %most: f32[2] = reduce_max(%x) {axes = [1], keep_dims = false}
  %least: f32[2] = reduce_min(%x) {axes = [1], keep_dims = false}
  %first: i64[2] = argmax(%x) {axis = 1, keep_dims = false}
  %last: i64[2] = argmin(%x) {axis = 1, keep_dims = false}
  return %most, %least, %first, %last
}"""


def test_nan_is_the_greatest_and_the_least() -> None:
    x = np.array([[1, np.nan, 3, -4, np.nan], [1, 2, 3, -4, 5]], np.float32)
    found = capgraph.optimize(parse(EXTREMES), executor="ort").run({"x": x})
    assert np.array_equal(found["most"], np.float32([np.nan, 5]), equal_nan=True)
    assert np.array_equal(found["least"], np.float32([np.nan, -4]), equal_nan=True)
    assert found["first"].tolist() == [1, 4]
    assert found["last"].tolist() == [1, 3]


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_exponentials_with_nan_beside_infinity_have_no_logarithm_of_a_sum(dtype: str) -> None:
    text = "graph @main(%x: f32[5]) { %y: f32[] = reduce_log_sum_exp(%x) {axes = [0], keep_dims = false} return %y }"
    program = capgraph.optimize(parse(text.replace("f32", dtype)), executor="ort", strict=True)
    x = np.array([np.nan, np.inf, 3, -np.inf, 2], dtype.replace("f", "float"))
    for shift in range(5):
        assert np.isnan(program.run({"x": np.roll(x, shift)})["y"])
    assert program.run({"x": np.array([0, 0, -np.inf, -np.inf, 0], x.dtype)})["y"] == pytest.approx(np.log(3), rel=1e-3)


def test_nan_is_the_one_of_a_row() -> None:
    x = np.array([[1, np.nan, 3], [np.nan, 1, 2], [2, 1, 0]], np.float32)
    graph = parse("graph @main(%x: f32[3, 3]) { %y: f32[3, 3] = hardmax(%x) {axis = 1} return %y }")
    assert capgraph.optimize(graph, executor="ort").run({"x": x})["y"].tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0]]


GREATEST = """graph @main(%c: bool[], %x: f32[2, 3, N]) {
  %m: f32[2, 3, 1] = reduce_max(%x) {axes = [2]}
  %a: f32[] = reduce_min(%x) {axes = [0, 1, 2], keep_dims = false}
  %y: f32[2, 3, 1] = if(%c, %x, %m) {then_body = @then, else_body = @else}
  return %y, %a
}

graph @then(%x: f32[2, 3, N], %m: f32[2, 3, 1]) {
  %0: f32[2, 3, 1] = reduce_min(%x) {axes = [2]}
  return %0
}

graph @else(%x: f32[2, 3, N], %m: f32[2, 3, 1]) {
  return %m
}
"""


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_the_greatest_and_the_least_stay_in_the_session(dtype: str) -> None:
    program = capgraph.optimize(parse(GREATEST.replace("f32", dtype)), executor="ort", strict=True, level=0)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(DType(dtype).numpy)
    for value in (x[0, 0, 0], np.nan):
        x[0, 0, 0] = value
        for is_least, expected in ((True, x.min(2, keepdims=True)), (False, x.max(2, keepdims=True))):
            y, least = program.run({"c": np.array(is_least), "x": x}).values()
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(least, x.min())


@pytest.mark.parametrize("size", ["0", "K"])
def test_matmuls_over_nothing_are_zero(size: str) -> None:
    program = capgraph.optimize(parse(MATMUL.replace("K", size)), executor="ort")
    for _ in range(20):
        _ = np.full((2, 3, 4), 7, np.float32)  # memory that the next result may lie in
        found = program.run({"x": np.ones((2, 3, 0), np.float32), "y": np.ones((2, 4, 0), np.float32)})
        assert not np.any(found["z"])


MATMUL = """graph @main(%x: f32[2, 3, K], %y: f32[2, 4, K]) {
  %t: f32[2, K, 4] = transpose(%y) {perm = [0, 2, 1]}
  %z: f32[2, 3, 4] = matmul(%x, %t)
  return %z
}"""


@pytest.mark.parametrize("size", ["0", "K"])
@pytest.mark.parametrize(("dtype", "attrs"), [("f32", "{nan_rows = true}"), ("f64", "")])
def test_attention_of_heads_without_elements_is_a_mean(size: str, dtype: str, attrs: str) -> None:
    text = f"""graph @main(%q: {dtype}[2, 2, 3, {size}], %k: {dtype}[2, 2, 4, {size}], %v: {dtype}[2, 2, 4, 2]) {{
      %y: {dtype}[2, 2, 3, 2] = attention(%q, %k, %v, _, _) {attrs}
      return %y
    }}"""
    program = capgraph.optimize(parse(text), executor="ort")
    v = np.random.default_rng(0).random((2, 2, 4, 2)).astype(DType(dtype).numpy)
    empty = {"q": np.empty((2, 2, 3, 0), v.dtype), "k": np.empty((2, 2, 4, 0), v.dtype)}
    for _ in range(20):
        _ = np.full((2, 2, 3, 4), 7, v.dtype)  # memory that the next result may lie in
        found = program.run({**empty, "v": v})["y"]
        np.testing.assert_allclose(found, np.repeat(v.mean(2, keepdims=True), 3, 2), rtol=1e-6)


BY_VECTOR = """graph @main(%x: f32[3], %y: f32[3, 2]) {
  %t: f32[2, 3] = transpose(%y) {perm = [1, 0]}
  %z: f32[2] = matmul(%t, %x)
  return %z
}"""


def test_a_transposed_matrix_by_a_vector() -> None:
    assert wrong_optimizers(parse(BY_VECTOR)) == ("MatmulTransposeFusion",)
    assert wrong_optimizers(parse(MATMUL)) == ()
    x, y = np.array([1, 2, 3], np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    assert capgraph.optimize(parse(BY_VECTOR), executor="ort").run({"x": x, "y": y})["z"].tolist() == [16, 22]


def test_an_expand_to_nothing() -> None:
    graph = parse("""graph @main(%x: f32[1, N]) {
      %a: f32[1, N] = neg(%x)
      %b: f32[0, N] = expand(%a) {shape = [0, N]}
      %y: f32[0, N] = neg(%b)
      return %y
    }""")
    assert wrong_optimizers(graph) == ("ExpandElimination",)
    found = capgraph.optimize(graph, executor="ort").run({"x": np.ones((1, 3), np.float32)})["y"]
    assert found.shape == (0, 3)


QUANTIZED = """
  (int8[{shape}] x) => (int8[{out}] y)
  <float s = {{0.05}}, int8 z = {{0}}, {weight}, float[2] b = {{1.5, -2.25}}>
  {{ f = DequantizeLinear (x, s, z) {body} y = QuantizeLinear (p, s, z) }}
"""
MOVED = "t = Transpose (f) q = Gemm (t, w, b) p = Relu (q)"
PRODUCTS = (
    "p = Gemm (f, w, b)",
    "m = MatMul (f, w) p = Add (m, b)",
    "p = Conv (f, w, b)",
    "p = ConvTranspose (f, w, b)",
)


def quantized(weight: str, body: str) -> ModelProto:
    shape, out = ("2,2,1,1", "?,?,?,?") if "Conv" in body else ("2,2", "?,?")
    graph = onnx.parser.parse_graph("g " + QUANTIZED.format(shape=shape, out=out, weight=weight % shape, body=body))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("body", [*PRODUCTS, MOVED])
def test_float_weights_of_what_was_dequantized(body: str, level: int) -> None:
    model = quantized("float[%s] w = {1, 0.0001, 100.3, -4}", body)
    shape = (2, 2, 1, 1) if "Conv" in body else (2, 2)
    x = np.array([50, 0, 0, 1], np.int8).reshape(shape)
    eager, ort = (capgraph.optimize(model, executor=name, level=level).run({"x": x})["y"] for name in ("eager", "ort"))
    assert ort.tolist() == eager.tolist()  # in i8 the 1 is 0.79


@pytest.mark.parametrize("body", PRODUCTS)
@pytest.mark.parametrize(("scale", "names"), [("1e-3", ()), ("1e-8", ("WeightBiasQuantization",))])
def test_a_bias_beyond_i32_in_steps_of_the_scales(scale: str, names: tuple[str, ...], body: str) -> None:
    weight = f"int8[%s] v = {{1, 2, 3, 4}}, float t = {{{scale}}}"
    model = quantized(weight, "w = DequantizeLinear (v, t, z) " + body)
    program = capgraph.optimize(model, executor="ort")
    assert wrong_optimizers(program.graph) == names
    x = np.ones((2, 2, 1, 1) if "Conv" in body else (2, 2), np.int8)
    assert program.run({"x": x})["y"].ravel().tolist() == [30, -45, 30, -45]


RECTIFIED = """<ir_version: 10, opset_import: ["" : 25]> g (float[SHAPE] x, int64[1] n) => (float[?] y)
<float s = {0.5}, TYPE z = {ZERO}> { r = Relu (MADE) q = QuantizeLinear (r, s, z) y = Cast <to: int = 1> (q) }"""


@pytest.mark.parametrize("made", ["x", "Reshape (x, n)"])
@pytest.mark.parametrize(
    ("dtype", "zero", "is_kept"),
    [
        *(("uint4", 9, True), ("int4", 0, True), ("uint2", 1, True), ("int2", 0, True), ("float8e4m3fn", 0, True)),
        *(("uint8", 0, False), ("int8", -128, False), ("uint8", 9, False), ("uint16", 9, False), ("int16", 0, False)),
    ],
)
def test_a_relu_before_a_zero_point_above_the_least(dtype: str, zero: int, is_kept: bool, made: str) -> None:
    text = RECTIFIED.replace("TYPE", dtype).replace("ZERO", str(zero))
    if made == "x":
        text = text.replace("SHAPE", "3").replace("MADE", "x")
    else:  # of a shape that only running tells
        text = text.replace("SHAPE", "?").replace("r = Relu (MADE)", f"m = {made} r = Relu (m)")
    program = capgraph.optimize(onnx.parser.parse_model(text), executor="ort")
    assert wrong_optimizers(program.graph) == (("ReluQuantRewrite",) if is_kept else ())
    x = np.array([-3, 0, 0.5], np.float32)
    assert program.run({"x": x, "n": np.array([3])})["y"].tolist() == [zero, zero, zero + 1]


PADDED = """graph @main(%x: f32[1, 1, H, 4]) {
  %p: f32[1, 1, H + 2, 6] = pad(%x, _) {pads = [0, 0, 1, 1, 0, 0, 1, 1]}
  %y: f32[1, 1, H//2 + 1, 3] = max_pool(%p) {kernel = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]}
  return %y
}"""


def test_padding_by_zero_before_a_pool_of_negative_numbers() -> None:
    graph = parse(PADDED)
    assert wrong_optimizers(graph) == ("Pad_Fusion",)
    found = capgraph.optimize(graph, executor="ort").run({"x": np.full((1, 1, 4, 4), -1, np.float32)})["y"]
    assert found.reshape(3, 3).tolist() == [[0, 0, 0], [0, -1, 0], [0, 0, 0]]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("size", "scale", "fault"), [(5, 0.5, "rounded size"), (4, 0.5, ""), (5, 1.5, "rounded size"), (5, 2, "")]
)
def test_aligned_corners(mode: str, size: int, scale: float, fault: str) -> None:
    b = Builder()
    attrs = {"mode": mode, "coordinate_mode": "align_corners", "axes": [1], "scales": [scale]}
    y = b.op("resize", b.input("x", f"f32[1, {size}]"), None, sizes=[int(size * scale)], **attrs)
    graph = b.finish({"y": y})
    assert fault in known_fault(list(graph.nodes)[-1])
    x = np.arange(size, dtype=np.float32)[None] ** 2
    found, expected = (capgraph.optimize(graph, executor=executor).run({"x": x})["y"] for executor in ("ort", "eager"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_indices_count_in_the_sizes_of_the_pool() -> None:
    b = Builder()
    operands = (b.input("x", "f32[1, 1, 2]"), b.input("i", "i64[1, 1, 2]"))
    for sizes in ([5], None):
        y = b.op("max_unpool", *operands, kernel=[2], strides=[2], pads=[0, 0], sizes=sizes)
        assert bool(known_fault(y.producer)) is (sizes is not None)


UNPOOLED = """graph @main(%x: f32[1, 1, 2, 2], %i: i64[1, 1, 2, 2]) {
  %y: f32[1, 1, 5, 5] = max_unpool(%x, %i) {kernel = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], sizes = [5, 5]}
  return %y
}"""


def test_larger_sizes_of_an_unpooling() -> None:
    feeds = {"x": np.array([[[[1, 2], [3, 4]]]], np.float32), "i": np.array([[[[5, 7], [13, 15]]]])}
    found = capgraph.optimize(parse(UNPOOLED), executor="ort").run(feeds)["y"][0, 0]
    expected = np.zeros((5, 5), np.float32)
    expected[1, 1], expected[1, 3], expected[3, 1], expected[3, 3] = 1, 2, 3, 4
    np.testing.assert_array_equal(found, expected)


BITS = """graph @main(%x: f32[2]) {
  %c: f32[2] = constant() {value = dense<f32[2]: [0.0, 0.0]>}
  %y: f32[2] = add(%x, %c)
  %z: i32[2] = bit_cast(%y) {to = i32}
  return %z
}"""


def test_the_sign_of_a_zero_whose_bits_are_read() -> None:
    graph = parse(BITS)
    assert wrong_optimizers(graph) == ("NoopElimination",)
    found = capgraph.optimize(graph, executor="ort").run({"x": np.array([-0.0, 0.0], np.float32)})["z"]
    assert found.tolist() == [0, 0]


@pytest.mark.parametrize("keys", ["4", "4*(H//4)"])
def test_heads_that_keys_cannot_share_are_watched(keys: str) -> None:
    graph = parse(
        f"""graph @main(%q: f32[2, H, 3, 8], %k: f32[2, {keys}, 5, 8]) {{
          %y: f32[2, H, 3, 8] = attention(%q, %k, %k, _, _)
          return %y
        }}"""
    )
    program = capgraph.optimize(graph, executor="ort", level=0)
    q, k = (np.ones((2, heads, steps, 8), np.float32) for heads, steps in ((8, 3), (4 if keys == "4" else 8, 5)))
    assert program.run({"q": q, "k": k})["y"].shape == (2, 8, 3, 8)
    with pytest.raises(capgraph.CapgraphError):
        program.run({"q": q[:, :1], "k": k if keys == "4" else k[:, :0]})


def test_a_reshape_to_another_number_of_elements_stays_out() -> None:
    graph = parse(
        """graph @main(%x: f32[4, y, 3]) {
          %a: f32[4, y//4, 3] = slice(%x) {axes = [1], starts = [0], ends = [y//4], steps = [1]}
          %b: f32[y, 3] = reshape(%a) {shape = [y, 3]}
          return %b
        }"""
    )
    program = capgraph.optimize(graph, executor="ort", level=0)
    assert program.run({"x": np.ones((4, 8, 3), np.float32)})["b"].shape == (8, 3)
    with pytest.raises(capgraph.ExecutionError, match="reshape"):
        program.run({"x": np.ones((4, 1, 3), np.float32)})
