"""Attention and rotary embedding beside onnx's reference evaluator."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.ops import native
from capgraph.ir.ops.nn.attention import attention
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import Array, assert_close, random, reference, run

MASKS = ["none", "bool", "float", "bool [B, 1, 1, S]", "bool [S]", "rows of -inf"]


def mask_of(kind: str, seed: int, shape: tuple[int, int, int, int]) -> Array | None:
    generator = np.random.default_rng(seed)
    if kind == "none":
        return None
    if kind == "float":
        return random(seed, *shape[2:])
    if kind == "rows of -inf":
        mask = random(seed, *shape)
        mask[generator.random(shape[:3]) < 0.5] = -np.inf
        return mask
    chosen = {"bool": shape, "bool [B, 1, 1, S]": (shape[0], 1, 1, shape[3]), "bool [S]": shape[3:]}[kind]
    return generator.random(chosen) < 0.6


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
    st.sampled_from(MASKS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([None, 0.3]),
    st.integers(0, 99),
)
def test_attention(sizes, mask_kind, causal, has_lengths, softcap, scale, seed):
    batch, groups, shared, steps, keys = sizes
    q = random(seed, batch, groups * shared, steps, 4)
    k, v = random(seed + 1, batch, groups, keys, 4), random(seed + 2, batch, groups, keys, 3)
    mask = mask_of(mask_kind, seed, (batch, groups * shared, steps, keys))
    lengths = np.random.default_rng(seed).integers(0, keys + 1, batch) if has_lengths else None
    attrs: dict[str, Any] = {"is_causal": int(causal), "softcap": softcap}
    if scale is not None:
        attrs["scale"] = scale
    # With causal, the reference reads the number of queries from the mask, so it gets the mask in full.
    full = None if mask is None else np.broadcast_to(mask, (batch, groups * shared, steps, keys)).copy()
    expected = reference("Attention", q, k, v, full, None, None, lengths, outputs=1, opset=24, **attrs)[0]
    (found,) = run("attention", q, k, v, mask, lengths, causal=causal, scale=scale, softcap=softcap)
    assert_close(found, expected)


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
    st.booleans(),
    st.integers(0, 99),
)
def test_heads_side_by_side_are_heads_one_by_one(sizes, causal, seed):
    batch, groups, shared, steps, keys = sizes
    heads = groups * shared
    q = random(seed, batch, steps, heads * 4)
    k, v = random(seed + 1, batch, keys, groups * 4), random(seed + 2, batch, keys, groups * 3)
    mask = random(seed + 3, batch, 1, steps, keys)
    (found,) = run("attention", q, k, v, mask, None, causal=causal, heads=heads, kv_heads=groups)
    apart = (
        x.reshape(batch, -1, count, x.shape[2] // count).swapaxes(1, 2)
        for x, count in ((q, heads), (k, groups), (v, groups))
    )
    (expected,) = run("attention", *apart, mask, None, causal=causal)
    assert_close(found, expected.swapaxes(1, 2).reshape(batch, steps, heads * 3))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_attention_in_other_floats(dtype):
    q, k, v = (random(seed, 2, 2, 5, 8).astype(dtype) for seed in range(3))
    mask = random(4, 5, 5).astype(dtype)
    (exact,) = run("attention", *(x.astype(np.float64) for x in (q, k, v, mask)), None)
    tolerance = {np.float16: 2e-3, np.float64: 1e-12}.get(dtype, 2e-2)
    (found,) = run("attention", q, k, v, mask, None)
    assert_close(found, exact.astype(dtype), rtol=tolerance, atol=tolerance)


def test_a_query_that_sees_no_key_gives_zeros_and_hidden_scores_do_not_count():
    q, v = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 3, 2), np.float32)
    k = np.array([[1, 1], [np.inf, np.inf], [np.nan, 1]], np.float32).reshape(1, 1, 3, 2)
    mask = np.array([[True, False, False], [False, False, False]])
    assert run("attention", q, k, v, mask, None)[0].tolist() == [[[[1, 1], [0, 0]]]]
    assert run("attention", q, k, v, None, np.array([1]))[0].tolist() == [[[[1, 1], [1, 1]]]]


def test_causal_attention_follows_the_lengths_where_there_are_any():
    q, k = np.zeros((2, 1, 2, 1), np.float32), np.zeros((2, 1, 4, 1), np.float32)
    v = np.arange(8, dtype=np.float32).reshape(2, 1, 4, 1)
    top_left = run("attention", q, k, v, None, None, causal=True)[0]
    assert top_left.reshape(2, 2).tolist() == [[0, 0.5], [4, 4.5]]
    aligned = run("attention", q, k, v, None, np.array([4, 3]), causal=True)[0]
    assert aligned.reshape(2, 2).tolist() == [[1, 1.5], [4.5, 5]]


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (1, 2, 0, 4)])
def test_attention_without_samples_queries_or_keys(shape):
    q, empty = np.ones(shape, np.float32), np.ones((shape[0], 2, 0, 4), np.float32)
    assert np.array_equal(run("attention", q, empty, empty, None, None)[0], np.zeros(shape, np.float32))


B, H, T, S = (symbol(name) for name in "BHTS")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 4, 3, 8), (2, 3, 5, 8), (2, 3, 5, 8), None, None], "4 query heads cannot share 3"),
        ([(2, 4, 3, 8), (2, 0, 5, 8), (2, 0, 5, 8), None, None], "4 query heads cannot share 0"),
        ([(2, 4, T, 8), (2, 2, S, 6), (2, 2, S, 8), None, None], "one head size"),
        ([(2, 4, T, 8), (2, 2, 5, 8), (2, 2, 6, 8), None, None], "one length"),
        ([(2, 4, T, 8), (3, 2, 5, 8), (3, 2, 5, 8), None, None], "one batch size"),
        ([(2, 4, 8), (2, 2, 8), (2, 2, 8), None, None], "needs the numbers of heads"),
        ([(2, 4), (2, 2, 8), (2, 2, 8), None, None], "must have rank 3"),
        ([(2, 4, 3, 8), (2, 2, 8), (2, 2, 8), None, None], "must have rank 4"),
        ([(2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8), (3, 4), None], "mask of attention must broadcast"),
        ([(2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8), (1, 1, 1, 3, 5), None], "mask of attention has rank 5"),
    ],
)
def test_attention_refuses_shapes_that_do_not_fit(shapes, message):
    op = native("attention")
    types = [None if shape is None else TensorType(DType.F32, shape) for shape in shapes]
    with pytest.raises(CapgraphError, match=message):
        op.result_types(types, op.complete_attrs({}))


def test_attention_refuses_fewer_values_than_keys_where_it_runs() -> None:
    shapes = (1, 4, 3, 2), (1, 2, 3, 2), (1, 1, 3, 2)
    operands = [random(place, *shape) for place, shape in enumerate(shapes)]
    attrs = {"causal": False, "scale": None, "softcap": 0.0, "heads": 0, "kv_heads": 0}
    with pytest.raises(CapgraphError, match="as many heads"):
        attention(*operands, None, None, **attrs)


def test_the_cost_of_attention_counts_both_matmuls():
    op = native("attention")
    types = [TensorType(DType.F32, (B, H, T, 64)), *[TensorType(DType.F32, (B, H, S, 64))] * 2, None, None]
    attrs = op.complete_attrs({})
    cost = op.flops(types, op.result_types(types, attrs), attrs)
    assert evaluate(cost, {"B": 2, "H": 3, "T": 5, "S": 7}) == 2 * 3 * 5 * 7 * (4 * 64 + 5)
    flat = [TensorType(DType.F32, (2, 5, 3 * 64)), *[TensorType(DType.F32, (2, 7, 3 * 64))] * 2, None, None]
    attrs = op.complete_attrs({"heads": 3, "kv_heads": 3})
    assert op.flops(flat, op.result_types(flat, attrs), attrs) == 2 * 3 * 5 * 7 * (4 * 64 + 5)


@given(
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 3)),
    st.sampled_from([(4, 0), (4, 4), (6, 2), (8, 4)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_rotary_embedding(sizes, depths, is_flat, interleaved, has_positions, seed):
    (batch, steps, heads), (depth, rotary) = sizes, depths
    x = random(seed, *((batch, steps, heads * depth) if is_flat else (batch, heads, steps, depth)))
    table = (9, (rotary or depth) // 2) if has_positions else (batch, steps, (rotary or depth) // 2)
    cos, sin = random(seed + 1, *table), random(seed + 2, *table)
    positions = np.random.default_rng(seed).integers(0, 9, (batch, steps)) if has_positions else None
    (expected,) = reference(
        "RotaryEmbedding", x, cos, sin, positions, opset=23,
        interleaved=int(interleaved), num_heads=heads, rotary_embedding_dim=rotary,
    )  # fmt: skip
    attrs = {"interleaved": interleaved, "heads": heads, "rotary_dim": rotary}
    assert_close(run("rotary_embedding", x, cos, sin, positions, **attrs)[0], expected)


def test_rotary_embedding_of_a_smaller_float_is_rounded_once():
    x, cos, sin = (
        random(seed, *shape).astype(np.float16) for seed, shape in enumerate([(1, 2, 3, 4), *[(1, 3, 2)] * 2])
    )
    (exact,) = run("rotary_embedding", *(a.astype(np.float32) for a in (x, cos, sin)), None)
    assert run("rotary_embedding", x, cos, sin, None)[0].tobytes() == exact.astype(np.float16).tobytes()


@pytest.mark.parametrize(
    ("shapes", "attrs", "message"),
    [
        ([(2, 3, 8), (2, 3, 2), (2, 3, 2), None], {}, "needs the number of heads"),
        ([(2, 3, 8), (2, 3, 2), (2, 3, 2), None], {"heads": 3}, "cannot be split into 3 heads"),
        ([(2, 4, 3, 8), (2, 3, 3), (2, 3, 3), None], {}, "one entry for each pair"),
        ([(2, 4, 3, 8), (2, 3, 3), (2, 3, 3), None], {"rotary_dim": 3}, "not an even part"),
        ([(2, 4, 3, 8), (2, 3, 5), (2, 3, 5), None], {"rotary_dim": 10}, "not an even part"),
        ([(2, 4, 3, 8), (9, 4), (9, 4), None], {}, "must have rank 3"),
        ([(2, 4, 3, 8), (2, 5, 4), (2, 5, 4), None], {}, "cos must broadcast"),
    ],
)
def test_rotary_embedding_refuses_shapes_that_do_not_fit(shapes, attrs, message):
    op = native("rotary_embedding")
    types = [None if shape is None else TensorType(DType.F32, shape) for shape in shapes]
    with pytest.raises(CapgraphError, match=message):
        op.result_types(types, op.complete_attrs(attrs))
