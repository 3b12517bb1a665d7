"""Products in f32 of some ten to some hundred rows by multiply-adds: blocks of a cluster share the inner axis.

cuBLASLt has few kernels for f32 that stays f32, and takes 26 us for 128 x 768 x 768. Here a block has a tile of 64 x
64, a thread 4 x 4 of it. What the blocks of a cluster have summed is added up in distributed shared memory, and what
follows the product is done on the sums.
"""

from collections.abc import Iterator

from ...ir.types import DType
from .factors import Factors, factors_of, product_operands
from .launch import Candidate, Chip, Kernel, KernelLaunch
from .regions import Region, Source, source_of
from .tails import Tail, tail_of

LEAST_ROWS, MOST_ROWS = 9, 512
_TILE, _DEPTH, _THREADS = 64, 16, 256
_PITCH = _TILE + 4
_LEAST_INNER = 64
"""Elements of the inner axis that a block should have."""

_SHARED_BYTES = 4 * _PITCH * max(4 * _DEPTH, _TILE)
_WAYS = 2


def lower_exactly(region: Region) -> Iterator[Candidate]:
    """The whole region as one kernel, where it is a product in f32 and the rest is pointwise."""
    tail = tail_of(region)
    a, b, _ = product_operands(region)
    if tail is None or a.dtype is not DType.F32 or region.task.tf32 or len(a.shape) < 2 or len(b.shape) != 2:
        return
    factors = factors_of(a, b, source_of(region.task.results[0]))
    if not _fits(factors):
        return
    chip = region.task.chip
    for splits in _splits(factors, chip):
        yield Candidate(f"exact-{_TILE}x{_TILE}x{splits}", (_launch(factors, tail, splits),))


def _fits(factors: Factors) -> bool:
    rows = factors.a.shape[-2]
    is_in_rows = factors.a.strides[-1] == 1 and 1 in factors.b.strides
    return (
        not factors.leading
        and factors.d.dtype is factors.b.dtype is DType.F32
        and LEAST_ROWS <= rows <= MOST_ROWS
        and is_in_rows
        and all(_has_pieces(each) for each in (factors.a, factors.b))
    )


def _has_pieces(matrix: Source) -> bool:
    """Whether 16 bytes along the axis whose elements lie side by side may be read at a time."""
    along = matrix.strides.index(1)
    across, length = matrix.strides[1 - along], matrix.shape[along]
    return matrix.starts_a_piece and across % 4 == 0 and length % 4 == 0


def _splits(factors: Factors, chip: Chip) -> list[int]:
    """Into how many parts the inner axis may be split, best guess first; none for products of many tiles."""
    (rows, inner), columns = factors.a.shape, factors.b.shape[-1]
    tiles = -(-rows // _TILE) * -(-columns // _TILE)
    if tiles > 2 * chip.multiprocessors:
        return []
    fitting = [each for each in (1, 2, 4, 8) if each == 1 or (chip.arch >= 90 and inner >= each * _LEAST_INNER)]
    return sorted(fitting, key=lambda each: -(-tiles * each // chip.multiprocessors) / each + 0.02 * each)[:_WAYS]


def _launch(factors: Factors, tail: Tail, splits: int) -> KernelLaunch:
    (rows, inner), columns = factors.a.shape, factors.b.shape[-1]
    tiles = -(-rows // _TILE) * -(-columns // _TILE)
    sources = [factors.a, factors.b, *tail.sources]
    return KernelLaunch(
        Kernel(
            _text(factors, tail, splits),
            (splits, tiles, 1),
            (_THREADS, 1, 1),
            shared_bytes=_SHARED_BYTES,
            cluster=(splits, 1, 1),
        ),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * rows * columns * inner,
        may_overlap=True,
    )


_WAIT = '#if __CUDA_ARCH__ >= 900\n  asm volatile("griddepcontrol.wait;" ::: "memory");\n#endif'


def _text(factors: Factors, tail: Tail, splits: int) -> str:
    rows, inner = factors.a.shape[-2:]
    columns = factors.b.shape[-1]
    steps = -(-inner // (_DEPTH * splits))
    down = -(-rows // _TILE)
    is_weight = factors.b.constant is not None
    by_inner = factors.b.strides[-2] == 1
    load_right = (
        _load_lines("right", "weight", "first_column", columns, factors.b.strides[-1], inner)
        if by_inner
        else _load_rows(factors.b, inner, columns)
    )
    early, finish = _tail_code(factors, tail, splits)
    listed = ", ".join(tail.parameters)
    return f"""
typedef pack<float, 4> NAME_four;
__device__ inline float NAME_other(const float* memory, int at, unsigned block) {{
#if defined(EMULATED)
  return ((const float*)memory_of_block(block))[at];
#elif {int(splits > 1)}
  unsigned here = (unsigned)__cvta_generic_to_shared(memory + at), there;
  float y;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(y) : "r"(there) : "memory");
  return y;
#else
  return memory[at];
#endif
}}
__device__ inline void NAME_meet() {{
#if defined(EMULATED) || {int(splits == 1)}
  __syncthreads();
#else
  asm volatile("barrier.cluster.arrive.aligned;\\n barrier.cluster.wait.aligned;" ::: "memory");
#endif
}}
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME(const float* x, const float* weight, {listed}) {{
  constexpr int STEPS = {steps}, SPLITS = {splits}, PITCH = {_PITCH}, SIDE = {_DEPTH} * PITCH;
  extern __shared__ __align__(128) unsigned char memory[];
  float* const shared = (float*)memory;
  const int split = blockIdx.x, first_row = blockIdx.y % {down} * {_TILE}, first_column = blockIdx.y / {down} * {_TILE};
  const int tx = threadIdx.x % 16 * 4, ty = threadIdx.x / 16 * 4;
  const int line = threadIdx.x / 4, piece = threadIdx.x % 4 * 4;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  NAME_four left = {{}}, right = {{}};
  auto load_left = [&](int step) {{ {_load_lines("left", "x", "first_row", rows, factors.a.strides[-2], inner)} }};
  auto load_right = [&](int step) {{ {load_right} }};
  auto keep = [&](int half) {{
    float* const to = shared + half * 2 * SIDE;
#pragma unroll
    for (int i = 0; i < 4; i++) to[(piece + i) * PITCH + line] = left.v[i];
    {_keep_right(by_inner)}
  }};
{"" if is_weight else _WAIT}
  load_right(0);
{_WAIT if is_weight else ""}
  load_left(0);
  {early}
  keep(0);
  if (STEPS > 1) load_right(1), load_left(1);
  __syncthreads();
  float sums[4][4] = {{}};
  for (int step = 0; step < STEPS; step++) {{
    const float* const from = shared + step % 2 * 2 * SIDE;
#pragma unroll
    for (int k = 0; k < {_DEPTH}; k++) {{
      const NAME_four a = *(const NAME_four*)(from + k * PITCH + ty);
      const NAME_four b = *(const NAME_four*)(from + SIDE + k * PITCH + tx);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] += a.v[i] * b.v[j];
    }}
    if (step + 1 < STEPS) keep((step + 1) % 2);
    if (step + 2 < STEPS) load_right(step + 2), load_left(step + 2);
    __syncthreads();
  }}
#pragma unroll
  for (int i = 0; i < 4; i++) {{
    NAME_four made;
#pragma unroll
    for (int j = 0; j < 4; j++) made.v[j] = sums[i][j];
    *(NAME_four*)(shared + (ty + i) * PITCH + tx) = made;
  }}
  NAME_meet();
  {finish}
  {"NAME_meet();" if splits > 1 else ""}
}}
"""


_FIRST = f"(step * SPLITS + split) * {_DEPTH}"


def _load_lines(name: str, memory: str, first: str, lines: int, pitch: int, inner: int) -> str:
    """Statements that read four neighbours on the inner axis of a line of the tile."""
    return (
        f"const int k = {_FIRST} + piece, at = {first} + line; {name} = {{}}; "
        f"if (at < {lines} && k < {inner}) {name} = *(const NAME_four*)({memory} + (i64)at * {pitch} + k);"
    )


def _load_rows(b: Source, inner: int, columns: int) -> str:
    """The same for four columns of a row of the weight."""
    return (
        f"const int k = {_FIRST} + threadIdx.x / 16, at = first_column + tx; right = {{}}; "
        f"if (at < {columns} && k < {inner}) right = *(const NAME_four*)(weight + (i64)k * {b.strides[-2]} + at);"
    )


def _keep_right(by_inner: bool) -> str:
    if by_inner:
        return "\n#pragma unroll\n    for (int i = 0; i < 4; i++) to[SIDE + (piece + i) * PITCH + line] = right.v[i];"
    return "*(NAME_four*)(to + SIDE + threadIdx.x / 16 * PITCH + tx) = right;"


def _tail_code(factors: Factors, tail: Tail, splits: int) -> tuple[str, str]:
    """What each thread reads for its elements before the sums are there, and what it does with these."""
    rows, columns = factors.a.shape[-2], factors.b.shape[-1]
    early: list[str] = []
    late: list[str] = []
    for index in range(_TILE * _TILE // (_THREADS * splits)):
        element = tail.element_at(f"row{index}", f"column{index}", str(index))
        early.append(
            f"const int e{index} = threadIdx.x + ({index} * SPLITS + split) * {_THREADS}; "
            f"const int row{index} = first_row + e{index} / {_TILE}; "
            f"const int column{index} = first_column + e{index} % {_TILE}; "
            f"const bool is_there{index} = row{index} < {rows} && column{index} < {columns}; "
            f"{element.declarations} if (is_there{index}) {{ {element.constants} {element.others} }}"
        )
        late.append(
            f"if (is_there{index}) {{ const int at = e{index} / {_TILE} * PITCH + e{index} % {_TILE}; float total = 0;"
            f"\n#pragma unroll\n  for (int part = 0; part < SPLITS; part++) total += NAME_other(shared, at, part); "
            f"{element.finish('total')} }}"
        )
    return "\n  ".join(early), "\n  ".join(late)
