"""Bisect: find the pass, then the single rewrite, that changed what a model means, and a small graph that shows it.

Pipelines are deterministic and can be stopped after any number of rewrites, so the first wrong number lies between two
budgets: one rewrite apart, the graph before is right and the graph after is wrong. Around that rewrite the smallest
cone of nodes is cut out on which the same pass still goes wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.errors import CapgraphError, InternalError
from ..ir.evaluate import evaluate_graph
from ..ir.extract import cone_boundary, extract
from ..ir.graph import Graph, Value
from .base import Pass
from .numeric import Samples
from .pipeline import Pipeline, PipelineReport
from .rewriter import Rewrite

MAX_DEPTH = 64
"""How many nodes back from the rewrite the search for a small graph goes before it settles for the whole one."""


@dataclass(frozen=True)
class Culprit:
    """The rewrite that broke a model.

    `number` counts rewrites over the whole pipeline, from 1. `problem` is the first wrong value. `before` is the
    smallest graph on which `pass_` goes wrong, `after` what it makes of it.
    """

    pass_: Pass
    rewrite: Rewrite
    number: int
    problem: str
    before: Graph
    after: Graph


def bisect(
    graph: Graph, pipeline: Pipeline, samples: Samples, *, progress: Callable[[str], None] | None = None
) -> Culprit | None:
    """The first rewrite of `pipeline` that changes what `graph` means on `samples`; None when none does."""
    search = _Search(graph, pipeline, samples, progress or (lambda _: None))
    return search.run()


class _Search:
    def __init__(self, graph: Graph, pipeline: Pipeline, samples: Samples, progress: Callable[[str], None]) -> None:
        self.graph = graph
        self.pipeline = pipeline
        self.samples = samples
        self.progress = progress

    def run(self) -> Culprit | None:
        total = self._with_budget(None)[1].rewrites
        if not self._problem(total):
            return None
        good, bad = 0, total
        while bad - good > 1:
            middle = (good + bad) // 2
            self.progress(f"rewrites {good} to {bad} of {total}")
            good, bad = (good, middle) if self._problem(middle) else (middle, bad)
        return self._culprit(bad)

    def _with_budget(self, budget: int | None) -> tuple[Graph, PipelineReport]:
        work = self.graph.clone()
        report = self.pipeline.run(work, check="none", budget=budget)
        return work, report

    def _problem(self, budget: int) -> str:
        try:
            work, report = self._with_budget(budget)
        except CapgraphError as error:
            return error.message
        return self.samples.first_difference(work, self._loosest(report))

    def _loosest(self, report: PipelineReport) -> Any:
        """The exactness of the least exact pass that has run."""
        ran = {run.name for run in report.runs if run.changed}
        return max((each.exactness for each in self.pipeline.passes if each.name in ran), key=_looseness)

    def _culprit(self, number: int) -> Culprit:
        before = self._with_budget(number - 1)[0]
        after, report = self._with_budget(number)
        guilty = next((each for each in self.pipeline.passes if each.name == report.last_pass), None)
        if guilty is None or report.last is None:
            raise InternalError("the pipeline broke the graph without reporting a rewrite")
        problem = self._problem(number)
        small = _smallest(before, guilty, report.last, self.samples)
        if small is None:
            return Culprit(guilty, report.last, number, problem, before, after)
        return Culprit(guilty, report.last, number, small[2], small[0], small[1])


def _looseness(exactness: Any) -> int:
    return ("exact", "rounding", "approximate").index(exactness.value)


def _smallest(graph: Graph, guilty: Pass, rewrite: Rewrite, samples: Samples) -> tuple[Graph, Graph, str] | None:
    """The smallest cone around the rewrite on which its pass alone goes wrong: before, after, what is wrong."""
    try:
        roots = [graph.value(name) for name in rewrite.results]
    except CapgraphError:
        return None  # the rewrite is inside a region, or starts from a node that an earlier one of the same run made
    for outputs in (roots, *([user.outputs[0]] for root in roots for user in root.users)):
        for depth in range(1, MAX_DEPTH):
            found = _shows(graph, outputs, depth, guilty, samples)
            if found is not None:
                return found
            if not cone_boundary(outputs, depth):
                break
    return None


def _shows(
    graph: Graph, outputs: Sequence[Value], depth: int, guilty: Pass, samples: Samples
) -> tuple[Graph, Graph, str] | None:
    small, taken = extract(graph, outputs, cone_boundary(outputs, depth))
    try:
        local = Samples.of(small, [_contents(graph, taken, sample.inputs) for sample in samples.samples])
        after = small.clone()
        Pipeline(((guilty,),)).run(after, check="none")
    except CapgraphError:
        return None
    problem = local.first_difference(after, guilty.exactness)
    return (small, after, problem) if problem else None


def _contents(graph: Graph, values: Sequence[Value], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What `values` are when the graph runs on `inputs`."""
    probe, where = graph.clone_with_map()
    probe.set_outputs([where[value] for value in values])
    return evaluate_graph(probe, inputs)
