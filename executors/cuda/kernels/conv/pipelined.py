"""Convolutions of channels-last images on tensor cores: a GEMM whose rows are gathered windows.

Eight neighboring channels of a pixel lie side by side, so a 16-byte piece of a window is one copy into shared memory,
of zeros where it lies outside of the image. All else is `pipelined_gemm.py`: the weight is asked for before the kernel
waits for its predecessor, and the inner axis is shared by warps and blocks where there are few pixels.
"""

import math
from collections.abc import Iterator

from .....ir.types import DType
from ...kernel_ir.launch import Candidate
from ...kernel_ir.sources import Source, index_type
from ..gemm.own_kernel_epilogue import Element, OwnKernelEpilogue, own_kernel_epilogue
from ..gemm.pipelined_gemm import Work, staged, tilings_of
from ..gemm.regions import AnchoredRegion
from .convolutions import Window
from .depthwise import offset_in_image
from .image_copies import ImageScratch
from .images import as_image, image_shape

_DTYPES = frozenset({DType.F16, DType.BF16})
_MOST_PIXELS = 1 << 14
_MOST_TILINGS = 3


def lower_pipelined(region: AnchoredRegion, window: Window) -> Iterator[Candidate]:
    """The region as one kernel, in several tilings, behind copies of what is not channels-last."""
    epilogue = own_kernel_epilogue(region)
    x, w = region.operand(0), region.operand(1)
    if epilogue is None or x is None or w is None or len(epilogue.shape) not in (3, 4) or not _fits(x, window):
        return
    scratch = ImageScratch(region.task, 0)
    image, weight = scratch.channels_last(as_image(x)), scratch.weight(w)
    if image is None or weight is None or not image.starts_a_piece or not weight.starts_a_piece:
        return
    work = _work(image, weight, window, epilogue)
    if work.rows > _MOST_PIXELS:
        return
    for tiling in tilings_of(work.rows, work.columns, work.inner, region.task.chip)[:_MOST_TILINGS]:
        yield Candidate(tiling.name, (*scratch.launches, staged(work, tiling)), scratch.used)


def _fits(x: Source, window: Window) -> bool:
    return x.dtype in _DTYPES and window.groups == 1 and not window.is_transposed and x.shape[1] % 8 == 0


def _work(x: Source, weight: Source, window: Window, epilogue: OwnKernelEpilogue) -> Work:
    count, columns, *sizes = image_shape(epilogue.shape)
    inner = math.prod(weight.shape[1:])
    rows = count * math.prod(sizes)

    def element(row: str, column: str, suffix: str) -> tuple[str, Element]:
        names = [f"image{suffix}", column, f"high{suffix}", f"wide{suffix}"]
        before = _pixel(row, names, sizes)
        return before, epilogue.element(offset_in_image(epilogue, names), suffix)

    def place(row: str, k: str) -> str:
        return _place(x, weight, window, sizes, row, k, f"{row} < {rows} && {k} < {inner}")

    return Work(rows, columns, inner, x.dtype, x, weight, inner, place, epilogue, element)


def _pixel(row: str, names: list[str], sizes: list[int]) -> str:
    image, _, high, wide = names
    return (
        f"const int {image} = {row} / {math.prod(sizes)}, {high} = {row} / {sizes[1]} % {sizes[0]}, "
        f"{wide} = {row} % {sizes[1]};"
    )


def _place(x: Source, weight: Source, window: Window, sizes: list[int], row: str, k: str, inside: str) -> str:
    """Where the window of a pixel has the 8 channels that an index of the inner axis stands for."""
    channels, taps = weight.shape[1], weight.shape[3]
    (down, right), (above, before) = window.strides, window.pads[:2]
    index = index_type(x)
    image, high, wide = (x.strides[axis] for axis in (0, 2, 3))
    return (
        f"const int tap = {k} / {channels}; {_pixel(row, ['image', '', 'y', 'x0'], sizes)} "
        f"const int at0 = y * {down} - {above} + tap / {taps} * {window.dilations[0]}; "
        f"const int at1 = x0 * {right} - {before} + tap % {taps} * {window.dilations[1]}; "
        f"const bool is_there = {inside} && at0 >= 0 && at0 < {x.shape[2]} && at1 >= 0 && at1 < {x.shape[3]}; "
        f"const {index} from = ({index})image * {image} + ({index})at0 * {high} + ({index})at1 * {wide} + "
        f"{k} % {channels};"
    )
