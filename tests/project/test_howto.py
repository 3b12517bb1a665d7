"""The howto pages: each diff fits, is short, and brings a test that passes with it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.project.pages import ROOT, apply_diff, blocks

HOWTO = ROOT / "docs" / "howto"
MOST_LINES = 60


def test_the_diff_that_adds_a_pass(tmp_path: Path) -> None:
    (diff,) = (block.text for block in blocks(HOWTO / "add-a-pass.md") if block.language == "diff")
    assert len([line for line in diff.splitlines() if line.startswith("+")]) < MOST_LINES
    changed = apply_diff(diff, tmp_path, layer="passes", copied=["tests/passes/checking.py"])
    (test,) = (path for path in changed if path.startswith("tests/"))
    ran = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
