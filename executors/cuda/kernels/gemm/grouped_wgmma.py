"""Tiles of a grouped product by the `wgmma` instructions of compute capability 9.0, for many rows a group.

A block has 128 rows and 256 columns, each of its two warp groups 64 rows. Four stages of 64 elements of the inner axis
lie in shared memory as the instructions read them: rows of 128 bytes, pieces of 16 bytes exchanged by the number of
their row, so that eight rows of a piece are on different banks (PTX ISA, 9.7.15: asynchronous warpgroup-level matrix
instructions, 128-byte swizzling). Matrices may lie either way, [K, N] as given or transposed. Blocks beside each other
have the same columns, so that a matrix is read once for all rows of its group.
"""

from .....ir.types import DType
from ...kernel_ir.async_copies import async_copies
from ...kernel_ir.launch import Chip, Kernel
from ...kernel_ir.sources import Source
from ...kernel_ir.types import stored
from .grouped_tiles import FIND_TILE, most_tiles

ROWS, COLUMNS = 128, 256
WAY = f"grouped-wgmma-{ROWS}x{COLUMNS}"
_ARCH = 90
_LEAST_ROWS = 96

_INNER, _STAGES, _THREADS = 64, 4, 256
_LEFT, _RIGHT = 2 * ROWS * _INNER, 2 * COLUMNS * _INNER
_ALIGNMENT = 1024


def suits_wgmma(chip: Chip, rows: int, groups: int) -> bool:
    """Whether the chip has the instructions, and groups have so many rows on average that these are the best guess."""
    return chip.arch == _ARCH and rows >= _LEAST_ROWS * max(groups, 1)


def wgmma_tiles(a: Source, b: Source, ends: Source, d: Source) -> Kernel:
    """The kernel, for operands that `fits_tensor_cores` admits."""
    rows, columns, inner, groups = d.shape[0], d.shape[1], a.shape[1], b.shape[0]
    kind = stored(a.dtype)
    is_transposed = b.strides[1] == 1
    find = FIND_TILE.format(rows=rows, groups=groups, stride=ends.strides[0], tile=ROWS, block="blockIdx.x")
    read = (("a", a), ("b", b), ("ends", ends))
    parameters = ", ".join(f"const {stored(each.dtype)}* __restrict__ {name}" for name, each in read) + f", {kind}* d"
    is_paired = d.strides[1] == 1 and d.strides[0] % 2 == columns % 2 == 0 and d.starts_a_piece
    text = f"""
{_instruction(a.dtype, is_transposed)}
{async_copies(1)}
{_emulated(kind, is_transposed)}
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({parameters}) {{
  begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  {find}
  const int n_first = (int)blockIdx.y * {COLUMNS}, t = threadIdx.x, part = t / 128;
  const bool has_group = group < {groups};
  const int steps = has_group ? {-(-inner // _INNER)} : 0;
  const {kind}* weight = b + (i64)(has_group ? group : 0) * {b.strides[0]};
#ifdef EMULATED
  unsigned char* const shared = (unsigned char*)memory;
#else
  const unsigned behind = (unsigned)__cvta_generic_to_shared(memory) % {_ALIGNMENT};
  unsigned char* const shared = memory + ({_ALIGNMENT} - behind) % {_ALIGNMENT};
#endif
  const int left_row = t / 8, left_k = t % 8 * 8;
  const {kind}* const left_from = a + (i64)(first + left_row) * {a.strides[0]} + left_k;
  const int left_to = left_row * 128 + (t % 8 ^ left_row % 8) * 16;
  {_right_places(is_transposed, kind, b)}
  auto load = [&](int step) {{
    if (step < steps) {{
      unsigned char* const to = shared + step % {_STAGES} * {_LEFT + _RIGHT};
      const int k0 = step * {_INNER};
#pragma unroll
      for (int u = 0; u < {ROWS // 32}; u++) {{
        const bool is_there = first + left_row + 32 * u < end && k0 + left_k < {inner};
        NAME_copy(to + left_to + u * 4096, is_there ? left_from + (i64)(32 * u) * {a.strides[0]} + k0 : a, is_there);
      }}
#pragma unroll
      for (int u = 0; u < 8; u++) {{
        {_right_copy(is_transposed, columns, inner, b)}
      }}
    }}
    NAME_commit();
  }};
  float sums[128] = {{}};
  NAME_settled(sums);
  load(0);
  load(1);
  for (int step = 0; step < steps; step++) {{
    NAME_wait();
#ifndef EMULATED
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
    __syncthreads();  // the stage is there, and the one of two steps ago is free
    unsigned char* const left = shared + step % {_STAGES} * {_LEFT + _RIGHT} + part * {_LEFT // 2};
    unsigned char* const right = shared + step % {_STAGES} * {_LEFT + _RIGHT} + {_LEFT};
#ifdef EMULATED
    NAME_emulated(sums, left, right);
    load(step + 2);
#else
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < {_INNER // 16}; k++)
      NAME_product(sums, left + k * 32, right + k * {32 if is_transposed else 2048});
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    load(step + 2);
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
  }}
#ifndef EMULATED
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
  NAME_settled(sums);
  const int m0 = first + part * 64 + t % 128 / 32 * 16 + t % 32 / 4, n0 = n_first + t % 4 * 2;
#pragma unroll
  for (int j = 0; j < {COLUMNS // 8}; j++)
#pragma unroll
    for (int half = 0; half < 2; half++) {{
      const int m = m0 + 8 * half, n = n0 + 8 * j;
      {_store(kind, columns, d, is_paired)}
    }}
}}
"""
    grid = (most_tiles(rows, groups, ROWS), -(-columns // COLUMNS), 1)
    return Kernel(text, grid, (_THREADS, 1, 1), shared_bytes=_STAGES * (_LEFT + _RIGHT) + _ALIGNMENT)


def _instruction(dtype: DType, is_transposed: bool) -> str:
    """64 rows by 256 columns by 16 elements. Descriptors: where the matrix begins, and how far its pieces are apart."""
    sums = ", ".join(f"%{index}" for index in range(128))
    held = ", ".join(f'"+f"(d[{index}])' for index in range(128))
    kind = {DType.F16: "f16", DType.BF16: "bf16"}[dtype]
    # of [K, N] in memory, 64 columns lie 8 KiB behind the 64 before
    lead = 16 if is_transposed else 8192
    return f"""
// Sums are read and written on this side of it: nothing else ties registers to a wait for instructions under way.
__device__ inline void NAME_settled(float* sums) {{
#ifndef EMULATED
#pragma unroll
  for (int i = 0; i < 128; i++) asm volatile("" : "+f"(sums[i]) :: "memory");
#endif
}}
#ifndef EMULATED
__device__ __forceinline__ u64 NAME_matrix(const unsigned char* at, unsigned lead) {{
  const unsigned from = (unsigned)__cvta_generic_to_shared(at);
  return (u64)(from >> 4 & 0x3fff) | (u64)(lead >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}}
__device__ __forceinline__ void NAME_product(float* d, const unsigned char* left, const unsigned char* right) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %130, 0; "
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.{kind}.{kind} "
    "{{{sums}}}, %128, %129, p, 1, 1, 0, {int(not is_transposed)}; }}"
    : {held}
    : "l"(NAME_matrix(left, 16)), "l"(NAME_matrix(right, {lead})), "r"(1));
}}
#endif"""


def _emulated(kind: str, is_transposed: bool) -> str:
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
  for (int j = 0; j < 32; j++)
    for (int e = 0; e < 4; e++) {{
      const int m = t / 32 * 16 + t % 32 / 4 + e / 2 * 8, n = 8 * j + t % 4 * 2 + e % 2;
      for (int k = 0; k < {_INNER}; k++)
        sums[4 * j + e] += (float)get(*(const {kind}*)(left + m * 128 + (k / 8 ^ m % 8) * 16 + k % 8 * 2))
          * (float)get(*(const {kind}*)(right + {right}));
    }}
}}
#endif"""


def _right_places(is_transposed: bool, kind: str, b: Source) -> str:
    """Which piece of the matrix a thread begins to copy, and where to: eight of them, a fixed distance apart."""
    if is_transposed:
        return f"""const int right_n = t / 8, right_k = t % 8 * 8, right_to = {_LEFT} + left_to;
  const {kind}* const right_from = weight + (i64)(n_first + right_n) * {b.strides[2]} + right_k;"""
    return f"""const int right_n = t % 32 * 8, right_k = t / 32;
  const int right_to = {_LEFT} + t % 32 / 8 * 8192 + right_k * 128 + (t % 8 ^ right_k) * 16;
  const {kind}* const right_from = weight + (i64)right_k * {b.strides[1]} + n_first + right_n;"""


def _right_copy(is_transposed: bool, columns: int, inner: int, b: Source) -> str:
    if is_transposed:
        inside = f"n_first + right_n + 32 * u < {columns} && k0 + right_k < {inner}"
        source, apart = f"right_from + (i64)(32 * u) * {b.strides[2]} + k0", 4096
    else:
        inside = f"n_first + right_n < {columns} && k0 + right_k + 8 * u < {inner}"
        source, apart = f"right_from + (i64)(k0 + 8 * u) * {b.strides[1]}", 1024
    return f"""const bool is_there = {inside};
        NAME_copy(to + right_to + u * {apart}, is_there ? {source} : b, is_there);"""


def _store(kind: str, columns: int, d: Source, is_paired: bool) -> str:
    at = f"d + ((i64)m * {d.strides[0]} + (i64)n * {d.strides[1]})"
    if is_paired:
        return f"""if (m < end && n < {columns}) {{
        pack<{kind}, 2> both; put(both.v[0], sums[4 * j + 2 * half]); put(both.v[1], sums[4 * j + 2 * half + 1]);
        *(pack<{kind}, 2>*)({at}) = both; }}"""
    return f"""for (int e = 0; e < 2; e++)
        if (m < end && n + e < {columns}) put(({at})[e * {d.strides[1]}], sums[4 * j + 2 * half + e]);"""
