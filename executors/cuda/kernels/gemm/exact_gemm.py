"""GEMMs in f32 of some ten to some hundred rows by multiply-adds: blocks of a cluster share the inner axis.

cuBLASLt has few kernels for f32 that stays f32, and takes 18 to 30 us for 128 x 768 x 768. Here a block has a tile of
64 x 64, a thread 8 x 4 of it, and several stages of both operands are on their way at a time. What the blocks of a
cluster have summed is added up in distributed shared memory, and what follows the GEMM is done on the sums.
"""

from collections.abc import Iterator

from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.includes.async_copies import async_copies
from ...kernel_ir.includes.warp_code import cluster_code
from ...kernel_ir.launch import Candidate, Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source, source_of
from .operands import GemmOperands, gemm_operands, matmul_operands
from .own_kernel_epilogue import OwnKernelEpilogue, own_kernel_epilogue
from .regions import AnchoredRegion

LEAST_ROWS, MOST_ROWS = 33, 512
_TILE, _THREADS = 64, 128
_INNER = 32
"""Elements of the inner axis in a stage."""

_PITCH = _TILE + 4
"""Floats from row to row where 64 columns lie side by side: what is read at a time falls on different banks."""

_LINE = _INNER + 4
"""The same where the elements of the inner axis do."""

_SIDE = _TILE * _LINE
"""Floats of an operand in a stage, at least `_INNER * _PITCH`."""

_MOST_STAGES, _WAYS = 5, 2


def lower_exactly(region: AnchoredRegion) -> Iterator[Candidate]:
    """The whole region as one kernel, where it is a GEMM in f32 and the rest is pointwise."""
    epilogue = own_kernel_epilogue(region)
    a, b, _ = matmul_operands(region)
    if epilogue is None or a.dtype is not DType.F32 or region.task.tf32 or len(a.shape) < 2 or len(b.shape) != 2:
        return
    operands = gemm_operands(a, b, source_of(region.task.results[0]))
    if not _fits(operands):
        return
    chip = region.task.chip
    for splits in _splits(operands, chip):
        yield Candidate(f"exact-{_TILE}x{_TILE}x{splits}", (_launch(operands, epilogue, splits),))


def _fits(operands: GemmOperands) -> bool:
    rows = operands.a.shape[-2]
    is_in_rows = operands.a.strides[-1] == 1 and 1 in operands.b.strides
    return (
        not operands.leading
        and operands.d.dtype is operands.b.dtype is DType.F32
        and LEAST_ROWS <= rows <= MOST_ROWS
        and is_in_rows
        and all(_has_pieces(each) for each in (operands.a, operands.b))
    )


def _has_pieces(matrix: Source) -> bool:
    """Whether 16 bytes along the axis whose elements lie side by side may be read at a time."""
    along = matrix.strides.index(1)
    across, length = matrix.strides[1 - along], matrix.shape[along]
    return matrix.starts_a_piece and across % 4 == 0 and length % 4 == 0


def _splits(operands: GemmOperands, chip: Chip) -> list[int]:
    """Into how many parts the inner axis may be split, best guess first; none for GEMMs of many tiles."""
    (rows, inner), columns = operands.a.shape, operands.b.shape[-1]
    tiles = -(-rows // _TILE) * -(-columns // _TILE)
    if tiles > 2 * chip.multiprocessors:
        return []

    def stages(splits: int) -> float:
        return -(-tiles * splits // chip.multiprocessors) * _steps(inner, splits) + 0.2 * splits

    fitting = [each for each in range(1, 9) if each == 1 or (chip.arch >= 90 and inner >= 2 * each * _INNER)]
    return sorted(fitting, key=stages)[:_WAYS]


def _steps(inner: int, splits: int) -> int:
    """Stages that each block goes through."""
    return -(-inner // (_INNER * splits))


def _launch(operands: GemmOperands, epilogue: OwnKernelEpilogue, splits: int) -> KernelLaunch:
    (rows, inner), columns = operands.a.shape, operands.b.shape[-1]
    tiles = -(-rows // _TILE) * -(-columns // _TILE)
    sources = [operands.a, operands.b, *epilogue.sources]
    stages = max(2, min(_steps(inner, splits), _MOST_STAGES))
    return KernelLaunch(
        Kernel(
            _text(operands, epilogue, splits, stages),
            (splits, tiles, 1),
            (_THREADS, 1, 1),
            shared_bytes=4 * max(2 * stages * _SIDE, _TILE * _PITCH),
            cluster=(splits, 1, 1),
        ),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * rows * columns * inner,
        may_overlap=True,
    )


def _text(operands: GemmOperands, epilogue: OwnKernelEpilogue, splits: int, stages: int) -> str:
    rows, inner = operands.a.shape[-2:]
    columns = operands.b.shape[-1]
    down = -(-rows // _TILE)
    is_weight = operands.b.constant is not None
    by_inner = operands.b.strides[-2] == 1
    load_left = _load_lines("", "x", "first_row", rows, operands.a.strides[-2], inner)
    load_right = (
        _load_lines("SIDE", "weight", "first_column", columns, operands.b.strides[-1], inner)
        if by_inner
        else _load_rows(operands.b, inner, columns)
    )
    from_right = f"(tx + 16 * j) * {_LINE} + k" if by_inner else f"(k + j) * {_PITCH} + tx * 4"
    early, finish = _epilogue_code(operands, epilogue, splits)
    listed = ", ".join(epilogue.parameters)
    return f"""
typedef pack<float, 4> NAME_four;
{async_copies(stages - 2)}
{cluster_code(splits)}
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME(const float* x, const float* weight, {listed}) {{
  constexpr int STEPS = {_steps(inner, splits)}, STAGES = {stages}, SPLITS = {splits}, SIDE = {_SIDE};
  extern __shared__ __align__(128) unsigned char memory[];
  float* const shared = (float*)memory;
  const int split = blockIdx.x, first_row = blockIdx.y % {down} * {_TILE}, first_column = blockIdx.y / {down} * {_TILE};
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
{TRIGGER}
  auto load_left = [&](int step) {{ {load_left} }};
  auto load_right = [&](int step) {{ {load_right} }};
{"" if is_weight else WAIT}
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++)
    if (s < STEPS) load_right(s);
{WAIT if is_weight else ""}
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {{
    if (s < STEPS) load_left(s);
    NAME_commit();
  }}
  {early}
  float sums[8][4] = {{}};
  for (int step = 0; step < STEPS; step++) {{
    NAME_wait();
    __syncthreads();
    if (step + STAGES - 1 < STEPS) load_right(step + STAGES - 1), load_left(step + STAGES - 1);
    NAME_commit();
    const float* const left = shared + step % STAGES * 2 * SIDE;
    const float* const right = left + SIDE;
#pragma unroll
    for (int k = 0; k < {_INNER}; k += 4) {{
      NAME_four a[8], b[4];
#pragma unroll
      for (int i = 0; i < 8; i++) a[i] = *(const NAME_four*)(left + (ty + 8 * i) * {_LINE} + k);
#pragma unroll
      for (int j = 0; j < 4; j++) b[j] = *(const NAME_four*)(right + {from_right});
#pragma unroll
      for (int e = 0; e < 4; e++)
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) sums[i][j] += a[i].v[e] * {"b[j].v[e]" if by_inner else "b[e].v[j]"};
    }}
  }}
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      shared[(ty + 8 * i) * {_PITCH} + {"tx + 16 * j" if by_inner else "tx * 4 + j"}] = sums[i][j];
  NAME_meet();
  {finish}
  {"NAME_meet();" if splits > 1 else ""}
}}
"""


def _load_lines(side: str, memory: str, first: str, lines: int, pitch: int, inner: int) -> str:
    """Statements that copy what a stage has of the lines of a tile, whose elements of the inner axis are neighbors."""
    return f"""
    float* const to = shared + step % STAGES * 2 * SIDE + {side or 0};
#pragma unroll
    for (int i = 0; i < {_TILE * _INNER // 4 // _THREADS}; i++) {{
      const int e = threadIdx.x + i * {_THREADS}, line = e / {_INNER // 4}, piece = e % {_INNER // 4} * 4;
      const int k = (step * SPLITS + split) * {_INNER} + piece, at = {first} + line;
      const bool is_there = at < {lines} && k < {inner};
      NAME_copy(to + line * {_LINE} + piece, is_there ? {memory} + (i64)at * {pitch} + k : {memory}, is_there);
    }}"""


def _load_rows(b: Source, inner: int, columns: int) -> str:
    """The same of a weight whose columns are neighbors."""
    return f"""
    float* const to = shared + step % STAGES * 2 * SIDE + SIDE;
#pragma unroll
    for (int i = 0; i < {_TILE * _INNER // 4 // _THREADS}; i++) {{
      const int e = threadIdx.x + i * {_THREADS}, line = e / {_TILE // 4}, piece = e % {_TILE // 4} * 4;
      const int k = (step * SPLITS + split) * {_INNER} + line, at = first_column + piece;
      const bool is_there = at < {columns} && k < {inner};
      NAME_copy(to + line * {_PITCH} + piece, is_there ? weight + (i64)k * {b.strides[-2]} + at : weight, is_there);
    }}"""


def _epilogue_code(operands: GemmOperands, epilogue: OwnKernelEpilogue, splits: int) -> tuple[str, str]:
    """What each thread reads for its elements before the sums are there, and what it does with these."""
    rows, columns = operands.a.shape[-2], operands.b.shape[-1]
    early: list[str] = []
    late: list[str] = []
    for index in range(-(-_TILE * _TILE // (_THREADS * splits))):
        element = epilogue.element_at(f"row{index}", f"column{index}", str(index))
        early.append(
            f"const int e{index} = threadIdx.x + ({index} * SPLITS + split) * {_THREADS}; "
            f"const int row{index} = first_row + e{index} / {_TILE}; "
            f"const int column{index} = first_column + e{index} % {_TILE}; "
            f"const bool is_there{index} = e{index} < {_TILE * _TILE} && row{index} < {rows} && "
            f"column{index} < {columns}; "
            f"{element.declarations} if (is_there{index}) {{ {element.constants} {element.others} }}"
        )
        late.append(
            f"if (is_there{index}) {{ const int at = e{index} / {_TILE} * {_PITCH} + e{index} % {_TILE}; "
            "float total = 0;\n#pragma unroll\n  for (int part = 0; part < SPLITS; part++) "
            f"total += NAME_other(shared + at, part); "
            f"{element.finish('total')} }}"
        )
    return "\n  ".join(early), "\n  ".join(late)
