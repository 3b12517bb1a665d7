"""Recurrent cells, all steps in one launch: the blocks of a cluster keep the weights in registers.

A cluster has up to eight rows of the batch, and each of its blocks some hidden units in all their gates. A step is one
matmul, of the block's weights with the hidden values of all units; what comes out is sent to the
shared memory of every block, whose barrier counts the bytes: the next step begins when all are there. A barrier of the
cluster in its stead waits for every write to all memory, 1.7 us a step. Hidden values stay in f32 in the registers of
the thread that makes them. Weights in halves are multiplied on tensor cores, with hidden values as two halves each, the
second being what the first leaves, so that they count with twice the digits that a half has. Weights in f32 are
multiplied one by one. https://docs.nvidia.com/cuda/parallel-thread-execution/ (mma, st.async, mbarrier).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.includes.warp_code import cluster_code, warp_mma
from ...kernel_ir.launch import Argument, Chip, Kernel, KernelLaunch
from ...kernel_ir.types import stored
from .cells import Phase
from .kernels import position, projected_inputs, results
from .recurrence import Recurrence, tiles_of

BLOCKS = 8
"""Blocks of a cluster, as many as any chip with clusters allows."""

_ROWS = 8
_INNER = 32
"""Hidden values that a warp multiplies with at a time: lanes take eight neighbors each."""

_MOST_WARPS, _WANTED_WARPS = 16, 8
_MOST_PIECES = 8
"""Pairs of 16-byte pieces of weights that a lane holds: 64 registers."""
_MOST_SINGLES = 8
"""The same of f32, not in pairs: with twice as many a step takes longer than the launch for each that `steps` has."""
_WANTED_SINGLES = 256
"""Threads of a block."""

_PITCH = 9
"""Floats from row to row of sums in shared memory: what is read at a time falls on different banks."""


@dataclass(frozen=True)
class _Halves:
    """How the weights of a block are shared by its warps: tiles of 16 rows, and parts of the inner axis."""

    recurrence: Recurrence
    units: int
    high: int
    parts: int
    pieces: int

    @property
    def threads(self) -> int:
        return 32 * self.high * self.parts

    @property
    def fits(self) -> bool:
        return self.threads <= 32 * _MOST_WARPS and self.pieces <= _MOST_PIECES

    @property
    def pitch(self) -> int:
        """Halves from row to row of hidden values: two rows that are read at a time fall on different banks."""
        inner = self.pieces * self.parts * _INNER
        return inner if inner * 2 % 128 else inner + 32

    @property
    def hidden_bytes(self) -> int:
        """Two halves of the rows of two steps."""
        return 2 * 2 * _ROWS * self.pitch * 2

    @property
    def functions(self) -> str:
        return "struct NAME_piece { unsigned x, y, z, w; };" + warp_mma(str(self.recurrence.r.dtype))

    @property
    def weights(self) -> str:
        """Statements that read them."""
        hidden, lines = self.recurrence.hidden, self.recurrence.cell.gates * self.units
        return f"""
  constexpr int PIECES = {self.pieces}, PARTS = {self.parts}, HIGH = {self.high}, PITCH = {self.pitch};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4 * 8;
  const int tile = warp % HIGH, part = warp / HIGH;
  NAME_piece low[PIECES], high[PIECES];
#pragma unroll
  for (int p = 0; p < PIECES; p++) {{
    const int k = (p * PARTS + part) * {_INNER} + quad;
    const int upper = tile * 16 + group, lower = upper + 8;
    low[p] = high[p] = {{0, 0, 0, 0}};
    if (k < {hidden} && upper < {lines}) low[p] = *(const NAME_piece*)(r + {_weight(self.recurrence, "upper")});
    if (k < {hidden} && lower < {lines}) high[p] = *(const NAME_piece*)(r + {_weight(self.recurrence, "lower")});
  }}"""

    @property
    def places(self) -> str:
        """Functions that take hidden values apart, and find where they are sent."""
        kind = str(self.recurrence.r.dtype)
        return f"""
  auto halves = [&](float value) {{
    {kind} first, rest;
    put(first, value);
    const float gap = value - get(first);
    put(rest, gap - gap == 0 ? gap : 0.0f);  // infinities leave nothing
    return first.bits | (unsigned)rest.bits << 16;
  }};
  auto pair_at = [&](int half, int line, int place) {{
    return ((half * 2 + place % 2) * {_ROWS} + line) * PITCH + place / 2 * 2;
  }};"""

    @property
    def first(self) -> str:
        """Statements that write `value`, of `unit` in row `line`, as one of the given hidden values."""
        return f"""const unsigned both = halves(value);
    unsigned short* const at = (unsigned short*)memory + line * PITCH + unit;
    at[0] = both & 0xffff, at[{_ROWS} * PITCH] = both >> 16;"""

    @property
    def matmul(self) -> str:
        """Statements that multiply, and write sums."""
        kind = str(self.recurrence.r.dtype)
        return f"""
    float d[4][4] = {{}};
    const {kind}* const from = ({kind}*)memory + (step % 2 * 2 * {_ROWS} + group) * PITCH + quad;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {{
      const int k = (p * PARTS + part) * {_INNER};
      const NAME_piece whole = *(const NAME_piece*)(from + k);
      const NAME_piece rest = *(const NAME_piece*)(from + {_ROWS} * PITCH + k);
      const unsigned a[2][4] = {{{{low[p].x, high[p].x, low[p].y, high[p].y}},
                                {{low[p].z, high[p].z, low[p].w, high[p].w}}}};
      NAME_mma(d[0], a[0], whole.x, whole.y);
      NAME_mma(d[1], a[1], whole.z, whole.w);
      NAME_mma(d[2], a[0], rest.x, rest.y);
      NAME_mma(d[3], a[1], rest.z, rest.w);
    }}
    float* const to = sums + (warp * 16 + group) * {_PITCH} + lane % 4 * 2;
#pragma unroll
    for (int e = 0; e < 4; e++)
      to[e / 2 * {8 * _PITCH} + e % 2] = (d[0][e] + d[1][e]) + (d[2][e] + d[3][e]);"""

    @property
    def sent(self) -> str:
        """Statements that send `hidden`, of `unit` in row `line`, to all blocks: neighbors share two words."""
        return f"""const unsigned both = halves(hidden), other = __shfl_xor_sync(~0u, both, 1);
      const unsigned pair = unit % 2 ? other >> 16 | (both & 0xffff0000u) : (both & 0xffff) | other << 16;
      if (is_mine && step + 1 < {self.recurrence.steps})
        NAME_send(memory, pair_at((step + 1) % 2, line, unit) * 2, pair, arrived + (step + 1) % 2);"""


@dataclass(frozen=True)
class _Singles:
    """The same in f32: a thread has some weights of one row, and neighbors have other rows."""

    recurrence: Recurrence
    units: int
    high: int
    parts: int
    pieces: int

    @property
    def threads(self) -> int:
        return 16 * self.high * self.parts

    @property
    def fits(self) -> bool:
        return self.threads <= 32 * _MOST_WARPS and self.threads % 32 == 0 and self.pieces <= _MOST_SINGLES

    @property
    def pitch(self) -> int:
        """Floats from row to row of hidden values."""
        return 4 * self.pieces * self.parts

    @property
    def hidden_bytes(self) -> int:
        """The rows of two steps."""
        return 2 * _ROWS * self.pitch * 4

    @property
    def functions(self) -> str:
        return ""

    @property
    def weights(self) -> str:
        """Statements that read them."""
        hidden, lines = self.recurrence.hidden, self.recurrence.cell.gates * self.units
        return f"""
  constexpr int PIECES = {self.pieces}, ROWS = {16 * self.high}, PITCH = {self.pitch};
  const int upper = threadIdx.x % ROWS, part = threadIdx.x / ROWS;
  pack<float, 4> weights[PIECES];
#pragma unroll
  for (int p = 0; p < PIECES; p++) {{
    const int k = (part * PIECES + p) * 4;
    weights[p] = {{}};
    if (k < {hidden} && upper < {lines})
      weights[p] = *(const pack<float, 4>*)(r + {_weight(self.recurrence, "upper")});
  }}"""

    @property
    def places(self) -> str:
        """Nothing."""
        return ""

    @property
    def first(self) -> str:
        """Statements that write `value`, of `unit` in row `line`, as one of the given hidden values."""
        return "((float*)memory)[line * PITCH + unit] = value;"

    @property
    def matmul(self) -> str:
        """Statements that multiply, and write sums."""
        return f"""
    float total[{_ROWS}] = {{}};
    const float* const from = (float*)memory + step % 2 * {_ROWS} * PITCH + part * PIECES * 4;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {{
#pragma unroll
      for (int m = 0; m < {_ROWS}; m++) {{
        const pack<float, 4> held = *(const pack<float, 4>*)(from + m * PITCH + p * 4);
#pragma unroll
        for (int e = 0; e < 4; e++) total[m] += weights[p].v[e] * held.v[e];
      }}
    }}
#pragma unroll
    for (int m = 0; m < {_ROWS}; m++) sums[threadIdx.x * {_PITCH} + m] = total[m];"""

    @property
    def sent(self) -> str:
        """Statements that send `hidden`, of `unit` in row `line`, to all blocks."""
        return f"""if (is_mine && step + 1 < {self.recurrence.steps})
        NAME_send(memory, (((step + 1) % 2 * {_ROWS} + line) * PITCH + unit) * 4, as_bits(hidden),
                  arrived + (step + 1) % 2);"""


_Tiling = _Halves | _Singles


def _tiling_of(recurrence: Recurrence) -> _Tiling:
    units = recurrence.hidden // BLOCKS
    high = -(-recurrence.cell.gates * units // 16)
    parts = 1
    if recurrence.r.dtype is DType.F32:
        steps = -(-recurrence.hidden // 4)
        while 2 * parts <= steps and (16 * high * parts < _WANTED_SINGLES or parts * _MOST_SINGLES < steps):
            parts *= 2
        return _Singles(recurrence, units, high, parts, -(-steps // parts))
    steps = -(-recurrence.hidden // _INNER)
    while 2 * parts * high <= _WANTED_WARPS and 2 * parts <= steps:
        parts *= 2
    return _Halves(recurrence, units, high, parts, -(-steps // parts))


def fits_cluster(recurrence: Recurrence, chip: Chip) -> bool:
    """Whether a cluster holds the weights of a cell whose step is a single matmul."""
    widths = {DType.F16: 8, DType.BF16: 8, DType.F32: 4}
    if chip.arch < 90 or len(recurrence.cell.phases) != 1:
        return False
    if recurrence.width != widths.get(recurrence.r.dtype) or recurrence.hidden % (2 * BLOCKS):
        return False
    return _tiling_of(recurrence).fits


def cluster_launch(recurrence: Recurrence) -> KernelLaunch:
    """One launch: a cluster for each direction and some rows of the batch goes through all steps."""
    tiling = _tiling_of(recurrence)
    rows, tiles = tiles_of(recurrence, _ROWS)
    kernel = Kernel(
        _text(recurrence, tiling, rows),
        (BLOCKS, tiles, recurrence.directions),
        (tiling.threads, 1, 1),
        shared_bytes=tiling.hidden_bytes + 4 * tiling.high * tiling.parts * 16 * _PITCH,
        cluster=(BLOCKS, 1, 1),
    )
    state = 4 * recurrence.state_size
    nbytes = recurrence.r.nbytes + recurrence.steps * (recurrence.cell.gates + 1) * state
    flops = 2 * recurrence.steps * recurrence.cell.gates * recurrence.state_size * recurrence.hidden
    return KernelLaunch(kernel, tuple(given for _, given in _parameters(recurrence)), nbytes, flops, may_overlap=True)


def _parameters(recurrence: Recurrence) -> list[tuple[str, Argument]]:
    """Those of a step without states in memory, and the states that are given."""
    names = {f"{recurrence.real}* {name}" for name in ("states", *recurrence.cell.buffers)}
    kept = [each for each in recurrence.parameters() if each[0] not in names]
    first = ((f"const {stored(s.dtype)}* given{i}", s.argument) for i, s in enumerate(recurrence.initial) if s)
    return [*kept, *first]


_SPECIAL = f"""
__device__ inline unsigned NAME_shared(const void* at) {{
#ifdef EMULATED
  return 0;
#else
  return (unsigned)__cvta_generic_to_shared(at);
#endif
}}
// Four bytes to each block's memory, which its barrier counts.
__device__ inline void NAME_send(void* memory, unsigned offset, unsigned value, const void* barrier) {{
#pragma unroll
  for (unsigned block = 0; block < {BLOCKS}; block++) {{
#ifdef EMULATED
    memcpy(memory_of_block(block) + offset, &value, 4);
#else
    unsigned there, counted;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(NAME_shared(memory)), "r"(block));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(NAME_shared(barrier)), "r"(block));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 :: "r"(there + offset), "r"(value), "r"(counted) : "memory");
#endif
  }}
}}
__device__ inline void NAME_expect(const void* barrier, unsigned bytes) {{
#ifndef EMULATED
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(NAME_shared(barrier)), "r"(bytes) : "memory");
#endif
}}
__device__ inline void NAME_await(const void* barrier, unsigned parity) {{
#ifdef EMULATED
  __syncthreads();
#else
  unsigned is_done = 0;
  while (!is_done)
    asm volatile("{{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}}"
                 : "=r"(is_done) : "r"(NAME_shared(barrier)), "r"(parity) : "memory");
#endif
}}
"""


def _text(recurrence: Recurrence, tiling: _Tiling, rows: int) -> str:
    (phase,) = recurrence.cell.phases
    hidden, gates, threads, units = recurrence.hidden, recurrence.cell.gates, tiling.threads, tiling.units
    has_cells = "cells" in recurrence.cell.buffers
    listed = ", ".join(name for name, _ in _parameters(recurrence))
    return f"""
{tiling.functions}
{cluster_code(BLOCKS)}
{_SPECIAL}
{recurrence.activations}
extern "C" __global__ void __launch_bounds__({threads}) NAME({listed}) {{
  constexpr int ELEMENTS = {-(-units * rows // threads)};
  extern __shared__ __align__(128) unsigned char memory[];
  float* const sums = (float*)(memory + {tiling.hidden_bytes});
  __shared__ unsigned long long arrived[2];
  const int direction = blockIdx.z, first_row = blockIdx.y * {rows};
{TRIGGER}
{"" if recurrence.is_fixed else WAIT}
  {tiling.weights}
  float biases[ELEMENTS][{2 * gates}] = {{}}, held[ELEMENTS] = {{}}, ahead[ELEMENTS][{gates}] = {{}};
  {"float peeps[ELEMENTS][3] = {}, cells[ELEMENTS] = {};" if has_cells else ""}
#pragma unroll
  for (int slot = 0; slot < ELEMENTS; slot++) {{
    {_element(recurrence, rows, threads, units)}
    if (is_mine) {{ {" ".join(_constants(recurrence))} }}
  }}
{WAIT if recurrence.is_fixed else ""}
  {tiling.places}
  auto fetch = [&](int step, int slot) {{
    {_element(recurrence, rows, threads, units)}
    {" ".join(position(recurrence))}
    if (is_mine) {{ {" ".join(_fetched(recurrence, phase))} }}
  }};
  for (int i = threadIdx.x; i < {tiling.hidden_bytes // 4}; i += {threads}) ((unsigned*)memory)[i] = 0;
  const unsigned bytes = {4 * hidden} * least({rows}, {recurrence.batch} - first_row);
  if (threadIdx.x == 0) {{
    {_INITIALIZED}
    NAME_expect(arrived + 1, bytes);
    NAME_expect(arrived, bytes);
  }}
  __syncthreads();
  {_whole_first(recurrence, tiling, rows)}
#pragma unroll
  for (int slot = 0; slot < ELEMENTS; slot++) {{
    {_element(recurrence, rows, threads, units)}
    if (is_mine) {{ {" ".join(_first(recurrence))} }}
    fetch(0, slot);
  }}
  NAME_meet();
  for (int step = 0; step < {recurrence.steps}; step++) {{
    if (step > 0) {{
      NAME_await(arrived + step % 2, (step - 1) / 2 % 2);
      if (threadIdx.x == 0) NAME_expect(arrived + step % 2, bytes);
    }}
    {tiling.matmul}
    __syncthreads();
#pragma unroll
    for (int slot = 0; slot < ELEMENTS; slot++) {{
      {_element(recurrence, rows, threads, units)}
      {" ".join(position(recurrence))}
      {" ".join(_sums(recurrence, units))}
      {" ".join(_finish(recurrence, phase))}
      {tiling.sent}
    }}
#pragma unroll
    for (int slot = 0; slot < ELEMENTS; slot++) {{
      {_element(recurrence, rows, threads, units)}
      {" ".join(position(recurrence))}
      const float hidden = held[slot]{", next = cells[slot]" if has_cells else ""};
      if (is_mine) {{ {" ".join(results(recurrence))} }}
      if (step + 1 < {recurrence.steps}) fetch(step + 1, slot);
    }}
  }}
}}
"""


_INITIALIZED = """
#ifndef EMULATED
    for (int i = 0; i < 2; i++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(NAME_shared(arrived + i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif"""


def _whole_first(recurrence: Recurrence, tiling: _Tiling, rows: int) -> str:
    """Statements that write the given hidden values of all units to the block's memory."""
    source = recurrence.initial[0]
    if source is None:
        return ""
    direction, row, unit = source.strides
    return f"""for (int e = threadIdx.x; e < {recurrence.hidden * rows}; e += {tiling.threads}) {{
    const int unit = e % {recurrence.hidden}, line = e / {recurrence.hidden}, row = first_row + line;
    if (row >= {recurrence.batch}) continue;
    const float value = get(given0[(i64)direction * {direction} + (i64)row * {row} + (i64)unit * {unit}]);
    {tiling.first}
  }}"""


def _weight(recurrence: Recurrence, line: str) -> str:
    """Where the weights of a row of the block's matrix begin: gate after gate, the block's units in each."""
    direction, down, _ = recurrence.r.strides
    units = recurrence.hidden // BLOCKS
    row = f"{line} / {units} * {recurrence.hidden} + blockIdx.x * {units} + {line} % {units}"
    return f"((i64)direction * {direction} + (i64)({row}) * {down} + k)"


def _element(recurrence: Recurrence, rows: int, threads: int, units: int) -> str:
    """Which element of the cluster's states is this thread's number `slot`; the last row is taken for those behind."""
    return f"""const int e = threadIdx.x + slot * {threads}, line = e / {units} % {rows}, mine = e % {units};
    const int unit = blockIdx.x * {units} + mine;
    const bool is_mine = e < {units * rows} && first_row + line < {recurrence.batch};
    const int row = first_row + line < {recurrence.batch} ? first_row + line : {recurrence.batch - 1};"""


def _constants(recurrence: Recurrence) -> Iterator[str]:
    b, peepholes, hidden = recurrence.b, recurrence.peepholes, recurrence.hidden
    if b is not None:
        for index in range(2 * recurrence.cell.gates):
            at = f"direction * {b.strides[0]} + ({index * hidden} + unit) * {b.strides[1]}"
            yield f"biases[slot][{index}] = get(b[{at}]);"
    if peepholes is not None:
        for index in range(3):
            at = f"direction * {peepholes.strides[0]} + ({index * hidden} + unit) * {peepholes.strides[1]}"
            yield f"peeps[slot][{index}] = get(peepholes[{at}]);"


def _first(recurrence: Recurrence) -> Iterator[str]:
    for index, (name, source) in enumerate(zip(("held", "cells"), recurrence.initial, strict=False)):
        if source is not None:
            direction, row, unit = source.strides
            place = f"(i64)direction * {direction} + (i64)row * {row} + (i64)unit * {unit}"
            yield f"{name}[slot] = get(given{index}[{place}]);"


def _fetched(recurrence: Recurrence, phase: Phase) -> Iterator[str]:
    for name, place in projected_inputs(recurrence, phase).items():
        yield f"ahead[slot][{name[1:]}] = {place};"


def _sums(recurrence: Recurrence, units: int) -> Iterator[str]:
    """`x0`, `h0`, ... of the element, with their biases."""
    gates = recurrence.cell.gates
    high, parts = _tiling_of(recurrence).high, _tiling_of(recurrence).parts
    for gate in range(gates):
        row = f"({gate * units} + mine)"
        added = " + ".join(f"sums[({part * high * 16} + {row}) * {_PITCH} + line]" for part in range(parts))
        yield f"const float x{gate} = ahead[slot][{gate}] + biases[slot][{gate}];"
        yield f"const float h{gate} = ({added}) + biases[slot][{gates + gate}];"


def _finish(recurrence: Recurrence, phase: Phase) -> Sequence[str]:
    has_cells = "cells" in recurrence.cell.buffers
    before = ["const float old = held[slot];", "float hidden;"]
    behind = ["hidden = lives ? hidden : old;", "held[slot] = hidden;"]
    if has_cells:
        before += ["const float cell = cells[slot];", "float next;"]
        before += [f"const float peep{index} = peeps[slot][{index}];" for index in range(3)]
        behind += ["cells[slot] = lives ? next : cell;"]
    return [*before, *phase.finish, *behind]
