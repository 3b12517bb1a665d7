"""Which tilings are worth trying for a matmul of some rows."""

from collections.abc import Iterator, Sequence

from ....kernel_ir.launch import Chip, Kernel, KernelLaunch
from ..operands import GemmOperands
from ..own_kernel_epilogue import OwnKernelEpilogue
from ..row_norms import Norm
from ..weight_formats import ColumnWeight
from .row_sizes import COLUMNS, UNIT, RowTiling
from .row_text import RowText

LEAST_ROWS, MOST_ROWS = 2, 16
"""At 32 rows a step of decode-1b took 1,231 us with the best of these tilings, 1,185 with other kernels (H200)."""

SHAPES = ((8, 8, 2, 1), (16, 4, 1, 1), (8, 8, 2, 2), (16, 4, 1, 2), (16, 4, 1, 4), (16, 4, 1, 8))
"""Warps of a block, units that one has in registers at most, blocks on a multiprocessor, and blocks that share the
inner axis: best guess first."""

MOST_TRIED = 3


def row_gemm(
    operands: GemmOperands,
    weights: Sequence[ColumnWeight],
    epilogue: OwnKernelEpilogue,
    chip: Chip,
    norm: Norm | None = None,
) -> Iterator[tuple[str, KernelLaunch]]:
    """The launches worth trying, by name, best guess first; there is one whatever the sizes are.

    Two weights, which lie alike, share the columns of a block.
    """
    wanted = [_tiling(operands, *shape) for shape in SHAPES if shape[3] == 1 or chip.arch >= 90]
    texts = [RowText(operands, tuple(weights), epilogue, tiling, norm, chip) for tiling in dict.fromkeys(wanted)]
    found = [text for text in texts if text.fits]
    if not found:
        again = _tiling(operands, 8, 8, 2, 1, is_held=False)
        found = [RowText(operands, tuple(weights), epilogue, again, norm, chip)]
    launches: dict[Kernel, tuple[str, KernelLaunch]] = {}  # few groups of columns make several tilings one
    for text in found:
        launch = text.launch()
        launches.setdefault(launch.kernel, (text.tiling.name, launch))
    yield from list(launches.values())[:MOST_TRIED]


def _tiling(
    operands: GemmOperands, warps: int, most: int, blocks: int, splits: int, *, is_held: bool = True
) -> RowTiling:
    units = -(-operands.a.shape[-1] // (UNIT * warps * splits))
    units = -(-units // -(-units // most))
    return RowTiling(COLUMNS, warps, max(1, 16 // warps), units, blocks, splits, is_held)
