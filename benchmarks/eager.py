"""Host eager against ONNX Runtime's CPU provider and onnx's ReferenceEvaluator, in one process, call by call.

    python benchmarks/eager.py [--models NAME ...] [--rounds N] [--threads N] [--profile] [--out FILE.json]

Models are those of the demo: networks of the onnx package and a transformer, with seeded random weights. Each round
calls every contender once, in a drawn order; times are medians over the rounds, ratios medians of the ratios within a
round, each beside the least seen. `--profile` adds what the ops took, each node at its quickest. The ReferenceEvaluator
is slow and runs once. `--threads` is for ONNX Runtime; NumPy's are set by OPENBLAS_NUM_THREADS. On a busy machine only
figures of one thread each mean something: OpenBLAS waits actively, and loses whole time slices when its other thread
does not run.
"""

import argparse
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import onnx
import onnxruntime
from capgraph.comparing.tables import Table, json_text
from capgraph.ir.evaluate import bind_inputs, run_meaning
from capgraph.ir.graph import Graph, Node, Value
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from light_models import input_name, light_model
from transformer import encoder, tokenize

WARM_UP = 2
SEED = 20261120
TEXTS = ["A graph is recorded once and replayed many times."] * 4

Inputs = dict[str, Any]


def make(name: str) -> tuple[onnx.ModelProto, Inputs]:
    """A model and inputs for it."""
    if name == "transformer":
        return encoder(), dict(tokenize(TEXTS))
    model = light_model(name)
    picture = np.random.default_rng(SEED).standard_normal((1, 3, 224, 224), dtype=np.float32)
    return model, {input_name(model): picture}


def contenders(model: onnx.ModelProto, inputs: Inputs, threads: int) -> dict[str, Callable[[], Any]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    program = capgraph.optimize(model, executor="eager")
    return {"eager": lambda: program.run(inputs), "onnxruntime": lambda: session.run(None, inputs)}


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds per round of every contender; within a round they run in a drawn order."""
    order = random.Random(SEED)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM_UP + rounds):
        for name in order.sample(list(calls), len(calls)):
            seconds = seconds_of(calls[name])
            if number >= WARM_UP:
                times[name].append(seconds)
    return times


def compare(name: str, rounds: int, threads: int) -> dict[str, Any]:
    model, inputs = make(name)
    times = measure(contenders(model, inputs, threads), rounds)
    reference = seconds_of(lambda: ReferenceEvaluator(model).run(None, inputs))
    eager, theirs = (statistics.median(times[each]) for each in ("eager", "onnxruntime"))
    return {
        "model": name,
        "eager ms": eager * 1e3,
        "least": min(times["eager"]) * 1e3,
        "ORT ms": theirs * 1e3,
        "least ORT": min(times["onnxruntime"]) * 1e3,
        "eager / ORT": statistics.median(a / b for a, b in zip(times["eager"], times["onnxruntime"], strict=True)),
        "reference ms": reference * 1e3,
        "reference / eager": reference / eager,
    }


def profile(graph: Graph, inputs: Inputs, rounds: int) -> dict[Node, float]:
    """The least seconds that each node's meaning took."""
    least: dict[Node, float] = defaultdict(lambda: float("inf"))
    for _ in range(rounds):
        given = [inputs[value.name] for value in graph.inputs]
        sizes: dict[str, int] = {}
        bind_inputs(graph, given, sizes)
        values: dict[Value, Any] = dict(zip(graph.inputs, given, strict=True))
        last = {value: node for node in graph.nodes for value in node.operands}
        for node in graph.nodes:
            operands = [values[value] if value is not None else None for value in node.inputs]
            start = time.perf_counter()
            results = run_meaning(node, operands, sizes)
            least[node] = min(least[node], time.perf_counter() - start)
            values.update(zip(node.outputs, map(np.asarray, results), strict=True))
            for value in node.operands:
                if last[value] is node:
                    values.pop(value, None)
    return least


def profile_table(name: str, rounds: int) -> Table:
    model, inputs = make(name)
    graph = capgraph.optimize(model, executor="eager").graph
    least = profile(graph, inputs, rounds)
    by_op: dict[str, list[float]] = defaultdict(list)
    for node, seconds in least.items():
        by_op[node.op.name].append(seconds)
    total = sum(least.values())
    slowest = sorted(by_op.items(), key=lambda item: -sum(item[1]))
    rows = [(name, op, len(each), sum(each) * 1e3, sum(each) / total) for op, each in slowest]
    return Table(("model", "op", "nodes", "ms", "share"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", default=["resnet50", "squeezenet", "transformer"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=0, help="of ONNX Runtime (0: its default)")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all figures there")
    arguments = parser.parse_args()
    rows = [compare(name, arguments.rounds, arguments.threads) for name in arguments.models]
    table = Table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    print(table.text())
    found = {"calls": table.records()}
    if arguments.profile:
        profiles = [profile_table(name, arguments.rounds) for name in arguments.models]
        print("\n" + "\n\n".join(each.text() for each in profiles))
        found["profile"] = [record for each in profiles for record in each.records()]
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json_text(found) + "\n")


if __name__ == "__main__":
    main()
