"""Run order: an order of a graph's nodes that changes as rarely as possible between two kinds of node.

Whoever cuts a graph into segments wants few of them, and their number depends on the order: what does not depend on a
cut can run before it. Running everything of one kind that is ready, then everything of the other, and so on, gives the
fewest changes that any order can have from that start; both starts are tried.
"""

import heapq
from collections.abc import Collection

from .graph import Graph, Node


def in_run_order(graph: Graph, outside: Collection[Node]) -> list[list[Node]]:
    """All nodes in a topological order that changes as rarely as possible between `outside` and the others."""
    return min((_turns(graph, outside, starts_inside) for starts_inside in (True, False)), key=len)


def _turns(graph: Graph, outside: Collection[Node], inside: bool) -> list[list[Node]]:
    """Maximal runs of ready nodes, those inside and those outside alternating."""
    positions = {node: index for index, node in enumerate(graph.nodes)}
    followers, waiting = _dependencies(graph)
    ready: dict[bool, list[tuple[int, Node]]] = {True: [], False: []}
    for node in graph.nodes:
        if not waiting[node]:
            heapq.heappush(ready[node not in outside], (positions[node], node))
    runs: list[list[Node]] = []
    while ready[True] or ready[False]:
        run: list[Node] = []
        while ready[inside]:
            node = heapq.heappop(ready[inside])[1]
            run.append(node)
            for follower in followers[node]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready[follower not in outside], (positions[follower], follower))
        if run:
            runs.append(run)
        inside = not inside
    return runs


def _dependencies(graph: Graph) -> tuple[dict[Node, list[Node]], dict[Node, int]]:
    """What has to wait for each node, and for how many nodes each waits.

    Besides the edges of the graph: whoever reads the old content of a state comes before the node that makes the new
    one, so that the update can be done in place.
    """
    pairs: set[tuple[Node, Node]] = set()
    for node in graph.nodes:
        pairs |= {(value.producer, node) for value in node.operands if value.producer is not None}
    for state in graph.states:
        writer = graph.outputs[state.output].producer
        readers = graph.inputs[state.input].users
        if writer is not None:
            pairs |= {(reader, writer) for reader in readers if reader is not writer and reader.precedes(writer)}
    followers: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
    waiting: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
    for first, second in pairs:
        followers[first].append(second)
        waiting[second] += 1
    return followers, waiting
