"""What kernels of attention have in common: parameters, the place of a block, the score of a query and a key."""

import math

from .....ir.plan import element_bytes
from ...kernel_ir.launch import BufferPlace, Chip
from ...kernel_ir.sources import Source, index_type
from ...kernel_ir.types import number, stored
from .attention import Attention

_BLOCKS_OF_REPAIR, _MOST_TILES = 4, 128
"""Of a kernel that repairs: blocks for each multiprocessor, and the most tiles that a block goes through."""
_IN_FLIGHT = 8
"""Pieces of 16 bytes that a thread of it has asked for at a time."""


def features_at_once(source: Source) -> int:
    """Neighboring features that one load takes: those of 16 bytes, or fewer where sizes, strides or the start ask."""
    itemsize = element_bytes(source.dtype)
    start = source.argument.offset if isinstance(source.argument, BufferPlace) else 0
    strides = [stride for size, stride in zip(source.shape[:3], source.strides[:3], strict=True) if size > 1]
    return math.gcd(16, start, *(each * itemsize for each in (*strides, source.shape[3]))) // itemsize


def lies_in_pieces(source: Source) -> bool:
    """Whether its features lie side by side in whole pieces of 16 bytes."""
    return source.strides[3] == 1 and features_at_once(source) * element_bytes(source.dtype) == 16


def parameters(attention: Attention) -> str:
    """The parameters of a kernel, in the order of `Attention.sources`."""
    names = [("q", attention.q), ("k", attention.k), ("v", attention.v)]
    names += [("mask", attention.mask)] if attention.mask is not None else []
    names += [("lengths", attention.lengths)] if attention.lengths is not None else []
    read = [f"const {stored(source.dtype)}* {name}" for name, source in names if source is not None]
    return ", ".join([*read, f"{stored(attention.o.dtype)}* o"])


def tiles(attention: Attention, rows: int) -> int:
    """How many blocks of `rows` rows the queries take that share a head of k and v."""
    return -(-attention.shared * attention.steps // rows)


def block_code(attention: Attention, rows: int, block: str = "blockIdx.x") -> str:
    """Statements that name `tile`, `kv_head` and `sample` of a block, all in the grid's x: y and z end at 65,535."""
    count = tiles(attention, rows)
    return (
        f"const int tile = {block} % {count}u, kv_head = {block} / {count}u % {attention.kv_heads}u, "
        f"sample = {block} / {count * attention.kv_heads}u;"
    )


def length_code(attention: Attention, sample: str) -> str:
    """Statements that name `length`, how many keys count, and `behind`, how much later the first query stands."""
    if attention.lengths is None:
        return f"const int length = {attention.keys}, behind = 0;"
    stride = attention.lengths.strides[0]
    # lengths beyond the keys that there are count as all of them, but queries stand where the length says
    return (
        f"const i64 given = lengths[{sample} * {stride}]; "
        f"const int length = given < 0 ? 0 : given > {attention.keys} ? {attention.keys} : (int)given, "
        f"behind = (int)given - {attention.steps};"
    )


def score_code(attention: Attention, ctype: str = "float") -> str:
    """A lambda `score(total, h, t, key)`: from q @ k to what softmax takes; -infinity where hidden.

    It uses `sample`, `length` and `behind`. Scores are not in units of log 2: the lowest float, which masks add, has
    to stay a number, as rows that see nothing else are means.
    """
    lines = [f"{ctype} s = total * {number(attention.scale, ctype)};"]
    if attention.softcap > 0:
        cap = number(attention.softcap, ctype)
        lines.append(f"s = {'tanhf' if ctype == 'float' else 'tanh'}(s / {cap}) * {cap};")
    hidden = ["key >= length"]
    if attention.is_causal:
        hidden.append("key > t + behind")
    if attention.mask is not None:
        strides = attention.mask.strides
        wide = "(i64)" if index_type(attention.mask) != "int" else ""
        parts = zip(("sample", "h", "t", "key"), strides, strict=True)
        at = " + ".join(f"{wide}{name} * {stride}" for name, stride in parts if stride) or "0"
        guard = "key < length ? " if attention.mask.strides[3] else ""
        if stored(attention.mask.dtype) == "boolean":
            lines.append(f"const bool is_seen = {guard}get(mask[{at}]){' : false' if guard else ''};")
            hidden.append("!is_seen")
        else:
            lines.append(f"const {ctype} added = {guard}get(mask[{at}]){' : 0' if guard else ''};")
            lines.append("s += added;")
            hidden.append("added == -INFINITE")
    lines.append(f"return {' || '.join(hidden)} ? ({ctype})-INFINITE : s;")
    return f"auto score = [&]({ctype} total, int h, int t, int key) -> {ctype} {{ {' '.join(lines)} }};"


# ---- repairing a result


def repaired_tiles(attention: Attention, rows: int, chip: Chip) -> tuple[int, int]:
    """The blocks of a kernel that repairs a result, and how many tiles of `rows` rows each of them goes through."""
    count = tiles(attention, rows) * attention.kv_heads * attention.batch
    each = min(-(-count // (_BLOCKS_OF_REPAIR * chip.multiprocessors)), _MOST_TILES)
    return -(-count // each), each


def repair_code(attention: Attention, high: int, each: int, threads: int) -> str:
    """Statements that look for NaN in the block's tiles, and the head of the loop over `block`, those that have any.

    Lengths beyond the keys move causal masks, which the library does not know of: such samples are computed again.
    """
    rows, steps, width, o = attention.shared * attention.steps, attention.steps, attention.width, attention.o.strides
    count = tiles(attention, high) * attention.kv_heads * attention.batch
    job, pieces = f"e / {high * width // 8}", each * high * width // 8
    beyond = (
        f"if (lengths[sample * {attention.lengths.strides[0]}] > {attention.keys}) is_open[{job}] = 1;"
        if attention.lengths is not None and attention.is_causal
        else ""
    )
    is_whole = attention.o.starts_a_piece and o[3] == 1 and all(stride % 8 == 0 for stride in o[:3])
    kind = f"pack<{stored(attention.o.dtype)}, 8>"
    each_of = ", ".join(f"o[at + {j * o[3]}]" for j in range(8))
    load = f"*(const {kind}*)(o + at)" if is_whole else f"{kind}{{{each_of}}}"
    return f"""
  __shared__ int is_open[{each}];
  for (int e = threadIdx.x; e < {each}; e += {threads}) is_open[e] = 0;
  __syncthreads();
  for (int first = threadIdx.x; first < {pieces}; first += {_IN_FLIGHT * threads}) {{
    {kind} found[{_IN_FLIGHT}];
#pragma unroll
    for (int i = 0; i < {_IN_FLIGHT}; i++) {{  // all are asked for before the first is looked at
      const int e = first + i * {threads};
      const unsigned block = blockIdx.x * {each}u + {job};
      {block_code(attention, high, "block")}
      const int row = tile * {high} + e / {width // 8} % {high};
      const i64 at = (i64)sample * {o[0]} + (i64)(kv_head * {attention.shared} + row / {steps}) * {o[1]} +
                     (i64)(row % {steps}) * {o[2]} + e % {width // 8} * 8 * {o[3]};
      found[i] = {kind}{{}};
      if (e < {pieces} && block < {count}u && row < {rows}) {{
        found[i] = {load};
        {beyond}
      }}
    }}
#pragma unroll
    for (int i = 0; i < {_IN_FLIGHT}; i++) {{
      const int e = first + i * {threads};
      bool is_nan = false;
#pragma unroll
      for (int j = 0; j < 8; j++) is_nan |= get(found[i].v[j]) != get(found[i].v[j]);
      if (is_nan) is_open[{job}] = 1;
    }}
  }}
  __syncthreads();
  for (int job = 0; job < {each}; job++) {{
  if (!is_open[job]) continue;
  const unsigned block = blockIdx.x * {each}u + job;"""
