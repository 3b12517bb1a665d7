"""Names and strings as text, and where errors point."""

import re

import pytest
from capgraph.ir.errors import ParseError
from capgraph.ir.text.cursor import NAME, STRING, Cursor, name_text, string_text
from hypothesis import given
from hypothesis import strategies as st

TOKEN = re.compile(f"{NAME}|{STRING}")


@given(st.text(min_size=1))
def test_a_name_is_one_token_on_one_line_and_comes_back(name: str) -> None:
    for text in (name_text(name), string_text(name)):
        assert len(text.splitlines()) == 1
        found = TOKEN.fullmatch(text)
        assert found is not None
        assert Cursor(text).unquoted(text) == name


def test_plain_names_stand_bare() -> None:
    assert [name_text(name) for name in ("x", "0", "a.b_1", "a b", "", "é")] == [
        "x",
        "0",
        "a.b_1",
        '"a b"',
        '""',
        '"é"',
    ]


@pytest.mark.parametrize(
    ("text", "position", "line", "column"),
    [("abc", 0, 1, 1), ("a\n  b", 2, 2, 3), ("ab  \n c", 2, 1, 3), ("", 0, 1, 1), ("a\n", 2, 2, 1)],
)
def test_an_error_points_at_what_comes_next_on_the_line(text: str, position: int, line: int, column: int) -> None:
    error = Cursor(text, position).error("wrong")
    assert error.where == f"line {line}, column {column}"


def test_long_lines_are_shown_in_part_with_the_caret_in_place() -> None:
    error = Cursor("a" * 5000 + "!" + "b" * 5000, 5000).error("wrong")
    _, excerpt, caret = error.message.splitlines()
    assert len(excerpt) < 130
    assert excerpt[caret.index("^")] == "!"


def test_expect_names_what_is_missing_and_stays() -> None:
    cursor = Cursor("abc")
    with pytest.raises(ParseError, match="expected a number"):
        cursor.expect(re.compile("[0-9]+"), "a number")
    assert cursor.position == 0
    assert not cursor.is_at_end
