from textwrap import dedent

import numpy as np
import pytest
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.padding import mask_padding, real_size_input

from tests.passes.planning.padding.judging import maskable, safe, unsafe

SAFE_ROWS = (
    "softmax(%x) {axis = -1}",
    "log_softmax(%x) {axis = 1}",
    "layer_norm(%x, %g, %g) {axis = -1}",
    "rms_norm(%x, %g) {axis = -1}",
    "lp_norm(%x) {axis = 1}",
    "cumsum(%x) {axis = 1}",
    "cumsum(%x) {axis = 0}",
    "cumprod(%x) {axis = 0, exclusive = true}",
    "reverse(%x) {axes = [1]}",
    "roll(%x) {axes = [1], shifts = [1]}",
)


@pytest.mark.parametrize("row", SAFE_ROWS)
def test_rows_are_worked_on_by_themselves(row: str) -> None:
    safe(f"""
        graph @main(%x: f32[S, 4], %g: f32[4]) {{
          %a: f32[S, 4] = {row}
          return %a
        }}""")


UNSAFE_ROWS = (
    "layer_norm(%x, _, _) {axis = 0}",
    "rms_norm(%x, _) {axis = 0}",
    "reverse(%x) {axes = [0]}",
    "roll(%x) {axes = [0], shifts = [1]}",
)


@pytest.mark.parametrize("row", UNSAFE_ROWS)
def test_what_mixes_the_dim_is_unsafe(row: str) -> None:
    unsafe(
        f"""
        graph @main(%x: f32[S, 4]) {{
          %a: f32[S, 4] = {row}
          return %a
        }}""",
        "it mixes the elements along axis 0",
    )


MASKABLE_ROWS = (
    "softmax(%x) {axis = 0}",
    "log_softmax(%x) {axis = 0}",
    "lp_norm(%x) {axis = 0}",
    "cumsum(%x) {axis = 0, reverse = true}",
    "cumprod(%x) {axis = 0, reverse = true, exclusive = true}",
)


@pytest.mark.parametrize("row", MASKABLE_ROWS)
def test_what_has_a_neutral_element_can_be_masked(row: str) -> None:
    maskable(
        f"""
        graph @main(%x: f32[S, 4]) {{
          %a: f32[S, 4] = {row}
          return %a
        }}""",
        "what stands behind the real elements of axis 0 counts",
    )


REDUCTIONS = ("sum", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square", "mean")


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_a_reduction_over_the_dim_is_masked(kind: str) -> None:
    safe(f"""
        graph @main(%x: f32[S, 4]) {{
          %a: f32[S] = reduce_{kind}(%x) {{axes = [1], keep_dims = false}}
          return %a
        }}""")
    maskable(
        f"""
        graph @main(%x: f32[B, S, 4]) {{
          %a: f32[B, 1, 1] = reduce_{kind}(%x) {{axes = [1, -1]}}
          return %a
        }}""",
        "along axis 1" if kind == "mean" else "it reduces axis 1",
    )


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_the_index_of_no_element_fails_as_it_does_unpadded(op: str) -> None:
    maskable(
        f"""
        graph @main(%x: f32[S, 4]) {{
          %a: i64[4] = {op}(%x) {{axis = 0, keep_dims = false}}
          return %a
        }}""",
        "what stands behind the real elements of axis 0 counts",
        least=1,
    )


@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_integers_have_neutral_elements_of_their_own(kind: str) -> None:
    maskable(
        f"""
        graph @main(%x: i64[S, 4]) {{
          %a: i64[4] = reduce_{kind}(%x) {{axes = [0], keep_dims = false}}
          return %a
        }}""",
        "it reduces axis 0",
    )


def test_the_mean_of_a_merged_axis_counts_real_elements() -> None:
    maskable(
        """
        graph @main(%x: f32[B, S, 4]) {
          %r: f32[B*S, 4] = reshape(%x) {shape = [B*S, 4]}
          %a: f32[4] = reduce_mean(%r) {axes = [0], keep_dims = false}
          return %a
        }""",
        "it takes the mean along axis 0",
    )


def test_a_masked_mean_of_halves_does_not_overflow() -> None:
    text = """
        graph @main(%x: f16[S]) {
          %a: f16[1] = reduce_mean(%x) {axes = [0]}
          return %a
        }"""
    maskable(text, "it takes the mean along axis 0")
    masked = mask_padding(parse(dedent(text)), "S", largest=8)
    assert masked is not None
    real = real_size_input(masked, "S")
    padded = np.array([60000, 50000, np.nan], dtype=np.float16)
    given = [np.array(2) if value.name == real else padded for value in masked.inputs]
    assert evaluate_graph(masked, given)[0] == np.float16(padded[:2].astype(np.float64).mean())


def test_the_first_extreme_element_is_real() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 4]) {
          %a: i64[4] = argmax(%x) {axis = 0, keep_dims = false}
          return %a
        }""",
        "what stands behind the real elements of axis 0 counts",
        least=1,
    )
    unsafe(
        """
        graph @main(%x: f32[S, 4]) {
          %a: i64[4] = argmax(%x) {axis = 0, keep_dims = false, select_last = true}
          return %a
        }""",
        "padding moves the indices",
    )


def test_the_best_elements_of_each_row() -> None:
    safe("""
        graph @main(%x: f32[S, 4]) {
          %v: f32[S, 2], %i: i64[S, 2] = top_k(%x) {k = 2}
          %s: f32[S, 4], %p: i64[S, 4] = sort(%x)
          return %v, %i, %s
        }""")
    unsafe(
        """
        graph @main(%x: f32[S, 4]) {
          %v: f32[1, 4], %i: i64[1, 4] = top_k(%x) {k = 1, axis = 0}
          return %v, %i
        }""",
        "it mixes the elements along axis 0",
    )


def test_images_of_a_batch() -> None:
    safe("""
        graph @main(%x: f32[S, 2, 4], %g: f32[2]) {
          %a: f32[S, 2, 2] = max_pool(%x) {kernel = [2], strides = [2], pads = [0, 0], dilations = [1]}
          %b: f32[S, 2, 2] = batch_norm(%a, %g, %g, %g, %g)
          %c: f32[S, 2, 2] = instance_norm(%b, %g, %g)
          %d: f32[S, 2, 2] = group_norm(%c, %g, %g) {groups = 1}
          %s: f32[S, 1, 2, 2] = unsqueeze(%d) {axes = [1]}
          %e: f32[S, 4, 1, 1] = space_to_depth(%s) {block_size = 2}
          return %e
        }""")
    unsafe(
        """
        graph @main(%x: f32[1, 2, S]) {
          %a: f32[1, 2, S//2] = max_pool(%x) {kernel = [2], strides = [2], pads = [0, 0], dilations = [1]}
          return %a
        }""",
        "it mixes the elements along axis 2",
    )


def test_one_scale_for_all_elements_is_masked() -> None:
    maskable(
        """
        graph @main(%x: f32[S, 4]) {
          %a: u8[S, 4], %b: f32[], %c: u8[] = dynamic_quantize_linear(%x)
          return %a, %b, %c
        }""",
        "its scale depends on all elements",
    )
