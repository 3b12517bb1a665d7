"""A graph cut into segments: sessions for what ONNX Runtime can run, NumPy steps for the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.analysis import input_symbols
from ...ir.analysis.extract import part_of
from ...ir.errors import CapgraphError, ResourceError
from ...ir.evaluate import Sizes, match_type
from ...ir.graph import Graph, Node, Value
from ...ir.run_order import in_run_order
from ...ir.types import type_symbols
from ..steps import Steps
from .session import Session
from .sizes import size_givers
from .support import Support, is_free


@dataclass(frozen=True)
class GraphSegment:
    """Some nodes of a graph as a graph of their own: it reads `inputs` and gives `outputs`, values of the whole graph.

    It runs in a `session`, or in `steps` where that is None. `reasons` says per node why it runs eagerly. `sized` are
    the positions of outputs whose sizes only running tells.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    graph: Graph
    session: Session | None
    steps: Steps | None
    reasons: tuple[str, ...]
    sized: tuple[int, ...] = ()

    def run(self, values: Sequence[Any], sizes: Sizes) -> Sequence[Any]:
        """The outputs; adds the sizes that only running tells to `sizes`. Raises `RunFailure` for a session's error."""
        if self.session is None:
            return self.eagerly(values, sizes)
        results = self.session.run(values)
        for position in self.sized:
            match_type(self.outputs[position].type, results[position], sizes)
        return results

    def eagerly(self, values: Sequence[Any], sizes: Sizes) -> Sequence[Any]:
        """The outputs by NumPy."""
        with np.errstate(all="ignore"):  # infinities and NaN are results like any other
            return (Steps(self.graph) if self.steps is None else self.steps).run(values, sizes)


def whole(graph: Graph, *, threads: int | None) -> GraphSegment:
    """All of `graph` in one session. Raises `CapgraphError` when it cannot be exported or is refused."""
    session = Session(graph, threads=threads)
    return GraphSegment(tuple(graph.nodes), graph.inputs, graph.outputs, graph, session, None, ())


def cut(graph: Graph, refused: Mapping[Node, str], *, threads: int | None = None) -> tuple[GraphSegment, ...]:
    """The segments of `graph` in an order in which they can run, as few as the nodes to keep out allow.

    `refused` are nodes that are known to have no place in a session, with the reason.
    """
    support = Support(graph, refused)
    problems = {node: "" if is_free(node) else support.problem(node) for node in graph.nodes}
    runs = in_run_order(graph, {node for node, problem in problems.items() if problem})
    wanted = set(graph.outputs)
    sessions = [run for run in runs if any(not is_free(node) and not problems[node] for node in run)]
    maker = _Maker(graph, problems, threads, spins=len(sessions) == 1)
    segments: list[GraphSegment] = []
    for run in reversed(runs):
        nodes = [node for node in run if not is_free(node) or any(value.is_graph_output for value in node.outputs)]
        outputs = [value for node in nodes for value in node.outputs if value in wanted]
        if outputs:
            segments.append(maker.segment(nodes, outputs))
            wanted |= set(segments[-1].inputs)
    return tuple(segments[::-1])


class _Maker:
    def __init__(self, graph: Graph, problems: Mapping[Node, str], threads: int | None, *, spins: bool) -> None:
        self._graph = graph
        self._problems = problems
        self._threads = threads
        self._spins = spins
        self._symbols = frozenset(input_symbols(graph))

    def segment(self, nodes: Sequence[Node], outputs: Sequence[Value]) -> GraphSegment:
        inside = set(nodes)
        read = dict.fromkeys(v for node in nodes for v in node.operands if v.producer not in inside)
        outer = [value for value in read if value.producer is None or not is_free(value.producer)]
        own = dict.fromkeys(v.producer for v in read if v.producer is not None and is_free(v.producer))
        body = (*own, *nodes)
        inputs = tuple(dict.fromkeys((*outer, *size_givers(self._graph, body, outer))))
        part = part_of(self._graph, body, inputs, outputs)
        reasons = tuple(f"{node.where()}: {self._problems[node]}" for node in nodes if self._problems[node])
        session = None
        if not reasons:
            try:
                session = Session(part, threads=self._threads, spins=self._spins)
            except ResourceError:
                raise
            except CapgraphError as error:  # each node can run alone, but not all of them together
                reasons = tuple(f"{node.where()}: {error.message}" for node in nodes)
        sized = tuple(at for at, value in enumerate(outputs) if not type_symbols(value.type) <= self._symbols)
        steps = None if session is not None else Steps(part)
        return GraphSegment(tuple(nodes), inputs, tuple(outputs), part, session, steps, reasons, sized)
