"""What a run found: printed as it comes, and kept in a JSON file that is whole after every stage."""

import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Findings:
    """Records by stage, written to `path` after each one. `failed` names the stages that did not end well."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: list[str] = []
        self._records: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)

    def stage(self, name: str, work: Callable[[], Any]) -> Mapping[str, Any] | None:
        """Runs one stage. What it gives is kept; what it raises is kept too, and the next stage can run."""
        start = time.perf_counter()
        try:
            found = work()
        except Exception as error:  # noqa: BLE001  # one broken stage must not cost the others their device time
            self.failed.append(name)
            traceback.print_exc()
            self.add(name, {"error": f"{type(error).__name__}: {error}"}, start)
            return None
        if found is not None:
            self.add(name, found, start)
        return found

    def add(self, name: str, found: Mapping[str, Any], start: float) -> None:
        """Keeps and prints a record."""
        self._records.append({"stage": name, "seconds": round(time.perf_counter() - start, 2), **found})
        text = {key: value for key, value in self._records[-1].items() if not isinstance(value, list)}
        print(json.dumps(text, default=str), flush=True)
        self.path.write_text(json.dumps(self._records, indent=1, default=str) + "\n")


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Rows as lines of text below the names of the columns; what a row lacks is a dash."""
    texts = [list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in texts)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{each}" for key, each in value.items()) or "-"
    return str(value)
