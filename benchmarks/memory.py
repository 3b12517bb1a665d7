"""The planned arena against what ONNX Runtime and PyTorch hold at their peak, on the benchmark models.

    python benchmarks/memory.py [--models NAME ...] [--batch N] [--length N] [--out FILE.json]

Needs torch, transformers, onnxruntime and capgraph. Weights are counted nowhere. Each number is got in its own way, as
no runtime tells what the others tell:

* arena: bytes of the plan's arena at these sizes. It holds the inputs, the outputs and everything between, but not
  what kernels take for themselves while they run. `bound` is the largest sum of values that live together, which no
  allocator that keeps whole values apart can go below.
* torch, counted: the largest sum of what torch's CPU allocator had handed out during one run, from its profiler. It
  has no oneDNN scratch in it, and no inputs.
* torch and onnxruntime, resident: how far the resident set rose above where it was before the first run, at its highest
  in two runs, in a process of its own with one thread. It has everything in it: scratch of kernels, weights that
  are packed at first use, code that is read in. The inputs exist before and are not in it; ONNX Runtime's outputs are.
  `onnxruntime` uses its arena and memory patterns as by default, `onnxruntime, malloc` has both switched off.
"""

import argparse
import ctypes
import datetime
import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from models import MODELS, Arrays, build, ensure, inputs

MIB = 1024 * 1024
COLUMNS = ("arena", "bound", "torch, counted", "torch, resident", "onnxruntime", "onnxruntime, malloc")


# ---- one number each


def plan_bytes(name: str, batch: int, length: int) -> dict[str, int]:
    """The arena and its lower bound."""
    from capgraph.ir.analysis import input_symbols
    from capgraph.ir.target import HOST
    from capgraph.passes.catalog import level_pipeline
    from capgraph.passes.planning.planner import make_plan
    from capgraph.sources import load_model

    graph = load_model(ensure(name, "dynamic")).graph
    level_pipeline(2).run(graph)
    sizes = {"batch": batch, "length": length}
    plan = make_plan(graph, {symbol: sizes[symbol] for symbol in input_symbols(graph)}, HOST)
    return {"arena": plan.arena_bytes, "bound": plan.lower_bound}


def torch_counted(name: str, batch: int, length: int) -> int:
    """The peak of what torch's allocator had handed out, after a warm-up run."""
    import torch

    run = _torch_run(name, inputs(name, batch, length))
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def torch_resident(name: str, batch: int, length: int) -> int:
    """The rise of the resident set in two runs."""
    return _rise(_torch_run(name, inputs(name, batch, length)))


def _torch_run(name: str, arrays: Arrays) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    module = build(name)
    tensors = [torch.from_numpy(array) for array in arrays.values()]

    def run() -> Any:
        with torch.no_grad():
            return module(*tensors)

    return run


def onnxruntime_resident(name: str, batch: int, length: int) -> int:
    """The rise of the resident set in two runs, with the arena and memory patterns."""
    return _rise(_onnxruntime_run(name, inputs(name, batch, length), pools=True))


def onnxruntime_malloc(name: str, batch: int, length: int) -> int:
    """The rise of the resident set in two runs, every tensor from the C library and given back at once."""
    return _rise(_onnxruntime_run(name, inputs(name, batch, length), pools=False))


def _onnxruntime_run(name: str, arrays: Arrays, *, pools: bool) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = pools
    session = onnxruntime.InferenceSession(ensure(name, "dynamic"), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, arrays)


def _rise(run: Callable[[], Any]) -> int:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # so that memory freed by loading is not taken again unseen
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    for _ in range(2):
        run()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


PROBES: dict[str, Callable[[str, int, int], Any]] = {
    "plan": plan_bytes,
    "torch, counted": torch_counted,
    "torch, resident": torch_resident,
    "onnxruntime": onnxruntime_resident,
    "onnxruntime, malloc": onnxruntime_malloc,
}


# ---- all of them


def measure(name: str, batch: int, length: int) -> dict[str, int]:
    """Every number for one model, each from a process of its own."""
    found: dict[str, int] = {}
    for probe in PROBES:
        command = [sys.executable, __file__, "--probe", probe, "--models", name, "--batch", str(batch)]
        command += ["--length", str(length)]
        quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=quiet)
        value = json.loads(done.stdout.splitlines()[-1])
        found.update(value if isinstance(value, dict) else {probe: value})
    return found


def report(results: dict[str, dict[str, int]], batch: int, length: int) -> dict[str, Any]:
    """The numbers with how and where they were got."""
    packages = ("numpy", "torch", "transformers", "onnx", "onnxruntime")
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "method": __doc__,
        "versions": {package: metadata.version(package) for package in packages},
        "machine": {"system": platform.system(), "python": platform.python_version(), "cores": os.cpu_count()},
        "size": {"batch": batch, "length": length},
        "bytes": results,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the planned arena with what other runtimes hold.")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    parser.add_argument("--probe", choices=PROBES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        print(json.dumps(PROBES[options.probe](options.models[0], options.batch, options.length)))
        return 0
    print(f"{'MiB':<18}" + "".join(f"{column:>22}" for column in COLUMNS))
    results: dict[str, dict[str, int]] = {}
    for name in options.models:
        results[name] = measure(name, options.batch, options.length)
        print(f"{name:<18}" + "".join(f"{results[name][column] / MIB:>22.2f}" for column in COLUMNS), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report(results, options.batch, options.length), indent=2)
        options.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
