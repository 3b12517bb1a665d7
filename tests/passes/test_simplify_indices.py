"""Positions and decided comparisons are written as ranges and numbers; everything else stays."""

import pytest
from capgraph.passes.cleanup.simplify_indices import SimplifyIndices

from tests.passes.checking import check_pass

LAST = "max(0, min(T, min(1, T) + T - 1))"
RANGE = "%t: i64[T] = arange() {limit = T}"


def graph(*lines: str, inputs: str = "%x: f32[B, T]") -> str:
    """A graph that returns %y."""
    return "\n  ".join([f"graph @main({inputs}) {{", *lines]) + "\n  return %y\n}\n"


def number(name: str, value: int) -> str:
    return f"%{name}: i64[] = constant() {{value = dense<i64[]: {value}>}}"


ZERO = number("o", 0)
NEXT = "%o: i64[T] = arange() {start = 1, limit = T + 1}"


@pytest.mark.parametrize(
    ("other", "comparison", "answer"),
    [
        (ZERO, "greater_equal(%t, %o)", "true"),
        (ZERO, "less(%t, %o)", "false"),
        (NEXT, "greater(%o, %t)", "true"),
        (NEXT, "equal(%o, %t)", "false"),
        (NEXT, "not_equal(%o, %t)", "true"),
    ],
)
def test_comparisons_that_have_one_answer(other, comparison, answer):
    before = graph(RANGE, other, f"%y: bool[T] = {comparison}")
    after = graph(
        f"%c: bool[1] = constant() {{value = dense<bool[1]: [{answer}]>}}", "%y: bool[T] = expand(%c) {shape = [T]}"
    )
    check_pass(SimplifyIndices(), before, after)


def test_the_packed_sequence_check_of_hugging_face_is_decided():
    """Position ids that follow each other belong to one sequence: the count of jumps is 0 everywhere."""
    before = graph(
        RANGE,
        number("one", 1),
        "%p: i64[1, T] = reshape(%t) {shape = [1, T]}",
        "%e: i64[B, T] = expand(%p) {shape = [B, T]}",
        "%first: i64[B, min(1, T)] = slice(%e) {axes = [1], starts = [0], ends = [1], steps = [1]}",
        "%before: i64[B, min(1, T)] = sub(%first, %one)",
        "%c: i64[B, min(1, T) + T] = concat(%before, %e) {axis = -1}",
        "%a: i64[B, min(T, min(1, T) + T)] = slice(%c) {axes = [-1], starts = [0], ends = [T], steps = [1]}",
        f"%b: i64[B, {LAST}] = slice(%c) {{axes = [-1], starts = [1], ends = [T + 1], steps = [1]}}",
        f"%d: i64[B, {LAST}] = sub(%b, %a)",
        f"%same: bool[B, {LAST}] = equal(%d, %one)",
        f"%jump: bool[B, {LAST}] = logical_not(%same)",
        f"%n: i64[B, {LAST}] = cast(%jump) {{to = i64}}",
        f"%y: i64[B, {LAST}] = cumsum(%n) {{axis = -1}}",
    )
    after = graph(
        "%k: i64[1, 1] = constant() {value = dense<i64[1, 1]: [0]>}",
        f"%y: i64[B, {LAST}] = expand(%k) {{shape = [B, {LAST}]}}",
    )
    check_pass(SimplifyIndices(), before, after)


def test_a_gather_of_positions_is_a_range():
    before = graph(
        RANGE,
        "%p: i64[1, T] = reshape(%t) {shape = [1, T]}",
        "%e: i64[B, T] = expand(%p) {shape = [B, T]}",
        "%b: i64[B] = arange() {limit = B}",
        "%b1: i64[B, 1, 1] = reshape(%b) {shape = [B, 1, 1]}",
        "%i: i64[B, T, 1] = expand(%b1) {shape = [B, T, 1]}",
        "%t1: i64[1, T, 1] = reshape(%t) {shape = [1, T, 1]}",
        "%j: i64[B, T, 1] = expand(%t1) {shape = [B, T, 1]}",
        "%ij: i64[B, T, 2] = concat(%i, %j) {axis = -1}",
        "%y: i64[B, T] = gather_nd(%e, %ij)",
    )
    after = graph(
        "%r: i64[T] = arange() {limit = T}",
        "%r1: i64[1, T] = reshape(%r) {shape = [1, T]}",
        "%y: i64[B, T] = expand(%r1) {shape = [B, T]}",
    )
    check_pass(SimplifyIndices(), before, after)


@pytest.mark.parametrize(
    "lines",
    [
        (RANGE, number("five", 5), "%y: bool[T] = less(%t, %five)"),
        (RANGE, number("one", 1), "%s: i64[T] = sub(%t, %one)", "%y: f32[B, T] = gather(%x, %s) {axis = 1}"),
        (RANGE, "%y: i64[2*T] = concat(%t, %t) {axis = 0}"),
        (RANGE, "%y: i64[T] = cumsum(%t) {axis = 0}"),
        (
            "%t: i64[2, 2] = constant() {value = dense<i64[2, 2]: [0, 1, 2, 5]>}",
            number("zero", 0),
            "%y: i64[2] = gather(%t, %zero) {axis = 0}",
        ),
    ],
)
def test_what_depends_on_more_stays(lines):
    check_pass(SimplifyIndices(), graph(*lines), None)
