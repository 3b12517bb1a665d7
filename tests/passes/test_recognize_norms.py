"""Composed normalizations become one op, with the casts, scale and bias around them; near misses stay."""

import pytest
from capgraph.passes.recognize.recognize_norms import RecognizeNorms

from tests.passes.checking import check_pass

ROOTS = {
    "sqrt and div": "%r: f32[B, T, 1] = sqrt(%e)\n  %n: f32[B, T, 6] = div(%d, %r)",
    "rsqrt": "%r: f32[B, T, 1] = rsqrt(%e)\n  %n: f32[B, T, 6] = mul(%d, %r)",
    "sqrt and reciprocal": "%q: f32[B, T, 1] = sqrt(%e)\n  %r: f32[B, T, 1] = reciprocal(%q)\n"
    "  %n: f32[B, T, 6] = mul(%r, %d)",
    "one over sqrt": "%one: f32[] = constant() {value = dense<f32[]: 1.0>}\n  %q: f32[B, T, 1] = sqrt(%e)\n"
    "  %r: f32[B, T, 1] = div(%one, %q)\n  %n: f32[B, T, 6] = mul(%d, %r)",
    "a power": "%h: f32[] = constant() {value = dense<f32[]: -0.5>}\n  %r: f32[B, T, 1] = pow(%e, %h)\n"
    "  %n: f32[B, T, 6] = mul(%d, %r)",
    "a root as power": "%h: f32[] = constant() {value = dense<f32[]: 0.5>}\n  %r: f32[B, T, 1] = pow(%e, %h)\n"
    "  %n: f32[B, T, 6] = div(%d, %r)",
}
SQUARES = {
    "pow": "%two: f32[] = constant() {value = dense<f32[]: 2.0>}\n  %s: f32[B, T, 6] = pow(%d, %two)",
    "mul": "%s: f32[B, T, 6] = mul(%d, %d)",
}
EPSILON = "%eps: f32[] = constant() {value = dense<f32[]: 0.00001>}"


@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
@pytest.mark.parametrize("square", SQUARES.values(), ids=SQUARES)
def test_layer_norm_with_scale_and_bias(square, root):
    before = f"""
        graph @main(%x: f32[B, T, 6], %w: f32[6], %b: f32[6]) {{
          %m: f32[B, T, 1] = reduce_mean(%x) {{axes = [-1]}}
          %d: f32[B, T, 6] = sub(%x, %m)
          {square}
          %v: f32[B, T, 1] = reduce_mean(%s) {{axes = [2]}}
          {EPSILON}
          %e: f32[B, T, 1] = add(%v, %eps)
          {root}
          %p: f32[B, T, 6] = mul(%n, %w)
          %y: f32[B, T, 6] = add(%p, %b)
          return %y
        }}
    """
    after = """
        graph @main(%x: f32[B, T, 6], %w: f32[6], %b: f32[6]) {
          %y: f32[B, T, 6] = layer_norm(%x, %w, %b) {axis = -1, epsilon = 1e-05}
          return %y
        }
    """
    check_pass(RecognizeNorms(), before, after)


@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
@pytest.mark.parametrize("square", SQUARES.values(), ids=SQUARES)
def test_rms_norm_with_the_scale_on_the_left(square, root):
    before = f"""
        graph @main(%d: f32[B, T, 6], %w: f32[6]) {{
          {square}
          %v: f32[B, T, 1] = reduce_mean(%s) {{axes = [2]}}
          {EPSILON}
          %e: f32[B, T, 1] = add(%v, %eps)
          {root}
          %y: f32[B, T, 6] = mul(%w, %n)
          return %y
        }}
    """
    after = """
        graph @main(%d: f32[B, T, 6], %w: f32[6]) {
          %y: f32[B, T, 6] = rms_norm(%d, %w) {axis = -1, epsilon = 1e-05}
          return %y
        }
    """
    check_pass(RecognizeNorms(), before, after)


def test_rms_norm_of_a_half_precision_llama():
    before = f"""
        graph @main(%x: f16[B, 6], %w: f16[6]) {{
          %d: f32[B, 6] = cast(%x) {{to = f32}}
          %two: f32[] = constant() {{value = dense<f32[]: 2.0>}}
          %s: f32[B, 6] = pow(%d, %two)
          %v: f32[B, 1] = reduce_mean(%s) {{axes = [1]}}
          {EPSILON}
          %e: f32[B, 1] = add(%v, %eps)
          %r: f32[B, 1] = rsqrt(%e)
          %n: f32[B, 6] = mul(%d, %r)
          %h: f16[B, 6] = cast(%n) {{to = f16}}
          %y: f16[B, 6] = mul(%w, %h)
          return %y
        }}
    """
    after = """
        graph @main(%x: f16[B, 6], %w: f16[6]) {
          %y: f16[B, 6] = rms_norm(%x, %w) {axis = -1, epsilon = 1e-05}
          return %y
        }
    """
    check_pass(RecognizeNorms(), before, after)


def test_a_core_over_the_image_with_a_scale_for_each_channel_is_instance_norm():
    before = """
        graph @main(%x: f32[B, 4, H, W], %w: f32[1, 4, 1, 1], %b: f32[4, 1, 1]) {
          %n: f32[B, 4, H, W] = layer_norm(%x, _, _) {axis = 2}
          %p: f32[B, 4, H, W] = mul(%n, %w)
          %y: f32[B, 4, H, W] = add(%p, %b)
          return %y
        }
    """
    after = """
        graph @main(%x: f32[B, 4, H, W], %w: f32[1, 4, 1, 1], %b: f32[4, 1, 1]) {
          %c: f32[4] = reshape(%w) {shape = [4]}
          %d: f32[4] = reshape(%b) {shape = [4]}
          %y: f32[B, 4, H, W] = instance_norm(%x, %c, %d)
          return %y
        }
    """
    check_pass(RecognizeNorms(), before, after)


INSTANCE = """
          %one: f32[2] = constant() {value = dense<f32[2]: [1.0, 1.0]>}
          %zero: f32[2] = constant() {value = dense<f32[2]: [0.0, 0.0]>}
          %n: f32[B, 2, 10*H] = instance_norm(%g, %one, %zero)
"""


@pytest.mark.parametrize(
    "core", [INSTANCE, "%n: f32[B, 2, 10*H] = layer_norm(%g, _, _) {axis = 2}"], ids=["instance", "own"]
)
def test_group_norm_as_a_norm_of_reshaped_groups(core):
    before = f"""
        graph @main(%x: f32[B, 4, H, 5], %w: f32[4, 1, 1], %b: f32[4, 1, 1]) {{
          %g: f32[B, 2, 10*H] = reshape(%x) {{shape = [B, 2, 10*H]}}
          {core}
          %r: f32[B, 4, H, 5] = reshape(%n) {{shape = [B, 4, H, 5]}}
          %p: f32[B, 4, H, 5] = mul(%r, %w)
          %y: f32[B, 4, H, 5] = add(%p, %b)
          return %y
        }}
    """
    after = """
        graph @main(%x: f32[B, 4, H, 5], %w: f32[4, 1, 1], %b: f32[4, 1, 1]) {
          %c: f32[4] = reshape(%w) {shape = [4]}
          %d: f32[4] = reshape(%b) {shape = [4]}
          %y: f32[B, 4, H, 5] = group_norm(%x, %c, %d) {groups = 2}
          return %y
        }
    """
    check_pass(RecognizeNorms(), before, after)


GROUPS_AND_BACK = f"""
          %g: f32[B, 2, 10*H] = reshape(%x) {{shape = [B, 2, 10*H]}}
          {INSTANCE}
          %r: f32[B, 4, H, 5] = reshape(%n) {{shape = [B, 4, H, 5]}}
"""


def test_group_norm_without_a_scale():
    """torch writes a scale of ones where there is none, which canonicalize drops."""
    before = f"""
        graph @main(%x: f32[B, 4, H, 5], %b: f32[4, 1, 1]) {{
          {GROUPS_AND_BACK}
          %y: f32[B, 4, H, 5] = add(%r, %b)
          return %y
        }}
    """
    after = """
        graph @main(%x: f32[B, 4, H, 5], %b: f32[4, 1, 1]) {
          %d: f32[4] = reshape(%b) {shape = [4]}
          %c: f32[4] = constant() {value = dense<f32[4]: [1.0, 1.0, 1.0, 1.0]>}
          %y: f32[B, 4, H, 5] = group_norm(%x, %c, %d) {groups = 2}
          return %y
        }
    """
    check_pass(RecognizeNorms(), before, after)


def test_group_norm_with_one_number_for_all_channels():
    """torch's old exporter adds a zero of three axes where there is no bias."""
    before = f"""
        graph @main(%x: f32[B, 4, H, 5]) {{
          {GROUPS_AND_BACK}
          %b: f32[1, 1, 1] = constant() {{value = dense<f32[1, 1, 1]: [0.0]>}}
          %y: f32[B, 4, H, 5] = add(%r, %b)
          return %y
        }}
    """
    after = """
        graph @main(%x: f32[B, 4, H, 5]) {
          %b: f32[1, 1, 1] = constant() {value = dense<f32[1, 1, 1]: [0.0]>}
          %e: f32[1] = reshape(%b) {shape = [1]}
          %d: f32[4] = expand(%e) {shape = [4]}
          %c: f32[4] = constant() {value = dense<f32[4]: [1.0, 1.0, 1.0, 1.0]>}
          %y: f32[B, 4, H, 5] = group_norm(%x, %c, %d) {groups = 2}
          return %y
        }
    """
    check_pass(RecognizeNorms(), before, after)


@pytest.mark.parametrize("bias", ["f32[B, 4, H, 5]", "f32[5]", "f32[4, 1, 5]", "f32[H, 1]"])
def test_what_is_added_to_groups_other_than_by_channel_is_no_bias(bias):
    text = f"""
        graph @main(%x: f32[B, 4, H, 5], %b: {bias}) {{
          {GROUPS_AND_BACK}
          %y: f32[B, 4, H, 5] = add(%r, %b)
          return %y
        }}
    """
    check_pass(RecognizeNorms(), text, None)


@pytest.mark.parametrize(
    "lines",
    [
        # not the last axis
        "%s: f32[B, T, 6] = mul(%x, %x)\n  %v: f32[B, 1, 6] = reduce_mean(%s) {axes = [1]}\n"
        "  %e: f32[B, 1, 6] = add(%v, %eps)\n  %r: f32[B, 1, 6] = sqrt(%e)\n  %y: f32[B, T, 6] = div(%x, %r)",
        # a sum instead of a mean
        "%s: f32[B, T, 6] = mul(%x, %x)\n  %v: f32[B, T, 1] = reduce_sum(%s) {axes = [2]}\n"
        "  %e: f32[B, T, 1] = add(%v, %eps)\n  %r: f32[B, T, 1] = sqrt(%e)\n  %y: f32[B, T, 6] = div(%x, %r)",
        # a scale that varies along axes that are not normalized
        "%z: f32[B, T, 6] = rms_norm(%x, _)\n  %y: f32[B, T, 6] = mul(%z, %x)",
    ],
)
def test_near_misses_stay(lines):
    text = f"graph @main(%x: f32[B, T, 6]) {{\n  {EPSILON}\n  {lines}\n  return %y\n}}\n"
    check_pass(RecognizeNorms(), text, None)


@pytest.mark.parametrize("epsilon", ["-inf", "inf", "nan", "-0.5"])
def test_an_epsilon_is_a_number_that_keeps_the_root_away_from_zero(epsilon):
    text = f"""
        graph @main(%x: f32[B, T, 6]) {{
          %s: f32[B, T, 6] = mul(%x, %x)
          %v: f32[B, T, 1] = reduce_mean(%s) {{axes = [2]}}
          %eps: f32[] = constant() {{value = dense<f32[]: {epsilon}>}}
          %e: f32[B, T, 1] = add(%v, %eps)
          %r: f32[B, T, 1] = rsqrt(%e)
          %y: f32[B, T, 6] = mul(%x, %r)
          return %y
        }}
    """
    check_pass(RecognizeNorms(), text, None)


def test_no_channels_are_no_groups():
    text = """
        graph @main(%x: f32[B, 0, H, 5], %w: f32[0, 1, 1], %b: f32[0, 1, 1]) {
          %g: f32[B, 0, H, 5] = reshape(%x) {shape = [B, 0, H, 5]}
          %n: f32[B, 0, H, 5] = layer_norm(%g, _, _) {axis = 2}
          %r: f32[B, 0, H, 5] = reshape(%n) {shape = [B, 0, H, 5]}
          %p: f32[B, 0, H, 5] = mul(%r, %w)
          %y: f32[B, 0, H, 5] = add(%p, %b)
          return %y
        }
    """
    check_pass(RecognizeNorms(), text, None)


def test_an_exponent_that_stretches_the_square_is_none():
    text = """
        graph @main(%x: f32[1]) {
          %two = constant() {value = dense<f32[5, 1]: [2.0, 2.0, 2.0, 2.0, 2.0]>}
          %s = pow(%x, %two)
          %v = reduce_mean(%s) {axes = [0, 1]}
          %eps = constant() {value = dense<f32[]: 0.125>}
          %e = add(%v, %eps)
          %r = sqrt(%e)
          %y = div(%x, %r)
          return %y
        }
    """
    check_pass(RecognizeNorms(), text, None)


def test_a_core_that_others_read_keeps_its_scale_apart():
    text = """
        graph @main(%x: f32[B, 6], %w: f32[6]) {
          %n: f32[B, 6] = rms_norm(%x, _)
          %y: f32[B, 6] = mul(%n, %w)
          return %n, %y
        }
    """
    check_pass(RecognizeNorms(), text, None)


def test_a_bias_of_zero_is_none():
    check_pass(
        RecognizeNorms(),
        """
        graph @main(%x: f32[B, 2], %w: f32[2]) {
          %b = constant() {value = dense<f32[2]: [0.0, -0.0]>}
          %y = layer_norm(%x, %w, %b) {axis = -1, epsilon = 1e-05}
          return %y
        }
        """,
        """
        graph @main(%x: f32[B, 2], %w: f32[2]) {
          %y = layer_norm(%x, %w, _) {axis = -1, epsilon = 1e-05}
          return %y
        }
        """,
    )
