"""Tiles of a grouped GEMM on tensor cores, with sums in f32; operands of f32 are in two parts (`float_parts.py`).

A block finds its tile by the ends of the groups: a warp scans them 32 at a time. Three stages of 128 bytes of the
inner axis are under way, rows and matrix by 16-byte asynchronous copies. Matrices may lie either way, [K, N] as given
or transposed. Rows of a stage are 16 bytes longer than their content, so that what a warp reads at a time lies on
different banks.
"""

from dataclasses import dataclass

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.includes.async_copies import async_copies
from ...kernel_ir.includes.float_parts import float_parts, run_with_parts
from ...kernel_ir.includes.warp_code import MATRICES, warp_mma
from ...kernel_ir.launch import Kernel
from ...kernel_ir.sources import Source
from ...kernel_ir.types import stored

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

_STAGE_BYTES, _STAGES, _GAP = 128, 3, 8


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

_SINGLE_TILINGS = (
    (GroupedTiling(1, 4, 1, 4), 32),
    (GroupedTiling(2, 2, 2, 4), 256),
    (GroupedTiling(2, 4, 4, 4), 1 << 31),
)
"""In f32, where the largest has no room."""


def tilings(dtype: DType, rows: int, groups: int) -> list[GroupedTiling]:
    """Best guess first, for groups of even sizes; then those of fewer rows."""
    known = _SINGLE_TILINGS if dtype is DType.F32 else _TILINGS
    first = next(index for index, (_, most) in enumerate(known) if rows <= most * max(groups, 1))
    return [known[index][0] for index in (*range(first, -1, -1), *range(first + 1, len(known)))]


def fits_tensor_cores(a: Source, b: Source) -> bool:
    """Whether rows and matrices can be copied in pieces of 16 bytes."""
    is_known = a.dtype in (DType.F16, DType.BF16, DType.F32)
    if not is_known or a.strides[1] != 1 or not (a.starts_a_piece and b.starts_a_piece):
        return False
    piece = 16 // element_bytes(a.dtype)
    if a.shape[1] % piece or a.strides[0] % piece or b.strides[0] % piece:
        return False
    if b.strides[1] == 1:
        return b.strides[2] % piece == 0
    return b.strides[2] == 1 and b.strides[1] % piece == 0 and b.shape[2] % piece == 0


def tensor_core_tiles(a: Source, b: Source, ends: Source, d: Source, tiling: GroupedTiling, rounds: bool) -> Kernel:
    """The kernel of one tiling; with `rounds`, operands of f32 are rounded to TF32."""
    rows, columns, inner, groups = d.shape[0], d.shape[1], a.shape[1], b.shape[0]
    kind, threads, itemsize = stored(a.dtype), 32 * tiling.down * tiling.across, element_bytes(a.dtype)
    is_transposed, is_single = b.strides[1] == 1, a.dtype is DType.F32
    depth, piece = _STAGE_BYTES // itemsize, 16 // itemsize
    pitch = depth + _GAP
    right_pitch = pitch if is_transposed else tiling.columns + (4 if is_single else _GAP)
    left_size = tiling.rows * pitch
    stage = left_size + (tiling.columns * pitch if is_transposed else depth * right_pitch)
    find = FIND_TILE.format(rows=rows, groups=groups, stride=ends.strides[0], tile=tiling.rows, block="blockIdx.y")
    copy_right = _COPY_TRANSPOSED if is_transposed else _COPY_PLAIN
    copies = copy_right.format(
        count=(tiling.columns * depth) // piece,
        threads=threads,
        inner=inner,
        columns=columns,
        step=b.strides[2] if is_transposed else b.strides[1],
        pieces=depth // piece if is_transposed else tiling.columns // piece,
        piece=piece,
        pitch=right_pitch,
        depth=depth,
        right=left_size,
    )
    functions = float_parts(rounds) if is_single else warp_mma(kind) + MATRICES
    multiply = _single_mma(is_transposed) if is_single else _half_mma(is_transposed)
    read = (("a", a), ("b", b), ("ends", ends))
    parameters = ", ".join(f"const {stored(each.dtype)}* __restrict__ {name}" for name, each in read) + f", {kind}* d"
    # a lane reads neighbors of a matrix in f32 that lies by rows: two tiles of eight columns take turns
    column = "j / 2 * 16 + place * 2 + j % 2" if is_single and not is_transposed else "8 * j + place"
    multiply = f"""
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < WIDE; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[i][j][e] = 0;
    for (int s = 0; s < {_STAGES - 1}; s++) load(s);
    for (int step = 0; step < steps; step++) {{
      NAME_wait();
      __syncthreads();
      load(step + {_STAGES - 1});
      const {kind}* left = shared + step % {_STAGES} * STAGE;
      const {kind}* right = left + {left_size};
      {multiply}
    }}
    bool is_nan = false;
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < WIDE; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) is_nan |= sums[i][j][e] != sums[i][j][e];
    return is_nan;"""
    run = run_with_parts(multiply, rounds) if is_single else f"[&]() -> bool {{ {multiply} }}();"
    text = f"""
{functions}
{async_copies(_STAGES - 2)}
extern "C" __global__ void __launch_bounds__({threads}) NAME({parameters}) {{
  begin();
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int PITCH = {pitch}, RIGHT_PITCH = {right_pitch}, STAGE = {stage}, DEPTH = {depth};
  constexpr int HIGH = {tiling.high}, WIDE = {tiling.wide};
  {find}
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_first = (int)blockIdx.x * {tiling.columns};
  const int m0 = warp / {tiling.across} * {16 * tiling.high}, n0 = warp % {tiling.across} * {8 * tiling.wide};
  const bool has_group = group < {groups};
  const int steps = has_group ? {-(-inner // depth)} : 0;
  const {kind}* weight = b + (i64)(has_group ? group : 0) * {b.strides[0]};
  {kind}* const shared = ({kind}*)memory;
  auto load = [&](int step) {{
    if (step < steps) {{
      {kind}* const to = shared + step % {_STAGES} * STAGE;
      for (int i = threadIdx.x; i < {tiling.rows * depth // piece}; i += {threads}) {{
        const int m = i / {depth // piece}, k = i % {depth // piece} * {piece}, from = step * DEPTH + k;
        const bool is_there = first + m < end && from < {inner};
        NAME_copy(to + m * PITCH + k, is_there ? a + (i64)(first + m) * {a.strides[0]} + from : a, is_there);
      }}
      {copies}
    }}
    NAME_commit();
  }};
  float sums[HIGH][WIDE][4];
  {run}
#pragma unroll
  for (int i = 0; i < HIGH; i++)
#pragma unroll
    for (int j = 0; j < WIDE; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {{
        const int m = first + m0 + 16 * i + lane / 4 + e / 2 * 8, place = lane % 4 * 2 + e % 2;
        const int n = n_first + n0 + {column};
        if (m < end && n < {columns}) put(d[(i64)m * {d.strides[0]} + (i64)n * {d.strides[1]}], sums[i][j][e]);
      }}
}}
"""
    grid = (-(-columns // tiling.columns), most_tiles(rows, groups, tiling.rows), 1)
    return Kernel(text, grid, (threads, 1, 1), shared_bytes=itemsize * _STAGES * stage)


def _half_mma(is_transposed: bool) -> str:
    # eight rows of eight elements each, of two neighboring pieces of eight columns
    place = (
        "right + (n0 + 8 * j + lane / 16 * 8 + lane % 8) * PITCH + part + lane / 8 % 2 * 8"
        if is_transposed
        else "right + (part + lane % 16) * RIGHT_PITCH + n0 + 8 * j + lane / 16 * 8"
    )
    return f"""
#pragma unroll
      for (int part = 0; part < DEPTH; part += 16) {{
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
      }}"""


def _single_mma(is_transposed: bool) -> str:
    """A stage's, which join the sums outside tensor cores: these cut sums off, and errors would grow to one side.

    The order of the inner axis and of columns is free: a lane reads two neighbors at a time.
    """
    read = (
        """for (int j = 0; j < WIDE; j++) {
          const pair both = *(const pair*)(right + (n0 + 8 * j + up) * PITCH + part + side);
          NAME_split(parts(), y[j], 0, both.v[0]);
          NAME_split(parts(), y[j], 1, both.v[1]);
        }"""
        if is_transposed
        else """for (int j = 0; j < WIDE; j += 2)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const pair both = *(const pair*)(right + (part + side + e) * RIGHT_PITCH + n0 + 8 * j + 2 * up);
            NAME_split(parts(), y[j], e, both.v[0]);
            NAME_split(parts(), y[j + 1], e, both.v[1]);
          }"""
    )
    return f"""
      typedef pack<float, 2> pair;
      const int up = lane / 4, side = lane % 4 * 2;
      float made[HIGH][WIDE][4] = {{}};
#pragma unroll
      for (int part = 0; part < DEPTH; part += 8) {{
        NAME_parts<4> x[HIGH];
        NAME_parts<2> y[WIDE];
#pragma unroll
        for (int i = 0; i < HIGH; i++)
#pragma unroll
          for (int half = 0; half < 2; half++) {{
            const pair both = *(const pair*)(left + (m0 + 16 * i + up + 8 * half) * PITCH + part + side);
            NAME_split(parts(), x[i], half, both.v[0]);
            NAME_split(parts(), x[i], half + 2, both.v[1]);
          }}
#pragma unroll
        {read}
#pragma unroll
        for (int term = NAME_FIRST; term < 3; term++)
#pragma unroll
          for (int i = 0; i < HIGH; i++)
#pragma unroll
            for (int j = 0; j < WIDE; j++) NAME_mma(term, made[i][j], x[i], y[j]);
      }}
#pragma unroll
      for (int i = 0; i < HIGH; i++)
#pragma unroll
        for (int j = 0; j < WIDE; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) sums[i][j][e] += made[i][j][e];"""


_COPY_TRANSPOSED = """for (int i = threadIdx.x; i < {count}; i += {threads}) {{
        const int n = i / {pieces}, k = i % {pieces} * {piece}, from = step * {depth} + k;
        const bool is_there = n_first + n < {columns} && from < {inner};
        NAME_copy(to + {right} + n * {pitch} + k, is_there ? weight + (i64)(n_first + n) * {step} + from : b, is_there);
      }}"""

_COPY_PLAIN = """for (int i = threadIdx.x; i < {count}; i += {threads}) {{
        const int k = i / {pieces}, n = i % {pieces} * {piece}, from = step * {depth} + k;
        const bool is_there = n_first + n < {columns} && from < {inner};
        NAME_copy(to + {right} + k * {pitch} + n, is_there ? weight + (i64)from * {step} + n_first + n : b, is_there);
      }}"""
