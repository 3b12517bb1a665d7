"""Copies between layouts: one kernel for any number of parts, and tiles in shared memory where the order of axes turns.

Elements are moved as unsigned numbers of their size, so every dtype takes the same way.
"""

import math
from collections.abc import Sequence

from ....ir.plan import View
from . import flat
from .launch import Chip, Kernel, KernelLaunch
from .layouts import Layout, Space, index_lines, index_type, layout_of, offset_text
from .program import KernelProgram, raw

Part = tuple[Layout, Layout]
"""A source and a target of one shape."""

SMALLEST_TURN = 16
"""Axes below this size are not worth a tile."""


def copied(source: View, target: View, chip: Chip) -> tuple[KernelLaunch, ...]:
    """The launches that copy one view to another of the same shape."""
    return copy_of([(layout_of(source), layout_of(target))], chip)


def copy_of(parts: Sequence[Part], chip: Chip) -> tuple[KernelLaunch, ...]:
    """The launches that copy each source to its target."""
    if len(parts) == 1 and parts[0][1].size:
        turned = _turned(*parts[0])
        if turned is not None:
            return (turned,)
    return flat.launch([_program(*part) for part in parts], chip)


def _program(source: Layout, target: Layout) -> KernelProgram:
    program = KernelProgram(target.shape)
    program.store(program.load(raw(source)), raw(target))
    return program


def _turned(source: Layout, target: Layout) -> KernelLaunch | None:
    """A tiled transpose, where the source is contiguous along another axis than the target."""
    source = raw(source.broadcast(target.shape))
    space = Space(target.shape, (target.strides, source.strides)).ordered(0).joined()
    if not space.shape or space.inner(0) != 1 or space.inner(1) in (0, 1):
        return None
    other = next((axis for axis, stride in enumerate(space.strides[1]) if stride == 1), None)
    if other is None or min(space.shape[other], space.shape[-1]) < SMALLEST_TURN:
        return None
    tile = 64 if source.itemsize < 4 else 32
    batch = [axis for axis in range(len(space.shape)) if axis not in (other, len(space.shape) - 1)]
    rows, columns = space.shape[other], space.shape[-1]
    ctype = index_type([source.reach, target.reach, target.size])
    across, down = -(-columns // tile), -(-rows // tile)
    blocks = math.prod(space.shape[axis] for axis in batch) * across * down
    word, step = source.word, 256 // tile
    to, of = ([strides[axis] for axis in batch] for strides in space.strides)
    lines = [
        f"__shared__ {word} tile[{tile}][{tile + 1}];",
        *index_lines("i", f"blockIdx.x / {across * down}u", [space.shape[axis] for axis in batch], ctype),
        f"const int column = (blockIdx.x % {across}u) * {tile}, row = (blockIdx.x / {across}u % {down}u) * {tile};",
        f"const {word}* from = p + ({offset_text('i', of)}); {word}* to = r + ({offset_text('i', to)});",
        f"for (int y = threadIdx.y; y < {tile}; y += {step})",
        f"  if (column + y < {columns} && row + (int)threadIdx.x < {rows})",
        f"    tile[y][threadIdx.x] = from[({ctype})(column + y) * {space.inner(1)} + (row + threadIdx.x)];",
        "__syncthreads();",
        f"for (int y = threadIdx.y; y < {tile}; y += {step})",
        f"  if (row + y < {rows} && column + (int)threadIdx.x < {columns})",
        f"    to[({ctype})(row + y) * {space.strides[0][other]} + (column + threadIdx.x)] = tile[threadIdx.x][y];",
    ]
    head = f'extern "C" __global__ void __launch_bounds__(256) NAME({word}* r, const {word}* p) {{\nbegin();\n'
    kernel = Kernel(head + "\n".join(lines) + "\n}\n", (blocks, 1, 1), (tile, step, 1))
    return KernelLaunch(kernel, (target.place, source.place), 2 * target.size * source.itemsize, may_overlap=True)
