"""Matmuls of few rows with a weight of 4 or 8 bits on tensor cores, which take 16 of its columns and up to 8 rows.

Integers become numbers of the rows' dtype by bits alone: half a byte in the last places of a number from `BASE` on, so
that what all lie too high is taken off the sum, with the zero point, times the sum of the rows. A byte is two halves,
with sums of their own. As the order of a sum is free, lanes take 16 bytes of a column side by side, and rows lie in
shared memory in the order in which halves come out of a word. Warps share the inner axis.

What is asked for before the wait, and how sums meet, is as in `column_gemv.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.includes.warp_code import warp_mma
from ...kernel_ir.launch import Chip, KernelLaunch
from ...kernel_ir.types import number, stored
from .column_gemv import HELPERS, ColumnText, ColumnTiling, launch_of
from .operands import GemmOperands
from .own_kernel_epilogue import OwnKernelEpilogue
from .row_norms import Norm
from .weight_formats import BYTES, NIBBLES, ColumnWeight, nibble_pairs

MAX_ROWS = 8
_TILE, _MOST_WARPS = 16, 16
_MOST_SHARED = 40 << 10
_SIGNED = {DType.U4: "false", DType.I4: "true", DType.U8: "false", DType.I8: "half % 2"}
"""Which halves of words have the sign."""

_MAGIC = {DType.BF16: (0x43004300, 128.0), DType.F16: (0x64006400, 1024.0)}
"""Two numbers whose last place is 1, and what each of them is."""


@dataclass(frozen=True, slots=True)
class MatrixTiling(ColumnTiling):
    """Blocks of `warps` warps that take 16 columns at a time; each has `units` pieces of a column in registers."""

    units: int

    @property
    def name(self) -> str:
        return f"codes-{self.units}x{self.threads}x{self.together}"


def matrix_tilings(operands: GemmOperands, weight: ColumnWeight) -> list[MatrixTiling]:
    """Tilings that are worth trying; none where pieces have several scales, or rows do not fit in shared memory."""
    rows, inner = operands.a.shape
    unit = 4 * weight.elements
    is_whole = not weight.has_many_scales and weight.zero is None
    is_coded = weight.dtype in NIBBLES or (weight.dtype in BYTES and is_whole)
    is_coded = is_coded and weight.scale is not None and operands.a.dtype in _MAGIC
    if not is_coded or inner % unit or weight.block % unit or 2 * rows * inner > _MOST_SHARED:
        return []
    wanted = {shape: -(-inner // (shape[0] * unit)) for shape in TILINGS}
    fitting = [shape for shape in TILINGS if shape[0] > 1 or wanted[shape] <= _MOST_WARPS]
    return [_tiling(rows, wanted[shape], *shape) for shape in fitting]


TILINGS = ((4, 512), (1, 1024))
"""Pieces of a column that a warp has in registers (one: of a column that is done at once), and threads that share a
multiprocessor."""


def _tiling(rows: int, wanted: int, units: int, threads: int) -> MatrixTiling:
    warps = min(_MOST_WARPS, max(-(-rows * _TILE // 32), wanted))
    return MatrixTiling(_TILE, warps, max(1, threads // (32 * warps)), units)


def coded_mma(
    operands: GemmOperands,
    weights: Sequence[ColumnWeight],
    epilogue: OwnKernelEpilogue,
    tiling: MatrixTiling,
    chip: Chip,
    norm: Norm | None = None,
) -> KernelLaunch:
    """The launch of one tiling."""
    text = _Text(operands, tuple(weights), epilogue, tiling, norm, tiling.units)
    return launch_of(text, chip)


_PREPARED = """
__device__ inline unsigned NAME_both(float low, float high) {{
  {kind} x, y;
  put(x, low), put(y, high);
  return x.bits | (unsigned)y.bits << 16;
}}
"""


@dataclass(frozen=True)
class _Text(ColumnText):
    units: int

    @property
    def unit(self) -> int:
        """Numbers of a column that four lanes have in 16 bytes each."""
        return 4 * self.weight.elements

    @property
    def chunk(self) -> int:
        return self.tiling.warps * self.units * self.unit

    @property
    def early_loads(self) -> int:
        if not self.is_weight:
            return 0
        return self.units * 2 * (1 + sum(1 for _ in self._singles()))

    @property
    def is_nibble(self) -> bool:
        return self.weight.dtype in NIBBLES

    def whole(self) -> str:
        kind = stored(self.operands.a.dtype)
        hint = ".L1::no_allocate" if self.is_weight else ""
        magic, _ = _MAGIC[self.operands.a.dtype]
        element = self.epilogue.element_at("row", "column")
        singles = self._single("  {kind} {name}s[UNITS][2];")
        first = self._single(_FIRST)
        return f"""{HELPERS.format(element=self.element, hint=hint)}
{self.weight.single_loads}
{warp_mma(kind)}
{nibble_pairs(magic, _SIGNED[self.weight.dtype])}{_PREPARED.format(kind=kind)}
extern "C" __global__ void __launch_bounds__({self.tiling.threads}, {self.tiling.together})
NAME({", ".join([*self.parameters, *self.epilogue.parameters])}) {{
  constexpr int ROWS = {self.rows}, WARPS = {self.tiling.warps}, CHUNKS = {self.chunks}, UNITS = {self.units};
  constexpr int GROUPS = {self.groups}, OWN = {self.own}, INNER = {self.inner}, UNIT = {self.unit};
  __shared__ float partial[2][ROWS * 16][WARPS + 1];
  __shared__ float around[ROWS][INNER / UNIT];
  alignas(16) __shared__ unsigned short rows_of[ROWS][INNER];
{"  __shared__ float squares[ROWS][WARPS + 1];" if self.norm else ""}
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, member = lane / 4, quarter = lane % 4;
{self._places()}
  NAME_piece w[UNITS][2];
{singles}
{TRIGGER}
{"" if self.is_weight else WAIT}
#pragma unroll
  for (int u = 0; u < UNITS; u++)
#pragma unroll
    for (int j = 0; j < 2; j++) w[u][j] = NAME_load(weight_at(blockIdx.x, 0, u, j));
{first}
{WAIT if self.is_weight else ""}
{self._rows_prepared()}
  __syncthreads();
  {"float scale = 1;" if self.norm else ""}
  int turn = 0;
  for (int group = blockIdx.x; group < GROUPS; group += gridDim.x, turn ^= 1) {{
    const int row = threadIdx.x / OWN, column = group * OWN + threadIdx.x % OWN;
    const bool is_there = threadIdx.x < ROWS * OWN && column < {self.columns};
    {element.declarations}
    if (is_there) {{ {element.constants} {element.others} }}
{self._late_scales()}
    float sums[4] = {{}};
#pragma unroll 1
    for (int c = 0; c < CHUNKS; c++) {{
{self._unit()}
    }}
#pragma unroll
    for (int e = 0; e < 4; e++) {{
      const int m = 2 * quarter + e % 2;
      if (m < ROWS) partial[turn][m * 16 + member + e / 2 * 8][warp] = sums[e];
    }}
    __syncthreads();
    if (is_there) {{
      float total = 0{", partner_total = 0" if self.is_paired else ""};
      const int at = row * 16 + threadIdx.x % OWN;
#pragma unroll
      for (int part = 0; part < WARPS; part++) {{
        total += partial[turn][at][part];
{"        partner_total += partial[turn][at + OWN][part];" if self.is_paired else ""}
      }}
{self._scaled()}
      {element.finish("total")}
    }}
  }}
}}
"""

    def _places(self) -> str:
        count, stride = self.weight.elements, self.weight.codes.strides[-1]
        first = "((c * WARPS + warp) * UNITS + u) * UNIT"
        is_ragged = self.inner % self.chunk != 0
        within = f"least({first}, {self.inner - self.unit})" if is_ragged else first
        column = "(group * OWN + (member + 8 * j) % OWN)"
        column = f"(i64)least({column}, {self.columns - 1})" if self.columns % self.own else f"(i64){column}"
        offset = self.weight.place(f"start_of(c, u) + quarter * {count} + {column} * {stride}")
        inside = f"{first} < INNER" if is_ragged else "true"
        lines = [
            f"  auto start_of = [&](int c, int u) -> int {{ return {within}; }};",
            f"  auto is_inside = [&](int c, int u) -> bool {{ return {inside}; }};",
            f"  auto weight_at = [&](int group, int c, int u, int j) {{ return {self._of_column('')} + {offset}; }};",
        ]
        for name, source in self._singles():
            outer, inner = source.strides
            place = f"start_of(c, u) / {self.weight.block} * {outer} + {column} * {inner}"
            memory = self._of_column(f"_{name}")
            lines.append(f"  auto {name}_at = [&](int group, int c, int u, int j) {{ return {memory} + {place}; }};")
        return "\n".join(lines)

    def _of_column(self, suffix: str) -> str:
        return f"(j == 0 ? weight{suffix} : partner{suffix})" if self.is_paired else f"weight{suffix}"

    def _rows_prepared(self) -> str:
        """Rows, times the gain, into shared memory, and their sums over units and of squares."""
        down, lanes = self.operands.a.strides[-2], self.unit // 8
        order = (0, 4, 1, 5, 2, 6, 3, 7) if self.is_nibble else (0, 2, 1, 3, 4, 6, 5, 7)
        words = ", ".join(f"NAME_both(y[{a}], y[{b}])" for a, b in zip(order[::2], order[1::2], strict=True))
        gain = " * NAME_at(factor, e)" if self.affine else ""
        squares = """
    own = warp_reduce<sum, 32>(own);
    if (lane == 0) squares[m][warp] = own;"""
        return f"""#pragma unroll
  for (int m = 0; m < ROWS; m++) {{
    float own = 0;
    for (int first = 0; first < {self.inner // 8}; first += {self.tiling.threads}) {{
      const int p = first + threadIdx.x;
      const int at = least(p * 8, INNER - 8);
      const NAME_piece piece = NAME_read(x + (i64)m * {down} + at);
{"      const NAME_piece factor = NAME_read(gain + at);" if self.affine else ""}
      float y[8], whole = 0;
#pragma unroll
      for (int e = 0; e < 8; e++) {{
        const float z = NAME_at(piece, e);
        if (p * 8 < INNER) own += z * z;
        y[e] = rounded<{stored(self.operands.a.dtype)}>(z{gain});
        whole += y[e];
      }}
      whole = warp_reduce<sum, {lanes}>(whole);
      if (p * 8 < INNER) {{
        if (p % {lanes} == 0) around[m][p / {lanes}] = whole;
        const unsigned words[4] = {{{words}}};
        *(word16*)(rows_of[m] + at) = word16{{words[0] | (u64)words[1] << 32, words[2] | (u64)words[3] << 32}};
      }}
    }}{squares if self.norm else ""}
  }}"""

    def _unit(self) -> str:
        count, scale = self.weight.elements, "get(scales[u][j]) * " if self.has_scales else ""
        again = self._single("        {name}s[u][j] = NAME_single({name}_at(next_group, next_chunk, u, j));")
        return f"""      const bool is_last = c == CHUNKS - 1, goes_on = !is_last || group + (int)gridDim.x < GROUPS;
      const int next_group = is_last ? group + (int)gridDim.x : group, next_chunk = is_last ? 0 : c + 1;
#pragma unroll
      for (int u = 0; u < UNITS; u++) {{
        {{
          float low[4] = {{}}, high[4] = {{}};
#pragma unroll
          for (int r = 0; r < {count // 8}; r++) {{
            NAME_piece b = {{0, 0, 0, 0}};
            if (member < ROWS) b = NAME_read(rows_of[member] + start_of(c, u) + quarter * {count} + r * 8);
{self._matmuls()}
          }}
#pragma unroll
          for (int e = 0; e < 4; e += ROWS > 1 ? 1 : 2) {{
            const int j = e / 2, m = least(2 * quarter + e % 2, ROWS - 1);
            const float own = low[e] + {"" if self.is_nibble else "16 * "}high[e];
            const float part = own - {self._offset} * around[m][start_of(c, u) / UNIT];
            if (is_inside(c, u)) sums[e] += {scale}part;
          }}
        }}
#pragma unroll
        for (int j = 0; j < 2; j++) if (goes_on) {{
          w[u][j] = NAME_load(weight_at(next_group, next_chunk, u, j));
{again}
        }}
      }}"""

    @property
    def _offset(self) -> str:
        _, base = _MAGIC[self.operands.a.dtype]
        base = base if self.is_nibble else 17 * base
        base += {DType.I4: 8, DType.I8: 128}.get(self.weight.dtype, 0) + self.weight.shift
        known = number(base, "float")
        return known if self.weight.zero is None else f"({known} + (float)get(zeros[u][j]))"

    def _matmuls(self) -> str:
        if self.is_nibble:
            return """            const unsigned first = w[u][0].words[r], second = w[u][1].words[r];
            NAME_mma(low, NAME_pair(first, 0), NAME_pair(second, 0), NAME_pair(first, 1), NAME_pair(second, 1),
                     b.words[0], b.words[1]);
            NAME_mma(high, NAME_pair(first, 2), NAME_pair(second, 2), NAME_pair(first, 3), NAME_pair(second, 3),
                     b.words[2], b.words[3]);"""
        return """#pragma unroll
            for (int i = 0; i < 2; i++) {
              const unsigned first = w[u][0].words[2 * r + i], second = w[u][1].words[2 * r + i];
              NAME_mma(low, NAME_pair(first, 0), NAME_pair(second, 0), NAME_pair(first, 2), NAME_pair(second, 2),
                       b.words[2 * i], b.words[2 * i + 1]);
              NAME_mma(high, NAME_pair(first, 1), NAME_pair(second, 1), NAME_pair(first, 3), NAME_pair(second, 3),
                       b.words[2 * i], b.words[2 * i + 1]);
            }"""


_FIRST = """#pragma unroll
  for (int u = 0; u < UNITS; u++)
#pragma unroll
    for (int j = 0; j < 2; j++) {name}s[u][j] = NAME_single({name}_at(blockIdx.x, 0, u, j));"""
