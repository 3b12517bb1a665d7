"""Real models end to end: ResNet-50 and SqueezeNet on a picture, a transformer on text, beside ONNX Runtime.

    python examples/demo.py [--json] [--runs N]

Each model runs on every executor that there is here ("eager" is NumPy, "ort" the optimized model in ONNX Runtime) and,
for comparison, as it is in ONNX Runtime.

The networks are real and their weights random, so what they say of the picture means nothing; that capgraph and ONNX
Runtime say the same does. Needs the packages onnx and Pillow; without onnxruntime the comparison is left out. Exits
with 1 when a result differs.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import numpy.typing as npt
import onnx
from capgraph.comparing.tables import Table, json_text
from capgraph.executors.backends import targets
from capgraph.executors.progress import Progress
from capgraph.inputs import gather_inputs
from capgraph.ir.analysis import statistics as graph_statistics
from capgraph.ir.dims import bind
from capgraph.program import foreign_nodes
from light_models import light_model
from PIL import Image, ImageDraw
from transformer import encoder, tokenize

Arrays = dict[str, npt.NDArray[Any]]

PICTURE = Path("build") / "demo" / "picture.png"
TEXTS = (
    "A graph is recorded once and replayed many times.",
    "The graph was recorded one time, then replayed.",
    "Bring two apples and a jar of honey.",
)
EXECUTORS = tuple(target.executor for target in targets() if target.is_available)
CAPTURE = {"graph": {"beyond": "exact"}}
"""Whichever sizes come are recorded, once for each."""
TOLERANCE = 1e-3  # the largest difference from ONNX Runtime, relative to the largest value


@dataclass(frozen=True)
class Case:
    """A model, its inputs for a program made of it, and what its outputs say, in words."""

    name: str
    make: Callable[[], onnx.ModelProto]
    inputs: Callable[[capgraph.Program], Arrays]
    read: Callable[[Arrays], str]


def draw_picture(path: Path) -> None:
    """A sun over hills, 320 x 240."""
    picture = Image.linear_gradient("L").resize((320, 240)).convert("RGB")
    pen = ImageDraw.Draw(picture)
    pen.ellipse((210, 30, 270, 90), fill=(250, 200, 60))
    pen.ellipse((-60, 150, 200, 400), fill=(40, 120, 60))
    pen.ellipse((120, 170, 420, 420), fill=(30, 90, 50))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def picture_of(program: capgraph.Program) -> Arrays:
    (name,) = (name for name in program.inputs if name not in program.optional_inputs)
    given = gather_inputs(program.graph, {name: str(PICTURE)}, {}, seed=0)
    return {name: given[name].value}


def likeliest(outputs: Arrays) -> str:
    (chances,) = outputs.values()
    best = int(np.argmax(chances))
    return f"class {best} ({chances.reshape(-1)[best]:.1%})"


def closest_texts(outputs: Arrays) -> str:
    rows = outputs["embedding"]
    alike = np.triu(rows @ rows.T, k=1)
    first, second = np.unravel_index(np.argmax(alike), alike.shape)
    return f"texts {first + 1} and {second + 1} are closest ({alike[first, second]:.2f})"


CASES = (
    Case("resnet50", lambda: light_model("resnet50"), picture_of, likeliest),
    Case("squeezenet", lambda: light_model("squeezenet"), picture_of, likeliest),
    Case("transformer", encoder, lambda _program: dict(tokenize(TEXTS)), closest_texts),
)


def run_case(case: Case, runs: int) -> dict[str, Any]:
    model = case.make()
    start = time.perf_counter()
    with capgraph.optimize(model, executor="eager") as program:
        seconds = time.perf_counter() - start
        inputs = case.inputs(program)
        facts = facts_of(program, inputs)
    expected, plain = run_onnxruntime(model, inputs, runs)
    results, times = {}, {}
    for executor in EXECUTORS:
        with capgraph.optimize(model, executor=executor, capture=CAPTURE.get(executor)) as program:
            results[executor], times[executor] = median_time(lambda program=program: program.run(inputs), runs)
    return {
        "model": case.name,
        **facts,
        "optimize s": seconds,
        **{f"{executor} ms": each * 1e3 for executor, each in times.items()},
        "ONNX Runtime ms": None if plain is None else plain * 1e3,
        "error": None if expected is None else max(largest_error(each, expected) for each in results.values()),
        "result": case.read(results["eager"]),
    }


def facts_of(program: capgraph.Program, inputs: Arrays) -> dict[str, Any]:
    runs = program.report.runs
    return {
        "nodes": runs[0].nodes_before if runs else len(program.graph),
        "after": len(program.graph),
        "foreign": sum(map(len, foreign_nodes(program.graph).values())),
        "parameters": graph_statistics(program.graph).parameters,
        "GFLOPs": giga_flops(program, inputs),
    }


def giga_flops(program: capgraph.Program, inputs: Mapping[str, Any]) -> float | None:
    """The arithmetic operations of one call with these inputs, a multiply-add counted as two."""
    flops = graph_statistics(program.graph).flops
    shapes = ((ty.dims, inputs[name].shape) for name, ty in program.inputs.items() if name in inputs)
    sizes = {str(dim): size for dims, shape in shapes for dim, size in zip(dims, shape, strict=True)}
    bound = None if flops is None else bind(flops, {n: s for n, s in sizes.items() if not n.isdigit()})
    return bound / 1e9 if isinstance(bound, int) else None


def median_time(call: Callable[[], Arrays], runs: int) -> tuple[Arrays, float]:
    """The result of `call` and the median seconds of `runs` more calls."""
    result, times = call(), []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return result, statistics.median(times)


def run_onnxruntime(model: onnx.ModelProto, inputs: Arrays, runs: int) -> tuple[Arrays | None, float | None]:
    """The outputs by name and the median seconds on its CPU provider; nothing when it is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None, None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return median_time(lambda: dict(zip(names, session.run(names, inputs), strict=True)), runs)


def largest_error(ours: Arrays, theirs: Arrays) -> float:
    """The largest difference, relative to the largest value of the same output."""
    return max(float(np.abs(ours[name] - theirs[name]).max() / np.abs(theirs[name]).max()) for name in theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="write the table as JSON")
    parser.add_argument("--runs", type=int, default=5, help="how many calls to time (5)")
    given = parser.parse_args()
    draw_picture(PICTURE)
    with Progress("running", len(CASES)) as progress:
        rows = []
        for case in CASES:
            progress.advance(case.name)
            rows.append(run_case(case, given.runs))
    table = Table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    if given.json:
        print(json_text(table.records()))
    else:
        print(f"capgraph {capgraph.__version__}: {PICTURE} and {len(TEXTS)} texts through models with random weights\n")
        print(table.text())
    wrong = [row["model"] for row in rows if row["error"] is not None and not row["error"] <= TOLERANCE]
    if wrong:
        print(f"\nresults differ from ONNX Runtime's: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
