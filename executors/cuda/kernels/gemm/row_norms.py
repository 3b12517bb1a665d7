"""Norms of the rows that a matmul by columns reads, as code of its kernel.

The sums of squares of an `rms_norm` scale a sum of products when it is whole. Rows of a `layer_norm` are normed before
they are multiplied: a mean that is taken off a whole sum cancels what is left of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...kernel_ir.sources import Source
from ...kernel_ir.types import number


@dataclass(frozen=True)
class Norm:
    """An `rms_norm` of the rows before the matmul, or a `layer_norm` where it `is_centered`.

    Columns of the rows are multiplied with `gain`, then `bias` is added.
    """

    epsilon: float
    gain: Source | None
    bias: Source | None = None
    is_centered: bool = False

    @property
    def affine(self) -> Mapping[str, Source]:
        """What the kernel reads for it besides the rows, by the names of its parameters."""
        named = {"gain": self.gain, "bias": self.bias}
        return {name: source for name, source in named.items() if source is not None}


def squares_of_rows(piece: str, size: int) -> str:
    """The sum of each row's squares, for each warp. `piece` is `size` elements of the row `m`, by `c` and `s`."""
    return f"""  __shared__ float squares[ROWS][WARPS + 1];
  float scale = 1;
#pragma unroll
  for (int m = 0; m < ROWS; m++) {{
    float own = 0;
{_over_elements(piece, size, "own += NAME_at(p, e) * NAME_at(p, e);")}
    own = warp_reduce<sum, 32>(own);
    if (lane == 0) squares[m][warp] = own;
  }}"""


def moments_of_rows(piece: str, size: int, counts: Sequence[int], epsilon: float, *, is_even: bool) -> str:
    """The mean of each row and the factor that norms it, in each thread; warps have `counts` elements of a row.

    All lanes have as many where a row `is_even`. Lanes join what they found, then warps, so that elements are read once
    and there is one barrier at most.
    """
    each, share = sum(counts) // len(counts) // 32, number(1 / sum(counts), "float")
    return f"""  float means[ROWS], factors[ROWS];
  __shared__ float warp_means[ROWS][WARPS], warp_spreads[ROWS][WARPS];
#pragma unroll
  for (int m = 0; m < ROWS; m++) {{
    float count = 0, mean = 0, spread = 0;
{_over_elements(piece, size, "mean += NAME_at(p, e);" if is_even else "count++, mean += NAME_at(p, e);")}
    mean /= {each if is_even else "count > 0 ? count : 1"};
{_over_elements(piece, size, "spread += (NAME_at(p, e) - mean) * (NAME_at(p, e) - mean);")}
{_EVEN_LANES_JOINED.format(count=each) if is_even else _LANES_JOINED}
    means[m] = mean, factors[m] = spread;
    if (lane == 0) warp_means[m][warp] = mean, warp_spreads[m][warp] = spread;
  }}
{_WARPS_JOINED.format(counts=", ".join(map(str, counts))) if len(counts) > 1 else ""}
#pragma unroll
  for (int m = 0; m < ROWS; m++) factors[m] = rsqrtf(factors[m] * {share} + {number(epsilon, "float")});"""


_EVEN_LANES_JOINED = """#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2)
      NAME_join(mean, spread, {count} * bit, 0.5f, other_lane(mean, bit), other_lane(spread, bit));"""

_LANES_JOINED = """#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2) {
      const float more = other_lane(count, bit), all = count + more;
      NAME_join(mean, spread, count, all > 0 ? more / all : 0, other_lane(mean, bit), other_lane(spread, bit));
      count = all;
    }"""

_WARPS_JOINED = """  __syncthreads();
#pragma unroll
  for (int m = 0; m < ROWS; m++) {{
    constexpr float COUNTS[WARPS] = {{{counts}}};
    float count = COUNTS[0];
    means[m] = warp_means[m][0], factors[m] = warp_spreads[m][0];
#pragma unroll
    for (int part = 1; part < WARPS; part++) {{
      const float all = count + COUNTS[part];
      NAME_join(means[m], factors[m], count, COUNTS[part] / all, warp_means[m][part], warp_spreads[m][part]);
      count = all;
    }}
  }}"""


def _over_elements(piece: str, size: int, statement: str) -> str:
    return f"""#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
      for (int s = 0; s < PARTS; s++) {{
        const NAME_piece p = {piece};
#pragma unroll
        for (int e = 0; e < {size}; e++) if (is_inside(c)) {statement}
      }}"""
