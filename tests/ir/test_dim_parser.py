"""The text of symbolic dims: what prints reads back, and what is no dim is refused with its position."""

import pytest
from capgraph.ir.dims import dim_max, dim_min, parse_dim, symbol
from capgraph.ir.errors import ShapeError
from hypothesis import example, given
from hypothesis import strategies as st

from tests.ir.drawn_dims import Tree, built, trees

B, T, H = (symbol(name) for name in "BTH")


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
        ("1" * 31, "expected an operator or the end at position 30"),
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
