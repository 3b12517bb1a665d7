"""The table says what is wrong, what is slower, and what is not one recording."""

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.sweep.report import cases, read, table


def row(door: str, us: float, **more: Any) -> dict[str, Any]:
    facts = {
        "is_right": True,
        "error": 1e-3,
        "own": 1e-3,
        "is_one": True,
        "segments": 1,
        "launches": 7,
        "host_steps": [],
    }
    return {"model": "net", "dtype": "float16", "batch": 1, "door": door, "us": us, **facts, **more}


def test_ratios_and_medians() -> None:
    rows = [row("optimize", 50.0), row("compile", 120.0), row("reduce-overhead", 100.0)]
    text = "\n".join(table(rows))
    assert "optimize / reduce-overhead: median 0.50, from 0.50 to 0.50; 0 of 1 slower by more than 3%" in text
    assert "compile / reduce-overhead: median 1.20, from 1.20 to 1.20; 1 of 1 slower by more than 3%" in text
    assert "1 models, 1 cases" in text
    assert "2 rows, 2 right, 2 in one recording; 0 failed, 0 of PyTorch" in text


def test_remarks() -> None:
    wrong = row("optimize", 50.0, is_right=False, error=0.5)
    segments = row("compile", 50.0, is_one=False, programs=2, segments=3, eager_steps=4)
    failed = {"model": "other", "error_text": "its process ended with -9"}
    text = "\n".join(table([wrong, segments, failed]))
    assert "optimize wrong: 5.0e-01 beside 1.0e-03" in text
    assert "compile: 2 programs, 3 segments, 4 steps outside" in text
    assert "its process ended with -9" in text


def test_later_rows_replace_earlier_ones_and_cut_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps(row("optimize", 50.0)), json.dumps(row("optimize", 40.0)), '{"model": "ne']
    path.write_text("\n".join(lines))
    rows = read([path])
    assert len(rows) == 2
    assert cases(rows)["net", "float16", 1]["optimize"]["us"] == 40.0
