"""CUDA sources for matmuls and attention: tiles in shared memory, sums in f32, any strides."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from capgraph.ir.errors import UnsupportedError

from .kernels import TILE, Kernel, Layout, index_lines, literal, offset_text, signature

MATMUL_THREADS = 256
ATTENTION_THREADS = 128
SHARED_BYTES = 48 * 1024


@dataclass(frozen=True, slots=True)
class Epilogue:
    """`alpha` times the matmul, plus `beta` times an addend that broadcasts to the result."""

    alpha: float = 1.0
    beta: float = 1.0
    addend: Layout | None = None


def matmul(result: Layout, left: Layout, right: Layout, epilogue: Epilogue | None = None) -> Kernel:
    """Matrices [..., M, K] and [..., K, N], whose leading axes broadcast to those of the result [..., M, N]."""
    after = epilogue or Epilogue()
    *batch, m, n = result.shape
    k = left.shape[-1]
    lefts, rights = left.broadcast((*batch, m, k)).strides, right.broadcast((*batch, k, n)).strides
    operands = [left, right] + ([after.addend] if after.addend is not None else [])
    text = f"""{signature(result, operands)} {{
  __shared__ float left[{TILE}][{TILE + 1}];
  __shared__ float right[{TILE}][{TILE + 1}];
  {index_lines("b", "blockIdx.z", batch)}
  const int row = blockIdx.y * {TILE}, column = blockIdx.x * {TILE};
  const int y = threadIdx.x / 16, x = threadIdx.x % 16;
  float sum[2][2] = {{}};
  for (int start = 0; start < {k}; start += {TILE}) {{
    for (int e = threadIdx.x; e < {TILE * TILE}; e += {MATMUL_THREADS}) {{
      {_load("left", "p0", lefts, ("row", m), ("start", k))}
      {_load("right", "p1", rights, ("start", k), ("column", n))}
    }}
    __syncthreads();
    for (int t = 0; t < {TILE}; t++) {{
      const float a0 = left[y][t], a1 = left[y + 16][t], b0 = right[t][x], b1 = right[t][x + 16];
      sum[0][0] += a0 * b0; sum[0][1] += a0 * b1; sum[1][0] += a1 * b0; sum[1][1] += a1 * b1;
    }}
    __syncthreads();
  }}
  for (int e = 0; e < 4; e++) {{
    const int i = row + y + e / 2 * 16, j = column + x + e % 2 * 16;
    if (i >= {m} || j >= {n}) continue;
    put(r[{_element(result.strides)}], {_finished(after, result)});
  }}
}}"""
    grid = (-(-n // TILE), -(-m // TILE), math.prod(batch))
    return Kernel(text, grid, MATMUL_THREADS)


def _load(tile: str, pointer: str, strides: Sequence[int], rows: tuple[str, int], columns: tuple[str, int]) -> str:
    """Statements that fill element `e` of a tile; neighboring threads read along the axis of the smaller stride."""
    *batch, row_step, column_step = strides
    (row, row_count), (column, column_count) = rows, columns
    along_columns = column_step <= row_step or row_step == 0
    i, j = (f"e / {TILE}", f"e % {TILE}") if along_columns else (f"e % {TILE}", f"e / {TILE}")
    place = f"({row} + i) * {row_step} + ({column} + j) * {column_step} + {offset_text('b', batch)}"
    inside = f"{row} + i < {row_count} && {column} + j < {column_count}"
    return f"{{ const int i = {i}, j = {j}; {tile}[i][j] = {inside} ? get({pointer}[{place}]) : 0.0f; }}"


def _element(strides: Sequence[int]) -> str:
    *batch, row, column = strides
    return f"i * {row} + j * {column} + {offset_text('b', batch)}"


def _finished(after: Epilogue, result: Layout) -> str:
    text = f"sum[e / 2][e % 2] * {literal(after.alpha)}" if after.alpha != 1 else "sum[e / 2][e % 2]"
    if after.addend is not None:
        text += f" + get(p2[{_element(after.addend.broadcast(result.shape).strides)}]) * {literal(after.beta)}"
    return f"({result.computed})({text})"


# ---- attention


@dataclass(frozen=True, slots=True)
class Heads:
    """An operand of attention as batch, head, step, feature."""

    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]


def by_head(layout: Layout, heads: int) -> Heads:
    """The operand with its heads apart: rank 4 as it stands, or heads side by side in the last of three axes."""
    if len(layout.shape) == 4:
        b, h, t, d = layout.shape
        sb, sh, st, sd = layout.strides
        return Heads((b, h, t, d), (sb, sh, st, sd))
    batch, steps, hidden = layout.shape
    sb, st, sd = layout.strides
    depth = hidden // heads
    return Heads((batch, heads, steps, depth), (sb, depth * sd, st, sd))


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """Attributes of attention: `heads` and `kv_heads` as the op has them, the factor of scores, and `causal`."""

    heads: int
    kv_heads: int
    scale: float
    causal: bool


def attention(result: Layout, operands: Sequence[Layout], mask: Layout | None, form: AttentionForm) -> Kernel:
    """softmax(q @ kᵀ * scale + mask) @ v with a thread block for each query; `operands` are q, k, v."""
    q, k, v = (by_head(each, form.heads if not n else form.kv_heads) for n, each in enumerate(operands))
    out = by_head(result, form.heads)
    batch, heads, steps, depth = q.shape
    keys, shared_by, size = k.shape[2], heads // k.shape[1], v.shape[3]
    if (keys + depth + 32) * 4 > SHARED_BYTES:
        raise UnsupportedError(f"attention over {keys} keys is too long for this kernel")
    threads = ATTENTION_THREADS
    text = f"""{signature(result, [*operands, *([mask] if mask is not None else [])])} {{
  __shared__ float shared[32];
  __shared__ float query[{depth}];
  __shared__ float score[{keys}];
  const int t = blockIdx.x, h = blockIdx.y, b = blockIdx.z, g = h / {shared_by};
  for (int d = threadIdx.x; d < {depth}; d += {threads}) query[d] = get(p0[{_at(q, "h", "t")}]) * {literal(form.scale)};
  __syncthreads();
  float part = LOWEST;
  for (int s = threadIdx.x; s < {keys}; s += {threads}) {{
    float sum = 0;
    for (int d = 0; d < {depth}; d++) sum += query[d] * get(p1[{_at(k, "g", "s")}]);
    bool is_seen = {"s <= t" if form.causal else "true"};
    {_masked(mask, (batch, heads, steps, keys))}
    score[s] = is_seen ? sum : LOWEST;
    part = greater(part, score[s]);
  }}
  {_weights(keys)}
  for (int d = threadIdx.x; d < {size}; d += {threads}) {{
    float sum = 0;
    for (int s = 0; s < {keys}; s++) sum += score[s] * get(p2[{_at(v, "g", "s")}]);
    put(r[{_at(out, "h", "t")}], ({result.computed})(sum / total));
  }}
}}"""
    return Kernel(text, (steps, heads, batch), threads)


def _weights(keys: int) -> str:
    """Statements that make weights of the scores, of which `part` is the greatest that a thread has, and sum them."""
    return f"""const float best = block_max(part, shared);
  part = 0;
  for (int s = threadIdx.x; s < {keys}; s += {ATTENTION_THREADS}) {{
    score[s] = score[s] == LOWEST ? 0 : expf(score[s] - best);
    part += score[s];
  }}
  float total = block_sum(part, shared);
  if (total == 0) total = 1;"""


def _at(operand: Heads, head: str, step: str) -> str:
    b, h, t, d = operand.strides
    return f"b * {b} + {head} * {h} + {step} * {t} + d * {d}"


def _masked(mask: Layout | None, shape: tuple[int, int, int, int]) -> str:
    if mask is None:
        return ""
    b, h, t, s = mask.broadcast(shape).strides
    value = f"get(p3[b * {b} + h * {h} + t * {t} + s * {s}])"
    if mask.computed == "bool":
        return f"is_seen = is_seen && {value};"
    return f"{{ const float added = {value}; is_seen = is_seen && added >= LOWEST; sum += added; }}"
