"""ONNX optimizers side by side on the benchmark models: nodes left, seconds, equal outputs, ONNX Runtime CPU latency.

    python benchmarks/optimizers.py [--models NAME ...] [--tools NAME ...] [--fixed | --dynamic]
                                    [--repeats N] [--rounds N] [--processes N] [--out FILE.json] [--keep FOLDER]

Every optimization runs in a fresh process, and its clock covers load, optimize and save, not imports. Nodes are
counted with local functions inlined and subgraphs entered; `Constant` nodes count. `capgraph` writes standard
operators only, `capgraph-ort` also those of ONNX Runtime (`--for ort`), as the tool `ort` does; `capgraph-0` to
`capgraph-3` are one level each, to be named (`--tools capgraph-0 capgraph-1 --rounds 0`). Outputs are compared
with those of the raw model with ONNX Runtime's own optimizations off, in the dynamic variant also at a batch and
length that nobody has seen. Latency is measured in processes that hold a session of every result (ONNX Runtime's
defaults, two threads): each round runs all of them once in a drawn order, and a ratio is the median over the rounds of
the ratio within a round. Where a session's memory lies moves its times by some percent for as long as it lives, so the
rounds are spread over several processes. A tool that fails is a row with its error. `--rounds 0` leaves the latency
out. The environment is requirements/bench.txt.
"""

import argparse
import datetime
import importlib
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import models
import numpy as np

if TYPE_CHECKING:
    import onnx
    import onnxruntime

RAW = "raw"
OURS = "capgraph"
OURS_FOR_ORT = "capgraph-ort"
THREADS = 2
OPSET = "24"  # the others write the opset that came; what the newest operators are worth is told beside theirs
WARM_UP = 3
# The largest difference allowed, as a fraction of the largest reference value; everything else must be equal.
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2}


# --- the tools: each loads `source`, optimizes it and saves it to `target`, and returns the seconds that took ---------


def optimize_with_onnxruntime(source: Path, target: Path) -> float:
    import onnxruntime

    start = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return time.perf_counter() - start


def optimize_with_onnxslim(source: Path, target: Path) -> float:
    import onnx
    import onnxslim

    start = time.perf_counter()
    onnx.save(onnxslim.slim(onnx.load(source)), target)
    return time.perf_counter() - start


def optimize_with_onnxsim(source: Path, target: Path) -> float:
    import onnx
    import onnxsim

    start = time.perf_counter()
    onnx.save(onnxsim.simplify(onnx.load(source))[0], target)
    return time.perf_counter() - start


def optimize_with_onnxscript(source: Path, target: Path) -> float:
    import onnx_ir
    from onnxscript import optimizer

    start = time.perf_counter()
    onnx_ir.save(optimizer.optimize(onnx_ir.load(source)), target)
    return time.perf_counter() - start


LOADED_BY_CAPGRAPH = (
    "capgraph.comparing.tables",
    "capgraph.frontends.onnx.importing.importer",
    "capgraph.frontends.onnx.exporting.saving",
    "capgraph.ir.analysis",
    "capgraph.cli.files",
    "capgraph.passes.catalog",
)


def optimize_with_capgraph(source: Path, target: Path, dialect: str = "standard", level: int | None = None) -> float:
    """`capgraph optimize SOURCE -o TARGET --for DIALECT --opset 24 [--level LEVEL]`, without starting Python."""
    cli = importlib.import_module("capgraph.cli")
    for loaded_on_first_use in LOADED_BY_CAPGRAPH:  # imports are left out for every tool
        importlib.import_module(loaded_on_first_use)
    start = time.perf_counter()
    chosen = [] if level is None else ["--level", str(level)]
    code = cli.main(["optimize", str(source), "-o", str(target), "--for", dialect, "--opset", OPSET, *chosen])
    seconds = time.perf_counter() - start
    if code:
        raise RuntimeError(f"the command ended with {code}")
    return seconds


TOOLS: dict[str, Callable[[Path, Path], float]] = {
    "ort": optimize_with_onnxruntime,
    "onnxslim": optimize_with_onnxslim,
    "onnxsim": optimize_with_onnxsim,
    "onnxscript": optimize_with_onnxscript,
    OURS: optimize_with_capgraph,
    OURS_FOR_ORT: partial(optimize_with_capgraph, dialect="ort"),
    **{f"{OURS}-{level}": partial(optimize_with_capgraph, level=level) for level in range(4)},
}
PEERS = ["ort", "onnxslim", "onnxsim", "onnxscript"]


# --- what the worker processes do: plain data in, plain data out ------------------------------------------------------


def optimize(tool: str, source: str, target: str) -> float:
    return TOOLS[tool](Path(source), Path(target))


def count(path: str) -> dict[str, int]:
    """Nodes by operator, functions inlined, subgraphs included."""
    import onnx
    from onnx import inliner

    def visit(graph: "onnx.GraphProto") -> None:
        for node in graph.node:
            nodes[node.op_type] += 1
            for attribute in node.attribute:
                for subgraph in [attribute.g, *attribute.graphs]:
                    visit(subgraph)

    nodes: Counter[str] = Counter()
    visit(inliner.inline_local_functions(onnx.load(path)).graph)
    return dict(nodes.most_common())


def difference(name: str, variant: models.Variant, reference: str, candidate: str) -> float:
    """The largest difference of any output, as a fraction of that output's tolerance: equal up to 1.

    Raises ValueError where an output's shape or dtype differs.
    """
    sizes = (models.FIXED_SIZE, models.OTHER_SIZE) if variant == "dynamic" else (models.FIXED_SIZE,)
    before, after = _session(reference, optimized=False), _session(candidate, optimized=True)
    worst = 0.0
    for size in sizes:
        feeds = models.inputs(name, *size)
        for expected, actual in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
            worst = max(worst, _fraction_of_tolerance(expected, actual))
    return worst


def _fraction_of_tolerance(expected: np.ndarray, actual: np.ndarray) -> float:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        raise ValueError(f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}")
    tolerance = TOLERANCES.get(expected.dtype.name)
    if tolerance is None or not np.array_equal(np.isfinite(expected), np.isfinite(actual)):
        return 0.0 if np.array_equal(expected, actual) else float("inf")
    finite = np.isfinite(expected)
    error = np.abs(actual[finite] - expected[finite]).max(initial=0.0)
    return float(error / (tolerance * max(np.abs(expected[finite]).max(initial=0.0), np.finfo(expected.dtype).tiny)))


def latencies(name: str, paths: dict[str, str], rounds: int, process: int) -> dict[str, list[float]]:
    """Milliseconds of every round by tool; sessions are made and, in a round, run in an order drawn by `process`."""
    feeds = models.inputs(name)
    generator = random.Random(models.SEED + process)
    order = list(paths)
    generator.shuffle(order)
    sessions = {tool: _session(paths[tool], optimized=True) for tool in order}
    times: dict[str, list[float]] = {tool: [] for tool in order}
    for _ in range(WARM_UP + rounds):
        generator.shuffle(order)
        for tool in order:
            start = time.perf_counter()
            sessions[tool].run(None, feeds)
            times[tool].append(1e3 * (time.perf_counter() - start))
    return {tool: values[WARM_UP:] for tool, values in times.items()}


def _session(path: str, *, optimized: bool) -> "onnxruntime.InferenceSession":
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Idle threads of one session would spin through the first milliseconds of the next one.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


TASKS: dict[str, Callable[..., Any]] = {task.__name__: task for task in (optimize, count, difference, latencies)}


class WorkerError(Exception):
    """A worker ended without a result; the message is its last line, its signal, or its time limit."""


def isolated(task: Callable[..., Any], *arguments: object, timeout: float) -> Any:
    """The result of `task` in a fresh process, so that a crash, a leak or a hang stays there. Raises WorkerError."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, __file__, "--worker", task.__name__, json.dumps(arguments), str(result)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise WorkerError(f"no result within {timeout:.0f} s") from None
        if done.returncode < 0:
            raise WorkerError(f"killed by {signal.Signals(-done.returncode).name}")
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise WorkerError(lines[-1])
        return json.loads(result.read_text())


def work(task: str, arguments: str, result: str) -> None:
    Path(result).write_text(json.dumps(TASKS[task](*json.loads(arguments))))


# --- the comparison ---------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """What one tool made of one model; what was not measured is None, and `problem` says why."""

    model: str
    variant: models.Variant
    tool: str
    nodes: int | None = None
    ops: dict[str, int] | None = None
    seconds: float | None = None  # median over the repeats
    difference: float | None = None  # fraction of the tolerance: equal up to 1
    milliseconds: float | None = None  # median over the rounds
    ratio: float | None = None  # of latency to raw, median over the rounds
    ratio_quartiles: tuple[float, float] | None = None
    ratio_to_best_peer: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Settings:
    """How often to measure and how long to wait."""

    tools: Sequence[str]
    repeats: int
    rounds: int  # of latency in each process
    processes: int
    timeout: float  # seconds for one worker


def compare_tools(name: str, variant: models.Variant, folder: Path, settings: Settings) -> list[Row]:
    """One row for the raw model and one per tool, for one model; the results are left in `folder`."""
    raw = models.ensure(name, variant)
    paths = {RAW: raw} | {tool: folder / f"{name}-{variant}-{tool}.onnx" for tool in settings.tools}
    rows = [Row(name, variant, tool) for tool in paths]
    for row in rows:
        try:
            _optimize_and_check(row, raw, paths[row.tool], settings)
        except WorkerError as error:
            kind = "not available" if str(error).startswith("ModuleNotFoundError") else "failed"
            row.problem = f"{kind}: {error}"
        print(_progress(row), file=sys.stderr, flush=True)
    if settings.rounds:
        _measure_latency(rows, paths, settings)
    return rows


def _optimize_and_check(row: Row, raw: Path, path: Path, settings: Settings) -> None:
    timeout = settings.timeout
    if row.tool != RAW:
        repeated = [isolated(optimize, row.tool, str(raw), str(path), timeout=timeout) for _ in range(settings.repeats)]
        row.seconds = statistics.median(repeated)
    ops: dict[str, int] = isolated(count, str(path), timeout=timeout)
    row.ops, row.nodes = ops, sum(ops.values())
    row.difference = float(isolated(difference, row.model, row.variant, str(raw), str(path), timeout=timeout))
    if not row.difference <= 1:
        row.problem = f"outputs differ by {row.difference:.3g} times the tolerance"


def _measure_latency(rows: Sequence[Row], paths: dict[str, Path], settings: Settings) -> None:
    runnable = {row.tool: row for row in rows if row.difference is not None}
    if RAW not in runnable:
        return
    files = {tool: str(paths[tool]) for tool in runnable}
    timeout = settings.timeout + 10 * settings.rounds * len(files)
    measure = partial(isolated, latencies, rows[0].model, files, settings.rounds, timeout=timeout)
    try:
        times = _joined([measure(process) for process in range(settings.processes)])
    except WorkerError as error:
        for row in runnable.values():
            row.problem = row.problem or f"latency: {error}"
        return
    for tool, row in runnable.items():
        ratios = _ratios(times[tool], times[RAW])
        quartiles = np.quantile(ratios, [0.25, 0.75])
        row.milliseconds = statistics.median(times[tool])
        row.ratio = statistics.median(ratios)
        row.ratio_quartiles = (float(quartiles[0]), float(quartiles[1]))
    peers = [tool for tool in PEERS if tool in runnable]
    if OURS in runnable and peers:
        best = min(peers, key=lambda tool: runnable[tool].ratio or float("inf"))
        runnable[OURS].ratio_to_best_peer = statistics.median(_ratios(times[OURS], times[best]))


def _joined(parts: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {tool: [time for part in parts for time in part[tool]] for tool in parts[0]}


def _ratios(times: Sequence[float], base: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(times, base, strict=True)]


# --- the report -------------------------------------------------------------------------------------------------------


def _progress(row: Row) -> str:
    seconds = "" if row.seconds is None else f" {row.seconds:7.2f} s"
    nodes = "" if row.nodes is None else f" {row.nodes:5d} nodes"
    return f"{row.model:16} {row.variant:8} {row.tool:12}{nodes}{seconds}  {row.problem or ''}".rstrip()


def report(rows: Sequence[Row]) -> str:
    """A table per quantity, models down and tools across, then the problems."""
    parts = [
        _table("nodes left", rows, lambda row: _text(row.nodes, "d")),
        _table("seconds", rows, lambda row: _text(row.seconds, ".2f")),
        _table("outputs / tolerance", rows, lambda row: _text(row.difference, ".3g")),
    ]
    if any(row.ratio is not None for row in rows):
        parts.append(_table("latency / raw", rows, lambda row: _text(row.ratio, ".3f")))
    if any(row.tool == OURS and row.nodes is not None for row in rows):
        parts += [_verdict(variant, rows) for variant in models.VARIANTS if any(row.variant == variant for row in rows)]
    problems = [f"{row.model} {row.variant} {row.tool}: {row.problem}" for row in rows if row.problem]
    if problems:
        parts.append("\n".join(["problems", *problems]))
    return "\n\n".join(parts)


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(title: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    tools = list(dict.fromkeys(row.tool for row in rows))
    cells = {(row.model, row.variant, row.tool): cell(row) for row in rows}
    lines = [f"{title:26}" + "".join(f"{tool:>13}" for tool in tools)]
    for model, variant in dict.fromkeys((row.model, row.variant) for row in rows):
        lines.append(
            f"{model:17}{variant:9}" + "".join(f"{cells.get((model, variant, tool), '-'):>13}" for tool in tools)
        )
    return "\n".join(lines)


def _verdict(variant: models.Variant, rows: Sequence[Row]) -> str:
    """How our results stand against the best peer of each model; a model on which we failed counts as lost."""
    ours = [row for row in rows if row.tool == OURS and row.variant == variant]
    fewest = {name: _fewest_nodes(name, variant, rows) for name in {row.model for row in ours}}
    slim = {row.model: row.seconds for row in rows if row.tool == "onnxslim" and row.variant == variant}
    claims = {
        "at most the best peer's nodes": [row.nodes is not None and row.nodes <= fewest[row.model] for row in ours],
        "fewer nodes than the best peer": [row.nodes is not None and row.nodes < fewest[row.model] for row in ours],
        "faster than onnxslim": [(row.seconds or np.inf) < (slim.get(row.model) or np.inf) for row in ours],
        "outputs equal": [row.difference is not None and row.difference <= 1 for row in ours],
        "latency at most 1.03 of raw": [(row.ratio or np.inf) <= 1.03 for row in ours],
        "latency at most 1.03 of the best peer": [(row.ratio_to_best_peer or np.inf) <= 1.03 for row in ours],
    }
    lines = [f"  {claim:40}{sum(held):3d} of {len(held)}" for claim, held in claims.items()]
    return "\n".join([f"{OURS}, {variant}", *lines])


def _fewest_nodes(name: str, variant: models.Variant, rows: Sequence[Row]) -> float:
    peers = [row for row in rows if (row.model, row.variant) == (name, variant) and row.tool in PEERS]
    return min((row.nodes for row in peers if row.nodes is not None), default=np.inf)


def save(rows: Sequence[Row], settings: Settings, path: Path) -> None:
    """Everything measured, with the versions and the machine it was measured on."""
    packages = ("torch", "transformers", "onnx", "onnxruntime", "onnxslim", "onnxsim", "onnxscript", "numpy")
    document = {
        "date": datetime.date.today().isoformat(),
        "versions": {package: metadata.version(package) for package in packages},
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        "settings": asdict(settings) | {"threads": THREADS, "batch_length": models.FIXED_SIZE},
        "rows": [asdict(row) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="ONNX optimizers side by side on the benchmark models.")
    models.add_choices(parser)
    parser.add_argument(
        "--tools", nargs="+", choices=TOOLS, default=[*PEERS, OURS, OURS_FOR_ORT], metavar="NAME", help=", ".join(TOOLS)
    )
    parser.add_argument("--repeats", type=int, default=3, help="optimizations of each model with each tool")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of latency, 0 for none")
    parser.add_argument("--processes", type=int, default=3, help="processes that each run so many rounds")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one optimization may take")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write everything")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the optimized models there")
    parser.add_argument("--worker", nargs=3, metavar=("TASK", "ARGUMENTS", "RESULT"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _compare_in_own_folder(name: str, variant: models.Variant, keep: Path | None, settings: Settings) -> list[Row]:
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        return compare_tools(name, variant, keep, settings)
    with tempfile.TemporaryDirectory() as folder:
        return compare_tools(name, variant, Path(folder), settings)


def main() -> int:
    options = _arguments()
    if options.worker:
        work(*options.worker)
        return 0
    repeats, processes = max(1, options.repeats), max(1, options.processes)
    settings = Settings(options.tools, repeats, options.rounds, processes, options.timeout)
    rows: list[Row] = []
    for variant in options.variants:
        for name in options.models:
            try:
                rows += _compare_in_own_folder(name, variant, options.keep, settings)
            except subprocess.CalledProcessError:
                rows.append(Row(name, variant, RAW, problem="failed: no export, see above"))
            if options.out:
                save(rows, settings, options.out)
    print(report(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
