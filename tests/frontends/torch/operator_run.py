"""All of PyTorch's own samples of its operators through torch.compile: `make test-ops`.

Each is imported as it is traced for a GPU too, in f32, f16 and bf16.

    python -m tests.frontends.torch.operator_run                      # what no earlier run has finished
    python -m tests.frontends.torch.operator_run --write              # and writes docs/reference/torch-operators.md
    python -m tests.frontends.torch.operator_run "max (binary)" add   # these alone, and anew
    python -m tests.frontends.torch.operator_run --layouts eager      # arguments that lie otherwise, by an executor

Each operator that is done is kept in a journal at once, and the next run goes on from there as long as the sources and
PyTorch are the same. With `--keep` it goes on after changes too, and tries what has failed again. Samples run in worker
processes: one that crashes or hangs is a failure, and the others go on. The exit status is 1 when any sample failed.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from capgraph.executors.progress import Progress

from tests.frontends.torch.layouts import layout_outcomes
from tests.frontends.torch.operator_samples import (
    check,
    check_on_cuda,
    is_traced_on_cuda,
    operators,
    prepare,
    samples,
)
from tests.frontends.torch.operator_table import PAGE, UNCLAIMED, Row, claimed, page
from tests.supervision import Finished, Step, Work, run_tasks

ROOT = Path(__file__).parents[3]
SOURCES = ("api", "ir", "passes", "executors", "frontends", "tests/frontends/torch")
_SAYS_EVERY_S = 60.0
"""How often a run says where it is when there is no terminal."""


@dataclass
class Record:
    """What the samples of one operator gave: how many by kind, what ran in PyTorch, and failures by sample."""

    name: str
    kinds: dict[str, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.kinds.values()) + len(self.failures)

    def add(self, step: Step) -> None:
        """Adds a sample: `step.result` is a kind and what ran in PyTorch, or the text of an error."""
        if step.lost is not None or isinstance(step.result, str):
            self.failures.append((step.index, step.lost or step.result))
            return
        kind, foreign = step.result
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.foreign = sorted({*self.foreign, *foreign})

    def row(self) -> Row:
        return Row(self.name, self.kinds.get("native", 0), self.total, tuple(self.foreign))


# ---- in the workers


def outcomes(name: str, first: int) -> Iterator[Any]:
    """The samples of an operator from the one with index `first` on, each checked."""
    prepare()
    for index, sample in enumerate(samples(name)):
        if index >= first:
            yield _outcome(name, sample)


DTYPES_ON_CUDA = (torch.float32, torch.float16, torch.bfloat16)


def _outcome(name: str, sample: Any) -> Any:
    try:
        outcome = check(sample)
        for dtype in DTYPES_ON_CUDA if is_traced_on_cuda(name) else ():
            check_on_cuda(sample, dtype, is_native=False)
    except Exception as error:  # noqa: BLE001  # every failure is listed
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        return f"{type(error).__name__}: {' '.join(lines)[:400]}"
    return outcome.kind, outcome.foreign


# ---- the journal


class Journal:
    """A file with a line for each operator that is done, after one that says of which sources."""

    def __init__(self, path: Path, *, keeps: bool) -> None:
        self._path = path
        self.records: dict[str, Record] = {}
        head = {"torch": torch.__version__, "sources": _digest()}
        lines = path.read_text().splitlines() if path.exists() else []
        if lines and (keeps or json.loads(lines[0]) == head):
            self.records = {each.name: each for each in (Record(**json.loads(line)) for line in lines[1:])}
        if keeps:
            self.records = {name: each for name, each in self.records.items() if not each.failures}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (head, *map(asdict, self.records.values()))))

    def add(self, record: Record) -> None:
        self.records[record.name] = record
        with self._path.open("a") as file:
            file.write(f"{json.dumps(asdict(record))}\n")


def _digest() -> str:
    files = sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    text = b"".join(str(path.relative_to(ROOT)).encode() + path.read_bytes() for path in files)
    return hashlib.sha256(text).hexdigest()


# ---- the run


class _Display:
    """How far a run is, on one line of a terminal, or a line a minute elsewhere. The estimate counts samples."""

    def __init__(self, names: Sequence[str]) -> None:
        known = claimed()
        self._expected = {name: known[name][1] if name in known else 1 for name in names}
        self._done: Counter[str] = Counter()
        self._samples = self._finished = 0
        self._start = self._said = time.monotonic()
        self._progress = Progress("Operators")
        self._is_terminal = sys.stderr.isatty()

    def add(self, event: Step | Finished, failures: int) -> None:
        if isinstance(event, Finished):
            self._finished += 1
            self._done[event.task] = self._expected[event.task]
        else:
            self._samples += 1
            self._done[event.task] = min(self._done[event.task] + 1, self._expected[event.task])
        now = time.monotonic()
        if now - self._said < (0.2 if self._is_terminal else _SAYS_EVERY_S):
            return
        self._said = now
        text = f"{self._finished} of {len(self._expected)} operators, {self._samples} samples, {failures} failures"
        text += f", about {self._left_s(now) / 60:.0f} min left: {event.task}"
        if self._is_terminal:
            self._progress.advance(text)
        else:
            print(text, flush=True)

    def _left_s(self, now: float) -> float:
        done = self._done.total()
        return (now - self._start) / max(done, 1) * (sum(self._expected.values()) - done)


def run(names: Sequence[str], journal: Journal, *, workers: int, limit_s: float, work: Work = outcomes) -> None:
    """Checks all samples of the operators of `names`, and notes each operator in the journal when it is done."""
    records = {name: Record(name) for name in names}
    begun: dict[str, float] = {}
    display = _Display(names)
    for event in run_tasks(work, names, workers=workers, limit_s=limit_s):
        record = records[event.task]
        begun.setdefault(event.task, time.monotonic())
        if isinstance(event, Step):
            record.add(event)
        else:
            record.seconds = round(time.monotonic() - begun[event.task], 2)
            journal.add(record)
            _say_failures(record)
        display.add(event, sum(len(each.failures) for each in records.values()))


def _say_failures(record: Record) -> None:
    for index, text in record.failures[:3]:
        print(f"{record.name}, sample {index}: {text}", flush=True)
    if len(record.failures) > 3:
        print(f"{record.name}: {len(record.failures)} of {record.total} samples failed", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments().parse_args(argv)
    wanted = [name for name in operators() if name not in UNCLAIMED]
    unknown = [name for name in options.names if name not in operators()]
    if unknown:
        print(f"PyTorch has no samples of an operator {unknown[0]!r}", file=sys.stderr)
        return 2
    work = partial(layout_outcomes, executor=options.layouts) if options.layouts else outcomes
    default = f"operator-layouts-{options.layouts}.jsonl" if options.layouts else "operator-samples.jsonl"
    journal = Journal(options.journal or ROOT / "build" / default, keeps=options.keep)
    names = options.names or [name for name in wanted if name not in journal.records]
    try:
        run(names, journal, workers=options.workers, limit_s=options.limit, work=work)
    except KeyboardInterrupt:
        print(f"\n{len(journal.records)} of {len(wanted)} operators are done; the next run goes on from there")
        return 130
    missing = [name for name in wanted if name not in journal.records]
    has_failed = _say_end([journal.records[name] for name in wanted if name in journal.records])
    if options.write and not options.layouts and not has_failed and not missing:
        rows = [journal.records[name].row() for name in wanted]
        PAGE.write_text(page([row for row in rows if row.total], UNCLAIMED | _empty(rows)))
    return 1 if has_failed else 0


def _empty(rows: Sequence[Row]) -> dict[str, str]:
    """Operators that nothing can be said of."""
    return {row.name: "no sample is one of dense tensors on the CPU" for row in rows if not row.total}


def _say_end(records: Sequence[Record]) -> bool:
    """Says what the samples gave, and whether any failed."""
    failed = [record for record in records if record.failures]
    fate = f"{len(failed)} operators failed" if failed else "all equal to eager PyTorch"
    ran = [record.total for record in records if record.total]
    print(f"{sum(ran)} samples of {len(ran)} operators: {fate}")
    for record in failed:
        _say_failures(record)
    return bool(failed)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="operators, run anew (default: all that are not in the journal)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="seconds for one sample (120)")
    parser.add_argument("--layouts", metavar="EXECUTOR", help="arguments in other layouts, nothing for a GPU")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="default: build/operator-samples.jsonl")
    parser.add_argument("--keep", action="store_true", help="keep what other sources gave, and try failures again")
    parser.add_argument("--write", action="store_true", help="write the page when nothing failed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
