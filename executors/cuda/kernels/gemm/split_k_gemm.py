"""GEMMs of few rows with a packed weight, on tensor cores: each warp of a block sums over a part of the inner axis.

Operands go from memory to registers in 16-byte pieces, without shared memory: the four lanes of a row take eight
neighboring elements each, and as the order of a sum is free, these fill the places of two `mma` in the same way for
both operands. Pieces of the weight are asked for `depth` steps ahead, across tiles, and before the kernel waits for its
predecessor: they do not depend on it. https://docs.nvidia.com/cuda/parallel-thread-execution/ (mma.m16n8k16).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.includes.warp_code import warp_mma
from ...kernel_ir.launch import Chip, Kernel, KernelLaunch
from .operands import GemmOperands
from .own_kernel_epilogue import OwnKernelEpilogue

MAX_ROWS = 512
_PIECE = 32
"""Elements of the inner axis that a warp takes at a time."""

_DTYPES = {DType.F16: "f16", DType.BF16: "bf16"}


@dataclass(frozen=True, slots=True)
class Tiling:
    """A block's tile of the result, 16 * `high` rows and 8 * `wide` columns; the warps that share its inner axis."""

    high: int
    wide: int
    warps: int
    depth: int
    """Pieces that each lane has asked for and not yet used."""

    @property
    def rows(self) -> int:
        return 16 * self.high

    @property
    def columns(self) -> int:
        return 8 * self.wide

    @property
    def name(self) -> str:
        return f"split-{self.rows}x{self.columns}x{self.warps}"


def fits(operands: GemmOperands) -> bool:
    """Whether both operands have rows along the inner axis in 16-byte pieces, the result is one matrix of few rows."""
    a, b = operands.a, operands.b
    return (
        a.dtype in _DTYPES
        and not operands.leading
        and 1 <= a.shape[-2] <= MAX_ROWS
        and a.shape[-1] % 8 == 0
        and b.strides[-2] == 1
        and (a.strides[-1] == 1 and b.strides[-1] % 8 == 0)
        and (a.strides[-2] % 8 == 0 or a.shape[-2] == 1)
        and a.starts_a_piece
        and b.starts_a_piece
    )


def tilings(operands: GemmOperands, chip: Chip) -> Iterator[Tiling]:
    """Tilings that are worth trying, best guess first."""
    (rows, inner), columns = operands.a.shape, operands.b.shape[-1]
    wanted = _few_rows(rows) if rows <= 16 else _more_rows(rows)
    made = [_with_depth(high, wide, warps, rows, inner) for high, wide, warps in wanted]
    best = sorted(dict.fromkeys(made), key=lambda each: _guess(each, rows, columns, inner, chip))
    yield from best[:3]


def _few_rows(_rows: int) -> Iterator[tuple[int, int, int]]:
    yield from ((1, 1, 8), (1, 2, 8), (1, 1, 16))


def _more_rows(rows: int) -> Iterator[tuple[int, int, int]]:
    for high in (1, 2, 4):
        if 16 * high < 2 * rows:
            yield from ((high, wide, 8) for wide in (2, 4) if high * wide <= 8)
    yield (2, 4, 4)


def _with_depth(high: int, wide: int, warps: int, rows: int, inner: int) -> Tiling:
    pieces = 2 * -(-inner // (2 * _PIECE * warps))
    loads = wide + high * (1 if rows <= 8 else 2)
    most = max(2, min(16, (96 if high * wide < 8 else 80) // (4 * loads)))
    rounds = -(-pieces // most)
    depth = -(-pieces // rounds)
    return Tiling(high, wide, warps, depth + depth % 2)


def _guess(tiling: Tiling, rows: int, columns: int, inner: int, chip: Chip) -> float:
    """Microseconds, roughly: what a multiprocessor reads at 64 bytes a cycle, and rounds that wait for memory."""
    tiles = -(-rows // tiling.rows) * -(-columns // tiling.columns)
    per_tile = (min(rows, tiling.rows) + tiling.columns) * inner * 2
    busiest = -(-tiles // chip.multiprocessors)
    pieces = -(-inner // (_PIECE * tiling.warps))
    return busiest * per_tile / 100_000 + -(-pieces // tiling.depth) * 0.5 + tiling.warps * 0.02


def split_k_gemm(operands: GemmOperands, epilogue: OwnKernelEpilogue, tiling: Tiling, chip: Chip) -> KernelLaunch:
    """The launch of one tiling."""
    (rows, inner), columns = operands.a.shape, operands.b.shape[-1]
    tiles = -(-rows // tiling.rows) * -(-columns // tiling.columns)
    blocks = min(tiles, chip.multiprocessors * max(2, 16 // tiling.warps))
    kernel = Kernel(
        _text(operands, epilogue, tiling),
        (blocks, 1, 1),
        (32 * tiling.warps, 1, 1),
        shared_bytes=4 * tiling.warps * tiling.rows * _padded(tiling.columns),
        early_loads=tiling.depth * tiling.wide if operands.b.constant is not None else 0,
    )
    sources = [operands.a, operands.b, *epilogue.sources]
    return KernelLaunch(
        kernel,
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * rows * columns * inner,
        may_overlap=True,
    )


def _pieces(inner: int, warps: int, depth: int) -> int:
    """Pieces that each warp takes: an even number that is a multiple of `depth`."""
    step = depth if depth % 2 == 0 else 2 * depth
    needed = 2 * -(-inner // (2 * _PIECE * warps))
    return -(-needed // step) * step


def _padded(columns: int) -> int:
    """Floats from row to row of a partial result: rows that are written at a time fall on different banks."""
    return columns if columns == 8 else columns + 8


def _text(operands: GemmOperands, epilogue: OwnKernelEpilogue, tiling: Tiling) -> str:
    (rows, inner), columns = operands.a.shape, operands.b.shape[-1]
    kind = _DTYPES[operands.a.dtype]
    is_weight = operands.b.constant is not None
    down, tiles_down = operands.a.strides[-2], -(-rows // tiling.rows)
    tiles = tiles_down * -(-columns // tiling.columns)
    pieces = _pieces(inner, tiling.warps, tiling.depth)
    stride = _padded(tiling.columns)
    upper = f"if (is_inside && m0 + 16 * i + 8 < {rows}) upper[i] = NAME_read(x + (i64)(m0 + 16 * i + 8) * {down} + k);"
    upper = upper if rows > 8 else ""
    early, finish = _epilogue_code(operands, epilogue, tiling)
    # two pieces of a warp side by side: lanes read whole lines of 128 bytes
    place = f"(piece / 2 * {2 * tiling.warps} + warp * 2 + piece % 2) * {_PIECE} + quad"
    return f"""
struct NAME_piece {{ unsigned x, y, z, w; }};
__device__ inline NAME_piece NAME_load(const void* at) {{
  NAME_piece p;
  asm volatile("ld.global{".L1::no_allocate" if is_weight else ""}.v4.u32 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(p.x), "=r"(p.y), "=r"(p.z), "=r"(p.w) : "l"(at));
  return p;
}}
__device__ inline NAME_piece NAME_read(const void* at) {{
  NAME_piece p;
  asm volatile("ld.global.v4.u32 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(p.x), "=r"(p.y), "=r"(p.z), "=r"(p.w) : "l"(at));
  return p;
}}
{warp_mma(kind)}
extern "C" __global__ void __launch_bounds__({32 * tiling.warps})
NAME(const {kind}* x, const {kind}* __restrict__ weight, {", ".join(epilogue.parameters)}) {{
  constexpr int HIGH = {tiling.high}, WIDE = {tiling.wide}, WARPS = {tiling.warps}, DEPTH = {tiling.depth};
  extern __shared__ float partial[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4 * 8;
  NAME_piece w[DEPTH][WIDE], low[DEPTH][HIGH], high[DEPTH][HIGH];
{TRIGGER}
  auto load_weight = [&](NAME_piece (&to)[WIDE], int tile, int piece) {{
    const int k = {place}, n0 = tile / {tiles_down} * {tiling.columns} + group;
#pragma unroll
    for (int j = 0; j < WIDE; j++) {{
      to[j] = {{0, 0, 0, 0}};
      if (tile < {tiles} && k < {inner} && n0 + 8 * j < {columns})
        to[j] = NAME_load(weight + (i64)(n0 + 8 * j) * {operands.b.strides[-1]} + k);
    }}
  }};
  auto load_rows = [&](NAME_piece (&lower)[HIGH], NAME_piece (&upper)[HIGH], int tile, int piece) {{
    const int k = {place}, m0 = tile % {tiles_down} * {tiling.rows} + group;
#pragma unroll
    for (int i = 0; i < HIGH; i++) {{
      lower[i] = upper[i] = {{0, 0, 0, 0}};
      const bool is_inside = tile < {tiles} && k < {inner};
      if (is_inside && m0 + 16 * i < {rows}) lower[i] = NAME_read(x + (i64)(m0 + 16 * i) * {down} + k);
      {upper}
    }}
  }};
{"" if is_weight else WAIT}
#pragma unroll
  for (int s = 0; s < DEPTH; s++) load_weight(w[s], blockIdx.x, s);
{WAIT if is_weight else ""}
#pragma unroll
  for (int s = 0; s < DEPTH; s++) load_rows(low[s], high[s], blockIdx.x, s);
  for (int tile = blockIdx.x; tile < {tiles}; tile += gridDim.x) {{
    const int first_row = tile % {tiles_down} * {tiling.rows}, first_column = tile / {tiles_down} * {tiling.columns};
    {early}
    float sums[HIGH][WIDE][4] = {{}};
    for (int piece = 0; piece < {pieces}; piece += DEPTH) {{
#pragma unroll
      for (int s = 0; s < DEPTH; s++) {{
#pragma unroll
        for (int i = 0; i < HIGH; i++)
#pragma unroll
          for (int j = 0; j < WIDE; j++) {{
            NAME_mma(sums[i][j], low[s][i].x, high[s][i].x, low[s][i].y, high[s][i].y, w[s][j].x, w[s][j].y);
            NAME_mma(sums[i][j], low[s][i].z, high[s][i].z, low[s][i].w, high[s][i].w, w[s][j].z, w[s][j].w);
          }}
        const bool goes_on = piece + s + DEPTH < {pieces};
        const int next_tile = goes_on ? tile : tile + (int)gridDim.x;
        const int next_piece = goes_on ? piece + s + DEPTH : piece + s + DEPTH - {pieces};
        load_weight(w[s], next_tile, next_piece);
        load_rows(low[s], high[s], next_tile, next_piece);
      }}
    }}
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int j = 0; j < WIDE; j++) {{
        float* at = partial + (warp * {tiling.rows} + 16 * i + group) * {stride} + 8 * j + lane % 4 * 2;
        at[0] = sums[i][j][0];
        at[1] = sums[i][j][1];
        {f"at[{8 * stride}] = sums[i][j][2]; at[{8 * stride + 1}] = sums[i][j][3];" if rows > 8 else ""}
      }}
    __syncthreads();
    {finish}
    __syncthreads();
  }}
}}
"""


def _epilogue_code(operands: GemmOperands, epilogue: OwnKernelEpilogue, tiling: Tiling) -> tuple[str, str]:
    """What each thread reads for its elements of a tile before the sums are there, and what it does then."""
    rows, columns = operands.a.shape[-2], operands.b.shape[-1]
    threads, count = 32 * tiling.warps, min(tiling.rows, rows) * tiling.columns
    rounds = -(-count // threads)
    early, late = [], []
    for index in range(rounds):
        element = epilogue.element_at(f"row{index}", f"column{index}", str(index))
        early.append(
            f"const int e{index} = threadIdx.x + {index * threads}; "
            f"const int row{index} = first_row + e{index} / {tiling.columns}; "
            f"const int column{index} = first_column + e{index} % {tiling.columns}; "
            f"const bool is_there{index} = e{index} < {count} && row{index} < {rows} && column{index} < {columns}; "
            f"{element.declarations} if (is_there{index}) {{ {element.constants} {element.others} }}"
        )
        late.append(
            f"if (is_there{index}) {{ "
            f"const float* at = partial + e{index} / {tiling.columns} * {_padded(tiling.columns)} "
            f"+ e{index} % {tiling.columns}; float total = 0;\n#pragma unroll\n"
            f"for (int part = 0; part < WARPS; part++) total += at[part * {tiling.rows * _padded(tiling.columns)}]; "
            f"{element.finish('total')} }}"
        )
    return "\n    ".join(early), "\n    ".join(late)
