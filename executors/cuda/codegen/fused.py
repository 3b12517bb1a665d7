"""`fused` regions without products: one kernel where their nodes share an index space, else one for each node."""

from collections.abc import Iterator, Mapping

from ....ir.errors import UnsupportedError
from ..launch import Candidate, Lowering, Task
from .folds import FOLDINGS
from .pointwise import is_pointwise, lower_pointwise
from .regions import body_nodes
from .rows import lower_folds
from .stepwise import lower_stepwise


def lower_fused(task: Task) -> Iterator[Candidate]:
    """The ways to do a region; none where it holds an op that has no kernel here."""
    nodes = body_nodes(task.node)
    lowering = lower_folds if any(node.op.name in FOLDINGS for node in nodes) else lower_pointwise
    if all(is_pointwise(node) or node.op.name in FOLDINGS or node.op.name == "gather" for node in nodes):
        try:
            yield from list(lowering(task))
        except UnsupportedError:
            pass
        else:
            return
    yield from lower_stepwise(task)


LOWERINGS: Mapping[str, Lowering] = {"fused": lower_fused}
"""Regions."""
