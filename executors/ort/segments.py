"""A graph in one session where that works, else cut into segments: what ONNX Runtime cannot run, NumPy does."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.analysis import input_symbols
from ...ir.analysis.extract import part_of
from ...ir.errors import CapgraphError, ResourceError, UnsupportedError
from ...ir.evaluate import Sizes, match_type
from ...ir.graph import Graph, Node, Value
from ...ir.run_order import in_run_order
from ...ir.types import type_symbols
from ..steps import Steps
from .faults import known_fault, lost_signs
from .session import RunFailure, Session, Support, is_free
from .wrong_numbers import size_givers


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


class OrtPartition:
    """The segments of a graph, and why it is not one (`why`, empty when it is).

    With `strict`, raises `UnsupportedError` when not all of the graph can run in one session; in any case
    `ResourceError` when memory or the disk does not suffice for one.
    """

    def __init__(self, graph: Graph, *, threads: int | None, strict: bool) -> None:
        self._graph = graph
        self._threads = threads
        self._refused: dict[Node, str] = {}
        self._lock = threading.Lock()
        self.is_strict = strict
        self.why = ""
        self.segments = self._made()

    def refuse(self, segment: GraphSegment, failure: RunFailure) -> None:
        """Keeps the node at which a session failed out of all sessions from now on.

        Where ONNX Runtime does not name a node that the segment knows, all nodes of the segment are kept out.
        """
        with self._lock:
            found = named(segment.nodes, failure.node_name)
            self._cut_without(segment.nodes if found is None else (found,), failure.message)

    def keep_out(self, nodes: Sequence[Node], why: str) -> None:
        """Keeps `nodes` out of all sessions from now on. Raises `UnsupportedError` where the partition is strict."""
        if self.is_strict:
            raise _refusal(why, nodes[0].where())
        with self._lock:
            self._cut_without(nodes, why)

    def _cut_without(self, nodes: Sequence[Node], why: str) -> None:
        if all(node in self._refused for node in nodes):
            return  # another thread met the same trouble
        self._refused.update(dict.fromkeys(nodes, why))
        self.why = self.why or why
        self.segments = cut(self._graph, self._refused, threads=self._threads)

    def _made(self) -> tuple[GraphSegment, ...]:
        if not self._graph.outputs:
            return ()  # there is nothing to run, which no session takes
        try:
            _check_faults(self._graph)
            return (whole(self._graph, threads=self._threads),)
        except ResourceError:  # of this machine: smaller sessions are no remedy
            raise
        except CapgraphError as error:
            if self.is_strict:
                raise _refusal(error.message, error.where) from error
            self.why = error.message
        return cut(self._graph, self._refused, threads=self._threads)


def _refusal(why: str, where: str | None) -> UnsupportedError:
    message = f"ONNX Runtime cannot run the whole graph: {why}"
    return UnsupportedError(message, where=where, remedy="leave strict out")


def _check_faults(graph: Graph) -> None:
    signs = lost_signs(graph)
    for node in graph.nodes:
        fault = signs.get(node) or known_fault(node)
        if fault:
            raise UnsupportedError(fault, where=node.where())


def named(nodes: Iterable[Node], name: str) -> Node | None:
    """The node that was written to ONNX under `name`, or under a name that begins with its own."""
    wishes = {wish: node for node in nodes for wish in _wishes(node)}
    found = [wish for wish in wishes if name == wish or name.startswith(f"{wish}_")]
    return wishes[max(found, key=len)] if found else None


def _wishes(node: Node) -> list[str]:
    if node.origin is not None and node.origin.name:
        return [node.origin.name]
    graph = node.graph
    returned = zip(graph.outputs, graph.output_names, strict=True) if graph is not None else ()
    return [*(value.name for value in node.outputs), *(name for value, name in returned if value.producer is node)]
