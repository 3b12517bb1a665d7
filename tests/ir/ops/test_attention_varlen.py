"""Variable-length attention beside attention of one sequence after the other."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CapgraphError, ExecutionError
from capgraph.ir.op import Trait
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.native_runs import only
from tests.ir.ops.onnx_oracle import Array, assert_close, random, run


def varlen(*operands: Array, **attrs: Any) -> Array:
    """The op on sequences of at most 4 queries; the numbers of heads have to be plain."""
    return only("varlen_attention", *operands, static=range(5), longest=4, **attrs)


def operands(counts: list[int], lengths: list[int], spare: int = 0, keys: int = 6) -> list[Array]:
    rows = len(counts)
    q = random(1, sum(counts) + spare, 4, 8)
    return [q, random(2, rows, keys, 2, 8), random(3, rows, keys, 2, 6), np.array(counts, int), np.array(lengths, int)]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=4),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([None, 0.3]),
    st.sampled_from([0.0, 2.0]),
)
def test_each_sequence_is_attention_of_its_own(
    sequences: list[tuple[int, int]], spare: int, causal: bool, scale: float | None, softcap: float
) -> None:
    counts, lengths = [count for count, _ in sequences], [length for _, length in sequences]
    q, k, v, *both = operands(counts, lengths, spare)
    options = {"causal": causal, "scale": scale, "softcap": softcap}
    found = varlen(q, k, v, *both, **options)
    start = 0
    for row, (count, length) in enumerate(sequences):
        one = [x.swapaxes(0, 1)[np.newaxis] for x in (q[start : start + count], k[row], v[row])]
        (expected,) = run("attention", *one, None, np.array([length]), **options)
        assert_close(found[start : start + count], expected[0].swapaxes(0, 1))
        start += count
    assert not found[start:].any()


def test_later_queries_see_more_and_the_last_one_all_that_counts() -> None:
    q, k = np.zeros((3, 1, 2), np.float32), np.zeros((1, 4, 1, 2), np.float32)
    v = np.array([1, 2, 4, 100], np.float32).reshape(1, 4, 1, 1)
    found = varlen(q, k, v, np.array([2]), np.array([3]), causal=True)
    assert_close(found.ravel(), np.array([1.5, 7 / 3, 0], np.float32))  # the third token is of no sequence


@pytest.mark.parametrize(
    ("counts", "lengths", "reason"),
    [
        ([5, 0], [1, 1], "query_lengths has 5, where a sequence has 0 to 4 tokens"),
        ([-1, 3], [1, 1], "query_lengths has -1"),
        ([4, 4], [1, 1], "adds up to 8, but there are 6 tokens"),
        ([1, 1], [1, 7], "kv_lengths has 7, where a sequence has 0 to 6 entries"),
    ],
)
def test_lengths_that_do_not_fit(counts: list[int], lengths: list[int], reason: str) -> None:
    _, k, v, *_ = operands([3, 3], [1, 1])
    with pytest.raises(ExecutionError, match=reason):
        varlen(random(1, 6, 4, 8), k, v, np.array(counts), np.array(lengths))


def test_the_length_of_a_cache_that_nobody_asks_for_does_not_matter() -> None:
    varlen(*operands([0, 2], [99, 3]))


N, R, S = symbol("N"), symbol("R"), symbol("S")
LENGTH = TensorType(DType.I64, (R,))


def test_type() -> None:
    op = native("varlen_attention")
    q = TensorType(DType.F16, (N, 8, 64))
    k, v = TensorType(DType.F16, (R, S, 2, 64)), TensorType(DType.F32, (R, S, 2, 48))
    attrs = op.complete_attrs({"longest": symbol("T")})
    assert op.result_types([q, k, v, LENGTH, LENGTH], attrs) == (TensorType(DType.F16, (N, 8, 48)),)
    assert op.has(Trait.READS_HOST)
    assert op.flops([q, k, v, LENGTH, LENGTH], [q], attrs) == N * S * (8 * (2 * 64 + 2 * 48 + 5))


@pytest.mark.parametrize(
    ("q", "k", "rows", "attrs"),
    [
        ((N, 512), (R, S, 2, 64), (R,), {}),
        ((N, 7, 64), (R, S, 2, 64), (R,), {}),
        ((N, 8, 32), (R, S, 2, 64), (R,), {}),
        ((N, 8, 64), (R, S, 2, 64), (3, 1), {}),
        ((4, 8, 64), (3, 5, 2, 64), (4,), {}),
        ((N, N, 64), (R, S, 2, 64), (R,), {}),
        ((N, 8, 64), (R, S, 2, 64), (R,), {"longest": -1}),
    ],
)
def test_types_that_do_not_fit(q: tuple, k: tuple, rows: tuple, attrs: dict) -> None:
    op = native("varlen_attention")
    types = [TensorType(DType.F32, q), TensorType(DType.F32, k), TensorType(DType.F32, k)]
    types += [TensorType(DType.I64, rows)] * 2
    with pytest.raises(CapgraphError):
        op.result_types(types, op.complete_attrs({"longest": 4, **attrs}))
