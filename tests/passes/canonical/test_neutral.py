"""Neutral elements, repeated and cancelling operations: where they go, and where they only look neutral."""

import pytest
from capgraph.passes.cleanup.canonicalize import Canonicalize

from tests.passes.checking import check_pass


def becomes_x(line: str, *, x: str = "f32[B, 4]", more: str = "") -> None:
    """The line, which gives %y, is the same as %x."""
    check_pass(
        Canonicalize(),
        f"graph @main(%x: {x}{more}) {{\n {line}\n return %y\n}}",
        f"graph @main(%x: {x}{more}) {{\n return %x as y\n}}",
    )


def stays(line: str, *, x: str = "f32[B, 4]", more: str = "") -> None:
    check_pass(Canonicalize(), f"graph @main(%x: {x}{more}) {{\n {line}\n return %y\n}}", None)


def constant(content: str, name: str = "c") -> str:
    return f"%{name} = constant() {{value = dense<{content}>}}\n"


@pytest.mark.parametrize(
    ("op", "content"),
    [
        ("mul(%x, %c)", "f32[]: 1.0"),
        ("mul(%c, %x)", "f32[4]: [1.0, 1.0, 1.0, 1.0]"),
        ("div(%x, %c)", "f32[1]: [1.0]"),
        ("add(%x, %c)", "f32[]: -0.0"),
        ("add(%c, %x)", "f32[4]: [-0.0, -0.0, -0.0, -0.0]"),
        ("sub(%x, %c)", "f32[]: 0.0"),
        ("pow(%x, %c)", "f32[]: 1.0"),
    ],
)
def test_neutral_elements(op: str, content: str) -> None:
    becomes_x(f"{constant(content)} %y = {op}")


@pytest.mark.parametrize(
    ("op", "content"),
    [
        ("add(%x, %c)", "f32[]: 0.0"),  # -0.0 + 0.0 is 0.0
        ("sub(%x, %c)", "f32[]: -0.0"),
        ("sub(%c, %x)", "f32[]: 0.0"),
        ("div(%c, %x)", "f32[]: 1.0"),
        ("pow(%c, %x)", "f32[]: 1.0"),
        ("mul(%x, %c)", "f32[]: 1.0000001"),
        ("mul(%x, %c)", "f32[2, 1, 1]: [1.0, 1.0]"),  # makes two of it
        ("mul(%x, %c)", "f32[]: nan"),
    ],
)
def test_what_only_looks_neutral(op: str, content: str) -> None:
    stays(f"{constant(content)} %y = {op}")


@pytest.mark.parametrize(
    ("low", "high", "new_low"), [("-1.0", "6.0", "0.0"), ("2.0", "6.0", "2.0"), ("-3.0", "-2.0", "0.0")]
)
def test_a_clip_does_what_a_relu_before_it_did(low: str, high: str, new_low: str) -> None:
    bounds = [constant(f"f32[]: {number}", name) for name, number in (("h", high), ("l", low), ("l", new_low))]
    check_pass(
        Canonicalize(),
        f"graph @main(%x: f32[B, 4]) {{\n {bounds[0]}{bounds[1]} %r = relu(%x)\n %y = clip(%r, %l, %h)\n return %y\n}}",
        f"graph @main(%x: f32[B, 4]) {{\n {bounds[0]}{bounds[2]} %y = clip(%x, %l, %h)\n return %y\n}}",
    )


def test_a_clip_with_a_computed_bound_keeps_the_relu() -> None:
    stays("%r = relu(%x)\n %y = clip(%r, %l, _)", more=", %l: f32[]")


def test_integers_have_one_zero() -> None:
    becomes_x(f"{constant('i64[]: 0')} %y = add(%x, %c)", x="i64[4]")


def test_a_float_exponent_takes_integers_through_f64() -> None:
    becomes_x(f"{constant('i64[]: 1')} %y = pow(%x, %c)", x="i64[4]")
    becomes_x(f"{constant('bf16[]: 1.0')} %y = pow(%x, %c)", x="i32[4]")
    stays(f"{constant('bf16[]: 1.0')} %y = pow(%x, %c)", x="i64[4]")  # 2**53 + 1 does not survive


def test_an_axis_of_one_may_still_be_broadcast() -> None:
    stays(f"{constant('f32[1, 4]: [1.0, 1.0, 1.0, 1.0]')} %y = mul(%x, %c)", x="f32[B, 1]")


@pytest.mark.parametrize("op", ["neg", "logical_not", "bitwise_not"])
def test_involutions(op: str) -> None:
    dtype = {"neg": "f32", "logical_not": "bool", "bitwise_not": "u8"}[op]
    becomes_x(f"%a = {op}(%x)\n %y = {op}(%a)", x=f"{dtype}[4]")


@pytest.mark.parametrize("op", ["relu", "abs", "floor", "ceil", "round", "sign"])
def test_what_is_done_once_is_done(op: str) -> None:
    check_pass(
        Canonicalize(),
        f"graph @main(%x: f32[B]) {{\n %a = {op}(%x)\n %y = {op}(%a)\n return %y\n}}",
        f"graph @main(%x: f32[B]) {{\n %a = {op}(%x)\n return %a as y\n}}",
    )


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        ("%y = where(%k, %x, %x)", ""),
        ("%y = where(%c, %x, %z)", "bool[]: true"),
        ("%y = where(%c, %z, %x)", "bool[4]: [false, false, false, false]"),
    ],
)
def test_choices_that_are_none(line: str, condition: str) -> None:
    becomes_x((constant(condition) if condition else "") + line, x="f32[4]", more=", %z: f32[4], %k: bool[4]")


def test_a_choice_that_makes_something_larger_stays() -> None:
    stays("%y = where(%k, %x, %x)", x="f32[4]", more=", %k: bool[2, 4]")
    stays(f"{constant('bool[2]: [true, false]')} %y = where(%c, %x, %z)", x="f32[2]", more=", %z: f32[2]")
    becomes_x(f"{constant('bool[]: true')} %y = where(%c, %x, %z)", x="f32[2, B]", more=", %z: f32[B]")


@pytest.mark.parametrize("op", ["logical_and", "logical_or"])
def test_both_the_same(op: str) -> None:
    becomes_x(f"%y = {op}(%x, %x)", x="bool[4]")


@pytest.mark.parametrize(("op", "neutral"), [("logical_and", "true"), ("logical_or", "false")])
def test_neutral_truths(op: str, neutral: str) -> None:
    becomes_x(f"{constant(f'bool[]: {neutral}')} %y = {op}(%c, %x)", x="bool[4]")


@pytest.mark.parametrize("line", ["%y = max(%x, %x)", "%y = min(%x)", "%y = clip(%x, _, _)", "%y = max(%x, %x, %x)"])
def test_bounds_that_bind_nothing(line: str) -> None:
    becomes_x(line)


def clips(inner: tuple[str, str], outer: tuple[str, str], dtype: str) -> str:
    bounds = {"l": inner[0], "h": inner[1], "low": outer[0], "high": outer[1]}
    constants = " ".join(constant(f"{dtype}[]: {number}", name) for name, number in bounds.items())
    lines = f"{constants} %a = clip(%x, %l, %h)\n %y = clip(%a, %low, %high)"
    return f"graph @main(%x: {dtype}[4]) {{\n{lines}\n return %y\n}}"


def test_the_tighter_bounds_are_enough() -> None:
    check_pass(
        Canonicalize(),
        clips(("-1.0", "9.0"), ("0.0", "6.0"), "f32"),
        f"graph @main(%x: f32[4]) {{\n{constant('f32[]: 0.0', 'low')}{constant('f32[]: 6.0', 'high')}"
        " %y = clip(%x, %low, %high)\n return %y\n}",
    )


@pytest.mark.parametrize(
    ("inner", "outer", "dtype"),
    [
        (("0.0", "6.0"), ("-1.0", "9.0"), "f32"),
        (("nan", "6.0"), ("0.0", "3.0"), "f32"),
        (("9007199254740993", "9007199254740999"), ("9007199254740992", "9007199254740999"), "i64"),
    ],
)
def test_bounds_that_both_matter(inner: tuple[str, str], outer: tuple[str, str], dtype: str) -> None:
    check_pass(Canonicalize(), clips(inner, outer, dtype), None)
