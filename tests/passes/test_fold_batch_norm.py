"""Batch norm goes into the convolution or matmul beside it, and stays where that would not mean the same."""

import pytest
from capgraph.passes.fold.batch_norm import FoldBatchNorm

from tests.passes.checking import check_pass

PARAMETERS = """
  %scale = constant() {value = dense<f32[2]: [2.0, 3.0]>}
  %bias = constant() {value = dense<f32[2]: [1.0, -1.0]>}
  %mean = constant() {value = dense<f32[2]: [0.5, 4.0]>}
  %var = constant() {value = dense<f32[2]: [4.0, 9.0]>}
"""
NORM = "batch_norm({}, %scale, %bias, %mean, %var) {{epsilon = 0.0}}"
PLAIN = "{strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1}"
PADDED = "{strides = [1, 1], pads = [0, 1, 0, 1], dilations = [1, 1], groups = 1}"


def test_into_a_convolution_before_it() -> None:
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f32[N, 2, H, W]) {{
          {PARAMETERS}
          %w = constant() {{value = dense<f32[2, 2, 1, 1]: [1.0, 2.0, 3.0, 4.0]>}}
          %y = conv(%x, %w, _) {PADDED}
          %z = {NORM.format("%y")}
          return %z
        }}""",
        f"""
        graph @main(%x: f32[N, 2, H, W]) {{
          %w = constant() {{value = dense<f32[2, 2, 1, 1]: [1.0, 2.0, 3.0, 4.0]>}}
          %b = constant() {{value = dense<f32[2]: [0.5, -5.0]>}}
          %z = conv(%x, %w, %b) {PADDED}
          return %z
        }}""",
    )


def test_into_a_transposed_convolution_with_a_bias() -> None:
    attrs = "{strides = [2], pads = [0, 0], output_padding = [0], dilations = [1], groups = 1}"
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f32[N, 1, T]) {{
          {PARAMETERS.replace("2.0, 3.0", "4.0, 3.0")}
          %w = constant() {{value = dense<f32[1, 2, 2]: [1.0, 2.0, 3.0, 4.0]>}}
          %b = constant() {{value = dense<f32[2]: [8.5, 4.0]>}}
          %y = conv_transpose(%x, %w, %b) {attrs}
          %z = {NORM.format("%y")}
          return %z
        }}""",
        f"""
        graph @main(%x: f32[N, 1, T]) {{
          %w = constant() {{value = dense<f32[1, 2, 2]: [2.0, 4.0, 3.0, 4.0]>}}
          %b = constant() {{value = dense<f32[2]: [17.0, -1.0]>}}
          %z = conv_transpose(%x, %w, %b) {attrs}
          return %z
        }}""",
    )


def test_into_a_gemm_and_as_an_addition_after_a_matmul() -> None:
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f32[N, 1]) {{
          {PARAMETERS}
          %w = constant() {{value = dense<f32[2, 1]: [1.0, 2.0]>}}
          %v = constant() {{value = dense<f32[1, 2]: [1.0, 2.0]>}}
          %y = gemm(%x, %w, _) {{alpha = 1.0, beta = 1.0, trans_a = false, trans_b = true}}
          %m = matmul(%x, %v)
          %z = {NORM.format("%y")}
          %q = {NORM.format("%m")}
          return %z, %q
        }}""",
        """
        graph @main(%x: f32[N, 1]) {
          %w = constant() {value = dense<f32[2, 1]: [1.0, 2.0]>}
          %c = constant() {value = dense<f32[1, 2]: [0.5, -5.0]>}
          %z = gemm(%x, %w, %c) {alpha = 1.0, beta = 1.0, trans_a = false, trans_b = true}
          %v = constant() {value = dense<f32[1, 2]: [1.0, 2.0]>}
          %m = matmul(%x, %v)
          %t = constant() {value = dense<f32[2]: [0.5, -5.0]>}
          %q = add(%m, %t)
          return %z, %q
        }""",
    )


def test_into_a_grouped_convolution_after_it() -> None:
    attrs = "{strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 2}"
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f32[N, 2, H, W]) {{
          %scale = constant() {{value = dense<f32[2]: [4.0, 6.0]>}}
          %bias = constant() {{value = dense<f32[2]: [1.0, -1.0]>}}
          %mean = constant() {{value = dense<f32[2]: [0.0, 0.0]>}}
          %var = constant() {{value = dense<f32[2]: [4.0, 9.0]>}}
          %y = {NORM.format("%x")}
          %w = constant() {{value = dense<f32[2, 1, 1, 2]: [1.0, 2.0, 3.0, 4.0]>}}
          %z = conv(%y, %w, _) {attrs}
          return %z
        }}""",
        f"""
        graph @main(%x: f32[N, 2, H, W]) {{
          %w = constant() {{value = dense<f32[2, 1, 1, 2]: [2.0, 4.0, 6.0, 8.0]>}}
          %b = constant() {{value = dense<f32[2]: [3.0, -7.0]>}}
          %z = conv(%x, %w, %b) {attrs}
          return %z
        }}""",
    )


def test_one_that_only_adds() -> None:
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f32[N, 2, L]) {{
          %scale = constant() {{value = dense<f32[2]: [2.0, 3.0]>}}
          %bias = constant() {{value = dense<f32[2]: [1.0, -1.0]>}}
          %mean = constant() {{value = dense<f32[2]: [0.5, 4.0]>}}
          %var = constant() {{value = dense<f32[2]: [4.0, 9.0]>}}
          %z = {NORM.format("%x")}
          return %z
        }}""",
        """
        graph @main(%x: f32[N, 2, L]) {
          %b = constant() {value = dense<f32[2, 1]: [0.5, -5.0]>}
          %z = add(%x, %b)
          return %z
        }""",
    )


@pytest.mark.parametrize(
    "between",
    [
        f"%z = conv(%n, %w, _) {PADDED}",  # the padding is not shifted
        f"%z = conv(%n, %w, _) {PLAIN}\n  %other = relu(%n)",  # read twice
        f"%r = relu(%n)\n  %z = conv(%r, %w, _) {PLAIN}",  # not next to it
    ],
)
def test_stays(between: str) -> None:
    result = "%z, %other" if "%other" in between else "%z"
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f32[N, 2, H, W]) {{
          {PARAMETERS.replace("2.0, 3.0", "5.0, 7.0")}
          %w = constant() {{value = dense<f32[1, 2, 1, 1]: [1.0, 2.0]>}}
          %n = {NORM.format("%x")}
          {between}
          return {result}
        }}""",
        None,
    )


def test_stays_where_the_parameters_are_not_known_or_the_weight_is_shared() -> None:
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f32[N, 2, H, W], %given: f32[2]) {{
          {PARAMETERS.replace("2.0, 3.0", "5.0, 7.0")}
          %w = constant() {{value = dense<f32[2, 2, 1, 1]: [1.0, 2.0, 3.0, 4.0]>}}
          %a = conv(%x, %w, _) {PLAIN}
          %b = conv(%a, %w, _) {PLAIN}
          %n = {NORM.format("%b")}
          %m = batch_norm(%n, %scale, %given, %mean, %var) {{epsilon = 0.0}}
          return %m
        }}""",
        None,
    )


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_stays_where_weights_or_a_factor_would_lose_digits(bias: float) -> None:
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f16[N, 1, H, W]) {{
          %scale = constant() {{value = dense<f16[1]: [0.001]>}}
          %bias = constant() {{value = dense<f16[1]: [{bias}]>}}
          %mean = constant() {{value = dense<f16[1]: [0.0]>}}
          %var = constant() {{value = dense<f16[1]: [10000.0]>}}
          %w = constant() {{value = dense<f16[1, 1, 1, 1]: [0.125]>}}
          %y = conv(%x, %w, _) {PLAIN}
          %z = {NORM.format("%y")}
          return %z
        }}""",
        None,
    )


@pytest.mark.parametrize(
    "body",
    [
        f"%y = conv(%x, %w, _) {PLAIN} %z = {NORM.format('%y')}",
        f"%y = {NORM.format('%x')} %z = conv(%y, %w, _) {PLAIN}",
        f"%y = matmul(%x, %w) %z = {NORM.format('%y')}",
    ],
)
def test_stays_where_the_addend_would_overflow(body: str) -> None:
    check_pass(
        FoldBatchNorm(),
        f"""
        graph @main(%x: f16[N, 1, H, 1]) {{
          %scale = constant() {{value = dense<f16[1]: [10.0]>}}
          %bias = constant() {{value = dense<f16[1]: [0.0]>}}
          %mean = constant() {{value = dense<f16[1]: [30000.0]>}}
          %var = constant() {{value = dense<f16[1]: [1.0]>}}
          %w = constant() {{value = dense<f16[1, 1, 1, 1]: [2.0]>}}
          {body}
          return %z
        }}""",
        None,
        numeric=False,  # on drawn inputs, around 0, the results overflow
    )


@pytest.mark.parametrize(("dtype", "is_kept"), [("f16", True), ("bf16", True), ("f32", False)])
def test_images_in_smaller_floats_may_keep_theirs(dtype: str, is_kept: bool) -> None:
    norm = NORM.format("%y")
    before = f"""
        graph @main(%x: {dtype}[N, 2, H, W]) {{
          {PARAMETERS.replace("f32", dtype)}
          %w = constant() {{value = dense<{dtype}[2, 2, 1, 1]: [1.0, 2.0, 3.0, 4.0]>}}
          %y = conv(%x, %w, _) {PLAIN}
          %z = {norm}
          return %z
        }}"""
    after = f"""
        graph @main(%x: {dtype}[N, 2, H, W]) {{
          %w = constant() {{value = dense<{dtype}[2, 2, 1, 1]: [1.0, 2.0, 3.0, 4.0]>}}
          %b = constant() {{value = dense<{dtype}[2]: [0.5, -5.0]>}}
          %z = conv(%x, %w, %b) {PLAIN}
          return %z
        }}"""
    check_pass(FoldBatchNorm(keeps_small_images=True), before, None if is_kept else after)
    check_pass(FoldBatchNorm(), before, after)
