"""Composed attention becomes one op in every shape in which exporters write it; what only looks like it stays."""

import pytest
from capgraph.passes.recognize.recognize_attention import RecognizeAttention

from tests.passes.checking import check_pass

BY_HEAD = "%q: f32[B, 2, T, 4], %k: f32[B, 2, S, 4], %v: f32[B, 2, S, 4]"
SCORES, MIXED = "f32[B, 2, T, S]", "f32[B, 2, T, 4]"


def number(name: str, value: float | str, ty: str = "f32[]") -> str:
    return f"%{name}: {ty} = constant() {{value = dense<{ty}: {value}>}}"


def graph(inputs: str, *lines: str) -> str:
    """A graph that returns %y."""
    return "\n  ".join([f"graph @main({inputs}) {{", *lines]) + "\n  return %y\n}\n"


KT = "%kt: f32[B, 2, 4, S] = transpose(%k) {perm = [0, 1, 3, 2]}"
MATMUL = f"%s: {SCORES} = matmul(%q, %kt)"
EIGHTH, EIGHT = number("c", 0.125), number("c", 8.0)


OPEN = "scale = 1.0, nan_rows = true"
"""Masks may hide all keys."""


def softmax_and_mix(scores: str = "s") -> tuple[str, str]:
    return f"%p: {SCORES} = softmax(%{scores})", f"%y: {MIXED} = matmul(%p, %v)"


def attention(*extra: str, attrs: str = "scale = 0.125", mask: str = "_") -> str:
    return f"%y: {MIXED} = attention(%q, %k, %v, {mask}, _) {{{', '.join((attrs, *extra)) if attrs else ''}}}"


@pytest.mark.parametrize(
    ("lines", "attrs"),
    [
        ((KT, MATMUL, EIGHTH, f"%t: {SCORES} = mul(%s, %c)", *softmax_and_mix("t")), "scale = 0.125"),
        ((KT, MATMUL, EIGHT, f"%t: {SCORES} = div(%s, %c)", *softmax_and_mix("t")), "scale = 0.125"),
        (
            (KT, number("c", 0.5), f"%a: {MIXED} = mul(%q, %c)", f"%s: {SCORES} = matmul(%a, %kt)", *softmax_and_mix()),
            "scale = None",
        ),
        ((KT, MATMUL, *softmax_and_mix()), "scale = 1.0"),
        # torch's dynamo exporter: half of the scale on either side
        (
            (
                KT,
                number("c", 0.25),
                f"%a: {MIXED} = mul(%q, %c)",
                "%b: f32[B, 2, 4, S] = mul(%kt, %c)",
                f"%s: {SCORES} = matmul(%a, %b)",
                *softmax_and_mix(),
            ),
            "scale = 0.0625",
        ),
        # Gemma's soft cap
        (
            (
                KT,
                MATMUL,
                number("c", 30.0),
                f"%d: {SCORES} = div(%s, %c)",
                f"%h: {SCORES} = tanh(%d)",
                f"%t: {SCORES} = mul(%h, %c)",
                *softmax_and_mix("t"),
            ),
            "scale = 1.0, softcap = 30.0",
        ),
    ],
)
def test_scales_and_soft_caps(lines, attrs):
    attrs = attrs.replace("scale = None", "softcap = 0.0")
    check_pass(RecognizeAttention(), graph(BY_HEAD, *lines), graph(BY_HEAD, attention(attrs=attrs)))


def test_a_guard_against_nan_goes():
    zero = number("zero", 0.0)
    guard = ("%n: bool[B, 2, T, S] = is_nan(%p)", f"%g: {SCORES} = where(%n, %zero, %p)")
    before = (zero, KT, MATMUL, f"%p: {SCORES} = softmax(%s)", *guard, f"%y: {MIXED} = matmul(%g, %v)")
    check_pass(RecognizeAttention(), graph(BY_HEAD, *before), graph(BY_HEAD, attention(attrs="scale = 1.0")))


@pytest.mark.parametrize("mask", ["f32[T, S]", "f32[B, 1, T, S]", "f32[B, 1, 1, S]", "f32[2, T, S]"])
def test_an_added_mask_on_either_side(mask):
    inputs = f"{BY_HEAD}, %m: {mask}"
    before = (KT, MATMUL, f"%t: {SCORES} = add(%m, %s)", *softmax_and_mix("t"))
    check_pass(RecognizeAttention(), graph(inputs, *before), graph(inputs, attention(attrs=OPEN, mask="%m")))


LOWEST, INFINITE = number("low", "-3.4028235e+38"), number("low", "-inf")
ZERO, MASKED = number("zero", 0.0), "%h: f32[B, 1, 1, S]"


@pytest.mark.parametrize(
    ("choice", "fill", "after"),
    [
        ("where(%m, %s, %low)", INFINITE, ("%m", ())),
        ("where(%m, %low, %s)", INFINITE, ("%h", ("%h: bool[B, 1, 1, S] = logical_not(%m)",))),
        ("where(%m, %s, %low)", LOWEST, ("%h", (ZERO, LOWEST, f"{MASKED} = where(%m, %zero, %low)"))),
        ("where(%m, %low, %s)", LOWEST, ("%h", (ZERO, LOWEST, f"{MASKED} = where(%m, %low, %zero)"))),
    ],
)
def test_masks_by_where(choice, fill, after):
    inputs = f"{BY_HEAD}, %m: bool[B, 1, 1, S]"
    before = (KT, MATMUL, fill, f"%t: {SCORES} = {choice}", *softmax_and_mix("t"))
    operand, made = after
    attrs = "scale = 1.0" if fill is LOWEST else OPEN
    expected = graph(inputs, *made, attention(attrs=attrs, mask=operand))
    check_pass(RecognizeAttention(), graph(inputs, *before), expected)


@pytest.mark.parametrize(("hidden", "factor"), [("-inf", 0.5), ("-inf", 2.0), ("-3.4e+38", 0.5)])
def test_a_factor_after_a_mask_that_it_does_not_change(hidden, factor):
    """CodeGen: masks are added before the scores are divided."""
    inputs = f"{BY_HEAD}, %c: bool[B, 1, 1, S]"
    mask = (ZERO, number("low", hidden), "%m: f32[B, 1, 1, S] = where(%c, %zero, %low)")
    before = (KT, MATMUL, *mask, f"%t: {SCORES} = add(%s, %m)", number("f", factor), f"%u: {SCORES} = mul(%t, %f)")
    attrs = f"scale = {factor}" if factor != 0.5 else "softcap = 0.0"  # 0.5 is the usual scale
    attrs += ", nan_rows = true" if hidden == "-inf" else ""
    after = graph(inputs, *mask, attention(attrs=attrs, mask="%m"))
    check_pass(RecognizeAttention(), graph(inputs, *before, *softmax_and_mix("u")), after)


@pytest.mark.parametrize(
    ("seen", "hidden", "factor"),
    [
        (0.0, "-3.4e+38", 2.0),  # reaches -inf
        (0.0, "-2e+30", 0.25),  # is no longer sure to hide
        (0.0, "-inf", -1.0),
        (0.0, "-inf", 0.0),
        (0.0, "-1e+9", 0.5),
        (1.0, "-inf", 0.5),
    ],
)
def test_a_factor_after_a_mask_that_it_changes(seen, hidden, factor):
    inputs = f"{BY_HEAD}, %c: bool[B, 1, 1, S]"
    mask = (number("one", seen), number("low", hidden), "%m: f32[B, 1, 1, S] = where(%c, %one, %low)")
    lines = (KT, MATMUL, *mask, f"%t: {SCORES} = add(%s, %m)", number("f", factor), f"%u: {SCORES} = mul(%t, %f)")
    check_pass(RecognizeAttention(), graph(inputs, *lines, *softmax_and_mix("u")), None, numeric=False)


@pytest.mark.parametrize("later", ["add(%u, %n)", "where(%d, %u, %low)", "mul(%u, %f)"])
def test_what_follows_a_factor_after_a_finite_mask_keeps_it(later):
    """A query that sees no key goes by which of two masks hides less; and two factors may be too small together."""
    inputs = f"{BY_HEAD}, %c: bool[B, 1, 1, S], %d: bool[T, S], %n: f32[T, S]"
    mask = (ZERO, number("low", "-3.4e+38"), "%m: f32[B, 1, 1, S] = where(%c, %zero, %low)")
    lines = (KT, MATMUL, *mask, f"%t: {SCORES} = add(%s, %m)", number("f", 0.5), f"%u: {SCORES} = mul(%t, %f)")
    lines += (f"%w: {SCORES} = {later}", *softmax_and_mix("w"))
    check_pass(RecognizeAttention(), graph(inputs, *lines), None)


def test_a_factor_after_two_masks_stays():
    """Which of the keys that both hide is better, a query that sees none goes by."""
    inputs = f"{BY_HEAD}, %c: bool[B, 1, 1, S], %d: bool[T, S]"
    low = number("low", "-3.4e+38")
    masks = (f"%t: {SCORES} = where(%c, %s, %low)", f"%w: {SCORES} = where(%d, %t, %low)")
    lines = (KT, MATMUL, low, *masks, number("f", 0.5), f"%u: {SCORES} = mul(%w, %f)")
    check_pass(RecognizeAttention(), graph(inputs, *lines, *softmax_and_mix("u")), None)


FIXED = "%q: f32[1, 2, 3, 4], %k: f32[1, 2, 3, 4], %v: f32[1, 2, 3, 4]"
TRIANGLE = "[0.0, -3.4e+38, -3.4e+38, 0.0, 0.0, -3.4e+38, 0.0, 0.0, 0.0]"


@pytest.mark.parametrize(
    ("elements", "attrs"), [(TRIANGLE, "causal = true, scale = 1.0"), (f"[{', '.join(['0.0'] * 9)}]", "scale = 1.0")]
)
def test_constant_masks_become_causal_or_go(elements, attrs):
    before = (
        number("m", elements, "f32[1, 1, 3, 3]"),
        "%kt: f32[1, 2, 4, 3] = transpose(%k) {perm = [0, 1, 3, 2]}",
        "%s: f32[1, 2, 3, 3] = matmul(%q, %kt)",
        "%t: f32[1, 2, 3, 3] = add(%s, %m)",
        "%p: f32[1, 2, 3, 3] = softmax(%t)",
        "%y: f32[1, 2, 3, 4] = matmul(%p, %v)",
    )
    after = f"%y: f32[1, 2, 3, 4] = attention(%q, %k, %v, _, _) {{{attrs}}}"
    check_pass(RecognizeAttention(), graph(FIXED, *before), graph(FIXED, after))


HALF = "[0.0, -inf, -inf, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]"


@pytest.mark.parametrize(
    ("mask", "attrs"),
    [
        (number("m", HALF, "f32[3, 3]"), "scale = 1.0"),
        (number("m", HALF.replace("0.0", "-inf", 1), "f32[3, 3]"), OPEN),
        (number("m", "[true, false, false]", "bool[3]"), "scale = 1.0"),
        (number("m", "[false, false, false]", "bool[3]"), OPEN),
    ],
)
def test_constant_masks_tell_whether_a_query_sees_no_key(mask, attrs):
    chosen = "where(%m, %s, %low)" if "bool" in mask else "add(%s, %m)"
    made = (mask, number("low", "-inf")) if "bool" in mask else (mask,)
    before = (
        *made,
        "%kt: f32[1, 2, 4, 3] = transpose(%k) {perm = [0, 1, 3, 2]}",
        "%s: f32[1, 2, 3, 3] = matmul(%q, %kt)",
        f"%t: f32[1, 2, 3, 3] = {chosen}",
        "%p: f32[1, 2, 3, 3] = softmax(%t)",
        "%y: f32[1, 2, 3, 4] = matmul(%p, %v)",
    )
    after = f"%y: f32[1, 2, 3, 4] = attention(%q, %k, %v, %m, _) {{{attrs}}}"
    check_pass(RecognizeAttention(), graph(FIXED, *before), graph(FIXED, mask, after))


def test_a_mask_of_finite_numbers_hides_no_row():
    """Hugging Face's: ones where keys are real, from integers."""
    inputs = f"{BY_HEAD}, %i: i64[B, 1, 1, S]"
    mask = (
        "%f: f32[B, 1, 1, S] = cast(%i) {to = f32}",
        number("one", 1.0),
        number("low", "-3.4028235e+38"),
        "%n: f32[B, 1, 1, S] = sub(%one, %f)",
        "%m: f32[B, 1, 1, S] = mul(%n, %low)",
    )
    before = (*mask, KT, MATMUL, f"%t: {SCORES} = add(%s, %m)", *softmax_and_mix("t"))
    expected = graph(inputs, *mask, attention(attrs="scale = 1.0", mask="%m"))
    check_pass(RecognizeAttention(), graph(inputs, *before), expected, numeric=False)


POSITIONS = (
    "%t: i64[T] = arange() {limit = T}",
    "%row: i64[1, 1, T, 1] = reshape(%t) {shape = [1, 1, T, 1]}",
    "%column: i64[1, 1, 1, T] = reshape(%t) {shape = [1, 1, 1, T]}",
)
SQUARE = "%q: f32[B, 2, T, 4], %k: f32[B, 2, T, 4], %v: f32[B, 2, T, 4]"


@pytest.mark.parametrize(
    ("hidden", "later", "after"),
    [
        # what is written over a mask stays written over it, for queries that see no key
        ("-inf", "where(%c, %t, %low)", ("%o = add(%l, %m)", "%o2 = where(%c, %o, %low)", False)),
        ("-1e+30", "where(%c, %t, %low)", ("%o = add(%l, %m)", "%o2 = where(%c, %o, %low)", False)),
        # a finite triangle does not say which of the keys that others hide too are better
        ("-1e+30", "add(%t, %m)", ("%o = add(%l, %m)", "%o2 = add(%o, %m)", False)),
        ("-inf", "add(%t, %m)", ("", "%o2 = add(%m, %m)", True)),
    ],
)
def test_several_masks_keep_their_order(hidden, later, after):
    inputs = f"{FIXED}, %m: f32[3, 3], %c: bool[3, 3]"
    triangle = number("l", TRIANGLE.replace("-3.4e+38", hidden), "f32[3, 3]")
    low = number("low", "-3.4028235e+38") if "low" in later else ""
    before = (
        triangle,
        low,
        "%kt: f32[1, 2, 4, 3] = transpose(%k) {perm = [0, 1, 3, 2]}",
        "%s: f32[1, 2, 3, 3] = matmul(%q, %kt)",
        "%z: f32[1, 2, 3, 3] = add(%s, %l)",
        "%t: f32[1, 2, 3, 3] = add(%z, %m)",
        f"%f: f32[1, 2, 3, 3] = {later}",
        "%p: f32[1, 2, 3, 3] = softmax(%f)",
        "%y: f32[1, 2, 3, 4] = matmul(%p, %v)",
    )
    first, second, causal = after
    attrs = f"causal = true, {OPEN}" if causal else OPEN
    made = (*(() if causal else (triangle, first)), low, second)
    expected = graph(inputs, *made, f"%y: f32[1, 2, 3, 4] = attention(%q, %k, %v, %o2, _) {{{attrs}}}")
    check_pass(RecognizeAttention(), graph(inputs, *before), expected)


@pytest.mark.parametrize(("op", "factor"), [("mul", "inf"), ("mul", "nan"), ("div", "0.0"), ("div", "1e-45")])
def test_a_factor_that_is_no_finite_number_is_no_scale(op, factor):
    before = (KT, MATMUL, number("c", factor), f"%t: {SCORES} = {op}(%s, %c)", *softmax_and_mix("t"))
    check_pass(RecognizeAttention(), graph(BY_HEAD, *before), None)


@pytest.mark.parametrize(
    ("comparison", "is_causal"),
    [
        ("less_equal(%column, %row)", True),
        ("greater_equal(%row, %column)", True),
        ("less(%column, %row)", False),
        ("less_equal(%row, %column)", False),
    ],
)
@pytest.mark.parametrize("added", [False, True])
def test_masks_compared_from_positions_become_causal(comparison, is_causal, added):
    mask = [*POSITIONS, f"%m: bool[1, 1, T, T] = {comparison}"]
    if added:
        mask += [ZERO, LOWEST, "%f: f32[1, 1, T, T] = where(%m, %zero, %low)"]
    before = graph(SQUARE, *mask, f"%y: {MIXED} = attention(%q, %k, %v, {'%f' if added else '%m'}, _)")
    after = graph(SQUARE, f"%y: {MIXED} = attention(%q, %k, %v, _, _) {{causal = true}}")
    check_pass(RecognizeAttention(), before, after if is_causal else None)


ONES = ("%one: f32[] = constant() {value = dense<f32[]: 1.0>}", "%ones: f32[T, T] = expand(%one) {shape = [T, T]}")
BITS = "%bits: bool[T, T] = full() {shape = [T, T], value = dense<bool[]: true>}"
INFINITIES = "%wide: f32[T, T] = full() {shape = [T, T], value = dense<f32[]: -inf>}"
UP_TO, LATER = "{upper = false}", "{upper = true, diagonal = 1}"


@pytest.mark.parametrize(
    ("lines", "is_causal"),
    [
        # torch's is_causal in either exporter, and masked_fill by tril == 0
        (
            (*ONES, ZERO, LOWEST, f"%l = trilu(%ones) {UP_TO}", "%e = equal(%l, %zero)", "%m = where(%e, %low, %zero)"),
            True,
        ),
        ((*ONES, ZERO, f"%l = trilu(%ones) {UP_TO}", "%e = equal(%l, %zero)", "%m = logical_not(%e)"), True),
        ((BITS, f"%m = trilu(%bits) {UP_TO}"), True),
        # generate_square_subsequent_mask, and masked_fill by triu
        ((INFINITIES, f"%m = trilu(%wide) {LATER}"), True),
        ((*ONES, f"%l = trilu(%ones) {LATER}", "%e = cast(%l) {to = bool}", "%m = logical_not(%e)"), True),
        ((*ONES, LOWEST, f"%l = trilu(%ones) {LATER}", "%m = mul(%l, %low)"), True),
        # the triangle next to it, on either side
        ((BITS, "%m = trilu(%bits) {upper = false, diagonal = -1}"), False),
        ((BITS, "%m = trilu(%bits) {upper = false, diagonal = 1}"), False),
        ((INFINITIES, "%m = trilu(%wide) {upper = true, diagonal = 2}"), False),
        # what is seen and what is hidden change places
        ((*ONES, ZERO, f"%l = trilu(%ones) {UP_TO}", "%m = equal(%l, %zero)"), False),
        ((INFINITIES, f"%m = trilu(%wide) {UP_TO}"), False),
        # numbers that hide nothing for sure, that shift what is seen, and 0 * -inf
        ((*ONES, number("c", -1e9), f"%l = trilu(%ones) {LATER}", "%m = mul(%l, %c)"), False),
        ((number("c", 1.0), INFINITIES, f"%l = trilu(%wide) {LATER}", "%m = add(%l, %c)"), False),
        ((*ONES, INFINITE, f"%l = trilu(%ones) {LATER}", "%m = mul(%l, %low)"), False),
    ],
)
def test_triangles_of_one_number_become_causal(lines, is_causal):
    before = graph(SQUARE, *lines, f"%y: {MIXED} = attention(%q, %k, %v, %m, _)")
    after = graph(SQUARE, f"%y: {MIXED} = attention(%q, %k, %v, _, _) {{causal = true}}")
    check_pass(RecognizeAttention(), before, after if is_causal else None, numeric=is_causal)


def test_a_triangle_of_other_sizes_stays():
    """Queries fewer than keys: which of the keys `causal` shows is for the op to say."""
    lines = ("%bits: bool[T, S] = full() {shape = [T, S], value = dense<bool[]: true>}", f"%m = trilu(%bits) {UP_TO}")
    check_pass(RecognizeAttention(), graph(BY_HEAD, *lines, f"%y: {MIXED} = attention(%q, %k, %v, %m, _)"), None)


@pytest.mark.parametrize(("hidden", "is_causal"), [("-inf", True), ("-3.4028235e+38", False)])
def test_a_triangle_by_where_next_to_another_mask(hidden, is_causal):
    """The number of later keys stands first in the `where`: -inf is told apart, a finite one is not."""
    inputs = f"{SQUARE}, %m: f32[T, T]"
    triangle = (
        *ONES,
        ZERO,
        number("low", hidden),
        f"%l: f32[T, T] = trilu(%ones) {UP_TO}",
        "%e: bool[T, T] = equal(%l, %zero)",
        "%w: f32[T, T] = where(%e, %low, %zero)",
    )
    square = SCORES.replace("S]", "T]")
    before = (
        *triangle,
        "%kt: f32[B, 2, 4, T] = transpose(%k) {perm = [0, 1, 3, 2]}",
        f"%s: {square} = matmul(%q, %kt)",
        f"%z: {square} = add(%s, %w)",
        f"%t: {square} = add(%z, %m)",
        f"%p: {square} = softmax(%t)",
        f"%y: {MIXED} = matmul(%p, %v)",
    )
    made = () if is_causal else (*triangle, "%o = add(%w, %m)")
    attrs = f"causal = true, {OPEN}" if is_causal else OPEN
    after = (*made, f"%y: {MIXED} = attention(%q, %k, %v, {'%m' if is_causal else '%o'}, _) {{{attrs}}}")
    check_pass(RecognizeAttention(), graph(inputs, *before), graph(inputs, *after))


def test_half_precision_with_the_softmax_in_f32():
    inputs = BY_HEAD.replace("f32", "f16")
    before = (
        KT.replace("f32", "f16"),
        "%s: f16[B, 2, T, S] = matmul(%q, %kt)",
        f"%w: {SCORES} = cast(%s) {{to = f32}}",
        f"%p: {SCORES} = softmax(%w)",
        "%n: f16[B, 2, T, S] = cast(%p) {to = f16}",
        "%y: f16[B, 2, T, 4] = matmul(%n, %v)",
    )
    after = "%y: f16[B, 2, T, 4] = attention(%q, %k, %v, _, _) {scale = 1.0}"
    check_pass(RecognizeAttention(), graph(inputs, *before), graph(inputs, after))


def test_the_transposed_keys_of_torchs_dynamo_exporter():
    before = (
        "%a: f32[2*B, S, 4] = reshape(%k) {shape = [2*B, S, 4]}",
        "%b: f32[2*B, 4, S] = transpose(%a) {perm = [0, 2, 1]}",
        "%kt: f32[B, 2, 4, S] = reshape(%b) {shape = [B, 2, 4, S]}",
        MATMUL,
        *softmax_and_mix(),
    )
    check_pass(RecognizeAttention(), graph(BY_HEAD, *before), graph(BY_HEAD, attention(attrs="scale = 1.0")))


def test_batch_and_heads_joined_for_torch_bmm():
    """Hugging Face's OPT and BART: matmuls over [batch * heads, ...], the mask added with the heads apart."""
    inputs = f"{BY_HEAD}, %m: f32[B, 1, T, S]"
    before = (
        "%a: f32[2*B, T, 4] = reshape(%q) {shape = [2*B, T, 4]}",
        "%b: f32[2*B, S, 4] = reshape(%k) {shape = [2*B, S, 4]}",
        "%c: f32[2*B, S, 4] = reshape(%v) {shape = [2*B, S, 4]}",
        "%kt: f32[2*B, 4, S] = transpose(%b) {perm = [0, 2, 1]}",
        "%s: f32[2*B, T, S] = matmul(%a, %kt)",
        f"%d: {SCORES} = reshape(%s) {{shape = [B, 2, T, S]}}",
        f"%e: {SCORES} = add(%d, %m)",
        "%f: f32[2*B, T, S] = reshape(%e) {shape = [2*B, T, S]}",
        "%p: f32[2*B, T, S] = softmax(%f)",
        "%y: f32[2*B, T, 4] = matmul(%p, %c)",
    )
    after = (
        f"%o: {MIXED} = attention(%q, %k, %v, %m, _) {{{OPEN}}}",
        "%y: f32[2*B, T, 4] = reshape(%o) {shape = [2*B, T, 4]}",
    )
    check_pass(RecognizeAttention(), graph(inputs, *before), graph(inputs, *after))


def test_keys_and_values_repeated_for_groups_of_heads():
    """Llama's repeat_kv through the dynamo exporter."""
    inputs = "%q: f32[B, 6, T, 4], %k: f32[B, 2, S, 4], %v: f32[B, 2, S, 4]"
    repeat = (
        "%{0}1: f32[B, 2, 1, S, 4] = reshape(%{0}) {{shape = [B, 2, 1, S, 4]}}",
        "%{0}2: f32[B, 2, 3, S, 4] = expand(%{0}1) {{shape = [B, 2, 3, S, 4]}}",
        "%{0}3: f32[B, 6, S, 4] = reshape(%{0}2) {{shape = [B, 6, S, 4]}}",
    )
    before = (
        *(line.format("k") for line in repeat),
        *(line.format("v") for line in repeat),
        "%kt: f32[B, 6, 4, S] = transpose(%k3) {perm = [0, 1, 3, 2]}",
        "%s: f32[B, 6, T, S] = matmul(%q, %kt)",
        "%p: f32[B, 6, T, S] = softmax(%s)",
        "%y: f32[B, 6, T, 4] = matmul(%p, %v3)",
    )
    after = "%y: f32[B, 6, T, 4] = attention(%q, %k, %v, _, _) {scale = 1.0}"
    check_pass(RecognizeAttention(), graph(inputs, *before), graph(inputs, after))


ONE_HEAD = "%q: f32[B, 6, T, 4], %k: f32[B, 1, S, 4], %v: f32[B, 1, S, 4]"


def shared_head(keys: str = "f32[B, 1, 4, S]") -> tuple[str, ...]:
    return (
        f"%kt: {keys} = transpose(%k) {{perm = [0, 1, 3, 2]}}",
        "%s: f32[B, 6, T, S] = matmul(%q, %kt)",
        "%p: f32[B, 6, T, S] = softmax(%s)",
        "%y: f32[B, 6, T, 4] = matmul(%p, %v)",
    )


def test_one_head_of_keys_and_values_that_the_matmuls_broadcast():
    """Falcon's multi-query attention."""
    after = "%y: f32[B, 6, T, 4] = attention(%q, %k, %v, _, _) {scale = 1.0}"
    check_pass(RecognizeAttention(), graph(ONE_HEAD, *shared_head()), graph(ONE_HEAD, after))


@pytest.mark.parametrize(
    ("inputs", "keys"),
    [
        # keys of one head, values of as many as the queries, and the other way round
        (ONE_HEAD.replace("%v: f32[B, 1,", "%v: f32[B, 6,"), "f32[B, 1, 4, S]"),
        (ONE_HEAD.replace("%k: f32[B, 1,", "%k: f32[B, 6,"), "f32[B, 6, 4, S]"),
        # one head for the whole batch
        (ONE_HEAD.replace("%k: f32[B,", "%k: f32[1,"), "f32[1, 1, 4, S]"),
    ],
)
def test_what_else_the_matmuls_broadcast_stays(inputs, keys):
    check_pass(RecognizeAttention(), graph(inputs, *shared_head(keys)), None)


def test_heads_parted_only_for_attention_stay_side_by_side():
    """BERT: projections, heads parted, attention, heads joined; the scale of Whisper in front of it all."""
    inputs = "%q: f32[B, T, 8], %k: f32[B, S, 8], %v: f32[B, S, 8]"
    part = (
        "%{0}1: f32[B, {1}, 2, 4] = reshape(%{2}) {{shape = [B, {1}, 2, 4]}}",
        "%{0}2: f32[B, 2, {1}, 4] = transpose(%{0}1) {{perm = [0, 2, 1, 3]}}",
    )
    before = (
        number("c", 0.25),
        "%scaled: f32[B, T, 8] = mul(%q, %c)",
        *(line.format("q", "T", "scaled") for line in part),
        *(line.format("k", "S", "k") for line in part),
        *(line.format("v", "S", "v") for line in part),
        "%kt: f32[B, 2, 4, S] = transpose(%k2) {perm = [0, 1, 3, 2]}",
        "%s: f32[B, 2, T, S] = matmul(%q2, %kt)",
        "%p: f32[B, 2, T, S] = softmax(%s)",
        "%o: f32[B, 2, T, 4] = matmul(%p, %v2)",
        "%t: f32[B, T, 2, 4] = transpose(%o) {perm = [0, 2, 1, 3]}",
        "%y: f32[B, T, 8] = reshape(%t) {shape = [B, T, 8]}",
    )
    after = (
        "%o: f32[B, T, 8] = attention(%q, %k, %v, _, _) {scale = 0.25, heads = 2, kv_heads = 2}",
        "%t: f32[B, T, 2, 4] = reshape(%o) {shape = [B, T, 2, 4]}",
        "%y: f32[B, T, 8] = reshape(%t) {shape = [B, T, 8]}",
    )
    check_pass(RecognizeAttention(), graph(inputs, *before), graph(inputs, *after))


@pytest.mark.parametrize(
    ("inputs", "lines"),
    [
        # a softmax over the queries
        (BY_HEAD, (KT, MATMUL, f"%p: {SCORES} = softmax(%s) {{axis = 2}}", f"%y: {MIXED} = matmul(%p, %v)")),
        # scores or weights that something else reads
        (
            BY_HEAD,
            (
                KT,
                MATMUL,
                f"%p: {SCORES} = softmax(%s)",
                f"%z: {MIXED} = matmul(%p, %v)",
                f"%w: {SCORES} = add(%p, %s)",
                f"%y: {MIXED} = matmul(%w, %v)",
            ),
        ),
        # one set of keys for the whole batch: the op does not broadcast
        (
            BY_HEAD.replace("%k: f32[B,", "%k: f32[1,"),
            ("%kt: f32[1, 2, 4, S] = transpose(%k) {perm = [0, 1, 3, 2]}", MATMUL, *softmax_and_mix()),
        ),
        # a fill that hides nothing for sure
        (
            f"{BY_HEAD}, %m: bool[T, S]",
            (KT, MATMUL, number("low", -100.0), f"%t: {SCORES} = where(%m, %s, %low)", *softmax_and_mix("t")),
        ),
        # a factor on scores and mask together
        (
            f"{BY_HEAD}, %m: f32[T, S]",
            (KT, MATMUL, EIGHTH, f"%t: {SCORES} = add(%s, %m)", f"%u: {SCORES} = mul(%t, %c)", *softmax_and_mix("u")),
        ),
        # scores that are smaller than the queries: matmuls do as well
        (
            "%q: f32[B, 2, 8, 196], %k: f32[B, 2, 8, 196], %v: f32[B, 2, 8, 196]",
            (
                "%kt: f32[B, 2, 196, 8] = transpose(%k) {perm = [0, 1, 3, 2]}",
                "%s: f32[B, 2, 8, 8] = matmul(%q, %kt)",
                "%p: f32[B, 2, 8, 8] = softmax(%s)",
                "%y: f32[B, 2, 8, 196] = matmul(%p, %v)",
            ),
        ),
        # no softmax over scores at all
        (f"{BY_HEAD}, %s: {SCORES}", softmax_and_mix()),
    ],
)
def test_what_only_looks_like_attention_stays(inputs, lines):
    check_pass(RecognizeAttention(), graph(inputs, *lines), None)
