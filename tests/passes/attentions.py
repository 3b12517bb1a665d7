"""Random attention as exporters write it out, and not quite: rules for it look at more than their patterns say.

`attention(seed)` draws queries, keys and values (heads parted from a hidden axis, joined with the batch, or shared by
groups of queries, repeated or broadcast), perhaps turns queries and keys by rotary embedding, and puts between matmul
and softmax, in any order: factors, a soft cap, casts, masks that are added or chosen by `where`, known or not.
"""

from collections.abc import Callable

import numpy as np
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.strategies.chooser import RandomChooser
from tests.strategies.draw import GraphDraw, sample

_DTYPES = (DType.F32, DType.F32, DType.F32, DType.F64, DType.F16, DType.BF16)
_FACTORS = (0.5, 2.0, 0.125, 0.7071067811865476, 0.35355339059327373, 1.0, 0.0, -1.0, 3.0, np.inf)
_FILLS = (-np.inf, -np.inf, -1e30, -3e38, -65504.0, -1e9, 0.0)
_MAX_STEPS = 5


def attention(seed: int) -> Graph:
    """The graph number `seed`."""
    made = _Attention(RandomChooser(seed))
    made.build()
    return made.draw.graph


class _Attention:
    def __init__(self, choose: RandomChooser) -> None:
        self.choose = choose
        self.draw = GraphDraw(choose, lambda _: None)
        self.dtype = choose.pick(_DTYPES)
        self.batch = self.size("B", 3)
        self.steps = self.size("T", 4)
        self.keys = self.steps if choose.chance(60) else choose.integer(1, 5)
        self.depth = choose.pick((2, 4, 4, 3, 1, 6))
        self.groups = choose.integer(1, 3)
        self.repeats = choose.integer(2, 3) if choose.chance(25) else 1
        self.is_joined = choose.chance(20)
        self.is_broadcast = self.groups == 1 and not self.is_joined and choose.chance(50)
        self.is_flat = choose.chance(50)

    @property
    def heads(self) -> int:
        return self.groups * self.repeats

    def size(self, name: str, largest: int) -> Dim:
        return symbol(name) if self.choose.chance(50) else self.choose.integer(1, largest)

    def build(self) -> None:
        q = self.side_by_side(self.heads, self.steps, self.depth)
        k = self.side_by_side(self.groups, self.keys, self.depth)
        v = self.side_by_side(self.groups, self.keys, self.choose.pick((self.depth, 3)))
        if self.choose.chance(30):
            q, k = self.rotated(q), self.rotated(k)
        k, v = self.repeated(k), self.repeated(v)
        q, k, v = (self.scaled(value, 25) for value in (q, k, v))
        if self.is_joined:
            q, k, v = (self.joined(value) for value in (q, k, v))
        scores = self.emit("matmul", self.scaled(q, 20), self.scaled(self.swapped(k), 20))
        for _ in range(self.choose.integer(0, _MAX_STEPS)):
            scores = self.step(scores)
        weights = self.emit("softmax", scores, axis=-1 if self.choose.chance(95) else 1)
        self.finish(weights, v)

    def finish(self, weights: Value, v: Value) -> None:
        if self.choose.chance(20):
            zero = self.number(0.0, weights)
            weights = self.emit("where", self.emit("is_nan", weights), zero, weights)
        if weights.tensor.dtype is not v.tensor.dtype:
            weights = self.emit("cast", weights, to=v.tensor.dtype)
        if weights.tensor.rank != v.tensor.rank:
            lead = (self.batch, self.heads) if v.tensor.rank == 4 else v.shape[:1]
            weights = self.emit("reshape", weights, shape=(*lead, *weights.shape[-2:]))
        result = self.emit("matmul", weights, v)
        if result.tensor.rank == 4 and self.choose.chance(60):
            result = self.emit("transpose", result, perm=(0, 2, 1, 3))
            batch, steps, heads, depth = result.shape
            if self.choose.chance(80):
                result = self.emit("reshape", result, shape=(batch, steps, heads * depth))
        outputs = [result]
        if self.choose.chance(10):
            outputs.append(self.choose.pick([each for node in self.draw.graph.nodes for each in node.outputs]))
        self.draw.graph.set_outputs(list(dict.fromkeys(outputs)))

    def emit(self, name: str, *inputs: Value | None, **attrs: object) -> Value:
        return self.draw.emit(name, *inputs, **attrs)

    def number(self, number: float, like: Value) -> Value:
        """A constant of one element, of whatever rank."""
        shape = (1,) * (self.choose.integer(0, 2) if self.choose.chance(20) else 0)
        with np.errstate(all="ignore"):
            content = np.full(shape, number).astype(like.tensor.dtype.numpy)
        return self.emit("constant", value=Constant(content, like.tensor.dtype))

    # ---- operands

    def side_by_side(self, heads: int, steps: Dim, depth: int) -> Value:
        """[B, heads, steps, depth]: an input, or parted from a hidden axis."""
        if not self.is_flat:
            return self.draw.input(TensorType(self.dtype, (self.batch, heads, steps, depth)))
        hidden = self.scaled(self.draw.input(TensorType(self.dtype, (self.batch, steps, heads * depth))), 10)
        parted = self.emit("reshape", hidden, shape=(self.batch, steps, heads, depth))
        return self.emit("transpose", parted, perm=(0, 2, 1, 3))

    def repeated(self, x: Value) -> Value:
        if self.repeats == 1 or self.is_broadcast:
            return x
        batch, groups, steps, depth = x.shape
        apart = self.emit("unsqueeze", x, axes=(2,))
        wide = self.emit("expand", apart, shape=(batch, groups, self.repeats, steps, depth))
        return self.emit("reshape", wide, shape=(batch, groups * self.repeats, steps, depth))

    def joined(self, x: Value) -> Value:
        batch, heads, steps, depth = x.shape
        return self.emit("reshape", x, shape=(batch * heads, steps, depth))

    def swapped(self, k: Value) -> Value:
        perm = (0, 2, 1) if k.tensor.rank == 3 else (0, 1, 3, 2)
        return self.emit("transpose", k, perm=perm)

    def scaled(self, x: Value, percent: int) -> Value:
        if not self.choose.chance(percent):
            return x
        factor = self.number(self.choose.pick(_FACTORS), x)
        return self.emit(self.choose.pick(("mul", "div")), x, factor)

    # ---- rotary embedding

    def rotated(self, x: Value) -> Value:
        """All of each head, or its first part."""
        if self.depth % 2:
            return x
        if self.depth % 4 or self.choose.chance(70):
            return self.turned(x)
        whole, self.depth = self.depth, self.depth // 2
        first, rest = (
            self.emit("slice", x, axes=(-1,), starts=(start,), ends=(end,), steps=(1,))
            for start, end in ((0, self.depth), (self.depth, whole))
        )
        first = self.turned(first)
        self.depth = whole
        return self.emit("concat", first, rest, axis=-1)

    def turned(self, x: Value) -> Value:
        turned, table = self.choose.pick(((_halves, self.repeated_halves), (_neighbors, self.repeated_neighbors)))
        cos, sin = (table(x) for _ in range(2))
        return self.emit("add", self.emit("mul", x, cos), self.emit("mul", turned(self, x), sin))

    def angles(self, x: Value) -> Value:
        batch = x.shape[0] if self.choose.chance(30) else 1
        shape = (batch, 1, x.shape[2], self.depth // 2)
        return self.draw.source(x.tensor.dtype, shape if self.choose.chance(70) else shape[2:])

    def repeated_halves(self, x: Value) -> Value:
        half = self.angles(x)
        return self.emit("concat", half, half, axis=-1)

    def repeated_neighbors(self, x: Value) -> Value:
        half = self.emit("unsqueeze", self.angles(x), axes=(-1,))
        pairs = self.emit("expand", half, shape=(*half.shape[:-1], 2))
        return self.emit("reshape", pairs, shape=(*half.shape[:-2], half.shape[-2] * 2))

    # ---- between matmul and softmax

    def step(self, scores: Value) -> Value:
        mark = self.draw.mark()
        try:
            return self.choose.pick(_STEPS)(self, scores)
        except CapgraphError:
            self.draw.roll_back(mark)
            return scores

    def capped(self, scores: Value) -> Value:
        cap = self.choose.pick((30.0, 2.0, 0.5))
        small = self.emit("div", scores, self.number(cap, scores))
        return self.emit("mul", self.emit("tanh", small), self.number(cap, scores))

    def factored(self, scores: Value) -> Value:
        return self.scaled(scores, 100)

    def widened(self, scores: Value) -> Value:
        return self.emit("cast", scores, to=self.choose.pick((DType.F32, DType.F64)))

    def parted(self, scores: Value) -> Value:
        rank = scores.tensor.rank
        lead = (self.batch, self.heads) if rank == 3 else (scores.shape[0] * scores.shape[1],)
        return self.emit("reshape", scores, shape=(*lead, *scores.shape[-2:]))

    def mask_shape(self, scores: Value) -> tuple[Dim, ...]:
        shape = tuple(1 if self.choose.chance(35) else dim for dim in scores.shape)
        return shape[self.choose.integer(0, 2) :] if self.choose.chance(30) else shape

    def added(self, scores: Value) -> Value:
        mask = self.draw.source(scores.tensor.dtype, self.mask_shape(scores))
        return self.emit("add", *((scores, mask) if self.choose.chance(70) else (mask, scores)))

    def chosen(self, scores: Value) -> Value:
        seen = self.triangle(scores) if self.choose.chance(40) else self.seen(scores)
        fill = self.number(self.choose.pick(_FILLS), scores)
        return self.emit("where", seen, *((scores, fill) if self.choose.chance(70) else (fill, scores)))

    def added_choice(self, scores: Value) -> Value:
        seen = self.triangle(scores) if self.choose.chance(60) else self.seen(scores)
        zero, fill = self.number(0.0, scores), self.number(self.choose.pick(_FILLS), scores)
        mask = self.emit("where", seen, *((zero, fill) if self.choose.chance(70) else (fill, zero)))
        return self.emit("add", scores, mask)

    def seen(self, scores: Value) -> Value:
        return self.draw.source(DType.BOOL, self.mask_shape(scores))

    def triangle(self, scores: Value) -> Value:
        """Queries see keys up to their own position: compared, or a constant."""
        steps, keys = scores.shape[-2:]
        if isinstance(steps, int) and isinstance(keys, int) and self.choose.chance(40):
            matrix = np.tril(np.ones((steps, keys), np.bool_), self.choose.pick((0, 0, 0, 1, -1)))
            return self.emit("constant", value=Constant(matrix, DType.BOOL))
        row, column = (self.emit("arange", start=0, limit=size, step=1, dtype=DType.I64) for size in (steps, keys))
        row = self.emit("unsqueeze", row, axes=(-1,))
        compare = self.choose.pick(("greater_equal", "greater_equal", "greater", "less_equal", "less"))
        return self.emit(compare, row, column)


def _halves(made: _Attention, x: Value) -> Value:
    half = made.depth // 2
    if made.choose.chance(30):
        first, second = made.draw.add(native("split"), sample(x, axis=-1, sizes=(half, half))).outputs
        return made.emit("concat", made.emit("neg", second), first, axis=-1)
    first, second = (
        made.emit("slice", x, axes=(-1,), starts=(start,), ends=(end,), steps=(1,))
        for start, end in ((0, half), (half, made.depth))
    )
    return made.emit("concat", made.emit("neg", second), first, axis=-1)


def _neighbors(made: _Attention, x: Value) -> Value:
    first, second = (
        made.emit("slice", x, axes=(-1,), starts=(start,), ends=(made.depth,), steps=(2,)) for start in (0, 1)
    )
    pair = [made.emit("unsqueeze", each, axes=(-1,)) for each in (made.emit("neg", second), first)]
    return made.emit("reshape", made.emit("concat", *pair, axis=-1), shape=x.shape)


_STEPS: tuple[Callable[[_Attention, Value], Value], ...] = (
    _Attention.capped,
    _Attention.factored,
    _Attention.factored,
    _Attention.widened,
    _Attention.parted,
    _Attention.added,
    _Attention.added,
    _Attention.chosen,
    _Attention.added_choice,
    _Attention.added_choice,
)
