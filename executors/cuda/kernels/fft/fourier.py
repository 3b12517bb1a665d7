"""Fourier transforms: dft and stft. Rows that fit in shared memory by Stockham's order-preserving passes, or by cuFFT.

A pass of radix r transforms r elements among themselves, and turns the results by powers of the N-th root of one;
passes take turns between two halves of shared memory (C. Van Loan, Computational Frameworks for the Fast Fourier
Transform, 1992, 1.7). Radices up to 11 are spelled out (`butterflies.py`), so inverse transforms of such lengths get
NumPy's bits; the others it computes in f64. A larger prime is a sum for each result. The roots are a table, made in
f64, which blocks, where they are few, read before they wait for the rows. Real signals of even length
are transformed as complex ones of half the length, of which the spectrum is then made.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from .....ir.constant import Constant
from .....ir.ops.rules import normal_axis
from .....ir.types import DType
from ...kernel_ir.kernels import Parameter, launch_of, reach_type, read, written
from ...kernel_ir.launch import Candidate, KernelLaunch, Lowering, Packed, Task
from ...kernel_ir.layouts import Layout, index_lines
from ...kernel_ir.moving import operand, result
from ...kernel_ir.pointwise import has_types
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import computed, number
from ...libraries.problems import Spectrum
from ..resize.sampling import wide_type
from .butterflies import LARGEST_SPELLED, arithmetic, radices, spelled
from .calls import TransformedRows, by_library

_LONGEST, _LONGEST_OF_LARGE_PRIMES = 4096, 255
"""Up to these lengths passes are the first guess: of radices that are spelled out, and with larger ones."""
_ELEMENTS_OF_A_BLOCK = 1024
_ELEMENTS_OF_A_THREAD = (4, 8)
"""How many a thread has where there are not too many threads."""
_THREADS = 512
_MOST_TURNS = 8
"""How many turns of a loop are unrolled at most."""
_FEW_BLOCKS = 8
"""For each multiprocessor: of so few what they wait for is what they cost, not their registers."""
_SECTOR_BYTES = 32
"""What is read at once: so much of neighboring rows is taken by one block where rows lie across memory."""


def _candidates(rows: TransformedRows, task: Task) -> Iterator[Candidate]:
    nbytes = rows.x.nbytes + rows.y.nbytes
    library, passes = by_library(rows, task, nbytes, flops_of(task)), list(_in_passes(rows, task, nbytes))
    by_calls = [] if library is None else [library]
    is_spelled = all(radix <= LARGEST_SPELLED for radix in radices(rows.length))
    longest = _LONGEST if is_spelled else _LONGEST_OF_LARGE_PRIMES
    yield from [*passes, *by_calls] if rows.length <= longest else [*by_calls, *passes]


@dataclass(frozen=True)
class _Block:
    """How a block transforms `each` rows of `length` complex numbers, which lie one behind another in shared memory.

    With `is_halved` these are the pairs of neighbors of real rows twice as long, which are read or written. With
    `is_one_of_few` what a block waits for is what it costs, not its registers.
    """

    rows: TransformedRows
    each: int
    length: int
    is_halved: bool
    is_one_of_few: bool
    of_thread: int = _ELEMENTS_OF_A_THREAD[0]

    @property
    def radices(self) -> list[int]:
        """A pass for each, at least one."""
        return radices(self.length) or [1]

    @property
    def reads_first(self) -> bool:
        """Whether elements are brought to shared memory first: else the first pass reads them where they are."""
        return self.radices[0] > LARGEST_SPELLED

    @property
    def writes_last(self) -> bool:
        """Whether the last pass leaves its results in shared memory: else it writes them where they belong."""
        return self.is_told_apart or self.radices[-1] > LARGEST_SPELLED

    @property
    def is_told_apart(self) -> bool:
        """Whether the results are made of those of the passes."""
        return self.is_halved and self.rows.spectrum is Spectrum.OF_REAL

    @property
    def half(self) -> int:
        """Numbers in one of the two halves of shared memory, between which passes take turns."""
        return _padded(self.each * self.length)

    @property
    def halves(self) -> int:
        """How many halves of shared memory there are: two, but for fewer turns."""
        return min(2, len(self.radices) - 1 + self.reads_first + self.writes_last)

    @property
    def shared_bytes(self) -> int:
        """What they take."""
        return self.halves * self.half * 2 * self.rows.wide.numpy.itemsize

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return min(_THREADS, max(32, -(-self.each * self.length // self.of_thread // 32) * 32))

    @property
    def row(self) -> str:
        """Statements for the row of an element; there may be none for it in the last block."""
        found = f"const unsigned row = blockIdx.x * {self.each}u + of;"
        return found if self.rows.count % self.each == 0 else f"{found} if (row >= {self.rows.count}u) continue;"

    def elements(self, length: int, name: str = "i") -> str:
        """A loop over elements of rows `of`, in the order in which they lie in memory."""
        loop = self.shared_out(self.each * length)
        if self.each == 1:
            return f"{loop} const int of = 0, {name} = n;"
        if self.rows.is_across:
            return f"{loop} const int of = n % {self.each}, {name} = n / {self.each};"
        return f"{loop} const int of = n / {length}, {name} = n % {length};"

    def is_early(self, count: int) -> bool:
        """Whether what threads need for numbers below `count` is known, and read, before they wait for the rows."""
        return self.is_one_of_few and count <= _MOST_TURNS * self.threads

    def shared_out(self, count: int) -> str:
        """A loop of the threads over numbers `n` below `count`, unrolled (over `u`) where blocks are few."""
        turns = -(-count // self.threads)
        if not self.is_early(count):
            return f"for (int n = threadIdx.x; n < {count}; n += {self.threads}) {{"
        rest = "" if count % self.threads == 0 else f" if (u == {turns - 1} && n >= {count}) continue;"
        return (
            f'_Pragma("unroll") for (int u = 0; u < {turns}; u++) {{'
            f" const int n = threadIdx.x + u * {self.threads};{rest}"
        )


def _block_of(rows: TransformedRows, task: Task) -> _Block | None:
    """Rows for one block, of which the chip gets enough. None where they do not fit into shared memory."""
    is_halved = rows.spectrum is not Spectrum.COMPLEX and rows.length % 2 == 0
    length = rows.length // 2 if is_halved else rows.length
    each = max(1, min(_ELEMENTS_OF_A_BLOCK // length, rows.count // task.chip.multiprocessors))
    if rows.is_across:
        each = max(each, min(rows.count, _SECTOR_BYTES // (rows.x.itemsize * rows.x.shape[-1])))
    for fitting in range(each, 0, -1):
        is_few = not rows.is_across and -(-rows.count // fitting) <= _FEW_BLOCKS * task.chip.multiprocessors
        block = _Block(rows, fitting, length, is_halved, is_few)
        if block.shared_bytes <= task.chip.shared_bytes:
            return block
    return None


class _Table:
    """Powers of the root exp(-2 pi i / length), or its conjugate, in the order in which threads read them."""

    def __init__(self, length: int, inverse: bool) -> None:
        self.early: list[str] = []
        """Statements by which threads read powers before they wait for what they transform."""
        self._length, self._inverse = length, inverse
        self._parts: dict[tuple[int, ...], int] = {}
        self._size = 0

    def place(self, powers: npt.NDArray[np.int64]) -> int:
        """Where these powers are."""
        part = tuple((powers.reshape(-1) % self._length).tolist())
        if part not in self._parts:
            self._parts[part] = self._size
            self._size += len(part)
        return self._parts[part]

    def packed(self, wide: DType) -> Packed:
        """The powers as numbers, made in f64."""
        angles = np.array([*chain.from_iterable(self._parts)] or [0]) * (2 * np.pi / self._length)
        table = np.stack([np.cos(angles), np.sin(angles) if self._inverse else -np.sin(angles)], axis=-1)
        table[np.abs(table) < 1e-12] = 0  # those of quarters of a turn
        return Packed(Constant(np.ascontiguousarray(table.astype(wide.numpy))), "contiguous")


def _in_passes(rows: TransformedRows, task: Task, nbytes: int) -> Iterator[Candidate]:
    """One kernel, with few or many elements for a thread."""
    block = _block_of(rows, task)
    if block is None:
        return
    tried = {each.threads: each for each in (replace(block, of_thread=n) for n in reversed(_ELEMENTS_OF_A_THREAD))}
    for each in sorted(tried.values(), key=lambda each: each.of_thread):
        name = "passes" if len(tried) == 1 else f"passes-{each.of_thread}"
        yield Candidate(name, (_pass_launch(each, task, nbytes),))


def _pass_launch(block: _Block, task: Task, nbytes: int) -> KernelLaunch:
    rows, c = block.rows, computed(block.rows.wide)
    table = _Table(rows.length, rows.inverse)
    types = [
        f"struct alignas(2 * sizeof({c})) number {{ {c} re, im; }};",
        "const number* roots = (const number*)table; (void)roots;",
    ]
    lines = [
        f"extern __shared__ __align__(16) {c} memory[]; number* from = (number*)memory;",
        f"number* to = from + {block.half * (block.halves // 2)}; (void)to;",
        "const auto spot = [](unsigned i) { return i + i / 8; }; (void)spot;",
        *arithmetic(c, inverse=rows.inverse),
    ]
    swapped = "{ number* other = from; from = to; to = other; }"
    if block.reads_first:
        lines += [f"{block.elements(block.length, 'j')} {block.row}", *rows.head]
        lines += [*_element(block, table, "x0", "j", c), f"from[spot(of * {block.length} + j)] = x0;", "}"]
        lines.append("__syncthreads();")
    done = 1
    for radix in block.radices:
        lines += _pass(block, table, radix, done)
        done *= radix
        if done < block.length or block.writes_last:
            lines += ["__syncthreads();", swapped]
    if block.is_told_apart:
        lines += _told_apart(block, table, c)
    elif block.writes_last:
        lines += [f"{block.elements(block.length, 'j')} {block.row}", *rows.head]
        lines += [f"const number y0 = from[spot(of * {block.length} + j)];", *_stores(block, "y0", "j", c), "}"]
    parameters = [*rows.parameters, Parameter(f"const {c}* __restrict__", "table", table.packed(rows.wide))]
    grid = (-(-rows.count // block.each), 1, 1)
    flops = flops_of(task)
    early = [*types, *table.early]
    return launch_of(parameters, lines, grid, (block.threads, 1, 1), nbytes, flops, block.shared_bytes, early)


def _told_apart(block: _Block, table: _Table, c: str) -> list[str]:
    """Statements for the results of pairs of neighbors, as far from either end: those of even and odd ones first."""
    rows, length = block.rows, block.length
    half = number(0.5, c)
    pairs = length // 2 + 1
    root = table.place(np.arange(pairs))
    by = f"roots[{root} + k]"
    if block.each == 1 and block.is_early(pairs):
        turns = -(-pairs // block.threads)
        table.early += [
            f'number root[{turns}]; _Pragma("unroll") for (int u = 0; u < {turns}; u++) {{',
            f"const int k = threadIdx.x + u * {block.threads};",
            f"root[u] = roots[{root} + (k < {pairs} ? k : 0)]; }}",  # predicated, they would be moved behind the wait
        ]
        by = "root[u]"
    return [
        f"{block.elements(pairs, 'k')} {block.row}",
        *rows.head,
        f"const number a = from[spot(of * {length} + k)], b = from[spot(of * {length} + (k ? {length} - k : 0))];",
        f"const number even = scaled({half}, number{{a.re + b.re, a.im - b.im}});",
        f"const number odd = times(scaled({half}, number{{a.im + b.im, b.re - a.re}}), {by});",
        "{ const int i = k; const auto re = even.re + odd.re, im = even.im + odd.im;",
        *rows.store,
        f"}} {{ const int i = {length} - k; const auto re = even.re - odd.re, im = odd.im - even.im;",
        *rows.store,
        "} }",
    ]


def _stores(block: _Block, name: str, place: str, c: str) -> list[str]:
    """Statements that store a result of the passes, with `is_halved` two; an inverse one is divided by the length."""
    rows = block.rows
    scale = number(1 / rows.length if rows.inverse else 1.0, c)
    guard = f"if (i < {rows.kept}) " if rows.kept < rows.length else ""
    parts = {f"2 * ({place})": "re", f"2 * ({place}) + 1": "im"} if block.is_halved else {place: "re"}
    lines: list[str] = []
    for at, part in parts.items():
        lines += [
            f"{{ const int i = {at}; {guard}{{",
            f"const {c} re = {name}.{part} * {scale}, im = {name}.im * {scale}; (void)im;",
            *rows.store,
            "} }",
        ]
    return lines


def _padded(count: int) -> int:
    """With a place left free after each eight, elements that lie 8, 64, ... apart are in different banks."""
    return count + count // 8 + 1


def _pass(block: _Block, table: _Table, radix: int, done: int) -> list[str]:
    """Transforms of `done` parts become `radix` times as many, as much shorter: `i` is the place in one of `inner`."""
    each, length, rows = block.each, block.length, block.rows
    turn = 2 if block.is_halved else 1
    step = length // radix
    inner = step // done
    if radix > LARGEST_SPELLED:
        roots = table.place(np.arange(length) * turn)
        return [
            block.shared_out(each * length),
            f"const int of = n / {length} * {length}, q = n % {length} / {step}, j = n % {step}, i = j % {inner};",
            f"const int place = of + i + j / {inner} * {radix * inner};",
            "number sum = {0, 0};",
            f"for (int m = 0; m < {radix}; m++) {{",
            f"const number by = roots[{roots} + (int)((i64)q * (m * {step} + i * {done}) % {length})];",
            f"sum = plus(sum, times(from[spot(place + m * {inner})], by)); }}",
            "to[spot(n)] = sum; }",
        ]
    is_first, is_last = done == 1 and not block.reads_first, inner == 1 and not block.writes_last
    if is_first or is_last:
        lines = [f"{block.elements(step, 'j')} {block.row}", *rows.head]
    else:
        of, j = ("0", "n") if each == 1 else (f"n / {step}", f"n % {step}")
        lines = [block.shared_out(each * step), f"const int of = {of}, j = {j};"]
    c = computed(rows.wide)
    if is_first:
        lines += [line for m in range(radix) for line in _element(block, table, f"x{m}", f"j + {m * step}", c)]
    else:
        lines.append(f"const int place = of * {length} + j % {inner} + j / {inner} * {radix * inner};")
        lines += _places("given", "from", "place", radix, inner, is_aligned=8 % (radix * inner) == 0)
        lines += [f"const number x{m} = given{m};" for m in range(radix)]
    lines += spelled(radix, c)
    if inner > 1:
        turns = table.place(np.arange(1, radix)[:, None] * np.arange(inner) * (turn * done))
        by = [f"by{done}_{q}" for q in range(1, radix)]
        places = [turns + (q - 1) * inner for q in range(1, radix)]
        if each * step <= block.threads and block.is_early(each * step):
            named = zip(by, places, strict=True)
            table.early += [f"const number {name} = roots[{place} + threadIdx.x % {inner}];" for name, place in named]
        else:
            lines.append(f"const number* by = roots + j % {inner};")
            by = [f"by[{place}]" for place in places]
        lines += [f"const number z{q} = times(y{q}, {by[q - 1]});" for q in range(1, radix)]
    names = ["y0", *(f"{'z' if inner > 1 else 'y'}{q}" for q in range(1, radix))]
    if is_last:
        lines += [line for q, name in enumerate(names) for line in _stores(block, name, f"j + {q * step}", c)]
    else:
        lines += _places("made", "to", f"of * {length} + j", radix, step, is_aligned=False)
        lines += [f"made{q} = {name};" for q, name in enumerate(names)]
    return [*lines, "}"]


def _element(block: _Block, table: _Table, name: str, place: str, c: str) -> list[str]:
    """Statements that name an element as the passes see it, read from where it is."""
    rows, length = block.rows, block.length
    if block.is_halved and rows.spectrum is Spectrum.TO_REAL:
        turn = table.place(np.arange(length))
        return [
            f"number {name}; {{",
            *_read("a", place, rows, c),
            *_read("b", f"{length} - ({place})", rows, c),
            "const number even = {a.re + b.re, a.im - b.im}, odd = {a.re - b.re, a.im + b.im};",
            f"{name} = plus(even, turned(times(odd, roots[{turn} + {place}]))); }}",
        ]
    if not block.is_halved:
        return _read(name, place, rows, c)
    if rows.neighbors:
        return [
            f"number {name}; {{ const int i = {place}; {c} re, im;",
            *rows.neighbors,
            f"{name} = number{{re, im}}; }}",
        ]
    first, second = (_read(f"{name}_{part}", f"2 * ({place}) + {part}", rows, c) for part in range(2))
    return [*first, *second, f"const number {name} = {{{name}_0.re, {name}_1.re}};"]


def _read(name: str, place: str, rows: TransformedRows, c: str) -> list[str]:
    """Statements that name an element of a row."""
    element = [f"number {name}; {{ const int i = {place}; {c} re = 0, im = 0;", *rows.element]
    return [*element, f"{name} = number{{re, im}}; }}"]


def _places(name: str, memory: str, base: str, count: int, step: int, *, is_aligned: bool) -> list[str]:
    """Statements that name numbers in shared memory, `step` apart from `base` on.

    Eights apart, or all in one eight (`is_aligned`), they are as far from the first wherever that is.
    """
    if not is_aligned and step % 8:
        return [f"number& {name}{m} = {memory}[spot({base} + {m * step})];" for m in range(count)]
    far = step if is_aligned else step // 8 * 9
    return [
        f"number* const {name} = {memory} + spot({base});",
        *(f"number& {name}{m} = {name}[{m * far}];" for m in range(count)),
    ]


# ---- dft


def _lower_dft(task: Task) -> Iterator[Candidate]:
    x, y, attrs = operand(task), result(task), task.node.attrs
    if not has_types(task.node) or not y.size:
        return
    axis = normal_axis(attrs["axis"], len(x.shape))
    inverse, onesided = attrs["inverse"], attrs["onesided"]
    length = attrs["length"]
    if length is None:
        length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    wide, present = wide_type(x.dtype), x.shape[axis]
    others = [n for n in range(len(x.shape) - 1) if n != axis]
    shape = [x.shape[n] for n in others]
    count = math.prod(shape)
    rows = TransformedRows(
        count,
        length,
        inverse,
        wide,
        [
            *index_lines("c", "row", shape, reach_type((x, y))),
            f"const {x.ctype}* x_row = x + ({_row(x, others)}); (void)x_row;",
            f"{y.ctype}* y_row = y + ({_row(y, others)}); (void)y_row;",
        ],
        _dft_element(x, axis, min(present, length), length, is_half=inverse and onesided),
        y.shape[axis],
        _stored(x, y, axis, length),
        _spectrum(x.shape[-1], inverse=inverse, onesided=onesided),
        (written("y", y), read("x", x)),
        x,
        y,
        lies_in_rows=math.prod(x.shape[axis + 1 : -1]) == 1,
        is_across=any(x.shape[n] > 1 and abs(x.strides[n]) < abs(x.strides[axis]) for n in others),
        neighbors=_neighbors(x, axis, is_even=present >= length),
    )
    yield from _candidates(rows, task)


def _spectrum(parts: int, *, inverse: bool, onesided: bool) -> Spectrum:
    if not onesided:
        return Spectrum.COMPLEX
    if inverse:
        return Spectrum.TO_REAL
    return Spectrum.OF_REAL if parts == 1 else Spectrum.COMPLEX


def _row(layout: Layout, others: Sequence[int]) -> str:
    return " + ".join(f"c{n} * {layout.strides[axis]}" for n, axis in enumerate(others)) or "0"


def _dft_element(x: Layout, axis: int, present: int, length: int, *, is_half: bool) -> list[str]:
    """Elements behind the signal are zeros; of half a spectrum the rest are the conjugates from its end."""
    step = x.strides[axis]
    both = _parts(x)
    if not is_half:
        return [f"if (i < {present}) {{ const {x.ctype}* at = x_row + (i64)i * {step}; {both} }}"]
    return [
        f"const bool is_mirrored = i > {length // 2}; const int own = is_mirrored ? {length} - i : i;",
        f"if (own < {present}) {{ const {x.ctype}* at = x_row + (i64)own * {step}; {both} }}",
        f"if (own == 0 || 2 * own == {length}) im = 0;",
        "if (is_mirrored) im = -im;",
    ]


def _has_pairs(layout: Layout, axis: int) -> bool:
    """Whether neighbors along an axis, the first of them at an even place, can be moved as one."""
    axis %= len(layout.shape)
    sizes = enumerate(zip(layout.shape, layout.strides, strict=True))
    others = [stride for other, (size, stride) in sizes if other != axis and size > 1]
    is_aligned = layout.alignment % (2 * layout.itemsize) == 0
    return layout.strides[axis] == 1 and is_aligned and not any(stride % 2 for stride in others)


def _parts(x: Layout) -> str:
    """Statements for the parts of a number that lies `at` a place."""
    if x.shape[-1] == 1:
        return "re = get(at[0]);"
    if not _has_pairs(x, -1):
        return f"re = get(at[0]); im = get(at[{x.strides[-1]}]);"
    return f"const auto both = *(const pack<{x.ctype}, 2>*)at; re = get(both.v[0]); im = get(both.v[1]);"


def _neighbors(x: Layout, axis: int, *, is_even: bool) -> list[str]:
    """Statements for elements 2i and 2i + 1 of a real signal as `re` and `im`; none where they are not read at once."""
    if x.shape[-1] != 1 or not is_even or not _has_pairs(x, axis):
        return []
    pair = f"pack<{x.ctype}, 2>"
    return [f"const auto both = *(const {pair}*)(x_row + 2 * (i64)i); re = get(both.v[0]); im = get(both.v[1]);"]


def _stored(x: Layout, y: Layout, axis: int, length: int) -> list[str]:
    """Stores results; of a real signal the first, and that in the middle, are real."""
    step, part = y.strides[axis], y.strides[-1]
    if y.shape[-1] == 1:
        return [f"put(y_row[(i64)i * {step}], re);"]
    im = f"i == 0 || 2 * i == {length} ? 0 : im" if x.shape[-1] == 1 else "im"
    if not _has_pairs(y, -1):
        return [f"put(y_row[(i64)i * {step}], re); put(y_row[(i64)i * {step} + {part}], {im});"]
    pair = f"pack<{y.ctype}, 2>"
    return [f"{pair} both; put(both.v[0], re); put(both.v[1], {im}); *({pair}*)(y_row + (i64)i * {step}) = both;"]


# ---- stft


def _lower_stft(task: Task) -> Iterator[Candidate]:
    x, y, attrs = operand(task), result(task), task.node.attrs
    window = operand(task, 1) if len(task.operands) > 1 and task.operands[1] is not None else None
    if not has_types(task.node) or not y.size:
        return
    wide, length = wide_type(x.dtype), attrs["frame_length"]
    batch, frames = y.shape[:2]
    by = f"const {computed(wide)} w = get(window[i * {window.strides[0]}]); re *= w; im *= w;" if window else ""
    pair = _neighbors(x, 1, is_even=attrs["frame_step"] % 2 == 0)
    rows = TransformedRows(
        batch * frames,
        length,
        False,
        wide,
        [
            *index_lines("c", "row", (batch, frames), reach_type((x, y))),
            f"const {x.ctype}* x_row = x + (c0 * {x.strides[0]} + c1 * {attrs['frame_step'] * x.strides[1]});",
            "(void)x_row;",
            f"{y.ctype}* y_row = y + (c0 * {y.strides[0]} + c1 * {y.strides[1]}); (void)y_row;",
        ],
        [f"const {x.ctype}* at = x_row + (i64)i * {x.strides[1]}; {_parts(x)} {by}"],
        y.shape[2],
        _stored(x, y, 2, length),
        _spectrum(x.shape[2], inverse=False, onesided=y.shape[2] < length),
        (written("y", y), read("x", x), *([read("window", window)] if window else [])),
        x,
        y,
        lies_in_rows=False,
        is_across=False,
        neighbors=[*pair, *_windowed(window)] if pair else [],
    )
    yield from _candidates(rows, task)


def _windowed(window: Layout | None) -> list[str]:
    """Statements that multiply `re` and `im` by elements 2i and 2i + 1 of a window."""
    if window is None:
        return []
    if _has_pairs(window, 0):
        pair = f"pack<{window.ctype}, 2>"
        return [f"const auto by = *(const {pair}*)(window + 2 * i); re *= get(by.v[0]); im *= get(by.v[1]);"]
    step = window.strides[0]
    return [f"re *= get(window[2 * i * {step}]); im *= get(window[(2 * i + 1) * {step}]);"]


LOWERINGS: Mapping[str, Lowering] = {"dft": _lower_dft, "stft": _lower_stft}
"""Spectra."""
