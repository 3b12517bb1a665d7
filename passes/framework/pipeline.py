"""Pipelines: which passes run in which order, and what is checked after each.

A pipeline edits one clone of the graph and commits it at the end, so a failure leaves the caller's graph untouched. Its
stages run in order; a stage repeats its passes until none changes anything. One hook after every pass verifies, times,
dumps, and with `verify="numeric"` evaluates the graph before and after on drawn inputs and names the guilty pass.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ...ir.errors import CapgraphError, InputError, InternalError, MiscompiledError, ResourceError, UnsupportedError
from ...ir.graph import Graph, Node
from ...ir.op import Trait
from ...ir.random_state import seeded
from ...ir.text.printer import print_graph
from ...ir.verify import Judged, verify
from .base import Pass
from .exactness import Exactness
from .faults import FAULTS, fault
from .numeric import CallChange, Samples
from .rewriter import Rewrite, Rewriter

MAX_ROUNDS = 32
"""A stage that changes the graph this many rounds in a row, and never to fewer nodes than ever before, has no end.

Rounds that do reach fewer nodes come to an end by themselves: long chains, each link decided by the one before, may
take as many as they have links.
"""

UNJUDGED = "on the drawn inputs all of it is inf, NaN or hangs on an overflow, or its shape hangs on a rounding"

CHECKS = ("none", "structure", "numeric")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PassReport:
    """One run of one pass: wall time in seconds, nodes (regions included) before and after, rewrites by rule."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int
    changed: bool
    rewrites: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True)
class PassTotal:
    """All runs of one pass: how many, wall time in seconds, rewrites, and by how much they changed the nodes."""

    name: str
    runs: int
    seconds: float
    rewrites: int
    nodes: int


@dataclass
class PipelineReport:
    """All runs of all passes, in order, without the one that `failed`, if any did, on `samples` where it is checked so.

    `pipeline` is its text form, `calls` are the changes of how the graph is called, in order, and `notes` what was not
    checked.
    """

    runs: list[PassReport] = field(default_factory=list[PassReport])
    failed: Pass | None = None
    samples: Samples | None = None
    calls: list[CallChange] = field(default_factory=list[CallChange])
    notes: list[str] = field(default_factory=list[str])
    pipeline: str = ""

    @property
    def changed(self) -> bool:
        return any(run.changed for run in self.runs)

    @property
    def seconds(self) -> float:
        return sum(run.seconds for run in self.runs)

    @property
    def rewrites(self) -> int:
        return sum(run.rewrites.total() for run in self.runs)

    def totals(self) -> list[PassTotal]:
        """One entry per pass, in order of their first runs."""
        by_name: dict[str, list[PassReport]] = {}
        for run in self.runs:
            by_name.setdefault(run.name, []).append(run)
        return [
            PassTotal(
                name,
                len(runs),
                sum(run.seconds for run in runs),
                sum(run.rewrites.total() for run in runs),
                sum(run.nodes_after - run.nodes_before for run in runs),
            )
            for name, runs in by_name.items()
        ]


@dataclass(frozen=True)
class Pipeline:
    """Stages of passes. Textual form: `"cse,fold-constants{limit=64};fuse"`, a semicolon between stages."""

    stages: tuple[tuple[Pass, ...], ...]

    def __str__(self) -> str:
        return ";".join(",".join(map(str, stage)) for stage in self.stages)

    @property
    def passes(self) -> Iterator[Pass]:
        """Every pass, in order."""
        for stage in self.stages:
            yield from stage

    def without(self, names: Sequence[str]) -> "Pipeline":
        """The same pipeline with the passes of these names left out. Raises `UnsupportedError` for an unknown name."""
        known = {each.name for each in self.passes}
        for name in names:
            if name not in known:
                raise UnsupportedError(
                    f"the pipeline has no pass {name}", remedy=f"its passes: {', '.join(sorted(known))}"
                )
        kept = (tuple(each for each in stage if each.name not in names) for stage in self.stages)
        return Pipeline(tuple(stage for stage in kept if stage))

    def run(
        self,
        graph: Graph,
        *,
        check: str = "structure",
        samples: Samples | None = None,
        dump: Path | None = None,
        budget: int | None = None,
        progress: Progress | None = None,
        report: PipelineReport | None = None,
    ) -> PipelineReport:
        """Rewrites `graph` in place, or leaves it as it was when anything fails.

        `check` is one of `CHECKS`; `samples` are the inputs for numeric checking (drawn when None). `dump` names a
        folder for the text form before and after every pass that changed something. `budget` bounds the rewrites. A
        given `report` is filled in, and so tells of a failure what came before. Raises `InternalError` naming the pass
        when a pass breaks its contract, `ResourceError` when a dump cannot be written.
        """
        work, report = self.applied(
            graph, check=check, samples=samples, dump=dump, budget=budget, progress=progress, report=report
        )
        if report.changed:
            graph.adopt(work)
        return report

    def applied(
        self,
        graph: Graph,
        *,
        check: str = "structure",
        samples: Samples | None = None,
        dump: Path | None = None,
        budget: int | None = None,
        progress: Progress | None = None,
        report: PipelineReport | None = None,
    ) -> tuple[Graph, PipelineReport]:
        """What `run` makes of `graph`, which stays as it is."""
        if check not in CHECKS:
            raise UnsupportedError(f"check={check!r} is not known", remedy=f"one of {', '.join(CHECKS)}")
        work = graph.clone()
        with seeded(work) if check == "numeric" else nullcontext():
            run = _Run(work, check, samples, dump, budget, progress, report or PipelineReport())
            for stage in self.stages:
                run.stage(stage)
        run.report.pipeline = str(self)
        return work, run.report


class _Run:
    """One run of a pipeline over its clone."""

    def __init__(
        self,
        graph: Graph,
        check: str,
        samples: Samples | None,
        dump: Path | None,
        budget: int | None,
        progress: Progress | None,
        report: PipelineReport,
    ) -> None:
        self.graph = graph
        self.check = check
        self.dump = dump
        self.budget = budget
        self.progress = progress
        self.report = report
        self._nodes = _count(graph)
        self._changes = 0
        self._found_nothing: dict[Pass, int] = {}
        self._has_run: set[Pass] = set()
        self._judged: Judged = {}
        self.samples = samples
        if check == "numeric" and samples is None:
            self.samples = Samples.drawn(graph)

    def stage(self, stage: Sequence[Pass]) -> None:
        fewest, rounds = self._nodes, 0
        while rounds < MAX_ROUNDS:
            changed = [self._run_if_due(each) for each in stage]
            if True not in changed:
                return
            nodes = self._nodes
            fewest, rounds = (nodes, 0) if nodes < fewest else (fewest, rounds + 1)
        names = ", ".join(each.name for each in stage)
        raise InternalError(
            f"passes {names} still change the graph after {MAX_ROUNDS} rounds that made it no smaller",
            remedy="run them alone",
        )

    def _run_if_due(self, each: Pass) -> bool:
        """Runs a pass unless it found nothing the last time and no other has changed anything since, or runs once."""
        if self._found_nothing.get(each) == self._changes or (each.runs_once and each in self._has_run):
            return False
        self._has_run.add(each)
        changed = self.run_pass(each)
        if changed:
            self._changes += 1
        else:
            self._found_nothing[each] = self._changes
        return changed

    def run_pass(self, each: Pass) -> bool:
        if self.progress is not None:
            self.progress(each.name)
        self.report.failed, self.report.samples = each, self.samples
        text = print_graph(self.graph) if self.dump else ""
        before = self.graph.clone() if self.samples is not None and each.changes_calls else self.graph
        nodes = self._nodes
        start = time.perf_counter()
        run = PassRun(each, None if self.budget is None else self.budget - self.report.rewrites)
        run.on(self.graph)
        seconds = time.perf_counter() - start
        self.report.calls += [] if run.calls is None else [run.calls]
        if run.changed:
            self._nodes = _count(self.graph)
            self._dump(each, text)
        if run.changed or (run.calls is not None and self.samples is not None):
            self._check(each, run.calls, before)
        self.report.runs.append(PassReport(each.name, seconds, nodes, self._nodes, run.changed, run.rewrites))
        self.report.failed = self.report.samples = None
        return run.changed

    def _check(self, each: Pass, calls: CallChange | None, before: Graph) -> None:
        if self.check == "none":
            return
        try:
            verify(self.graph, self._judged)
        except CapgraphError as error:
            raise MiscompiledError(f"pass {each.name} broke the graph: {error.message}", where=error.where) from error
        if self.check == "numeric" and self.samples is not None:
            samples = self.samples.called(calls, before)
            difference, self.samples = samples.compared(self.graph, each.exactness)
            if difference:
                raise MiscompiledError(f"pass {each.name} changed what the graph means: {difference}")
            if each.exactness is not Exactness.EXACT:
                self._note_unjudged(self.samples)

    def _note_unjudged(self, samples: Samples) -> None:
        for index in samples.unjudged:
            note = f"output {self.graph.output_names[index]} is not checked after passes that round: {UNJUDGED}"
            if note not in self.report.notes:
                self.report.notes.append(note)

    def _dump(self, each: Pass, before: str) -> None:
        if self.dump is None:
            return
        stem = f"{len(self.report.runs) + 1:03}-{each.name}"
        after = print_graph(self.graph)
        try:
            self.dump.mkdir(parents=True, exist_ok=True)
            (self.dump / f"{stem}-before.txt").write_text(before)
            (self.dump / f"{stem}-after.txt").write_text(after)
        except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
            raise ResourceError(
                f"the dump of pass {each.name} cannot be written: {error}",
                where=str(self.dump),
                remedy="name a folder that can be made and written",
            ) from error


class PassRun:
    """One run of a pass over a graph and its regions, with at most `budget` rewrites.

    `rewrites`, `changed`, `calls` and `last`, the last rewrite that was begun, can be read also after a failure. A
    rewrite inside a region is said to be one of the results of the node of the graph that owns the region.
    """

    def __init__(self, each: Pass, budget: int | None = None) -> None:
        self.rewrites: Counter[str] = Counter()
        self.changed = False
        self.last: Rewrite | None = None
        self.calls: CallChange | None = None
        self._pass = each
        self._budget = budget

    def on(self, graph: Graph) -> None:
        """Runs the pass. Raises `InternalError` naming pass and node when it fails."""
        for region, owner in self._regions(graph):
            left = None if self._budget is None else self._budget - self.rewrites.total()
            rewriter = Rewriter(region, budget=left)
            try:
                with np.errstate(all="ignore"):  # infinities and NaN are results like any other, also of folding
                    self._pass.run(region, rewriter)
            except self._pass.refusals:
                raise
            except FAULTS as error:
                began = rewriter.last.node if rewriter.last is not None else None
                raise fault(f"pass {self._pass.name}", error, began) from error
            finally:
                self._note(rewriter, owner)

    def _regions(self, graph: Graph) -> list[tuple[Graph, Node | None]]:
        if self._pass.runs_once:
            return [(graph, None)]
        return innermost_first(graph, enters_fused=self._pass.enters_fused)

    def _note(self, rewriter: Rewriter, owner: Node | None) -> None:
        self.rewrites += rewriter.rewrites
        self.calls = rewriter.calls or self.calls
        self.changed = self.changed or rewriter.changed
        if rewriter.last is not None:
            results = tuple(value.name for value in owner.outputs) if owner is not None else rewriter.last.results
            self.last = replace(rewriter.last, results=results)


def innermost_first(graph: Graph, *, enters_fused: bool = True) -> list[tuple[Graph, Node | None]]:
    """The regions of `graph`, those inside before those around them, each with the node of `graph` that it belongs to.

    `graph` itself comes last, with None. Bodies of fused nodes, which are not control flow, may be left out.
    """
    found: list[tuple[Graph, Node | None]] = [(graph, None)]
    for body, owner in found:  # grows while it is read
        for node in body.nodes:
            if node.op.bound_attrs and (enters_fused or node.op.has(Trait.CONTROL_FLOW)):
                found += [(region, owner or node) for region in node.regions.values()]
    return found[::-1]


def _count(graph: Graph) -> int:
    return sum(len(each) for each, _ in innermost_first(graph))


_NEGATIVE = re.compile(r"-\d.*")
_RENAMED = {"merge-products": "merge-matmuls", "product-forms": "matmul-forms"}
"""Passes by the names that they had."""

_PASS = re.compile(r"\s*(?P<name>[a-z0-9-]+)\s*(?:\{(?P<options>[^}]*)\})?\s*")


def parse_pipeline(text: str, known: dict[str, type[Pass]]) -> Pipeline:
    """The pipeline that `text` describes; empty text is the one without passes.

    Raises `UnsupportedError` for an unknown pass or option, `InputError` for a pass without a name, an option that is
    given twice and one that is negative, for they all bound something.
    """
    stages = tuple(tuple(_parse_stage(stage, known)) for stage in text.split(";") if stage.strip())
    return Pipeline(stages)


def _parse_stage(text: str, known: dict[str, type[Pass]]) -> Iterator[Pass]:
    position = 0
    while True:
        if not text[position:].partition(",")[0].strip():
            raise InputError(f"a pass without a name in the pipeline {text!r}", remedy="leave the comma out")
        found = _PASS.match(text, position)
        if found is None:
            raise UnsupportedError(
                f"cannot read the pipeline at {text[position:]!r}", remedy="write pass,pass{option=value}"
            )
        name = found["name"]
        if name not in known:
            remedy = f"it is called {_RENAMED[name]}" if name in _RENAMED else f"the passes: {', '.join(sorted(known))}"
            raise UnsupportedError(f"there is no pass {name}", remedy=remedy)
        yield known[name].from_options(_parse_options(name, found["options"] or ""))
        position = found.end()
        if position == len(text):
            return
        if text[position] != ",":
            raise UnsupportedError(f"expected a comma at {text[position:]!r}", remedy="write pass,pass{option=value}")
        position += 1


def _parse_options(name: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(","):
        option, _, value = map(str.strip, part.partition("="))
        if option in options:
            raise InputError(f"option {option} of pass {name} is given twice", remedy="leave one of them out")
        if _NEGATIVE.fullmatch(value):
            raise InputError(f"option {option}={value} of pass {name} is negative", remedy="a number of at least 0")
        if part.strip():
            options[option] = value
    return options
