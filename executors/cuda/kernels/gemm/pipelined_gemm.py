"""GEMMs of some ten to some hundred rows with a packed weight, on tensor cores, operands through shared memory.

All that fits of the weight is asked for before the kernel waits for its predecessor, which hides the way from device
memory; the rows follow. Each of eight warps has a tile of 32 x 32, and warps with the same tile share the inner axis;
blocks of a cluster do, too, where tiles are few, and add up in distributed shared memory. What follows the GEMM is
done on the sums. Rows of a stage are 256 bytes whose 16-byte pieces are exchanged by the row's number, so that the
eight rows that `ldmatrix` reads at a time lie on different banks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.includes.warp_code import cluster_code, warp_mma
from ...kernel_ir.launch import Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source
from .operands import GemmOperands
from .own_kernel_epilogue import Element, OwnKernelEpilogue
from .split_k_gemm import fits

LEAST_ROWS, MOST_ROWS = 17, 512
_WARPS = 8
_INNER = 128
"""Elements of the inner axis in a stage."""

_STAGE_MEMORY = 100 << 10
"""What a block may take, so that blocks of the next kernel fit beside it."""


@dataclass(frozen=True, slots=True)
class PipelinedTiling:
    """A block's tile, 32 * `high` rows and 32 * `wide` columns, and the blocks that share its inner axis."""

    high: int
    wide: int
    splits: int

    @property
    def rows(self) -> int:
        return 32 * self.high

    @property
    def columns(self) -> int:
        return 32 * self.wide

    @property
    def by_inner(self) -> int:
        """Warps that share the inner axis of a tile."""
        return _WARPS // (self.high * self.wide)

    @property
    def name(self) -> str:
        return f"staged-{self.rows}x{self.columns}x{self.splits}"


@dataclass(frozen=True)
class Work:
    """A GEMM of `rows` rows with a weight that is seen as [inner, columns], rows of which lie `pitch` apart.

    `place` gives statements for a row and a place on the inner axis, by name: the offset `from` of 8 neighbors in `x`,
    and whether they are there, `is_there`. `element` gives statements before the epilogue's element of a row and a
    column, and that element, whose names end in a suffix.
    """

    rows: int
    columns: int
    inner: int
    dtype: DType
    x: Source
    weight: Source
    pitch: int
    place: Callable[[str, str], str]
    epilogue: OwnKernelEpilogue
    element: Callable[[str, str, str], tuple[str, Element]]


def work_of(operands: GemmOperands, epilogue: OwnKernelEpilogue) -> Work:
    """The work of two matrices."""
    (rows, inner), down = operands.a.shape, operands.a.strides[-2]

    def place(row: str, k: str) -> str:
        return f"const bool is_there = {row} < {rows} && {k} < {inner}; const i64 from = (i64){row} * {down} + {k};"

    def element(row: str, column: str, suffix: str) -> tuple[str, Element]:
        return "", epilogue.element_at(row, column, suffix)

    columns, pitch = operands.b.shape[-1], operands.b.strides[-1]
    return Work(rows, columns, inner, operands.a.dtype, operands.a, operands.b, pitch, place, epilogue, element)


def tilings(operands: GemmOperands, chip: Chip) -> Iterator[PipelinedTiling]:
    """Tilings that are worth trying, best guess first."""
    rows, inner = operands.a.shape[-2:]
    if fits(operands) and LEAST_ROWS <= rows <= MOST_ROWS:
        yield from tilings_of(rows, operands.b.shape[-1], inner, chip)


def tilings_of(rows: int, columns: int, inner: int, chip: Chip) -> list[PipelinedTiling]:
    """The same by sizes."""
    if inner < _INNER:
        return []
    most = 4 if chip.arch >= 90 else 1
    found = [
        PipelinedTiling(high, wide, splits)
        for high, wide in ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2))
        for splits in (1, 2, 4)
        if splits <= most and 32 * high < rows + 32 and inner >= 2 * splits * _INNER
    ]
    return sorted(found, key=lambda each: _guess(each, rows, columns, inner, chip))[:4]


def _guess(tiling: PipelinedTiling, rows: int, columns: int, inner: int, chip: Chip) -> float:
    """Microseconds, roughly: bytes that all blocks read from the L2 cache, and those that one block waits for.

    Fitted to an H200 at 32 to 256 rows: within a fifth, most of the time.
    """
    blocks = -(-rows // tiling.rows) * -(-columns // tiling.columns) * tiling.splits
    nbytes = (tiling.rows + tiling.columns) * inner * 2 / tiling.splits
    rounds = -(-blocks // (2 * chip.multiprocessors))
    fused = 2.0 * tiling.rows * tiling.columns * inner / tiling.splits / 2e6
    return 1.1 + max(blocks * nbytes / 6e6, rounds * nbytes / 4e4, rounds * fused) + 1.2 * (tiling.splits > 1)


def pipelined_gemm(operands: GemmOperands, epilogue: OwnKernelEpilogue, tiling: PipelinedTiling) -> KernelLaunch:
    """The launch of one tiling."""
    return staged(work_of(operands, epilogue), tiling)


def staged(work: Work, tiling: PipelinedTiling) -> KernelLaunch:
    """The launch of one tiling of some work."""
    tiles = -(-work.rows // tiling.rows) * -(-work.columns // tiling.columns)
    sources = [work.x, work.weight, *work.epilogue.sources]
    shared = max(_stages(tiling, work.inner) * _stage_bytes(tiling), 4 * tiling.by_inner * tiling.rows * _pitch(tiling))
    kernel = Kernel(
        _text(work, tiling),
        (tiling.splits, tiles, 1),
        (32 * _WARPS, 1, 1),
        shared_bytes=shared,
        cluster=(tiling.splits, 1, 1),
    )
    return KernelLaunch(
        kernel,
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * work.rows * work.columns * work.inner,
        may_overlap=True,
    )


def _stage_bytes(tiling: PipelinedTiling) -> int:
    return (tiling.rows + tiling.columns) * _INNER * 2


def _steps(tiling: PipelinedTiling, inner: int) -> int:
    """Stages that each block of a cluster goes through."""
    whole = -(-inner // _INNER)
    return -(-whole // tiling.splits)


def _stages(tiling: PipelinedTiling, inner: int) -> int:
    return max(2, min(_steps(tiling, inner), _STAGE_MEMORY // _stage_bytes(tiling)))


def _pitch(tiling: PipelinedTiling) -> int:
    """Floats from row to row of sums in shared memory: what is written at a time falls on different banks."""
    return tiling.columns + 8


def _text(work: Work, tiling: PipelinedTiling) -> str:
    rows, inner, epilogue = work.rows, work.inner, work.epilogue
    kind = str(work.dtype)
    stages, steps = _stages(tiling, inner), _steps(tiling, inner)
    down = -(-rows // tiling.rows)
    stage, right = _stage_bytes(tiling), tiling.rows * _INNER * 2
    is_weight = work.weight.constant is not None
    pitch, count = _pitch(tiling), tiling.rows * tiling.columns
    early, finish = _epilogue_code(work, tiling)
    load_weight, load_rows = _load_weight(work, tiling), _load_rows(work, tiling)
    return f"""
__device__ inline void NAME_copy(unsigned to, const void* from, bool is_there) {{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(is_there ? 16 : 0));
}}
__device__ inline void NAME_matrices(unsigned* y, unsigned from) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"(from) : "memory");
}}
{warp_mma(kind)}
{cluster_code(tiling.splits)}
extern "C" __global__ void __launch_bounds__({32 * _WARPS})
NAME(const {kind}* x, const {kind}* weight, {", ".join(epilogue.parameters)}) {{
  constexpr int STAGES = {stages}, STEPS = {steps}, SPLITS = {tiling.splits}, BY_INNER = {tiling.by_inner};
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned base = (unsigned)__cvta_generic_to_shared(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.x;
  const int first_row = blockIdx.y % {down} * {tiling.rows}, first_column = blockIdx.y / {down} * {tiling.columns};
{TRIGGER}
  auto load_weight = [&](int step) {{ {load_weight} }};
  auto load_rows = [&](int step) {{ {load_rows} }};
{"" if is_weight else WAIT}
#pragma unroll
  for (int s = 0; s < (STAGES < STEPS ? STAGES : STEPS); s++) load_weight(s);
{WAIT if is_weight else ""}
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {{
    if (s < STEPS) load_rows(s);
    asm volatile("cp.async.commit_group;");
  }}
  {early}
  const int by_inner = warp % BY_INNER, tile = warp / BY_INNER;
  const int m0 = tile / {tiling.wide} * 32, n0 = tile % {tiling.wide} * 32;
  float sums[2][4][4] = {{}};
  for (int step = 0; step < STEPS; step++) {{
    asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
    __syncthreads();
    if (step + STAGES - 1 < STEPS) {{
      load_rows(step + STAGES - 1);
      if (step > 0) load_weight(step + STAGES - 1);
    }}
    asm volatile("cp.async.commit_group;");
    const unsigned left = base + step % STAGES * {stage}, right = left + {right};
#pragma unroll
    for (int part = 0; part < {_INNER // 16} / BY_INNER; part++) {{
      const int k = part * BY_INNER + by_inner;
      unsigned a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; i++) {{
        const int row = m0 + 16 * i + lane % 16;
        NAME_matrices(a[i], left + row * {2 * _INNER} + ((2 * k + lane / 16) ^ row % 8) * 16);
        const int column = n0 + 16 * i + lane / 16 * 8 + lane % 8;
        NAME_matrices(b[i], right + column * {2 * _INNER} + ((2 * k + lane / 8 % 2) ^ column % 8) * 16);
      }}
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) NAME_mma(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }}
  }}
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  float* const partial = (float*)memory;
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {{
      float* at = partial + (by_inner * {tiling.rows} + m0 + 16 * i + lane / 4) * {pitch} + n0 + 8 * j + lane % 4 * 2;
      at[0] = sums[i][j][0];
      at[1] = sums[i][j][1];
      at[{8 * pitch}] = sums[i][j][2];
      at[{8 * pitch + 1}] = sums[i][j][3];
    }}
  __syncthreads();
  {_merge(tiling, count, pitch) if tiling.splits > 1 else ""}
  {finish}
  {"NAME_meet();" if tiling.splits > 1 else ""}
}}
"""


def _load_rows(work: Work, tiling: PipelinedTiling) -> str:
    """Statements that copy rows for step `step` of this block into the stage that it belongs to."""
    return _load(tiling, tiling.rows, 0, "x", f"const int line = first_row + row; {work.place('line', 'k')}")


def _load_weight(work: Work, tiling: PipelinedTiling) -> str:
    """The same for rows of the transposed weight."""
    place = (
        f"const int line = first_column + row; const bool is_there = line < {work.columns} && k < {work.inner}; "
        f"const i64 from = (i64)line * {work.pitch} + k;"
    )
    return _load(tiling, tiling.columns, tiling.rows * _INNER * 2, "weight", place)


def _load(tiling: PipelinedTiling, rows: int, offset: int, name: str, place: str) -> str:
    return f"""
    const unsigned to = base + step % STAGES * {_stage_bytes(tiling)} + {offset};
#pragma unroll
    for (int i = 0; i < {rows * _INNER // 8 // (32 * _WARPS)}; i++) {{
      const int e = threadIdx.x + i * {32 * _WARPS}, row = e / {_INNER // 8}, piece = e % {_INNER // 8};
      const int k = (step * SPLITS + split) * {_INNER} + piece * 8;
      {place}
      NAME_copy(to + row * {2 * _INNER} + (piece ^ row % 8) * 16, is_there ? {name} + from : {name}, is_there);
    }}"""


def _merge(tiling: PipelinedTiling, count: int, pitch: int) -> str:
    """The sums of a block's warps put together, so that the other blocks of its cluster read one."""
    return f"""
  for (int e = threadIdx.x; e < {count}; e += {32 * _WARPS}) {{
    float* const at = partial + e / {tiling.columns} * {pitch} + e % {tiling.columns};
    float total = 0;
#pragma unroll
    for (int part = 0; part < BY_INNER; part++) total += at[part * {tiling.rows * pitch}];
    at[0] = total;
  }}
  NAME_meet();"""


def _epilogue_code(work: Work, tiling: PipelinedTiling) -> tuple[str, str]:
    """What each thread reads for its elements before the sums are there, and what it does with these."""
    rows, columns = work.rows, work.columns
    pitch, threads = _pitch(tiling), 32 * _WARPS
    rounds = tiling.rows * tiling.columns // (threads * tiling.splits)
    parts, part = (
        ("SPLITS", "NAME_other(at, part)")
        if tiling.splits > 1
        else (
            "BY_INNER",
            f"at[part * {tiling.rows * pitch}]",
        )
    )
    early: list[str] = []
    late: list[str] = []
    for index in range(rounds):
        row, column, is_there, place = (f"{name}{index}" for name in ("row", "column", "is_there", "e"))
        before, element = work.element(row, column, str(index))
        early.append(
            f"const int {place} = threadIdx.x + ({index} * SPLITS + split) * {threads}; "
            f"const int {row} = first_row + {place} / {tiling.columns}; "
            f"const int {column} = first_column + {place} % {tiling.columns}; "
            f"const bool {is_there} = {row} < {rows} && {column} < {columns}; "
            f"{before} {element.declarations} if ({is_there}) {{ {element.constants} {element.others} }}"
        )
        late.append(
            f"if ({is_there}) {{ "
            f"const float* at = partial + {place} / {tiling.columns} * {pitch} + {place} % {tiling.columns}; "
            f"float total = 0;\n#pragma unroll\nfor (int part = 0; part < {parts}; part++) total += {part}; "
            f"{element.finish('total')} }}"
        )
    return "\n  ".join(early), "\n  ".join(late)
