"""Runs the ONNX backend suite of the installed onnx through executors: one report.

    python -m tests.onnx_suite.executing --executor eager,graph,ort [--device host] [--out FILE] [-k PATTERN] [-j 2]

A failure is ONNX Runtime's where one of its sessions ran, gave wrong numbers, and does so as well by itself, on the
model as it came. Every other is ours: where ONNX Runtime refuses a model, the numbers are ours. Cases in which a part
of the model ran eagerly are counted.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from capgraph.cli.commands.arguments import DEFAULT_LEVEL, LEVELS
from capgraph.executors.backends import choose_executor
from capgraph.executors.base import Request, check_device
from capgraph.executors.ort.executor import WHOLE
from capgraph.executors.ort.library import failures, onnxruntime
from capgraph.frontends.onnx.backend import CapgraphBackendRep
from capgraph.frontends.onnx.importing.importer import ImportedModel
from capgraph.ir.errors import ExecutionError, UnsupportedError
from capgraph.optimization import optimize
from onnx import ModelProto

from tests.onnx_suite.importing import Case, Outcome, cases, run_case, run_models_by, run_suite, table

KNOWN_FAULTS = {
    "test_attention_4d_causal_fp16_expanded_cpu": "wants softmax rounded to f16 after every step, not once at the end, "
    "which ONNX Runtime does not do either where the model says it as one operator",
}
"""Cases that fail, and in ONNX Runtime alone do not, for a reason that is understood and accepted."""

_SESSIONS = re.compile(r"([\d,]+) sessions?\b")
"""How a program in segments begins to count them in its remarks."""


@dataclass(frozen=True)
class Way:
    """How models run: by an executor, after the passes of a level, on a device."""

    executor: str
    level: int
    device: str = "host"

    def __call__(self, imported: ImportedModel, _model: ModelProto) -> CapgraphBackendRep:
        return ProgramRep(imported, self)


class ProgramRep(CapgraphBackendRep):
    """An imported model as a program. One that records is called twice: results are those of a replay."""

    def __init__(self, imported: ImportedModel, way: Way) -> None:
        super().__init__(imported)
        self._program = optimize(imported.graph, executor=way.executor, level=way.level, device=way.device)
        self._calls = 2 if self._program.target.captures else 1

    @property
    def remarks(self) -> tuple[str, ...]:
        return self._program.remarks

    def evaluate(self, values: list[Any]) -> Sequence[Any]:
        names = [value.name for value in self.imported.graph.inputs]
        given = dict(zip(names, values, strict=True))
        return [list(self._program.run(given).values()) for _ in range(self._calls)][-1]


class PlainRep(CapgraphBackendRep):
    """A model as it came, in a session of ONNX Runtime."""

    def __init__(self, imported: ImportedModel, model: ModelProto) -> None:
        super().__init__(imported)
        options = onnxruntime().SessionOptions()
        options.log_severity_level = 4
        try:
            self._session = onnxruntime().InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except failures() as error:
            raise UnsupportedError(str(error)) from error

    def evaluate(self, values: list[Any]) -> Sequence[Any]:
        wanted = {value.name for value in self._session.get_inputs()}
        names = [value.name for value in self.imported.graph.inputs]
        feeds = {name: value for name, value in zip(names, values, strict=True) if name in wanted}
        try:
            results: list[Any] = self._session.run(None, feeds)
        except failures() as error:
            raise ExecutionError(str(error)) from error
        return results


def faults(outcomes: Sequence[Outcome], found: Sequence[Case]) -> list[Outcome]:
    """The failures that are not ONNX Runtime's own wrong numbers."""
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    excusable = {outcome.name for outcome in failed if _is_wrong(outcome) and _kind(outcome) in ("whole", "segments")}
    run_models_by(PlainRep)
    again = [run_case(case) for case in found if case.name in excusable]
    theirs = {outcome.name for outcome in again if _is_wrong(outcome)}
    return [outcome for outcome in failed if outcome.name not in theirs]


def _is_wrong(outcome: Outcome) -> bool:
    """Whether a case ran and gave other results than the suite wants, which its assertions say."""
    return outcome.status == "failed" and outcome.error.startswith(AssertionError.__name__)


def segment_counts(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many of the cases that passed in ONNX Runtime did so as a whole, in segments, and without any session.

    Empty for other executors.
    """
    kinds = Counter(_kind(outcome) for outcome in outcomes if outcome.status == "passed")
    del kinds[""]
    return kinds


def _kind(outcome: Outcome) -> str:
    """How ONNX Runtime ran a case: "whole", in "segments", or "eager", by NumPy alone; empty where it was not asked."""
    if WHOLE in outcome.remarks:
        return "whole"
    counts = [count[1] for remark in outcome.remarks if (count := _SESSIONS.match(remark))]
    if not counts:
        return ""
    return "eager" if counts == ["0"] else "segments"


def on_device(outcomes: Sequence[Outcome]) -> int:
    """How many of the cases that passed had no step on the host; of programs on a GPU."""
    passed = [outcome.remarks for outcome in outcomes if outcome.status == "passed"]
    return sum(not any(remark.startswith("runs on the host:") for remark in remarks) for remarks in passed)


@dataclass(frozen=True)
class Finding:
    """What the suite gave in one executor; `ours` are the failures that are not ONNX Runtime's own wrong numbers."""

    outcomes: list[Outcome]
    ours: list[Outcome]

    @property
    def is_surprising(self) -> bool:
        """Whether a failure is ours and not a known one."""
        return any(outcome.name not in KNOWN_FAULTS for outcome in self.ours)


def report(found: Mapping[str, Finding], device: str = "host") -> str:
    """A line for each failure, and a table for each executor."""
    lines: list[str] = []
    for executor, finding in found.items():
        for outcome in finding.outcomes:
            if outcome.status == "failed":
                whose = "ours" if outcome in finding.ours else "ONNX Runtime's too"
                lines.append(f"{executor}: {outcome.name} ({whose}): {outcome.error[:300]}")
    for executor, finding in found.items():
        lines += ["", f"{executor}:", table(finding.outcomes)]
        counts = segment_counts(finding.outcomes).most_common()
        if counts:
            lines.append(f"passed: {', '.join(f'{count} {kind}' for kind, count in counts)}")
        if device != "host":
            lines.append(f"passed: {on_device(finding.outcomes)} without a step on the host")
    return "\n".join(lines)


def run(executors: Sequence[str], level: int, pattern: str, jobs: int, device: str = "host") -> dict[str, Finding]:
    """The suite in each of `executors`, and whose the failures are."""
    outcomes: dict[str, list[Outcome]] = {}
    try:
        for executor in executors:  # all of them first: processes must not be forked where sessions have been
            run_models_by(Way(executor, level, device))
            outcomes[executor] = run_suite(pattern, jobs, _progress)
        chosen = cases(pattern)
        return {executor: Finding(found, faults(found, chosen)) for executor, found in outcomes.items()}
    finally:
        run_models_by(None)


def _progress(outcome: Outcome, done: int, total: int) -> None:
    """Failures as they come: a run on a GPU takes minutes, and may be cut short."""
    if outcome.status == "failed":
        sys.stderr.write(f"{outcome.name}: {' '.join(outcome.error.split())[:200]}\n")
    if done % 100 == 0 or done == total:
        sys.stderr.write(f"{done}/{total}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives 1 when a failure is ours and not a known one."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_suite.executing", description=__doc__)
    parser.add_argument("--executor", default="ort", help="what runs the models, separated by commas (default ort)")
    parser.add_argument("--device", default="host", help="where they run: host (default) or cuda")
    parser.add_argument("--level", type=int, choices=LEVELS, default=DEFAULT_LEVEL, help="of passes (default 2)")
    parser.add_argument("--out", type=Path, help="write the outcome of every case as JSON, by executor")
    parser.add_argument("-k", dest="pattern", default="", help="run only cases whose names match")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="number of processes")
    options = parser.parse_args(arguments)
    executors = options.executor.split(",")
    try:
        check_device(options.device)
        for name in executors if options.device == "host" else ():  # a GPU is opened by the processes that use it
            choose_executor(name, Request(device=options.device))
    except UnsupportedError as error:
        parser.error(str(error))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        os.environ["ONNX_HOME"] = home  # where the suite writes the data of its light models
        found = run(executors, options.level, options.pattern, options.jobs, options.device)
    sys.stdout.write(f"{report(found, options.device)}\n{time.perf_counter() - started:.1f} s\n")
    if options.out:
        content = {executor: [asdict(outcome) for outcome in finding.outcomes] for executor, finding in found.items()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    return int(any(finding.is_surprising for finding in found.values()))


if __name__ == "__main__":
    sys.exit(main())
