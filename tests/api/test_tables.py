import json
import math

import numpy as np
import pytest
from capgraph.comparing.tables import Cell, Table, cell_text, json_text
from hypothesis import given
from hypothesis import strategies as st

CELLS: st.SearchStrategy[Cell] = st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab c", max_size=9)


def test_columns_are_aligned_numbers_to_the_right() -> None:
    table = Table(("op", "nodes", "share"), [("add", 12, 0.25), ("reshape", 3456, None)])
    assert table.text().splitlines() == [
        "op       nodes  share",
        "-------  -----  -----",
        "add         12   0.25",
        "reshape  3,456",
    ]


def test_records_are_the_same_rows() -> None:
    assert Table(("a", "b"), [(1, None)]).records() == [{"a": 1, "b": None}]


def test_a_table_without_rows_has_a_head() -> None:
    assert Table(("a", "b"), []).text().splitlines() == ["a  b", "-  -"]


@given(st.lists(st.tuples(CELLS, CELLS), max_size=6))
def test_every_cell_stands_in_its_column(rows: list[tuple[Cell, Cell]]) -> None:
    lines = Table(("first", "second"), rows).text().split("\n")
    start = lines[1].index("  ") + 2
    for row, line in zip(rows, lines[2:], strict=True):
        assert line[: start - 2].strip() == cell_text(row[0]).strip()
        assert line[start:].strip() == cell_text(row[1]).strip()


@pytest.mark.parametrize(
    ("cell", "text"), [(None, ""), (True, "yes"), (1234567, "1,234,567"), (0.000123456, "0.0001235"), ("a", "a")]
)
def test_cells_read_well(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text


def test_json_is_strict() -> None:
    given_value = {"a": [math.nan, math.inf, 1.5, True, None], "b": ("x", np.float32(2)), 3: {"c": -math.inf}}
    found = json.loads(json_text(given_value), parse_constant=pytest.fail)
    assert found == {"a": ["nan", "inf", 1.5, True, None], "b": ["x", "2.0"], "3": {"c": "-inf"}}
