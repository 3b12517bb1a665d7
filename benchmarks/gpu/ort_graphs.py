"""Our executor "ort" in graph mode beside a plain session of ONNX Runtime with `enable_cuda_graph`, on three models.

    python -m benchmarks.gpu.ort_graphs [--models mlp,bert,resnet50] [--rounds 21] [--out FILE.json]

Both get the same torch tensors (the plain session has them bound, the program copies them), and are called back to
back, in turns. A row has the median time of a call and the median of the paired ratios (above 1: we are faster).
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import onnxruntime as ort
import torch  # before onnxruntime, which finds CUDA's libraries through it

from benchmarks.gpu.ort_models import CALLS, MODELS, Session, exported


def seconds(call: Callable[[], Any]) -> float:
    """Of one call, among many back to back."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS


def measure(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """The row of one model."""
    path, inputs, expected = exported(name, folder)
    plain = Session(path, inputs, expected, {})
    given = {f"i{index}": each for index, each in enumerate(inputs)}
    start = time.perf_counter()
    static = capgraph.optimize(path, executor="ort", device="cuda", capture={"copy_outputs": False})
    copied = capgraph.optimize(path, executor="ort", device="cuda")
    for _ in range(3):
        found = static.run(given)["o"]
        copied.run(given)
    torch.cuda.synchronize()
    setup = (time.perf_counter() - start) / 2
    error = float(np.linalg.norm(found.float().cpu().numpy() - expected) / np.linalg.norm(expected))
    calls = {"plain": plain.call, "ours": lambda: static.run(given), "ours, copies": lambda: copied.run(given)}
    times: dict[str, list[float]] = {title: [] for title in calls}
    for _ in range(rounds):
        for title, call in calls.items():
            times[title].append(seconds(call))
    row: dict[str, Any] = {"model": name, "error": error, "plain_error": plain.error, "setup_s": round(setup, 2)}
    for title, each in times.items():
        row[f"{title}_us"] = round(1e6 * statistics.median(each), 1)
        pairs = zip(times["plain"], each, strict=True)
        row[f"{title}_ratio"] = round(statistics.median(old / new for old, new in pairs), 3)
    row["remarks"] = list(static.remarks)
    static.close()
    copied.close()
    return row


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    versions = {"torch": torch.__version__, "onnxruntime": ort.__version__}
    machine = {"date": datetime.now(UTC).date().isoformat(), "gpu": torch.cuda.get_device_name(), **versions}
    print(machine, flush=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models.split(","):
            try:
                rows.append(measure(name, Path(folder), arguments.rounds))
            except Exception as error:  # noqa: BLE001  # the other models are measured still
                traceback.print_exc(file=sys.stdout)
                rows.append({"model": name, "problem": str(error)})
            print(json.dumps(rows[-1]), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
