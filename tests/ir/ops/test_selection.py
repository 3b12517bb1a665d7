"""Results of data-dependent size, against NumPy, plain loops and onnx's reference."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.dims import symbol
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.graph import Graph
from capgraph.ir.op import FRESH, Trait
from capgraph.ir.ops import FAMILIES, native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.ir.ops.native_runs import assert_same, only, outcome
from tests.ir.ops.onnx_oracle import reference

B, T = symbol("B"), symbol("T")
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


def numbered(shape: tuple[int, ...]) -> Any:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_sizes_known_only_after_running_become_new_symbols() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.F32, (B, 3)))
    results = graph.append(native("unique"), [x], {"axis": 0}).outputs
    assert [str(value.type) for value in results] == ["f32[u0, 3]", "i64[u1]", "i64[B]", "i64[u2]"]
    assert all(native(name).has(Trait.DATA_DEPENDENT) for name in FAMILIES["selection"])


# ---- compress, non_zero


@given(shapes, st.data())
def test_compress_is_as_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    x = numbered(shape)
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    condition = data.draw(hnp.arrays(np.bool_, st.integers(0, 5)))
    condition[x.size if axis is None else shape[axis] :] = False
    assert_same(only("compress", x, condition, axis=axis), np.compress(condition, x, axis))


def test_compress_takes_a_vector_of_conditions() -> None:
    with pytest.raises(TypeRuleError, match="rank 1"):
        only("compress", np.zeros((2, 3)), np.ones((1, 1), dtype=bool))


@given(hnp.arrays(np.int8, shapes, elements=st.integers(0, 1)))
def test_non_zero_is_as_onnx(x: Any) -> None:
    assert_same(only("non_zero", x), reference("NonZero", x)[0])


@pytest.mark.parametrize("value", [0, 2])
def test_non_zero_of_a_scalar_has_no_rows(value: int) -> None:
    assert only("non_zero", np.array(value, dtype=np.float32)).shape == (0, int(value != 0))


# ---- unique


@given(hnp.arrays(np.int32, shapes, elements=st.integers(-1, 1)), st.booleans(), st.data())
def test_unique_is_as_a_plain_loop(x: Any, in_order: bool, data: st.DataObject) -> None:
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1))
    rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    places: dict[Any, list[int]] = {}
    for index, row in enumerate(rows):
        places.setdefault(tuple(row.reshape(-1).tolist()), []).append(index)
    keys = sorted(places) if in_order else list(places)
    distinct, first, inverse, counts = outcome("unique", x, axis=axis, sorted=in_order)
    assert first.tolist() == [places[key][0] for key in keys]
    assert counts.tolist() == [len(places[key]) for key in keys]
    assert inverse.tolist() == [keys.index(tuple(row.reshape(-1).tolist())) for row in rows]
    expected = rows[first] if axis is None else np.moveaxis(rows[first], 0, axis)
    assert_same(distinct, expected)


@pytest.mark.parametrize(
    "attrs", [{"sorted": 1}, {"sorted": 0, "axis": 0}, {"sorted": 1, "axis": 0}, {"sorted": 1, "axis": 1}]
)
def test_unique_is_as_onnx(attrs: dict[str, int]) -> None:
    x = np.array([[2, 0, 0], [2, 0, 0], [1, 3, 3]], dtype=np.float32)
    expected = reference("Unique", x, outputs=4, **attrs)
    given_attrs = {**attrs, "sorted": bool(attrs["sorted"])}
    for found, wanted in zip(outcome("unique", x, **given_attrs), expected, strict=True):
        assert_same(found, wanted)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.int4, np.bool_, np.complex64])
def test_unique_serves_every_dtype(dtype: Any) -> None:
    x = np.array([1, 0, 1]).astype(dtype)
    distinct, *_ = outcome("unique", x)
    assert_same(distinct, np.array([0, 1]).astype(dtype))


def test_unique_of_words_and_nan() -> None:
    words, first, _, counts = outcome("unique", np.array(["b", "a", "b"], dtype=object))
    assert (words.tolist(), first.tolist(), counts.tolist()) == (["a", "b"], [1, 0], [1, 2])
    numbers, *_ = outcome("unique", np.array([np.nan, 1, np.nan], dtype=np.float32))
    assert_same(numbers, np.array([1, np.nan], dtype=np.float32))


# ---- non_max_suppression


def boxes_and_scores(data: st.DataObject) -> tuple[Any, Any]:
    batch, classes, count = (data.draw(st.integers(1, high)) for high in (2, 2, 6))
    corners = data.draw(hnp.arrays(np.float32, (batch, count, 4), elements=st.integers(0, 8).map(float)))
    scores = data.draw(
        hnp.arrays(np.float32, (batch, classes, count), elements=st.integers(0, 20).map(lambda n: n / 16))
    )
    return corners, scores


def overlap(a: Any, b: Any) -> float:
    """Intersection over union of two corner boxes in any orientation."""
    sides = [[sorted((float(box[i]), float(box[i + 2]))) for i in (0, 1)] for box in (a, b)]
    areas = [(box[0][1] - box[0][0]) * (box[1][1] - box[1][0]) for box in sides]
    common = 1.0
    for (low, high), (other_low, other_high) in zip(*sides, strict=True):
        common *= max(0.0, min(high, other_high) - max(low, other_low))
    return common / (areas[0] + areas[1] - common) if min(areas) > 0 else 0.0


@given(st.integers(0, 4), st.sampled_from([0.0, 0.25, 0.5]), st.none() | st.sampled_from([0.0, 0.5]), st.data())
def test_suppression_is_as_a_plain_loop(most: int, iou: float, score: float | None, data: st.DataObject) -> None:
    boxes, scores = boxes_and_scores(data)
    expected = []
    for batch, label in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for box in sorted(range(boxes.shape[1]), key=lambda i, b=batch, c=label: -scores[b, c, i]):
            is_high = score is None or scores[batch, label, box] > score
            is_free = all(overlap(boxes[batch, other], boxes[batch, box]) <= iou for other in kept)
            if is_high and is_free and len(kept) < most:
                kept.append(box)
        expected += [[batch, label, box] for box in kept]
    limits = (np.array([most]), np.array([iou], np.float32), None if score is None else np.array([score], np.float32))
    found = only("non_max_suppression", boxes, scores, *limits, static={0, 1, 2, 3, 4})
    assert found.tolist() == expected


@pytest.mark.parametrize("center", [0, 1])
def test_suppression_is_as_onnx(center: int) -> None:
    boxes = np.array([[[0.5, 0.5, 1, 1], [0.5, 0.6, 1, 1], [0.5, 10.5, 1, 1], [0.5, 10.6, 1, 1]]], dtype=np.float32)
    scores = np.array([[[0.9, 0.75, 0.6, 0.95]]], dtype=np.float32)
    limits = (np.array([3]), np.array([0.5], np.float32), np.array([0.4], np.float32))
    (expected,) = reference("NonMaxSuppression", boxes, scores, *limits, center_point_box=center)
    found = only("non_max_suppression", boxes, scores, *limits, center_point_box=bool(center))
    assert_same(found, expected.reshape(-1, 3))


def test_suppression_without_a_limit_keeps_nothing() -> None:
    boxes, scores = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    assert only("non_max_suppression", boxes, scores, None, None, None).shape == (0, 3)
    op = native("non_max_suppression")
    given_types = [TensorType(DType.F32, (B, T, 4)), TensorType(DType.F32, (B, 80, T)), None, None, None]
    assert op.result_types(given_types, op.complete_attrs({}))[0] == TensorType(DType.I64, (FRESH, 3))
