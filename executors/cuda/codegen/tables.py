"""All generated kernels: which families know an op."""

from collections.abc import Iterator, Mapping

from ....ir.errors import UnsupportedError
from ..launch import Candidate, Lowering, Task
from . import (
    categories,
    channels,
    compaction,
    creation,
    deformed,
    determinants,
    fourier,
    fused,
    indexing,
    moving,
    pointwise,
    resampling,
    rois,
    rotary,
    rows,
    sampling,
    scans,
    scatters,
    sorting,
    suppression,
    windows,
)

FAMILIES: tuple[Mapping[str, Lowering], ...] = (
    fused.LOWERINGS,
    pointwise.LOWERINGS,
    rows.LOWERINGS,
    moving.LOWERINGS,
    indexing.LOWERINGS,
    scatters.LOWERINGS,
    scans.LOWERINGS,
    sorting.LOWERINGS,
    compaction.LOWERINGS,
    categories.LOWERINGS,
    suppression.LOWERINGS,
    windows.LOWERINGS,
    resampling.LOWERINGS,
    sampling.LOWERINGS,
    deformed.LOWERINGS,
    rois.LOWERINGS,
    fourier.LOWERINGS,
    rotary.LOWERINGS,
    channels.LOWERINGS,
    creation.LOWERINGS,
    determinants.LOWERINGS,
)
"""Tables by family, in the order in which they are asked."""


def ways(task: Task) -> Iterator[Candidate]:
    """The ways of a task of any op, best guess first; none where no kernel fits."""
    for table in FAMILIES:
        lowering = table.get(task.node.op.name)
        if lowering is None:
            continue
        try:
            yield from list(lowering(task))
        except UnsupportedError:
            continue


LOWERINGS: Mapping[str, Lowering] = {name: ways for table in FAMILIES for name in table}
"""Every op that generated kernels know."""
