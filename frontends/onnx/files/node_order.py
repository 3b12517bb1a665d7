"""The order of nodes in a model: ONNX wants one in which values come before their readers, files often have another."""

import heapq
from collections.abc import Container, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from ....ir.errors import ModelError

_SHOWN = 4  # nodes of a cycle that the error names


def sorted_nodes(nodes: Sequence[NodeProto], defined: Container[str] = ()) -> Sequence[NodeProto]:
    """`nodes` so that each stands behind those whose results it reads, otherwise in their order.

    `defined` are names that have a value before any node. Raises `ModelError` when nodes wait for each other.
    """
    producers: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name in node.output:
            if name and name not in defined:
                producers.setdefault(name, place)
    awaited = [_awaited(node, producers) for node in nodes]
    if all(max(places, default=-1) < place for place, places in enumerate(awaited)):
        return nodes
    return [nodes[place] for place in _order(nodes, awaited)]


def without_repeated_constants(nodes: Sequence[NodeProto]) -> tuple[Sequence[NodeProto], list[str]]:
    """`nodes` without the constants that a later one of the same name overrides, as ONNX Runtime has it; the names."""
    last = {node.output[0]: place for place, node in enumerate(nodes) if _is_constant(node)}
    places = [place for place, node in enumerate(nodes) if _is_constant(node) and last[node.output[0]] != place]
    if not places:
        return nodes, []
    dropped = set(places)
    kept = [node for place, node in enumerate(nodes) if place not in dropped]
    return kept, [nodes[place].output[0] for place in places]


def _is_constant(node: NodeProto) -> bool:
    return node.op_type == "Constant" and len(node.output) == 1


def _awaited(node: NodeProto, producers: dict[str, int]) -> set[int]:
    """The places of the nodes whose results `node` and its subgraphs read."""
    return {producers[name] for name in names_read(node) if name in producers}


def _order(nodes: Sequence[NodeProto], awaited: Sequence[set[int]]) -> list[int]:
    readers: dict[int, list[int]] = {}
    for place, places in enumerate(awaited):
        for producer in places:
            readers.setdefault(producer, []).append(place)
    missing = [len(places) for places in awaited]
    ready = [place for place, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for reader in readers.get(place, ()):
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        raise _cycle_error([nodes[place] for place in _cycle(awaited, set(order))])
    return order


def _cycle(awaited: Sequence[set[int]], done: set[int]) -> list[int]:
    """The places of nodes that wait for each other: from any that is left, back along what it waits for."""
    place = min(set(range(len(awaited))) - done)
    path: dict[int, None] = {}
    while place not in path:
        path[place] = None
        place = min(awaited[place] - done)
    places = list(path)
    return places[places.index(place) :]


def _cycle_error(nodes: Sequence[NodeProto]) -> ModelError:
    names = [node.name or f"of {node.output[0]!r}" for node in nodes[:_SHOWN]]
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    what = f"the nodes {', '.join(names)}{more} form a cycle" if len(nodes) > 1 else "the node reads its own result"
    return ModelError(what, where=f"node {names[0]} ({nodes[0].op_type})", remedy="export the model again")


def names_read(node: NodeProto) -> set[str]:
    """The names that a node reads, those from outside that its subgraphs read included."""
    read = set(node.input)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            read |= names_from_outside(attribute.g)
    read.discard("")
    return read


def names_from_outside(graph: GraphProto) -> set[str]:
    """The names that a subgraph reads or returns and does not give itself."""
    read = {info.name for info in graph.output}
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    for node in graph.node:
        read |= names_read(node)
        own.update(node.output)
    return read - own
