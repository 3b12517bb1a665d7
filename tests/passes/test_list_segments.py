"""Scatters by rows become a list of slots, which those with the same indices share, and reductions of its segments."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.types import DType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse
from capgraph.passes.fuse.list_segments import ListSegments
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.passes.checking import check_pass

EACH = ListSegments(fewest=1, crowd=1 << 20, width=1)
"""However few updates there are."""


def test_scatters_with_the_same_indices_share_their_list():
    before = """graph @main(%x: f16[5, 4], %i: i64[9], %u: f16[9, 4], %v: f16[9, 2], %y: f16[5, 2]) {
      %c: i64[9, 1] = reshape(%i) {shape = [9, 1]}
      %p: i64[9, 4] = expand(%c) {shape = [9, 4]}
      %a: f16[5, 4] = scatter_elements(%x, %p, %u) {reduction = "add"}
      %b: f16[5, 2] = scatter_nd(%y, %c, %v) {reduction = "max"}
      return %a, %b
    }"""
    after = """graph @main(%x: f16[5, 4], %i: i64[9], %u: f16[9, 4], %v: f16[9, 2], %y: f16[5, 2]) {
      %starts: i32[6], %slots: i32[9] = segment_slots(%i) {count = 5}
      %a: f16[5, 4] = segment_reduce(%x, %starts, %slots, %u) {reduction = "add"}
      %b: f16[5, 2] = segment_reduce(%y, %starts, %slots, %v) {reduction = "max"}
      return %a, %b
    }"""
    check_pass(EACH, before, after, numeric=False)


def test_what_is_scattered_onto_zeros_and_added_starts_from_the_other_operand():
    before = """graph @main(%x: f32[5, 4], %i: i64[1, 9], %u: f32[9, 4]) {
      %z: f32[5, 4] = full() {shape = [5, 4], value = dense<f32[]: 0.0>}
      %c: i64[9, 1] = reshape(%i) {shape = [9, 1]}
      %p: i64[9, 4] = expand(%c) {shape = [9, 4]}
      %a: f32[5, 4] = scatter_elements(%z, %p, %u) {reduction = "add"}
      %b: f32[5, 4] = add(%x, %a)
      return %b
    }"""
    after = """graph @main(%x: f32[5, 4], %i: i64[1, 9], %u: f32[9, 4]) {
      %f: i64[9] = reshape(%i) {shape = [9]}
      %starts: i32[6], %slots: i32[9] = segment_slots(%f) {count = 5}
      %zero: f32[] = constant() {value = dense<f32[]: 0.0>}
      %b: f32[5, 4] = segment_reduce(%x, %starts, %slots, %u) {reduction = "add"}
      return %b
    }"""
    check_pass(EACH, before, after, numeric=False)


def test_counts_beside_sums_are_read_off_the_list():
    before = """graph @main(%i: i64[9], %u: f32[9, 4]) {
      %z: f32[5, 4] = full() {shape = [5, 4], value = dense<f32[]: 0.0>}
      %none: i32[5] = full() {shape = [5], value = dense<i32[]: 0>}
      %ones: i32[9] = full() {shape = [9], value = dense<i32[]: 1>}
      %n: i32[5] = scatter_elements(%none, %i, %ones) {reduction = "add"}
      %c: i64[9, 1] = reshape(%i) {shape = [9, 1]}
      %p: i64[9, 4] = expand(%c) {shape = [9, 4]}
      %a: f32[5, 4] = scatter_elements(%z, %p, %u) {reduction = "add"}
      return %n, %a
    }"""
    after = """graph @main(%i: i64[9], %u: f32[9, 4]) {
      %starts: i32[6], %slots: i32[9] = segment_slots(%i) {count = 5}
      %first: i32[5] = slice(%starts) {axes = [0], starts = [0], ends = [5], steps = [1]}
      %last: i32[5] = slice(%starts) {axes = [0], starts = [1], ends = [6], steps = [1]}
      %n: i32[5] = sub(%last, %first)
      %zero: f32[] = constant() {value = dense<f32[]: 0.0>}
      %a: f32[5, 4] = segment_reduce(%zero, %starts, %slots, %u) {reduction = "add"}
      return %n, %a
    }"""
    check_pass(EACH, before, after, numeric=False)


@pytest.mark.parametrize(
    "scatter",
    [
        '%y: f32[5, 4] = scatter_elements(%x, %p, %u) {axis = 0, reduction = "none"}',
        '%y: f32[5, 4] = scatter_elements(%x, %q, %v) {axis = 1, reduction = "add"}',
        '%y: f32[5, 4] = scatter_elements(%x, %p, %u) {axis = 0, reduction = "add"}',
    ],
)
def test_other_scatters_stay(scatter: str):
    """Those that write, those along another axis, and those with an index for each element."""
    text = f"""graph @main(%x: f32[5, 4], %p: i64[9, 4], %q: i64[5, 9], %u: f32[9, 4], %v: f32[5, 9]) {{
      {scatter}
      return %y
    }}"""
    check_pass(EACH, text, None, numeric=False)


@pytest.mark.parametrize(
    ("slices", "updates", "width", "is_listed"),
    [
        (5000, 20000, 4, True),
        (5000, 900, 4, False),
        (9, 20000, 4, False),
        (9, 20000, 8000, True),
        (5000, 20000, 2, False),
    ],
)
def test_few_updates_and_crowded_slices_stay(slices: int, updates: int, width: int, is_listed: bool):
    b = Builder()
    x, index = b.input("x", f"f16[{slices}, {width}]"), b.input("i", f"i64[{updates}, 1]")
    rows = f"f16[{updates}, {width}]"
    graph = b.finish([b.op("scatter_nd", x, index, b.input("u", rows), reduction="add")])
    assert Pipeline(((ListSegments(),),)).run(graph).changed == is_listed


def test_what_makes_the_updates_and_what_follows_joins_the_reduction():
    before = """graph @main(%x: f16[5, 4], %e: i64[9], %w: f16[9, 1], %starts: i32[6], %slots: i32[9], %n: f16[5, 1]) {
      %g: f16[9, 4] = gather(%x, %e)
      %m: f16[9, 4] = mul(%g, %w)
      %zero: f16[] = constant() {value = dense<f16[]: 0.0>}
      %s: f16[5, 4] = segment_reduce(%zero, %starts, %slots, %m) {reduction = "add"}
      %y: f16[5, 4] = div(%s, %n)
      return %y
    }"""
    after = """graph @main(%x: f16[5, 4], %e: i64[9], %w: f16[9, 1], %starts: i32[6], %slots: i32[9], %n: f16[5, 1]) {
      %y: f16[5, 4] = fused(%x, %e, %w, %starts, %slots, %n) {body = @fused}
      return %y
    }

    graph @fused(%x: f16[5, 4], %e: i64[9], %w: f16[9, 1], %starts: i32[6], %slots: i32[9], %n: f16[5, 1]) {
      %zero: f16[] = constant() {value = dense<f16[]: 0.0>}
      %g: f16[9, 4] = gather(%x, %e)
      %m: f16[9, 4] = mul(%g, %w)
      %s: f16[5, 4] = segment_reduce(%zero, %starts, %slots, %m) {reduction = "add"}
      %y: f16[5, 4] = div(%s, %n)
      return %y
    }"""
    check_pass(Fuse(lookups=True, segments=True), before, after, numeric=False)


def test_updates_that_others_read_are_made_for_all():
    text = """graph @main(%x: f16[5, 4], %e: i64[9], %starts: i32[6], %slots: i32[9]) {
      %g: f16[9, 4] = gather(%x, %e)
      %zero: f16[] = constant() {value = dense<f16[]: 0.0>}
      %s: f16[5, 4] = segment_reduce(%zero, %starts, %slots, %g) {reduction = "add"}
      return %s, %g
    }"""
    check_pass(Fuse(lookups=True, segments=True), text, None, numeric=False)


DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int32, np.int64)


@given(
    st.sampled_from(DTYPES),
    st.sampled_from(["add", "mul", "max", "min"]),
    st.integers(0, 4),
    st.integers(0, 9),
    st.data(),
)
def test_results_stay_the_same(dtype: Any, reduction: str, slices: int, count: int, data: st.DataObject) -> None:
    """Sizes of 0, equal and negative indices, NaN and infinities; a second scatter, and zeros that are added to."""
    count = count if slices else 0
    index = (
        data.draw(hnp.arrays(np.int64, count, elements=st.integers(-slices, max(slices - 1, 0))))
        if count
        else np.zeros(0, np.int64)
    )
    special = st.sampled_from([0.0, 1.0, -2.0, 3.0, np.inf, -np.inf, np.nan])
    numbers = special if np.dtype(dtype).kind != "i" else st.sampled_from([0.0, 1.0, -2.0, 3.0])
    x, updates = (
        data.draw(hnp.arrays(np.float64, (size, 2), elements=numbers)).astype(dtype) for size in (slices, count)
    )
    b = Builder()
    name = DType.of(updates.dtype)
    values = b.input("x", f"{name}[{slices}, 2]"), b.input("i", f"i64[{count}]"), b.input("u", f"{name}[{count}, 2]")
    places = b.op("expand", b.op("reshape", values[1], shape=(count, 1)), shape=(count, 2))
    first = b.op("scatter_elements", values[0], places, values[2], axis=0, reduction=reduction)
    zero = b.constant(np.zeros((slices, 2), dtype), name)
    second = b.op("add", first, b.op("scatter_elements", zero, places, values[2], axis=0, reduction="add"))
    graph = b.finish([first, second])
    given_values = [x, index, updates]
    with np.errstate(all="ignore"):
        wanted = evaluate_graph(graph, given_values)
        Pipeline(((EACH,),)).run(graph)
        found = evaluate_graph(graph, given_values)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one).astype(np.float64), np.asarray(other).astype(np.float64))
