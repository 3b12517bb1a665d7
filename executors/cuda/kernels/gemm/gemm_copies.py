"""GEMMs whose operands lie badly for cuBLASLt, by one call between copies.

Rows that do not begin at multiples of 16 bytes, and a number of columns that is no multiple of as many, keep the
library from its kernels with wide accesses: 1,024 x 768 x 50,257 in f16 took 759 us where 1,024 x 1,024 x 50,400 takes
141. The last columns are summed by a kernel then, and rows are joined behind. Leading axes that do not lie one behind
another take a call each: what keeps them apart is copied first.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from .....ir.plan import contiguous_strides, element_bytes
from .....ir.types import DType
from ...kernel_ir.copies import copied
from ...kernel_ir.launch import Candidate, Chip, Kernel, KernelLaunch, Launch
from ...kernel_ir.sources import Source, index_type, packed_weight, transposed, view_of
from ...kernel_ir.types import number, stored, word
from .cublaslt_calls import cublaslt_calls
from .cublaslt_epilogue import EPILOGUE_STEPS, epilogue_of, gemm_fits
from .operands import GemmOperands, gemm_operands, matmul_operands
from .regions import AnchoredRegion, completed, made_in
from .rewritten_regions import Scratch, within_scratch

_HALVES = frozenset({DType.F16, DType.BF16})
_PIECE = 16
_EVEN = 8
"""Columns in halves that such a piece has."""

_LEAST_ROWS = 17
_MOST_COPIED_BACK = 256 << 20
"""Bytes of a result that may be there twice for the time of its step."""

_THREADS = 256


def lower_between_copies(region: AnchoredRegion) -> list[Candidate]:
    """The GEMM with what lies badly copied; none where all lies well, or where copies do not help."""
    return within_scratch(_lowered(region))


def _lowered(region: AnchoredRegion) -> Iterator[Candidate]:
    a, b, _ = matmul_operands(region)
    is_even = not b.shape[-1] % _EVEN
    epilogue = epilogue_of(region, EPILOGUE_STEPS - {"residual"} if is_even else {"bias"})
    made = made_in(region, epilogue.value)
    if not gemm_fits(region) or epilogue.residual is not None or made is None or min(len(a.shape), len(b.shape)) < 2:
        return
    target = made.source
    if not target.size or not a.size:
        return
    b = packed_weight(b)
    is_split = len(gemm_operands(a, b, target).leading) > 1
    scratch = Scratch(region.task, made.scratch_bytes)
    before: list[Launch] = []

    def brought(source: Source) -> Source:
        if source.constant is not None or (_is_even(source) and not (is_split and not _is_one_batch(source))):
            return source
        if source.strides[-1] != 1 and source.strides[-2] == 1:
            return transposed(brought(transposed(source)))
        copy = _with_even_rows(source, scratch)
        before.extend(_copied(source, copy, region.task.chip))
        return copy

    a, b = brought(a), brought(b)
    is_copied_back = not _is_even(target) and _is_worth_copying(target)
    d = _with_even_rows(target, scratch) if is_copied_back else target
    whole = target.shape[-1] - target.shape[-1] % _EVEN if is_copied_back else target.shape[-1]
    operands = gemm_operands(a, _first_columns(b, whole), _first_columns(d, whole))
    if not (before or is_copied_back) or len(operands.leading) > 1 or not whole:
        return
    calls = cublaslt_calls(operands, epilogue, region.task, scratch.used)
    if calls is None:
        return
    behind: list[Launch] = []
    if whole < target.shape[-1]:
        if operands.leading:
            return
        behind.append(_last_columns(gemm_operands(a, b, d), whole, epilogue.bias, epilogue.alpha))
    if is_copied_back:
        behind += _rows_joined(d, target, region)
    room = scratch.used - made.scratch_bytes + max(call.workspace_bytes for call in calls)
    yield from completed("cublaslt-copied", region, made, (*before, *calls, *behind), room)


def _first_columns(source: Source, count: int) -> Source:
    return replace(source, shape=(*source.shape[:-1], count))


def _last_columns(operands: GemmOperands, first: int, bias: Source | None, alpha: float) -> KernelLaunch:
    """Columns from `first` on, which the library's kernels on tensor cores do not take: a warp for each row."""
    (rows, inner), columns = operands.a.shape, operands.b.shape[-1]
    kind, count = stored(operands.a.dtype), columns - first
    warps = _THREADS // 32
    sources = [operands.a, operands.b, operands.d, *([] if bias is None else [bias])]
    made = f"total * {number(alpha, 'float')}{'' if bias is None else f' + get(bias[{first} + lane])'}"
    text = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({_listed(kind, bias)}) {{
  begin();
  const int lane = threadIdx.x % 32, row = blockIdx.x * {warps} + threadIdx.x / 32;
  if (row >= {rows}) return;
  float sums[{count}] = {{}};
  for (int k = lane; k < {inner}; k += 32) {{
    const float x = get(a[(i64)row * {operands.a.strides[-2]} + (i64)k * {operands.a.strides[-1]}]);
#pragma unroll
    for (int c = 0; c < {count}; c++)
      sums[c] += x * get(b[(i64)({first} + c) * {operands.b.strides[-1]} + (i64)k * {operands.b.strides[-2]}]);
  }}
  float total = 0;
#pragma unroll
  for (int c = 0; c < {count}; c++) {{
    const float whole = warp_reduce<sum, 32>(sums[c]);
    if (lane == c) total = whole;
  }}
  if (lane < {count}) put(d[(i64)row * {operands.d.strides[-2]} + {first} + lane], {made});
}}
"""
    kernel = Kernel(text, (-(-rows // warps), 1, 1), (_THREADS, 1, 1))
    nbytes = operands.a.nbytes + count * (inner + rows) * 2
    return KernelLaunch(kernel, tuple(each.argument for each in sources), nbytes, 2 * rows * inner * count, True)


def _listed(kind: str, bias: Source | None) -> str:
    listed = f"const {kind}* a, const {kind}* __restrict__ b, {kind}* d"
    return listed if bias is None else f"{listed}, const {stored(bias.dtype)}* bias"


def _is_even(source: Source) -> bool:
    """Whether tensor cores can be fed from it, or write to it, in pieces of 16 bytes."""
    itemsize = element_bytes(source.dtype)
    steps = [
        stride for size, stride in zip(source.shape, source.strides, strict=True) if size > 1 and stride not in (0, 1)
    ]
    is_aligned = source.starts_a_piece and not any(stride * itemsize % _PIECE for stride in steps)
    return source.dtype not in _HALVES or is_aligned


def _is_worth_copying(target: Source) -> bool:
    return math.prod(target.shape[:-1]) >= _LEAST_ROWS and target.nbytes <= _MOST_COPIED_BACK


def _is_one_batch(source: Source) -> bool:
    """Whether its leading axes lie one behind another."""
    axes = [(size, stride) for size, stride in zip(source.shape[:-2], source.strides[:-2], strict=True) if size > 1]
    return all(outer[1] == inner[0] * inner[1] for outer, inner in pairwise(axes))


def _with_even_rows(source: Source, scratch: Scratch) -> Source:
    """Room for a tensor in order, whose rows begin at multiples of 16 bytes."""
    each = _PIECE // element_bytes(source.dtype)
    pitch = -(-source.shape[-1] // each) * each
    room = scratch.take(source.dtype, (*source.shape[:-1], pitch))
    return replace(room, shape=source.shape)


def _copied(source: Source, target: Source, chip: Chip) -> tuple[KernelLaunch, ...]:
    """Copies a tensor to one of the same shape; both lie in memory of the plan."""
    before, after = view_of(source), view_of(target)
    assert before is not None  # packed constants are left as they are
    assert after is not None
    return copied(before, after, chip)


def _rows_joined(source: Source, target: Source, region: AnchoredRegion) -> tuple[KernelLaunch, ...]:
    """Copies rows with gaps between them to rows without, in pieces that do not mind where rows begin."""
    if target.strides != contiguous_strides(target.shape, 1) or not target.starts_a_piece:
        return _copied(source, target, region.task.chip)
    width = _PIECE // element_bytes(source.dtype)
    kind, columns = word(source.dtype), target.shape[-1]
    ctype = "unsigned" if index_type(source, target) == "int" else "i64"
    text = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME(const {kind}* source, {kind}* target) {{
  begin();
  const {ctype} first = (({ctype})blockIdx.x * {_THREADS} + threadIdx.x) * {width};
  if (first >= {target.size}) return;
  {ctype} row = first / {columns};
  int column = first % {columns};
  pack<{kind}, {width}> moved;
#pragma unroll
  for (int i = 0; i < {width}; i++) {{
    moved.v[i] = first + i < {target.size} ? source[row * {source.strides[-2]} + column] : ({kind})0;
    if (++column == {columns}) column = 0, row++;
  }}
  if (first + {width} <= {target.size}) *(pack<{kind}, {width}>*)(target + first) = moved;
  else for (int i = 0; first + i < {target.size}; i++) target[first + i] = moved.v[i];
}}
"""
    blocks = -(-target.size // (_THREADS * width))
    kernel = Kernel(text, (blocks, 1, 1), (_THREADS, 1, 1))
    arguments, nbytes = (source.argument, target.argument), source.nbytes + target.nbytes
    return (KernelLaunch(kernel, arguments, nbytes, may_overlap=True),)
