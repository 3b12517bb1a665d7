"""GEMV of a row or a few with a weight: each thread has a piece of the rows, and a block goes over the columns.

Lanes take 16 bytes side by side along the inner axis, of `wide` columns at a time, so that a piece of the rows serves
all of these from registers. What the threads have summed meets by shuffles in which each step halves the columns a lane
is left with, then in shared memory. The sums of squares that norm the rows meet in the same place (`row_norms.py`).

Before a block waits for its predecessor it asks for its first columns and for what a norm multiplies with and adds
(`early_start.py`). Addresses beyond the ends are brought back inside, so that no load has a condition of its own. While
one group of columns is multiplied, each piece makes room for one of the next.

Two weights of one size may share the rows: half of the columns that a block takes are the other's, and the thread that
ends a column has the sums of both, as a gated unit wants them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.early_start import TRIGGER, WAIT
from ...kernel_ir.includes.warp_code import moments_joined
from ...kernel_ir.launch import Chip, Kernel, KernelLaunch
from ...kernel_ir.prefetch import AHEAD
from ...kernel_ir.sources import Source
from ...kernel_ir.types import number, stored
from .operands import GemmOperands
from .own_kernel_epilogue import OwnKernelEpilogue
from .row_norms import Norm, moments_of_rows, squares_of_rows
from .weight_formats import NIBBLES, ColumnWeight

_MOST_WARPS = 8
_HELD_PIECES, _HELD_IN_ALL = 8, 16
"""Up to how many pieces of the rows a thread keeps from group to group, and with those of a norm's gain and bias; more
are read again, from the cache."""


@dataclass(frozen=True, slots=True)
class ColumnTiling:
    """Blocks of `warps` warps that take `wide` columns at a time; `together` of them share a multiprocessor."""

    wide: int
    warps: int
    together: int

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def name(self) -> str:
        return f"columns-{self.wide}x{self.threads}x{self.together}"


def column_tilings(rows: int, weight: ColumnWeight, columns: int, chip: Chip) -> list[ColumnTiling]:
    """Tilings that are worth trying, best guess first, for so many columns of all weights together.

    One by which all blocks run at once and ask for the whole weight before they wait is the best in a chain of kernels,
    which no kernel by itself shows.
    """
    warps = _warps(weight)
    most = _most_rows(weight)
    fitting = [(wide, threads) for wide, threads in TILINGS if rows <= most.get(wide, rows)]
    made = [ColumnTiling(wide, warps, max(1, threads // (32 * warps))) for wide, threads in fitting]
    whole = weight.inner <= 32 * warps * weight.elements
    at_once = [each for each in made if columns <= each.wide * each.together * chip.multiprocessors]
    return at_once[-1:] if whole and at_once else made


TILINGS = ((8, 512), (4, 512))
"""Columns at a time, and threads that share a multiprocessor."""

_MOST_ROWS = {8: 3}
_MOST_ROWS_IN_PARTS = {8: 1}
_MOST_ROWS_OF_NIBBLES = {8: 0}
"""Up to how many rows the registers hold all sums, by columns at a time; where each piece has sums of its own; and
where a piece is multiplied with many of the rows."""


def _most_rows(weight: ColumnWeight) -> Mapping[int, int]:
    if weight.dtype in NIBBLES:
        return _MOST_ROWS_OF_NIBBLES
    return _MOST_ROWS_IN_PARTS if weight.is_in_parts else _MOST_ROWS


def _warps(weight: ColumnWeight) -> int:
    """Warps that share the inner axis with the fewest idle lanes; among equals the most."""
    pieces = weight.inner // weight.elements
    return min(range(_MOST_WARPS, 0, -1), key=lambda warps: -(-pieces // (32 * warps)) * warps)


def _size(operands: GemmOperands) -> int:
    """Elements of a piece of the rows."""
    return 16 // element_bytes(operands.a.dtype)


def column_gemv(
    operands: GemmOperands,
    weights: Sequence[ColumnWeight],
    epilogue: OwnKernelEpilogue,
    tiling: ColumnTiling,
    chip: Chip,
    norm: Norm | None = None,
) -> KernelLaunch:
    """The launch of one tiling. With two weights, the second of which lies as the first does, they share the columns.

    The first is what `operands` multiply by.
    """
    return launch_of(ColumnText(operands, tuple(weights), epilogue, tiling, norm), chip)


def launch_of(text: "ColumnText", chip: Chip) -> KernelLaunch:
    """The launch of a kernel's text."""
    tiling, sources = text.tiling, text.sources
    (rows, inner), columns = text.operands.a.shape, text.operands.b.shape[-1]
    kernel = Kernel(
        text.whole(),
        (min(text.groups, tiling.together * chip.multiprocessors), 1, 1),
        (tiling.threads, 1, 1),
        early_loads=text.early_loads,
        together=tiling.together,
    )
    unpacked = sum(weight.codes.nbytes - weight.nbytes for weight in text.weights)
    return KernelLaunch(
        kernel,
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources) - unpacked,
        flops=2 * rows * len(text.weights) * columns * inner,
        may_overlap=True,
    )


HELPERS = """
struct NAME_piece {{ unsigned words[4]; }};
__device__ inline NAME_piece NAME_load(const void* at) {{
  NAME_piece p;
  asm volatile("ld.global{hint}.v4.u32 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(p.words[0]), "=r"(p.words[1]), "=r"(p.words[2]), "=r"(p.words[3]) : "l"(at));
  return p;
}}
__device__ inline NAME_piece NAME_read(const void* at) {{
  const word16 p = *(const word16*)at;
  return {{(unsigned)p.low, (unsigned)(p.low >> 32), (unsigned)p.high, (unsigned)(p.high >> 32)}};
}}
// Words are taken apart where an element is used: what does so at once waits for the load.
__device__ inline float NAME_at(const NAME_piece& p, int e) {{ return {element}; }}
// The sums over a warp of one number for each column; a lane ends with that of column lane / (32 / WIDE).
template <int WIDE> __device__ inline float NAME_meet(float (&x)[WIDE], int lane) {{
#pragma unroll
  for (int half = WIDE / 2, bit = 16; half > 0; half /= 2, bit /= 2)
#pragma unroll
    for (int i = 0; i < half; i++) {{
      const bool is_upper = lane & bit;
      const float given = is_upper ? x[i] : x[i + half];
      x[i] = (is_upper ? x[i + half] : x[i]) + other_lane(given, bit);
    }}
  return warp_reduce<sum, 32 / WIDE>(x[0]);
}}
"""

_ELEMENTS = {
    DType.F32: "as_float(p.words[e])",
    DType.F16: "get(f16{(unsigned short)(p.words[e / 2] >> e % 2 * 16)})",
    DType.BF16: "as_float(e % 2 ? p.words[e / 2] & 0xffff0000u : p.words[e / 2] << 16)",
}

_FIRST_SINGLES = """#pragma unroll
  for (int j = 0; j < WIDE; j++) {name}s[j] = NAME_single({name}_at(blockIdx.x, 0, j));"""


@dataclass(frozen=True)
class ColumnText:
    """The kernel's source. The inner axis is cut in chunks, of which each thread has a piece."""

    operands: GemmOperands
    weights: tuple[ColumnWeight, ...]
    epilogue: OwnKernelEpilogue
    tiling: ColumnTiling
    norm: Norm | None

    @property
    def weight(self) -> ColumnWeight:
        return self.weights[0]

    @property
    def is_paired(self) -> bool:
        return len(self.weights) > 1

    @property
    def own(self) -> int:
        """Columns of the result that a block has at a time."""
        return self.tiling.wide // len(self.weights)

    @property
    def names(self) -> dict[str, ColumnWeight]:
        return dict(zip(("weight", "partner"), self.weights, strict=False))

    @property
    def parts(self) -> int:
        """Pieces of the rows that a piece of the weight is multiplied with."""
        return self.weight.elements // _size(self.operands)

    @property
    def has_scales(self) -> bool:
        """Whether pieces have scales of their own."""
        return self.weight.has_many_scales

    @property
    def is_in_parts(self) -> bool:
        return any(weight.is_in_parts for weight in self.weights)

    @property
    def groups(self) -> int:
        return -(-self.columns // self.own)

    @property
    def rows(self) -> int:
        return self.operands.a.shape[-2]

    @property
    def inner(self) -> int:
        return self.operands.a.shape[-1]

    @property
    def columns(self) -> int:
        return self.operands.b.shape[-1]

    @property
    def chunk(self) -> int:
        return self.tiling.threads * self.weight.elements

    @property
    def chunks(self) -> int:
        return -(-self.inner // self.chunk)

    @property
    def affine(self) -> Mapping[str, Source]:
        """The gain and the bias of a norm, by the names of their parameters."""
        return {} if self.norm is None else self.norm.affine

    @property
    def is_weight(self) -> bool:
        return all(weight.is_early for weight in self.weights)

    @property
    def is_held(self) -> bool:
        """Whether the rows stay in registers."""
        pieces = self.chunks * self.parts
        return pieces * self.rows <= _HELD_PIECES and pieces * (self.rows + len(self.affine)) <= _HELD_IN_ALL

    @property
    def is_ragged(self) -> bool:
        return self.inner % self.chunk != 0

    @property
    def is_affine_early(self) -> bool:
        return self.is_weight and all(source.constant is not None for source in self.affine.values())

    @property
    def is_centered(self) -> bool:
        return self.norm is not None and self.norm.is_centered

    @property
    def early_loads(self) -> int:
        """How many loads of constants stand in front of the wait."""
        if not self.is_weight:
            return 0
        each = 1 + sum(1 for _ in self._singles())
        pieces = self.chunks * self.parts * len(self.affine)
        return self.tiling.wide * each + (pieces if self.is_affine_early and self.is_held else 0)

    @property
    def element(self) -> str:
        """An element of a piece of the rows as a float."""
        return _ELEMENTS[self.operands.a.dtype]

    @property
    def sources(self) -> list[Source]:
        """What the kernel reads and writes, in the order of its parameters."""
        weights = (each for weight in self.weights for each in weight.sources)
        return [self.operands.a, *weights, *self.affine.values(), *self.epilogue.sources]

    @property
    def parameters(self) -> list[str]:
        """The parameters in front of those of the epilogue."""
        kind = stored(self.operands.a.dtype)
        weights = [each for name, weight in self.names.items() for each in weight.parameters(name)]
        return [f"const {kind}* x", *weights, *(f"const {kind}* {name}" for name in self.affine)]

    def whole(self) -> str:
        """All of it."""
        wide = self.tiling.wide
        hint = ".L1::no_allocate" if self.is_weight else ""
        element = self.epilogue.element_at("row", "column")
        return f"""{HELPERS.format(element=self.element, hint=hint)}
{self.weight.taking(self.operands.a.dtype)}{self.weight.single_loads}
{moments_joined("float") if self.is_centered else ""}
extern "C" __global__ void __launch_bounds__({self.tiling.threads}, {self.tiling.together})
NAME({", ".join([*self.parameters, *self.epilogue.parameters])}) {{
  constexpr int ROWS = {self.rows}, WIDE = {wide}, WARPS = {self.tiling.warps}, CHUNKS = {self.chunks};
  constexpr int GROUPS = {self.groups}, OWN = {self.own}, PARTS = {self.parts};
  __shared__ float partial[2][ROWS * WIDE][WARPS + 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
{self._places()}
  NAME_piece w[WIDE];
{self._single("  {kind} {name}s[WIDE];")}
{TRIGGER}
{"" if self.is_weight else WAIT}
#pragma unroll
  for (int j = 0; j < WIDE; j++) w[j] = NAME_load(weight_at(blockIdx.x, 0, j));
{self._single(_FIRST_SINGLES)}
{self._affine_held() if self.is_affine_early else ""}
{AHEAD if self.is_weight else ""}
{WAIT if self.is_weight else ""}
{"" if self.is_affine_early else self._affine_held()}
{self._rows_held()}
{self._rows_measured()}
  int turn = 0;
  for (int group = blockIdx.x; group < GROUPS; group += gridDim.x, turn ^= 1) {{
    const int row = threadIdx.x / OWN, column = group * OWN + threadIdx.x % OWN;
    const bool is_there = threadIdx.x < ROWS * OWN && column < {self.columns};
    {element.declarations}
    if (is_there) {{ {element.constants} {element.others} }}
{self._late_scales()}
    float sums[ROWS][WIDE] = {{}};
{"#pragma unroll" if self.is_held else "#pragma unroll 1"}
    for (int c = 0; c < CHUNKS; c++) {{
{self._unit()}
    }}
#pragma unroll
    for (int m = 0; m < ROWS; m++) {{
      const float met = NAME_meet<WIDE>(sums[m], lane);
      if (lane % (32 / WIDE) == 0) partial[turn][m * WIDE + lane / (32 / WIDE)][warp] = met;
    }}
    __syncthreads();
    if (is_there) {{
      float total = 0{", partner_total = 0" if self.is_paired else ""};
      const int at = row * WIDE + threadIdx.x % OWN;
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
        """Where a thread's pieces lie; what would be read beyond an end is read in front of it."""
        count, size, stride = self.weight.elements, _size(self.operands), self.weight.codes.strides[-1]
        place = f"c * {self.chunk} + (int)threadIdx.x * {count}"
        within = f"least({place}, {self.inner - count})" if self.is_ragged else place
        column = "((i64)group * OWN + j % OWN)"
        column = f"(i64)least(group * OWN + j % OWN, {self.columns - 1})" if self.columns % self.own else column
        offset = self.weight.place(f"place_of_chunk(c) + {column} * {stride}")
        return f"""  auto place_of_chunk = [&](int c) -> int {{ return {within}; }};
  auto is_inside = [&](int c) -> bool {{ return {f"{place} < {self.inner}" if self.is_ragged else "true"}; }};
  auto weight_at = [&](int group, int c, int j) {{ return {self._of_column("")} + {offset}; }};
{self._single_places(column)}
  auto row_at = [&](int m, int c, int s) {{
    return NAME_read(x + (i64)m * {self.operands.a.strides[-2]} + place_of_chunk(c) + s * {size});
  }};
{self._affine_places()}"""

    def _affine_places(self) -> str:
        place = f"place_of_chunk(c) + s * {_size(self.operands)}"
        lines = (f"  auto {name}_at = [&](int c, int s) {{ return {name} + {place}; }};" for name in self.affine)
        return "\n".join(lines)

    def _of_column(self, suffix: str) -> str:
        """The memory of column `j`, by the name of a parameter."""
        return f"(j < OWN ? weight{suffix} : partner{suffix})" if self.is_paired else f"weight{suffix}"

    def _single_places(self, column: str) -> str:
        """Where the scale and the zero point of a piece lie."""
        found: list[str] = []
        for name, source in self._singles():
            outer, inner = source.strides
            place = f"place_of_chunk(c) / {self.weight.block} * {outer} + {column} * {inner}"
            memory = self._of_column(f"_{name}")
            found.append(f"  auto {name}_at = [&](int group, int c, int j) {{ return {memory} + {place}; }};")
        return "\n".join(found)

    def _singles(self) -> Iterator[tuple[str, Source]]:
        """What is read once for a piece, by name."""
        if self.has_scales and self.weight.scale is not None:
            yield "scale", self.weight.scale
        if self.weight.zero is not None:
            yield "zero", self.weight.zero

    def _single(self, text: str) -> str:
        return "\n".join(text.format(name=name, kind=stored(source.dtype)) for name, source in self._singles())

    def _affine_held(self) -> str:
        read = "NAME_load" if self.is_affine_early else "NAME_read"
        lines = (
            f"""  NAME_piece {name}_held[CHUNKS][PARTS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++)
#pragma unroll
    for (int s = 0; s < PARTS; s++) {name}_held[c][s] = {read}({name}_at(c, s));"""
            for name in self.affine
        )
        return "\n".join(lines) if self.is_held else ""

    def _rows_held(self) -> str:
        if not self.is_held:
            return ""
        return """  NAME_piece held[CHUNKS][PARTS][ROWS];
#pragma unroll
  for (int c = 0; c < CHUNKS; c++)
#pragma unroll
    for (int s = 0; s < PARTS; s++)
#pragma unroll
      for (int m = 0; m < ROWS; m++) held[c][s][m] = row_at(m, c, s);"""

    @property
    def _row_piece(self) -> str:
        return "held[c][s][m]" if self.is_held else "row_at(m, c, s)"

    def _rows_measured(self) -> str:
        """What norms the rows."""
        size = _size(self.operands)
        if self.norm is None or not self.norm.is_centered:
            return "" if self.norm is None else squares_of_rows(self._row_piece, size)
        return moments_of_rows(self._row_piece, size, self._counts(), self.norm.epsilon, is_even=not self.is_ragged)

    def _counts(self) -> list[int]:
        """How many elements of a row each warp has."""
        each = 32 * self.weight.elements
        starts = [[c * self.chunk + warp * each for c in range(self.chunks)] for warp in range(self.tiling.warps)]
        return [sum(min(max(self.inner - start, 0), each) for start in own) for own in starts]

    def _unit(self) -> str:
        """One chunk of a group of columns, whose places are filled with the next ones."""
        size, inside = _size(self.operands), "if (is_inside(c)) " if self.is_ragged else ""
        affine = "{0}_held[c][s]" if self.is_held else "NAME_read({0}_at(c, s))"
        read = [f"        const NAME_piece {name}_piece = {affine.format(name)};" for name in self.affine]
        factor = " * NAME_at(gain_piece, e)" if "gain" in self.affine else ""
        addend = " + NAME_at(bias_piece, e)" if "bias" in self.affine else ""
        element = "(NAME_at(p, e) - means[m]) * factors[m]" if self.is_centered else "NAME_at(p, e)"
        sums = "own" if self.is_in_parts else "sums"
        return f"""      const bool is_last = c == CHUNKS - 1, goes_on = !is_last || group + (int)gridDim.x < GROUPS;
      const int next_group = is_last ? group + (int)gridDim.x : group, next_chunk = is_last ? 0 : c + 1;
{"      float own[ROWS][WIDE] = {}, around[ROWS] = {};" if self.is_in_parts else ""}
#pragma unroll
      for (int s = 0; s < PARTS; s++) {{
        float wide[ROWS][{size}];
{chr(10).join(read)}
#pragma unroll
        for (int m = 0; m < ROWS; m++) {{
          const NAME_piece p = {self._row_piece};
#pragma unroll
          for (int e = 0; e < {size}; e++) {{
            wide[m][e] = {element}{factor}{addend};
{"            around[m] += wide[m][e];" if self.weight.zero else ""}
          }}
        }}
#pragma unroll
        for (int j = 0; j < WIDE; j++) {{
{self.weight.declared(size)}
#pragma unroll
          for (int e = 0; e < {size}; e++) {{
            const float y = {self.weight.element};
#pragma unroll
            for (int m = 0; m < ROWS; m++) {inside}{sums}[m][j] += wide[m][e] * y;
          }}
          if (s == PARTS - 1 && goes_on) w[j] = NAME_load(weight_at(next_group, next_chunk, j));
        }}
      }}
{self._parts_added(inside) if self.is_in_parts else ""}"""

    def _parts_added(self, inside: str) -> str:
        """The sums of a piece, without what the numbers lie too high, times their scale."""
        less = "" if self.weight.zero is None else " - (float)get(zeros[j]) * around[m]"
        scale = "get(scales[j]) * " if self.has_scales else ""
        again = self._single("        if (goes_on) {name}s[j] = NAME_single({name}_at(next_group, next_chunk, j));")
        return f"""#pragma unroll
      for (int j = 0; j < WIDE; j++) {{
#pragma unroll
        for (int m = 0; m < ROWS; m++) {inside}sums[m][j] += {scale}(own[m][j]{less});
{again}
      }}"""

    def _late_scales(self) -> str:
        """The scales of whole columns, for the threads that end them."""
        lines: list[str] = []
        for name, weight in self.names.items():
            if weight.scale is not None and not self.has_scales:
                place = f"(i64)column * {weight.scale.strides[-1]}"
                lines.append(f"    float of_{name} = 0; if (is_there) of_{name} = get({name}_scale[{place}]);")
        return "\n".join(lines)

    def _scaled(self) -> str:
        totals = ("total", *(["partner_total"] if self.is_paired else []))
        has_late = self.weight.scale is not None and not self.has_scales
        late = [f"      {total} *= of_{name};" for total, name in zip(totals, self.names, strict=True) if has_late]
        if self.norm is None or self.norm.is_centered:
            return "\n".join(late)
        return f"""      if (group == (int)blockIdx.x) {{
        float whole = 0;
#pragma unroll
        for (int part = 0; part < WARPS; part++) whole += squares[row][part];
        scale = rsqrtf(whole / {self.inner} + {number(self.norm.epsilon, "float")});
      }}
{chr(10).join([f"      {total} *= scale;" for total in totals] + late)}"""
