"""Numeric checking: what is drawn, how far results may move, and that a wrong number is seen."""

import re
from textwrap import dedent

import ml_dtypes
import numpy as np
import pytest
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import Response, Samples, difference, draw_sizes

EXACT, ROUNDING, APPROXIMATE = Exactness
F32 = np.float32


def graph(text: str) -> Graph:
    return parse(dedent(text))


# ---- differences of arrays


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.array([1, np.nan, np.inf], F32), np.array([1, np.nan, np.inf], F32)),
        (np.array([0.0], F32), np.array([-0.0], F32)),
        (np.array([2**63 - 1]), np.array([2**63 - 1])),
        (np.array([1 + 2j], np.complex64), np.array([1 + 2j], np.complex64)),
        (np.array(["a"], object), np.array(["a"], object)),
        (np.zeros((0, 3), F32), np.zeros((0, 3), F32)),
        ([np.zeros(2)], [np.zeros(2)]),
        ([{"a": 1.0, "b": 2.0}], [{"b": 2.0, "a": 1.0}]),
    ],
)
def test_what_is_the_same_to_every_pass(old: object, new: object) -> None:
    for exactness in Exactness:
        assert difference(old, new, exactness) == ""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            np.array([1.0], F32),
            np.array([np.nextafter(F32(1), F32(2))]),
            r"at \[0\] is 1.0000001 instead of 1.0 \(1 of 1",
        ),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [5, 5]]), r"at \[1, 0\] is 5 instead of 3 \(2 of 4 differ\)"),
        (np.array([2**63 - 1]), np.array([2**63 - 2]), "is 9223372036854775806 instead of 9223372036854775807"),
        (np.array([True]), np.array([False]), "is False instead of True"),
        (np.array([np.nan], F32), np.array([1], F32), "is 1.0 instead of nan"),
        (np.array([np.inf], F32), np.array([-np.inf], F32), "is -inf instead of inf"),
        (np.array([1], F32), np.array([1], np.float64), r"is float64\[1\] instead of float32\[1\]"),
        (np.array([1, 2], F32), np.array([[1, 2]], F32), r"is float32\[1, 2\] instead of float32\[2\]"),
        (np.array(["a"], object), np.array(["b"], object), "has other strings"),
        ([np.zeros(2), np.zeros(2)], [np.zeros(2), np.array([0, 3.0])], r"in element 1 at \[1\] is 3.0 instead of 0.0"),
        ([np.zeros(2)], [], "has 0 elements instead of 1"),
        ([{"a": 1.0}], [{"a": 2.0}], r"in element 0 at \[0\] is 2.0 instead of 1.0"),
        ([{"a": 1.0}], [{"b": 1.0}], "in element 0 is {'b': 1.0} instead of {'a': 1.0}"),
    ],
)
def test_exact_passes_may_not_move_anything(old: object, new: object, words: str) -> None:
    assert re.search(words, difference(old, new, EXACT))


def test_a_last_bit_in_a_sequence_or_a_map_is_rounding() -> None:
    above = float(np.nextafter(F32(1), F32(2)))
    assert difference([np.array([1.0], F32)], [np.array([above], F32)], ROUNDING) == ""
    assert difference([{1: 1.0, 2: 5.0}], [{2: 5.0, 1: above}], ROUNDING) == ""


def test_rounding_is_for_floats_alone() -> None:
    assert difference(np.array([10**6]), np.array([10**6 + 1]), ROUNDING, terms=10**6)
    assert not difference(np.array([1e6], F32), np.array([1e6 + 1], F32), ROUNDING, terms=10**6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_tolerance_goes_by_dtype_and_length(dtype: type) -> None:
    epsilon = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    old = np.array([1.0, 0.25]).astype(dtype)

    def moved(roundings: float) -> np.ndarray:
        return (old.astype(np.float64) * (1 + roundings * epsilon)).astype(dtype)

    assert not difference(old, moved(8), ROUNDING, terms=1)
    assert difference(old, moved(32), ROUNDING, terms=1)
    assert not difference(old, moved(32), ROUNDING, terms=100)
    assert not difference(old, moved(32), ROUNDING, terms=1, response=epsilon)


def test_approximations_may_move_percents_and_not_more() -> None:
    old = np.array([1.0, 0.0], F32)
    assert not difference(old, np.array([1.01, 0.01], F32), APPROXIMATE)
    assert difference(old, np.array([1.05, 0.0], F32), APPROXIMATE)
    assert difference(old, np.array([1.01, 0.01], F32), ROUNDING)


def test_what_overflowed_need_not_overflow_again_but_finite_results_stay_finite() -> None:
    assert not difference(np.array([np.inf], F32), np.array([3e38], F32), ROUNDING)
    assert difference(np.array([np.inf], F32), np.array([3e38], F32), EXACT)
    assert difference(np.array([1.0], F32), np.array([np.inf], F32), ROUNDING)
    assert difference(np.array([1.0], F32), np.array([np.nan], F32), ROUNDING)


# ---- samples


def test_inputs_are_drawn_small_different_and_valid() -> None:
    made = graph("graph @main(%x: f32[B, T], %i: i64[T], %c: bool[2], %s: string[], %h: bf16[B]) { return %x }")
    samples = Samples.drawn(made)
    x, i, c, s, h = samples.inputs[0]
    assert draw_sizes(made) == {"B": 3, "T": 2}
    assert (x.shape, x.dtype) == ((3, 2), F32)
    assert set(i.tolist()) <= {0, 1}
    assert (c.dtype, s.item(), h.dtype) == (np.bool_, "text", ml_dtypes.bfloat16)
    again = Samples.drawn(made).inputs[0]
    assert np.array_equal(again[0], x)
    assert not np.array_equal(samples.inputs[1][0], x)


def test_sizes_can_be_given() -> None:
    made = graph("graph @main(%x: f32[B, T]) { return %x }")
    assert Samples.drawn(made, sizes={"T": 9}).inputs[0][0].shape == (3, 9)


def test_a_wrong_number_is_seen_where_it_is() -> None:
    right = graph("graph @main(%x: f32[4]) {\n %y = exp(%x)\n %z = neg(%x)\n return %y, %z\n}")
    wrong = graph("graph @main(%x: f32[4]) {\n %y = exp(%x)\n %z = abs(%x)\n return %y, %z\n}")
    problem = Samples.drawn(right).first_difference(wrong, APPROXIMATE)
    assert problem.startswith("output z at [")
    assert Samples.drawn(right).first_difference(right, EXACT) == ""


LONG = """
    graph @main(%x: f32[1000, 3]) {{
      %y = reduce_sum(%x) {{axes = [0], keep_dims = false}}
      {rest}
    }}
"""


def test_a_sum_in_another_order_is_admitted_where_sums_may_be_reordered() -> None:
    once = graph(LONG.format(rest="return %y"))
    halves = graph(
        """
        graph @main(%x: f32[1000, 3]) {
          %r = reshape(%x) {shape = [8, 125, 3]}
          %s = reduce_sum(%r) {axes = [1], keep_dims = false}
          %y = reduce_sum(%s) {axes = [0], keep_dims = false}
          return %y
        }"""
    )
    samples = Samples.drawn(once)
    assert samples.terms >= 999
    assert samples.first_difference(halves, EXACT)
    assert samples.first_difference(halves, ROUNDING) == ""


def test_cancellation_makes_room_and_a_wrong_sign_is_still_seen() -> None:
    """(x + 1e6) - 1e6 keeps few bits of x, so that x itself is as good; -x is not."""
    text = """
    graph @main(%x: f32[64]) {{
      %big = constant() {{value = dense<f32[]: 1000000.0>}}
      %a = add(%x, %big)
      %b = sub(%a, %big)
      {rest}
    }}"""
    kept, gone = graph(text.format(rest="return %b")), graph(text.format(rest="return %x as b"))
    samples = Samples.drawn(kept)
    assert samples.first_difference(gone, EXACT)
    assert samples.first_difference(gone, ROUNDING) == ""
    scaled = graph(text.format(rest="%y = mul(%big, %x)\n return %y as b"))
    assert samples.first_difference(scaled, ROUNDING)


def test_samples_go_on_from_what_a_pass_gave() -> None:
    first = graph("graph @main(%x: f32[64]) {\n %y = tanh(%x)\n return %y\n}")
    second = graph(
        """
        graph @main(%x: f32[64]) {
          %three = constant() {value = dense<f32[]: 3.0>}
          %a = tanh(%x)
          %b = div(%a, %three)
          %y = mul(%b, %three)
          return %y
        }"""
    )
    samples = Samples.drawn(first)
    problem, following = samples.compared(second, ROUNDING)
    assert problem == ""
    assert following.first_difference(second, EXACT) == ""
    assert samples.first_difference(second, EXACT)
    assert samples.compared(second, EXACT)[1] is samples


def test_a_graph_that_fails_afterwards_is_a_difference() -> None:
    right = graph("graph @main(%x: f32[4], %i: i64[2]) {\n %y = gather(%x, %i) {axis = 0}\n return %y\n}")
    wrong = graph(
        """
        graph @main(%x: f32[4], %i: i64[2]) {
          %far = constant() {value = dense<i64[]: 99>}
          %j = add(%i, %far)
          %y = gather(%x, %j) {axis = 0}
          return %y
        }"""
    )
    assert Samples.drawn(right).first_difference(wrong, EXACT).startswith("it cannot be evaluated any more: ")


def test_graphs_that_cannot_be_checked() -> None:
    noise = graph("graph @main(%x: f32[4]) {\n %n = bernoulli(%x) {dtype = f32}\n return %n\n}")
    with pytest.raises(UnsupportedError, match="random ops"):
        Samples.drawn(noise)
    inside = graph(
        """
        graph @main(%c: bool[], %x: f32[4]) {
          %y = if(%c, %x) {then_body = @then, else_body = @else}
          return %y
        }

        graph @then(%a: f32[4]) {
          %n = bernoulli(%a) {dtype = f32}
          return %n
        }

        graph @else(%a: f32[4]) {
          return %a
        }"""
    )
    with pytest.raises(UnsupportedError, match="random ops"):
        Samples.drawn(inside)
    far = graph(
        "graph @main(%x: f32[4]) {\n %i = constant() {value = dense<i64[]: 9>}\n"
        " %y = gather(%x, %i) {axis = 0}\n return %y\n}"
    )
    with pytest.raises(UnsupportedError, match="cannot be evaluated on drawn inputs") as caught:
        Samples.drawn(far)
    assert "gather" in (caught.value.where or "")
    assert caught.value.remedy


def test_views_too_large_to_write_out_are_out_of_memory() -> None:
    text = "graph @main(%x: f32[1], %n: i64[1]) { %y: f32[u0] = dynamic_expand(%x, %n) return %y }"
    with pytest.raises(UnsupportedError, match="out of memory"):
        Samples.of(graph(text), [[np.ones(1, F32), np.array([1 << 58])]])


def test_given_samples_are_used_as_they_are() -> None:
    made = graph("graph @main(%x: f32[2]) {\n %y = neg(%x)\n return %y\n}")
    samples = Samples.of(made, [[np.array([1, 2], F32)]])
    assert samples.samples[0].expected[0].tolist() == [-1, -2]
    assert samples.inputs[0][0].tolist() == [1, 2]


def test_integers_may_flip_where_one_rounding_flips_them() -> None:
    edge = graph(
        "graph @main(%x: f32[64]) {\n %y = sigmoid(%x)\n %f = ceil(%y)\n %i = cast(%f) {to = i32}\n return %i\n}"
    )
    wrong = graph("graph @main(%x: f32[64]) {\n %y = abs(%x)\n %f = ceil(%y)\n %i = cast(%f) {to = i32}\n return %i\n}")
    samples = Samples.drawn(edge)
    assert samples.samples[0].responses == (Response(0.0),)
    assert samples.first_difference(wrong, ROUNDING)
    stepped = graph(
        "graph @main(%x: f32[64]) {\n %e = exp(%x)\n %f = ceil(%e)\n %i = cast(%f) {to = i32}\n return %i\n}"
    )
    assert Samples.of(stepped, [[np.zeros(64, F32)]]).samples[0].responses == (Response(1.0),)


def test_bits_that_long_integers_alone_can_tell_move_with_a_rounding() -> None:
    drawn = graph("""
        graph @main(%x: f64[4]) {
          %0: f64[4] = mul(%x, %x)
          %1: i64[4] = bit_cast(%0) {to = i64}
          return %1
        }
    """)
    (sample,) = Samples.of(drawn, [[np.array([0.7, 0.9, 1.3, 1.7])]]).samples
    (bits,) = sample.expected
    assert 1 <= sample.responses[0].moved <= 16
    assert difference(bits, bits + 1, Exactness.ROUNDING)
    assert not difference(bits, bits + 1, Exactness.ROUNDING, 1, sample.responses[0].moved)


def test_long_integers_without_a_sign_are_as_far_apart_either_way() -> None:
    one, other = np.array([2**63], np.uint64), np.array([2**63 + 1], np.uint64)
    for pair in ((one, other), (other, one)):
        assert not difference(*pair, Exactness.ROUNDING, 1, 1.0)
        assert difference(*pair, Exactness.ROUNDING)


def test_what_is_drawn_in_few_bits_may_be_rounded_otherwise() -> None:
    drawn = graph("""
        graph @main(%s: u64[2]) {
          %0: f16[] = keyed_random_normal(%s) {shape = [], dtype = f16, scale = 2.0}
          %1: f64[] = cast(%0) {to = f64}
          %2: f64[] = softplus(%1)
          return %2
        }
    """)
    (sample,) = Samples.of(drawn, [[np.array([1, 5], np.uint64)]]).samples
    assert 1e-5 < sample.responses[0].moved < 1e-2


def test_where_operations_overflow_their_order_decides() -> None:
    text = "graph @main(%x: f16[4]) {{\n {lines}\n return %y\n}}"
    squared = graph(text.format(lines="%a = mul(%x, %x)\n %y = div(%x, %a)"))
    direct = graph(text.format(lines="%y = reciprocal(%x)"))
    large = Samples.of(squared, [[np.full(4, 1000, np.float16)]])
    assert not large.samples[0].responses[0].is_judged
    assert large.unjudged == [0]
    assert large.first_difference(direct, ROUNDING) == ""
    assert large.first_difference(direct, EXACT)
    small = Samples.of(squared, [[np.full(4, 10, np.float16)]])
    assert small.samples[0].responses[0].moved < 0.001
    masked = graph(
        "graph @main(%c: bool[4], %x: f32[4]) {\n %far = constant() {value = dense<f32[]: -inf>}\n"
        " %m = where(%c, %x, %far)\n %y = softmax(%m) {axis = 0}\n return %y\n}"
    )
    assert (
        Samples.drawn(masked).samples[0].responses[0].moved < 1e-5
    )  # an infinity that was put there is none that came about


def test_what_overflows_beside_given_infinities_overflows_too() -> None:
    text = "graph @main(%x: f16[4]) {{\n {lines}\n return %y\n}}"
    squared = graph(text.format(lines="%a = mul(%x, %x)\n %y = div(%x, %a)"))
    direct = graph(text.format(lines="%y = reciprocal(%x)"))
    mixed = Samples.of(squared, [[np.array([np.inf, np.nan, 1000, 2], np.float16)]])
    assert mixed.samples[0].responses[0].is_open.tolist() == [True, True, True, False]
    assert mixed.first_difference(direct, ROUNDING) == ""
    given = Samples.of(squared, [[np.array([np.inf, np.nan, 10, 2], np.float16)]])
    assert given.samples[0].responses[0].moved < 0.01
    assert given.samples[0].responses[0].is_open.tolist() == [True, True, False, False]


MANY_ROWS = """
    graph @main(%x: {dtype}[4], %y: {dtype}[64, 4]) {{
      {lines}
      %m = reshape(%r) {{shape = [1, 4]}}
      %s = {sum}(%y, %y)
      %o = concat(%s, %m) {{axis = 0}}
      return %o
    }}"""
LOST_ROWS = {
    "log of zero": ("f32", "%z = sub(%x, %x)\n %r = log(%z)"),
    "division by zero": ("f32", "%p = exp(%x)\n %z = sub(%x, %x)\n %r = div(%p, %z)"),
    "finite behind an overflow": ("f16", "%z = sub(%x, %x)\n %e = log(%z)\n %r = div(%x, %e)"),
    "overflow": ("f16", "%c = cosh(%x)\n %a = exp(%c)\n %b = exp(%a)\n %d = exp(%b)\n %e = exp(%d)\n %r = exp(%e)"),
}


@pytest.mark.parametrize(("dtype", "lines"), LOST_ROWS.values(), ids=LOST_ROWS)
def test_rows_that_overflow_hide_no_wrong_number_in_the_others(dtype: str, lines: str) -> None:
    right, wrong = (graph(MANY_ROWS.format(dtype=dtype, lines=lines, sum=each)) for each in ("add", "sub"))
    samples = Samples.drawn(right)
    assert samples.samples[0].responses[0].is_open.tolist() == [[False] * 4] * 64 + [[True] * 4]
    assert samples.first_difference(wrong, ROUNDING).startswith("output o at [0, ")
    assert samples.first_difference(right, ROUNDING) == ""
    assert samples.unjudged == []


def test_an_output_that_fails_when_rounded_otherwise_leaves_the_others_judged() -> None:
    """An index that a rounding moves out of range takes its own output along and no other."""
    text = """
        graph @main(%x: f32[4]) {{
          %zero = constant() {{value = dense<f32[]: 0.0>}}
          %four = constant() {{value = dense<f32[]: 4.0>}}
          %third = constant() {{value = dense<f32[]: 3.0>}}
          %q = div(%four, %third)
          %r = mul(%q, %third)
          %s = sub(%r, %four)
          %c = abs(%s)
          %huge = constant() {{value = dense<f32[]: 100000000.0>}}
          %far = mul(%c, %huge)
          %i = cast(%far) {{to = i64}}
          %y = gather(%x, %i) {{axis = 0}}
          %z = {op}(%x, %x)
          return %y, %z
        }}"""
    right, wrong = (graph(text.format(op=each)) for each in ("add", "sub"))
    samples = Samples.drawn(right)
    assert samples.unjudged == [0]
    assert samples.first_difference(wrong, ROUNDING).startswith("output z at [0]")


def test_large_numbers_beside_an_overflow_do_not_measure_the_small_ones() -> None:
    """Where one row overflows the next nearly does; by its numbers a wrong sign of small ones would be rounding."""
    text = """
        graph @main(%x: f16[260], %y: f16[260]) {{
          %e = exp(%x)
          %e2 = mul(%e, %e)
          %e4 = mul(%e2, %e2)
          %e8 = mul(%e4, %e4)
          %t = tanh(%y)
          %u = {op}(%t, %y)
          %o = concat(%e8, %u) {{axis = 0}}
          return %o
        }}"""
    right, wrong = (graph(text.format(op=each)) for each in ("add", "sub"))
    samples = Samples.drawn(right)
    found = re.search(r"output o at \[(\d+)\]", samples.first_difference(wrong, ROUNDING))
    assert found is not None
    assert int(found[1]) >= 260
    assert samples.first_difference(wrong, APPROXIMATE) == ""
    cubed = text.replace("%e4 = mul(%e2, %e2)", "%e3 = mul(%e2, %e)\n %e4 = mul(%e3, %e)").format(op="add")
    assert samples.first_difference(graph(cubed), ROUNDING) == ""


def test_what_underflows_is_not_in_proportion_to_what_is_left() -> None:
    text = """
        graph @main(%x: f32[64], %y: f32[4]) {{
          %a = constant() {{value = dense<f32[]: {first}>}}
          %b = constant() {{value = dense<f32[]: {second}>}}
          %u = mul(%x, %a)
          %v = mul(%u, %b)
          %z = sub(%y, %y)
          %w = log(%z)
          %o = concat(%v, %w) {{axis = 0}}
          return %o
        }}"""
    samples = Samples.drawn(graph(text.format(first=1e-20, second=1e-22)))
    assert samples.first_difference(graph(text.format(first=1e-4, second=1e-38)), ROUNDING) == ""
    assert samples.samples[0].responses[0].by_element is not None


def test_subnormal_numbers_are_off_by_the_smallest_one() -> None:
    text = """
        graph @main(%x: f32[2]) {{
          %a = constant() {{value = dense<f32[]: {first}>}}
          %b = constant() {{value = dense<f32[]: {second}>}}
          %u = mul(%x, %a)
          %y = mul(%u, %b)
          return %y
        }}"""
    samples = Samples.of(graph(text.format(first=0.89, second=1.7)), [[np.array([7e-45, 3e-45], np.float32)]])
    other = graph(text.format(first=1.513, second=1.0))
    assert samples.first_difference(other, EXACT)
    assert samples.first_difference(other, ROUNDING) == ""
    assert samples.first_difference(graph(text.format(first=1e4, second=1.0)), ROUNDING)


def test_a_winner_by_overflow_is_none() -> None:
    """One score is infinite on the way and wins over another, which is large itself where nothing overflows."""
    text = """
        graph @main(%x: f32[2]) {{
          %a = constant() {{value = dense<f32[]: {first}>}}
          %b = constant() {{value = dense<f32[]: {second}>}}
          %k = constant() {{value = dense<f32[2, 2]: [1.0, -1e-45, 100.0, 1e38]>}}
          %u = mul(%x, %a)
          %v = matmul(%u, %k)
          %w = mul(%v, %b)
          %t = tanh(%w)
          %n = constant() {{value = dense<f32[]: 90.0>}}
          %s = mul(%t, %n)
          %y = softmax(%s) {{axis = 0}}
          return %y
        }}"""
    samples = Samples.of(graph(text.format(first=10.0, second=0.01)), [[np.array([3e38, 1.0], np.float32)]])
    other = graph(text.format(first=0.1, second=1.0))
    assert samples.first_difference(other, EXACT)
    assert samples.first_difference(other, ROUNDING) == ""
