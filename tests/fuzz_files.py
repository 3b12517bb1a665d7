"""Fuzzing of damaged model files: each is read, optimized, run and written, or gives one clear error, soon.

    python -m tests.fuzz_files [--files N] [--seed N] [--processes N] [--seconds S]

The files are models of the ONNX backend suite with bytes or fields changed. What raises anything but a `CapgraphError`
for users, takes longer than `LIMIT_S` or more memory than `MOST_BYTES`, or ends its process, is printed with its seed;
the exit status is 1 when anything did.
"""

import argparse
import random
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache

import capgraph
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.inputs import gather_inputs
from capgraph.ir.errors import CapgraphError, InternalError
from onnx.backend.test.case.model import collect_testcases as model_cases
from onnx.backend.test.case.node import collect_testcases as node_cases

from tests.frontends.onnx.mutations import mutated_bytes, mutated_fields
from tests.supervision import Finished, run_tasks

LIMIT_S = 20.0
"""Of processor time; after four times as long, which a busy machine may make of it, the process is ended."""
MOST_BYTES = 2 << 30
"""What the data of a process may take, its packages counted in."""
CHUNK = 100
EXECUTORS = ("eager", "graph", "ort")
FINE = "fine"


@cache
def _models() -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building the cases divides by zero on purpose
        found = [*node_cases(None), *model_cases()]
    return [case.model.SerializeToString() for case in found if case.model is not None]


def damaged(seed: int) -> bytes:
    """The file of that seed."""
    draw = random.Random(seed)
    data = draw.choice(_models())
    if draw.random() < 0.4:
        return mutated_bytes(data, draw)
    import onnx

    return mutated_fields(onnx.ModelProto.FromString(data), draw).SerializeToString()


def outcome(data: bytes, seed: int) -> str:
    """`FINE`, the name of the error for users, or the traceback of any other."""
    executor = EXECUTORS[seed % len(EXECUTORS)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _used(data, executor, seed)
    except InternalError:
        return traceback.format_exc()
    except CapgraphError as error:
        return type(error).__name__
    except BaseException:  # noqa: BLE001  # that is what is looked for
        return traceback.format_exc()
    return FINE


def _used(data: bytes, executor: str, seed: int) -> None:
    program = capgraph.optimize(data, executor=executor)
    inputs = {name: given.value for name, given in gather_inputs(program.graph, {}, {}, seed=seed).items()}
    for _ in range(2):
        program.run(inputs)
    export_model(program.graph)


def tried(task: str, first: int) -> Iterator[str]:
    """The outcomes of a chunk of seeds from one on."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    for seed in range(int(task) + first, int(task) + CHUNK):
        data = damaged(seed)
        began = time.process_time()
        found = outcome(data, seed)
        spent = time.process_time() - began
        yield found if spent < LIMIT_S else f"took {spent:.0f} s of processor time"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fuzzing of damaged model files.")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args(argv)
    began = time.monotonic()
    tasks = [str(first) for first in range(options.seed, options.seed + options.files, CHUNK)]
    tally = Counter[str]()
    for step in run_tasks(tried, tasks, workers=options.processes, limit_s=4 * LIMIT_S):
        if isinstance(step, Finished) and time.monotonic() - began > options.seconds:
            break
        seed = int(step.task) + getattr(step, "index", 0)
        found = getattr(step, "lost", None) or getattr(step, "result", None)
        if found is None:
            continue
        is_known = "\n" not in found and (found == FINE or found in capgraph.__all__)
        tally[found if is_known else found.splitlines()[-1][:120]] += 1
        if not is_known:
            print(f"seed {seed} ({EXECUTORS[seed % len(EXECUTORS)]}): {found}", flush=True)
    faults = {kind: count for kind, count in tally.items() if kind != FINE and kind not in capgraph.__all__}
    print(f"{tally.total()} files: {dict(tally.most_common())}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
