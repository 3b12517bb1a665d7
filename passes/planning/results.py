"""Results of a graph that lie outside of the arena, in memory that each run has anew and hands out.

A result in the arena has to be copied for its caller. One in memory of its own is the caller's as it is; in return the
calls that touch it are pointed to other memory in every run.
"""

from collections.abc import Iterator

from ...ir.graph import Graph, Node, Value
from ...ir.plan import Place
from .storage import BufferGroup, StoragePlan


def set_results_apart(graph: Graph, storage: StoragePlan, least_bytes: int) -> None:
    """Makes `Place.OUTPUT` of the groups with a result that is worth it: `least_bytes` for each step that touches it.

    Groups of inputs and of the next contents of states stay where they are, and so do those of which results are a
    small part, as their callers would hold all of it.
    """
    kept = {graph.outputs[state.output] for state in graph.states}
    for index in dict.fromkeys(storage.views[value].buffer for value in graph.outputs if value in storage.views):
        group = storage.groups[index]
        if group.place is not Place.ARENA or group.members[0].producer is None or not kept.isdisjoint(group.members):
            continue
        touching = {node for node in _touching(group) if node not in storage.aliases}
        if _is_mostly_handed_out(group, storage) and group.nbytes >= least_bytes * len(touching):
            group.place = Place.OUTPUT


def _touching(group: BufferGroup) -> Iterator[Node]:
    """The nodes that read or write a member."""
    for value in group.members:
        if value.producer is not None:
            yield value.producer
        yield from value.users


def _is_mostly_handed_out(group: BufferGroup, storage: StoragePlan) -> bool:
    return any(2 * _nbytes(value, storage) >= group.nbytes for value in group.members if value.is_graph_output)


def _nbytes(value: Value, storage: StoragePlan) -> int:
    view = storage.views[value]
    count = view.dtype.numpy.itemsize
    for size in view.shape:
        count *= size
    return count
