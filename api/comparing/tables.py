"""Tables for the terminal and for machines: the same rows, aligned or as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.dims import Dim, bind

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows under named columns. A cell of None is empty; numbers are aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> str:
        """Aligned lines: a head, a rule, the rows; no trailing blanks."""
        cells = [[cell_text(cell) for cell in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        numeric = [_is_numeric([row[index] for row in self.rows]) for index in range(len(self.columns))]
        lines = [self.columns, ["-" * width for width in widths], *cells]
        return "\n".join(_line(line, widths, numeric) for line in lines)

    def records(self) -> list[dict[str, Cell]]:
        """One mapping per row, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def cell_text(cell: Cell) -> str:
    """A cell as readers see it: floats with four significant digits, integers with thousands separated."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _is_numeric(cells: Sequence[Cell]) -> bool:
    present = [cell for cell in cells if cell is not None]
    return bool(present) and all(isinstance(c, int | float) and not isinstance(c, bool) for c in present)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(padded).rstrip()


def json_text(value: Any) -> str:
    """`value` as strict JSON: NaN and infinities, which JSON does not have, become strings."""
    return json.dumps(_strict(value), indent=2, ensure_ascii=False, allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def bound_cost(cost: Dim | None, sizes: Mapping[str, int]) -> int | str | None:
    """`cost` with the symbols in `sizes` replaced: a number, or text where symbols are left; None stays None."""
    bound = None if cost is None else bind(cost, sizes)
    return bound if bound is None or isinstance(bound, int) else str(bound)
