"""Fourier transforms: dft and stft. Rows that fit in shared memory by Stockham's order-preserving passes, or by cuFFT.

A pass of radix r transforms r elements among themselves, and turns the results by powers of the N-th root of one;
passes take turns between two halves of shared memory (C. Van Loan, Computational Frameworks for the Fast Fourier
Transform, 1992, 1.7). Radices up to 11 are spelled out, over elements in registers, as pocketfft does it, which NumPy
has: factors and sums in one order, products rounded by themselves. So inverse transforms of such lengths get NumPy's
bits; the others it computes in f64. A larger prime is a sum for each result. The roots are a table, made in f64. Real
signals of even length are transformed as complex ones of half the length, of which the spectrum is then made.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from .....ir.constant import Constant
from .....ir.ops.rules import normal_axis
from .....ir.types import DType
from ...kernel_ir.casts import converted
from ...kernel_ir.kernels import Parameter, launch_of, read, written
from ...kernel_ir.launch import Candidate, KernelLaunch, Lowering, Packed, Task
from ...kernel_ir.layouts import Layout, index_lines
from ...kernel_ir.moving import operand, result
from ...kernel_ir.pointwise import has_types
from ...kernel_ir.regions import flops_of
from ...kernel_ir.types import Name, computed, number
from ...libraries.problems import Spectrum
from ..resize.sampling import wide_type
from .calls import TransformedRows, by_library

_SHORTEST_BY_LIBRARY, _SHORTEST_AMONG_KERNELS = 256, 4096
"""From these lengths on the library is the first guess, without a kernel before or after, and with some."""
_LARGEST_SPELLED = 11
"""The largest radix whose sums are written out."""

_ELEMENTS_OF_A_BLOCK = 2048
_ELEMENTS_OF_A_THREAD = (4, 8)
"""How many a thread has where there are not too many threads."""
_THREADS = 512
_SECTOR_BYTES = 32
"""What is read at once: so much of neighboring rows is taken by one block where rows lie across memory."""


def radices(length: int) -> list[int]:
    """The radices of the passes for a length, whose product it is: a 2 comes first, and odd ones come last."""
    found: list[int] = []
    for radix in (8, 4):
        while length % radix == 0:
            found.append(radix)
            length //= radix
    if length % 2 == 0:
        found.append(2)
        length //= 2
        found[0], found[-1] = found[-1], found[0]
    prime = 3
    while length > 1:
        while length % prime == 0:
            found.append(prime)
            length //= prime
        prime += 2
    return found


def _ways(rows: TransformedRows, task: Task) -> Iterator[Candidate]:
    nbytes = rows.x.nbytes + rows.y.nbytes
    library, passes = by_library(rows, task, nbytes, flops_of(task)), list(_in_passes(rows, task, nbytes))
    by_calls = [] if library is None else [library]
    is_spelled = all(radix <= _LARGEST_SPELLED for radix in radices(rows.length))
    is_alone = library is None or len(library.launches) == 1
    shortest = _SHORTEST_BY_LIBRARY if is_alone or not is_spelled else _SHORTEST_AMONG_KERNELS
    yield from [*passes, *by_calls] if rows.length < shortest else [*by_calls, *passes]


@dataclass(frozen=True)
class _Block:
    """How a block transforms `each` rows of `length` complex numbers, which lie one behind another in shared memory.

    With `is_halved` these are the pairs of neighbors of real rows twice as long.
    """

    rows: TransformedRows
    each: int
    length: int
    is_halved: bool
    of_thread: int = _ELEMENTS_OF_A_THREAD[0]

    @property
    def shared_bytes(self) -> int:
        """Two halves, between which passes take turns."""
        return 2 * _padded(self.each * self.length) * 2 * self.rows.wide.numpy.itemsize

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return min(_THREADS, max(32, -(-self.each * self.length // self.of_thread // 32) * 32))

    @property
    def root_step(self) -> int:
        """Which of the roots in the table are those of passes."""
        return 2 if self.is_halved else 1

    def elements(self, length: int) -> str:
        """A loop over elements `i` of rows `of`, in the order in which they lie in memory."""
        loop = f"for (int n = threadIdx.x; n < {self.each * length}; n += {self.threads})"
        if self.rows.is_across:
            return f"{loop} {{ const int of = n % {self.each}, i = n / {self.each};"
        return f"{loop} {{ const int of = n / {length}, i = n % {length};"


def _block_of(rows: TransformedRows, task: Task) -> _Block | None:
    """None where rows do not fit into shared memory."""
    is_halved = rows.spectrum is Spectrum.OF_REAL and rows.length % 2 == 0
    length = rows.length // 2 if is_halved else rows.length
    each = _ELEMENTS_OF_A_BLOCK // length
    if rows.is_across:
        each = max(each, _SECTOR_BYTES // (rows.x.itemsize * rows.x.shape[-1]))
    for fitting in range(max(1, min(rows.count, each)), 0, -1):
        block = _Block(rows, fitting, length, is_halved)
        if block.shared_bytes <= task.chip.shared_bytes:
            return block
    return None


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
    row = f"const unsigned row = blockIdx.x * {block.each}u + of; if (row >= {rows.count}u) continue;"
    lines = [
        f"struct number {{ {c} re, im; }};",
        f"extern __shared__ {c} memory[]; number* from = (number*)memory;",
        f"number* to = from + {_padded(block.each * block.length)};",
        "const auto spot = [](int i) { return i + i / 8; };",
        "const number* roots = (const number*)table;",
        *_arithmetic(c, inverse=rows.inverse),
        f"{block.elements(rows.length)} {row}",
        *rows.head,
        f"{c} re = 0, im = 0;",
        *rows.element,
        *_kept(block, c),
        "}",
        "__syncthreads();",
    ]
    done = 1
    for radix in radices(block.length):
        lines += _pass(block, radix, done)
        lines += ["__syncthreads();", "{ number* other = from; from = to; to = other; }"]
        done *= radix
    lines += [f"{block.elements(rows.kept)} {row}", *rows.head, *_found(block, c), *rows.store, "}"]
    roots = _roots(rows.length, rows.inverse, rows.wide)
    parameters = [*rows.parameters, Parameter(f"const {c}*", "table", roots)]
    grid = (-(-rows.count // block.each), 1, 1)
    flops = flops_of(task)
    return launch_of(parameters, lines, grid, (block.threads, 1, 1), nbytes, flops, block.shared_bytes)


def _kept(block: _Block, c: str) -> list[str]:
    """Statements that keep an element for the passes."""
    if block.is_halved:
        return [f"(({c}*)from)[2 * spot(of * {block.length} + i / 2) + i % 2] = re; (void)im;"]
    return [f"from[spot(of * {block.length} + i)] = number{{re, im}};"]


def _found(block: _Block, c: str) -> list[str]:
    """Statements for result `i`: of pairs of neighbors the even and the odd ones are told apart first."""
    rows, length = block.rows, block.length
    if not block.is_halved:
        scale = number(1 / rows.length if rows.inverse else 1.0, c)
        return [
            f"const number found = from[spot(of * {length} + i)];",
            f"const {c} re = found.re * {scale}, im = found.im * {scale};",
        ]
    half = number(0.5, c)
    return [
        f"const number a = from[spot(of * {length} + (i < {length} ? i : 0))];",
        f"const number b = from[spot(of * {length} + (i ? {length} - i : 0))];",
        f"const number even = scaled({half}, number{{a.re + b.re, a.im - b.im}});",
        f"const number odd = scaled({half}, number{{a.im + b.im, b.re - a.re}});",
        "const number found = plus(even, times(odd, roots[i])); const auto re = found.re, im = found.im;",
    ]


def _padded(count: int) -> int:
    """With a place left free after each eight, elements that lie 8, 64, ... apart are in different banks."""
    return count + count // 8 + 1


def _roots(length: int, inverse: bool, wide: DType) -> Packed:
    """exp(-2 pi i k / length), or its conjugate, for every k."""
    angles = np.arange(length) * (2 * np.pi / length)
    table = np.stack([np.cos(angles), np.sin(angles) if inverse else -np.sin(angles)], axis=-1)
    table[np.abs(table) < 1e-12] = 0  # those of quarters of a turn
    return Packed(Constant(np.ascontiguousarray(table.astype(wide.numpy))), "contiguous")


def _pass(block: _Block, radix: int, done: int) -> list[str]:
    """Transforms of `done` parts become `radix` times as many, as much shorter: `i` is the place in one of `inner`."""
    each, length, turn = block.each, block.length, block.root_step
    step = length // radix
    inner = step // done
    if radix > _LARGEST_SPELLED:
        return [
            f"for (int n = threadIdx.x; n < {each * length}; n += {block.threads}) {{",
            f"const int of = n / {length} * {length}, q = n % {length} / {step}, j = n % {step}, i = j % {inner};",
            f"const int place = of + i + j / {inner} * {radix * inner};",
            "number sum = {0, 0};",
            f"for (int m = 0; m < {radix}; m++) {{",
            f"const number by = roots[{turn} * (int)((i64)q * (m * {step} + i * {done}) % {length})];",
            f"sum = plus(sum, times(from[spot(place + m * {inner})], by)); }}",
            "to[spot(n)] = sum; }",
        ]
    lines = [
        f"for (int n = threadIdx.x; n < {each * step}; n += {block.threads}) {{",
        f"const int of = n / {step} * {length}, j = n % {step}, i = j % {inner};",
        f"const int place = of + i + j / {inner} * {radix * inner};",
        *(f"const number x{m} = from[spot(place + {m * inner})];" for m in range(radix)),
        *_SPELLED.get(radix, partial(_odd, radix))(computed(block.rows.wide)),
        "to[spot(of + j)] = y0;",
    ]
    for q in range(1, radix):
        found = f"times(y{q}, roots[i * {turn * q * done}])" if inner > 1 else f"y{q}"
        lines.append(f"to[spot(of + j + {q * step})] = {found};")
    return [*lines, "}"]


def _arithmetic(c: str, *, inverse: bool) -> list[str]:
    """Functions of complex numbers. Products are rounded by themselves; `turned` is a quarter of a turn."""
    product = "__dmul_rn" if c == "double" else "__fmul_rn"
    quarter = "number{-a.im, a.re}" if inverse else "number{a.im, -a.re}"
    return [
        "const auto plus = [](number a, number b) { return number{a.re + b.re, a.im + b.im}; };",
        "const auto minus = [](number a, number b) { return number{a.re - b.re, a.im - b.im}; };",
        f"const auto turned = [](number a) {{ return {quarter}; }};",
        f"const auto scaled = []({c} s, number a) {{ return number{{{product}(s, a.re), {product}(s, a.im)}}; }};",
        "const auto times = [](number a, number b) {",
        f"return number{{{product}(a.re, b.re) - {product}(a.im, b.im),",
        f"{product}(a.re, b.im) + {product}(a.im, b.re)}}; }};",
        "(void)plus; (void)minus; (void)turned; (void)scaled; (void)times;",
    ]


def _two(_c: str) -> list[str]:
    return ["const number y0 = plus(x0, x1), y1 = minus(x0, x1);"]


def _four(_c: str) -> list[str]:
    return [
        "const number even = plus(x0, x2), odd = plus(x1, x3), a = minus(x0, x2), b = turned(minus(x1, x3));",
        "const number y0 = plus(even, odd), y1 = plus(a, b), y2 = minus(even, odd), y3 = minus(a, b);",
    ]


def _eight(c: str) -> list[str]:
    root = number(math.sqrt(0.5), c)
    return [
        "const number a15 = plus(x1, x5), d15 = minus(x1, x5), a37 = plus(x3, x7), d37 = turned(minus(x3, x7));",
        "const number odd = plus(a15, a37), a3 = turned(minus(a15, a37)), p = plus(d15, d37), m = minus(d15, d37);",
        f"const number a5 = scaled({root}, plus(p, turned(p))), a7 = scaled({root}, minus(turned(m), m));",
        "const number a04 = plus(x0, x4), a4 = minus(x0, x4), a26 = plus(x2, x6), a6 = turned(minus(x2, x6));",
        "const number even = plus(a04, a26), a2 = minus(a04, a26), s = plus(a4, a6), t = minus(a4, a6);",
        "const number y0 = plus(even, odd), y1 = plus(s, a5), y2 = plus(a2, a3), y3 = plus(t, a7);",
        "const number y4 = minus(even, odd), y5 = minus(s, a5), y6 = minus(a2, a3), y7 = minus(t, a7);",
    ]


def _odd(radix: int, c: str) -> list[str]:
    """Elements as far from either end are added and subtracted first: results as far are the sum and the difference."""
    halves = range(1, radix // 2 + 1)
    lines = [f"const number s{m} = plus(x{m}, x{radix - m}), d{m} = minus(x{m}, x{radix - m});" for m in halves]
    lines.append(f"const number y0 = {_added(['x0', *(f's{m}' for m in halves)])};")
    for q in halves:
        angles = [2 * math.pi * (m * q % radix) / radix for m in halves]
        cosines = [f"scaled({number(math.cos(angle), c)}, s{m})" for m, angle in zip(halves, angles, strict=True)]
        sines = [f"scaled({number(math.sin(angle), c)}, d{m})" for m, angle in zip(halves, angles, strict=True)]
        lines.append(f"const number a{q} = {_added(['x0', *cosines])}, b{q} = turned({_added(sines)});")
        lines.append(f"const number y{q} = plus(a{q}, b{q}), y{radix - q} = minus(a{q}, b{q});")
    return lines


def _added(terms: Sequence[str]) -> str:
    """Their sum, from left to right."""
    return reduce(lambda sum_, term: f"plus({sum_}, {term})", terms)


_SPELLED: Mapping[int, Callable[[str], list[str]]] = {2: _two, 4: _four, 8: _eight}
"""Statements that name y0, y1, ..., the transform of x0, x1, ...; of odd radices they are alike."""


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
            *index_lines("c", "row", shape, "i64"),
            f"const {x.ctype}* x_row = x + ({_row(x, others)}); (void)x_row;",
            f"{y.ctype}* y_row = y + ({_row(y, others)}); (void)y_row;",
        ],
        _dft_element(x, axis, min(present, length), length, is_half=inverse and onesided),
        y.shape[axis],
        _stored(x, y, axis, wide, length),
        _spectrum(x.shape[-1], inverse=inverse, onesided=onesided),
        (written("y", y), read("x", x)),
        x,
        y,
        lies_in_rows=math.prod(x.shape[axis + 1 : -1]) == 1,
        is_across=any(x.shape[n] > 1 and abs(x.strides[n]) < abs(x.strides[axis]) for n in others),
    )
    yield from _ways(rows, task)


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
    step, part = x.strides[axis], x.strides[-1]
    imaginary = f"im = get(at[{part}]);" if x.shape[-1] == 2 else ""
    if not is_half:
        return [f"if (i < {present}) {{ const {x.ctype}* at = x_row + (i64)i * {step}; re = get(at[0]); {imaginary} }}"]
    return [
        f"const bool is_mirrored = i > {length // 2}; const int own = is_mirrored ? {length} - i : i;",
        f"if (own < {present}) {{ const {x.ctype}* at = x_row + (i64)own * {step}; re = get(at[0]); {imaginary} }}",
        f"if (own == 0 || 2 * own == {length}) im = 0;",
        "if (is_mirrored) im = -im;",
    ]


def _stored(x: Layout, y: Layout, axis: int, wide: DType, length: int) -> list[str]:
    """Stores results; of a real signal the first, and that in the middle, are real."""
    step, part = y.strides[axis], y.strides[-1]
    lines = [f"put(y_row[(i64)i * {step}], {converted(Name('re', wide), y.dtype)});"]
    if y.shape[-1] == 2:
        im = converted(Name("im", wide), y.dtype)
        if x.shape[-1] == 1:
            im = f"i == 0 || 2 * i == {length} ? 0 : {im}"
        lines.append(f"put(y_row[(i64)i * {step} + {part}], {im});")
    return lines


# ---- stft


def _lower_stft(task: Task) -> Iterator[Candidate]:
    x, y, attrs = operand(task), result(task), task.node.attrs
    window = operand(task, 1) if len(task.operands) > 1 and task.operands[1] is not None else None
    if not has_types(task.node) or not y.size:
        return
    wide, length = wide_type(x.dtype), attrs["frame_length"]
    batch, frames = y.shape[:2]
    imaginary = f"im = get(at[{x.strides[2]}]);" if x.shape[2] == 2 else ""
    by = f"const {computed(wide)} w = get(window[i * {window.strides[0]}]); re *= w; im *= w;" if window else ""
    rows = TransformedRows(
        batch * frames,
        length,
        False,
        wide,
        [
            *index_lines("c", "row", (batch, frames), "i64"),
            f"const {x.ctype}* x_row = x + (c0 * {x.strides[0]} + c1 * {attrs['frame_step'] * x.strides[1]});",
            "(void)x_row;",
            f"{y.ctype}* y_row = y + (c0 * {y.strides[0]} + c1 * {y.strides[1]}); (void)y_row;",
        ],
        [f"const {x.ctype}* at = x_row + (i64)i * {x.strides[1]}; re = get(at[0]); {imaginary} {by}"],
        y.shape[2],
        _stored(x, y, 2, wide, length),
        _spectrum(x.shape[2], inverse=False, onesided=y.shape[2] < length),
        (written("y", y), read("x", x), *([read("window", window)] if window else [])),
        x,
        y,
        lies_in_rows=False,
        is_across=False,
    )
    yield from _ways(rows, task)


LOWERINGS: Mapping[str, Lowering] = {"dft": _lower_dft, "stft": _lower_stft}
"""Spectra."""
