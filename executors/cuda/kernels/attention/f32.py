"""Attention of f32 on tensor cores, with operands in two parts (`float_parts.py`).

Where a program may round operands to TF32 one product is enough. Warps have 16 rows of queries each, in registers, and
share keys through shared memory, the next of which are on their way (FlashAttention-2, arXiv:2307.08691). The order of
features in a score and of columns in the result are free: a lane reads two neighbors at a time. Rows in shared memory
are as far apart that what a warp reads at a time lies on different banks.
"""

import math
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.includes.async_copies import async_copies
from ...kernel_ir.includes.float_parts import float_parts, run_with_parts
from ...kernel_ir.launch import Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source, index_type
from ...kernel_ir.types import number
from .attention import Attention
from .code import block_code, features_at_once, length_code, parameters, score_code, tiles

_WARPS, _STAGES = 4, 2


@dataclass(frozen=True, slots=True)
class SingleShape:
    """Warps of `high` times 16 rows each, four side by side, and the keys of a stage, which `warp_groups` share.

    `least` blocks lie on a multiprocessor. Parts of queries are kept, or made anew for each stage. Tensor cores add up
    `chain` products of eight numbers, and these sums are added outside: they cut sums off instead of rounding them, and
    errors would grow with every step, all to one side (Ootomo and Yokota, arXiv:2203.03341).
    """

    high: int
    keys: int
    least: int
    chain: int
    keeps: bool = False
    warp_groups: int = 1

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.keys}"

    @property
    def rows(self) -> int:
        return 16 * _WARPS * self.high

    @property
    def threads(self) -> int:
        return 32 * _WARPS * self.warp_groups


_SMALL, _LARGE = 64, 128
"""Sizes of heads up to which shapes are known."""

_SHAPES = {
    _SMALL: (SingleShape(1, 32, least=2, chain=2, keeps=True), SingleShape(2, 32, least=2, chain=2)),
    _LARGE: (SingleShape(1, 64, least=1, chain=4, warp_groups=2), SingleShape(1, 32, least=2, chain=4)),
}
"""For few blocks, and for many."""


def shapes(attention: Attention, chip: Chip) -> tuple[SingleShape, SingleShape]:
    """The candidates to lay work out, best guess first."""
    size = _SMALL if max(attention.depth, attention.width) <= _SMALL else _LARGE
    few, many = _SHAPES[size]
    blocks = tiles(attention, many.rows) * attention.kv_heads * attention.batch
    return (many, few) if blocks * many.rows >= 128 * chip.multiprocessors else (few, many)


def fits(attention: Attention, chip: Chip) -> bool:
    """Whether all is f32, features lie side by side, and heads are not too large."""
    operands = (attention.q, attention.k, attention.v)
    return (
        all(source.dtype is DType.F32 for source in (*operands, attention.o))
        and max(attention.depth, attention.width) <= _LARGE
        and all(source.strides[3] == 1 for source in operands)
        and chip.arch >= 80
    )


def _filled(size: int) -> int:
    """The features of a head with zeros behind them: whole steps of the tensor cores."""
    return -(-size // 8) * 8


def launch(attention: Attention, rounds: bool, shape: SingleShape) -> KernelLaunch:
    """The launch; with `rounds`, operands are rounded to TF32."""
    grid = (tiles(attention, shape.rows) * attention.kv_heads * attention.batch, 1, 1)
    stage = shape.keys * (_key_pitch(_filled(attention.depth)) + _filled(attention.width) + 4)
    text = _text(attention, rounds, shape)
    kernel = Kernel(text, grid, (shape.threads, 1, 1), shared_bytes=4 * _STAGES * stage)
    arguments = tuple(source.argument for source in attention.sources)
    return KernelLaunch(kernel, arguments, attention.nbytes, attention.flops, may_overlap=True)


def _key_pitch(depth: int) -> int:
    """Floats from key to key: 8 beside a multiple of 16, so that pairs of four keys fill all banks."""
    return depth + (8 - depth) % 16


def _text(attention: Attention, rounds: bool, shape: SingleShape) -> str:
    rows, steps, shared = attention.shared * attention.steps, attention.steps, attention.shared
    q, k, v, o = (source.strides for source in (attention.q, attention.k, attention.v, attention.o))
    depth, width, threads = _filled(attention.depth), _filled(attention.width), shape.threads
    unit = min(features_at_once(source) for source in (attention.k, attention.v))
    load_pair = _load_pair(attention.q)
    tall, block_rows = 16 * shape.high, shape.rows
    index = index_type(attention.q, attention.k, attention.v, attention.o)
    kept = shape.keeps
    attend = f"""
    constexpr int UNROLLED = parts::value ? 1 : 64;
#pragma unroll
    for (int i = 0; i < HIGH; i++) {{
#pragma unroll
      for (int half = 0; half < 2; half++) most[i][half] = -INFINITE, total[i][half] = 0;
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[i][n][e] = 0;
    }}
    pair queries[HIGH][2][DEPTH / 8];
#pragma unroll
    for (int half = 0; half < 2 * HIGH; half++) {{
      const float* from = q + (({index})sample * {q[0]} + ({index})head[half] * {q[1]} + ({index})step[half] * {q[2]});
#pragma unroll
      for (int d = 0; d < DEPTH / 8; d++)
        queries[half / 2][half % 2][d] = row0 + 8 * half < {rows}{load_pair} : pair{{}};
    }}
    auto split_query = [&](NAME_parts<4>& to, int i, int d) {{
#pragma unroll
      for (int half = 0; half < 2; half++) {{
        NAME_split(parts(), to, half, queries[i][half][d].v[0]);
        NAME_split(parts(), to, half + 2, queries[i][half][d].v[1]);
      }}
    }};
    NAME_parts<4> left[HIGH][{"DEPTH / 8" if kept else "1"}];
{_KEEP if kept else ""}
    load(0);
    for (int key0 = 0; key0 < reach; key0 += KEYS) {{
      load(key0 + KEYS);
      NAME_wait();
      __syncthreads();
      const float* const keys = memory + key0 / KEYS % {_STAGES} * STAGE + warp_group * MINE * KEY;
      const float* const values = keys + KEYS * KEY + warp_group * MINE * (VALUE - KEY);
      float scores[HIGH][MINE / 8][4];
#pragma unroll (UNROLLED)
      for (int d0 = 0; d0 < DEPTH / 8; d0 += CHAIN)
#pragma unroll
        for (int n0 = 0; n0 < MINE / 8; n0 += 4) {{
          float part[HIGH][4][4] = {{}};
#pragma unroll (UNROLLED)
          for (int d = d0; d < d0 + CHAIN && d < DEPTH / 8; d++) {{
            {_SPLIT_NOW if not kept else ""}
            NAME_parts<2> right[4];
#pragma unroll
            for (int n = 0; n < 4; n++) {{
              const pair both = *(const pair*)(keys + (8 * (n0 + n) + up) * KEY + 8 * d + 2 * side);
              NAME_split(parts(), right[n], 0, both.v[0]);
              NAME_split(parts(), right[n], 1, both.v[1]);
            }}
#pragma unroll
            for (int term = NAME_FIRST; term < 3; term++)
#pragma unroll
              for (int i = 0; i < HIGH; i++)
#pragma unroll
                for (int n = 0; n < 4; n++) NAME_mma(term, part[i][n], left[i][{"d" if kept else "0"}], right[n]);
          }}
#pragma unroll
          for (int i = 0; i < HIGH; i++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
              for (int e = 0; e < 4; e++) {{
                float& s = scores[i][n0 + n][e];
                s = d0 == 0 ? part[i][n][e] : s + part[i][n][e];
              }}
        }}
      float factor[HIGH][2];
#pragma unroll
      for (int half = 0; half < 2 * HIGH; half++) {{
        const int i = half / 2, first = half % 2 * 2;
        float highest = most[i][half % 2];
#pragma unroll
        for (int n = 0; n < MINE / 8; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {{
            float& s = scores[i][n][first + e];
            const int key = key0 + warp_group * MINE + 8 * n + 2 * side + e;
            s = row0 + 8 * half < {rows} ? score(s, head[half], step[half], key) : -INFINITE;
            highest = greatest(highest, s);
          }}
        highest = greatest(highest, other_lane(highest, 1));
        highest = greatest(highest, other_lane(highest, 2));
        const float less = highest == -INFINITE ? 0 : highest;
        factor[i][half % 2] = NAME_power(most[i][half % 2] - less);
        most[i][half % 2] = highest;
        total[i][half % 2] *= factor[i][half % 2];
#pragma unroll
        for (int n = 0; n < MINE / 8; n++)
#pragma unroll
          for (int e = 0; e < 2; e++) {{
            float& s = scores[i][n][first + e];
            s = NAME_power(s - less);
            total[i][half % 2] += s;
          }}
      }}
#pragma unroll (UNROLLED)
      for (int j0 = 0; j0 < MINE / 8; j0 += CHAIN) {{
        // the order of keys is free: a lane's two weights of a row are those of its two places
        NAME_parts<4> weights[CHAIN][HIGH];
#pragma unroll (UNROLLED)
        for (int j = 0; j < CHAIN && j0 + j < MINE / 8; j++)
#pragma unroll
          for (int i = 0; i < HIGH; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) NAME_split(parts(), weights[j][i], e, scores[i][j0 + j][e % 2 * 2 + e / 2]);
#pragma unroll
        for (int n0 = 0; n0 < WIDTH / 8; n0 += 4) {{
          float part[HIGH][4][4] = {{}};
#pragma unroll (UNROLLED)
          for (int j = 0; j < CHAIN && j0 + j < MINE / 8; j++) {{
            NAME_parts<2> right[4];
#pragma unroll
            for (int n = n0; n < n0 + 4 && n < WIDTH / 8; n += COLUMNS)
#pragma unroll
              for (int e = 0; e < 2; e++) {{
                typedef pack<float, COLUMNS> piece;
                const int key = 8 * (j0 + j) + 2 * side + e;
                const piece both = *(const piece*)(values + key * VALUE + 8 * n + COLUMNS * up);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) NAME_split(parts(), right[n - n0 + c], e, both.v[c]);
              }}
#pragma unroll
            for (int term = NAME_FIRST; term < 3; term++)
#pragma unroll
              for (int i = 0; i < HIGH; i++)
#pragma unroll
                for (int n = n0; n < n0 + 4 && n < WIDTH / 8; n++)
                  NAME_mma(term, part[i][n - n0], weights[j][i], right[n - n0]);
          }}
#pragma unroll
          for (int i = 0; i < HIGH; i++)
#pragma unroll
            for (int n = n0; n < n0 + 4 && n < WIDTH / 8; n++)
#pragma unroll
              for (int e = 0; e < 4; e++) {{
                float& sum = sums[i][n][e];
                sum = (j0 == 0 ? sum * factor[i][e / 2] : sum) + part[i][n - n0][e];
              }}
        }}
      }}
      __syncthreads();
    }}
    bool is_nan = false;
#pragma unroll
    for (int half = 0; half < 2 * HIGH; half++) {{
      float& all = total[half / 2][half % 2];
      all += other_lane(all, 1);
      all += other_lane(all, 2);
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {{
          float& sum = sums[half / 2][n][half % 2 * 2 + e];
          is_nan |= row0 + 8 * half < {rows} && sum != sum;
        }}
    }}
    return is_nan;"""
    return f"""
{async_copies(_STAGES - 1, 4 * unit)}
{float_parts(rounds)}
__device__ inline float NAME_power(float x) {{
#ifdef EMULATED
  return expf(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * {number(1 / math.log(2), "float")}));
  return y;
#endif
}}
extern "C" __global__ void __launch_bounds__({threads}, {shape.least}) NAME({parameters(attention)}) {{
  begin();
  extern __shared__ __align__(16) float memory[];
  constexpr int DEPTH = {depth}, WIDTH = {width}, KEY = {_key_pitch(depth)}, VALUE = WIDTH + 4, HIGH = {shape.high};
  constexpr int KEYS = {shape.keys}, STAGE = KEYS * (KEY + VALUE), COLUMNS = WIDTH % 16 ? 1 : 2;
  constexpr int CHAIN = {shape.chain}, MINE = KEYS / {shape.warp_groups};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, up = lane / 4, side = lane % 4;
  {block_code(attention, block_rows)}
  const {index} first_key = ({index})sample * {k[0]} + ({index})kv_head * {k[1]};
  const {index} first_value = ({index})sample * {v[0]} + ({index})kv_head * {v[1]};
  {length_code(attention, "sample")}
  {score_code(attention)}
  const int row0 = tile * {block_rows} + warp % {_WARPS} * {tall} + up;
  const int warp_group = {f"warp / {_WARPS}" if shape.warp_groups > 1 else 0};
  int head[2 * HIGH], step[2 * HIGH];
#pragma unroll
  for (int half = 0; half < 2 * HIGH; half++) {{
    const int row = row0 + 8 * half;
    head[half] = kv_head * {shared} + row / {steps}, step[half] = row % {steps};
  }}
  typedef pack<float, 2> pair;
  {_reach(attention, block_rows)}
  auto load = [&](int key0) {{
    if (key0 < reach) {{
      float* const keys = memory + key0 / KEYS % {_STAGES} * STAGE;
      float* const values = keys + KEYS * KEY;
      for (int e = threadIdx.x; e < KEYS * DEPTH / {unit}; e += {threads}) {{
        const int key = e / (DEPTH / {unit}), d = e % (DEPTH / {unit}) * {unit};
        const bool is_there = key0 + key < length{_inside(attention.depth)};
        NAME_copy(keys + key * KEY + d, is_there ? k + (first_key + ({index})(key0 + key) * {k[2]} + d) : k, is_there);
      }}
      for (int e = threadIdx.x; e < KEYS * WIDTH / {unit}; e += {threads}) {{
        const int key = e / (WIDTH / {unit}), d = e % (WIDTH / {unit}) * {unit};
        const bool is_there = key0 + key < length{_inside(attention.width)};
        NAME_copy(values + key * VALUE + d, is_there ? v + (first_value + ({index})(key0 + key) * {v[2]} + d) : v,
                  is_there);
      }}
    }}
    NAME_commit();
  }};
  float sums[HIGH][WIDTH / 8][4], total[HIGH][2], most[HIGH][2];
  {run_with_parts(attend, rounds)}
  {_GATHERED.format(leaders=32 * _WARPS) if shape.warp_groups > 1 else ""}
#pragma unroll
  for (int half = 0; half < 2 * HIGH; half++) {{
    if (row0 + 8 * half >= {rows}) continue;
    const float all = total[half / 2][half % 2];
    float* to = o + (({index})sample * {o[0]} + ({index})head[half] * {o[1]} + ({index})step[half] * {o[2]});
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {{
        const int column = n / COLUMNS * 8 * COLUMNS + COLUMNS * (2 * side + e) + n % COLUMNS;
        const float y = all == 0 ? 0 : sums[half / 2][n][half % 2 * 2 + e] / all;
        {f"if (column < {attention.width}) " if width != attention.width else ""}to[column * {o[3]}] = y;
      }}
  }}
}}
"""


def _inside(size: int) -> str:
    """A condition that feature `d` is one of the head's, where some are not."""
    return f" && d < {size}" if size % 8 else ""


def _load_pair(q: Source) -> str:
    """The features 8 * d + 2 * side and the next one, if they are there: what follows a condition, up to the colon."""
    size, at = q.shape[3], "8 * d + 2 * side"
    inside = f" && {at} < {size}" if size % 8 else ""
    if features_at_once(q) > 1:
        return f"{inside} ? *(const pair*)(from + {at})"
    second = f"from[{at} + 1]" if size % 2 == 0 else f"{at} + 1 < {size} ? from[{at} + 1] : 0"
    return f"{inside} ? pair{{from[{at}], {second}}}"


_KEEP = """#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int d = 0; d < DEPTH / 8; d++) split_query(left[i][d], i, d);"""

_SPLIT_NOW = """
#pragma unroll
            for (int i = 0; i < HIGH; i++) split_query(left[i][0], i, d);"""


_GATHERED = """// the second warp group's sums join the first one's
  float* const mine = memory + threadIdx.x % {leaders};
  if (warp_group == 1) {{
#pragma unroll
    for (int half = 0; half < 2 * HIGH; half++) {{
      mine[2 * half * {leaders}] = most[half / 2][half % 2];
      mine[(2 * half + 1) * {leaders}] = total[half / 2][half % 2];
#pragma unroll
      for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++)
          mine[(4 * HIGH + (half * WIDTH / 8 + n) * 2 + e) * {leaders}] = sums[half / 2][n][half % 2 * 2 + e];
    }}
  }}
  __syncthreads();
  if (warp_group == 1) return;
#pragma unroll
  for (int half = 0; half < 2 * HIGH; half++) {{
    const float other = mine[2 * half * {leaders}], highest = greatest(most[half / 2][half % 2], other);
    const float less = highest == -INFINITE ? 0 : highest;
    const float own = NAME_power(most[half / 2][half % 2] - less), theirs = NAME_power(other - less);
    total[half / 2][half % 2] = total[half / 2][half % 2] * own + mine[(2 * half + 1) * {leaders}] * theirs;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {{
        float& sum = sums[half / 2][n][half % 2 * 2 + e];
        sum = sum * own + mine[(4 * HIGH + (half * WIDTH / 8 + n) * 2 + e) * {leaders}] * theirs;
      }}
  }}"""


def _reach(attention: Attention, block: int) -> str:
    """How many keys a block looks at: causal masks hide what stands behind its last query."""
    if not attention.is_causal:
        return "const int reach = length;"
    steps, rows = attention.steps, attention.shared * attention.steps
    return f"""const int last = tile * {block} + {block - 1} < {rows} ? tile * {block} + {block - 1} : {rows - 1};
  const int latest = last / {steps} == tile * {block} / {steps} ? last % {steps} : {steps - 1};
  const int seen = latest + behind + 1, reach = seen < 0 ? 0 : seen < length ? seen : length;"""
