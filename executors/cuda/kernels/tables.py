"""All generated kernels that need no matmul: which families know an op, and so what a region can hold."""

from collections.abc import Iterator, Mapping

from ....ir.errors import UnsupportedError
from ..kernel_ir import moving, pointwise
from ..kernel_ir.launch import Candidate, Lowering, Task
from . import categories, channels, creation, determinants, fused, grouped_norms, indexing, rotary, rows, scans, windows
from .fft import fourier
from .resize import resampling, rois, sampling
from .scatter import scatters, segment_reduce, segment_slots
from .sort import compaction, distinct, sorting, suppression

FAMILIES: tuple[Mapping[str, Lowering], ...] = (
    fused.LOWERINGS,
    pointwise.LOWERINGS,
    rows.LOWERINGS,
    grouped_norms.LOWERINGS,
    moving.LOWERINGS,
    indexing.LOWERINGS,
    scatters.LOWERINGS,
    segment_slots.LOWERINGS,
    segment_reduce.LOWERINGS,
    scans.LOWERINGS,
    sorting.LOWERINGS,
    compaction.LOWERINGS,
    distinct.LOWERINGS,
    categories.LOWERINGS,
    suppression.LOWERINGS,
    windows.LOWERINGS,
    resampling.LOWERINGS,
    sampling.LOWERINGS,
    rois.LOWERINGS,
    fourier.LOWERINGS,
    rotary.LOWERINGS,
    channels.LOWERINGS,
    creation.LOWERINGS,
    determinants.LOWERINGS,
)
"""Tables by family, in the order in which they are asked."""


def candidates(task: Task) -> Iterator[Candidate]:
    """The candidates of a task of any op, best guess first; none where no kernel fits."""
    for table in FAMILIES:
        lowering = table.get(task.node.op.name)
        if lowering is None:
            continue
        try:
            yield from list(lowering(task))
        except UnsupportedError:
            continue


LOWERINGS: Mapping[str, Lowering] = {name: candidates for table in FAMILIES for name in table}
"""Every op that generated kernels know."""
