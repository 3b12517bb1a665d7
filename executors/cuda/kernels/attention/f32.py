"""Attention of f32 on tensor cores: each factor is the sum of two numbers of 11 bits, and three products are added.

What is left out is below 2^-22 of a product ("3xTF32": NVIDIA CUTLASS, `OpMultiplyAddFastF32`). Where a program may
round factors to TF32 one product is enough. Four warps have 16 rows of queries each, in registers, and share 32 keys at
a time through shared memory, the next of which are on their way (FlashAttention-2, arXiv:2307.08691). Rows there are
four numbers longer than their content, so that what a warp reads at a time lies on different banks.
"""

from .....ir.types import DType
from ...kernel_ir.async_copies import async_copies
from ...kernel_ir.indexing import index_type
from ...kernel_ir.launch import Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source
from .attention import Attention
from .code import block_code, length_code, parameters, score_code, tiles

MAX_SIZE = 128
_ROWS, _KEYS, _WARPS = 64, 32, 4
_THREADS = 32 * _WARPS
_STAGES = 2


def fits(attention: Attention, chip: Chip) -> bool:
    """Whether all is f32, features lie in pieces of 16 bytes, and heads are not too large."""
    pieces = (attention.q, attention.k, attention.v)
    return (
        all(source.dtype is DType.F32 for source in (*pieces, attention.o))
        and max(attention.depth, attention.width) <= MAX_SIZE
        and all(_lies_in_pieces(source) for source in pieces)
        and chip.arch >= 80
    )


def _lies_in_pieces(source: Source) -> bool:
    strides = [stride for size, stride in zip(source.shape[:3], source.strides[:3], strict=True) if size > 1]
    is_dense = source.strides[3] == 1 and source.shape[3] % 8 == 0
    return source.starts_a_piece and is_dense and all(stride % 4 == 0 for stride in strides)


def launch(attention: Attention, rounds: bool) -> KernelLaunch:
    """The launch; with `rounds`, factors are rounded to TF32."""
    grid = (tiles(attention, _ROWS) * attention.kv_heads * attention.batch, 1, 1)
    stage = _KEYS * (attention.depth + 4 + attention.width + 4)
    kernel = Kernel(_text(attention, rounds), grid, (_THREADS, 1, 1), shared_bytes=4 * _STAGES * stage)
    arguments = tuple(source.argument for source in attention.sources)
    return KernelLaunch(kernel, arguments, attention.nbytes, attention.flops, may_overlap=True)


def _text(attention: Attention, rounds: bool) -> str:
    rows, steps, shared = attention.shared * attention.steps, attention.steps, attention.shared
    q, k, v, o = (source.strides for source in (attention.q, attention.k, attention.v, attention.o))
    depth, width = attention.depth, attention.width
    index = index_type(attention.q, attention.k, attention.v, attention.o)
    return f"""
{async_copies(_STAGES - 1)}
{_products(rounds)}
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({parameters(attention)}) {{
  begin();
  extern __shared__ __align__(16) float memory[];
  constexpr int DEPTH = {depth}, WIDTH = {width}, KEY = DEPTH + 4, VALUE = WIDTH + 4;
  constexpr int STAGE = {_KEYS} * (KEY + VALUE), KEYS = {_KEYS};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, up = lane / 4, side = lane % 4;
  {block_code(attention, _ROWS)}
  const {index} first_key = ({index})sample * {k[0]} + ({index})kv_head * {k[1]};
  const {index} first_value = ({index})sample * {v[0]} + ({index})kv_head * {v[1]};
  {length_code(attention, "sample")}
  {score_code(attention)}
  const int row0 = tile * {_ROWS} + warp * 16 + up;
  int head[2], step[2];
  NAME_split left[DEPTH / 8][4];
#pragma unroll
  for (int half = 0; half < 2; half++) {{
    const int row = row0 + 8 * half;
    head[half] = kv_head * {shared} + row / {steps}, step[half] = row % {steps};
    const float* from = q + (({index})sample * {q[0]} + ({index})head[half] * {q[1]} + ({index})step[half] * {q[2]});
#pragma unroll
    for (int d = 0; d < DEPTH / 8; d++) {{
      left[d][half] = NAME_split(row < {rows} ? from[8 * d + side] : 0);
      left[d][2 + half] = NAME_split(row < {rows} ? from[8 * d + 4 + side] : 0);
    }}
  }}
  {_reach(attention)}
  auto load = [&](int key0) {{
    if (key0 < reach) {{
      float* const keys = memory + key0 / KEYS % {_STAGES} * STAGE;
      float* const values = keys + KEYS * KEY;
      for (int e = threadIdx.x; e < KEYS * DEPTH / 4; e += {_THREADS}) {{
        const int key = e / (DEPTH / 4), d = e % (DEPTH / 4) * 4;
        const bool is_there = key0 + key < length;
        NAME_copy(keys + key * KEY + d, is_there ? k + (first_key + ({index})(key0 + key) * {k[2]} + d) : k, is_there);
      }}
      for (int e = threadIdx.x; e < KEYS * WIDTH / 4; e += {_THREADS}) {{
        const int key = e / (WIDTH / 4), d = e % (WIDTH / 4) * 4;
        const bool is_there = key0 + key < length;
        NAME_copy(values + key * VALUE + d, is_there ? v + (first_value + ({index})(key0 + key) * {v[2]} + d) : v,
                  is_there);
      }}
    }}
    NAME_commit();
  }};
  float sums[WIDTH / 8][4] = {{}}, most[2] = {{-INFINITE, -INFINITE}}, total[2] = {{}};
  load(0);
  for (int key0 = 0; key0 < reach; key0 += KEYS) {{
    load(key0 + KEYS);
    NAME_wait();
    __syncthreads();
    const float* const keys = memory + key0 / KEYS % {_STAGES} * STAGE;
    const float* const values = keys + KEYS * KEY;
    float scores[KEYS / 8][4] = {{}};
#pragma unroll
    for (int d = 0; d < DEPTH / 8; d++)
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++) {{
        const float* at = keys + (8 * n + up) * KEY + 8 * d + side;
        NAME_product(scores[n], left[d], NAME_split(at[0]), NAME_split(at[4]));
      }}
#pragma unroll
    for (int half = 0; half < 2; half++) {{
      float highest = most[half];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {{
          float& s = scores[n][2 * half + e];
          s = row0 + 8 * half < {rows} ? score(s, head[half], step[half], key0 + 8 * n + 2 * side + e) : -INFINITE;
          highest = greatest(highest, s);
        }}
      highest = greatest(highest, other_lane(highest, 1));
      highest = greatest(highest, other_lane(highest, 2));
      const float less = highest == -INFINITE ? 0 : highest, factor = expf(most[half] - less);
      most[half] = highest;
      total[half] *= factor;
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {{
          float& s = scores[n][2 * half + e];
          s = expf(s - less);
          total[half] += s;
        }}
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n++) sums[n][2 * half] *= factor, sums[n][2 * half + 1] *= factor;
    }}
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {{
      // the order of keys is free: a lane's two weights of a row are those of its two places
      const NAME_split weights[4] = {{NAME_split(scores[j][0]), NAME_split(scores[j][2]), NAME_split(scores[j][1]),
                                      NAME_split(scores[j][3])}};
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n++) {{
        const float* at = values + (8 * j + 2 * side) * VALUE + 8 * n + up;
        NAME_product(sums[n], weights, NAME_split(at[0]), NAME_split(at[VALUE]));
      }}
    }}
    __syncthreads();
  }}
#pragma unroll
  for (int half = 0; half < 2; half++) {{
    total[half] += other_lane(total[half], 1);
    total[half] += other_lane(total[half], 2);
    if (row0 + 8 * half >= {rows}) continue;
    float* to = o + (({index})sample * {o[0]} + ({index})head[half] * {o[1]} + ({index})step[half] * {o[2]});
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
      for (int e = 0; e < 2; e++)
        to[(8 * n + 2 * side + e) * {o[3]}] = total[half] == 0 ? 0 : sums[n][2 * half + e] / total[half];
  }}
}}
"""


def _reach(attention: Attention) -> str:
    """How many keys a block looks at: causal masks hide what stands behind its last query."""
    if not attention.is_causal:
        return "const int reach = length;"
    steps, rows = attention.steps, attention.shared * attention.steps
    return f"""const int last = tile * {_ROWS} + {_ROWS - 1} < {rows} ? tile * {_ROWS} + {_ROWS - 1} : {rows - 1};
  const int latest = last / {steps} == tile * {_ROWS} / {steps} ? last % {steps} : {steps - 1};
  const int seen = latest + behind + 1, reach = seen < 0 ? 0 : seen < length ? seen : length;"""


_ROUNDED = """
#ifdef EMULATED
    high = x != x ? 0x7fffffffu : (bits_as<unsigned>(x) + 0x1000u) & 0xffffe000u;
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(x));
#endif"""

_TWO_PARTS = """const unsigned rounded = (bits_as<unsigned>(x) + 0x1000u) & 0xffffe000u;
    high = fabsf(x) < 3.4019e38f ? rounded : 0;
    low = bits_as<unsigned>(x - bits_as<float>(high)) & 0xffffe000u;"""
"""What is not finite, or too large to be rounded, is the low part alone: that meets only high parts, which are zero for
what is below 2^-137. As a high part an infinity would meet low parts of either sign, and zeros. What the low part drops
is one bit at most, so that rounding it would be no better."""

_THREE_PRODUCTS = """float part[4] = {};
  NAME_mma(part, l, high); NAME_mma(part, h, low); NAME_mma(part, h, high);  // the small ones first
#pragma unroll
  for (int e = 0; e < 4; e++) d[e] += part[e];"""
"""Tensor cores cut sums off instead of rounding them: added up there, errors would grow with every step, all to one
side (Ootomo and Yokota, arXiv:2203.03341)."""


def _products(rounds: bool) -> str:
    """A number as two of 11 bits, and the product of 16 x 8 by 8 x 8 numbers."""
    parts = _ROUNDED if rounds else _TWO_PARTS
    terms = "NAME_mma(d, h, high);" if rounds else _THREE_PRODUCTS
    return f"""
struct NAME_split {{
  unsigned high = 0, low = 0;
  __device__ inline NAME_split() {{}}
  __device__ inline explicit NAME_split(float x) {{
    {parts}
  }}
}};
__device__ inline void NAME_mma(float* d, const unsigned* a, const unsigned* b) {{
#ifdef EMULATED
  emulated_mma_tf32(d, a, b);
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}}
__device__ inline void NAME_product(float* d, const NAME_split* a, NAME_split b0, NAME_split b1) {{
  const unsigned h[4] = {{a[0].high, a[1].high, a[2].high, a[3].high}}, high[2] = {{b0.high, b1.high}};
  const unsigned l[4] = {{a[0].low, a[1].low, a[2].low, a[3].low}}, low[2] = {{b0.low, b1.low}};
  {terms}
  (void)l; (void)low;
}}
"""
