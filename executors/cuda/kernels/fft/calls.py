"""Fourier transforms by cuFFT: what is not rows of numbers one behind another is written as such before and read after.

The library takes a signal as it lies where it can. Else a kernel writes its elements (padded, times a window, in f32)
to scratch memory; results that are scaled, cut or lie otherwise are written there too, and a kernel brings them home.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.kernels import Parameter, per_position
from ...kernel_ir.launch import BufferPlace, Candidate, KernelLaunch, LibraryCall, Task
from ...kernel_ir.layouts import Layout
from ...kernel_ir.types import computed, number
from ...libraries.problems import Spectrum, TransformProblem

_ALIGNMENT = 256
_LARGEST_DIRECT_PRIME = 127
"""Lengths with larger prime factors are transformed by a convolution of a power of two, twice as long at least."""


@dataclass(frozen=True)
class TransformedRows:
    """Rows to transform. `head` are statements that find where row `row` lies, before its elements are read.

    `element` gives `re` and `im` of input number `i`, `store` takes result number `i` from them, of which `kept` are.
    `spectrum` says which of their numbers are real, `inverse` the direction, after which results are divided by
    `length`. Numbers are computed in `wide`, f32 or f64. `x` and `y` are what is read and written, with other
    `parameters` of kernels; with `lies_in_rows`, axes of `x` and `y` before the last two are rows. `is_across`:
    elements of neighboring rows lie nearer to one another than those of one. `neighbors` give inputs
    number 2i and 2i + 1 of real rows as `re` and `im`, where these are read at once.
    """

    count: int
    length: int
    inverse: bool
    wide: DType
    head: Sequence[str]
    element: Sequence[str]
    kept: int
    store: Sequence[str]
    spectrum: Spectrum
    parameters: Sequence[Parameter]
    x: Layout
    y: Layout
    lies_in_rows: bool
    is_across: bool
    neighbors: Sequence[str]

    @property
    def given(self) -> int:
        """How many numbers of a row the library reads."""
        return self.length // 2 + 1 if self.spectrum is Spectrum.TO_REAL else self.length

    @property
    def made(self) -> int:
        """How many numbers of a row it writes."""
        return self.length // 2 + 1 if self.spectrum is Spectrum.OF_REAL else self.length


def by_library(rows: TransformedRows, task: Task, nbytes: int, flops: int) -> Candidate | None:
    """The launches of a transform by the library; None without scratch memory for them."""
    if task.scratch is None:
        return None
    room = _Room(task.scratch)
    launches: list[KernelLaunch | LibraryCall] = []
    parts = {True: 1, False: 2}
    x, y = _direct(rows.x, rows, Spectrum.OF_REAL, rows.given), _direct(rows.y, rows, Spectrum.TO_REAL, rows.made)
    if rows.spectrum is Spectrum.TO_REAL:  # the library may overwrite it, and looks at the parts that have to be 0
        x = None
    if x is None:
        is_real = rows.spectrum is Spectrum.OF_REAL
        x = room.taken(rows.count * rows.given * parts[is_real] * _itemsize(rows))
        launches.append(_gathered(rows, x, is_real))
    brings_home = y is None or rows.inverse
    if brings_home:
        y = room.taken(rows.count * rows.made * parts[rows.spectrum is Spectrum.TO_REAL] * _itemsize(rows))
    assert y is not None
    workspace_bytes = _workspace_bytes(rows)
    workspace = room.taken(workspace_bytes)
    problem = TransformProblem(rows.spectrum, rows.count, rows.length, rows.wide, rows.inverse)
    launches.append(LibraryCall("cufft", problem, {"x": x, "y": y}, nbytes, flops, workspace, workspace_bytes))
    if brings_home:
        launches.append(_brought_home(rows, y))
    return Candidate("cufft", tuple(launches), room.used)


class _Room:
    """Scratch memory, taken piece by piece."""

    def __init__(self, scratch: BufferPlace) -> None:
        self.scratch = scratch
        self.used = 0

    def taken(self, nbytes: int) -> BufferPlace:
        place = BufferPlace(self.scratch.buffer, self.scratch.offset + self.used)
        self.used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return place


def _itemsize(rows: TransformedRows) -> int:
    return rows.wide.numpy.itemsize


def _direct(layout: Layout, rows: TransformedRows, real_where: Spectrum, numbers: int) -> BufferPlace | None:
    """Where a tensor is that consists of rows of so many numbers, one behind another."""
    parts = 1 if rows.spectrum is real_where else 2
    is_such = rows.lies_in_rows and layout.dtype is rows.wide and layout.shape[-1] == parts
    if not is_such or layout.size != rows.count * numbers * parts or layout.alignment < 2 * _itemsize(rows):
        return None
    step = 1
    for size, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if size != 1 and stride != step:
            return None
        step *= size
    return layout.place


def _workspace_bytes(rows: TransformedRows) -> int:
    """An upper bound on what the library wants: it is told how much there is, and refuses where that is too little."""
    length = rows.length
    if _greatest_prime(length) > _LARGEST_DIRECT_PRIME:
        length = 3 * 2 ** math.ceil(math.log2(2 * length)) // 2
    return 2 * rows.count * length * 2 * _itemsize(rows) + (1 << 20)


def _greatest_prime(length: int) -> int:
    prime = greatest = 2
    while prime * prime <= length:
        while length % prime == 0:
            length, greatest = length // prime, prime
        prime += 1
    return max(length, greatest)


def _gathered(rows: TransformedRows, x: BufferPlace, is_real: bool) -> KernelLaunch:
    """Writes what the library reads."""
    c = computed(rows.wide)
    number_at = "rows[p] = re;" if is_real else f"{c}* at_row = rows + 2 * (i64)p; at_row[0] = re; at_row[1] = im;"
    lines = [
        *_numbered(rows.given),
        *rows.head,
        f"{c} re = 0, im = 0;",
        *rows.element,
        f"{number_at} (void)im;",
    ]
    parameters = [Parameter(f"{c}*", "rows", x), *rows.parameters]
    count = rows.count * rows.given
    return per_position(parameters, count, lines, 2 * count * _itemsize(rows), ctype=_wide_enough(count))


def _brought_home(rows: TransformedRows, y: BufferPlace) -> KernelLaunch:
    """Reads what the library wrote, of each row as much as is kept."""
    c = computed(rows.wide)
    is_real = rows.spectrum is Spectrum.TO_REAL
    scale = number(1 / rows.length if rows.inverse else 1.0, c)
    at = f"rows + {1 if is_real else 2} * ((i64)row * {rows.made} + i)"
    lines = [
        *_numbered(rows.kept),
        *rows.head,
        f"const {c}* found = {at};",
        f"const {c} re = found[0] * {scale}; (void)re;",
        *([] if is_real else [f"const {c} im = found[1] * {scale}; (void)im;"]),
        *rows.store,
    ]
    parameters = [Parameter(f"const {c}*", "rows", y), *rows.parameters]
    count = rows.count * rows.kept
    return per_position(parameters, count, lines, 2 * count * _itemsize(rows), ctype=_wide_enough(count))


def _numbered(numbers: int) -> list[str]:
    return [f"const unsigned row = (unsigned)(p / {numbers}u); const int i = (int)(p % {numbers}u); (void)row;"]


def _wide_enough(count: int) -> str:
    return "int" if count < 2**31 else "i64"
