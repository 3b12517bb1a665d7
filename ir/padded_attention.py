"""Variable-length attention written with other native ops: the queries of each sequence padded to the longest one.

It does the work of `longest` queries for every sequence, whatever its length; in return nothing depends on values that
the host would have to read. With one query a sequence, as in decoding, nothing is wasted.
"""

import numpy as np

from .builder import Builder
from .dims import Dim
from .graph import Graph, Node, Value
from .types import DType


def padded_attention(node: Node) -> Graph:
    """A body that means what a `varlen_attention` node means, for the node's operands in their order.

    It shares the symbols of the node's graph. Lengths that do not fit give rows of no meaning instead of an error.
    """
    return _Writer(node).graph()


class _Writer:
    """Sizes are those of the op: N `tokens` of R `sequences` with caches of S `keys`, at most `longest` tokens each."""

    def __init__(self, node: Node) -> None:
        self.b = Builder("padded_attention", symbols=node.graph.symbols if node.graph is not None else None)
        names = [operand.name for operand in node.op.operands]
        operands = [self.b.input(name, value.type) for name, value in zip(names, node.operands, strict=True)]
        self.q, self.k, self.v, self.query_lengths, self.kv_lengths = operands
        self.attrs = node.attrs
        self.longest: Dim = node.attrs["longest"]
        self.tokens, self.heads, self.depth = self.q.shape
        self.sequences, self.keys, self.kv_heads, self.size = self.v.shape

    def graph(self) -> Graph:
        b = self.b
        ends = b.op("cumsum", self.query_lengths, axis=0)
        rows = (self.sequences, self.longest)
        queries = b.op("gather", self._with_zeros(self.q), self._tokens_of_sequences(ends), axis=0)
        mixed = b.op(
            "attention",
            b.op("reshape", queries, shape=(*rows, self.heads * self.depth)),
            b.op("reshape", self.k, shape=(self.sequences, self.keys, self.kv_heads * self.depth)),
            b.op("reshape", self.v, shape=(self.sequences, self.keys, self.kv_heads * self.size)),
            self._seen_keys() if self.attrs["causal"] and self.longest != 1 else None,
            self.kv_lengths,
            heads=self.heads,
            kv_heads=self.kv_heads,
            scale=self.attrs["scale"],
            softcap=self.attrs["softcap"],
        )
        flat = b.op("reshape", mixed, shape=(self.sequences * self.longest, self.heads, self.size))
        return b.finish([b.op("gather", self._with_zeros(flat), self._rows_of_tokens(ends), axis=0)])

    def _tokens_of_sequences(self, ends: Value) -> Value:
        """i64[R, longest]: which token is which query; behind the last query of a sequence the row of zeros."""
        starts = self._column(self.b.op("sub", ends, self.query_lengths))
        step = self._row(self.b.op("arange", limit=self.longest))
        is_query = self.b.op("less", step, self._column(self.query_lengths))
        return self.b.op("where", is_query, self.b.op("add", starts, step), self.b.op("dim", value=self.tokens))

    def _rows_of_tokens(self, ends: Value) -> Value:
        """i64[N]: in which row of the padded result a token stands; the row of zeros where it is of no sequence."""
        b = self.b
        token = b.op("arange", limit=self.tokens)
        is_before = b.op("less_equal", self._row(ends), self._column(token))
        sequence = b.op("reduce_sum", b.op("cast", is_before, to=DType.I64), axes=[1], keep_dims=False)
        if self.longest == 1:
            return sequence
        first = b.op("gather", b.op("pad", ends, None, pads=(1, 0)), sequence, axis=0)
        place = b.op("add", b.op("mul", sequence, b.op("dim", value=self.longest)), b.op("sub", token, first))
        is_real = b.op("less", sequence, b.op("dim", value=self.sequences))
        return b.op("where", is_real, place, b.op("dim", value=self.sequences * self.longest))

    def _seen_keys(self) -> Value:
        """bool[R, 1, longest, S]: the last query of a sequence sees all entries that count, each before it one less."""
        b = self.b
        later = self._column(b.op("sub", self.kv_lengths, self.query_lengths))
        last = b.op("add", later, self._row(b.op("arange", limit=self.longest)))
        key = b.op("arange", limit=self.keys)
        return b.op("less_equal", key, b.op("unsqueeze", last, axes=[1, 3]))

    def _with_zeros(self, x: Value) -> Value:
        """`x` and one more row."""
        zero = self.b.constant(np.zeros((), x.tensor.dtype.numpy))
        return self.b.op("pad", x, zero, pads=(0, 0, 0, 1, 0, 0))

    def _row(self, x: Value) -> Value:
        return self.b.op("unsqueeze", x, axes=[0])

    def _column(self, x: Value) -> Value:
        return self.b.op("unsqueeze", x, axes=[1])
