"""Host time of a replayed call, on an idle and on a busy device, and what the recorded graph consists of.

    python -m benchmarks.gpu.host_time [--models NAME ...] [--dtype float16] [--out FOLDER]

Inputs in place with static outputs, and one copy in and one out: with copies within the graph, as calls become after a
while, and with copies around it, as the first ones are. `phases` are what such calls consist of, each by itself: the
whole is more than their sum only by what Python does in between. A graph whose launch costs more with every node has
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
from .peers import environment
from .subjects import Subject

IN_PLACE = {"inputs": {"": "refuse"}, "copy_outputs": False, "progress": None}
COPIED = {"inputs": {"": "copy"}, "progress": None}
CALLS = 200
TOGETHER = 8
WINDOWS = 60
"""How often so many are called together: few windows catch what else the processor does, and a cold start."""


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
    for _ in range(WINDOWS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(TOGETHER):
            call()
        found.append((time.perf_counter() - start) / TOGETHER)
    return 1e6 * statistics.median(found)


def contents(program: Program) -> dict[str, Any]:
    """Kinds of nodes and edges of what is recorded, and by which candidates steps are done."""
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
    candidates = Counter(each.name for each in bound.chosen if each is not None and each.launches)
    return {
        "nodes": dict(kinds),
        "edges": dict(Counter(str(getattr(edge, "type", "full")) for edge in edges)),
        "candidates": dict(candidates),
    }


def both_us(call: Callable[[], Any]) -> dict[str, float]:
    """Host time of a call on an idle and on a busy device."""
    return {"idle_us": idle_us(call), "busy_us": busy_us(call)}


def phases(program: Program, inputs: Mapping[str, Any]) -> dict[str, float]:
    """What a copied call consists of, each by itself on a busy device.

    Around the graph: stream, look, copies, launch. Within: stream, look, new arrays, launch with copies; and exchanges,
    where arrays are elsewhere than in the call before.
    """
    executable: Any = program._executable
    path, device = executable._fast_path, executable._device
    framework, stream, copying = path._framework, device.stream, path._with_copies
    arrays = [(inputs[path.names[index]], like) for index, like in path._copied]
    sources = [framework.address_like(given, like) for given, like in arrays]
    copies = [(target, source, nbytes) for (target, nbytes), source in zip(path._targets, sources, strict=True)]
    results = [like for _name, like in path._outputs]
    kept = [framework.fresh(like) for like in results]
    calls: dict[str, Callable[[], Any]] = {
        "which stream": framework.stream,
        "look at inputs": lambda: [framework.address_like(given, like) for given, like in arrays],
        "copy inputs": lambda: [device.driver.copy(*each, stream) for each in copies],
        "launch": lambda: [launch(stream) for launch in path._launches],
        "copy results": lambda: [framework.copy_of(like) for like in results],
        "new arrays for results": lambda: [framework.fresh(like) for like in results],
    }
    if copying is not None:
        targets = [address for _native, address in kept]
        calls["exchange addresses of inputs"] = lambda: copying._copying._graph.read_from(sources)
        calls["exchange addresses of results"] = lambda: copying._copying._graph.write_to(targets)
        calls["launch with copies"] = lambda: copying._copying._launch(stream)
    found = {name: busy_us(call) for name, call in calls.items()}
    if copying is not None:
        copying._copying._sources, copying._copying._targets = [], []  # the next call exchanges what was exchanged here
    torch.cuda.synchronize()  # before memory that is written to is given back
    return found


def copied_times(program: Program, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Host times of a program that copies, before and after its copies are in the graph."""
    executable: Any = program._executable
    path = executable._fast_path
    path._until_copies = 0  # it is counted down, and acts on the way to 0
    found: dict[str, Any] = {"copied around the graph": both_us(lambda: program.run(inputs))}
    path._until_copies = 1
    program.run(inputs)
    found["copied"] = {**both_us(lambda: program.run(inputs)), "copies in graph": path._with_copies is not None}
    kept: list[Any] = []

    def to_other_places() -> None:
        kept.append(program.run(inputs))

    found["copied to other places"] = both_us(to_other_places)
    found["phases"] = phases(program, inputs)
    found["remarks"] = [line for line in program.remarks if "copies within" in line]
    return found


def times(graph: Any, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Host times of one program in both policies."""
    found: dict[str, Any] = {}
    for name, capture in (("in place", IN_PLACE), ("copied", COPIED)):
        with capgraph.optimize(
            graph, executor="graph", device="cuda", mode="full", capture=capture, **options
        ) as program:
            for _ in range(4):
                program.run(inputs)
            if name == "copied":
                found |= copied_times(program, inputs)
                continue
            found[name] = both_us(lambda program=program: program.run(inputs))  # type: ignore[misc]
            (recording,) = next(iter(program._executable._inner._dispatcher._captured.values())).recordings
            found["launch alone"] = both_us(recording.replay)
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
    findings.stage("environment", environment)
    for name in options.models:
        findings.stage(f"{name} {options.dtype}", lambda name=name: subject_times(name, options.dtype))  # type: ignore[misc]
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
