"""Pools over whole images are reductions; pools that leave anything out, or count padding, are not."""

import pytest
from capgraph.passes.fold.windows import GlobalPooling

from tests.passes.checking import check_pass

POOL = (
    "average_pool(%x) {{kernel = {kernel}, strides = [9, 9], pads = {pads}, dilations = [1, 1], ceil_mode = {ceil}, "
    "count_include_pad = true}}"
)


@pytest.mark.parametrize(("kernel", "ceil"), [([7, 5], "false"), ([9, 8], "true")])
def test_average_over_everything(kernel: list[int], ceil: str) -> None:
    pool = POOL.format(kernel=kernel, pads=[0, 0, 0, 0], ceil=ceil)
    check_pass(
        GlobalPooling(),
        f"graph @main(%x: f32[N, 3, 7, 5]) {{ %y = {pool} return %y }}",
        "graph @main(%x: f32[N, 3, 7, 5]) { %y = reduce_mean(%x) {axes = [2, 3], keep_dims = true} return %y }",
    )


def test_maximum_over_everything() -> None:
    pool = "max_pool(%x) {kernel = [7], strides = [1], pads = [0, 0], dilations = [1], ceil_mode = false}"
    check_pass(
        GlobalPooling(),
        f"graph @main(%x: f32[N, 3, 7]) {{ %y = {pool} return %y }}",
        "graph @main(%x: f32[N, 3, 7]) { %y = reduce_max(%x) {axes = [2], keep_dims = true} return %y }",
    )


@pytest.mark.parametrize(
    ("kernel", "pads"),
    [([7, 4], [0, 0, 0, 0]), ([8, 5], [1, 0, 0, 0]), ([7, 2], [0, 0, 0, 0])],
)
def test_stays(kernel: list[int], pads: list[int]) -> None:
    pool = POOL.format(kernel=kernel, pads=pads, ceil="false")
    check_pass(GlobalPooling(), f"graph @main(%x: f32[N, 3, 7, 5]) {{ %y = {pool} return %y }}", None)
