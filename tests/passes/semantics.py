"""What every pass promises, held on one graph: it verifies, means the same, is stable, and knows whether it changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from capgraph.ir.analysis import all_nodes
from capgraph.ir.equality import first_difference
from capgraph.ir.errors import CapgraphError, UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.ir.verify import verify
from capgraph.passes.catalog import PASSES, level_pipeline
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.open_results import excused_by
from tests.strategies.graphs import random_inputs

_LOOSENESS = (Exactness.EXACT, Exactness.ROUNDING, Exactness.APPROXIMATE)


def pipelines() -> dict[str, Pipeline]:
    """Every pass alone, with its defaults, and every level that differs from the one below."""
    alone = {name: Pipeline(((each(),),)) for name, each in PASSES.items()}
    levels = [level_pipeline(level) for level in range(4)]
    different = {f"level {n}": levels[n] for n in range(1, 4) if levels[n] != levels[n - 1]}
    return {**alone, **different}


def exactness_of(pipeline: Pipeline) -> Exactness:
    """The exactness of the least exact pass."""
    return max((each.exactness for each in pipeline.passes), key=_LOOSENESS.index, default=Exactness.EXACT)


def samples_of(graph: Graph, inputs: Sequence[Any]) -> Samples | None:
    """What `graph` gives for `inputs`; None when it is random or cannot take these inputs."""
    if any(node.op.has(Trait.IMPURE) for node in all_nodes(graph)):
        return None
    try:
        return Samples.of(graph, [inputs])
    except UnsupportedError:
        return None


def broken_promise(pipeline: Pipeline, graph: Graph, samples: Samples | None) -> str:
    """Which promise `pipeline` breaks on `graph`, in words; empty when none. `graph` stays as it is."""
    work = graph.clone()
    try:
        report = pipeline.run(work, check="none")
    except CapgraphError as error:
        return f"it raises {type(error).__name__}: {error}"
    difference = first_difference(graph, work)
    if report.changed != (difference is not None):
        return f"changed is {report.changed}, but the difference is {difference}"
    if not report.changed:
        return ""
    try:
        verify(work)
    except CapgraphError as error:
        return f"the result does not verify: {error}"
    if samples is not None:
        problem = samples.first_difference(work, exactness_of(pipeline))
        if problem:
            return problem
    again = work.clone()
    if pipeline.run(again, check="none").changed:
        return f"a second run changes the graph: {first_difference(work, again)}"
    return ""


def broken_promises(graph: Graph, seed: int, chosen: Mapping[str, Pipeline]) -> dict[str, str]:
    """The broken promises on `graph` with inputs number `seed`, by the name of the pipeline."""
    return broken_for(graph, random_inputs(graph, seed)[1], chosen)


def broken_for(graph: Graph, inputs: Sequence[Any], chosen: Mapping[str, Pipeline]) -> dict[str, str]:
    """The broken promises on `graph` with these inputs, by the name of the pipeline.

    Another result is none where it is left open (see `tests.passes.open_results`).
    """
    samples = samples_of(graph, inputs)
    found = {name: broken_promise(pipeline, graph, samples) for name, pipeline in chosen.items()}
    broken = {name: problem for name, problem in found.items() if problem}
    if not broken or samples is None:
        return broken
    excuse = excused_by(graph, inputs)
    return {name: problem for name, problem in broken.items() if not excuse(problem)}
