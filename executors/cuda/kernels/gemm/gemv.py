"""Own kernels for products of few rows with a weight: a warp for each column, or tensor cores (`split_products.py`).

cuBLASLt takes 5 us for such a product, of which reading the weight is a third.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.launch import Candidate, Chip, Kernel, KernelLaunch, Lowering
from ...kernel_ir.sources import Source, source_of
from ...kernel_ir.types import number, stored
from .factors import Factors, factors_of, packed_weight, product_operands
from .regions import AnchoredRegion
from .split_products import fits, split_product, tilings
from .staged_products import staged_product
from .staged_products import tilings as staged_tilings
from .tails import SumEpilogue, tail_of

MAX_ROWS = {DType.F32: 8, DType.F16: 4, DType.BF16: 4}
"""How many rows a warp has in its registers. `NORMED_ROWS` of `api/cuda_programs.py` is none above these."""

_WARPS = 8
_MOST_DEPTH = 16


def lower_few_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the product is of few rows and the rest is pointwise."""
    tail = tail_of(region)
    if tail is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = product_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    factors = factors_of(a, packed_weight(b), source_of(region.task.results[0]))
    chip = region.task.chip
    if _fits_columns(factors):
        yield Candidate("columns", (_by_columns(factors, tail, chip),))
    if factors.a.shape[-2] > 16:
        return
    if fits(factors):
        for tiling in tilings(factors, chip):
            yield Candidate(tiling.name, (split_product(factors, tail, tiling, chip),))


def lower_normed_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The same for rows that the kernel norms itself: every warp has whole rows in its hands."""
    tail = tail_of(region)
    a, b, _ = product_operands(region)
    if tail is None or region.norm is None or len(a.shape) < 2 or len(b.shape) != 2:
        return
    factors = factors_of(a, packed_weight(b), source_of(region.task.results[0]))
    gain = region.sources[region.norm.operands[1]] if len(region.norm.operands) > 1 else None
    if _fits_columns(factors) and (gain is None or (gain.dtype is a.dtype and gain.strides == (1,))):
        norm = Norm(float(region.norm.attrs["epsilon"]), gain)
        yield Candidate("normed-columns", (_by_columns(factors, tail, region.task.chip, norm),))


def lower_some_rows(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where the product is of some ten to some hundred rows."""
    tail = tail_of(region)
    if tail is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = product_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    factors = factors_of(a, packed_weight(b), source_of(region.task.results[0]))
    chip = region.task.chip
    for staged in staged_tilings(factors, chip):
        yield Candidate(staged.name, (staged_product(factors, tail, staged),))
    if fits(factors) and factors.a.shape[-2] > 16:
        for tiling in tilings(factors, chip):
            yield Candidate(tiling.name, (split_product(factors, tail, tiling, chip),))


def _fits_columns(factors: Factors) -> bool:
    a, b = factors.a, factors.b
    piece = 16 // element_bytes(a.dtype)
    return (
        not factors.leading
        and 1 <= a.shape[-2] <= MAX_ROWS.get(a.dtype, 0)
        and a.shape[-1] % piece == 0
        and a.strides[-1] == 1
        and b.strides[-2] == 1
        and b.strides[-1] % piece == 0
        and (a.strides[-2] % piece == 0 or a.shape[-2] == 1)
        and a.starts_a_piece
        and b.starts_a_piece
    )


def _by_columns(factors: Factors, tail: SumEpilogue, chip: Chip, norm: "Norm | None" = None) -> KernelLaunch:
    columns = factors.b.shape[-1]
    blocks = min(-(-columns // _WARPS), 2 * chip.multiprocessors)
    gains = [] if norm is None or norm.gain is None else [norm.gain]
    sources = [factors.a, factors.b, *gains, *tail.sources]
    return KernelLaunch(
        Kernel(_text(factors, tail, norm), (blocks, 1, 1), (32 * _WARPS, 1, 1)),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * factors.a.shape[-2] * columns * factors.a.shape[-1],
        may_overlap=True,
    )


@dataclass(frozen=True)
class Norm:
    """An `rms_norm` of the rows before the product; `gain` is what it multiplies its columns with."""

    epsilon: float
    gain: Source | None

    def parameter(self, kind: str) -> str:
        """The kernel's parameter for the gain."""
        return "" if self.gain is None else f"const {kind}* gain, "

    @property
    def factor(self) -> str:
        """What an element of the row is multiplied with before the sum."""
        return "" if self.gain is None else " * get(g.v[e])"


def _text(factors: Factors, tail: SumEpilogue, norm: Norm | None = None) -> str:
    """A warp for each column; lanes take every 32nd piece of 16 bytes, and the first have a row each at the end."""
    (rows, inner), columns = factors.a.shape, factors.b.shape[-1]
    kind = stored(factors.a.dtype)
    size = 16 // element_bytes(factors.a.dtype)
    pieces = -(-inner // (32 * size))
    depth = -(-pieces // -(-pieces // _MOST_DEPTH))
    pieces = -(-pieces // depth) * depth
    is_weight = factors.b.constant is not None
    element = tail.element_at("lane", "column")
    gain = norm is not None and norm.gain is not None
    scales = (
        ""
        if norm is None
        else f"""
  float scales[ROWS] = {{}};
  for (int k = lane * {size}; k < {inner}; k += {32 * size})
#pragma unroll
    for (int m = 0; m < ROWS; m++) {{
      const NAME_piece p = *(const NAME_piece*)(x + (i64)m * {factors.a.strides[-2]} + k);
#pragma unroll
      for (int e = 0; e < {size}; e++) scales[m] += get(p.v[e]) * get(p.v[e]);
    }}
#pragma unroll
  for (int m = 0; m < ROWS; m++)
    scales[m] = rsqrtf(warp_fold<sum, 32>(scales[m]) / {inner} + {number(norm.epsilon, "float")});"""
    )
    return f"""
typedef pack<{kind}, {size}> NAME_piece;
__device__ inline NAME_piece NAME_load(const void* at) {{
  union {{ NAME_piece p; unsigned w[4]; }} u;
  asm volatile("ld.global{".nc.L1::no_allocate" if is_weight else ""}.v4.u32 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(u.w[0]), "=r"(u.w[1]), "=r"(u.w[2]), "=r"(u.w[3]) : "l"(at));
  return u.p;
}}
extern "C" __global__ void __launch_bounds__({32 * _WARPS})
NAME(const {kind}* x, const {kind}* weight, {norm.parameter(kind) if norm else ""}{", ".join(tail.parameters)}) {{
  constexpr int ROWS = {rows}, DEPTH = {depth};
  const int lane = threadIdx.x % 32, first = blockIdx.x * {_WARPS} + threadIdx.x / 32;
  NAME_piece w[DEPTH];
{TRIGGER}
  auto load = [&](NAME_piece& to, int column, int piece) {{
    const int k = (piece * 32 + lane) * {size};
    to = {{}};
    if (column < {columns} && k < {inner}) to = NAME_load(weight + (i64)column * {factors.b.strides[-1]} + k);
  }};
{"" if is_weight else WAIT}
#pragma unroll
  for (int s = 0; s < DEPTH; s++) load(w[s], first, s);
{WAIT if is_weight else ""}
{scales}
  for (int column = first; column < {columns}; column += gridDim.x * {_WARPS}) {{
    {element.declarations}
    if (lane < ROWS) {{ {element.constants} {element.others} }}
    float sums[ROWS] = {{}};
    for (int piece = 0; piece < {pieces}; piece += DEPTH) {{
#pragma unroll
      for (int s = 0; s < DEPTH; s++) {{
        const int k = ((piece + s) * 32 + lane) * {size};
{"        NAME_piece g = {}; if (k < " + str(inner) + ") g = *(const NAME_piece*)(gain + k);" if gain else ""}
#pragma unroll
        for (int m = 0; m < ROWS; m++) {{
          NAME_piece p = {{}};
          if (k < {inner}) p = *(const NAME_piece*)(x + (i64)m * {factors.a.strides[-2]} + k);
#pragma unroll
          for (int e = 0; e < {size}; e++) sums[m] += get(p.v[e]) * get(w[s].v[e]){norm.factor if norm else ""};
        }}
        const int next = piece + s + DEPTH;
        const bool goes_on = next < {pieces};
        load(w[s], goes_on ? column : column + (int)gridDim.x * {_WARPS}, goes_on ? next : next - {pieces});
      }}
    }}
    float total = 0;
#pragma unroll
    for (int m = 0; m < ROWS; m++) {{
      const float whole = warp_fold<sum, 32>(sums[m]){" * scales[m]" if norm else ""};
      if (lane == m) total = whole;
    }}
    if (lane < ROWS) {{
      {element.finish("total")}
    }}
  }}
}}
"""


LOWERINGS: Mapping[str, Lowering] = {}
"""Products ask for these kernels themselves."""
