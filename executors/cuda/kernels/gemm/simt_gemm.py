"""GEMMs with any strides and any dtype: tiles in shared memory, four by four results a thread.

It is what is left when cuBLASLt has no such GEMM (integers, strides of which none is 1), correct before quick.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .....ir.types import DType, Kind
from ...kernel_ir.casts import converted
from ...kernel_ir.launch import Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source, index_type, offset_code, split_index_code
from ...kernel_ir.types import Name, computed, number, stored
from .operands import GemmOperands
from .own_kernel_epilogue import offset_at
from .quantization import Quantization

_DEPTH, _THREADS = 16, 256

_SUMS = {DType.F64: "double", DType.I64: "u64", DType.U64: "u64", DType.I32: "unsigned", DType.U32: "unsigned"}
"""The type that products of a dtype are summed in: float where none is named; integers wrap."""


def tile_size(rows: int, columns: int, count: int, chip: Chip) -> int:
    """Rows and columns of the tile that one block makes: small ones where there are few."""
    tiles = -(-rows // 64) * -(-columns // 64) * count
    return 64 if tiles >= chip.multiprocessors else 32 if 4 * tiles >= chip.multiprocessors else 16


def simt_gemm(
    operands: GemmOperands,
    alpha: float = 1.0,
    beta: float = 1.0,
    chip: Chip | None = None,
    quantization: Quantization | None = None,
) -> KernelLaunch | None:
    """The GEMM d = alpha * a @ b + beta * c; None where it has no elements.

    With `quantization` the operands have zero points, and the result may be quantized; leading axes are then all there.
    """
    d = operands.d
    total = _SUMS.get(d.dtype, "float")
    if d.size == 0:
        return None
    rows, columns = d.shape[-2:]
    tile = tile_size(rows, columns, math.prod(d.shape[:-2]), chip or Chip())
    tiles = -(-rows // tile) * -(-columns // tile) * math.prod(d.shape[:-2])
    ends = (
        _plain_ends(operands, alpha, beta, total) if quantization is None else _quantized_ends(operands, quantization)
    )
    sources = [operands.a, operands.b, *ends.sources, d]
    text = _text(operands, ends, tile)
    return KernelLaunch(
        Kernel(text, (tiles, 1, 1), (_THREADS, 1, 1)),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * d.size * operands.a.shape[-1],
        may_overlap=True,
    )


@dataclass(frozen=True)
class _Ends:
    """How elements of the operands are read, and what is done with a sum."""

    total: str
    left: str
    right: str
    finish: str
    parameters: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()


_LEFT, _RIGHT = ("(m0 + m)", "(k0 + k)"), ("(k0 + k)", "(n0 + n)")


def _plain_ends(operands: GemmOperands, alpha: float, beta: float, total: str) -> _Ends:
    a, b, c, d = operands.a, operands.b, operands.c, operands.d
    is_whole = all(_is_whole(x, d.dtype) for x in (alpha, *([] if c is None else [beta])))
    factor, weight = (f"({total}){int(x) if d.dtype.is_integer and is_whole else x}" for x in (alpha, beta))
    left, right = f"({total})get(a[at_a + {_at(*_LEFT, a)}])", f"({total})get(b[at_b + {_at(*_RIGHT, b)}])"
    result = f"d[at_d + {_at('m', 'n', d)}]"
    if d.dtype.is_integer and not is_whole:
        return _cut_ends(operands, alpha, beta, _Ends(total, left, right, result))
    if c is None:
        return _Ends(total, left, right, f"put({result}, ({computed(d.dtype)})({factor} * sum));")
    at = offset_at(c, d.shape, [*_leading(operands), "m", "n"])
    made = f"{factor} * sum + {weight} * ({total})get(c[{at}])"
    finish = f"put({result}, ({computed(d.dtype)})({made}));"
    return _Ends(total, left, right, finish, (f"const {stored(c.dtype)}* c",), (c,))


def _is_whole(factor: float, dtype: DType) -> bool:
    return factor.is_integer() and (factor >= 0 or dtype.kind is Kind.INT)


def _cut_ends(operands: GemmOperands, alpha: float, beta: float, ends: _Ends) -> _Ends:
    """Integers with operands that are none: sums in f64, cut off at the end. `ends.finish` is where the result goes."""
    c, dtype = operands.c, operands.d.dtype

    def scaled(text: str, by: float) -> str:
        if _is_whole(by, dtype):
            return f"(double)({computed(dtype)})(({ends.total}){int(by)} * ({ends.total})({text}))"
        return f"__dmul_rn((double)({computed(dtype)})({text}), {number(by, 'double')})"

    made = scaled("sum", alpha)
    given: dict[str, Any] = {}
    if c is not None:
        at = offset_at(c, operands.d.shape, [*_leading(operands), "m", "n"])
        made = f"__dadd_rn({made}, {scaled(f'get(c[{at}])', beta)})"
        given = {"parameters": (f"const {stored(c.dtype)}* c",), "sources": (c,)}
    finish = f"{{ const double value = {made}; put({ends.finish}, {converted(Name('value', DType.F64), dtype)}); }}"
    return replace(ends, finish=finish, **given)


def _quantized_ends(operands: GemmOperands, quantization: Quantization) -> _Ends:
    shape, leading = operands.d.shape, _leading(operands)

    def at(row: str, column: str) -> Callable[[Source], str]:
        return lambda source: offset_at(source, shape, [*leading, row, column])

    return _Ends(
        quantization.total,
        quantization.centered("a", f"a[at_a + {_at(*_LEFT, operands.a)}]", at("(m0 + m)", "0")),
        quantization.centered("b", f"b[at_b + {_at(*_RIGHT, operands.b)}]", at("0", "(n0 + n)")),
        quantization.finish(f"d[at_d + {_at('m', 'n', operands.d)}]", operands.d.dtype, "sum", at("m", "n")),
        tuple(quantization.parameters),
        tuple(quantization.sources.values()),
    )


def _leading(operands: GemmOperands) -> list[str]:
    return [f"l{axis}" for axis in range(len(operands.leading))]


def _text(operands: GemmOperands, ends: _Ends, tile: int) -> str:
    each, total = tile // 16, ends.total
    a, b, d = operands.a, operands.b, operands.d
    rows, columns, inner = d.shape[-2], d.shape[-1], a.shape[-1]
    index = index_type(a, b, d)
    parameters = [f"const {stored(a.dtype)}* __restrict__ a", f"const {stored(b.dtype)}* __restrict__ b"]
    parameters += [*ends.parameters, f"{stored(d.dtype)}* d"]
    names = [("a", a), ("b", b), ("d", d)]
    leading = _leading(operands)
    offsets = "\n  ".join(
        f"const {index} at_{name} = {offset_code(leading, source.strides[:-2])};" for name, source in names
    )
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({", ".join(parameters)}) {{
  begin();
  __shared__ {total} left[{_DEPTH}][{tile} + 1], right[{_DEPTH}][{tile} + 1];
  {index} block = blockIdx.x;
  const int n0 = (int)(block % {-(-columns // tile)}) * {tile}; block /= {-(-columns // tile)};
  const int m0 = (int)(block % {-(-rows // tile)}) * {tile}; block /= {-(-rows // tile)};
  {split_index_code("block", leading, operands.leading, index)}
  {offsets}
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  {total} sums[{each}][{each}] = {{}};
  for (int k0 = 0; k0 < {inner}; k0 += {_DEPTH}) {{
    for (int i = threadIdx.x; i < {tile * _DEPTH}; i += {_THREADS}) {{
      const int {_walk("m", tile, a.strides[-1] != 1)};
      const bool is_inside = m0 + m < {rows} && k0 + k < {inner};
      left[k][m] = is_inside ? {ends.left} : 0;
    }}
    for (int i = threadIdx.x; i < {tile * _DEPTH}; i += {_THREADS}) {{
      const int {_walk("n", tile, b.strides[-1] == 1)};
      const bool is_inside = n0 + n < {columns} && k0 + k < {inner};
      right[k][n] = is_inside ? {ends.right} : 0;
    }}
    __syncthreads();
    for (int k = 0; k < {_DEPTH}; k++)
#pragma unroll
      for (int i = 0; i < {each}; i++)
#pragma unroll
        for (int j = 0; j < {each}; j++) sums[i][j] += left[k][ty + 16 * i] * right[k][tx + 16 * j];
    __syncthreads();
  }}
#pragma unroll
  for (int i = 0; i < {each}; i++)
#pragma unroll
    for (int j = 0; j < {each}; j++) {{
      const int m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
      if (m >= {rows} || n >= {columns}) continue;
      const {total} sum = sums[i][j];
      {ends.finish}
    }}
}}
"""


def _walk(name: str, size: int, name_first: bool) -> str:
    """Two indices from `i`, that of the operand's nearest elements changing fastest."""
    return f"{name} = i % {size}, k = i / {size}" if name_first else f"k = i % {_DEPTH}, {name} = i / {_DEPTH}"


def _at(row: str, column: str, source: Source | None) -> str:
    assert source is not None
    wide = "(i64)" if index_type(source) != "int" else ""
    return f"{wide}{row} * {source.strides[-2]} + {wide}{column} * {source.strides[-1]}"
