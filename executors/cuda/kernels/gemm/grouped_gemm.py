"""`grouped_matmul`: rows sorted by group, each group with a matrix of its own. Kernels find the groups themselves.

Where groups end lies in device memory, and the host never reads it: the grid is made for the most tiles that any groups
can have, and a block that has none does nothing. So the experts of a mixture are part of a recording, however tokens
are routed. Few rows are read row by row, each warp with a part of one matrix; more rows come in tiles, on tensor cores
(`grouped_wgmma.py`, `grouped_tiles.py`) or, in any dtype and with any strides, by multiply-adds.
"""

import math
from collections.abc import Iterator, Mapping

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import BufferPlace, Candidate, Kernel, KernelLaunch, Lowering, Task
from ...kernel_ir.sources import Source, index_type, source_of
from ...kernel_ir.types import computed, stored
from .grouped_tiles import FIND_TILE, fits_tensor_cores, most_tiles, tensor_core_tiles, tilings
from .grouped_wgmma import map_bytes, suits_wgmma, wgmma_tiles, widths
from .regions import scratch_behind

FEW_ROWS = 64
"""Up to so many rows each is read by itself where there are no tensor cores for it; where there are, up to one a group:
matrices that rows share come from the L2 cache."""

_WARPS = 8
_DEPTH, _THREADS, _TILE = 16, 256, 32


def lower_grouped(task: Task) -> Iterator[Candidate]:
    """By rows where they are few, by tiles on tensor cores for halves and f32, by tiles of multiply-adds.

    The first that fits is taken, nothing is measured: how many rows a group has is known only when it runs.
    """
    views = task.operands
    assert all(view is not None for view in views)
    a, b, ends = (source_of(view) for view in views if view is not None)
    d = source_of(task.results[0])
    rows, groups = a.shape[0], b.shape[0]
    on_cores = tilings(a.dtype, rows, groups) if fits_tensor_cores(a, b) else []
    by_rows = Candidate("grouped-rows", (_launch(_rows(a, b, ends, d), a, b, ends, d),))
    is_few = rows <= (groups if on_cores and a.dtype is not DType.F32 else FEW_ROWS)
    if is_few:
        yield by_rows
    maps, room = scratch_behind(task, 0, map_bytes(task.chip))
    if on_cores and maps is not None and room == map_bytes(task.chip) and suits_wgmma(task.chip, a, b, d):
        for width in widths(task.chip, rows, groups, d.shape[1]):
            launch = _launch(wgmma_tiles(a, b, ends, d, task.chip, width), a, b, ends, d, maps)
            yield Candidate(f"grouped-wgmma-128x{width}", (launch,), scratch_bytes=room)
    for tiling in on_cores:
        kernel = tensor_core_tiles(a, b, ends, d, tiling, task.tf32)
        yield Candidate(tiling.name, (_launch(kernel, a, b, ends, d),))
    yield Candidate("grouped-tiles", (_launch(_tiles(a, b, ends, d), a, b, ends, d),))
    if not is_few:
        yield by_rows


def _launch(kernel: Kernel, a: Source, b: Source, ends: Source, d: Source, *scratch: BufferPlace) -> KernelLaunch:
    """Matrices count as often as there are rows at most: a group without rows is not read."""
    matrices = min(1.0, a.shape[0] / max(b.shape[0], 1)) * b.nbytes
    return KernelLaunch(
        kernel,
        (*(source.argument for source in (a, b, ends, d)), *scratch),
        nbytes=int(a.nbytes + matrices + d.nbytes),
        flops=2 * d.size * a.shape[1],
        may_overlap=True,
    )


def _parameters(a: Source, b: Source, ends: Source, d: Source) -> str:
    kinds = (("a", a), ("b", b), ("ends", ends))
    listed = [f"const {stored(source.dtype)}* __restrict__ {name}" for name, source in kinds]
    return ", ".join([*listed, f"{stored(d.dtype)}* d"])


def _total(dtype: DType) -> str:
    return "double" if dtype is DType.F64 else "float"


# ---- row by row


def _rows(a: Source, b: Source, ends: Source, d: Source) -> Kernel:
    """A block has some columns of one row: a warp for each, or one for each part of the inner axis."""
    by_columns = b.strides[2] == 1 and b.strides[1] != 1
    width = 2 if by_columns else 1
    columns = 32 * width if by_columns else _WARPS
    body = _down_columns(a, b, d, width) if by_columns else _along_inner(a, b, d)
    text = f"""
extern "C" __global__ void __launch_bounds__({32 * _WARPS}) NAME({_parameters(a, b, ends, d)}) {{
  begin();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.y;
  const int n0 = (int)blockIdx.x * {columns};
  int group = {b.shape[0]};  // the first that ends behind the row
  for (int g = {b.shape[0]} - 1 - lane; g >= 0; g -= 32)
    if ((i64)ends[(i64)g * {ends.strides[0]}] > row) group = g;
#pragma unroll
  for (int step = 16; step; step /= 2) {{
    const int other = __shfl_xor_sync(~0u, group, step);
    group = other < group ? other : group;
  }}
  const bool has_group = group < {b.shape[0]};
  const {stored(b.dtype)}* weight = b + (i64)(has_group ? group : 0) * {b.strides[0]};
  const {stored(a.dtype)}* x = a + (i64)row * {a.strides[0]};
  {body}
}}
"""
    return Kernel(text, (-(-d.shape[1] // columns), d.shape[0], 1), (32 * _WARPS, 1, 1))


def _along_inner(a: Source, b: Source, d: Source) -> str:
    inner, total = a.shape[1], _total(d.dtype)
    size = _piece(a, b, inner)
    kind = stored(a.dtype)
    return f"""
  typedef pack<{kind}, {size}> piece;
  const int n = n0 + warp;
  {total} sum = 0;
  if (has_group && n < {d.shape[1]}) {{
    const {kind}* column = weight + (i64)n * {b.strides[2]};
#pragma unroll 8
    for (int k = lane * {size}; k < {inner}; k += {32 * size}) {{
      const piece left = *(const piece*)(x + (i64)k * {a.strides[1]});
      const piece right = *(const piece*)(column + (i64)k * {b.strides[1]});
#pragma unroll
      for (int e = 0; e < {size}; e++) sum += ({total})get(left.v[e]) * ({total})get(right.v[e]);
    }}
  }}
#pragma unroll
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0 && n < {d.shape[1]}) put(d[{_at("row", "n", d)}], ({computed(d.dtype)})sum);"""


def _piece(a: Source, b: Source, inner: int) -> int:
    """How many neighbors on the inner axis are read at a time."""
    size = 16 // element_bytes(a.dtype)
    steps = (a.strides[0], b.strides[0], b.strides[2], inner)
    is_dense = a.strides[1] == b.strides[1] == 1 and a.starts_a_piece and b.starts_a_piece
    return size if is_dense and all(step % size == 0 for step in steps) else 1


def _down_columns(a: Source, b: Source, d: Source, width: int) -> str:
    """The matrix lies row by row: lanes have neighboring columns, warps share the inner axis."""
    inner, total, columns = a.shape[1], _total(d.dtype), d.shape[1]
    is_paired = columns % width == 0 and all(stride % width == 0 for stride in b.strides[:2]) and b.starts_a_piece
    load = f"*(const pack<{stored(b.dtype)}, {width}>*)at" if is_paired else "{at[0], n + 1 < COLUMNS ? at[1] : at[0]}"
    return f"""
  __shared__ {total} partial[{_WARPS}][{32 * width}];
  constexpr int COLUMNS = {columns};
  const int n = n0 + lane * {width};
  {total} sums[{width}] = {{}};
  if (has_group && n < COLUMNS) {{
#pragma unroll 8
    for (int k = warp; k < {inner}; k += {_WARPS}) {{
      const {stored(b.dtype)}* at = weight + (i64)k * {b.strides[1]} + n;
      const pack<{stored(b.dtype)}, {width}> right = {load};
      const {total} left = ({total})get(x[(i64)k * {a.strides[1]}]);
#pragma unroll
      for (int e = 0; e < {width}; e++) sums[e] += left * ({total})get(right.v[e]);
    }}
  }}
#pragma unroll
  for (int e = 0; e < {width}; e++) partial[warp][lane * {width} + e] = sums[e];
  __syncthreads();
  const int column = n0 + (int)threadIdx.x;
  if (threadIdx.x < {32 * width} && column < COLUMNS) {{
    {total} sum = 0;
#pragma unroll
    for (int part = 0; part < {_WARPS}; part++) sum += partial[part][threadIdx.x];
    put(d[{_at("row", "column", d)}], ({computed(d.dtype)})sum);
  }}"""


# ---- tiles of multiply-adds


def _tiles(a: Source, b: Source, ends: Source, d: Source) -> Kernel:
    """A thread has two by two elements of a tile of 32 x 32, and asks early for what comes next."""
    rows, columns, inner, groups = d.shape[0], d.shape[1], a.shape[1], b.shape[0]
    total = _total(d.dtype)
    index = index_type(a, b, d)
    find = FIND_TILE.format(rows=rows, groups=groups, stride=ends.strides[0], tile=_TILE, block="blockIdx.y")
    text = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({_parameters(a, b, ends, d)}) {{
  begin();
  __shared__ {total} left[2][{_DEPTH}][{_TILE + 1}], right[2][{_DEPTH}][{_TILE + 1}];
  {find}
  const int n0 = (int)blockIdx.x * {_TILE}, count = group < {groups} ? {inner} : 0;
  const {stored(b.dtype)}* weight = b + (i64)(group < {groups} ? group : 0) * {b.strides[0]};
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  {total} sums[2][2] = {{}}, next_left[2], next_right[2];
  auto ask = [&](int k0) {{
#pragma unroll
    for (int u = 0; u < 2; u++) {{
      const int i = threadIdx.x + u * {_THREADS}, k = i % {_DEPTH}, m = first + i / {_DEPTH};
      const {index} at = ({index})m * {a.strides[0]} + ({index})(k0 + k) * {a.strides[1]};
      next_left[u] = m < end && k0 + k < count ? ({total})get(a[at]) : 0;
      const int {_walk(b)};
      next_right[u] = n0 + n < {columns} && k0 + j < count
        ? ({total})get(weight[({index})(k0 + j) * {b.strides[1]} + ({index})(n0 + n) * {b.strides[2]}]) : 0;
    }}
  }};
  ask(0);
  for (int k0 = 0; k0 < count; k0 += {_DEPTH}) {{
    const int turn = k0 / {_DEPTH} % 2;
#pragma unroll
    for (int u = 0; u < 2; u++) {{
      const int i = threadIdx.x + u * {_THREADS}, {_walk(b)};
      left[turn][i % {_DEPTH}][i / {_DEPTH}] = next_left[u];
      right[turn][j][n] = next_right[u];
    }}
    __syncthreads();
    ask(k0 + {_DEPTH});
#pragma unroll
    for (int k = 0; k < {_DEPTH}; k++)
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) sums[i][j] += left[turn][k][ty + 16 * i] * right[turn][k][tx + 16 * j];
  }}
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 2; j++) {{
      const int m = first + ty + 16 * i, n = n0 + tx + 16 * j;
      if (m < end && n < {columns}) put(d[{_at("m", "n", d)}], ({computed(d.dtype)})sums[i][j]);
    }}
}}
"""
    grid = (-(-columns // _TILE), most_tiles(rows, groups, _TILE), 1)
    return Kernel(text, grid, (_THREADS, 1, 1))


def _walk(b: Source) -> str:
    """Places in a tile of the matrix, its nearest elements first."""
    return f"n = i % {_TILE}, j = i / {_TILE}" if b.strides[2] == 1 else f"j = i % {_DEPTH}, n = i / {_DEPTH}"


def _at(row: str, column: str, source: Source) -> str:
    wide = "(i64)" if math.prod(source.shape) >= 1 << 31 else ""
    return f"{wide}{row} * {source.strides[0]} + {wide}{column} * {source.strides[1]}"


LOWERINGS: Mapping[str, Lowering] = {"grouped_matmul": lower_grouped}
