"""Symbolic dims: canonical form by examples, and that no answer is ever wrong by drawn expressions and values."""

import copy
import operator
import pickle
from collections.abc import Callable
from functools import reduce

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from capgraph.ir.dims import (
    Dim,
    SymDim,
    Truth,
    bind,
    ceil_div,
    compare,
    dim_max,
    dim_min,
    evaluate,
    is_at_least,
    lower_bound,
    parse_dim,
    product,
    solve,
    symbol,
    symbols,
    upper_bound,
)
from capgraph.ir.errors import ShapeError

B, T, H, K = (symbol(name) for name in "BTHK")


# ---- drawn expressions: a tree, read once by Python's own integers and once by dims ----

Tree = int | str | tuple[str, "Tree", "Tree"]
NAMES = ("B", "T", "seq len")
OPERATORS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": dim_min,
    "max": dim_max,
}
PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}

leaves = st.one_of(st.integers(-6, 12), st.sampled_from(NAMES))
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(list(OPERATORS)), inner, inner), max_leaves=9
)
values = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})


def plain(tree: Tree, env: dict[str, int]) -> int:
    """What Python's integers give; assumes that no divisor is 0."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    name, left, right = tree
    a, b = plain(left, env), plain(right, env)
    assume(b != 0 or name not in ("//", "%"))
    return PLAIN[name](a, b)


def built(tree: Tree) -> Dim:
    """The same as a dim; assumes that it is within the size limits and divides by no constant 0."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbol(tree)
    name, left, right = tree
    try:
        return OPERATORS[name](built(left), built(right))
    except (ShapeError, ZeroDivisionError):
        assume(False)
        raise


# ---- canonical form ----


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


# ---- binding and evaluating ----


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


@pytest.mark.parametrize(
    ("expr", "value", "env", "expected"),
    [
        (2 * T, 8, {}, ("T", 4)),
        (2 * T + 1, 9, {}, ("T", 4)),
        (10 - T, 4, {}, ("T", 6)),
        (T, 0, {}, ("T", 0)),
        (B * T, 12, {"B": 3}, ("T", 4)),
        (2 * T, 7, {}, None),
        (T + 5, 4, {}, None),
        (T * T, 4, {}, None),
        (T // 2, 4, {}, None),
        (T + B, 4, {}, None),
        (T + T // 2, 6, {}, None),
        (T, 4, {"T": 4}, None),
        (4, 4, {}, None),
        (B * T, 0, {"B": 0}, None),
    ],
)
def test_solve(expr: Dim, value: int, env: dict[str, int], expected: tuple[str, int] | None) -> None:
    assert solve(expr, value, env) == expected


@given(trees, values, st.sampled_from(NAMES))
def test_a_solution_is_the_only_one(tree: Tree, env: dict[str, int], unknown: str) -> None:
    value = plain(tree, env)
    solution = solve(built(tree), value, {name: size for name, size in env.items() if name != unknown})
    assert solution is None or solution == (unknown, env[unknown])


# ---- comparing and bounding ----


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (T, T, Truth.YES),
        (3, 3, Truth.YES),
        (3, 4, Truth.NO),
        (T + 1, T, Truth.NO),
        (2 * T + 1, 2 * T, Truth.NO),
        (2 * T + 1, 2 * B, Truth.NO),  # odd and even
        (3 * T + 6 * B, 3 * H + 1, Truth.NO),
        (T + 1, 0, Truth.NO),
        (T % 4, 4, Truth.NO),
        (dim_min(T, 4), 5, Truth.NO),
        (T, B, Truth.UNKNOWN),
        (T, 4, Truth.UNKNOWN),
        (2 * T, 2 * B, Truth.UNKNOWN),
        (dim_max(T, 4), T, Truth.UNKNOWN),
    ],
)
def test_compare(a: Dim, b: Dim, expected: Truth) -> None:
    assert compare(a, b) is expected
    assert compare(b, a) is expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (T, 0, Truth.YES),
        (T + B, T, Truth.YES),
        (T, T // 2, Truth.YES),
        (dim_max(T, 8), T, Truth.YES),
        (T, dim_min(T, 8), Truth.YES),
        (T, T % 4, Truth.YES),
        (T, T + 1, Truth.NO),
        (dim_min(T, 8), 9, Truth.NO),
        (T, 1, Truth.UNKNOWN),
        (T, B, Truth.UNKNOWN),
    ],
)
def test_is_at_least(a: Dim, b: Dim, expected: Truth) -> None:
    assert is_at_least(a, b) is expected


@pytest.mark.parametrize(
    ("dim", "low", "high"),
    [
        (5, 5, 5),
        (T, 0, None),
        (T + 2, 2, None),
        (3 - T, None, 3),
        (B - T, None, None),
        (T % 4, 0, 3),
        (7 // (T + 2), 0, 3),
        (T - T // 4, 0, None),
        (dim_min(T, 9), 0, 9),
        (dim_max(T, 9), 9, None),
        (dim_max(dim_min(T, 9), 2), 2, 9),
        (T - dim_min(T, 5), 0, None),
        (dim_max(0, T - 3) - T, -3, 0),
    ],
)
def test_bounds(dim: Dim, low: int | None, high: int | None) -> None:
    assert (lower_bound(dim), upper_bound(dim)) == (low, high)


def test_ranges_tighten_the_bounds() -> None:
    ranges = {"T": (2, 10), "B": (1, None)}
    assert (lower_bound(T * B, ranges), upper_bound(T * B, ranges)) == (2, None)
    assert (lower_bound(T * T, ranges), upper_bound(T * T, ranges)) == (4, 100)
    assert (lower_bound(T // B, ranges), upper_bound(T // B, ranges)) == (0, 10)
    assert (lower_bound(H - T, ranges), upper_bound(H - T, ranges)) == (-10, None)
    assert (lower_bound(4, ranges), upper_bound(4, ranges)) == (4, 4)


@given(trees, trees, values)
def test_an_answer_is_never_wrong(first: Tree, second: Tree, env: dict[str, int]) -> None:
    x, y = plain(first, env), plain(second, env)
    a, b = built(first), built(second)
    if compare(a, b) is not Truth.UNKNOWN:
        assert (compare(a, b) is Truth.YES) == (x == y)
    if is_at_least(a, b) is not Truth.UNKNOWN:
        assert (is_at_least(a, b) is Truth.YES) == (x >= y)
    if a == b:
        assert compare(a, b) is Truth.YES
        assert hash(a) == hash(b)


@given(trees, values, st.integers(0, 3), st.integers(0, 3) | st.none())
def test_a_bound_is_never_passed(tree: Tree, env: dict[str, int], below: int, above: int | None) -> None:
    value = plain(tree, env)
    dim = built(tree)
    ranges = {name: (max(0, size - below), None if above is None else size + above) for name, size in env.items()}
    for low, high in (
        (lower_bound(dim), upper_bound(dim)),
        (lower_bound(dim, ranges), upper_bound(dim, ranges)),
    ):
        assert low is None or low <= value
        assert high is None or value <= high


# ---- text ----


@given(trees)
def test_text_round_trips(tree: Tree) -> None:
    dim = built(tree)
    assert parse_dim(str(dim)) == dim
    assert str(parse_dim(str(dim))) == str(dim)


@given(st.text(min_size=1))
@example("\ud800")
@example("`")
def test_any_name_round_trips(name: str) -> None:
    dim = symbol(name) + 1
    assert parse_dim(str(dim)) == dim
    assert str(dim).isprintable()


def test_parse_reads_what_people_write() -> None:
    assert parse_dim(" 2*(T+1) % 2 ") == 0
    assert parse_dim("--T - -1") == T + 1
    assert parse_dim("-T//4") == (-T) // 4
    assert parse_dim("B - T - H") == B - (T + H)
    assert parse_dim("max(1, min(B, T, 4))") == dim_max(1, dim_min(B, T, 4))
    assert parse_dim("min + max") == symbol("min") + symbol("max")
    assert parse_dim("64") == 64


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a number, a name or '(' at position 0"),
        ("T +", "expected a number, a name or '(' at position 3"),
        ("T B", "expected an operator or the end at position 2"),
        ("(T", "expected ')' at position 2"),
        ("(T, B)", "expected ')' at position 2"),
        ("T / 2", "expected an operator or the end at position 2"),
        ("min()", "expected a number, a name or '(' at position 4"),
        ("`T", "expected a number, a name or '(' at position 0"),
        ("``", "expected a number, a name or '(' at position 0"),
        ("T ? 1", "expected an operator or the end at position 2"),
        ("2*`a\\u{ffffff}`", "position 2"),
        ("T//(2 - 2)", "division by zero"),
        ("(" * 5000 + "T" + ")" * 5000, "too many open parentheses"),
        ("1" * 1001, "expected an operator or the end at position 1000"),
    ],
)
def test_bad_text_is_refused_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_dim(text)
    assert problem in str(caught.value)


@given(st.text("BT `\\u{}0129+-*/%(),minax", max_size=12))
def test_text_is_a_dim_or_a_shape_error(text: str) -> None:
    try:
        dim = parse_dim(text)
    except ShapeError:
        return
    assert parse_dim(str(dim)) == dim


# ---- misuse and limits ----


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
    deep: Dim = T
    with pytest.raises(ShapeError, match="nested too deeply"):
        reduce(lambda inner, divisor: (2 * inner + 1) // (2 * divisor + 1), range(2, 60), deep)
    with pytest.raises(ShapeError, match="nested too deeply"):  # shared operands: the text would double every time
        reduce(lambda inner, divisor: (2 * inner + B * inner) // (2 * divisor + 1), range(2, 30), deep)


def test_a_question_about_too_large_a_difference_is_answered() -> None:
    left, right = (sum((symbol(f"{side}{i}") for i in range(150)), start=0) for side in "lr")
    assert compare(left, right) is Truth.UNKNOWN
    assert is_at_least(left, right) is Truth.UNKNOWN
