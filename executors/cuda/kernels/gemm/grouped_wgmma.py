"""Tiles of a grouped GEMM by the `wgmma` instructions of compute capability 9.0, for many rows a group.

A block has tiles of 128 rows and 256 or 128 columns, one after another: one warp has the copy engine bring stages of 64
elements of the inner axis to shared memory (`bulk_copies.py`), two warp groups of 64 rows each multiply them, and the
engine goes on with the next tile while they store. Shared memory holds rows of 128 bytes, as the instructions read them
(PTX ISA, 9.7.15: asynchronous warpgroup-level matrix instructions, 128-byte swizzling). Matrices may lie either way,
[K, N] as given or transposed. Blocks work on one group at a time, rows first, so that its matrix is read once.
"""

import math

from .....ir.types import DType
from ...kernel_ir.includes.bulk_copies import BARRIER_BYTES, MAP_BYTES, bulk_copies, tensor_map
from ...kernel_ir.launch import Chip, Kernel
from ...kernel_ir.sources import Source
from ...kernel_ir.types import stored
from .grouped_tiles import most_tiles

ROWS, WIDTHS = 128, (256, 128)
MOST_GROUPS = 256
_ARCH = 90
_LEAST_ROWS = 96

_INNER, _WORKERS = 64, 256
_THREADS = _WORKERS + 128
_LEFT, _STAGE_MEMORY = 2 * ROWS * _INNER, 192 << 10
_STAGED = _WORKERS // 32 * 4096
"""Bytes in which warps put results in order: 16 rows of 128 columns each."""
_ALIGNMENT = 1024
_OVERHEAD = 32
"""Columns that a tile could have in the time that its rows and its beginning and end cost: 10 to 60 as measured."""
_BAND = 16
"""Tiles of rows that blocks go through before they come to the next columns."""


def suits_wgmma(chip: Chip, a: Source, b: Source, d: Source) -> bool:
    """Whether the chip has the instructions, and groups have so many rows on average that these are the best guess.

    Operands are those that `fits_tensor_cores` admits; the result must be written in pieces of 16 bytes.
    """
    rows, groups = a.shape[0], b.shape[0]
    in_pieces = d.strides[1] == 1 and d.strides[0] % 8 == d.shape[1] % 8 == 0 and d.starts_a_piece
    steps = (a.strides[0], b.strides[0], b.strides[1] * b.strides[2])
    is_full = a.shape[1] > 0 and d.shape[1] > 0 and all(step > 0 for step in steps)
    many = 0 < groups <= MOST_GROUPS and rows >= _LEAST_ROWS * groups and a.dtype is not DType.F32
    return chip.arch == _ARCH and in_pieces and is_full and many


def widths(chip: Chip, rows: int, groups: int, columns: int) -> list[int]:
    """The columns of a tile, best guess first: the ones whose last round of blocks leaves fewer of them idle."""
    high = rows / ROWS + groups / 2

    def rounds(width: int) -> float:
        return math.ceil(high * -(-columns // width) / chip.multiprocessors) * (width + _OVERHEAD)

    return sorted(WIDTHS, key=rounds)


def map_bytes(chip: Chip) -> int:
    """The scratch that `wgmma_tiles` takes: each block makes the maps of both operands."""
    return 2 * MAP_BYTES * chip.multiprocessors


def wgmma_tiles(a: Source, b: Source, ends: Source, d: Source, chip: Chip, width: int) -> Kernel:
    """The kernel of tiles of `width` columns, for operands that `suits_wgmma` admits. Its last parameter is scratch."""
    rows, columns, inner, groups = d.shape[0], d.shape[1], a.shape[1], b.shape[0]
    kind = stored(a.dtype)
    is_transposed = b.strides[1] == 1
    across = -(-columns // width)
    stage_bytes = _LEFT + 2 * width * _INNER
    stages = _STAGE_MEMORY // stage_bytes
    read = (("a", a), ("b", b), ("ends", ends))
    parameters = ", ".join(f"const {stored(each.dtype)}* __restrict__ {name}" for name, each in read)
    free = f"NAME_arrive(empty + {BARRIER_BYTES} * before)"
    text = f"""
{_instruction(a.dtype, is_transposed, width)}
{bulk_copies()}
{tensor_map("map_rows", a.dtype, (inner, rows, 1), (a.strides[0],) * 2, ROWS)}
{_matrix_map(b, is_transposed, width)}
{_emulated(kind, is_transposed, width)}
{_walk(rows, groups, across, width)}
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({parameters}, {kind}* d, unsigned char* scratch) {{
  begin();
  extern __shared__ __align__(1024) unsigned char memory[];
#ifdef EMULATED
  unsigned char* const shared = (unsigned char*)memory;
#else
  unsigned char* const shared = memory + ({_ALIGNMENT} - NAME_at(memory) % {_ALIGNMENT}) % {_ALIGNMENT};
#endif
  unsigned char* const staged = shared + {stages * stage_bytes};
  NAME_map* const made = (NAME_map*)(staged + {_STAGED});
  unsigned char* const full = (unsigned char*)(made + 2);
  unsigned char* const empty = full + {stages * BARRIER_BYTES};
  int* const upto = (int*)(empty + {stages * BARRIER_BYTES});
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  if (t == 0)
    for (int stage = 0; stage < {stages}; stage++) {{
      NAME_make_barrier(full + {BARRIER_BYTES} * stage, 1);
      NAME_make_barrier(empty + {BARRIER_BYTES} * stage, {_WORKERS // 32});
    }}
  {_ends(rows, groups, ends)}
#ifndef EMULATED
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
  __syncthreads();
  NAME_walk walk(upto);
  int stage = 0;
  if (t >= {_WORKERS}) {{
#ifndef EMULATED
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
    if (warp != {_WORKERS // 32}) return;
    NAME_map* const maps = (NAME_map*)scratch + 2 * blockIdx.x;
    NAME_map_rows(maps, made, a);
    NAME_map_matrices(maps + 1, made + 1, b);
    if (lane != 0) return;
    unsigned parity = 1;  // what was never filled is free
    for (int tile = blockIdx.x; walk.reaches(upto, tile); tile += gridDim.x)
      for (int step = 0; step < walk.steps({-(-inner // _INNER)}); step++) {{
        NAME_await(empty + {BARRIER_BYTES} * stage, parity);
        unsigned char* const to = shared + stage * {stage_bytes};
        unsigned char* const barrier = full + {BARRIER_BYTES} * stage;
        NAME_expect(barrier, {stage_bytes});
        NAME_fetch(to, maps, barrier, step * {_INNER}, walk.row, 0);
        {_fetch_matrix(is_transposed, width)}
        if (++stage == {stages}) stage = 0, parity ^= 1;
      }}
    return;
  }}
#ifndef EMULATED
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
  const int part = warp / 4;
  unsigned char* const mine = staged + warp * 4096;
  unsigned parity = 0;
  for (int tile = blockIdx.x; walk.reaches(upto, tile); tile += gridDim.x) {{
    const int steps = walk.steps({-(-inner // _INNER)});
    float sums[{width // 2}] = {{}};
    int before = -1;  // the stage that is being read
    NAME_settled(sums);
    for (int step = 0; step < steps; step++) {{
      NAME_await(full + {BARRIER_BYTES} * stage, parity);
      const unsigned char* const left = shared + stage * {stage_bytes} + part * {_LEFT // 2};
      const unsigned char* const right = shared + stage * {stage_bytes} + {_LEFT};
#ifdef EMULATED
      NAME_emulated(sums, left, right);
#else
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < {_INNER // 16}; k++)
        NAME_multiply(sums, left + k * 32, right + k * {32 if is_transposed else 2048});
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
      if (before >= 0 && lane == 0) {free};
      before = stage;
      if (++stage == {stages}) stage = 0, parity ^= 1;
    }}
#ifndef EMULATED
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
    NAME_settled(sums);
    if (before >= 0 && lane == 0) {free};
    {_store(kind, columns, d, width)}
  }}
}}
"""
    blocks = min(chip.multiprocessors, most_tiles(rows, groups, ROWS) * across)
    small = 2 * MAP_BYTES + 2 * stages * BARRIER_BYTES + 4 * (groups + 1)
    shared_bytes = stages * stage_bytes + _STAGED + small + _ALIGNMENT
    return Kernel(text, (blocks, 1, 1), (_THREADS, 1, 1), shared_bytes)


def _ends(rows: int, groups: int, ends: Source) -> str:
    """Statements by which each warp finds where groups end; behind them are rows of none."""
    return f"""int reached = 0;
  for (int g0 = 0; g0 <= {groups}; g0 += 32) {{
    const int g = g0 + lane;
    int end = {rows};
    if (g < {groups}) {{
      const i64 given = ends[(i64)g * {ends.strides[0]}];
      end = given < 0 ? 0 : given > {rows} ? {rows} : (int)given;
    }}
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {{
      const int other = __shfl_up_sync(~0u, end, step);
      if (lane >= step && other > end) end = other;
    }}
    if (end < reached) end = reached;
    if (warp == 0 && g <= {groups}) upto[g] = end;
    reached = __shfl_sync(~0u, end, 31);
  }}"""


def _walk(rows: int, groups: int, across: int, width: int) -> str:
    """From tile to tile, each a later one: its group, row and column."""
    return f"""
struct NAME_walk {{
  int group = 0, start = 0, end, before = 0, row, column;
  __device__ inline explicit NAME_walk(const int* upto) : end(upto[0]) {{}}
  __device__ inline bool reaches(const int* upto, int tile) {{
    int tiles = (end - start + {ROWS - 1}) / {ROWS};
    while (tile >= before + tiles * {across}) {{
      if (group == {groups}) return false;
      before += tiles * {across}, start = end, end = upto[++group];
      tiles = (end - start + {ROWS - 1}) / {ROWS};
    }}
    const int place = tile - before, band = place / {_BAND * across};
    const int tall = tiles - {_BAND} * band < {_BAND} ? tiles - {_BAND} * band : {_BAND};
    const int rest = place - {_BAND * across} * band;
    row = start + (rest % tall + {_BAND} * band) * {ROWS};
    column = rest / tall * {width};
    return true;
  }}
  __device__ inline int steps(int all) const {{ return group < {groups} ? all : 0; }}
}};"""


def _matrix_map(b: Source, is_transposed: bool, width: int) -> str:
    groups, inner, columns = b.shape
    if is_transposed:
        return tensor_map("map_matrices", b.dtype, (inner, columns, groups), (b.strides[2], b.strides[0]), width)
    return tensor_map("map_matrices", b.dtype, (columns, inner, groups), (b.strides[1], b.strides[0]), _INNER)


def _fetch_matrix(is_transposed: bool, width: int) -> str:
    """Of [K, N] in memory, a tile has 64 columns: 8 KiB each."""
    if is_transposed:
        return f"NAME_fetch(to + {_LEFT}, maps + 1, barrier, step * {_INNER}, walk.column, walk.group);"
    return f"""for (int n = 0; n < {width}; n += 64)
          NAME_fetch(to + {_LEFT} + 128 * n, maps + 1, barrier, walk.column + n, step * {_INNER}, walk.group);"""


def _instruction(dtype: DType, is_transposed: bool, width: int) -> str:
    """64 rows by `width` columns by 16 elements; descriptors say where matrices begin and how far pieces are apart."""
    count = width // 2
    sums = ", ".join(f"%{index}" for index in range(count))
    held = ", ".join(f'"+f"(d[{index}])' for index in range(count))
    kind = {DType.F16: "f16", DType.BF16: "bf16"}[dtype]
    # of [K, N] in memory, 64 columns lie 8 KiB behind the 64 before
    lead = 16 if is_transposed else 8192
    return f"""
// Lanes of a warp wait for each other, whatever other warps do.
__device__ inline void NAME_align() {{
#ifdef EMULATED
  emulated_pause();
#else
  __syncwarp();
#endif
}}
// Sums are read and written on this side of it: nothing else ties registers to a wait for instructions under way.
__device__ inline void NAME_settled(float* sums) {{
#ifndef EMULATED
#pragma unroll
  for (int i = 0; i < {count}; i++) asm volatile("" : "+f"(sums[i]) :: "memory");
#endif
}}
#ifndef EMULATED
__device__ __forceinline__ u64 NAME_matrix(const unsigned char* at, unsigned lead) {{
  const unsigned from = (unsigned)__cvta_generic_to_shared(at);
  return (u64)(from >> 4 & 0x3fff) | (u64)(lead >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}}
__device__ __forceinline__ void NAME_multiply(float* d, const unsigned char* left, const unsigned char* right) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0; "
    "wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{kind}.{kind} "
    "{{{sums}}}, %{count}, %{count + 1}, p, 1, 1, 0, {int(not is_transposed)}; }}"
    : {held}
    : "l"(NAME_matrix(left, 16)), "l"(NAME_matrix(right, {lead})), "r"(1));
}}
#endif"""


def _emulated(kind: str, is_transposed: bool, width: int) -> str:
    """What the instructions do with a stage, by the same places."""
    right = (
        "n * 128 + (k / 8 ^ n % 8) * 16 + k % 8 * 2"
        if is_transposed
        else "n / 64 * 8192 + k * 128 + (n % 64 / 8 ^ k % 8) * 16 + n % 8 * 2"
    )
    return f"""
#ifdef EMULATED
static void NAME_emulated(float* sums, const unsigned char* left, const unsigned char* right) {{
  const int t = threadIdx.x % 128;
  for (int j = 0; j < {width // 8}; j++)
    for (int e = 0; e < 4; e++) {{
      const int m = t / 32 * 16 + t % 32 / 4 + e / 2 * 8, n = 8 * j + t % 4 * 2 + e % 2;
      for (int k = 0; k < {_INNER}; k++)
        sums[4 * j + e] += (float)get(*(const {kind}*)(left + m * 128 + (k / 8 ^ m % 8) * 16 + k % 8 * 2))
          * (float)get(*(const {kind}*)(right + {right}));
    }}
}}
#endif"""


def _store(kind: str, columns: int, d: Source, width: int) -> str:
    """Statements by which a warp puts its sums in order, 128 columns at a time, and writes rows of 256 bytes."""
    return f"""const int up = lane / 4, side = lane % 4, m0 = walk.row + part * 64 + warp % 4 * 16;
#pragma unroll
    for (int half = 0; half < {width // 128}; half++) {{
#pragma unroll
      for (int j = 0; j < 16; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {{
          pack<{kind}, 2> both;
          put(both.v[0], sums[64 * half + 4 * j + 2 * e]);
          put(both.v[1], sums[64 * half + 4 * j + 2 * e + 1]);
          *(pack<{kind}, 2>*)(mine + (up + 8 * e) * 256 + (j ^ up) * 16 + side * 4) = both;
        }}
      NAME_align();
#pragma unroll
      for (int i = 0; i < 8; i++) {{
        const int row = 2 * i + lane / 16, piece = lane % 16, n = walk.column + 128 * half + piece * 8;
        if (m0 + row < walk.end && n < {columns})
          *(word16*)(d + ((i64)(m0 + row) * {d.strides[0]} + n)) =
            *(const word16*)(mine + row * 256 + (piece ^ row % 8) * 16);
      }}
      NAME_align();
    }}"""
