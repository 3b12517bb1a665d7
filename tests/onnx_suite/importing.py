"""Runs the whole ONNX backend suite of the installed onnx against the importer and the reference evaluator.

    python -m tests.onnx_suite.importing --out build/conformance.json [-k PATTERN] [-j 2] [--round-trip]

The suite is onnx's own: its node cases are built in memory, the rest ships with the package. A case passes when every
output has the expected dtype and shape and lies within the suite's tolerance. It is native when no foreign operator was
needed. With `--round-trip` each model is exported, checked by onnx, and imported again before it runs.
"""

import argparse
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import traceback
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from capgraph.frontends.onnx.backend import CapgraphBackend, CapgraphBackendRep
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import ImportedModel, import_model
from capgraph.ir.graph import Graph
from onnx import ModelProto
from onnx.backend.test.runner import Runner

_RANDOM = "draws random numbers"
_GRADIENT = "differentiates the graph, which onnx has no implementation of"

SKIPPED: dict[str, str] = {
    "test_bernoulli_cpu": _RANDOM,
    "test_bernoulli_double_cpu": _RANDOM,
    "test_bernoulli_double_expanded_cpu": _RANDOM,
    "test_bernoulli_expanded_cpu": _RANDOM,
    "test_bernoulli_seed_cpu": _RANDOM,
    "test_bernoulli_seed_expanded_cpu": _RANDOM,
    "test_gradient_of_add_and_mul_cpu": _GRADIENT,
    "test_gradient_of_add_cpu": _GRADIENT,
    "test_loop16_seq_none_cpu": "the suite's comparison takes the length of a tensor of rank 0",
}
"""Cases that no implementation can be expected to pass, by name, with the reason."""

KNOWN_FAILURES: dict[str, str] = {
    "test_attention_4d_causal_fp16_expanded_cpu": "wants softmax rounded to f16 after every step, not once at the end",
}
"""Cases that fail for a reason that is understood and accepted. They count as failed, but do not fail the run."""


@dataclass(frozen=True)
class Case:
    """A test of the suite: its name, the kind it belongs to, and what runs it."""

    name: str
    kind: str
    run: Callable[..., None]


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `error` is the first line of the failure, or why it was skipped.

    `remarks` are those of whatever ran the model, if it has any.
    """

    name: str
    kind: str
    status: str
    operators: tuple[str, ...] = ()
    is_native: bool = False
    foreign: tuple[str, ...] = ()
    error: str = ""
    remarks: tuple[str, ...] = ()


class _Recorder(CapgraphBackend):
    """The backend, noting what it was last given."""

    round_trip = False
    made: Callable[[ImportedModel, ModelProto], CapgraphBackendRep] | None = None
    model: ModelProto | None = None
    graph: Graph | None = None
    rep: CapgraphBackendRep | None = None

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_options: Any) -> CapgraphBackendRep:
        _Recorder.model, _Recorder.graph, _Recorder.rep = model, None, None
        imported = import_model(model)
        if cls.round_trip:
            imported = import_model(export_model(imported.graph), freeze_initializers=False)
        _Recorder.graph = imported.graph
        _Recorder.rep = CapgraphBackendRep(imported) if _Recorder.made is None else _Recorder.made(imported, model)
        return _Recorder.rep


def run_models_by(made: Callable[[ImportedModel, ModelProto], CapgraphBackendRep] | None) -> None:
    """Lets `made` run the models of cases from now on, instead of the reference evaluator (None).

    Its remarks are those in the attribute `remarks` of what it makes.
    """
    _Recorder.made = staticmethod(made) if made is not None else None


def cases(pattern: str = "") -> list[Case]:
    """The CPU cases of the suite whose names contain the regular expression `pattern`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building the cases divides by zero on purpose
        suites = Runner(_Recorder, __name__).test_cases
    wanted = re.compile(pattern)
    return [
        Case(name, kind.removeprefix("OnnxBackend").removesuffix("ModelTest"), getattr(suite, name))
        for kind, suite in suites.items()
        for name in sorted(vars(suite))
        if name.startswith("test_") and name.endswith("_cpu") and wanted.search(name)
    ]


def run_case(case: Case) -> Outcome:
    """Runs one case; any exception is a failure."""
    if case.name in SKIPPED:
        return Outcome(case.name, case.kind, "skipped", error=SKIPPED[case.name])
    _Recorder.model = _Recorder.graph = _Recorder.rep = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the suite's, such as a comparison of NaN
            case.run(unittest.TestCase())
    except unittest.SkipTest as skip:
        return Outcome(case.name, case.kind, "skipped", error=str(skip))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this case's failure and the suite goes on
        return _outcome(case, "failed", _first_line(error))
    return _outcome(case, "passed", "")


def _outcome(case: Case, status: str, error: str) -> Outcome:
    operators = tuple(dict.fromkeys(node.op_type for node in _Recorder.model.graph.node)) if _Recorder.model else ()
    foreign = foreign_operators(_Recorder.graph) if _Recorder.graph is not None else ()
    native = _Recorder.graph is not None and not foreign
    remarks = tuple(getattr(_Recorder.rep, "remarks", ()))
    return Outcome(case.name, case.kind, status, operators, native, foreign, error, remarks)


def foreign_operators(graph: Graph) -> tuple[str, ...]:
    """The names of the foreign ops in the graph and its regions, each once."""
    return tuple(dict.fromkeys(_foreign(graph)))


def _foreign(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        if node.op.is_foreign:
            yield node.op.name
        for region in node.regions.values():
            yield from _foreign(region)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " | ".join(lines[:3]) if lines else ""
    return f"{type(error).__name__}: {text} [{Path(place.filename).name}:{place.lineno}]"


# ---- the whole suite

_cases: list[Case] = []


def _run_indexed(index: int) -> Outcome:
    return run_case(_cases[index])


def run_suite(pattern: str, jobs: int, progress: Callable[[Outcome, int, int], None]) -> list[Outcome]:
    """The outcomes of all cases, in `jobs` processes (1: in this).

    `progress` hears each as it comes, and how many of how many are done.
    """
    _cases[:] = cases(pattern)
    outcomes: list[Outcome] = []
    for outcome in _run_here() if jobs == 1 else _run_in_workers(jobs):
        outcomes.append(outcome)
        progress(outcome, len(outcomes), len(_cases))
    return sorted(outcomes, key=lambda outcome: (outcome.kind, outcome.name))


def _run_here() -> Iterator[Outcome]:
    return map(run_case, _cases)


def _run_in_workers(jobs: int) -> Iterator[Outcome]:
    """The cases hold functions and models that do not travel between processes, so the workers inherit them.

    What has threads, such as a session of ONNX Runtime, must not be at work in this process then.
    """
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(_run_indexed, range(len(_cases)))


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts, and the failures grouped by operator."""
    by_operator: dict[str, list[dict[str, str]]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.status == "failed":
            operator = outcome.operators[0] if len(outcome.operators) == 1 else "+".join(outcome.operators[:3])
            by_operator[operator or "unknown"].append({"name": outcome.name, "error": outcome.error})
    counted = Counter(outcome.status for outcome in outcomes)
    return {
        "passed": counted["passed"],
        "failed": counted["failed"],
        "skipped": counted["skipped"],
        "native": sum(outcome.is_native for outcome in outcomes if outcome.status == "passed"),
        "failures": dict(sorted(by_operator.items(), key=lambda item: (-len(item[1]), item[0]))),
        "foreign": dict(Counter(name for outcome in outcomes for name in outcome.foreign).most_common()),
        "cases": [asdict(outcome) for outcome in outcomes],
    }


def surprises(outcomes: Sequence[Outcome]) -> list[str]:
    """The cases that failed unexpectedly or passed against expectation."""
    return [o.name for o in outcomes if o.status != "skipped" and (o.status == "failed") != (o.name in KNOWN_FAILURES)]


def table(outcomes: Sequence[Outcome]) -> str:
    """Counts for each kind of case, aligned."""
    rows: list[tuple[str, ...]] = [("kind", "passed", "native", "failed", "skipped")]
    kinds = list(dict.fromkeys(outcome.kind for outcome in outcomes))
    for kind in [*kinds, "all"]:
        chosen = [outcome for outcome in outcomes if kind in ("all", outcome.kind)]
        counted = Counter(outcome.status for outcome in chosen)
        native = sum(outcome.is_native for outcome in chosen if outcome.status == "passed")
        rows.append((kind, *map(str, (counted["passed"], native, counted["failed"], counted["skipped"]))))
    return "\n".join(f"{row[0]:<18}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows)


def _progress(_outcome: Outcome, done: int, total: int) -> None:
    if done % 50 == 0 or done == total:
        sys.stderr.write(f"\r{done}/{total}" + ("\n" if done == total else ""))
        sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives 1 when a case failed that is not known to fail, or one that is known to fail passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_suite.importing", description=__doc__)
    parser.add_argument("--out", type=Path, help="write counts and failures as JSON")
    parser.add_argument("-k", dest="pattern", default="", help="run only cases whose names match")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--round-trip", action="store_true", help="export and import each model before it runs")
    options = parser.parse_args(arguments)
    _Recorder.round_trip = options.round_trip
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        os.environ["ONNX_HOME"] = home  # where the suite writes the data of its light models
        outcomes = run_suite(options.pattern, options.jobs, _progress)
    found = summary(outcomes)
    for operator, failures in found["failures"].items():
        sys.stdout.write(f"{operator}: {len(failures)}\n  {failures[0]['name']}: {failures[0]['error'][:300]}\n")
    sys.stdout.write(f"\n{table(outcomes)}\n{time.perf_counter() - started:.1f} s\n")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    unexpected = surprises(outcomes)
    for name in unexpected:
        sys.stdout.write(f"not as expected: {name}\n")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
