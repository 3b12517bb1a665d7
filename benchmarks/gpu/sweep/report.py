"""The sweep in a table: a line for each model, dtype and batch, and what stands out."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Cases = dict[tuple[str, str, int], dict[str, Row]]

SLOWER = 1.03
"""What counts as slower than a peer."""


def read(paths: Iterable[Path]) -> list[Row]:
    """The rows of files of JSON lines; a line that was cut off is left out."""
    found: list[Row] = []
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return found


def cases(rows: Iterable[Row]) -> Cases:
    """Rows by model, dtype and batch, and then by door; later ones replace earlier ones."""
    found: Cases = {}
    for row in rows:
        if row.get("door") == "done":
            continue
        key = row["model"], row.get("dtype", "-"), row.get("batch", 0)
        found.setdefault(key, {})[row.get("door", "all")] = row
    return found


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of text. The ratios are those of `optimize` and of torch.compile with our backend to reduce-overhead."""
    grouped = cases(rows)
    times = " ".join(f"{name:>9}" for name in ("optimize", "compile", "reduce-o", "eager"))
    facts = f"{'launches':>8} {'segments':>8} {'theirs':>6} {'error':>8} {'own':>8}"
    lines = [f"{'model':34} {'dtype':8} {'b':>2} {times} {'ratio':>6} {'ratio2':>6} {facts}  remarks"]
    lines += [_line(key, doors) for key, doors in sorted(grouped.items())]
    return lines + _summary(grouped)


def _line(key: tuple[str, str, int], doors: Mapping[str, Row]) -> str:
    ours, other = doors.get("optimize", {}), doors.get("reduce-overhead", {})
    times = " ".join(_number(doors.get(name, {}).get("us"), 9, 1) for name in _TIMED)
    facts = f"{ours.get('launches', '-'):>8} {ours.get('segments', '-'):>8} {other.get('segments', '-'):>6}"
    errors = f"{_number(ours.get('error'), 8, -1)} {_number(ours.get('own'), 8, -1)}"
    ratio = " ".join(_number(_ratio(doors, name), 6, 2) for name in _OURS)
    return f"{key[0]:34} {key[1]:8} {key[2]:>2} {times} {ratio} {facts} {errors}  {'; '.join(_remarks(doors))}".rstrip()


_OURS = ("optimize", "compile")
_TIMED = (*_OURS, "reduce-overhead", "eager")


def _number(value: Any, width: int, digits: int) -> str:
    if value is None:
        return f"{'-':>{width}}"
    return f"{value:>{width}.1e}" if digits < 0 else f"{value:>{width}.{digits}f}"


def _ratio(doors: Mapping[str, Row], name: str) -> float | None:
    ours, theirs = doors.get(name, {}).get("us"), doors.get("reduce-overhead", {}).get("us")
    return ours / theirs if ours and theirs else None


def _remarks(doors: Mapping[str, Row]) -> list[str]:
    found = ["timed beside other work"] if any(row.get("is_busy") for row in doors.values()) else []
    for name, row in doors.items():
        if "error_text" in row:
            found.append(f"{name} failed: {row['error_text'][:160]}")
        elif name in _OURS:
            found += _of_ours(name, row)
    return found


def _of_ours(name: str, row: Row) -> list[str]:
    found = [f"{name}: errors over {row['inputs']} inputs"] if "inputs" in row else []
    if row.get("is_right") is False:
        found.append(f"{name} wrong: {row['error']:.1e} beside {row['own']:.1e} {row.get('problem', '')}".strip())
    if row.get("is_one") is False:
        steps = f"{row['programs']} programs, {row['segments']} segments, {row['eager_steps']} steps outside"
        found.append(f"{name}: {steps}")
    found += [f"on the host: {step[:80]}" for step in row.get("host_steps", ())[:3] if name == "optimize"]
    return found


def _summary(grouped: Cases) -> list[str]:
    ours = [row for doors in grouped.values() for name, row in doors.items() if name in _OURS]
    checked = [row for row in ours if "is_right" in row]
    right, one = (sum(bool(row.get(fact)) for row in checked) for fact in ("is_right", "is_one"))
    failed = sum("error_text" in row for row in ours)
    theirs = sum("error_text" in row for doors in grouped.values() for row in doors.values()) - failed
    lines = ["", f"{len({key[0] for key in grouped})} models, {len(grouped)} cases"]
    lines.append(
        f"ours: {len(checked)} rows, {right} right, {one} in one recording; {failed} failed, {theirs} of PyTorch"
    )
    for name in _OURS:
        ratios = [found for doors in grouped.values() if (found := _ratio(doors, name)) is not None]
        if ratios:
            slower = sum(each > SLOWER for each in ratios)
            lines.append(
                f"{name} / reduce-overhead: median {statistics.median(ratios):.2f}, "
                f"from {min(ratios):.2f} to {max(ratios):.2f}; {slower} of {len(ratios)} slower by more than 3%"
            )
    return lines
