"""CUDA code for random numbers: what `ir/philox.py` says of the state and the place of an element, bit for bit.

Products and sums that NumPy rounds one by one are not contracted here.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .....ir.philox import MULTIPLIERS, ROUNDS, WEYL, cosine_terms, log_terms, sine_terms
from ..types import number

_COMMON = rf"""
struct words4 {{ unsigned a, b, c, d; }};
__device__ inline words4 philox(u64 key, u64 draw, u64 block) {{
  unsigned a = (unsigned)block, b = (unsigned)(block >> 32), c = (unsigned)draw, d = (unsigned)(draw >> 32);
  unsigned first = (unsigned)key, second = (unsigned)(key >> 32);
#pragma unroll
  for (int round = 0; round < {ROUNDS}; round++) {{
    const unsigned x = __umulhi({MULTIPLIERS[1]}u, c) ^ b ^ first, y = __umulhi({MULTIPLIERS[0]}u, a) ^ d ^ second;
    b = {MULTIPLIERS[1]}u * c, d = {MULTIPLIERS[0]}u * a, a = x, c = y;
    first += {WEYL[0]}u, second += {WEYL[1]}u;
  }}
  return {{a, b, c, d}};
}}
// Place i is lane `lane` of block `block`. That it is w behind a first place tells the compiler which share a block.
struct drawn_place {{ u64 block; unsigned lane; }};
template <int LANES, class I> __device__ inline drawn_place drawn_at(I i, unsigned w) {{
  const I first = i - w, lane = first % LANES + w;
  return {{(first / LANES + lane / LANES) & (I)-1 / LANES, (unsigned)lane % LANES}};
}}
template <class I> __device__ inline unsigned drawn_word(u64 key, u64 draw, I i, unsigned w) {{
  const drawn_place at = drawn_at<4>(i, w);
  const words4 x = philox(key, draw, at.block);
  return at.lane & 2 ? (at.lane & 1 ? x.d : x.c) : (at.lane & 1 ? x.b : x.a);
}}
template <class I> __device__ inline u64 drawn_long(u64 key, u64 draw, I i, unsigned w) {{
  const drawn_place at = drawn_at<2>(i, w);
  const words4 x = philox(key, draw, at.block);
  return at.lane ? (u64)x.d << 32 | x.c : (u64)x.b << 32 | x.a;
}}
__device__ inline float times(float x, float y) {{ return __fmul_rn(x, y); }}
__device__ inline double times(double x, double y) {{ return __dmul_rn(x, y); }}
__device__ inline float plus(float x, float y) {{ return __fadd_rn(x, y); }}
__device__ inline double plus(double x, double y) {{ return __dadd_rn(x, y); }}
template <int BITS, class I> __device__ inline float uniform_float(u64 key, u64 draw, I i, unsigned w) {{
  return (float)(drawn_word(key, draw, i, w) >> (32 - BITS)) * (1.0f / (1 << BITS));
}}
template <class I> __device__ inline double uniform_double(u64 key, u64 draw, I i, unsigned w) {{
  return (double)(drawn_long(key, draw, i, w) >> 11) * (1.0 / 9007199254740992.0);
}}
"""

_PAIRS = r"""
template <class I> __device__ inline float normal_float(u64 key, u64 draw, I i, unsigned w) {
  const drawn_place at = drawn_at<4>(i, w);
  const words4 x = philox(key, draw, at.block);
  return normal_of(at.lane & 2 ? x.c : x.a, at.lane & 2 ? x.d : x.b, at.lane & 1);
}
template <class I> __device__ inline double normal_double(u64 key, u64 draw, I i, unsigned w) {
  const drawn_place at = drawn_at<2>(i, w);
  const words4 x = philox(key, draw, at.block);
  return normal_of((u64)x.b << 32 | x.a, (u64)x.d << 32 | x.c, at.lane);
}
"""

_SERIES: dict[str, Callable[[int], list[float]]] = {
    "log_series": log_terms,
    "sine_series": sine_terms,
    "cosine_series": cosine_terms,
}


def _horner(ctype: str, terms: Sequence[float]) -> str:
    *others, text = (number(float(np.float32(term)) if ctype == "float" else term, ctype) for term in terms)
    for term in reversed(others):
        text = f"plus(times({text}, x), {term})"
    return text


def _normals(width: int) -> str:
    """The functions for normally distributed numbers in f32 or f64."""
    ctype, signed, word, fraction = ("float", "int", "unsigned", 23) if width == 32 else ("double", "i64", "u64", 52)
    square_root, kind = ("sqrtf", np.float32) if width == 32 else ("sqrt", np.float64)

    def literal(value: float) -> str:
        return number(float(kind(value)), ctype)

    root, turn, unit, half_unit = map(literal, (0.5**0.5, 2 * np.pi * 2.0**-width, 2.0**-width, 2.0 ** -(width + 1)))
    series = "\n".join(
        f"__device__ inline {ctype} {name}({ctype} x) {{ return {_horner(ctype, terms(width))}; }}"
        for name, terms in _SERIES.items()
    )
    return f"""{series}
__device__ inline {ctype} log_of({ctype} x) {{
  const {signed} bits = bits_as<{signed}>(x), exponent = (bits - bits_as<{signed}>(({ctype}){root})) >> {fraction};
  const {ctype} m = bits_as<{ctype}>(({signed})(bits - (exponent << {fraction})));
  const {ctype} s = plus(m, -1) / plus(m, 1);
  return plus(times(({ctype})exponent, ({ctype}){literal(np.log(2))}), times(times(2, s), log_series(times(s, s))));
}}
__device__ inline {ctype} sine_of({word} phase) {{
  const {word} quarter = (phase + (({word})1 << ({width} - 3))) >> ({width} - 2);
  const {ctype} x = times(({ctype})({signed})(phase - (quarter << ({width} - 2))), ({ctype}){turn});
  const {ctype} y = quarter & 1 ? cosine_series(times(x, x)) : times(x, sine_series(times(x, x)));
  return quarter & 2 ? -y : y;
}}
__device__ inline {ctype} normal_of({word} first, {word} second, bool is_odd) {{
  const {ctype} unit = plus(times(({ctype}){unit}, ({ctype})first), ({ctype}){half_unit});
  const {ctype} radius = {square_root}(times(-2, log_of(unit)));
  return times(radius, sine_of(is_odd ? second : second + (({word})1 << ({width} - 2))));
}}
"""


PHILOX = _COMMON + _normals(32) + _normals(64) + _PAIRS
