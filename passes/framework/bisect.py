"""Bisect: find the pass, then the single rewrite, that changed what a model means, and a small graph that shows it.

The pipeline runs with numeric checking until a pass breaks its promise. Passes are deterministic and can be stopped
after any number of rewrites, so within that pass the fault lies between two budgets one rewrite apart: the graph before
is right and the graph after is wrong. Around the rewrite the smallest cone of nodes is cut out on which the pass still
goes wrong, and from that every node goes that is not needed to show it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...ir.analysis.extract import cone_boundary, extract
from ...ir.errors import CapgraphError, InternalError
from ...ir.evaluate import evaluate_graph
from ...ir.graph import Graph, Value
from ...ir.verify import verify
from .base import Pass
from .numeric import Samples
from .pipeline import PassRun, Pipeline, PipelineReport
from .rewriter import Rewrite

MAX_DEPTH = 64
"""How many nodes back from the rewrite the search for a small graph goes before it settles for the whole one."""

Progress = Callable[[str], None]
Inputs = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Culprit:
    """The rewrite that broke a model.

    `number` counts rewrites over the whole pipeline, from 1. `problem` is the first wrong value, or what the pass
    raised. `before` is the smallest graph on which `guilty` goes wrong by one rewrite, and `after` what that makes of
    it; None when it raises.
    """

    guilty: Pass
    rewrite: Rewrite
    number: int
    problem: str
    before: Graph
    after: Graph | None


def bisect(
    graph: Graph,
    pipeline: Pipeline,
    samples: Samples,
    *,
    progress: Progress | None = None,
    dump: Path | None = None,
) -> Culprit | None:
    """The first rewrite of `pipeline` that breaks `graph` on `samples`, which are its own; None when none does.

    `dump` names a folder for the text form before and after every pass.
    A rewrite breaks a graph when it raises, when the result does not verify, or when it gives other results than the
    exactness of its pass allows. `graph` itself stays as it is.
    """
    report = PipelineReport()
    try:
        pipeline.run(graph.clone(), check="numeric", samples=samples, dump=dump, progress=progress, report=report)
    except InternalError:
        if report.failed is None:
            raise
        return _culprit(graph, pipeline, report, samples, progress or (lambda _: None))
    return None


@dataclass(frozen=True)
class _Fault:
    """The first wrong rewrite of one run of a pass, the graph right before and after it, and what is wrong.

    `inputs` are those of the graph before.
    """

    rewrite: Rewrite
    number: int
    problem: str
    before: Graph
    after: Graph | None
    inputs: Inputs


def _culprit(graph: Graph, pipeline: Pipeline, report: PipelineReport, samples: Samples, progress: Progress) -> Culprit:
    guilty, done = report.failed, report.rewrites
    assert guilty is not None  # the caller has looked
    base = graph.clone()
    pipeline.run(base, check="none", budget=done)
    fault = _first_fault(base, guilty, (report.samples or samples).expecting(base), progress)
    if fault is None:
        raise InternalError(f"pass {guilty.name} goes wrong only sometimes, or edits without asking may_rewrite")
    progress("looking for a small graph that shows it")
    small = _smallest(fault, guilty) or fault
    return Culprit(guilty, fault.rewrite, done + fault.number, small.problem, small.before, small.after)


# ---- the rewrite


def _first_fault(graph: Graph, guilty: Pass, samples: Samples, progress: Progress) -> _Fault | None:
    """The rewrite of one run of `guilty` over `graph` after which the graph is wrong."""
    bad = _some_wrong_budget(graph, guilty, samples)
    if bad is None:
        return None
    good = 0
    while bad - good > 1:
        progress(f"{guilty.name}: rewrites {good} to {bad}")
        middle = (good + bad) // 2
        good, bad = (good, middle) if _run(graph, guilty, middle, samples).problem else (middle, bad)
    before, wrong = _run(graph, guilty, good, samples), _run(graph, guilty, bad, samples)
    if wrong.last is None or before.graph is None:
        return None
    return _Fault(wrong.last, bad, wrong.problem, before.graph, wrong.graph, before.inputs)


def _some_wrong_budget(graph: Graph, guilty: Pass, samples: Samples) -> int | None:
    """A number of rewrites after which the graph is wrong: all, or up to twice those before the pass raises."""
    whole = _run(graph, guilty, None, samples)
    if not whole.problem:
        return None
    if whole.graph is not None:
        return whole.rewrites or None
    budget = 1
    while not _run(graph, guilty, budget, samples).problem:
        budget *= 2
    return budget


@dataclass(frozen=True)
class _Outcome:
    """What a pass made of a graph within a budget, called with `inputs`; `graph` is None when it raised."""

    graph: Graph | None
    inputs: Inputs
    problem: str
    rewrites: int
    last: Rewrite | None


def _run(graph: Graph, guilty: Pass, budget: int | None, samples: Samples) -> _Outcome:
    work = graph.clone()
    run = PassRun(guilty, budget)
    try:
        run.on(work)
    except CapgraphError as error:
        return _Outcome(None, samples.inputs, _said(error), run.rewrites.total(), run.last)
    called = samples.called(run.calls, graph)
    try:
        verify(work)
    except CapgraphError as error:
        problem = f"the graph is broken: {_said(error)}"
    else:
        problem = called.first_difference(work, guilty.exactness)
    return _Outcome(work, called.inputs, problem, run.rewrites.total(), run.last)


def _said(error: CapgraphError) -> str:
    return f"{error.message} at {error.where}" if error.where else error.message


# ---- the graph that shows it


def _smallest(fault: _Fault, guilty: Pass) -> _Fault | None:
    """The smallest part of the graph around the rewrite on which the pass alone goes wrong; None if none was found."""
    for outputs, cut in _cones(fault):
        found = _shown(fault, outputs, cut, guilty)
        if found is not None:
            return _shrunk(found, guilty)
    return None


def _cones(fault: _Fault) -> Iterator[tuple[list[Value], set[Value]]]:
    """Ever larger parts of the graph: the nodes up to some depth behind the rewritten node, then behind its users."""
    graph = fault.before
    roots = [graph.value(name) for name in fault.rewrite.results]
    users = [list(user.outputs) for root in roots for user in root.users]
    for outputs in (roots, *users):
        for depth in range(1, MAX_DEPTH):
            cut = cone_boundary(outputs, depth)
            yield outputs, cut
            if not cut:
                break


def _shown(fault: _Fault, outputs: Sequence[Value], cut: set[Value], guilty: Pass) -> _Fault | None:
    """The fault that the part of the graph between `cut` and `outputs` shows; None if none."""
    part, taken = extract(fault.before, outputs, cut)
    try:
        local = [_contents(fault.before, taken, each) for each in fault.inputs]
        return _first_fault(part, guilty, Samples.of(part, local), lambda _: None)
    except CapgraphError:
        return None  # cut off there it is no graph that runs


def _contents(graph: Graph, values: Sequence[Value], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What `values` are when the graph runs on `inputs`."""
    probe, where = graph.clone_with_map()
    probe.set_outputs([where[value] for value in values])
    return evaluate_graph(probe, inputs)


def _shrunk(fault: _Fault, guilty: Pass) -> _Fault:
    """Makes results into inputs and drops outputs, one at a time, for as long as the fault still shows."""
    progress = True
    while progress:
        progress = False
        for outputs, cut in _cuts(fault.before):
            smaller = _shown(fault, outputs, cut, guilty)
            if smaller is not None and len(smaller.before) < len(fault.before):
                fault, progress = smaller, True
                break
    return fault


def _cuts(graph: Graph) -> Iterator[tuple[Sequence[Value], set[Value]]]:
    if len(graph.outputs) > 1:
        yield from (([value], set()) for value in graph.outputs)
    for node in graph.reversed_nodes:
        if not any(value.is_graph_output for value in node.outputs):
            yield graph.outputs, set(node.outputs)
