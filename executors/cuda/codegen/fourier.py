"""Fourier transforms: dft and stft. Rows that fit in shared memory by Stockham's order-preserving passes, or by cuFFT.

A pass of radix r takes r elements that lie N / r apart, turns them by powers of the N-th root of one, and transforms
them among themselves; passes take turns between two halves of shared memory (C. Van Loan, Computational Frameworks for
the Fast Fourier Transform, 1992, 1.7). Radices up to 8 are spelled out, over elements in registers; a larger prime is a
sum for each result. The roots are a table, made in f64. Real signals are transformed as complex ones.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ....ir.constant import Constant
from ....ir.ops.rules import normal_axis
from ....ir.types import DType
from ..launch import Candidate, Lowering, Packed, Task
from ..problems import Spectrum
from .casts import converted
from .fourier_calls import Rows, by_library
from .kernels import Parameter, launch_of, read, written
from .layouts import Layout, index_lines
from .moving import operand, result
from .pointwise import has_types
from .regions import flops_of
from .sampling import wide_type
from .types import Name, computed, number

_SHORTEST_BY_LIBRARY = 256
"""From this length on the library is faster, though it may take a kernel before and one after."""
_RADICES = (8, 7, 5, 4, 3, 2)
_ELEMENTS_OF_A_BLOCK = 2048
_ELEMENTS_OF_A_THREAD = 8
_THREADS = 512


def radices(length: int) -> list[int]:
    """The radices of the passes for a length, whose product it is."""
    found: list[int] = []
    for radix in _RADICES:
        while length % radix == 0 and length > 1:
            found.append(radix)
            length //= radix
    prime = 11
    while length > 1:
        while length % prime == 0:
            found.append(prime)
            length //= prime
        prime += 2
    return found


def _ways(rows: Rows, task: Task) -> Iterator[Candidate]:
    nbytes = rows.x.nbytes + rows.y.nbytes
    found = [by_library(rows, task, nbytes, flops_of(task)), _in_passes(rows, task, nbytes)]
    if rows.length < _SHORTEST_BY_LIBRARY:
        found.reverse()
    yield from (each for each in found if each is not None)


def _in_passes(rows: Rows, task: Task, nbytes: int) -> Candidate | None:
    length, c = rows.length, computed(rows.wide)
    each = max(1, min(rows.count, _ELEMENTS_OF_A_BLOCK // length))
    pair = 2 * (8 if rows.wide is DType.F64 else 4)
    room = _padded(each * length)
    shared_bytes = 2 * room * pair
    if shared_bytes > task.chip.shared_bytes:
        return None
    threads = min(_THREADS, max(32, -(-each * length // _ELEMENTS_OF_A_THREAD // 32) * 32))
    row = f"const unsigned row = blockIdx.x * {each}u + of; if (row >= {rows.count}u) continue;"
    lines = [
        f"struct number {{ {c} re, im; }};",
        f"extern __shared__ {c} memory[]; number* from = (number*)memory; number* to = from + {room};",
        "const auto spot = [](int i) { return i + i / 8; };",
        "const number* roots = (const number*)table;",
        "const auto times = [](number a, number b) {",
        "return number{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; };",
        f"{_elements(each, length, threads)} {row}",
        *rows.head,
        f"{c} re = 0, im = 0;",
        *rows.element,
        "from[spot(n)] = number{re, im}; }",
        "__syncthreads();",
    ]
    done = 1
    for radix in radices(length):
        lines += _pass(length, each, radix, done, threads, rows)
        lines += ["__syncthreads();", "{ number* other = from; from = to; to = other; }"]
        done *= radix
    scale = number(1 / length if rows.inverse else 1.0, c)
    lines += [
        f"{_elements(each, rows.kept, threads)} {row}",
        *rows.head,
        f"const number found = from[spot(of * {length} + i)];",
        f"const {c} re = found.re * {scale}, im = found.im * {scale};",
        *rows.store,
        "}",
    ]
    blocks = -(-rows.count // each)
    every_parameter = [*rows.parameters, Parameter(f"const {c}*", "table", _roots(length, rows.inverse, rows.wide))]
    launch = launch_of(every_parameter, lines, (blocks, 1, 1), (threads, 1, 1), nbytes, flops_of(task), shared_bytes)
    return Candidate("passes", (launch,))


def _padded(count: int) -> int:
    """With a place left free after each eight, elements that lie 8, 64, ... apart are in different banks."""
    return count + count // 8 + 1


def _elements(each: int, length: int, threads: int) -> str:
    """A loop over elements `i` of rows `of`."""
    loop = f"for (int n = threadIdx.x; n < {each * length}; n += {threads})"
    return f"{loop} {{ const int of = n / {length}, i = n % {length};"


def _roots(length: int, inverse: bool, wide: DType) -> Packed:
    """exp(-2 pi i k / length), or its conjugate, for every k."""
    angles = np.arange(length) * (2 * np.pi / length)
    table = np.stack([np.cos(angles), np.sin(angles) if inverse else -np.sin(angles)], axis=-1)
    return Packed(Constant(np.ascontiguousarray(table.astype(wide.numpy))), "contiguous")


def _pass(length: int, each: int, radix: int, done: int, threads: int, rows: Rows) -> list[str]:
    """Results `done * radix` apart so far become `radix` times as long; `k` is the place within those before."""
    step, turn = length // radix, length // (done * radix)
    if radix > max(_RADICES):
        return [
            f"for (int n = threadIdx.x; n < {each * length}; n += {threads}) {{",
            f"const int i = n % {length}, of = n - i, q = i / {step}, j = i % {step}, k = j % {done};",
            "number sum = {0, 0};",
            f"for (int m = 0; m < {radix}; m++) {{",
            f"const number by = roots[(int)((i64)m * (k * {turn} + q * {step}) % {length})];",
            f"const number term = times(from[spot(of + j + m * {step})], by); sum.re += term.re; sum.im += term.im; }}",
            f"to[spot(of + j / {done} * {done * radix} + k + q * {done})] = sum; }}",
        ]
    lines = [
        f"for (int n = threadIdx.x; n < {each * step}; n += {threads}) {{",
        f"const int of = n / {step} * {length}, j = n % {step}, k = j % {done};",
        "const number x0 = from[spot(of + j)];",
    ]
    for m in range(1, radix):
        lines.append(f"const number x{m} = times(from[spot(of + j + {m * step})], roots[k * {m * turn}]);")
    lines.append(f"const int place = of + j / {done} * {done * radix} + k;")
    for q in range(radix):
        re, im = _sum_text(radix, q, rows)
        lines.append(f"to[spot(place + {q * done})] = number{{{re}, {im}}};")
    return [*lines, "}"]


def _sum_text(radix: int, q: int, rows: Rows) -> tuple[str, str]:
    """The sum of x0 to x(radix - 1), turned by the roots of one of that number; factors of 0 and 1 leave no trace."""
    c = computed(rows.wide)
    re, im = [], []
    for m in range(radix):
        angle = 2 * math.pi * (m * q % radix) / radix
        cos, sin = _exact(math.cos(angle)), _exact(math.sin(angle))
        sin = sin if rows.inverse else -sin
        re += _terms((cos, f"x{m}.re"), (-sin, f"x{m}.im"), c)
        im += _terms((sin, f"x{m}.re"), (cos, f"x{m}.im"), c)
    return " + ".join(re), " + ".join(im)


def _exact(value: float) -> float:
    """Multiples of a half as they are meant."""
    nearest = round(2 * value) / 2
    return nearest if abs(value - nearest) < 1e-12 else value


def _terms(first: tuple[float, str], second: tuple[float, str], c: str) -> list[str]:
    found: list[str] = []
    for factor, name in (first, second):
        if factor in (1.0, -1.0):
            found.append(name if factor > 0 else f"(-{name})")
        elif factor:
            found.append(f"{number(factor, c)} * {name}" if factor > 0 else f"({number(factor, c)}) * {name}")
    return found


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
    rows = Rows(
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
        _stored(y, axis, wide),
        _spectrum(x.shape[-1], inverse=inverse, onesided=onesided),
        (written("y", y), read("x", x)),
        x,
        y,
        lies_in_rows=math.prod(x.shape[axis + 1 : -1]) == 1,
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


def _stored(y: Layout, axis: int, wide: DType) -> list[str]:
    step, part = y.strides[axis], y.strides[-1]
    lines = [f"put(y_row[(i64)i * {step}], {converted(Name('re', wide), y.dtype)});"]
    if y.shape[-1] == 2:
        lines.append(f"put(y_row[(i64)i * {step} + {part}], {converted(Name('im', wide), y.dtype)});")
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
    rows = Rows(
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
        _stored(y, 2, wide),
        _spectrum(x.shape[2], inverse=False, onesided=y.shape[2] < length),
        (written("y", y), read("x", x), *([read("window", window)] if window else [])),
        x,
        y,
        lies_in_rows=False,
    )
    yield from _ways(rows, task)


LOWERINGS: Mapping[str, Lowering] = {"dft": _lower_dft, "stft": _lower_stft}
"""Spectra."""
