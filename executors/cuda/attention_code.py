"""What kernels of attention have in common: parameters, the place of a block, the score of a query and a key."""

import math

from .attention import Attention
from .codegen.types import number, stored
from .indexing import index_type


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
    """A lambda `score(total, h, t, key)`: from q @ k to what softmax takes, in units of log 2; -infinity where hidden.

    It uses `sample`, `length` and `behind`.
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
    lines.append(f"return {' || '.join(hidden)} ? ({ctype})-INFINITE : s * {number(1 / math.log(2), ctype)};")
    return f"auto score = [&]({ctype} total, int h, int t, int key) -> {ctype} {{ {' '.join(lines)} }};"
