"""Zeros around a tensor become padding, where padding means zeros that are counted."""

import pytest
from capgraph.passes.fold.windows import FoldPadding

from tests.passes.checking import check_pass

CONV = "{{strides = [2, 1], pads = {pads}, dilations = [1, 1], groups = 1}}"
POOL = (
    "{{kernel = [3], strides = [1], pads = {pads}, dilations = [1], ceil_mode = {ceil}, count_include_pad = {count}}}"
)


def test_into_a_convolution() -> None:
    check_pass(
        FoldPadding(),
        f"""
        graph @main(%x: f32[N, 1, H, W], %w: f32[2, 1, 3, 3]) {{
          %zero = constant() {{value = dense<f32[]: 0.0>}}
          %p = pad(%x, %zero) {{pads = [0, 0, 1, 2, 0, 0, 0, 3], mode = "constant"}}
          %z = conv(%p, %w, _) {CONV.format(pads=[1, 0, 1, 0])}
          return %z
        }}""",
        f"""
        graph @main(%x: f32[N, 1, H, W], %w: f32[2, 1, 3, 3]) {{
          %z = conv(%x, %w, _) {CONV.format(pads=[2, 2, 1, 3])}
          return %z
        }}""",
    )


@pytest.mark.parametrize("count", ["true", "false"])
def test_into_an_average_that_then_counts_its_padding(count: str) -> None:
    check_pass(
        FoldPadding(),
        f"""
        graph @main(%x: f32[N, 1, T]) {{
          %p = pad(%x, _) {{pads = [0, 0, 1, 0, 0, 2], mode = "constant"}}
          %z = average_pool(%p) {POOL.format(pads=[0, 0], ceil="false", count=count)}
          return %z
        }}""",
        f"""
        graph @main(%x: f32[N, 1, T]) {{
          %z = average_pool(%x) {POOL.format(pads=[1, 2], ceil="false", count="true")}
          return %z
        }}""",
    )


AROUND = [0, 0, 1, 0, 0, 1]
PLAIN = "conv(%p, %w, _) {strides = [1], pads = [0, 0]}"


@pytest.mark.parametrize(
    ("pads", "mode", "value", "user"),
    [
        (AROUND, "constant", "1.0", PLAIN),
        (AROUND, "edge", "0.0", PLAIN),
        ([0, 0, -1, 0, 0, 1], "constant", "0.0", PLAIN),
        ([1, 0, 0, 0, 0, 0], "constant", "0.0", PLAIN),
        (AROUND, "constant", "0.0", "max_pool(%p) {kernel = [3], strides = [1], pads = [0, 0]}"),
        (AROUND, "constant", "0.0", f"average_pool(%p) {POOL.format(pads=[1, 1], ceil='false', count='false')}"),
        (AROUND, "constant", "0.0", f"average_pool(%p) {POOL.format(pads=[0, 0], ceil='true', count='true')}"),
        (
            [0, 0, 3, 0, 0, 1],
            "constant",
            "0.0",
            f"average_pool(%p) {POOL.format(pads=[0, 0], ceil='false', count='true')}",
        ),
    ],
)
def test_stays(pads: list[int], mode: str, value: str, user: str) -> None:
    user = user.replace("pads = [0, 0]}", "pads = [0, 0], dilations = [1]}")
    user = user.replace("dilations = [1]}", "dilations = [1], groups = 1}") if "conv" in user else user
    user = user.replace("dilations = [1]}", "dilations = [1], ceil_mode = false}") if "max" in user else user
    check_pass(
        FoldPadding(),
        f"""
        graph @main(%x: f32[N, 1, 8], %w: f32[1, 1, 3]) {{
          %value = constant() {{value = dense<f32[]: {value}>}}
          %p = pad(%x, %value) {{pads = {pads}, mode = "{mode}"}}
          %z = {user}
          return %z
        }}""",
        None,
    )
