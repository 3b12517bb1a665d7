"""Random numbers from a counter: Philox 4x32-10 (Salmon et al., https://doi.org/10.1145/2063384.2063405).

A state is u64[2], a key and a number of draws so far. Draw `stream` of a state is a sequence of 32-bit words without an
end: word i is word i % 4 of the block with the counter [i / 4, draws so far + stream], each of 64 bits. So an element
depends on its place alone, and whoever has the state gets the same numbers. All that follows is defined bit for bit, in
sums and products that are rounded one by one: `executors/cuda/kernel_ir/draws.py` says the same for CUDA.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .constant import Array

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

SINE = {32: 5, 64: 9}
COSINE = {32: 6, 64: 9}
LOGARITHM = {32: 6, 64: 11}
"""How many terms the series of `normals` have, by bits of the float."""

_FLOATS: dict[int, tuple[Any, Any, int]] = {32: (np.float32, np.int32, 23), 64: (np.float64, np.int64, 52)}
"""By bits: the float, the signed integer of its size, and the bits of its fraction."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_CHUNK = 1 << 14
"""How many blocks or pairs are made at a time: what is in between stays in the cache."""


def fresh_state(seed: int | None = None) -> Array:
    """A state u64[2] with the key `seed` (any integer), or one from the system's entropy."""
    key = np.random.SeedSequence().generate_state(1, np.uint64)[0] if seed is None else seed % 2**64
    return np.array([key, 0], dtype=np.uint64)


def philox(counter: Array, key: int) -> Array:
    """Four words for each counter: u32[4, n] for u32[4, n] and a key of 64 bits."""
    a, b, c, d = counter.astype(np.uint64)
    first, second = key & 0xFFFFFFFF, key >> 32
    for _ in range(ROUNDS):
        high = a * np.uint64(MULTIPLIERS[0])
        low = c * np.uint64(MULTIPLIERS[1])
        a, b, c, d = (
            (low >> _HALF) ^ b ^ np.uint64(first),
            low & _LOW,
            (high >> _HALF) ^ d ^ np.uint64(second),
            high & _LOW,
        )
        first, second = (first + WEYL[0]) & 0xFFFFFFFF, (second + WEYL[1]) & 0xFFFFFFFF
    return np.stack([a, b, c, d]).astype(np.uint32)


def words(state: Array, stream: int, count: int) -> Array:
    """The first `count` words of a draw, u32[count]."""
    key, drawn = (int(each) for each in state)
    draw = (drawn + stream) % 2**64
    made = np.empty((-(-count // 4), 4), dtype=np.uint32)
    for start in range(0, len(made), _CHUNK):
        block = np.arange(start, min(start + _CHUNK, len(made)), dtype=np.uint64)
        high = np.full_like(block, draw)
        counter = np.stack([block & _LOW, block >> _HALF, high & _LOW, high >> _HALF])
        made[start : start + _CHUNK] = philox(counter, key).T
    return made.reshape(-1)[:count]


def long_words(state: Array, stream: int, count: int) -> Array:
    """The first words of a draw in pairs, the low one first: u64[count]."""
    return words(state, stream, 2 * count).astype("<u4").view("<u8").astype(np.uint64)


def uniforms(state: Array, stream: int, count: int, bits: int) -> Array:
    """Multiples of 2**-bits from 0 up to but without 1, all alike: f64 for more than 24 bits, else f32."""
    if bits > 24:
        return (long_words(state, stream, count) >> np.uint64(64 - bits)) * np.float64(2.0**-bits)
    return (words(state, stream, count) >> np.uint32(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)


def normals(state: Array, stream: int, count: int, width: int) -> Array:
    """Normally distributed numbers in f32 or f64 (`width` 32 or 64), by the method of Box and Muller.

    Elements 2i and 2i + 1 are made of words 2i and 2i + 1 (of pairs of words in f64): a radius and an angle.
    """
    drawn = (words if width == 32 else long_words)(state, stream, count + count % 2).reshape(-1, 2)
    kind, _, _ = _FLOATS[width]
    made = np.empty(drawn.shape, dtype=kind)
    for start in range(0, len(drawn), _CHUNK):
        first, second = drawn[start : start + _CHUNK].T
        unit = kind(2.0**-width) * first.astype(kind) + kind(2.0 ** -(width + 1))
        radius = np.sqrt(kind(-2.0) * _log(unit, width))
        sine, cosine = _turn(second, width)
        made[start : start + _CHUNK] = np.stack([radius * cosine, radius * sine], axis=1)
    return made.reshape(-1)[:count]


def log_terms(width: int) -> list[float]:
    """Of log(m) = 2 s (1 + s^2/3 + s^4/5 ...), s = (m - 1) / (m + 1)."""
    return [1.0 / (2 * n + 1) for n in range(LOGARITHM[width])]


def sine_terms(width: int) -> list[float]:
    """Of sin(x) = x (1 - x^2/6 ...)."""
    return [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(SINE[width])]


def cosine_terms(width: int) -> list[float]:
    """Of cos(x) = 1 - x^2/2 ..."""
    return [(-1.0) ** n / math.factorial(2 * n) for n in range(COSINE[width])]


def _horner(x: Array, terms: Sequence[float]) -> Array:
    kind: Any = x.dtype.type
    total: Array = np.full_like(x, kind(terms[-1]))
    for term in reversed(terms[:-1]):
        total *= x
        total += kind(term)
    return total


def _log(x: Array, width: int) -> Array:
    """The natural logarithm of positive normal numbers."""
    kind, whole, fraction = _FLOATS[width]
    bits = x.view(whole)
    exponent = (bits - np.asarray(kind(math.sqrt(0.5))).view(whole)) >> whole(fraction)
    mantissa = (bits - (exponent << whole(fraction))).view(kind)
    s = (mantissa - kind(1)) / (mantissa + kind(1))
    found: Array = exponent.astype(kind) * kind(math.log(2)) + kind(2) * s * _horner(s * s, log_terms(width))
    return found


def _turn(phase: Array, width: int) -> tuple[Array, Array]:
    """Sine and cosine of the part of a full turn that `phase` is of 2**width."""
    kind, whole, _ = _FLOATS[width]
    word: Any = phase.dtype.type
    quarter = (phase + word(1 << (width - 3))) >> word(width - 2)
    rest = (phase - (quarter << word(width - 2))).view(whole)
    angle = rest.astype(kind) * kind(2 * math.pi * 2.0**-width)
    square = angle * angle
    sine, cosine = angle * _horner(square, sine_terms(width)), _horner(square, cosine_terms(width))
    is_odd = quarter % word(2) == 1
    first, second = np.where(is_odd, cosine, sine), np.where(is_odd, sine, cosine)
    return np.where(quarter >= 2, -first, first), np.where((quarter == 1) | (quarter == 2), -second, second)
