"""The planner: from a graph and concrete sizes to a plan."""

from collections.abc import Mapping

from ...ir.graph import Graph
from ...ir.plan import Buffer, Place, Plan, Segment, Step, StepKind
from ...ir.target import Target
from ..cse import Cse
from ..eliminate_dead_code import EliminateDeadCode
from ..fold_constants import FoldConstants
from ..pipeline import Pipeline
from .arena import Block, lower_bound, place
from .partition import CapturePolicy, partition
from .specialise import specialise
from .storage import Group, Storage, assign_storage

_CLEAN_UP = Pipeline(((FoldConstants(), EliminateDeadCode(), Cse()),))
"""Known sizes turn shape arithmetic into constants; what led to it is left unused."""


def make_plan(graph: Graph, sizes: Mapping[str, int], target: Target, policy: CapturePolicy | None = None) -> Plan:
    """Plans `graph` at `sizes` (every symbol of its inputs). The graph itself is not changed.

    Raises `ShapeError` when the sizes do not fit the graph.
    """
    bound = specialise(graph, sizes)
    _CLEAN_UP.run(bound, check="none")
    parts = partition(bound, target, policy or CapturePolicy())
    bound.reorder(parts.order)
    storage = assign_storage(bound, target)
    return _assemble(bound, sizes, target, storage, parts.segments)


def _assemble(
    graph: Graph, sizes: Mapping[str, int], target: Target, storage: Storage, segments: tuple[Segment, ...]
) -> Plan:
    in_arena = [index for index, group in enumerate(storage.groups) if group.place is Place.ARENA]
    blocks = [_block(storage.groups[index], target.alignment) for index in in_arena]
    layout = place(blocks)
    offsets = dict(zip(in_arena, layout.offsets, strict=True))
    buffers = tuple(
        Buffer(index, group.place, group.nbytes, offsets.get(index, 0), group.first, group.last, group.label)
        for index, group in enumerate(storage.groups)
    )
    steps = tuple(
        Step(index, node, StepKind.ALIAS if node in storage.aliases else StepKind.COMPUTE)
        for index, node in enumerate(graph.nodes)
    )
    return Plan(
        graph=graph,
        sizes=dict(sizes),
        buffers=buffers,
        views=storage.views,
        dynamic=storage.dynamic,
        steps=steps,
        segments=segments,
        arena_bytes=layout.nbytes,
        lower_bound=lower_bound(blocks),
        alignment=target.alignment,
        copies=storage.copies,
    )


def _block(group: Group, alignment: int) -> Block:
    return Block(-(-group.nbytes // alignment) * alignment, group.first, group.last)
