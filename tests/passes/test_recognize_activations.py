"""Composed activation functions become one op: every spelling that exporters use, and near misses that stay."""

import pytest
from capgraph.passes.recognize.recognize_activations import RecognizeActivations

from tests.passes.checking import check_pass

X = "%x: f32[B, 4]"


def chain(*lines: str, x: str = X) -> str:
    """A graph whose lines are `name = op(...)`, all of the type of x unless a type is given; the last is returned."""
    ty = x.split(": ")[1]
    body = "\n".join(f"  %{name}{'' if ':' in name else ': ' + ty} = {rest}" for name, rest in map(_parts, lines))
    last = _parts(lines[-1])[0].split(":")[0]
    return f"graph @main({x}) {{\n{body}\n  return %{last}\n}}\n"


def _parts(line: str) -> tuple[str, str]:
    name, _, rest = line.partition(" = ")
    return name, rest


def number(name: str, value: float, ty: str = "f32[]") -> str:
    return f"{name}: {ty} = constant() {{value = dense<{ty}: {value!r}>}}"


ONE, HALF, TWO = number("one", 1.0), number("half", 0.5), number("two", 2.0)
ROOT_HALF, ROOT_TWO = number("k", 0.70710677), number("k", 1.4142135)
ERF_BY_FACTOR = (ROOT_HALF, "d = mul(%x, %k)", "e = erf(%d)", ONE, "u = add(%e, %one)")
ERF_BY_DIVISION = (ROOT_TWO, "d = div(%x, %k)", "e = erf(%d)", ONE, "u = add(%one, %e)")
TANH = (
    number("c", 0.044715),
    number("k", 0.7978846),
    number("three", 3.0),
    "p = pow(%x, %three)",
    "m = mul(%p, %c)",
    "a = add(%x, %m)",
    "s = mul(%a, %k)",
    "t = tanh(%s)",
    ONE,
    "u = add(%t, %one)",
)
TANH_FACTORED = (
    number("c", 0.044715),
    number("k", 0.7978846),
    ONE,
    "p = mul(%x, %x)",
    "m = mul(%p, %c)",
    "a = add(%m, %one)",
    "r = mul(%x, %k)",
    "s = mul(%r, %a)",
    "t = tanh(%s)",
    "u = add(%t, %one)",
)


def by_parts(*polynomial: str, part: float = 0.044715) -> tuple[str, ...]:
    """The tanh approximation around a polynomial %s that is built from %p = 0.044715 x and %k = 0.79788456."""
    start = (number("c", part), number("k", 0.7978846), ONE, HALF, "p = mul(%x, %c)")
    return (*start, *polynomial, "t = tanh(%s)", "u = add(%t, %one)", "h = mul(%x, %half)", "y = mul(%h, %u)")


BY_SQUARE = ("m = mul(%p, %x)", "a = add(%m, %one)", "r = mul(%x, %k)", "s = mul(%r, %a)")
BY_CUBE = ("m = mul(%p, %x)", "n = mul(%m, %x)", "a = add(%n, %x)", "s = mul(%a, %k)")
BY_PART_AND_SQUARE = ("q = mul(%x, %x)", "n = mul(%p, %q)", "a = add(%n, %x)", "s = mul(%a, %k)")
GELU, GELU_TANH = "y = gelu(%x)", 'y = gelu(%x) {approximate = "tanh"}'
_NUMBERS = {"zero": 0.0, "one": 1.0, "three": 3.0, "six": 6.0}
SIX = (number("three", 3.0), number("zero", 0.0), number("six", 6.0), "a = add(%x, %three)")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # torch.onnx old: x * 0.5 last; HF and tf2onnx: 0.5 first; torch decomposed: x/2
        ((*ERF_BY_DIVISION, HALF, "a = mul(%x, %u)", "y = mul(%a, %half)"), GELU),
        ((*ERF_BY_FACTOR, HALF, "a = mul(%half, %x)", "y = mul(%a, %u)"), GELU),
        ((*ERF_BY_FACTOR, HALF, "a = mul(%half, %u)", "y = mul(%a, %x)"), GELU),
        ((*ERF_BY_DIVISION, TWO, "a = div(%x, %two)", "y = mul(%a, %u)"), GELU),
        # HF's gelu_new through dynamo: the cube as a power
        ((*TANH, HALF, "h = mul(%x, %half)", "y = mul(%h, %u)"), GELU_TANH),
        ((*TANH_FACTORED, HALF, "h = mul(%u, %half)", "y = mul(%x, %h)"), GELU_TANH),
        # HF's gelu_fast and Bloom, and the same as a cube
        (by_parts(*BY_SQUARE), GELU_TANH),
        (by_parts(*BY_CUBE), GELU_TANH),
        (by_parts(*BY_PART_AND_SQUARE), GELU_TANH),
        (("s = sigmoid(%x)", "y = mul(%x, %s)"), "y = silu(%x)"),
        ((number("a", 1.702), "m = mul(%x, %a)", "s = sigmoid(%m)", "y = mul(%s, %x)"), "y = silu(%x) {alpha = 1.702}"),
        ((ONE, "n = neg(%x)", "e = exp(%n)", "d = add(%e, %one)", "y = div(%x, %d)"), "y = silu(%x)"),
        ((ONE, "n = neg(%x)", "e = exp(%n)", "d = add(%one, %e)", "y = div(%one, %d)"), "y = sigmoid(%x)"),
        ((ONE, "n = neg(%x)", "e = exp(%n)", "d = add(%one, %e)", "y = reciprocal(%d)"), "y = sigmoid(%x)"),
        ((ONE, "e = exp(%x)", "d = add(%one, %e)", "l = log(%d)", "t = tanh(%l)", "y = mul(%x, %t)"), "y = mish(%x)"),
        (("a = abs(%x)", ONE, "d = add(%one, %a)", "y = div(%x, %d)"), "y = softsign(%x)"),
        ((*SIX, "c = clip(%a, %zero, %six)", "m = mul(%x, %c)", "y = div(%m, %six)"), "y = hard_swish(%x)"),
        ((*SIX, "c = clip(%a, %zero, %six)", "d = div(%c, %six)", "y = mul(%x, %d)"), "y = hard_swish(%x)"),
        ((number("zero", 0.0), "y = max(%x, %zero)"), "y = relu(%x)"),
        ((number("a", 0.25), "m = mul(%x, %a)", "y = max(%x, %m)"), "y = leaky_relu(%x) {alpha = 0.25}"),
    ],
)
def test_spellings_of_activations(before, after):
    check_pass(RecognizeActivations(), chain(*before), chain(after))


def test_softplus_with_the_threshold_of_torch():
    lines = (
        ONE,
        number("t", 20.0),
        "e = exp(%x)",
        "d = add(%e, %one)",
        "l = log(%d)",
        "g: bool[B, 4] = greater(%x, %t)",
    )
    check_pass(RecognizeActivations(), chain(*lines, "y = where(%g, %x, %l)"), chain("y = softplus(%x)"))


SOFTMAX = (
    "m: f32[B, 1] = reduce_max(%x) {axes = [-1]}",
    "s = sub(%x, %m)",
    "e = exp(%s)",
    "t: f32[B, 1] = reduce_sum(%e) {axes = [1]}",
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((*SOFTMAX, "y = div(%e, %t)"), "y = softmax(%x) {axis = 1}"),
        ((*SOFTMAX, "l: f32[B, 1] = log(%t)", "y = sub(%s, %l)"), "y = log_softmax(%x) {axis = 1}"),
        (("s = softmax(%x)", "y = log(%s)"), "y = log_softmax(%x)"),
    ],
)
def test_softmax_written_out(before, after):
    check_pass(RecognizeActivations(), chain(*before), chain(after))


def test_f16_constants_count_as_what_they_round():
    x = "%x: f16[B, 4]"
    half, k, one = (number(n, v, "f16[]") for n, v in (("half", 0.5), ("k", 1.414), ("one", 1.0)))
    before = (
        k,
        "d = div(%x, %k)",
        "e = erf(%d)",
        one,
        "u = add(%one, %e)",
        half,
        "a = mul(%x, %u)",
        "y = mul(%a, %half)",
    )
    check_pass(RecognizeActivations(), chain(*before, x=x), chain(GELU, x=x))


@pytest.mark.parametrize(
    "lines",
    [
        (*ERF_BY_DIVISION, number("h", 0.51), "a = mul(%x, %u)", "y = mul(%a, %h)"),
        (
            number("k", 1.41),
            "d = div(%x, %k)",
            "e = erf(%d)",
            ONE,
            "u = add(%one, %e)",
            HALF,
            "a = mul(%x, %u)",
            "y = mul(%a, %half)",
        ),
        by_parts(*BY_SQUARE, part=0.0447),
        by_parts("m = mul(%p, %k)", *BY_SQUARE[1:]),
        by_parts("m = mul(%p, %x)", "a = add(%m, %x)", "s = mul(%a, %k)"),
        by_parts("m = mul(%p, %p)", *BY_CUBE[1:]),
        ("z = abs(%x)", "s = sigmoid(%z)", "y = mul(%x, %s)"),
        (number("a", 2.0), "m = mul(%x, %a)", "y = max(%x, %m)"),
        (
            "m: f32[B, 1] = reduce_max(%x) {axes = [1]}",
            "s = sub(%x, %m)",
            "e = exp(%s)",
            "t: f32[1, 4] = reduce_sum(%e) {axes = [0]}",
            "y = div(%e, %t)",
        ),
        (ONE, number("t", 5.0), "l = softplus(%x)", "g: bool[B, 4] = greater(%x, %t)", "y = where(%g, %x, %l)"),
        ("zero: f32[1, 1, 1] = constant() {value = dense<f32[1, 1, 1]: [0.0]>}", "y: f32[1, B, 4] = max(%x, %zero)"),
    ],
)
def test_near_misses_stay(lines):
    check_pass(RecognizeActivations(), chain(*lines), None)


@pytest.mark.parametrize(
    "lines",
    [
        ("one", "e = exp(%x)", "d = add(%one, %e)", "y = log(%d)"),
        ("one", "a = abs(%x)", "d = add(%one, %a)", "y = div(%x, %d)"),
        ("three", "zero", "six", "a = add(%x, %three)", "c = clip(%a, %zero, %six)", "y = div(%c, %six)"),
        ("one", "m = mul(%x, %one)", "y = max(%x, %m)"),
        ("s = hard_sigmoid(%x) {alpha = 0.16666666666666666, beta = 0.5}", "y = mul(%x, %s)"),
        ("s = softplus(%x)", "t = tanh(%s)", "y = mul(%x, %t)"),
    ],
)
def test_what_onnx_runtime_has_not_in_f64_stays_there(lines):
    numbers = {name: number(name, value, "f64[]") for name, value in _NUMBERS.items()}
    graph = chain(*(numbers.get(line, line) for line in lines), x="%x: f64[B, 4]")
    check_pass(RecognizeActivations(), graph, None)


def test_other_activations_are_seen_in_f64():
    x = "%x: f64[B, 4]"
    check_pass(RecognizeActivations(), chain("s = sigmoid(%x)", "y = mul(%x, %s)", x=x), chain("y = silu(%x)", x=x))
