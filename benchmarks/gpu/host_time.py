"""Host time of a replayed call, on an idle and on a busy device, and what the recorded graph consists of.

    python -m benchmarks.gpu.host_time [--models NAME ...] [--dtype float16] [--out FOLDER]

Inputs in place with static outputs, and one copy in and one out. A graph whose launch costs more with every node has
something else in it than kernels one behind another: kinds of nodes and edges are listed. Findings go to
FOLDER/host_time.json.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import capgraph
import cupy
import torch
from capgraph.program import Program
from cuda.bindings import driver

from .findings import Findings
from .models import mlp
from .subjects import Subject

IN_PLACE = {"inputs": {"": "refuse"}, "copy_outputs": False, "progress": None}
COPIED = {"inputs": {"": "copy"}, "progress": None}
CALLS = 60
TOGETHER = 8


def idle_us(call: Callable[[], Any]) -> float:
    """Host time of a call on a device that has nothing to do: the median."""
    found: list[float] = []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return 1e6 * statistics.median(found)


def busy_us(call: Callable[[], Any]) -> float:
    """Host time of one of a few calls back to back: the median."""
    found: list[float] = []
    for _ in range(CALLS // TOGETHER):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(TOGETHER):
            call()
        found.append((time.perf_counter() - start) / TOGETHER)
    return 1e6 * statistics.median(found)


def contents(program: Program) -> dict[str, Any]:
    """Kinds of nodes and edges of what is recorded, and in which ways steps are done."""
    executable: Any = program._executable
    (bucket,) = executable._inner._dispatcher._captured.values()
    bound, stream = bucket.bound, executable._device.capture_stream
    cupy.cuda.runtime.streamBeginCapture(stream, cupy.cuda.runtime.streamCaptureModeRelaxed)
    for step in bound.plan.steps:
        for call in bound.calls_of(step):
            call(stream)
    graph = driver.CUgraph(cupy.cuda.runtime.streamEndCapture(stream))
    count = driver.cuGraphGetNodes(graph)[-1]
    nodes = driver.cuGraphGetNodes(graph, count)[1]
    kinds = Counter(str(driver.cuGraphNodeGetType(node)[1]).rpartition("_")[2] for node in nodes)
    ask = getattr(driver, "cuGraphGetEdges_v2", driver.cuGraphGetEdges)
    edges = ask(graph, ask(graph)[-1])[3]
    ways = Counter(way.name for way in bound.chosen if way is not None and way.launches)
    return {
        "nodes": dict(kinds),
        "edges": dict(Counter(str(getattr(edge, "type", "full")) for edge in edges)),
        "ways": dict(ways),
    }


def times(graph: Any, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Host times of one program in both policies."""
    found: dict[str, Any] = {}
    for name, capture in (("in place", IN_PLACE), ("copied", COPIED)):
        with capgraph.optimize(
            graph, executor="graph", device="cuda", mode="full", capture=capture, **options
        ) as program:
            for _ in range(4):
                program.run(inputs)
            found[name] = {
                "idle_us": idle_us(lambda program=program: program.run(inputs)),  # type: ignore[misc]
                "busy_us": busy_us(lambda program=program: program.run(inputs)),  # type: ignore[misc]
            }
            if name == "in place":
                (recording,) = next(iter(program._executable._inner._dispatcher._captured.values())).recordings
                found["launch alone"] = {"idle_us": idle_us(recording.replay), "busy_us": busy_us(recording.replay)}
                found |= contents(program)
    return found


def subject_times(name: str, dtype: str) -> dict[str, Any]:
    """A benchmark model, or the 64-layer MLP."""
    if name == "mlp":
        model = mlp(dtype)
        (key,) = [value.name for value in model.graph().inputs]
        sizes = model.sizes(1)
        options = {"dynamic": dict.fromkeys(sizes, (1, 1)), "buckets": {symbol: [1] for symbol in sizes}}
        import numpy as np

        given = {key: torch.from_numpy(model.draw(np.random.default_rng(1), 1)).cuda()}
        return times(model.graph(), given, options)
    subject = Subject(name, dtype)
    return times(subject.graph, {key: torch.from_numpy(each).cuda() for key, each in subject.inputs(1).items()}, {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", default=["bert", "resnet50", "gpt2", "mlp"])
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--out", type=Path, default=Path("build") / "benchmarks")
    options = parser.parse_args()
    findings = Findings(options.out / "host_time.json")
    for name in options.models:
        findings.stage(f"{name} {options.dtype}", lambda name=name: subject_times(name, options.dtype))  # type: ignore[misc]
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
