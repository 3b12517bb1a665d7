"""Sums of a few complex numbers, among which a pass transforms them, as statements of a kernel.

Radices up to 11 are spelled out, over elements in registers, as pocketfft does it, which NumPy has: factors and sums in
one order, products rounded by themselves.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

from ...kernel_ir.types import number

LARGEST_SPELLED = 11
"""The largest radix whose sums are written out."""


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


def arithmetic(c: str, *, inverse: bool) -> list[str]:
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
"""Of even radices; those of odd ones are alike."""


def spelled(radix: int, c: str) -> list[str]:
    """Statements that name y0, y1, ..., the transform of as many numbers x0, x1, ... of the type `c`."""
    return _SPELLED.get(radix, partial(_odd, radix))(c)
