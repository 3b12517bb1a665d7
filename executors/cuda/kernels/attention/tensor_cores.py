"""Attention of halves on tensor cores, without shared memory for keys and values (FlashAttention-2, arXiv:2307.08691).

Warps of a block share 16 rows of queries between them by keys, or have 16 rows each; blocks of a cluster share the keys
of the same rows (split-KV), and meet in distributed shared memory. Heads that share keys stand in the rows of one tile.

Fragments of `mma.m16n8k16` come from memory in 16-byte pieces. For q @ k' the order of the features is free: a lane's
eight neighbors fill its places of two `mma`. For the matmul with v the order of the columns is free: a lane takes
eight columns of a key, and pairs of keys are put together in registers. Where heads do not lie in whole pieces (sizes
of 36, slices that begin anywhere), a piece takes several loads, and zeros stand behind its last feature.

Weights are rounded to halves for the matmul with v, which a result shows by up to another half of its last place (of
f16, rms 2.4e-4 to 2.9e-4 instead of 2.1e-4). A warp that sees keys once, and so waits for memory, cuts them off instead
and multiplies the rest too, which is never 0: zero times an infinite value would be NaN.
"""

import math
from dataclasses import dataclass, replace

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.includes.warp_code import giving_code, warp_mma
from ...kernel_ir.launch import BufferPlace, Chip, Kernel, KernelLaunch
from ...kernel_ir.prefetch import Ahead
from ...kernel_ir.sources import Source
from ...kernel_ir.types import number
from .attention import Attention
from .code import (
    block_code,
    features_at_once,
    length_code,
    lies_in_pieces,
    parameters,
    repair_code,
    repaired_tiles,
    score_code,
    tiles,
)
from .new_rows import NewRows
from .shown_keys import shown_code, shows_alike, skipping_code, skips

_KEYS = 32
"""Keys that a warp takes at a time."""

_DTYPES = {DType.F16: "f16", DType.BF16: "bf16"}
MAX_SIZE = 128
MAX_SPLITS = 8
_LONG_CACHE = 2048
"""Keys from which on eight warps share those of a row, also of wide heads: 256 for each of `MAX_SPLITS` blocks."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Warps of a block by rows and by keys, and the blocks that share the keys of the same rows."""

    by_rows: int
    by_keys: int
    splits: int = 1

    @property
    def name(self) -> str:
        return f"{self.by_rows}x{self.by_keys}x{self.splits}"


_REPAIRS = Shape(4, 1)


def fits(attention: Attention) -> bool:
    """Whether all are halves whose features lie side by side."""
    sources = (attention.q, attention.k, attention.v, attention.o)
    return (
        attention.q.dtype in _DTYPES
        and all(source.dtype is attention.q.dtype and source.strides[3] == 1 for source in sources)
        and max(attention.depth, attention.width) <= MAX_SIZE
    )


def shapes(attention: Attention, chip: Chip) -> list[Shape]:
    """Shapes that are worth trying, best guess first."""
    blocks = tiles(attention, 16) * attention.kv_heads * attention.batch
    if blocks >= 8 * chip.multiprocessors:
        return [Shape(4, 1), Shape(2, 2)]
    by_keys = 8 if attention.keys >= 8 * _KEYS and attention.width <= 64 else 4
    splits = _splits(attention, chip, blocks, by_keys)
    few = _splits(attention, chip, blocks, 4)
    if few > 1 and attention.keys <= 4 * few * _KEYS:  # small blocks find room beside those of the matmul in front
        by_keys, splits = 4, few
    found: list[Shape] = []
    if attention.steps > 1 and attention.keys <= 4 * _KEYS:  # four warps would meet after one turn each
        found.append(Shape(1, 2))
    if attention.width > 64 and attention.keys >= _LONG_CACHE:  # eight warps of one block a multiprocessor
        fewer = 1
        while chip.arch >= 90 and fewer < MAX_SPLITS and 2 * fewer * blocks <= chip.multiprocessors:
            fewer *= 2
        found.append(Shape(1, 8, fewer))
    found += [Shape(1, by_keys, splits), Shape(1, by_keys), Shape(1, 4) if by_keys == 8 else Shape(1, 2), Shape(2, 2)]
    if blocks >= 2 * chip.multiprocessors:  # warps of a block read the same keys from the nearest cache
        found.append(Shape(4, 1))
    return list(dict.fromkeys(found))


def _splits(attention: Attention, chip: Chip, blocks: int, by_keys: int) -> int:
    """How many blocks share the keys of a row, where each has `by_keys` warps and `blocks` would not."""
    splits = 1
    while chip.arch >= 90 and splits < MAX_SPLITS and 2 * splits * blocks <= 2 * chip.multiprocessors:
        if attention.keys < 2 * splits * by_keys * _KEYS:
            break
        splits *= 2
    return splits


def repair(attention: Attention, chip: Chip) -> KernelLaunch:
    """A launch that computes again the tiles of a result that hold NaN, and reads the others: few blocks for all."""
    blocks, each = repaired_tiles(attention, 16 * _REPAIRS.by_rows, chip)
    return replace(_launch(attention, _REPAIRS, blocks, each), nbytes=attention.o.nbytes, flops=0)


def shape_named(candidate: str) -> Shape | None:
    """The shape of a candidate of attention; None for another kernel's."""
    kind, _, name = candidate.rpartition("-")
    return Shape(*map(int, name.split("x"))) if kind == "tensor-cores" else None


def launch_with_rows(attention: Attention, shape: Shape, rows: NewRows) -> KernelLaunch | None:
    """The launch of a shape that asks for keys and values before it waits, and writes the new row of each cache itself.

    None where there is no kernel for such operands.
    """
    if attention.lengths is not None or attention.is_causal or attention.steps != 1 or not fits(attention):
        return None
    if not all(map(lies_in_pieces, (attention.q, attention.k, attention.v, rows.key, rows.value))):
        return None
    blocks = tiles(attention, 16 * shape.by_rows) * attention.kv_heads * attention.batch
    return _launch(attention, shape, blocks, rows=rows)


def ahead_of(cache: Source, shape: Shape) -> Ahead:
    """The rows of a cache that warps ask for before they wait."""
    assert isinstance(cache.argument, BufferPlace)
    size, steps = element_bytes(cache.dtype), [stride * element_bytes(cache.dtype) for stride in cache.strides]
    rows = min(cache.shape[2], _KEYS * _parts(shape))
    nbytes = (rows - 1) * steps[2] + cache.shape[3] * size
    return Ahead(cache.argument, (cache.shape[0], cache.shape[1]), (steps[0], steps[1]), nbytes)


def launch(attention: Attention, shape: Shape) -> KernelLaunch:
    """The launch of one shape."""
    return _launch(attention, shape, tiles(attention, 16 * shape.by_rows) * attention.kv_heads * attention.batch)


def _launch(
    attention: Attention, shape: Shape, blocks: int, repaired: int = 0, rows: NewRows | None = None
) -> KernelLaunch:
    warps = shape.by_rows * shape.by_keys
    kernel = Kernel(
        _text(attention, shape, repaired, rows),
        (blocks * shape.splits, 1, 1),
        (32 * warps, 1, 1),
        shared_bytes=4 * _slots(attention, shape) * _parts(shape) * (_columns(attention) + 4 + 2),
        cluster=(shape.splits, 1, 1),
        early_loads=0 if rows is None else 4 * -(-attention.depth // 32) + 8 * (_columns(attention) // 64),
    )
    sources = (*attention.sources, *(rows.sources if rows is not None else ()))
    arguments = tuple(source.argument for source in sources)
    return KernelLaunch(kernel, arguments, attention.nbytes, attention.flops, may_overlap=True)


def _columns(attention: Attention) -> int:
    """The columns of v in whole blocks of 64."""
    return -(-attention.width // 64) * 64


def _text(attention: Attention, shape: Shape, repaired: int = 0, new: NewRows | None = None) -> str:
    """The kernel; with `repaired` it goes through so many tiles a block, and computes those that need it."""
    listed = ", ".join([parameters(attention), *(new.parameters if new is not None else ())])
    kind = _DTYPES[attention.q.dtype]
    rows, steps, shared = attention.shared * attention.steps, attention.steps, attention.shared
    q, k, v = (source.strides for source in (attention.q, attention.k, attention.v))
    q_at = f"q + (i64)sample * {q[0]} + (i64)heads[half] * {q[1]} + (i64)times[half] * {q[2]} + at"
    columns, depth = _columns(attention), attention.depth
    pitch = columns + 4
    warps = shape.by_rows * shape.by_keys
    stride, nl = _KEYS * shape.by_keys * shape.splits, "\n"
    keeps_rest = attention.keys <= stride
    seen = " && (shown >> (key - key0) & 1)" if shows_alike(attention) else ""
    return f"""
struct NAME_piece {{ unsigned w[4]; }};
__device__ inline NAME_piece NAME_load(const void* at, bool is_there) {{
  NAME_piece p = {{}};
  if (is_there)
#ifdef EMULATED
    memcpy(&p, at, 16);
#else
    asm volatile("ld.global.v4.u32 {{%0, %1, %2, %3}}, [%4];"
                 : "=r"(p.w[0]), "=r"(p.w[1]), "=r"(p.w[2]), "=r"(p.w[3]) : "l"(at));
#endif
  return p;
}}
{_PARTS if any(features_at_once(each) < 8 for each in (attention.q, attention.k, attention.v)) else ""}
{new.functions(kind) if new is not None else ""}
{warp_mma(kind)}
__device__ inline unsigned NAME_pack(float a, float b) {{
#ifdef EMULATED
  pack<{kind}, 2> y;
  put(y.v[0], a), put(y.v[1], b);
  {"y.v[0].bits -= fabsf(get(y.v[0])) > fabsf(a), y.v[1].bits -= fabsf(get(y.v[1])) > fabsf(b);" if keeps_rest else ""}
  return bits_as<unsigned>(y);
#else
  unsigned y;
  asm("cvt.{"rz" if keeps_rest else "rn"}.{kind}x2.f32 %0, %2, %1;" : "=r"(y) : "f"(a), "f"(b));
  return y;
#endif
}}
__device__ inline unsigned NAME_rest(float a, float b, unsigned cut) {{
  const pack<{kind}, 2> y = bits_as<pack<{kind}, 2>>(cut);
  const float least = as_float(0x33800000u);  // 2^-24, beside a sum of at least 1
  return NAME_pack(a > 0 ? fmaxf(a - get(y.v[0]), least) : 0, b > 0 ? fmaxf(b - get(y.v[1]), least) : 0);
}}
__device__ inline float NAME_power(float x) {{
#ifdef EMULATED
  return expf(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * {number(1 / math.log(2), "float")}));
  return y;
#endif
}}
{giving_code(shape.splits)}
extern "C" __global__ void __launch_bounds__({32 * warps}) NAME({listed}) {{
{"begin();" if new is None else TRIGGER}
  constexpr int PIECES = {-(-depth // 32)}, BLOCKS = {columns // 64}, PITCH = {pitch};
  extern __shared__ float memory[];  // sums of each part of a row, and their maxima and totals
  float* const of_parts = memory + {_slots(attention, shape) * _parts(shape) * pitch};
  {_arrivals(attention, shape)}
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  const int by_row = {f"warp / {shape.by_keys}" if shape.by_rows > 1 else 0}, by_key = warp % {shape.by_keys};
  const int split = blockIdx.x % {shape.splits};  // the compiler sees that one split is split 0
  {repair_code(attention, 16 * shape.by_rows, repaired, 32 * warps) if repaired else "{"}
  {block_code(attention, 16 * shape.by_rows, "block" if repaired else f"(blockIdx.x / {shape.splits})")}
  {length_code(attention, "sample")}
  {score_code(replace(attention, mask=None) if shows_alike(attention) else attention)}
  const int first = (tile * {shape.by_rows} + by_row) * 16;
  int heads[2], times[2];
  NAME_piece query[PIECES][2];
  auto load_query = [&]() {{
#pragma unroll
    for (int half = 0; half < 2; half++) {{
      const int row = first + group + 8 * half;
      heads[half] = kv_head * {shared} + row / {steps};
      times[half] = row % {steps};
#pragma unroll
      for (int p = 0; p < PIECES; p++) {{
        const int at = p * 32 + quad * 8;
        query[p][half] = {_load(attention.q, q_at, f"row < {rows}")};
      }}
    }}
  }};
  {"load_query();" if new is None else ""}
  const {kind}* const keys = k + (i64)sample * {k[0]} + (i64)kv_head * {k[1]};
  const {kind}* const values = v + (i64)sample * {v[0]} + (i64)kv_head * {v[1]};
  int end = length;
  {_causal_end(attention)}
  float sums[BLOCKS][8][4] = {{}}, most[2] = {{-INFINITE, -INFINITE}}, total[2] = {{}};
  const int start = (split * {shape.by_keys} + by_key) * {_KEYS};
  NAME_piece wanted[4][PIECES];
  auto load_keys = [&](int key0) {{
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int p = 0; p < PIECES; p++) {{
        const int key = key0 + n * 8 + group, at = p * 32 + quad * 8;
        wanted[n][p] = {_load(attention.k, f"keys + (i64)key * {k[2]} + at", "key < end")};
      }}
  }};
  NAME_piece found[2][BLOCKS][4];
  auto load_values = [&](int key0) {{
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int e = 0; e < 4; e++) {{
          const int key = key0 + 16 * s + e / 2 * 8 + quad * 2 + e % 2, at = b * 64 + group * 8;
          found[s][b][e] = {_load(attention.v, f"values + (i64)key * {v[2]} + at", "key < length")};
        }}
  }};
  load_keys(start);
  NAME_ready();  // the other blocks of the cluster run
  {"" if new is None else f"load_values(start);{nl}{WAIT}{nl}  load_query();"}
  {shown_code(attention, stride)}
{new.statements(attention, stride) if new is not None else ""}
  {skipping_code(attention, stride)}
  int key0 = start;
  {_first_seen(attention, stride, new)}
  for (int later; key0 < end; key0 = later) {{
    later = next_tile(key0);
    {_SHOWN if shows_alike(attention) else ""}
    float scores[4][4] = {{}};
    {"load_values(key0);" if new is None else ""}
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int p = 0; p < PIECES; p++) {{
        const unsigned* low = query[p][0].w; const unsigned* high = query[p][1].w; const unsigned* w = wanted[n][p].w;
        NAME_mma(scores[n], low[0], high[0], low[1], high[1], w[0], w[1]);
        NAME_mma(scores[n], low[2], high[2], low[3], high[3], w[2], w[3]);
      }}
    {"load_keys(later);" if new is None or not keeps_rest else ""}
    float highest[2] = {{most[0], most[1]}};
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {{
        const int half = e / 2, key = key0 + n * 8 + quad * 2 + e % 2;
        const bool is_row = first + group + 8 * half < {rows};
        scores[n][e] = is_row{seen} ? score(scores[n][e], heads[half], times[half], key) : -INFINITE;
        highest[half] = fmaxf(highest[half], scores[n][e]);
      }}
    float less[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {{
      highest[half] = fmaxf(highest[half], other_lane(highest[half], 1));
      highest[half] = fmaxf(highest[half], other_lane(highest[half], 2));
      less[half] = highest[half] == -INFINITE ? 0.0f : highest[half];
      const float factor = NAME_power(most[half] - less[half]);
      most[half] = highest[half];
      total[half] *= factor;
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < 8; j++) {{ sums[b][j][2 * half] *= factor; sums[b][j][2 * half + 1] *= factor; }}
    }}
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) {{
        scores[n][e] = NAME_power(scores[n][e] - less[e / 2]);
        total[e / 2] += scores[n][e];
      }}
#pragma unroll
    for (int s = 0; s < 2; s++) {{
      const unsigned a0 = NAME_pack(scores[2 * s][0], scores[2 * s][1]);
      const unsigned a1 = NAME_pack(scores[2 * s][2], scores[2 * s][3]);
      const unsigned a2 = NAME_pack(scores[2 * s + 1][0], scores[2 * s + 1][1]);
      const unsigned a3 = NAME_pack(scores[2 * s + 1][2], scores[2 * s + 1][3]);
{_rests() if keeps_rest else ""}
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < 8; j++) {{
          const unsigned choice = j % 2 ? 0x7632 : 0x5410;
          const unsigned b0 = __byte_perm(found[s][b][0].w[j / 2], found[s][b][1].w[j / 2], choice);
          const unsigned b1 = __byte_perm(found[s][b][2].w[j / 2], found[s][b][3].w[j / 2], choice);
          NAME_mma(sums[b][j], a0, a1, a2, a3, b0, b1);
          {"NAME_mma(sums[b][j], r0, r1, r2, r3, b0, b1);" if keeps_rest else ""}
        }}
    }}
    {"load_values(later); renew_keys(later); renew_values(later);" if new is not None and not keeps_rest else ""}
  }}
{_merged(attention, shape, pitch)}
  {"__syncthreads();" if repaired else ""}
  }}
}}
"""


_PARTS = """// The first `count` elements of a piece, `UNIT` of which lie at one address that a load may have.
template <int UNIT> __device__ inline NAME_piece NAME_load(const void* from, int count) {
  NAME_piece p = {};
  const unsigned short* const at = (const unsigned short*)from;
#ifdef EMULATED
  memcpy(&p, at, count < 0 ? 0 : count < 8 ? 2 * count : 16);
#else
#pragma unroll
  for (int i = 0; i < 8; i += UNIT)
    if (i < count) {
      if (UNIT == 4)
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(p.w[i / 2]), "=r"(p.w[i / 2 + 1]) : "l"(at + i));
      else if (UNIT == 2) {
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(p.w[i / 2]) : "l"(at + i));
      } else {
        unsigned short x;
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(at + i));
        p.w[i / 2] |= (unsigned)x << i % 2 * 16;
      }
    }
#endif
  return p;
}"""


def _load(source: Source, place: str, is_there: str) -> str:
    """The piece of a tensor at `place`, where feature `at` of a head is, if it is there."""
    unit, size = features_at_once(source), source.shape[3]
    if unit == 8:
        return f"NAME_load({place}, {is_there} && at < {size})"
    return f"NAME_load<{unit}>({place}, {is_there} ? {size} - at : 0)"


_SHOWN = "const unsigned shown = __ballot_sync(0xffffffffu, get(own_mask)); load_mask(later);"


def _first_seen(attention: Attention, stride: int, new: NewRows | None) -> str:
    """Statements that go on to the first keys that are seen; those of the first turn are asked for already."""
    if not skips(attention, stride):
        return ""
    return f"""if (!is_seen) {{
    key0 = next_tile(start);
    load_keys(key0);
    load_mask(key0);
    {"load_values(key0); renew_keys(key0); renew_values(key0);" if new is not None else ""}
  }}"""


def _rests() -> str:
    """Statements that name what was cut off a0 to a3."""
    scores = [f"scores[2 * s + {n // 2}][{n % 2 * 2}], scores[2 * s + {n // 2}][{n % 2 * 2 + 1}]" for n in range(4)]
    return "\n".join(f"      const unsigned r{n} = NAME_rest({given}, a{n});" for n, given in enumerate(scores))


def _causal_end(attention: Attention) -> str:
    """Statements that let `end` stop behind the last key that any row of the block sees."""
    if not attention.is_causal:
        return ""
    rows, steps = attention.shared * attention.steps, attention.steps
    return f"""{{
    const int last = least(first + 15, {rows - 1});
    const int latest = first / {steps} == last / {steps} ? last % {steps} : {steps - 1};
    end = least(end, latest + behind + 1);
  }}"""


def _merged(attention: Attention, shape: Shape, pitch: int) -> str:
    """What warps have of a row meets in the memory of one block, which ends it: rows are dealt to the cluster's blocks.

    `group` lanes share the parts of four columns.
    """
    threads = 32 * shape.by_rows * shape.by_keys
    rows, steps, width = attention.shared * attention.steps, attention.steps, attention.width
    parts, slots = _parts(shape), _slots(attention, shape)
    lanes, arrivals = min(8, parts), ", &arrivals" if shape.splits > 1 else ""
    o, kind = attention.o.strides, _DTYPES[attention.o.dtype]
    quads = -(-width // 4)
    each = f"for (int c = 0; c < 4; c++) {'' if width % 4 == 0 else f'if (column + c < {width}) '}at[c] = made.v[c];"
    store = "*(u64*)at = bits_as<u64>(made);" if features_at_once(attention.o) >= 4 else each
    met = "".join(
        f" {name} = {combined.format(name, f'other_lane({name}, {bit})')};"
        for bit in (1 << n for n in range(lanes.bit_length() - 1))
        for name, combined in (("whole", "{} + {}"), *((f"sum[{c}]", "{} + {}") for c in range(4)))
    )
    tops = "".join(f" top = fmaxf(top, other_lane(top, {1 << n}));" for n in range(lanes.bit_length() - 1))
    return f"""
#pragma unroll
  for (int half = 0; half < 2; half++) {{
    total[half] += other_lane(total[half], 1);
    total[half] += other_lane(total[half], 2);
    const int row = by_row * 16 + group + 8 * half;
    if (row < {min(16 * shape.by_rows, rows)}) {{
      const int part = row / {shape.splits} * {parts} + split * {shape.by_keys} + by_key, block = row % {shape.splits};
      if (quad == 0) NAME_give(of_parts + part * 2, block{arrivals}, most[half], total[half]);
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < 4; j++) {{
          const int e = 2 * half + j / 2, at = j % 2 * 4;
          NAME_give(memory + part * PITCH + b * 64 + quad * 16 + j * 4, block{arrivals}, sums[b][at][e],
                    sums[b][at + 1][e], sums[b][at + 2][e], sums[b][at + 3][e]);
        }}
    }}
  }}
  NAME_arrived({"&arrivals" if shape.splits > 1 else ""});
  for (int job0 = 0; job0 < {slots * quads}; job0 += {threads // lanes}) {{
    const int job = least(job0 + (int)threadIdx.x / {lanes}, {slots * quads - 1});
    const int lane_of_job = threadIdx.x % {lanes};
    const int slot = job / {quads}, column = job % {quads} * 4;
    float top = -INFINITE, whole = 0, sum[4] = {{}};
#pragma unroll
    for (int i = 0; i < {parts // lanes}; i++)
      top = fmaxf(top, of_parts[(slot * {parts} + i * {lanes} + lane_of_job) * 2]);
   {tops}
    const float less = top == -INFINITE ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < {parts // lanes}; i++) {{
      const int part = slot * {parts} + i * {lanes} + lane_of_job;
      const float weight = NAME_power(of_parts[part * 2] - less);
      whole += weight * of_parts[part * 2 + 1];
      const pack<float, 4> mine = *(const pack<float, 4>*)(memory + part * PITCH + column);
#pragma unroll
      for (int c = 0; c < 4; c++) sum[c] += weight * mine.v[c];
    }}
   {met}
    const int row = slot * {shape.splits} + split, query_row = tile * {16 * shape.by_rows} + row;
    const bool is_job = job0 + (int)threadIdx.x / {lanes} < {slots * quads};
    if (lane_of_job == 0 && is_job && row < {16 * shape.by_rows} && query_row < {rows}) {{
      const float share = whole == 0 ? 0.0f : 1 / whole;
      pack<{kind}, 4> made;
#pragma unroll
      for (int c = 0; c < 4; c++) put(made.v[c], whole == 0 ? 0.0f : sum[c] * share);
      const int h = kv_head * {attention.shared} + query_row / {steps}, t = query_row % {steps};
      {kind}* const at = o + (i64)sample * {o[0]} + (i64)h * {o[1]} + (i64)t * {o[2]} + column;
      {store}
    }}
  }}"""


def _arrivals(attention: Attention, shape: Shape) -> str:
    """Statements that tell the cluster that this block runs, and how much of others' work it waits for."""
    if shape.splits == 1:
        return ""
    rows = min(16 * shape.by_rows, attention.shared * attention.steps)
    nbytes = 4 * (_columns(attention) + 2) * _parts(shape)
    return f"""__shared__ u64 arrivals;
  NAME_here(&arrivals, ({rows + shape.splits - 1} - (int)(blockIdx.x % {shape.splits})) / {shape.splits} * {nbytes});"""


def _parts(shape: Shape) -> int:
    """How many warps share the keys of a row."""
    return shape.by_keys * shape.splits


def _slots(attention: Attention, shape: Shape) -> int:
    """How many rows a block ends."""
    return -(-min(16 * shape.by_rows, attention.shared * attention.steps) // shape.splits)
