"""Shared type rules: broadcasting of symbolic sizes, held to NumPy's at every size that the constraints allow."""

import numpy as np
import pytest
from capgraph.ir.dims import Dim, evaluate, parse_dim
from capgraph.ir.dims.constraints import collect_constraints
from capgraph.ir.errors import ShapeError
from capgraph.ir.ops.rules import broadcast_shapes
from hypothesis import given
from hypothesis import strategies as st

SIZES = ("0", "1", "3", "N", "M", "2*N", "N + 1", "min(1, N)", "min(1, M)", "max(0, min(1, N - 1))")


def dim(text: str) -> Dim:
    return int(text) if text.isdigit() else parse_dim(text)


@given(st.lists(st.sampled_from(SIZES), min_size=2, max_size=3), st.integers(0, 4), st.integers(0, 4))
def test_sizes_broadcast_as_those_of_numpy(texts: list[str], n: int, m: int) -> None:
    sizes = {"N": n, "M": m}
    with collect_constraints() as constraints:
        try:
            (result,) = broadcast_shapes(*((dim(text),) for text in texts))
        except ShapeError:
            return
    if any(evaluate(each.left, sizes) != evaluate(each.right, sizes) for each in constraints):
        return
    assert np.broadcast_shapes(*((evaluate(dim(text), sizes),) for text in texts)) == (evaluate(result, sizes),)


@pytest.mark.parametrize(
    ("sizes", "wanted", "assumed"),
    [
        (("min(1, N)", "N"), "N", []),  # x[:1] beside x
        (("N", "min(1, N)"), "N", []),
        (("min(1, N)", "3"), "3", ["min(1, N) == 1"]),
        (("min(1, N)", "0"), "0", []),
        (("min(1, N)", "M"), "M", ["min(1, N) == 1"]),
        (("min(1, N)", "1"), "min(1, N)", []),
        (("N", "M"), "N", ["N == M"]),
        (("N", "3"), "3", ["N == 3"]),
    ],
)
def test_a_size_of_at_most_one_broadcasts(sizes: tuple[str, ...], wanted: str, assumed: list[str]) -> None:
    with collect_constraints() as constraints:
        assert broadcast_shapes(*((dim(text),) for text in sizes)) == (dim(wanted),)
    assert [str(each).partition(" (")[0] for each in constraints] == assumed
