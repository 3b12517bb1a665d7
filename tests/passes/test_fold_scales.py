"""Constant factors and addends go into weights, directly and through reshapes and transposes."""

from textwrap import dedent

import numpy as np
import pytest
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.passes.catalog import level_pipeline
from capgraph.passes.fold.fold_scales import FoldScales
from capgraph.passes.framework.pipeline import Pipeline
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.checking import check_pass

CONV = "{strides = [1], pads = [0, 0], dilations = [1], groups = 1}"
PADDED = "{strides = [1], pads = [1, 0], dilations = [1], groups = 1}"
GEMM = "{alpha = 1.0, beta = 1.0, trans_a = false, trans_b = false}"


def test_factor_and_addend_after_a_convolution() -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f32[N, 1, T]) {{
          %w = constant() {{value = dense<f32[2, 1, 1]: [1.0, 2.0]>}}
          %b = constant() {{value = dense<f32[2]: [1.0, 2.0]>}}
          %s = constant() {{value = dense<f32[2, 1]: [3.0, 0.5]>}}
          %t = constant() {{value = dense<f32[1, 2, 1]: [1.0, 7.0]>}}
          %y = conv(%x, %w, %b) {PADDED}
          %m = mul(%s, %y)
          %z = sub(%m, %t)
          return %z
        }}""",
        f"""
        graph @main(%x: f32[N, 1, T]) {{
          %w = constant() {{value = dense<f32[2, 1, 1]: [3.0, 1.0]>}}
          %b = constant() {{value = dense<f32[2]: [2.0, -6.0]>}}
          %z = conv(%x, %w, %b) {PADDED}
          return %z
        }}""",
    )


def test_factor_and_addend_before_a_convolution() -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f32[N, 2, T]) {{
          %w = constant() {{value = dense<f32[1, 2, 1]: [1.0, 2.0]>}}
          %s = constant() {{value = dense<f32[2, 1]: [2.0, 4.0]>}}
          %t = constant() {{value = dense<f32[2, 1]: [1.0, 7.0]>}}
          %d = div(%x, %s)
          %m = sub(%d, %t)
          %z = conv(%m, %w, _) {CONV}
          return %z
        }}""",
        f"""
        graph @main(%x: f32[N, 2, T]) {{
          %w = constant() {{value = dense<f32[1, 2, 1]: [0.5, 0.5]>}}
          %b = constant() {{value = dense<f32[1]: [-15.0]>}}
          %z = conv(%x, %w, %b) {CONV}
          return %z
        }}""",
    )


def test_a_factor_goes_through_a_bias_and_the_shapes_of_heads() -> None:
    check_pass(
        FoldScales(),
        """
        graph @main(%x: f32[B, T, 2]) {
          %w = constant() {value = dense<f32[2, 4]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>}
          %b = constant() {value = dense<f32[4]: [1.0, 2.0, 3.0, 4.0]>}
          %s = constant() {value = dense<f32[2, 1, 2]: [1.0, 2.0, 10.0, 20.0]>}
          %y = matmul(%x, %w)
          %a = add(%y, %b)
          %r = reshape(%a) {shape = [B, T, 2, 2]}
          %h = transpose(%r) {perm = [0, 2, 1, 3]}
          %z = mul(%h, %s)
          return %z
        }""",
        """
        graph @main(%x: f32[B, T, 2]) {
          %w = constant() {value = dense<f32[2, 4]: [1.0, 4.0, 30.0, 80.0, 5.0, 12.0, 70.0, 160.0]>}
          %y = matmul(%x, %w)
          %b = constant() {value = dense<f32[4]: [1.0, 4.0, 30.0, 80.0]>}
          %a = add(%y, %b)
          %r = reshape(%a) {shape = [B, T, 2, 2]}
          %z = transpose(%r) {perm = [0, 2, 1, 3]}
          return %z
        }""",
    )


def test_a_scalar_goes_through_a_matmul_of_two_values_into_one_of_them() -> None:
    check_pass(
        FoldScales(),
        """
        graph @main(%x: f32[B, T, 2], %k: f32[B, 1, T]) {
          %w = constant() {value = dense<f32[2, 1]: [1.0, 2.0]>}
          %half = constant() {value = dense<f32[]: 0.5>}
          %q = matmul(%x, %w)
          %scores = matmul(%q, %k)
          %z = mul(%scores, %half)
          return %z
        }""",
        """
        graph @main(%x: f32[B, T, 2], %k: f32[B, 1, T]) {
          %w = constant() {value = dense<f32[2, 1]: [0.5, 1.0]>}
          %q = matmul(%x, %w)
          %z = matmul(%q, %k)
          return %z
        }""",
    )


def test_into_the_parameters_of_a_norm() -> None:
    check_pass(
        FoldScales(),
        """
        graph @main(%x: f32[B, 2]) {
          %g = constant() {value = dense<f32[2]: [1.0, 2.0]>}
          %b = constant() {value = dense<f32[2]: [3.0, 4.0]>}
          %s = constant() {value = dense<f32[2]: [2.0, 10.0]>}
          %n = layer_norm(%x, %g, %b) {axis = -1, epsilon = 0.5}
          %z = mul(%n, %s)
          return %z
        }""",
        """
        graph @main(%x: f32[B, 2]) {
          %g = constant() {value = dense<f32[2]: [2.0, 20.0]>}
          %b = constant() {value = dense<f32[2]: [6.0, 40.0]>}
          %z = layer_norm(%x, %g, %b) {axis = -1, epsilon = 0.5}
          return %z
        }""",
    )


def test_gemm_takes_a_scalar_into_alpha_and_columns_into_its_weight() -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f32[B, 1], %w: f32[1, 2]) {{
          %c = constant() {{value = dense<f32[2]: [1.0, 2.0]>}}
          %v = constant() {{value = dense<f32[1, 2]: [1.0, 2.0]>}}
          %two = constant() {{value = dense<f32[]: 2.0>}}
          %s = constant() {{value = dense<f32[2]: [3.0, 4.0]>}}
          %a = gemm(%x, %w, %c) {GEMM}
          %p = mul(%a, %two)
          %b = gemm(%x, %v, _) {GEMM}
          %q = mul(%b, %s)
          return %p, %q
        }}""",
        """
        graph @main(%x: f32[B, 1], %w: f32[1, 2]) {
          %c = constant() {value = dense<f32[1, 2]: [2.0, 4.0]>}
          %p = gemm(%x, %w, %c) {alpha = 2.0, beta = 1.0, trans_a = false, trans_b = false}
          %v = constant() {value = dense<f32[1, 2]: [3.0, 8.0]>}
          %q = gemm(%x, %v, _) {alpha = 1.0, beta = 1.0, trans_a = false, trans_b = false}
          return %p, %q
        }""",
    )


def test_chains_of_constants_join() -> None:
    check_pass(
        FoldScales(),
        """
        graph @main(%x: f32[B, 2]) {
          %a = constant() {value = dense<f32[2]: [1.0, 2.0]>}
          %b = constant() {value = dense<f32[]: 4.0>}
          %p = add(%x, %a)
          %q = sub(%p, %b)
          %r = mul(%q, %a)
          %s = div(%r, %b)
          return %s
        }""",
        """
        graph @main(%x: f32[B, 2]) {
          %a = constant() {value = dense<f32[2]: [-3.0, -2.0]>}
          %q = add(%x, %a)
          %b = constant() {value = dense<f32[2]: [0.25, 0.5]>}
          %s = mul(%q, %b)
          return %s
        }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        # The padding would not be shifted.
        f"%m = add(%x, %s)\n %z = conv(%m, %w, _) {PADDED}\n return %z",
        # The unscaled result is read as well.
        f"%m = conv(%x, %w, _) {CONV}\n %z = mul(%m, %s)\n return %z, %m",
        # A factor that grows the value is no factor of channels.
        f"%m = conv(%x, %w, _) {CONV}\n %z = mul(%m, %large)\n return %z",
        # Rows of the result, not channels.
        f"%m = conv(%x, %w, _) {CONV}\n %z = mul(%m, %rows)\n return %z",
        # Division of the constant is something else.
        f"%m = conv(%x, %w, _) {CONV}\n %z = div(%s, %m)\n return %z",
        # An infinite factor would make zeros of the weight into NaN.
        f"%m = conv(%x, %w, _) {CONV}\n %z = mul(%m, %endless)\n return %z",
        # The weight belongs to two convolutions.
        f"%m = conv(%x, %w, _) {CONV}\n %n = conv(%m, %w, _) {CONV}\n %z = mul(%n, %s)\n return %z",
        # An activation stands in between.
        f"%m = conv(%x, %w, _) {CONV}\n %n = sigmoid(%m)\n %z = mul(%n, %s)\n return %z",
    ],
)
def test_stays(body: str) -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f32[1, 2, 3]) {{
          %w = constant() {{value = dense<f32[2, 2, 1]: [1.0, 0.0, 3.0, 4.0]>}}
          %s = constant() {{value = dense<f32[2, 1]: [3.0, 0.5]>}}
          %large = constant() {{value = dense<f32[2, 1, 1]: [3.0, 0.5]>}}
          %rows = constant() {{value = dense<f32[3]: [3.0, 0.5, 1.0]>}}
          %endless = constant() {{value = dense<f32[]: inf>}}
          {body}
        }}""",
        None,
    )


def test_division_by_a_constant_is_multiplication_where_the_constant_has_an_inverse() -> None:
    check_pass(
        FoldScales(),
        """
        graph @main(%x: f32[B, 2]) {
          %c = constant() {value = dense<f32[2]: [4.0, -8.0]>}
          %z = constant() {value = dense<f32[2]: [0.0, 2.0]>}
          %tiny = constant() {value = dense<f32[]: 1e38>}
          %a = div(%x, %c)
          %b = div(%x, %z)
          %d = div(%x, %tiny)
          return %a, %b, %d
        }""",
        """
        graph @main(%x: f32[B, 2]) {
          %z = constant() {value = dense<f32[2]: [0.0, 2.0]>}
          %tiny = constant() {value = dense<f32[]: 1e38>}
          %c = constant() {value = dense<f32[2]: [0.25, -0.125]>}
          %a = mul(%x, %c)
          %b = div(%x, %z)
          %d = div(%x, %tiny)
          return %a, %b, %d
        }""",
    )


def folded(graph: Graph, each: FoldScales) -> Graph:
    Pipeline(((each,),)).run(graph)
    return graph


SEVENTHS = """
    graph @main(%x: f32[B]) {
      %c = constant() {value = dense<f32[]: 7.0>}
      %y = div(%x, %c)
      return %y
    }"""


def test_an_inverse_that_is_rounded_takes_the_place_of_no_division_unless_asked_for() -> None:
    check_pass(FoldScales(), SEVENTHS, None)
    made = folded(parse(dedent(SEVENTHS)), FoldScales(rounds_inverses=True))
    assert [node.op.name for node in made.nodes if node.operands] == ["mul"]


@pytest.mark.parametrize(
    "body",
    [
        "%z = div(%x, %seven)",
        "%a = mul(%x, %two) %z = div(%a, %fourteen)",
        "%a = div(%x, %seven) %z = mul(%a, %three)",
        "%a = div(%x, %two) %b = div(%a, %fourteen) %z = mul(%b, %three)",
        "%a = mul(%x, %two) %b = sub(%a, %fourteen) %z = div(%b, %seven)",
    ],
)
@pytest.mark.parametrize(("level", "is_exact"), [(1, True), (2, True), (3, False)])
def test_whole_quotients_stay_whole_below_level_3(level: int, is_exact: bool, body: str) -> None:
    numbers = 28 * np.arange(-3_000, 3_000, dtype=np.float32)
    numbered = {"two": 2.0, "three": 3.0, "seven": 7.0, "fourteen": 14.0}
    constants = "".join(f"%{name} = constant() {{value = dense<f32[]: {of}>}}\n" for name, of in numbered.items())
    made = parse(f"graph @main(%x: f32[B]) {{\n{constants}{body.replace(') %', ')' + chr(10) + '%')}\nreturn %z\n}}")
    (exact,) = evaluate_graph(made, [numbers])
    level_pipeline(level).run(made)
    (found,) = evaluate_graph(made, [numbers])
    assert (found == np.round(found)).all() == is_exact
    np.testing.assert_allclose(found, exact, rtol=1e-6)


@given(st.integers(-100, 100), st.sampled_from([1.0, -1.0]), st.lists(st.floats(-1e6, 1e6, width=32), max_size=20))
def test_division_by_a_power_of_two_moves_no_bit(exponent: int, sign: float, numbers: list[float]) -> None:
    made = parse(dedent(SEVENTHS.replace("7.0", repr(sign * 2.0**exponent))))
    x = np.array(numbers, np.float32)
    (before,) = evaluate_graph(made, [x])
    folded(made, FoldScales())
    assert [node.op.name for node in made.nodes if node.operands] == ["mul"]
    (after,) = evaluate_graph(made, [x])
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(("dtype", "number"), [("f16", 1e-3), ("bf16", 1e-30), ("f32", 1e-30), ("f64", 1e-200)])
@pytest.mark.parametrize(
    "body",
    [
        "%a = mul(%x, %c) %z = mul(%a, %c)",
        "%a = mul(%x, %c) %z = mul(%a, %columns)",
        "%a = matmul(%x, %w) %z = mul(%a, %c)",
        "%a = mul(%x, %c) %z = matmul(%a, %w)",
        "%a = matmul(%v, %x) %z = mul(%a, %c)",
        f"%a = gemm(%x, %w, _) {GEMM} %z = mul(%a, %columns)",
        f"%a = mul(%x, %c) %z = gemm(%a, %w, _) {GEMM}",
        "%a = rms_norm(%x, %columns) {axis = -1, epsilon = 0.5} %z = mul(%a, %c)",
    ],
)
def test_factors_whose_product_has_fewer_digits_stay(dtype: str, number: float, body: str) -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: {dtype}[2, 2]) {{
          %c = constant() {{value = dense<{dtype}[]: {number}>}}
          %columns = constant() {{value = dense<{dtype}[2]: [{number}, {number}]>}}
          %w = constant() {{value = dense<{dtype}[2, 2]: [{number}, 0.0, 0.0, {number}]>}}
          %v = constant() {{value = dense<{dtype}[2, 2]: [{number}, 0.0, 0.0, {number}]>}}
          {body}
          return %z
        }}""",
        None,
    )


def test_convolutions_keep_the_digits_of_their_weights() -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f16[1, 1, T]) {{
          %w = constant() {{value = dense<f16[1, 1, 1]: [1e-4]>}}
          %c = constant() {{value = dense<f16[]: 1e-3>}}
          %y = conv(%x, %w, _) {CONV}
          %a = mul(%y, %c)
          %v = constant() {{value = dense<f16[1, 1, 1]: [1e-4]>}}
          %b = sigmoid(%a)
          %s = mul(%b, %c)
          %z = conv(%s, %v, _) {CONV}
          return %z
        }}""",
        None,
    )


def test_an_addend_stays_where_the_bias_that_it_makes_would_overflow() -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f16[1, 1, T]) {{
          %w = constant() {{value = dense<f16[1, 1, 1]: [10.0]>}}
          %c = constant() {{value = dense<f16[]: 30000.0>}}
          %y = add(%x, %c)
          %z = conv(%y, %w, _) {CONV}
          return %z
        }}""",
        None,
        numeric=False,  # on drawn inputs, around 0, the results overflow
    )


def test_small_weights_may_lose_digits_beside_larger_ones() -> None:
    """In the first matmul each sum has a large weight; in the second a whole column vanishes beside the other."""
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f16[B, 2]) {{
          %half = constant() {{value = dense<f16[]: 0.5>}}
          %w = constant() {{value = dense<f16[2, 2]: [{2**-10}, {2**-10}, {2**-20}, {2**-10}]>}}
          %v = constant() {{value = dense<f16[2, 2]: [0.5, {2**-20}, 1.0, {2**-19}]>}}
          %a = matmul(%x, %w)
          %p = mul(%a, %half)
          %b = matmul(%x, %v)
          %q = mul(%b, %half)
          return %p, %q
        }}""",
        f"""
        graph @main(%x: f16[B, 2]) {{
          %w = constant() {{value = dense<f16[2, 2]: [{2**-11}, {2**-11}, {2**-21}, {2**-11}]>}}
          %p = matmul(%x, %w)
          %v = constant() {{value = dense<f16[2, 2]: [0.25, {2**-21}, 0.5, {2**-20}]>}}
          %q = matmul(%x, %v)
          return %p, %q
        }}""",
    )


@pytest.mark.parametrize("matmul", ["matmul(%a, %w)", f"gemm(%a, %w, _) {GEMM}"])
def test_each_input_that_has_a_factor_keeps_the_digits_of_its_weights(matmul: str) -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: f32[B, 2]) {{
          %c = constant() {{value = dense<f32[2]: [1e-30, 1.0]>}}
          %w = constant() {{value = dense<f32[2, 2]: [1e-10, 1e-10, 1e-10, 1e-10]>}}
          %a = mul(%x, %c)
          %z = {matmul}
          return %z
        }}""",
        None,
    )


@pytest.mark.parametrize(("dtype", "alpha", "factor"), [("f32", 1e-30, 1e-30), ("f32", 1e30, 1e30), ("f64", 1.0, 0.1)])
def test_a_gemm_keeps_a_factor_that_is_no_f32_number_outside(dtype: str, alpha: float, factor: float) -> None:
    check_pass(
        FoldScales(),
        f"""
        graph @main(%x: {dtype}[2, 2], %w: {dtype}[2, 2]) {{
          %c = constant() {{value = dense<{dtype}[]: {factor}>}}
          %y = gemm(%x, %w, _) {{alpha = {alpha}, beta = 1.0, trans_a = false, trans_b = false}}
          %z = mul(%y, %c)
          return %z
        }}""",
        None,
    )


@pytest.mark.parametrize("line", ["%y = add(%x, %c)", "%y = add(%c, %x)", "%y = sub(%x, %c)"])
def test_an_addend_of_zero_goes_and_the_sign_of_a_zero_with_it(line: str) -> None:
    constant = "%c = constant() {value = dense<f32[2]: [0.0, 0.0]>}"
    check_pass(
        FoldScales(),
        f"graph @main(%x: f32[B, 2]) {{\n {constant}\n {line}\n return %y\n}}",
        "graph @main(%x: f32[B, 2]) {\n return %x as y\n}",
    )
    check_pass(FoldScales(), f"graph @main(%x: f32[1, 1]) {{\n {constant}\n {line}\n return %y\n}}", None)


def test_an_addend_of_zero_stays_where_bits_are_read() -> None:
    check_pass(
        FoldScales(),
        """
        graph @main(%x: f32[B, 2]) {
          %c = constant() {value = dense<f32[2]: [0.0, 0.0]>}
          %y = add(%x, %c)
          %z = bit_cast(%y) {to = i32}
          return %z
        }""",
        None,
    )
