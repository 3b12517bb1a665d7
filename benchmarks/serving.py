"""Recorded programs on the host under traffic of random batch sizes: equal to eager, how long, what is wasted.

    python benchmarks/serving.py [--calls N] [--images N] [--out FILE.json]

Small configurations of BERT and GPT-2 get `--calls` calls with batch 1 to 64, ResNet-50 (the light model of the ONNX
package, with random weights) `--images` with batch 1 to 4. Each call is compared with eager execution, whose time is
beside that of the recorded program; the calls that capture a bucket count. OPENBLAS_NUM_THREADS sets the threads.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import capgraph
import numpy as np
from capgraph.comparing.tables import Table, json_text
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from light_models import light_model  # noqa: E402
from transformer import VOCABULARY, Size, encoder  # noqa: E402

from tests.executors.replay.test_serving import LENGTH, gpt2  # noqa: E402

LARGEST_BATCH, LARGEST_IMAGES = 64, 4
SEED = 20261120
TOLERANCE = 1e-4

Inputs = dict[str, Any]


def bert_calls(random: np.random.Generator, count: int) -> Iterator[Inputs]:
    for _ in range(count):
        tokens = random.integers(1, VOCABULARY, (int(random.integers(1, LARGEST_BATCH + 1)), LENGTH))
        yield {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}


def gpt2_calls(random: np.random.Generator, count: int) -> Iterator[Inputs]:
    for _ in range(count):
        yield {"input_ids": random.integers(0, VOCABULARY, (int(random.integers(1, LARGEST_BATCH + 1)), LENGTH))}


def resnet_calls(random: np.random.Generator, count: int) -> Iterator[Inputs]:
    for _ in range(count):
        batch = int(random.integers(1, LARGEST_IMAGES + 1))
        yield {"gpu_0/data_0": random.standard_normal((batch, 3, 224, 224), dtype=np.float32)}


def dynamic_resnet() -> Any:
    """The light ResNet-50 with a symbolic batch."""
    model = light_model("resnet50")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    shapes = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        if tensor.name in shapes:  # [1, 2048]
            shape = numpy_helper.to_array(tensor).copy()
            shape[0] = -1
            tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))
    return model


def serve(name: str, model: Any, dynamic: dict[str, tuple[int, int]], calls: Iterator[Inputs]) -> dict[str, Any]:
    """Runs the calls through a recorded program and through eager. Raises ValueError when they differ."""
    start = perf_counter()
    program = capgraph.optimize(model, executor="graph", device="host", dynamic=dynamic)
    oracle = capgraph.optimize(model, executor="eager")
    seconds = {"set up": perf_counter() - start, "graph": 0.0, "eager": 0.0}
    worst = 0.0
    for inputs in calls:
        given = timed(seconds, "graph", lambda inputs=inputs: program.run(inputs))
        expected = timed(seconds, "eager", lambda inputs=inputs: oracle.run(inputs))
        worst = max(worst, *(distance(expected[key], given[key]) for key in expected))
    if not worst <= TOLERANCE:
        raise ValueError(f"{name}: a recorded program differs from eager by {worst:.3g}")
    counters = program.stats().counters
    print(program.explain(), file=sys.stderr)
    return {
        "model": name,
        "calls": counters.calls,
        "replayed": counters.replayed_calls,
        "captures": counters.captures,
        "waste %": round(100 * counters.waste, 1),
        "capture s": round(counters.capture_seconds, 2),
        "graph s": round(seconds["graph"], 2),
        "eager s": round(seconds["eager"], 2),
        "error": f"{worst:.1g}",
    }


def timed(seconds: dict[str, float], key: str, call: Callable[[], Any]) -> Any:
    start = perf_counter()
    result = call()
    seconds[key] += perf_counter() - start
    return result


def distance(expected: np.ndarray, given: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(expected - given).max() / np.abs(expected).max())


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve random batch sizes from recorded programs on the host.")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all rows there")
    options = parser.parse_args()
    random = np.random.default_rng(SEED)
    batch = {"batch": (1, LARGEST_BATCH)}
    bert = encoder(Size(layers=4, hidden=64, heads=4, inner=256, longest=32))
    rows = [
        serve("bert", bert, {**batch, "length": (LENGTH, LENGTH)}, bert_calls(random, options.calls)),
        serve("gpt2", gpt2(layers=4), batch, gpt2_calls(random, options.calls)),
    ]
    if options.images:
        images = {"batch": (1, LARGEST_IMAGES)}
        rows.append(serve("resnet50", dynamic_resnet(), images, resnet_calls(random, options.images)))
    print(Table(list(rows[0]), [list(row.values()) for row in rows]).text())
    if options.out:
        options.out.write_text(json_text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
