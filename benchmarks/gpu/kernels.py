"""CUDA sources for the simplest kernels that do what the steps of a plan need: correct for any strides, not tuned.

Sizes and strides are literals in the source; the arguments are pointers, the result first. A kernel reads every element
that it overwrites before it writes it, and in the thread (block) that writes it, so results may lie over operands where
the plan says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from capgraph.ir.errors import UnsupportedError
from capgraph.ir.plan import View, element_bytes
from capgraph.ir.types import DType

ELEMENTWISE_THREADS = 256
LARGEST_ROW = 32768
TILE = 32

_TYPES = {
    DType.F16: ("f16", "float"),
    DType.BF16: ("bf16", "float"),
    DType.F32: ("float", "float"),
    DType.I32: ("int", "int"),
    DType.I64: ("long long", "long long"),
    DType.BOOL: ("bool", "bool"),
}
"""How a dtype is stored, and in which type it is computed."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a kernel, with `NAME` for its name, and how it is launched: blocks in three axes, threads in one."""

    text: str
    grid: tuple[int, int, int]
    threads: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How an operand or a result lies behind its pointer; strides are in elements."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def stored(self) -> str:
        return _type(self.dtype)[0]

    @property
    def computed(self) -> str:
        return _type(self.dtype)[1]

    def broadcast(self, shape: Sequence[int]) -> "Layout":
        """The layout seen with `shape`, to which it broadcasts as in NumPy."""
        missing = len(shape) - len(self.shape)
        pairs = zip(self.shape, self.strides, strict=True)
        return Layout(self.dtype, tuple(shape), (0,) * missing + tuple(0 if n == 1 else step for n, step in pairs))


def layout_of(view: View) -> Layout:
    """The layout of a planned value. Raises `UnsupportedError` for one that 32-bit offsets do not reach."""
    itemsize = element_bytes(view.dtype)
    if view.extent // itemsize >= 2**31:
        raise UnsupportedError(f"a value of {view.extent} bytes is too large for these kernels")
    return Layout(view.dtype, view.shape, tuple(stride // itemsize for stride in view.strides))


def _type(dtype: DType) -> tuple[str, str]:
    if dtype not in _TYPES:
        raise UnsupportedError(f"there are no kernels for {dtype} here")
    return _TYPES[dtype]


# ---- pieces of text


def literal(value: float) -> str:
    """A float literal; with a point or an exponent, which `1f` would lack."""
    return f"{float(value)!r}f"


def index_lines(prefix: str, position: str, shape: Sequence[int]) -> str:
    """Statements that take `position`, row-major in `shape`, apart into `prefix0`, `prefix1`, ..."""
    lines: list[str] = []
    inner = math.prod(shape)
    for axis, size in enumerate(shape):
        inner //= max(size, 1)
        lines.append(f"const int {prefix}{axis} = ({position}) / {max(inner, 1)} % {max(size, 1)};")
    return " ".join(lines)


def offset_text(prefix: str, strides: Sequence[int]) -> str:
    terms = [f"{prefix}{axis} * {stride}" for axis, stride in enumerate(strides) if stride]
    return " + ".join(terms) or "0"


def _parameters(result: Layout, operands: Sequence[Layout]) -> str:
    reads = [f"const {operand.stored}* p{index}" for index, operand in enumerate(operands)]
    return ", ".join([f"{result.stored}* r", *reads])


def signature(result: Layout, operands: Sequence[Layout]) -> str:
    return f'extern "C" __global__ void NAME({_parameters(result, operands)})'


def _per_element(result: Layout, operands: Sequence[Layout], body: str) -> Kernel:
    """A thread for each result element: `n` is its row-major position, `i0`, `i1`, ... are its indices."""
    count = math.prod(result.shape)
    text = f"""{signature(result, operands)} {{
  const int n = blockIdx.x * {ELEMENTWISE_THREADS} + threadIdx.x;
  if (n >= {count}) return;
  {index_lines("i", "n", result.shape)}
  {body}
}}"""
    return Kernel(text, (-(-count // ELEMENTWISE_THREADS), 1, 1), ELEMENTWISE_THREADS)


# ---- elementwise, copies, gathers


def elementwise(expression: str, result: Layout, operands: Sequence[Layout]) -> Kernel:
    """`expression` of the elements `x0`, `x1`, ... of operands that broadcast to the result."""
    reads = [
        f"const {each.computed} x{index} = get(p{index}[{offset_text('i', each.broadcast(result.shape).strides)}]);"
        for index, each in enumerate(operands)
    ]
    write = f"put(r[{offset_text('i', result.strides)}], ({result.computed})({expression}));"
    return _per_element(result, operands, "\n  ".join([*reads, write]))


def copy(result: Layout, operand: Layout) -> Kernel:
    """The elements of the operand in row-major order, in the shape of the result."""
    body = f"""{index_lines("j", "n", operand.shape)}
  r[{offset_text("i", result.strides)}] = p0[{offset_text("j", operand.strides)}];"""
    return _per_element(result, [operand], body)


def gather(result: Layout, table: Layout, indices: Layout, axis: int) -> Kernel:
    """Slices of `table` along `axis`; indices count from the end where they are negative."""
    rank = len(indices.shape)
    at = " + ".join(f"i{axis + each} * {step}" for each, step in enumerate(indices.strides)) or "0"
    outer = [f"i{each} * {step}" for each, step in enumerate(table.strides[:axis])]
    inner = [f"i{axis + rank + each} * {step}" for each, step in enumerate(table.strides[axis + 1 :])]
    body = f"""int at = (int)p1[{at}];
  if (at < 0) at += {table.shape[axis]};
  r[{offset_text("i", result.strides)}] = p0[{" + ".join([*outer, *inner, f"at * {table.strides[axis]}"])}];"""
    return _per_element(result, [table, indices], body)


# ---- rows: a thread block for each


@dataclass(frozen=True, slots=True)
class _Rows:
    """`count` rows of `size` elements, in blocks of `threads` that take `each` elements a thread."""

    kept: tuple[int, ...]
    folded: tuple[int, ...]
    count: int
    size: int
    threads: int
    each: int

    def offset(self, layout: Layout) -> str:
        """Where the element `c` of the row `blockIdx.x` lies."""
        kept = [f"o{index} * {layout.strides[axis]}" for index, axis in enumerate(self.kept)]
        folded = [f"c{index} * {layout.strides[axis]}" for index, axis in enumerate(self.folded)]
        return " + ".join([*kept, *folded]) or "0"


def _rows(shape: Sequence[int], folded: Sequence[int]) -> _Rows:
    kept = tuple(axis for axis in range(len(shape)) if axis not in folded)
    count, size = math.prod(shape[axis] for axis in kept), math.prod(shape[axis] for axis in folded)
    if size > LARGEST_ROW:
        raise UnsupportedError(f"a row of {size} elements is too long for these kernels")
    threads = min(1024, max(32, -(-size // 4 // 32) * 32))
    return _Rows(kept, tuple(folded), count, size, threads, -(-size // threads))


def _row_kernel(rows: _Rows, result: Layout, operands: Sequence[Layout], fold: str, element: str) -> Kernel:
    """Loads a row into registers `x[k]`, runs `fold`, and writes `element` of each `value` of the row."""
    shape = result.shape
    kept = index_lines("o", "blockIdx.x", [shape[axis] for axis in rows.kept])
    split = index_lines("c", "c", [shape[axis] for axis in rows.folded])
    walk = f"for (int k = 0, c = threadIdx.x; k < {rows.each}; k++, c += {rows.threads})"
    text = f"""{signature(result, operands)} {{
  __shared__ float shared[32];
  {kept}
  float x[{rows.each}];
  {walk} {{
    if (c >= {rows.size}) continue;
    {split}
    x[k] = get(p0[{rows.offset(operands[0])}]);
  }}
#define EACH {walk} if (c < {rows.size})
  {fold}
#undef EACH
  {walk} {{
    if (c >= {rows.size}) continue;
    {split}
    const float value = x[k];
    put(r[{rows.offset(result)}], ({result.computed})({element}));
  }}
}}"""
    return Kernel(text, (rows.count, 1, 1), rows.threads)


def softmax(result: Layout, operand: Layout, axis: int) -> Kernel:
    """exp(x - max) / sum along `axis`."""
    fold = """float part = LOWEST;
  EACH part = greater(part, x[k]);
  const float best = block_max(part, shared);
  part = 0;
  EACH { x[k] = expf(x[k] - best); part += x[k]; }
  const float total = block_sum(part, shared);"""
    return _row_kernel(_rows(result.shape, [axis % len(result.shape)]), result, [operand], fold, "value / total")


def layer_norm(
    result: Layout, operand: Layout, scale: Layout | None, bias: Layout | None, axis: int, epsilon: float
) -> Kernel:
    """(x - mean) / sqrt(variance + epsilon) over the axes from `axis` on, times `scale`, plus `bias`."""
    rows = _rows(result.shape, range(axis % len(result.shape), len(result.shape)))
    affine = [each.broadcast(result.shape) for each in (scale, bias) if each is not None]
    element = "(value - mean) * factor"
    if scale is not None:
        element += f" * get(p1[{rows.offset(affine[0])}])"
    if bias is not None:
        element += f" + get(p{len(affine)}[{rows.offset(affine[-1])}])"
    fold = f"""float part = 0;
  EACH part += x[k];
  const float mean = block_sum(part, shared) / {rows.size};
  part = 0;
  EACH part += (x[k] - mean) * (x[k] - mean);
  const float factor = 1 / sqrtf(block_sum(part, shared) / {rows.size} + {literal(epsilon)});"""
    return _row_kernel(rows, result, [operand, *affine], fold, element)


_FOLDS = {
    "reduce_sum": ("0.0f", "part + x", "block_sum(part, shared)"),
    "reduce_mean": ("0.0f", "part + x", "block_sum(part, shared) / {size}"),
    "reduce_max": ("LOWEST", "greater(part, x)", "block_max(part, shared)"),
    "reduce_min": ("LOWEST", "greater(part, -x)", "-block_max(part, shared)"),
}


def is_reduction(op: str) -> bool:
    """Whether there is a kernel for the reduction."""
    return op in _FOLDS


def reduction(op: str, result: Layout, operand: Layout, axes: Sequence[int]) -> Kernel:
    """Folds `axes`, all for none given; a thread block for each result element, which must be contiguous."""
    rank = len(operand.shape)
    folded = sorted(axis % rank for axis in axes) or list(range(rank))
    kept = [axis for axis in range(rank) if axis not in folded]
    count, size = (math.prod(operand.shape[axis] for axis in each) for each in (kept, folded))
    start, step, finish = _FOLDS[op]
    rows = _Rows(tuple(kept), tuple(folded), count, size, ELEMENTWISE_THREADS, 0)
    text = f"""{signature(result, [operand])} {{
  __shared__ float shared[32];
  {index_lines("o", "blockIdx.x", [operand.shape[axis] for axis in kept])}
  float part = {start};
  for (int c = threadIdx.x; c < {size}; c += {ELEMENTWISE_THREADS}) {{
    {index_lines("c", "c", [operand.shape[axis] for axis in folded])}
    const float x = get(p0[{rows.offset(operand)}]);
    part = {step};
  }}
  part = {finish.format(size=size)};
  if (threadIdx.x == 0) put(r[blockIdx.x], ({result.computed})part);
}}"""
    return Kernel(text, (count, 1, 1), ELEMENTWISE_THREADS)
