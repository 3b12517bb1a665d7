"""Own kernels for products of few rows with a weight: on tensor cores for halves, by multiply-adds for f32.

cuBLASLt takes 5 us for such a product, of which reading the weight is a third.
"""

from collections.abc import Iterator, Mapping

from ...ir.types import DType
from .codegen.types import stored
from .launch import Candidate, Chip, Kernel, KernelLaunch, Lowering
from .products import Factors, factors_of, packed_weight, product_operands
from .regions import Region
from .split_products import fits, split_product, tilings
from .tails import Tail, tail_of

MAX_F32_ROWS = 8
_WARPS = 8
_MOST_DEPTH = 16


def lower_few_rows(region: Region) -> Iterator[Candidate]:
    """The whole region as one kernel, where the product is of few rows and the rest is pointwise."""
    tail = tail_of(region)
    if tail is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    a, b, _ = product_operands(region)
    if len(a.shape) < 2 or len(b.shape) != 2:
        return
    from .regions import source_of

    factors = factors_of(a, packed_weight(b), source_of(region.task.results[0]))
    chip = region.task.chip
    if fits(factors):
        for tiling in tilings(factors, chip):
            yield Candidate(tiling.name, (split_product(factors, tail, tiling, chip),))
    elif _is_f32(factors):
        yield Candidate("rows-f32", (_f32_product(factors, tail, chip),))


def _is_f32(factors: Factors) -> bool:
    a, b = factors.a, factors.b
    return (
        a.dtype is DType.F32
        and not factors.leading
        and 1 <= a.shape[-2] <= MAX_F32_ROWS
        and a.shape[-1] % 4 == 0
        and a.strides[-1] == 1
        and b.strides[-2] == 1
        and b.strides[-1] % 4 == 0
        and (a.strides[-2] % 4 == 0 or a.shape[-2] == 1)
    )


def _f32_product(factors: Factors, tail: Tail, chip: Chip) -> KernelLaunch:
    columns = factors.b.shape[-1]
    blocks = min(-(-columns // _WARPS), 2 * chip.multiprocessors)
    sources = [factors.a, factors.b, *tail.sources]
    return KernelLaunch(
        Kernel(_f32_text(factors, tail), (blocks, 1, 1), (32 * _WARPS, 1, 1)),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * factors.a.shape[-2] * columns * factors.a.shape[-1],
        may_overlap=True,
    )


def _f32_text(factors: Factors, tail: Tail) -> str:
    """A warp for each column; lanes take every 32nd piece of four elements."""
    (rows, inner), columns = factors.a.shape, factors.b.shape[-1]
    pieces = -(-inner // 128)
    depth = -(-pieces // -(-pieces // _MOST_DEPTH))
    pieces = -(-pieces // depth) * depth
    wait = '#if __CUDA_ARCH__ >= 900\n  asm volatile("griddepcontrol.wait;" ::: "memory");\n#endif'
    is_weight = factors.b.constant is not None
    kind = stored(factors.a.dtype)
    return f"""
struct alignas(16) NAME_piece {{ float v[4]; }};
extern "C" __global__ void __launch_bounds__({32 * _WARPS})
NAME(const {kind}* x, const {kind}* weight, {", ".join(tail.parameters)}) {{
  constexpr int ROWS = {rows}, DEPTH = {depth};
  const int lane = threadIdx.x % 32, first = blockIdx.x * {_WARPS} + threadIdx.x / 32;
  NAME_piece w[DEPTH];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  auto load = [&](NAME_piece& to, int column, int piece) {{
    const int k = piece * 128 + lane * 4;
    to = {{}};
    if (column < {columns} && k < {inner})
      to = *(const NAME_piece*)(weight + (i64)column * {factors.b.strides[-1]} + k);
  }};
{"" if is_weight else wait}
#pragma unroll
  for (int s = 0; s < DEPTH; s++) load(w[s], first, s);
{wait if is_weight else ""}
  for (int column = first; column < {columns}; column += gridDim.x * {_WARPS}) {{
    float sums[ROWS] = {{}};
    for (int piece = 0; piece < {pieces}; piece += DEPTH) {{
#pragma unroll
      for (int s = 0; s < DEPTH; s++) {{
        const int k = (piece + s) * 128 + lane * 4;
#pragma unroll
        for (int m = 0; m < ROWS; m++) {{
          NAME_piece p = {{}};
          if (k < {inner}) p = *(const NAME_piece*)(x + (i64)m * {factors.a.strides[-2]} + k);
#pragma unroll
          for (int e = 0; e < 4; e++) sums[m] += p.v[e] * w[s].v[e];
        }}
        const bool goes_on = piece + s + DEPTH < {pieces};
        const int next = piece + s + DEPTH;
        load(w[s], goes_on ? column : column + (int)gridDim.x * {_WARPS}, goes_on ? next : next - {pieces});
      }}
    }}
#pragma unroll
    for (int m = 0; m < ROWS; m++) {{
      float total = warp_fold<sum, 32>(sums[m]);
      const int row = m;
      if (lane == m % 32) {{
        {tail.code("total", "row", "column")}
      }}
    }}
  }}
}}
"""


LOWERINGS: Mapping[str, Lowering] = {}
"""Products ask for these kernels themselves."""
