"""Weights of a matmul as a kernel reads them: numbers as they are, or codes of 4 or 8 bits with scales.

A thread has 16 bytes of a column at a time. Integers become floats by way of f16, pairs at a time: they are the last
places of 1,024, which is taken off again with the zero point, exactly. Zero points that differ are taken off the sum of
a piece, times the sum of the rows there.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import Packed
from ...kernel_ir.sources import Source, packed_weight, permuted
from ...kernel_ir.types import number, stored

PIECE = 16
"""Bytes."""

FP8 = frozenset({DType.F8E4M3FN, DType.F8E5M2})
BYTES = frozenset({DType.I8, DType.U8})
NIBBLES = frozenset({DType.I4, DType.U4})


@dataclass(frozen=True, slots=True)
class ColumnWeight:
    """A weight [K, N] whose columns lie in one piece each: `codes`, minus `zero` and `shift`, times `scale`.

    Codes of 4 bits are two to a byte, and strides count numbers. Scales and zero points are [blocks, N] by strides,
    each for as many numbers of a column; none for a weight that is what it is. One zero point for all is `shift`.
    """

    codes: Source
    scale: Source | None = None
    zero: Source | None = None
    shift: float = 0.0

    @property
    def dtype(self) -> DType:
        return self.codes.dtype

    @property
    def inner(self) -> int:
        return self.codes.shape[-2]

    @property
    def block(self) -> int:
        """Numbers of a column that share a scale."""
        blocks = [each.shape[0] for each in (self.scale, self.zero) if each is not None]
        return self.inner // max(blocks, default=1)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return self.codes.size * self.dtype.bits // 8

    @property
    def elements(self) -> int:
        """Numbers in 16 bytes."""
        return 8 * PIECE // self.dtype.bits

    @property
    def format(self) -> tuple[Hashable, ...]:
        """What two weights of one kernel have in common."""
        rest = [each and (each.dtype, each.shape, each.strides) for each in (self.scale, self.zero)]
        return (self.dtype, self.shift, self.codes.shape, self.codes.strides, *rest)

    @property
    def suffix(self) -> str:
        """How candidates of such weights are named."""
        return "" if self.scale is None else f"-{self.dtype}"

    @property
    def is_early(self) -> bool:
        """Whether all of it may be read before earlier kernels are done."""
        return all(each.constant is not None for each in self.sources)

    @property
    def sources(self) -> list[Source]:
        """What the kernel reads, in the order of its parameters."""
        return [each for each in (self.codes, self.scale, self.zero) if each is not None]

    @property
    def excess(self) -> float:
        """What integers lie too high as they come out of their bits, but for zero points that are read."""
        return 1024 + {DType.I4: 8, DType.I8: 128}.get(self.dtype, 0) + self.shift

    @property
    def has_many_scales(self) -> bool:
        """Whether a column has several scales, so that a piece has to be multiplied by its own."""
        return self.scale is not None and self.block < self.inner

    @property
    def is_in_parts(self) -> bool:
        """Whether the sum of a piece is worked on before it is added to the others."""
        return self.has_many_scales or self.zero is not None

    @property
    def fits(self) -> bool:
        """Whether pieces are whole, and none has two scales."""
        column = self.codes.strides[-1]
        is_whole = self.inner % self.elements == 0 and (column % self.elements == 0 or self.codes.shape[-1] == 1)
        is_known = self.scale is None or self.dtype in FP8 | BYTES | NIBBLES
        return is_whole and is_known and self.block % self.elements == 0 and self.codes.strides[-2] == 1

    def permuted(self, order: Sequence[int]) -> "ColumnWeight":
        """The same matrix with its axes in another order."""
        scale, zero = (None if each is None else permuted(each, order) for each in (self.scale, self.zero))
        return replace(self, codes=permuted(self.codes, order), scale=scale, zero=zero)

    def packed(self) -> "ColumnWeight | None":
        """With columns in one piece each, where that is so or the codes are a constant; None otherwise."""
        codes, constant = self.codes, self.codes.constant
        if self.dtype not in NIBBLES:
            return replace(self, codes=packed_weight(codes))
        if constant is None or 1 in codes.shape or sorted(codes.shape) != sorted(constant.shape):
            return None
        inner, columns = codes.shape
        order = (1, 0) if codes.strides == (columns, 1) else (0, 1)
        is_whole = codes.strides in ((columns, 1), (1, inner))
        if not is_whole or tuple(constant.shape[axis] for axis in order) != (columns, inner):
            return None
        return replace(self, codes=replace(codes, strides=(1, inner), argument=Packed(constant, "nibbles", order)))

    def parameters(self, name: str) -> list[str]:
        """The kernel's parameters for it, in the order of `sources`."""
        kind = stored(self.dtype) if self.scale is None else "unsigned char"
        found = [f"const {kind}* {name}"]
        if self.scale is not None:
            found.append(f"const {stored(self.scale.dtype)}* {name}_scale")
        if self.zero is not None:
            found.append(f"const {stored(self.zero.dtype)}* {name}_zero")
        return found

    def place(self, elements: str) -> str:
        """The offset of some number, in elements of the parameter."""
        if self.scale is None or self.dtype.bits == 8:
            return elements
        return f"(({elements}) >> 1)"

    def declared(self, count: int) -> str:
        """What stands before the numbers of a piece are used, `count` at a time."""
        return "" if self.scale is None else f"          float taken[{count}];\n          NAME_take(w[j], s, taken);"

    @property
    def element(self) -> str:
        return "NAME_at(w[j], e)" if self.scale is None else "taken[e]"

    def taking(self, rows: DType) -> str:
        """`NAME_take`: as many numbers of a piece as one of the rows has."""
        if self.scale is None:
            return ""
        count = PIECE // element_bytes(rows)
        pairs = nibble_pairs(HALVES, "true" if self.dtype is DType.I4 else "false") if self.dtype in NIBBLES else ""
        bits = int(np.float16(self.excess).view(np.uint16))
        numbers = _NUMBERS.format(excess=number(self.excess, "float"), bits=f"{bits << 16 | bits:x}", halves=HALVES)
        return f"""{pairs}{numbers}
__device__ inline void NAME_take(const NAME_piece& p, int part, float (&y)[{count}]) {{
{self._taken(count)}
}}
"""

    def _taken(self, count: int) -> str:
        if self.dtype in NIBBLES:
            word, chosen = ("part", "low, y[s + 4] = high") if count == 8 else ("part / 2", "part % 2 ? high : low")
            return f"""#pragma unroll
  for (int s = 0; s < 4; s++) {{
    float low, high;
    NAME_numbers(NAME_pair(p.words[{word}], s), low, high);
    y[s] = {chosen};
  }}"""
        if self.dtype in BYTES:
            mask = " ^ 0x80808080u" if self.dtype is DType.I8 else ""
            return f"""#pragma unroll
  for (int e = 0; e < {count}; e += 2) {{
    const int i = part * {count} + e;
    NAME_numbers(NAME_bytes(p.words[i / 4]{mask}, i % 4 / 2), y[e], y[e + 1]);
  }}"""
        kind = "e4m3x2" if self.dtype is DType.F8E4M3FN else "e5m2x2"
        less = f" - {number(self.shift, 'float')}" if self.shift else ""
        return f"""#pragma unroll
  for (int e = 0; e < {count}; e += 2) {{
    const int i = part * {count} + e;
    const unsigned short pair = (unsigned short)(p.words[i / 4] >> i % 4 * 8);
#if !defined(EMULATED) && __CUDA_ARCH__ >= 890
    unsigned both;
    asm("cvt.rn.f16x2.{kind} %0, %1;" : "=r"(both) : "h"(pair));
    y[e] = get(f16{{(unsigned short)both}}){less};
    y[e + 1] = get(f16{{(unsigned short)(both >> 16)}}){less};
#else
    y[e] = get({stored(self.dtype)}{{(unsigned char)pair}}){less};
    y[e + 1] = get({stored(self.dtype)}{{(unsigned char)(pair >> 8)}}){less};
#endif
  }}"""

    @property
    def single_loads(self) -> str:
        """`NAME_single`: loads of what is read once for a piece."""
        return "".join(self._single_loads())

    def _single_loads(self) -> Iterator[str]:
        read = [self.scale.dtype] if self.has_many_scales and self.scale is not None else []
        if self.zero is not None and self.zero.dtype not in read:
            read.append(self.zero.dtype)
        for dtype in read:
            kind = stored(dtype)
            if element_bytes(dtype) == 4:
                load = 'asm volatile("ld.global.f32 %0, [%1];" : "=f"(y) : "l"(at));'
            elif element_bytes(dtype) == 2:
                load = 'asm volatile("ld.global.u16 %0, [%1];" : "=h"(y.bits) : "l"(at));'
            else:
                load = 'unsigned short z; asm volatile("ld.global.u8 %0, [%1];" : "=h"(z) : "l"(at)); '
                load += f"y = {kind}{{(unsigned char)z}};" if dtype in NIBBLES else f"y = ({kind})z;"
            yield f"__device__ inline {kind} NAME_single(const {kind}* at) {{ {kind} y; {load} return y; }}\n"


HALVES = 0x64006400
"""Two numbers of f16 whose last place is 1, each 1,024."""


def nibble_pairs(magic: int, is_signed: str) -> str:
    """`NAME_pair`: two halves of bytes, 16 bits apart, as numbers from those of `magic` on.

    Those for which the expression `is_signed` holds have their sign turned around, and are 8 too high.
    """
    return f"""
__device__ inline unsigned NAME_pair(unsigned word, int half) {{
  const unsigned magic = 0x{magic:x}u | ({is_signed} ? 0x00080008u : 0u);
#ifdef EMULATED
  return (word >> 4 * half & 0x000f000fu) ^ magic;
#else
  unsigned y;  // one instruction, where the compiler makes two, as only one constant stands in it
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(y) : "r"(word >> 4 * half), "r"(0x000f000fu), "r"(magic));
  return y;
#endif
}}
"""


_NUMBERS = """
__device__ inline unsigned NAME_bytes(unsigned word, int half) {{
#ifdef EMULATED
  return (word >> 16 * half & 255u) | (word >> 16 * half >> 8 & 255u) << 16 | 0x{halves:x}u;
#else
  return __byte_perm(word, 0x64646464u, half ? 0x4342 : 0x4140);
#endif
}}
__device__ inline void NAME_numbers(unsigned pair, float& low, float& high) {{
#ifdef EMULATED
  low = get(f16{{(unsigned short)pair}}) - {excess};
  high = get(f16{{(unsigned short)(pair >> 16)}}) - {excess};
#else
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x{bits}u));
  low = get(f16{{(unsigned short)pair}});
  high = get(f16{{(unsigned short)(pair >> 16)}});
#endif
}}"""
"""Two bytes as numbers of f16 from 1,024 on, and two such numbers without what they lie too high, which is exact."""
