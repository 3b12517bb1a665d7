"""Who runs what: the whole graph in one session where that works, else segments; what fails in a run runs eagerly."""

import threading
from collections.abc import Iterable, Sequence

from ...ir.errors import CapgraphError, ResourceError, UnsupportedError
from ...ir.graph import Graph, Node
from .faults import known_fault, lost_signs
from .segments import GraphSegment, cut, whole
from .session import RunFailure


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
