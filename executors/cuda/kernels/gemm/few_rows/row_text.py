"""Matmuls of up to 16 rows with a weight of 16 bits on tensor cores, which take 16 of its columns, 8 rows at a time.

Each warp has a part of the inner axis, for all rows. As the order of a sum is free, a lane takes 16 bytes side by side
of a column, and of a row: they fill its places of two `mma` in the same way. So the weight goes from memory to
registers, and a lane reads of the rows what it has copied itself, from a piece of shared memory that is its own. Blocks
of a cluster may share the inner axis, too: each copies a part of the rows, and sums meet when all columns of the
cluster are done. Rows that find no room are read again for each group of columns.

What a norm multiplies a row by is brought in when its sums are whole. Squares are summed by `mma`: what a lane has of
eight rows on the right it would have of them on the left, and their sums are the diagonal. A gain might bring numbers
of f16 out of range, so that those are first divided by a power of two, near the mean of the row in the warp's part.

What is asked for before the wait is as in `column_gemv.py`.
https://docs.nvidia.com/cuda/parallel-thread-execution/ (mma.m16n8k16)
"""

from dataclasses import dataclass

from ......ir.types import DType
from ....kernel_ir.early_start import TRIGGER, WAIT
from ....kernel_ir.includes.async_copies import async_copies
from ....kernel_ir.includes.warp_code import cluster_code, warp_mma
from ....kernel_ir.launch import Kernel, KernelLaunch
from ....kernel_ir.prefetch import AHEAD
from ....kernel_ir.types import number, stored
from ..column_gemv import HELPERS
from ..own_kernel_epilogue import Element
from .row_sizes import PITCH, ROWS, TILE, UNIT, RowSizes

_TIMES = {
    DType.BF16: 'asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(0x80008000u));  // adds -0',
    DType.F16: 'asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));',
}

_PREPARED = """
__device__ inline unsigned NAME_times(unsigned a, unsigned b) {{
#ifdef EMULATED
  {kind} low, high;
  put(low, get({kind}{{(unsigned short)a}}) * get({kind}{{(unsigned short)b}}));
  put(high, get({kind}{{(unsigned short)(a >> 16)}}) * get({kind}{{(unsigned short)(b >> 16)}}));
  return low.bits | (unsigned)high.bits << 16;
#else
  unsigned y;
  {times}
  return y;
#endif
}}
"""


@dataclass(frozen=True)
class RowText(RowSizes):
    """The kernel of one tiling."""

    def launch(self) -> KernelLaunch:
        tiling = self.tiling
        kernel = Kernel(
            self.whole(),
            (self.clusters * tiling.splits, 1, 1),
            (tiling.threads, 1, 1),
            shared_bytes=self.places["end"],
            cluster=(tiling.splits, 1, 1),
            early_loads=self.early_loads,
            together=self.together,
        )
        return KernelLaunch(
            kernel,
            tuple(source.argument for source in self.sources),
            nbytes=sum(source.nbytes for source in self.sources),
            flops=2 * self.rows * len(self.weights) * self.columns * self.inner,
            may_overlap=True,
        )

    def whole(self) -> str:
        tiling, places, dtype = self.tiling, self.places, self.operands.a.dtype
        kind, splits = stored(dtype), tiling.splits
        hint = ".L1::no_allocate" if self.is_weight else ""
        lines = [
            f"  {ctype}* const {name} = ({ctype}*)(shared + {places[name]});"
            for name, ctype in (
                ("rows", "unsigned char"),
                ("gains", "unsigned char"),
                ("sums", "float"),
                ("squares", "float"),
                ("whole", "float"),
                ("whole_squares", "float"),
            )
        ]
        return f"""{HELPERS.format(element=self.element, hint=hint)}
{warp_mma(kind)}{async_copies(0)}{cluster_code(splits) if splits > 1 else ""}
{_PREPARED.format(kind=kind, times=_TIMES[dtype]) if self.affine else ""}
extern "C" __global__ void __launch_bounds__({tiling.threads}, {tiling.together})
NAME({", ".join([*self.parameters, *self.epilogue.parameters])}) {{
  constexpr int ROWS = {self.rows}, TILES = {self.tiles}, WARPS = {tiling.warps}, THREADS = {tiling.threads};
  constexpr int CHUNKS = {self.chunks}, UNITS = {tiling.units}, GROUPS = {self.groups}, OWN = {self.own};
  constexpr int INNER = {self.inner}, SPLITS = {splits}, CLUSTERS = {self.clusters};
  alignas(16) extern __shared__ unsigned char shared[];
{chr(10).join(lines)}
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, member = lane / 4, quarter = lane % 4;
  const int rank = blockIdx.x % SPLITS, first = blockIdx.x / SPLITS;
{self._places()}
  NAME_piece w[UNITS][2];
{TRIGGER}
{"" if self.is_weight else WAIT}
#pragma unroll
  for (int u = 0; u < UNITS; u++)
#pragma unroll
    for (int j = 0; j < 2; j++) w[u][j] = NAME_load(weight_at(first, 0, u, j));
{self._gain_copied() if self.is_affine_early else ""}
{AHEAD if self.is_weight else ""}
{WAIT if self.is_weight else ""}
{"" if self.is_affine_early else self._gain_copied()}
{self._rows_copied()}
  NAME_commit();
  NAME_wait();
  __syncwarp();
{self._rows_normed()}
{"".join(f"  float scale{index} = 1;" for index in range(self.each)) if self.norm else ""}
  int turn = 0;
  for (int group = first; group < GROUPS; group += CLUSTERS, turn ^= 1) {{
{self._begun("group") if splits == 1 else self._elements()}
    float tile[TILES][4] = {{}};
#pragma unroll 1
    for (int c = 0; c < CHUNKS; c++) {{
{self._unit()}
    }}
    float* const own = sums + turn * WARPS * TILES * {TILE} + warp * TILES * {TILE} + member * {PITCH} + quarter * 4;
#pragma unroll
    for (int t = 0; t < TILES; t++) {{
{self._powered()}
      *(word16*)(own + t * {TILE}) = bits_as<word16>(*(pack<float, 4>*)tile[t]);
    }}
    __syncthreads();
{self._summed()}
  }}
{self._met() if splits > 1 else ""}
}}
"""

    def _places(self) -> str:
        stride, down = self.weight.codes.strides[-1], self.operands.a.strides[-2]
        part = "(rank * CHUNKS + c)" if self.tiling.splits > 1 else "c"
        start = f"(({part} * WARPS + warp) * UNITS + u) * {UNIT}"
        column = "(group * OWN + (member + 8 * j) % OWN)"
        column = f"(i64)least({column}, {self.columns - 1})" if self.columns % self.own else f"(i64){column}"
        place = "start_of(c, u) + quarter * 8"
        place = f"least({place}, INNER - 8)" if self.is_ragged else place
        is_there = "start_of(c, u) + quarter * 8 < INNER" if self.is_ragged else "true"
        memory = "(j == 0 ? weight : partner)" if self.is_paired else "weight"
        return f"""  auto start_of = [&](int c, int u) -> int {{ return {start}; }};
  auto place_of = [&](int c, int u) -> int {{ return {place}; }};
  auto is_there = [&](int c, int u) -> bool {{ return {is_there}; }};
  auto weight_at = [&](int group, int c, int u, int j) {{ return {memory} + place_of(c, u) + {column} * {stride}; }};
  auto row_at = [&](int c, int u, int t) {{
    return x + (i64)least(t * 8 + member, ROWS - 1) * {down} + place_of(c, u);
  }};
  auto is_row = [&](int t) -> bool {{ return {"t * 8 + member < ROWS" if self.rows % ROWS else "true"}; }};
  auto held_at = [&](int c, int u, int t) {{
    return rows + (((c * UNITS + u) * TILES + t) * THREADS + (int)threadIdx.x) * 16;
  }};
  auto gain_at = [&](int c, int u) {{ return gains + (((c * WARPS + warp) * UNITS + u) * 4 + quarter) * 16; }};"""

    def _gain_copied(self) -> str:
        """A warp's part of the gain, on its way to shared memory."""
        if not self.affine:
            return ""
        return """#pragma unroll
  for (int c = 0; c < CHUNKS; c++)
    for (int i = lane; i < UNITS * 4; i += 32) {
      const int k = start_of(c, 0) + i * 8;
      NAME_copy(gains + ((c * WARPS + warp) * UNITS * 4 + i) * 16, gain + least(k, INNER - 8), k < INNER);
    }"""

    def _rows_copied(self) -> str:
        if not self.tiling.is_held:
            return ""
        return """  for (int c = 0; c < CHUNKS; c++)
#pragma unroll
    for (int u = 0; u < UNITS; u++)
#pragma unroll
      for (int t = 0; t < TILES; t++) NAME_copy(held_at(c, u, t), row_at(c, u, t), is_row(t) && is_there(c, u));"""

    @property
    def _read(self) -> str:
        """A lane's piece of its row of a tile, as it is in memory."""
        if self.tiling.is_held:
            return "NAME_read(held_at(c, u, t))"
        return "(is_row(t) && is_there(c, u) ? NAME_read(row_at(c, u, t)) : NAME_piece{0, 0, 0, 0})"

    @property
    def _has_powers(self) -> bool:
        return bool(self.affine) and self.operands.a.dtype is DType.F16

    @property
    def _multiplied(self) -> str:
        """Statements that multiply piece `b` with the gain."""
        if not self.affine:
            return ""
        powers = (
            """
#pragma unroll
        for (int i = 0; i < 4; i++) b.words[i] = NAME_times(b.words[i], inverse[t]);"""
            * self._has_powers
        )
        return f"""{powers}
        const NAME_piece factor = NAME_read(gain_at(c, u));
#pragma unroll
        for (int i = 0; i < 4; i++) b.words[i] = NAME_times(b.words[i], factor.words[i]);"""

    def _rows_normed(self) -> str:
        """The sums of squares of each row, and rows times the gain where they are held."""
        if self.norm is None:
            return ""
        write = f"{self._multiplied}\n        *(NAME_piece*)held_at(c, u, t) = b;" * self._is_multiplied_once
        is_one_pass = not self._has_powers
        loop = """  for (int c = 0; c < CHUNKS; c++)
#pragma unroll 2
    for (int u = 0; u < UNITS; u++)
#pragma unroll
      for (int t = 0; t < TILES; t++) {"""
        again = f"""{loop}
        NAME_piece b = {self._read};
{write}
      }}""" * (self._is_multiplied_once and not is_one_pass)
        power = (
            """
    const float mean = sqrtf(own / (CHUNKS * UNITS * 32));
    unsigned bits = as_bits(mean) & 0x7f800000u;
    bits = bits == 0x7f800000u ? 0x3f800000u : bits < 0x38800000u ? 0x38800000u : bits;
    powers[t] = as_float(bits);
    inverse[t] = element<f16>(as_float(0x7f000000u - bits)).bits * 0x10001u;"""
            * self._has_powers
        )
        return f"""  {"float powers[TILES]; unsigned inverse[TILES];" if self._has_powers else ""}
  float products[TILES][4] = {{}};
{loop}
        NAME_piece b = {self._read};
        NAME_mma(products[t], b.words[0], 0, b.words[1], 0, b.words[0], b.words[1]);
        NAME_mma(products[t], b.words[2], 0, b.words[3], 0, b.words[2], b.words[3]);
{write if is_one_pass else ""}
      }}
#pragma unroll
  for (int t = 0; t < TILES; t++) {{
    const float own = __shfl_sync(
        0xffffffffu, member % 2 ? products[t][1] : products[t][0], member * 4 + member / 2);
    if (quarter == 0) squares[(warp * TILES + t) * 8 + member] = own;{power}
  }}
{again}"""

    @property
    def _is_multiplied_once(self) -> bool:
        return bool(self.affine) and self.tiling.is_held

    def _unit(self) -> str:
        if self.is_cut:
            zeroed = """
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
          for (int i = 0; i < 4; i++) w[u][j].words[i] = is_there(c, u) ? w[u][j].words[i] : 0;"""
        else:
            zeroed = ""
        inside = "if (start_of(c, u) < INNER) " if self.is_ragged else ""
        late = "" if self.tiling.is_held else self._multiplied
        return f"""      const bool is_last = c == CHUNKS - 1, goes_on = !is_last || group + CLUSTERS < GROUPS;
      const int next_group = is_last ? group + CLUSTERS : group, next_chunk = is_last ? 0 : c + 1;
#pragma unroll
      for (int u = 0; u < UNITS; u++) {{
        {inside}{{{zeroed}
#pragma unroll
        for (int t = 0; t < TILES; t++) {{
        NAME_piece b = {self._read};{late}
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          NAME_mma(tile[t], w[u][0].words[i], w[u][1].words[i], w[u][0].words[i + 1], w[u][1].words[i + 1],
                   b.words[i], b.words[i + 1]);
        }}
        }}
#pragma unroll
        for (int j = 0; j < 2; j++) if (goes_on) w[u][j] = NAME_load(weight_at(next_group, next_chunk, u, j));
      }}"""

    def _powered(self) -> str:
        """Brings back what rows of a tile were divided by."""
        if not self._has_powers:
            return ""
        return """#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float power = __shfl_sync(0xffffffffu, powers[t], (2 * quarter + e) * 4);
        tile[t][e] *= power, tile[t][e + 2] *= power;
      }"""

    # ---- results

    def _element(self, index: int) -> Element:
        return self.epilogue.element_at(f"row{index}", f"column{index}", str(index))

    def _elements(self) -> str:
        """Which results of a group a thread ends."""
        return "\n".join(
            f"    const int e{index} = threadIdx.x + {index * self.tiling.threads}, row{index} = e{index} / OWN;"
            for index in range(self.each)
        )

    def _begun(self, group: str) -> str:
        """What results take besides their sums is asked for."""
        lines = [self._elements()]
        for index in range(self.each):
            element = self._element(index)
            lines.append(f"""    const int column{index} = {group} * OWN + e{index} % OWN;
    const bool is_there{index} = e{index} < {self.elements} && column{index} < {self.columns};
    {element.declarations}
    if (is_there{index}) {{ {element.constants} {element.others} }}""")
        return "\n".join(lines)

    def _summed(self) -> str:
        """The sums of all warps, and what follows them."""
        return "\n".join(map(self._sum, range(self.each)))

    def _sum(self, index: int) -> str:
        partner = f"        partner_total += at[part * TILES * {TILE} + 2];" if self.is_paired else ""
        row, column = f"row{index}", f"e{index} % OWN"
        if self.tiling.splits == 1:
            condition, end = (
                f"is_there{index}",
                f"{self._scaled_by(index)}\n      {self._element(index).finish('total')}",
            )
        else:
            condition = f"e{index} < {self.elements}"
            to = f"whole[(group / CLUSTERS * {len(self.weights)}"
            end = f"      {to}) * {self.elements} + e{index}] = total;"
            end += f"\n      {to} + 1) * {self.elements} + e{index}] = partner_total;" if self.is_paired else ""
        return f"""    if ({condition}) {{
      float total = 0{", partner_total = 0" if self.is_paired else ""};
      const float* const at = sums + turn * WARPS * TILES * {TILE} + {row} / 8 * {TILE} + {column} % 8 * {PITCH}
                              + {row} % 8 / 2 * 4 + {column} / 8 * 2 + {row} % 2;
#pragma unroll
      for (int part = 0; part < WARPS; part++) {{
        total += at[part * TILES * {TILE}];
{partner}
      }}
{end}
    }}"""

    @property
    def _totals(self) -> tuple[str, ...]:
        return ("total", "partner_total") if self.is_paired else ("total",)

    def _scaled_by(self, index: int) -> str:
        if self.norm is None:
            return ""
        scaled = "\n".join(f"      {total} *= scale{index};" for total in self._totals)
        return f"""      if (group == first) {{
        float whole_row = 0;
#pragma unroll
        for (int part = 0; part < WARPS; part++) whole_row += squares[part * TILES * 8 + row{index}];
        scale{index} = {self._scale};
      }}
{scaled}"""

    @property
    def _scale(self) -> str:
        assert self.norm is not None
        return f"rsqrtf(whole_row / INNER + {number(self.norm.epsilon, 'float')})"

    def _met(self) -> str:
        """The sums of all blocks of a cluster: each block ends some of the groups."""
        squares = """  for (int row = threadIdx.x; row < ROWS; row += THREADS) {
    float own = 0;
    for (int part = 0; part < WARPS; part++) own += squares[part * TILES * 8 + row];
    whole_squares[row] = own;
  }
""" * (self.norm is not None)
        begun = self._begun("(first + n * CLUSTERS)")
        ended = "\n".join(map(self._end, range(self.each)))
        if self.rounds <= self.tiling.splits:  # one group at most
            return f"""{squares}  const int n = rank;
{begun}
  NAME_meet();
{ended}
  NAME_meet();"""
        return f"""{squares}  NAME_meet();
  for (int n = rank; first + n * CLUSTERS < GROUPS; n += SPLITS) {{
{begun}
{ended}
  }}
  NAME_meet();"""

    def _end(self, index: int) -> str:
        count = len(self.weights)
        sums = "\n".join(
            f"        {total} += NAME_other(whole + (n * {count} + {at}) * {self.elements} + e{index}, part);"
            for at, total in enumerate(self._totals)
        )
        squares, scaled = "", ""
        if self.norm is not None:
            squares = f"        whole_row += NAME_other(whole_squares + row{index}, part);"
            scaled = f"      const float scale = {self._scale};\n"
            scaled += "\n".join(f"      {total} *= scale;" for total in self._totals)
        return f"""    if (is_there{index}) {{
      float {" = 0, ".join(self._totals)} = 0{", whole_row = 0" if self.norm else ""};
#pragma unroll
      for (int part = 0; part < SPLITS; part++) {{
{sums}
{squares}
      }}
{scaled}
      {self._element(index).finish("total")}
    }}"""
