"""How quick eager execution is beside others, as benchmarks/eager.py measures it, with one thread each."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SLOWER_THAN_ONNXRUNTIME = 6
QUICKER_THAN_REFERENCE = 5


def test_resnet50_beside_onnxruntime_and_the_reference_evaluator(tmp_path: Path) -> None:
    out = tmp_path / "eager.json"
    options = ["--models", "resnet50", "--rounds", "5", "--threads", "1", "--json", str(out)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "benchmarks" / "eager.py"), *options]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    (found,) = json.loads(out.read_text())["calls"]
    assert found["least"] / found["least ORT"] < SLOWER_THAN_ONNXRUNTIME
    assert found["reference ms"] / found["least"] > QUICKER_THAN_REFERENCE
