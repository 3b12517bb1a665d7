"""`capgraph.optimize` on a machine without a GPU beside a plain ONNX Runtime session on the raw model.

    python benchmarks/executors_cpu.py [--models NAME ...] [--fixed | --dynamic] [--rounds N]
                                       [--processes N] [--out FILE.json]

The rounds of a model are spread over several fresh processes, since where the memory of one happens to lie makes a
model some percent quicker or slower for all of its life. In each round both run a few calls one behind the other, in a
drawn order, the first call of each uncounted and a pause before it in which the threads of the other stop spinning. A
ratio is the median over the rounds of the plain session's time to ours (above 1: we are faster). `never slower` holds
where the median of the paired differences is at most 2% of the plain time, or 20 us. The overhead is what `Program.run`
takes beside `session.run` of the session that it holds, on a model of one addition and on one of many inputs whose
sizes calls choose, such as the caches of a decoder.

The models are those of benchmarks/models.py, exported before: `python benchmarks/models.py`.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import capgraph
import models
import numpy as np
import onnxruntime
from capgraph.ir.text.parser import parse

CALLS, PAUSE = 4, 0.03
SLOWER_BY, SLOWER_SECONDS, FASTER_BY = 1.02, 20e-6, 1.05
SMALL = "graph @small(%x: f32[4]) { %y: f32[4] = add(%x, %x) return %y }"
INPUTS = 24
"""How many there are in the model of many inputs."""


@dataclass(frozen=True)
class Row:
    """One model: median times in milliseconds, the median paired ratio and its quartiles, and what is claimed."""

    model: str
    variant: str
    executor: str
    plain_ms: float
    ours_ms: float
    ratio: float
    quartiles: tuple[float, float]
    ratio_by_process: tuple[float, ...]
    slower_by_us: float
    is_never_slower: bool
    is_faster: bool
    largest_error: float
    remarks: tuple[str, ...]


def plain_session(path: Path) -> Any:
    """A session as anybody would make it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def times(calls: dict[str, Callable[[], Any]], rounds: int, process: int) -> dict[str, list[float]]:
    """Seconds of a call in each round, by name."""
    generator = random.Random(models.SEED + process)
    order = list(calls)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        generator.shuffle(order)
        for name in order:
            time.sleep(PAUSE)
            calls[name]()
            each = [_seconds(calls[name]) for _ in range(CALLS)]
            found[name].append(statistics.median(each))
    return found


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Sample:
    """What one process found: paired seconds of the plain session and of ours, by rounds."""

    plain: list[float]
    ours: list[float]
    executor: str
    largest_error: float
    remarks: tuple[str, ...]


def sample(name: str, variant: models.Variant, rounds: int, process: int) -> Sample:
    """Runs one model in this process; whose session is made first depends on the number of the process."""
    path = models.ensure(name, variant)
    feeds = models.inputs(name)
    plain = plain_session(path) if process % 2 == 0 else None
    with capgraph.optimize(path) as program:
        plain = plain or plain_session(path)
        expected, found = plain.run(None, feeds), list(program.run(feeds).values())
        error = max(_error(*pair) for pair in zip(expected, found, strict=True))
        calls = {"plain": lambda: plain.run(None, feeds), "ours": lambda: program.run(feeds)}
        return Sample(
            **times(calls, rounds, process),
            executor=program.target.executor,
            largest_error=error,
            remarks=program.remarks,
        )


def measure(name: str, variant: models.Variant, rounds: int, processes: int) -> Row:
    """The row of one model."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        samples = [pool.submit(sample, name, variant, rounds, process).result() for process in range(processes)]
    plain = [seconds for each in samples for seconds in each.plain]
    ours = [seconds for each in samples for seconds in each.ours]
    ratios = [old / new for old, new in zip(plain, ours, strict=True)]
    slower = statistics.median(new - old for old, new in zip(plain, ours, strict=True))
    low, high = np.quantile(ratios, [0.25, 0.75])
    return Row(
        model=name,
        variant=variant,
        executor=samples[0].executor,
        plain_ms=1e3 * statistics.median(plain),
        ours_ms=1e3 * statistics.median(ours),
        ratio=statistics.median(ratios),
        quartiles=(float(low), float(high)),
        ratio_by_process=tuple(statistics.median(_ratios(each)) for each in samples),
        slower_by_us=1e6 * slower,
        is_never_slower=slower <= max((SLOWER_BY - 1) * statistics.median(plain), SLOWER_SECONDS),
        is_faster=statistics.median(ratios) >= FASTER_BY,
        largest_error=max(each.largest_error for each in samples),
        remarks=samples[0].remarks,
    )


def _ratios(found: Sample) -> list[float]:
    return [old / new for old, new in zip(found.plain, found.ours, strict=True)]


def _error(expected: np.ndarray, found: np.ndarray) -> float:
    scale = float(np.abs(expected).max(initial=0)) or 1.0
    return float(np.abs(found - expected).max(initial=0)) / scale


def many_inputs() -> str:
    """A model of as many inputs of symbolic sizes as outputs, and a mask over what they hold and one more."""
    inputs = ", ".join(f"%x{i}: f32[B, 12, P, 64]" for i in range(INPUTS))
    nodes = " ".join(f"%y{i}: f32[B, 12, P, 64] = relu(%x{i})" for i in range(INPUTS))
    results = ", ".join(f"%y{i}" for i in range(INPUTS))
    mask = "%seen: f32[B, P + 1] = relu(%mask)"
    return f"graph @many({inputs}, %mask: f32[B, P + 1]) {{ {nodes} {mask} return {results}, %seen }}"


def overheads_us(rounds: int) -> dict[str, float]:
    """What a call of a program takes beside the bare call of its session, in microseconds, by model."""
    many = {f"x{i}": np.ones((1, 12, 4, 64), np.float32) for i in range(INPUTS)} | {"mask": np.ones((1, 5), np.float32)}
    return {
        "one addition": overhead_us(SMALL, {"x": np.ones(4, np.float32)}, rounds),
        f"{len(many)} symbolic inputs": overhead_us(many_inputs(), many, rounds),
    }


def overhead_us(text: str, feeds: dict[str, np.ndarray], rounds: int) -> float:
    """The same on a model, given as text, with these inputs."""
    with capgraph.optimize(parse(text), executor="ort") as program:
        session = program._executable._partition.segments[0].session._session  # the bare session, for this alone
        names = list(program.outputs)
        calls = {"bare": lambda: session.run(names, feeds), "program": lambda: program.run(feeds)}
        for call in calls.values():
            call()
        blocks: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(20 * rounds):
            for name, call in calls.items():
                start = time.perf_counter()
                for _ in range(50):
                    call()
                blocks[name].append((time.perf_counter() - start) / 50)
    return 1e6 * statistics.median(b - a for a, b in zip(blocks["bare"], blocks["program"], strict=True))


def main() -> int:
    """Measures, prints, and writes the results."""
    parser = argparse.ArgumentParser()
    models.add_choices(parser)
    parser.add_argument("--rounds", type=int, default=20, help="rounds in each process")
    parser.add_argument("--processes", type=int, default=3, help="processes that each run so many rounds")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all rows there")
    arguments = parser.parse_args()
    overheads = overheads_us(arguments.rounds * arguments.processes)
    for name, overhead in overheads.items():
        print(f"overhead of Program.run beside session.run, {name}: {overhead:.1f} us", flush=True)
    rows: list[Row] = []
    for name in arguments.models:
        for variant in arguments.variants:
            rows.append(measure(name, variant, arguments.rounds, arguments.processes))
            print(_line(rows[-1]), flush=True)
    if arguments.out is not None:
        counts = {"rounds": arguments.rounds, "processes": arguments.processes}
        content = {**_circumstances(), **counts, "overhead_us": overheads, "rows": [asdict(row) for row in rows]}
        arguments.out.write_text(json.dumps(content, indent=1) + "\n")
    faster = sum(row.is_faster for row in rows)
    largest = max(overheads.values())
    print(f"{faster} of {len(rows)} at least {FASTER_BY}x faster; overhead at most {largest:.1f} us")
    slower = [f"{row.model} {row.variant}" for row in rows if not row.is_never_slower]
    print(f"slower: {', '.join(slower) or 'none'}")
    return int(bool(slower) or faster < len(rows) / 2 or largest >= 1e6 * SLOWER_SECONDS)


def _circumstances() -> dict[str, Any]:
    """When, with what and where was measured."""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "versions": {package: metadata.version(package) for package in ("numpy", "onnx", "onnxruntime")},
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
    }


def _line(row: Row) -> str:
    low, high = row.quartiles
    return (
        f"{row.model:16} {row.variant:8} plain {row.plain_ms:9.3f} ms  {row.executor} {row.ours_ms:9.3f} ms  "
        f"x{row.ratio:.3f} ({low:.3f} to {high:.3f})  {'' if row.is_never_slower else 'SLOWER'}"
    )


if __name__ == "__main__":
    sys.exit(main())
