"""Attention of any float dtype and layout by multiply-adds: correct before quick. It also repairs rows of others.

A block takes 16 rows of queries, four a warp, and 32 keys at a time through shared memory: a lane has a key while
scores are summed, and columns of the result while values are.
"""

from ...kernel_ir.launch import Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import index_type
from ...kernel_ir.types import computed
from .attention import SCORE_DTYPES, Attention
from .code import block_code, length_code, parameters, repair_code, repaired_tiles, score_code, tiles

_ROWS, _KEYS, _WARPS = 16, 32, 4
_PER_WARP = _ROWS // _WARPS
MAX_SIZE = 256


def fits(attention: Attention, chip: Chip) -> bool:
    """Whether a tile of all operands fits into shared memory."""
    return max(attention.depth, attention.width) <= MAX_SIZE and _shared_bytes(attention) <= chip.shared_bytes


def _shared_bytes(attention: Attention) -> int:
    itemsize = 8 if attention.q.dtype in SCORE_DTYPES else 4
    numbers = _ROWS * attention.depth + _KEYS * (attention.depth + 1) + _KEYS * (attention.width + 1)
    return itemsize * numbers


def launch(attention: Attention) -> KernelLaunch:
    """The launch of the one kernel there is."""
    grid = (tiles(attention, _ROWS) * attention.kv_heads * attention.batch, 1, 1)
    kernel = Kernel(_text(attention), grid, (32 * _WARPS, 1, 1), shared_bytes=_shared_bytes(attention))
    arguments = tuple(source.argument for source in attention.sources)
    return KernelLaunch(kernel, arguments, attention.nbytes, attention.flops, may_overlap=True)


def repair(attention: Attention, chip: Chip) -> KernelLaunch:
    """A launch that computes again the tiles of a result that hold NaN, and reads the others: few blocks for all."""
    blocks, each = repaired_tiles(attention, _ROWS, chip)
    kernel = Kernel(_text(attention, each), (blocks, 1, 1), (32 * _WARPS, 1, 1), _shared_bytes(attention))
    arguments = tuple(source.argument for source in attention.sources)
    return KernelLaunch(kernel, arguments, attention.o.nbytes, may_overlap=True)


def _text(attention: Attention, repaired: int = 0) -> str:
    """The kernel; with `repaired` it goes through so many tiles a block, and computes those that need it."""
    number = SCORE_DTYPES.get(attention.q.dtype, "float")
    rows, steps, shared = attention.shared * attention.steps, attention.steps, attention.shared
    q, k, v, o = (source.strides for source in (attention.q, attention.k, attention.v, attention.o))
    depth, width = attention.depth, attention.width
    columns = -(-width // 32)
    index = index_type(attention.q, attention.k, attention.v, attention.o)
    power = "expf" if number == "float" else "exp"
    return f"""
extern "C" __global__ void __launch_bounds__({32 * _WARPS}) NAME({parameters(attention)}) {{
  begin();
  extern __shared__ {number} memory[];
  {number}* const queries = memory;
  {number}* const keys = queries + {_ROWS * depth};
  {number}* const values = keys + {_KEYS * (depth + 1)};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  {repair_code(attention, _ROWS, repaired, 32 * _WARPS) if repaired else "{"}
  {block_code(attention, _ROWS, "block" if repaired else "blockIdx.x")}
  const int first = tile * {_ROWS};
  const {index} first_key = ({index})sample * {k[0]} + ({index})kv_head * {k[1]};
  const {index} first_value = ({index})sample * {v[0]} + ({index})kv_head * {v[1]};
  {length_code(attention, "sample")}
  {score_code(attention, number)}
  for (int e = threadIdx.x; e < {_ROWS * depth}; e += {32 * _WARPS}) {{
    const int row = first + e / {depth}, h = kv_head * {shared} + row / {steps}, t = row % {steps};
    const {index} at = ({index})sample * {q[0]} + ({index})h * {q[1]} + ({index})t * {q[2]} + e % {depth} * {q[3]};
    queries[e] = row < {rows} ? ({number})get(q[at]) : 0;
  }}
  {number} sums[{_PER_WARP}][{columns}] = {{}}, most[{_PER_WARP}], total[{_PER_WARP}] = {{}};
  for (int r = 0; r < {_PER_WARP}; r++) most[r] = -INFINITE;
  for (int key0 = 0; key0 < length; key0 += {_KEYS}) {{
    __syncthreads();
    for (int e = threadIdx.x; e < {_KEYS * depth}; e += {32 * _WARPS}) {{
      const int key = key0 + e / {depth};
      const {index} at = first_key + ({index})key * {k[2]} + e % {depth} * {k[3]};
      keys[e / {depth} * {depth + 1} + e % {depth}] = key < length ? ({number})get(k[at]) : 0;
    }}
    for (int e = threadIdx.x; e < {_KEYS * width}; e += {32 * _WARPS}) {{
      const int key = key0 + e / {width};
      const {index} at = first_value + ({index})key * {v[2]} + e % {width} * {v[3]};
      values[e / {width} * {width + 1} + e % {width}] = key < length ? ({number})get(v[at]) : 0;
    }}
    __syncthreads();
    {number} scores[{_PER_WARP}] = {{}};
    for (int d = 0; d < {depth}; d++) {{
      const {number} x = keys[lane * {depth + 1} + d];
#pragma unroll
      for (int r = 0; r < {_PER_WARP}; r++) scores[r] += queries[(warp * {_PER_WARP} + r) * {depth} + d] * x;
    }}
#pragma unroll
    for (int r = 0; r < {_PER_WARP}; r++) {{
      const int row = first + warp * {_PER_WARP} + r;
      const {number} s = row < {rows}
          ? score(scores[r], kv_head * {shared} + row / {steps}, row % {steps}, key0 + lane) : ({number})-INFINITE;
      const {number} highest = greatest(most[r], warp_reduce<max_of, 32>(s));
      const {number} less = highest == -INFINITE ? ({number})0 : highest;
      const {number} factor = {power}(most[r] - less);
      scores[r] = {power}(s - less);
      most[r] = highest;
      total[r] = total[r] * factor + warp_reduce<sum, 32>(scores[r]);
#pragma unroll
      for (int c = 0; c < {columns}; c++) sums[r][c] *= factor;
    }}
    for (int key = 0; key < {_KEYS}; key++) {{
      {number} weights[{_PER_WARP}];
#pragma unroll
      for (int r = 0; r < {_PER_WARP}; r++) weights[r] = __shfl_sync(0xffffffffu, scores[r], key);
#pragma unroll
      for (int c = 0; c < {columns}; c++) {{
        const int column = lane + 32 * c;
        const {number} x = column < {width} ? values[key * {width + 1} + column] : 0;
#pragma unroll
        for (int r = 0; r < {_PER_WARP}; r++) sums[r][c] += weights[r] * x;
      }}
    }}
  }}
#pragma unroll
  for (int r = 0; r < {_PER_WARP}; r++) {{
    const int row = first + warp * {_PER_WARP} + r, h = kv_head * {shared} + row / {steps}, t = row % {steps};
    if (row >= {rows}) continue;
#pragma unroll
    for (int c = 0; c < {columns}; c++) {{
      const int column = lane + 32 * c;
      const {index} at = ({index})sample * {o[0]} + ({index})h * {o[1]} + ({index})t * {o[2]} + column * {o[3]};
      const {number} y = total[r] == 0 ? ({number})0 : sums[r][c] / total[r];
      if (column < {width}) put(o[at], ({computed(attention.o.dtype)})y);
    }}
  }}
  __syncthreads();
  }}
}}
"""
