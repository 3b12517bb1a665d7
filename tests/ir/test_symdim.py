"""The canonical form of symbolic dims, by examples and against Python's own integers by drawn expressions and sizes."""

import copy
import operator
import pickle
from collections.abc import Callable
from functools import reduce

import pytest
from capgraph.ir.dims import (
    Dim,
    SymDim,
    bind,
    ceil_div,
    compare,
    dim_max,
    dim_min,
    evaluate,
    parse_dim,
    product,
    symbol,
    symbols,
)
from capgraph.ir.errors import ShapeError
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.ir.drawn_dims import NAMES, Tree, built, plain, trees, values

B, T, H = (symbol(name) for name in "BTH")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (2 * (B + 1), 2 * B + 2),
        (B + T, T + B),
        (B * T, T * B),
        ((B + T) * (B - T), B * B - T * T),
        ((4 * T) // 4, T),
        ((4 * T + 3) // 4, T),
        ((4 * T + 6) // 4, T + 1),
        ((B * T * 64) // T, B * 64),
        ((B * T) // (T * H), B // H),
        ((6 * T) // (4 * B), (3 * T) // (2 * B)),
        ((B // 2) // 3, B // 6),
        ((B // T) // H, B // (H * T)),
        (((H + 1) // 2 + 1) // 2, (H + 3) // 4),
        ((4 * T + 3) // 8, T // 2),
        (((T + 1) * B * 64) // (T + 1), 64 * B),
        ((T + 4) // (T + 1), 3 // (T + 1) + 1),
        ((H - 3) // 2, (H + 1) // 2 - 2),
        (-((-T) // 4), ceil_div(T, 4)),
        (T // -4, -ceil_div(T, 4)),
        (T - T % 4, 4 * (T // 4)),
        (T % 4 + 4 * (T // 4), T),
        ((8 * T + 3) % 4, 3),
        (T // T, 1),
        (T // (T + 1), 0),
        (0 // T, 0),
        (0 // (B + T), 0),
        (7 % T, 7 - T * (7 // T)),
        (ceil_div(4 * T, 4), T),
        (dim_min(B, B), B),
        (dim_min(T, T + 3), T),
        (dim_max(T, T + 3), T + 3),
        (dim_max(0, T), T),
        (dim_min(B, dim_min(H, T)), dim_min(T, H, B)),
        (dim_max(B, dim_max(H, 3), 5), dim_max(5, H, B)),
        (dim_min(T, T // 2), T // 2),
        (dim_min(3, 2), 2),
        (dim_max(3), 3),
        (T - T, 0),
        (T * 0, 0),
        (5 - (T - T), 5),
        (product([]), 1),
        (product([B, 2, T, 3]), 6 * B * T),
    ],
)
def test_equal_expressions_have_one_form(made: Dim, expected: Dim) -> None:
    assert made == expected
    assert hash(made) == hash(expected)
    assert type(made) is type(expected)
    assert str(made) == str(expected)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (B, "B"),
        (1 + 2 * T, "2*T + 1"),
        (T * B, "B*T"),
        (T * T, "T*T"),
        ((T + 1) // 2, "(T + 1)//2"),
        (dim_max(T - 3, 0), "max(0, T - 3)"),
        (T - 2, "T - 2"),
        (1 + T + B + T * B, "B*T + B + T + 1"),
        (5 - T, "-T + 5"),
        (-(T // 4), "-(T//4)"),
        (-(T // 4) + 5, "-(T//4) + 5"),
        ((-2 * B) // 3, "-((2*B + 2)//3)"),  # -(2*B + 2)//3 would be rounded the other way
        (B - T // 4, "B - T//4"),
        (3 * (T // 4), "3*(T//4)"),
        ((T // 4) * B, "B*(T//4)"),
        ((2 * T) // 3, "(2*T)//3"),
        (T // (2 * B), "T//(2*B)"),
        (dim_min(B, T) // 2, "min(B, T)//2"),
        (symbol("seq len") + 1, "`seq len` + 1"),
        (symbol("é"), "`é`"),
        (symbol("a`\\\n"), "`a\\u{60}\\u{5c}\\u{a}`"),
        (symbol("min") * symbol("max"), "max*min"),
    ],
)
def test_text(dim: SymDim, text: str) -> None:
    assert str(dim) == text
    assert parse_dim(text) == dim


def test_a_symbol_is_one_object_and_survives_copies() -> None:
    assert symbol("B") is B
    dim = dim_min(B, T // 3) + 1
    assert copy.copy(dim) is dim
    assert copy.deepcopy([dim])[0] is dim
    assert pickle.loads(pickle.dumps(dim)) == dim


def test_a_name_is_not_mistaken_for_an_expression() -> None:
    assert symbol("T//2") != T // 2
    assert symbol("min(B, T)") != dim_min(B, T)
    assert parse_dim(str(symbol("T//2"))) == symbol("T//2")


def test_a_dim_is_not_its_constant_and_not_another_type() -> None:
    assert T != 0
    assert T + 1 != 1
    assert T != "T"
    assert T in (1, T)


@given(trees, values)
def test_canonical_form_keeps_the_value(tree: Tree, env: dict[str, int]) -> None:
    expected = plain(tree, env)
    assert evaluate(built(tree), env) == expected


@given(trees, trees, trees)
def test_the_order_of_construction_does_not_matter(first: Tree, second: Tree, third: Tree) -> None:
    a, b, c = built(first), built(second), built(third)
    same = [
        (a + b + c, c + (b + a)),
        (a * b, b * a),
        (dim_min(a, b), dim_min(b, a)),
        (dim_max(a, b), dim_max(b, a)),
        (a - b, -(b - a)),
    ]
    try:
        same.append((a * (b + c), a * c + b * a))
    except ShapeError:
        assume(False)
    for left, right in same:
        assert left == right
        assert hash(left) == hash(right)


@given(trees)
def test_a_constant_is_an_int(tree: Tree) -> None:
    dim = built(tree)
    assert isinstance(dim, int) == (not symbols(dim))


def test_bind_replaces_all_at_once() -> None:
    assert bind(B - T, {"B": T, "T": B}) == T - B
    assert bind(T // B, {"B": 2}) == T // 2
    assert bind(dim_min(T, 8), {"T": 3}) == 3
    assert bind(7, {"T": 3}) == 7
    dim = T + 1
    assert bind(dim, {"B": 3}) is dim


@given(trees, values, st.sets(st.sampled_from(NAMES)))
def test_bind_then_evaluate_is_evaluate(tree: Tree, env: dict[str, int], bound: set[str]) -> None:
    expected = plain(tree, env)
    half = bind(built(tree), {name: env[name] for name in bound})
    assert symbols(half).isdisjoint(bound)
    assert evaluate(half, env) == expected


@given(trees, trees, values)
def test_bind_to_an_expression_is_substitution(outer: Tree, inner: Tree, env: dict[str, int]) -> None:
    value = plain(inner, env)
    assume(value >= 0)  # a symbol stands for nothing negative
    expected = plain(outer, {**env, "T": value})
    try:
        bound = bind(built(outer), {"T": built(inner)})
    except ShapeError:
        assume(False)
        raise
    assert evaluate(bound, env) == expected


def test_what_cannot_be_bound_says_why() -> None:
    with pytest.raises(ShapeError, match="needs a value for B, T"):
        evaluate(B * T + H, {"H": 1})
    with pytest.raises(ShapeError, match="division by zero in the dim T//B"):
        evaluate(T // B, {"T": 1, "B": 0})
    with pytest.raises(ShapeError, match="division by zero in the dim T//B"):
        bind(T // B, {"B": 0})
    with pytest.raises(ShapeError, match="division by zero in the dim T//B"):
        bind(T // B, {"B": H - H})
    with pytest.raises(ShapeError, match="T was bound to -1"):
        bind(T + 5, {"T": -1})
    for divide in (operator.floordiv, operator.mod):
        with pytest.raises(ShapeError, match="division by zero"):
            divide(T, 0)
    with pytest.raises(ShapeError, match="name"):
        symbol("")


def test_there_is_no_order_and_no_truth_value() -> None:
    for order in (operator.lt, operator.le, operator.gt, operator.ge):
        with pytest.raises(TypeError):
            order(T, 1)
    with pytest.raises(TypeError, match="no truth value"):
        bool(T)
    with pytest.raises(TypeError, match="three values"):
        bool(compare(T, B))


@pytest.mark.parametrize(
    "apply", [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod], ids=lambda f: str(f.__name__)
)
@pytest.mark.parametrize("other", [1.5, "1", None])
def test_other_operands_are_refused(apply: Callable[[object, object], object], other: object) -> None:
    for left, right in ((T, other), (other, T)):
        with pytest.raises(TypeError):
            apply(left, right)


def test_growth_is_refused() -> None:
    many = [symbol(f"s{i}") for i in range(201)]
    with pytest.raises(ShapeError, match="more than 200 terms"):
        sum(many, start=0)
    with pytest.raises(ShapeError, match="more than 50 factors"):
        product([T] * 51)
    for make in (lambda: T * 2**63, lambda: T + 2**63, lambda: T // (2**63 + 1), lambda: dim_max(T, 2**64)):
        with pytest.raises(ShapeError, match="64 bits do not hold"):
            make()
    deep: Dim = T
    with pytest.raises(ShapeError, match="nested too deeply"):
        reduce(lambda inner, divisor: (2 * inner + 1) // (2 * divisor + 1), range(2, 60), deep)
    with pytest.raises(ShapeError, match="nested too deeply"):  # shared operands: the text would double every time
        reduce(lambda inner, divisor: (2 * inner + B * inner) // (2 * divisor + 1), range(2, 30), deep)
