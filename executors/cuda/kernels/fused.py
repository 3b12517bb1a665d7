"""`fused` regions without an anchor: one kernel where their nodes share an index space, else one for each node."""

from collections.abc import Iterator, Mapping

from ....ir.errors import UnsupportedError
from ....ir.op import Trait
from ..kernel_ir.launch import Candidate, Lowering, Task
from ..kernel_ir.pointwise import is_pointwise, lower_pointwise
from ..kernel_ir.regions import body_nodes
from .grouped_norms import lower_grouped
from .reductions import REDUCTIONS
from .rows import lower_reductions
from .scatter.segment_reduce import lower_segments
from .stepwise import lower_stepwise


def lower_fused(task: Task) -> Iterator[Candidate]:
    """The candidates to do a region; none where it holds an op that has no kernel here."""
    for lowering in (_in_one_kernel, lower_segments, lower_stepwise):
        try:
            found = list(lowering(task))
        except UnsupportedError:
            continue
        if found:
            yield from found
            return


def _in_one_kernel(task: Task) -> Iterator[Candidate]:
    nodes = body_nodes(task.node)
    if any(node.op.has(Trait.GROUPWISE) for node in nodes):
        yield from lower_grouped(task)
        return
    has_reductions = any(node.op.name in REDUCTIONS for node in nodes)
    if all(is_pointwise(node) or node.op.name in REDUCTIONS or node.op.name == "gather" for node in nodes):
        yield from lower_reductions(task) if has_reductions else lower_pointwise(task)


LOWERINGS: Mapping[str, Lowering] = {"fused": lower_fused}
"""Regions."""
