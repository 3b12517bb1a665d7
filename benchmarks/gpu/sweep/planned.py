"""What a model becomes on a GPU, found without one: launches, segments, and what would be left to the host.

    python -m benchmarks.gpu.sweep.planned [NAME ...] [--full] [--dtype float16]

Modules are small ones unless `--full` is given. A line for each model; what is on the host is named below it.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass

import torch
from capgraph.executors.cuda.kernel_ir.launch import HostCall
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.graph import Graph
from capgraph.optimization import pipeline_for
from capgraph.program import foreign_nodes
from capgraph.sources import Examples, load_model

from .subject import Subject
from .table import SUBJECTS

LIBRARIES = frozenset({"cublaslt", "cudnn"})


@dataclass(frozen=True, slots=True)
class Planned:
    """Launches of a plan, its recorded segments, and the steps on the host with the reason for each; foreign nodes."""

    launches: int
    segments: int
    on_host: Counter[str]
    foreign: dict[str, int]


def imported(subject: Subject, dtype: torch.dtype, *, small: bool, batch: int = 1) -> Graph:
    """The model's graph as `optimize` imports it."""
    module = subject.module(small=small, dtype=dtype, device="cpu")
    size = (subject.small if small else subject.sizes)[0]
    return load_model(module, examples=Examples(subject.inputs(batch, size, dtype, "cpu"), None, None)).graph


def planned(graph: Graph, libraries: frozenset[str] = LIBRARIES) -> Planned:
    """What an H200 would be given; the graph is the plan's afterwards."""
    pipeline_for(2, "cuda").run(graph, check="none")
    backend = Backend(libraries=libraries)
    plan = cuda_planning(backend, ReplayOptions()).of(graph)({}, CaptureMode.FULL_AND_PIECEWISE)
    on_host: Counter[str] = Counter()
    launches = 0
    for step in backend.lower(plan):
        first = step.candidates[0] if step.candidates else None
        for launch in () if first is None else first.launches:
            launches += 1
            if isinstance(launch, HostCall):
                on_host[f"{step.step.node.op.name}: {launch.reason}"] += 1
    segments = sum(segment.is_captured for segment in plan.segments)
    return Planned(launches, segments, on_host, {name: len(nodes) for name, nodes in foreign_nodes(graph).items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--dtype", default="float16")
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.names or SUBJECTS:
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings(action="ignore"):
                graph = imported(SUBJECTS[name], getattr(torch, arguments.dtype), small=not arguments.full)
                found = planned(graph)
        except Exception as error:  # noqa: BLE001  # a model that fails is a line of the table
            failed += 1
            print(f"{name:36} FAILS {type(error).__name__}: {' '.join(str(error).split())[:700]}", flush=True)
            continue
        seconds = time.perf_counter() - begin
        print(f"{name:36} {found.launches:5} launches {found.segments:3} segments {seconds:6.1f} s", flush=True)
        for what, count in [*found.on_host.items(), *found.foreign.items()]:
            print(f"{'':36}   {count} x {what}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
