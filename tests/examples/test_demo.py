import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_runs_and_agrees_with_onnxruntime() -> None:
    done = subprocess.run(
        [sys.executable, "examples/demo.py", "--json", "--runs", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(done.stdout)
    assert [row["model"] for row in rows] == ["resnet50", "squeezenet", "transformer"]
    assert all(row["error"] < 1e-3 and row["foreign"] == 0 and row["GFLOPs"] > 0 for row in rows)
    assert all(row["after"] < row["nodes"] and row["eager ms"] > 0 for row in rows)
