"""Pairs of quantizing and dequantizing cancel where every number comes back; dequantizing moves down."""

import pytest
from capgraph.ir.text.parser import parse
from capgraph.passes.cleanup.redundancy import FoldConstants
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.quantize.clean_up_quantization import CleanUpQuantization
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.checking import check_pass
from tests.passes.semantics import broken_promises

SCALE = "%s = constant() {value = dense<f32[]: 0.1>} %z = constant() {value = dense<i8[]: 3>}"


def check(body: str, after: str | None, signature: str = "%q: i8[4, 6]") -> None:
    def text(lines: str) -> str:
        return f"graph @main({signature}) {{ {lines} return %y }}"

    check_pass(CleanUpQuantization(), text(body), None if after is None else text(after))


def test_a_pair_cancels() -> None:
    check_pass(
        CleanUpQuantization(),
        f"""graph @main(%q: i8[4, 6]) {{ {SCALE}
          %x = dequantize_linear(%q, %s, %z) {{to = f32}}
          %r = quantize_linear(%x, %s, %z) {{to = i8}}
          %y = neg(%r)
          return %y }}""",
        "graph @main(%q: i8[4, 6]) { %y = neg(%q) return %y }",
    )


def test_a_pair_with_a_scale_for_each_channel_cancels() -> None:
    scales = (
        "%s = constant() {value = dense<f32[2]: [0.1, 7.0e-3]>} %t = constant() {value = dense<f32[2]: [0.1, 7.0e-3]>}"
    )
    check(
        f"""{scales} %x = dequantize_linear(%q, %s, _) {{to = f32, axis = 0}}
        %r = quantize_linear(%x, %t, _) {{to = u8, axis = 0}} %y = max(%r, %q)""",
        "%y = max(%q, %q)",
        "%q: u8[2, 3]",
    )


@pytest.mark.parametrize(
    ("first", "second", "to", "dtype"),
    [
        ("0.1", "0.2", "f32", "u8"),  # another scale
        ("1.0e-40", "1.0e-40", "f16", "u8"),  # nothing is left of the numbers
        ("0.1", "0.1", "bf16", "u16"),  # too few bits on the way
        ("0.0", "0.0", "f32", "u8"),
    ],
)
def test_a_pair_that_does_not_give_back_every_number_stays(first: str, second: str, to: str, dtype: str) -> None:
    check(
        f"""%s = constant() {{value = dense<f32[]: {first}>}} %t = constant() {{value = dense<f32[]: {second}>}}
        %x = dequantize_linear(%q, %s, _) {{to = {to}}} %y = quantize_linear(%x, %t, _) {{to = {dtype}}}""",
        None,
        f"%q: {dtype}[4]",
    )


@pytest.mark.parametrize("second", ["axis = 1", "axis = 0"])
def test_a_pair_along_different_axes_stays(second: str) -> None:
    constant = "%s = constant() {value = dense<f32[2]: [0.1, 7.0]>}"
    body = f"""{constant} %x = dequantize_linear(%q, %s, _) {{to = f32, axis = 0}}
        %r = quantize_linear(%x, %s, _) {{to = u8, {second}}} %y = neg(%x) %z = max(%r, %q)"""
    after = (
        None
        if second == "axis = 1"
        else (f"{constant} %x = dequantize_linear(%q, %s, _) {{to = f32, axis = 0}} %y = neg(%x) %z = max(%q, %q)")
    )

    def text(lines: str) -> str:
        return f"graph @main(%q: u8[2, 2]) {{ {lines} return %y, %z }}"

    check_pass(CleanUpQuantization(), text(body), None if after is None else text(after))


def test_a_pair_with_scales_of_the_run_stays() -> None:
    check(
        "%x = dequantize_linear(%q, %s, _) {to = f32} %y = quantize_linear(%x, %s, _) {to = i8}",
        None,
        "%q: i8[4], %s: f32[]",
    )


@pytest.mark.parametrize(
    "op",
    [
        "reshape({}) {{shape = [3, 8]}}",
        "transpose({}) {{perm = [1, 0]}}",
        "unsqueeze({}) {{axes = [0]}}",
        "slice({}) {{axes = [1], starts = [1], ends = [4], steps = [1]}}",
        "gather({}, %i) {{axis = 0}}",
    ],
)
def test_dequantizing_moves_past_what_only_moves_elements(op: str) -> None:
    check(
        f"%x = dequantize_linear(%q, %s, _) {{to = f32}} %y = {op.format('%x')}",
        f"%x = {op.format('%q')} %y = dequantize_linear(%x, %s, _) {{to = f32}}",
        "%q: i8[4, 6], %s: f32[1], %i: i64[2]",
    )


def test_views_between_a_pair_are_of_the_quantized_numbers() -> None:
    check(
        f"""{SCALE} %x = dequantize_linear(%q, %s, %z) {{to = f32}} %a = reshape(%x) {{shape = [2, 12]}}
        %b = transpose(%a) {{perm = [1, 0]}} %y = quantize_linear(%b, %s, %z) {{to = i8}}""",
        "%a = reshape(%q) {shape = [2, 12]} %y = transpose(%a) {perm = [1, 0]}",
    )


def test_parts_are_joined_first() -> None:
    constants = "%s = constant() {value = dense<f32[]: 0.1>}"
    check(
        f"""{constants} %t = constant() {{value = dense<f32[]: 0.1>}} %a = dequantize_linear(%q, %s, _) {{to = f32}}
        %b = dequantize_linear(%r, %t, _) {{to = f32}} %y = concat(%a, %b) {{axis = 0}}""",
        f"{constants} %c = concat(%q, %r) {{axis = 0}} %y = dequantize_linear(%c, %s, _) {{to = f32}}",
        "%q: i8[2], %r: i8[3]",
    )


def test_a_part_may_be_there_twice() -> None:
    check(
        "%a = dequantize_linear(%q, %s, _) {to = f32} %y = concat(%a, %a) {axis = 0}",
        "%a = concat(%q, %q) {axis = 0} %y = dequantize_linear(%a, %s, _) {to = f32}",
        "%q: i8[2], %s: f32[]",
    )


def test_the_greatest_number_is_found_among_the_quantized() -> None:
    pool = "max_pool({}) {{kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1]}}"
    scale = "%s = constant() {value = dense<f32[]: 0.1>}"
    check(
        f"{scale} %x = dequantize_linear(%q, %s, _) {{to = f32}} %y = {pool.format('%x')}",
        f"{scale} %x = {pool.format('%q')} %y = dequantize_linear(%x, %s, _) {{to = f32}}",
        "%q: u8[1, 2, 6, 6]",
    )


def test_relu_of_numbers_from_the_zero_point_on_goes() -> None:
    constants = "%s = constant() {value = dense<f32[]: 0.1>} %z = constant() {value = dense<i8[]: -128>}"
    back = "dequantize_linear(%q, %s, %z) {to = f32}"
    check(f"{constants} %x = {back} %y = relu(%x)", f"{constants} %y = {back}")


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        # scales of channels, which the op moves to another axis
        ("%x = dequantize_linear(%q, %s, _) {to = f32} %y = transpose(%x) {perm = [1, 0]}", "%q: i8[2, 3], %s: f32[3]"),
        # another reader: the node would be there twice
        (
            "%x = dequantize_linear(%q, %s, _) {to = f32} %a = reshape(%x) {shape = [6]}"
            " %b = reduce_sum(%x) {axes = [0, 1]} %y = add(%a, %b)",
            "%q: i8[2, 3], %s: f32[]",
        ),
        # another reader of one of the parts
        (
            "%a = dequantize_linear(%q, %s, _) {to = f32} %b = neg(%a) %y = concat(%a, %a, %b) {axis = 0}",
            "%q: i8[2], %s: f32[]",
        ),
        # the other part has another scale
        (
            "%i = dequantize_linear(%q, %s, _) {to = f32} %a = dequantize_linear(%r, %t, _) {to = f32}"
            " %y = concat(%i, %a) {axis = 0}",
            "%q: i8[2], %r: i8[2], %s: f32[], %t: f32[]",
        ),
        # the scale may be negative
        (
            "%x = dequantize_linear(%q, %s, _) {to = f32}"
            " %y = max_pool(%x) {kernel = [2], strides = [1], pads = [0, 0], dilations = [1]}",
            "%q: i8[1, 1, 4], %s: f32[]",
        ),
        # a window of padding only
        (
            "%s = constant() {value = dense<f32[]: 0.1>} %x = dequantize_linear(%q, %s, _) {to = f32}"
            " %y = max_pool(%x) {kernel = [2], strides = [1], pads = [2, 2], dilations = [1]}",
            "%q: i8[1, 1, 4]",
        ),
        (
            "%s = constant() {value = dense<f32[]: 0.1>} %x = dequantize_linear(%q, %s, _) {to = f32} %y = relu(%x)",
            "%q: i8[4]",
        ),
        ("%x = dequantize_linear(%q, %s, _) {to = f32} %y = reshape(%x) {shape = [4]}", "%q: i4[2, 2], %s: f32[]"),
    ],
)
def test_dequantizing_stays(body: str, signature: str) -> None:
    check(body, None, signature)


def test_quantized_weights_are_not_written_out_in_full() -> None:
    text = """
    graph @main(%x: f32[2]) {
      %q = constant() {value = dense<i8[2]: [1, -3]>}
      %s = constant() {value = dense<f32[]: 0.5>}
      %w = dequantize_linear(%q, %s, _) {to = f32}
      %y = mul(%x, %w)
      return %y
    }"""
    check_pass(FoldConstants(), text, None)


def test_weights_that_are_quantized_in_the_graph_get_small() -> None:
    check_pass(
        FoldConstants(),
        """
        graph @main(%x: f32[2]) {
          %w = constant() {value = dense<f32[2]: [0.5, -1.5]>}
          %s = constant() {value = dense<f32[]: 0.5>}
          %q = quantize_linear(%w, %s, _) {to = i8}
          %d = dequantize_linear(%q, %s, _) {to = f32}
          %y = mul(%x, %d)
          return %y
        }""",
        """
        graph @main(%x: f32[2]) {
          %s = constant() {value = dense<f32[]: 0.5>}
          %q = constant() {value = dense<i8[2]: [1, -3]>}
          %d = dequantize_linear(%q, %s, _) {to = f32}
          %y = mul(%x, %d)
          return %y
        }""",
    )


STEPS = {
    "pair": "%{0}q = quantize_linear(%{1}, %s, %z) {{to = u8}} %{0} = dequantize_linear(%{0}q, %s, %z) {{to = f32}}",
    "twice": "%{0}q = quantize_linear(%{1}, %r, %z) {{to = u8}} %{0} = dequantize_linear(%{0}q, %r, %z) {{to = f32}}",
    "flip": "%{0} = transpose(%{1}) {{perm = [0, 1, 3, 2]}}",
    "shape": "%{0} = reshape(%{1}) {{shape = [1, 2, 4, 4]}}",
    "relu": "%{0} = relu(%{1})",
    "join": "%{0}j = concat(%{1}, %{1}) {{axis = 0}} %{0} = slice(%{0}j) {{axes = [0], starts = [1], ends = [2], "
    "steps = [1]}}",
    "pool": "%{0} = max_pool(%{1}) {{kernel = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]}}",
    "again": "%{0} = add(%{1}, %{1})",
}


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=10), st.sampled_from([0, 7]), st.integers(0, 99))
def test_chains_of_quantized_operators_keep_their_meaning(steps: list[str], zero: int, seed: int) -> None:
    lines = [
        "%s = constant() {value = dense<f32[]: 0.1>}",
        "%r = constant() {value = dense<f32[]: 0.3>}",
        f"%z = constant() {{value = dense<u8[]: {zero}>}}",
    ]
    lines += [STEPS[step].format(f"v{at + 1}", f"v{at}") for at, step in enumerate(steps)]
    text = "\n".join(["graph @main(%v0: f32[1, 2, 4, 4]) {", *lines, f"%y = neg(%v{len(steps)}) return %y", "}"])
    assert broken_promises(parse(text), seed, {"clean-up": Pipeline(((CleanUpQuantization(),),))}) == {}
