"""`capgraph run`: a model on files, pictures or random numbers."""

import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...comparing.tables import Table, json_text
from ...executors.progress import Progress
from .arguments import Command, add_dims, assignment, count, positive


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph run`."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    parser.add_argument(
        "--input",
        metavar="NAME=SOURCE",
        type=assignment,
        action="append",
        default=[],
        help="a .npy file, a picture (resized and cropped to fit), a number for a scalar, or the word random, which is "
        "also the default",
    )
    add_dims(parser)
    parser.add_argument("--output", metavar="DIR", type=Path, help="write every output to DIR/NAME.npy")
    parser.add_argument("--seed", metavar="N", type=count, default=0, help="for random inputs (default 0)")
    parser.add_argument("--repeat", metavar="N", type=positive, default=1, help="run N times and give the median time")
    parser.add_argument("--executor", metavar="NAME", default="auto", help="what runs it (see capgraph doctor)")
    parser.add_argument("--explain", action="store_true", help="say how the model runs as well")


def run(arguments: Namespace) -> None:
    """Runs the model and writes a table of its outputs."""
    from ...comparing.fitting_inputs import asked_sizes, run_on, sizes_of
    from ...inputs import RANDOM, gather_inputs
    from ...optimization import optimize
    from ..files import summarize

    start = time.perf_counter()
    with Progress(f"importing {arguments.model.name}"):
        program = optimize(arguments.model, executor=arguments.executor)
    seconds = {"import": time.perf_counter() - start}
    otherwise = asked_sizes(program.graph, dict(arguments.dim))
    given = gather_inputs(
        program.graph, dict(arguments.input), dict(arguments.dim), arguments.seed, otherwise=otherwise
    )
    values = {name: each.value for name, each in given.items()}
    sizes = sizes_of(program.graph, [values])
    is_drawn = any(each.source.startswith(RANDOM) for each in given.values())
    with Progress(f"running {arguments.model.name}", arguments.repeat) as progress:
        times: list[float] = []
        for _ in range(arguments.repeat):
            start = time.perf_counter()
            outputs = run_on(program.run, values, sizes) if is_drawn else program.run(values)
            times.append(time.perf_counter() - start)
            progress.advance()
    seconds["run"] = statistics.median(times)
    report = {
        "model": str(arguments.model),
        "executor": program.target.executor,
        "device": program.target.device,
        "inputs": [
            {"name": n, "type": summarize(each.value)["type"], "source": each.source} for n, each in given.items()
        ],
        "outputs": [{"name": name, **summarize(value)} for name, value in outputs.items()],
        "seconds": seconds,
        "runs": len(times),
        "files": [str(path) for path in _written(outputs, arguments)] if arguments.output else [],
        "explain": program.explain().splitlines() if arguments.explain else [],
    }
    print(json_text(report) if arguments.json else _text(report))


def _written(outputs: Mapping[str, Any], arguments: Namespace) -> list[Path]:
    from ..files import refuse_harming, save_outputs

    return save_outputs(outputs, arguments.output, lambda paths: refuse_harming(arguments.model, paths))


def _text(report: dict[str, Any]) -> str:
    lines = [f"input {each['name']}: {each['type']}, {each['source']}" for each in report["inputs"]]
    rows = [
        (each["name"], each["type"], each["min"], each["mean"], each["max"], ", ".join(map(_shown, each["first"])))
        for each in report["outputs"]
    ]
    lines += ["", Table(("output", "type", "min", "mean", "max", "first"), rows).text(), ""]
    lines += [
        f"output {each['name']}: {each['not_finite']:,} elements are NaN or infinite"
        for each in report["outputs"]
        if each["not_finite"]
    ]
    lines += [f"wrote {path}" for path in report["files"]]
    lines += [*report["explain"], ""] if report["explain"] else []
    seconds, runs = report["seconds"], report["runs"]
    median = f", the median of {runs} runs" if runs > 1 else ""
    lines.append(
        f"imported in {seconds['import']:.2f} s, ran in {seconds['run'] * 1e3:.1f} ms{median} "
        f"({report['executor']} on {report['device']})"
    )
    return "\n".join(lines).lstrip("\n")


def _shown(item: Any) -> str:
    return f"{item:.4g}" if isinstance(item, float) else str(item)


COMMAND = Command("run", "Run a model and show its outputs.", configure, run)
