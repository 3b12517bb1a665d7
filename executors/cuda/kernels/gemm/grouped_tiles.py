"""Tiles of a grouped product on tensor cores, for f16 and bf16 with sums in f32.

A block finds its tile by the ends of the groups: a warp scans them 32 at a time. Three stages of 64 elements of the
inner axis are under way, rows and matrix by 16-byte asynchronous copies. Matrices may lie either way, [K, N] as given
or transposed. Rows of a stage are 16 bytes longer than their content, so that what a warp reads at a time lies on
different banks.
"""

from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.async_copies import async_copies
from ...kernel_ir.launch import Kernel
from ...kernel_ir.sources import Source
from ...kernel_ir.types import stored
from ...kernel_ir.warp_code import MATRICES, warp_products

FIND_TILE = """
  __shared__ int found[3];
  if (threadIdx.x == 0) found[0] = -1;
  __syncthreads();
  {{
    const int lane = threadIdx.x % 32, tile = {block};
    int behind = 0, before = 0;  // rows and tiles of the groups seen so far
    for (int g0 = 0; g0 <= {groups}; g0 += 32) {{
      const int g = g0 + lane;
      int end = {rows};  // behind all groups are rows of none
      if (g < {groups}) {{
        const i64 given = ends[(i64)g * {stride}];
        end = given < 0 ? 0 : given > {rows} ? {rows} : (int)given;
      }}
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {{
        const int other = __shfl_up_sync(~0u, end, step);
        if (lane >= step && other > end) end = other;
      }}
      if (end < behind) end = behind;
      int start = __shfl_up_sync(~0u, end, 1);
      if (lane == 0) start = behind;
      const int tiles = g <= {groups} ? (end - start + {tile} - 1) / {tile} : 0;
      int upto = tiles;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {{
        const int other = __shfl_up_sync(~0u, upto, step);
        if (lane >= step) upto += other;
      }}
      upto += before;
      if (tile < upto && tile >= upto - tiles) {{
        found[0] = g, found[1] = start + (tile - upto + tiles) * {tile}, found[2] = end;
      }}
      behind = __shfl_sync(~0u, end, 31), before = __shfl_sync(~0u, upto, 31);
    }}
  }}
  __syncthreads();
  const int group = found[0], first = found[1], end = found[2];
  if (group < 0) return;
"""
"""Statements that find the group of tile `block`, its first row and the end of the group, or leave the kernel."""

_INNER, _STAGES, _GAP = 64, 3, 8


def most_tiles(rows: int, groups: int, tile: int) -> int:
    """How many tiles any ends can make: each group that has rows, and the rows of none, begin one more at most."""
    return (rows + min(rows, groups + 1) * (tile - 1)) // tile


@dataclass(frozen=True, slots=True)
class GroupedTiling:
    """A block's tile: `down` by `across` warps, of `high` times 16 rows by `wide` times 8 columns each."""

    down: int
    across: int
    high: int
    wide: int

    @property
    def rows(self) -> int:
        return 16 * self.down * self.high

    @property
    def columns(self) -> int:
        return 8 * self.wide * self.across

    @property
    def name(self) -> str:
        return f"grouped-{self.rows}x{self.columns}"


_TILINGS = (
    (GroupedTiling(1, 4, 1, 4), 16),
    (GroupedTiling(2, 2, 2, 4), 64),
    (GroupedTiling(2, 4, 4, 4), 256),
    (GroupedTiling(2, 4, 4, 8), 1 << 31),
)
"""With the rows a group up to which each is the best guess."""


def tilings(rows: int, groups: int) -> list[GroupedTiling]:
    """Best guess first, for groups of even sizes; then those of fewer rows."""
    first = next(index for index, (_, most) in enumerate(_TILINGS) if rows <= most * max(groups, 1))
    order = (*range(first, -1, -1), *range(first + 1, len(_TILINGS)))
    return [_TILINGS[index][0] for index in order]


def fits_tensor_cores(a: Source, b: Source) -> bool:
    """Whether rows and matrices can be copied in pieces of 16 bytes."""
    if a.dtype not in (DType.F16, DType.BF16) or a.strides[1] != 1 or not (a.starts_a_piece and b.starts_a_piece):
        return False
    if a.shape[1] % 8 or a.strides[0] % 8 or b.strides[0] % 8:
        return False
    if b.strides[1] == 1:
        return b.strides[2] % 8 == 0
    return b.strides[2] == 1 and b.strides[1] % 8 == 0 and b.shape[2] % 8 == 0


def tensor_core_tiles(a: Source, b: Source, ends: Source, d: Source, tiling: GroupedTiling) -> Kernel:
    """The kernel of one tiling."""
    rows, columns, inner, groups = d.shape[0], d.shape[1], a.shape[1], b.shape[0]
    kind, threads = stored(a.dtype), 32 * tiling.down * tiling.across
    is_transposed = b.strides[1] == 1
    pitch = _INNER + _GAP
    right_pitch = pitch if is_transposed else tiling.columns + _GAP
    left_size = tiling.rows * pitch
    stage = left_size + (tiling.columns * pitch if is_transposed else _INNER * right_pitch)
    find = FIND_TILE.format(rows=rows, groups=groups, stride=ends.strides[0], tile=tiling.rows, block="blockIdx.y")
    copy_right = _COPY_TRANSPOSED if is_transposed else _COPY_PLAIN
    copies = copy_right.format(
        count=(tiling.columns * _INNER) // 8,
        threads=threads,
        inner=inner,
        columns=columns,
        step=b.strides[2] if is_transposed else b.strides[1],
        pieces=_INNER // 8 if is_transposed else tiling.columns // 8,
        pitch=right_pitch,
        depth=_INNER,
        right=left_size,
    )
    # eight rows of eight elements each, of two neighboring pieces of eight columns
    place = (
        "right + (n0 + 8 * j + lane / 16 * 8 + lane % 8) * PITCH + part + lane / 8 % 2 * 8"
        if is_transposed
        else "right + (part + lane % 16) * RIGHT_PITCH + n0 + 8 * j + lane / 16 * 8"
    )
    read = (("a", a), ("b", b), ("ends", ends))
    parameters = ", ".join(f"const {stored(each.dtype)}* __restrict__ {name}" for name, each in read) + f", {kind}* d"
    text = f"""
{warp_products(kind)}
{MATRICES}
{async_copies(_STAGES - 2)}
extern "C" __global__ void __launch_bounds__({threads}) NAME({parameters}) {{
  begin();
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int PITCH = {pitch}, RIGHT_PITCH = {right_pitch}, STAGE = {stage};
  constexpr int HIGH = {tiling.high}, WIDE = {tiling.wide};
  {find}
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_first = (int)blockIdx.x * {tiling.columns};
  const int m0 = warp / {tiling.across} * {16 * tiling.high}, n0 = warp % {tiling.across} * {8 * tiling.wide};
  const bool has_group = group < {groups};
  const int steps = has_group ? {-(-inner // _INNER)} : 0;
  const {kind}* weight = b + (i64)(has_group ? group : 0) * {b.strides[0]};
  {kind}* const shared = ({kind}*)memory;
  auto load = [&](int step) {{
    if (step < steps) {{
      {kind}* const to = shared + step % {_STAGES} * STAGE;
      for (int i = threadIdx.x; i < {tiling.rows * _INNER // 8}; i += {threads}) {{
        const int m = i / {_INNER // 8}, k = i % {_INNER // 8} * 8, from = step * {_INNER} + k;
        const bool is_there = first + m < end && from < {inner};
        NAME_copy(to + m * PITCH + k, is_there ? a + (i64)(first + m) * {a.strides[0]} + from : a, is_there);
      }}
      {copies}
    }}
    NAME_commit();
  }};
  float sums[HIGH][WIDE][4] = {{}};
  for (int s = 0; s < {_STAGES - 1}; s++) load(s);
  for (int step = 0; step < steps; step++) {{
    NAME_wait();
    __syncthreads();
    load(step + {_STAGES - 1});
    const {kind}* left = shared + step % {_STAGES} * STAGE;
    const {kind}* right = left + {left_size};
#pragma unroll
    for (int part = 0; part < {_INNER}; part += 16) {{
      unsigned x[HIGH][4];
#pragma unroll
      for (int i = 0; i < HIGH; i++)
        NAME_matrices<false>(x[i], left + (m0 + 16 * i + lane % 16) * PITCH + part + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < WIDE; j += 2) {{
        unsigned y[4];
        NAME_matrices<{"false" if is_transposed else "true"}>(y, {place});
#pragma unroll
        for (int i = 0; i < HIGH; i++) {{
          NAME_mma(sums[i][j], x[i], y[0], y[1]);
          NAME_mma(sums[i][j + 1], x[i], y[2], y[3]);
        }}
      }}
    }}
  }}
#pragma unroll
  for (int i = 0; i < HIGH; i++)
#pragma unroll
    for (int j = 0; j < WIDE; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {{
        const int m = first + m0 + 16 * i + lane / 4 + e / 2 * 8, n = n_first + n0 + 8 * j + lane % 4 * 2 + e % 2;
        if (m < end && n < {columns}) put(d[(i64)m * {d.strides[0]} + (i64)n * {d.strides[1]}], sums[i][j][e]);
      }}
}}
"""
    grid = (-(-columns // tiling.columns), most_tiles(rows, groups, tiling.rows), 1)
    return Kernel(text, grid, (threads, 1, 1), shared_bytes=2 * _STAGES * stage)


_COPY_TRANSPOSED = """for (int i = threadIdx.x; i < {count}; i += {threads}) {{
        const int n = i / {pieces}, k = i % {pieces} * 8, from = step * {depth} + k;
        const bool is_there = n_first + n < {columns} && from < {inner};
        NAME_copy(to + {right} + n * {pitch} + k, is_there ? weight + (i64)(n_first + n) * {step} + from : b, is_there);
      }}"""

_COPY_PLAIN = """for (int i = threadIdx.x; i < {count}; i += {threads}) {{
        const int k = i / {pieces}, n = i % {pieces} * 8, from = step * {depth} + k;
        const bool is_there = n_first + n < {columns} && from < {inner};
        NAME_copy(to + {right} + k * {pitch} + n, is_there ? weight + (i64)from * {step} + n_first + n : b, is_there);
      }}"""
