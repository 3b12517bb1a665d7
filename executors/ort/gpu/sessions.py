"""The sessions of one program's subgraphs, and what is to be said of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....frontends.onnx.contrib import ON_CUDA
from ....ir.errors import CapgraphError, ResourceError, UnsupportedError
from ....ir.graph import Graph, Node
from ..segments import named
from ..session import Written
from .partition import Capturable, Inquiry, Subgraphs, joined
from .session import Provider, SubgraphSession, is_refused_recording, off_device, opened_on

_ROUNDS = 8
"""How often a graph is cut again because a session did not take a subgraph."""


@dataclass(frozen=True)
class SessionProgram:
    """A graph in subgraphs, with a session for each by the name of its body. `remarks` say what is outside, and why."""

    graph: Graph
    sessions: Mapping[str, SubgraphSession]
    remarks: tuple[str, ...]


def in_sessions(graph: Graph, provider: Provider, kept: Mapping[Node, str]) -> SessionProgram:
    """`graph` in as few subgraphs as `provider` records. Nodes in `kept` stay outside, for the reason given there.

    A subgraph that is refused although each of its nodes is not, is cut at the nodes that left the provider. Where
    nothing tells which did, all of its nodes stay outside. Raises `UnsupportedError` when this does not come to an end.
    """
    refused = dict(kept)
    inquiry = Inquiry(graph, provider, refused)
    for _ in range(_ROUNDS):
        found = inquiry.capturable()
        subgraphs = joined(graph, found.problems)
        try:
            sessions = _opened(subgraphs, provider, found)
        except _RefusedSubgraph as refusal:
            refused.update(_guilty(graph, refusal))
            continue
        return SessionProgram(subgraphs.graph, sessions, tuple(_remarks(sessions, found)))
    raise UnsupportedError(
        f"{provider.name} refuses subgraphs of {graph.name} again and again: {list(refused.values())[-1]}",
        remedy='executor="graph" records the model without ONNX Runtime',
    )


class _RefusedSubgraph(Exception):
    """A subgraph that no session in graph mode took. Never reaches users."""

    def __init__(self, body: Graph, provider: Provider, written: Written, error: CapgraphError) -> None:
        super().__init__(error.message)
        self.body = body
        self.provider = provider
        self.written = written
        self.error = error


def _opened(subgraphs: Subgraphs, provider: Provider, found: Capturable) -> dict[str, SubgraphSession]:
    sessions: dict[str, SubgraphSession] = {}
    for name, body in subgraphs.bodies.items():
        suited, written = provider.suited_to(body), Written(found.opset, ON_CUDA)
        try:
            sessions[name] = SubgraphSession(body, suited, is_recorded=True, written=written)
        except ResourceError:
            raise
        except CapgraphError as error:
            raise _RefusedSubgraph(body, suited, written, error) from error
    return sessions


def _guilty(graph: Graph, refusal: _RefusedSubgraph) -> dict[Node, str]:
    """The nodes of `graph` because of which a subgraph was refused."""
    inside = {value.name for node in refusal.body.nodes for value in node.outputs if node.inputs}
    nodes = [node for node in graph.nodes if node.inputs and node.outputs[0].name in inside]
    guilty: dict[Node, str] = {}
    for name, operator in _gone(refusal):
        node = named(nodes, name)
        if node is not None:
            guilty[node] = f"{refusal.provider.name} has no kernel for {operator} here"
    return guilty or dict.fromkeys(nodes, refusal.error.message)


def _gone(refusal: _RefusedSubgraph) -> list[tuple[str, str]]:
    """The nodes that left the provider, as an ordinary session tells."""
    if not is_refused_recording(refusal.error):
        return []
    try:
        return off_device(opened_on(refusal.provider, refusal.body, refusal.written), refusal.provider)
    except CapgraphError:
        return []


def _remarks(sessions: Mapping[str, SubgraphSession], found: Capturable) -> Iterator[str]:
    many = "" if len(sessions) == 1 else "s"
    yield f"{len(sessions)} subgraph{many} in sessions of ONNX Runtime; {len(found.problems)} nodes outside"
    for node, reason in found.problems.items():
        yield f"  outside: {node.where()}: {reason}"
    lacking = sorted(set().union(*(session.lacking for session in sessions.values())))
    if lacking:
        yield f"the installed ONNX Runtime lacks {', '.join(lacking)}: standard operators are used instead"
    if found.opset is not None:
        yield f"written at opset {found.opset}, for which it has kernels of more nodes"
