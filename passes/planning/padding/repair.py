"""Masks for single nodes that padding would change: a scalar in device memory, the real size, says what counts.

`mask_padding` calls it for each node at which the proof fails; `passes/planning/masking.py` is that as a pass.

What stands behind the real elements is selected away, never multiplied: garbage times zero may be no number.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ....ir.attrs import AttrValue
from ....ir.builder import Emitter
from ....ir.constant import Constant
from ....ir.dims import Dim, product, symbol, symbols
from ....ir.errors import TypeRuleError
from ....ir.graph import Graph, Node, Value
from ....ir.ops import native
from ....ir.ops.bounded import PREFIX
from ....ir.ops.known import EXPAND
from ....ir.ops.rules import normal_axes
from ....ir.types import DType, TensorType
from .rules.facts import Number, Tail, Unsafe
from .walk import REAL_SIZE, UnsafeState, Walk, settle

Budget = Callable[[Node], bool]
"""Whether one more node may be repaired."""


class MaskInsertion:
    """Edits the graph of a walk in front of the node where it stands; new nodes are judged as they are made.

    `is_stopped` tells that `budget` refused a repair.
    """

    def __init__(self, graph: Graph, symbol: str, budget: Budget | None = None) -> None:
        self.graph = graph
        self.symbol = symbol
        self.is_stopped = False
        self._budget = budget
        self.real = _real_size(graph, symbol)
        self.walk: Walk
        self._anchor: Node | None = None
        self._real_extents: dict[Dim, Value] = {}
        self._masks: dict[tuple[Dim, Dim, Dim], Value] = {}

    def repair(self, walk: Walk, node: Node, failure: Unsafe) -> None:
        """Makes the proof hold at `node`, or takes the node away. Raises `failure` when nothing helps."""
        if not failure.masks and failure.replace is None:
            raise failure
        self._spend(node, failure)
        self.walk, self._anchor = walk, node
        if failure.masks:
            for mask in failure.masks:
                self._mask_operand(node, mask.operand, mask.axis, mask.fill)
        elif failure.replace is not None:
            failure.replace(self, node)

    def _spend(self, node: Node, failure: Unsafe) -> None:
        """Raises `failure` where the budget has nothing left for a repair at `node`."""
        self.is_stopped = self.is_stopped or (self._budget is not None and not self._budget(node))
        if self.is_stopped:
            raise failure

    def keeps_state(self, walk: Walk, failure: UnsafeState) -> bool:
        """Lets the padded rows of a state stay what they were. False when no mask tells them."""
        self.walk, self._anchor = walk, None
        kept = failure.new
        try:
            if kept.producer is not None:
                self._spend(kept.producer, failure)
            for axis, tail in enumerate(walk.facts[failure.new].tails):
                if tail is not None:
                    kept = self._op("where", self._mask(tail, axis, kept.tensor.rank), kept, failure.old)
        except Unsafe:
            return False
        for index, value in enumerate(self.graph.outputs):
            if value is failure.new and any(state.output == index for state in self.graph.states):
                self.graph.set_output(index, kept)
        return True

    # ---- what rules ask for

    def split_mean(self, node: Node) -> None:
        """A mean as the sum over the real elements divided by their number; small floats sum in f32, as means do."""
        x = _operand(node, 0)
        dtype = DType.F32 if x.tensor.dtype.is_small_float else x.tensor.dtype
        axes = normal_axes(node.attrs["axes"], x.tensor.rank)
        total = self._masked_sum(x, axes, node.attrs["keep_dims"], dtype)
        fixed: Dim = 1
        count: Value | None = None
        for axis in axes:
            tail = self.walk.facts[x].tails[axis]
            fixed = fixed * (x.shape[axis] if tail is None else tail.outer * tail.inner)
            if tail is not None:
                real = self._real_extent(tail.extent)
                count = real if count is None else self._op("mul", count, real)
        assert count is not None  # the rule asks for this only where an axis carries the dim
        if fixed != 1:
            count = self._op("mul", count, self._op("dim", value=fixed))
        mean = self._op("div", total, self._op("cast", count, to=dtype))
        self._replace(node, mean if dtype is x.tensor.dtype else self._op("cast", mean, to=x.tensor.dtype))

    def use_real_size(self, node: Node) -> None:
        """The real size in place of the padded one."""
        self._replace(node, self._real_extent(node.attrs["value"]))

    def use_real_sizes(self, node: Node, sizes: Sequence[Dim]) -> None:
        """The real sizes in place of padded ones."""
        real = [self._real_extent(dim) if self.symbol in symbols(dim) else self._op("dim", value=dim) for dim in sizes]
        vectors = [self._op("reshape", size, shape=(1,)) for size in real]
        self._replace(node, self._op("concat", *vectors, axis=0) if len(vectors) > 1 else vectors[0])

    def move_up(self, node: Node, axis: int, count: int) -> None:
        """Lets the `count` elements that a concat has behind the padding of a part follow that part's real elements.

        All is put together with that part last, so that its padding is at the end, and taken from there by index.
        """
        parts = node.operands
        place, tail = next((i, found) for i, part in enumerate(parts) if (found := self.walk.facts[part].tails[axis]))
        moved, behind = parts[place], parts[place + 1 :]
        real, more = self._real_extent(tail.extent), self._number(count, DType.I64)
        rows = self._op("concat", *behind, moved, axis=axis)
        index = self._op("arange", limit=tail.extent + count)
        last = self._op("add", real, self._op("dim", value=count - 1))
        own = self._op("min", self._op("add", index, more), last)
        zero, end = (self._number(number, DType.I64) for number in (0, count - 1))
        theirs = self._op("min", self._op("max", self._op("sub", index, real), zero), end)
        order = self._op("where", self._op("less", index, real), own, theirs)
        moved = self._op("gather", rows, order, axis=axis)
        self._replace(node, self._op("concat", *parts[:place], moved, axis=axis) if place else moved)

    def mask_keys(self, node: Node, steps: int, keys: Tail) -> None:
        """Hides padded keys of attention; `steps` is the axis of keys in the operands."""
        mask = self._mask(keys, 0, 1)
        old = node.inputs[3]
        if old is not None:
            seen = self._conjunction(old, mask)
        else:
            seen = self._op("reshape", mask, shape=(1, 1, 1, keys.outer * keys.extent * keys.inner))
        self._remake(node, (*node.inputs[:3], seen, *node.inputs[4:]))

    def give_lengths(self, node: Node, time: Tail) -> None:
        """Lets a recurrent cell run over the real steps only."""
        x = _operand(node, 0)
        batch = x.shape[1 if node.attrs["layout"] == 0 else 0]
        steps = self._op("cast", self._real_extent(time.extent), to=DType.I32)
        self.graph.replace_input(node, 4, self._op("expand", steps, shape=(batch,)))

    def repeat_last_row(self, node: Node, axis: int) -> None:
        """Lets padded rows of a scatter write what its last row writes, where that changes nothing.

        Not the first one, since the last of equal indices stays. Without any real row they write into the start of the
        target what it holds.
        """
        target, indices = _operand(node, 0), _operand(node, 1)
        depth = indices.shape[-1]
        assert isinstance(depth, int)  # the type rule asks for it
        zeros = Constant(np.zeros(depth, np.int64))
        start = self._op("gather_nd", target, self._op("constant", value=zeros))
        for operand, head in ((1, self._number(0, indices.tensor.dtype)), (2, start)):
            value = _operand(node, operand)
            tail = self.walk.facts[value].tails[axis]
            assert tail is not None  # the rule asks for this only where both carry the dim
            shape = tuple(1 if other == axis else dim for other, dim in enumerate(value.shape))
            rows = self._op("concat", self._op("expand", head, shape=shape), value, axis=axis)
            last = self._op("gather", rows, self._op("reshape", self._real_extent(tail.extent), shape=(1,)), axis=axis)
            mask = self._mask(tail, axis, value.tensor.rank)
            self.graph.replace_input(node, operand, self._op("where", mask, value, last))

    def inline_body(self, node: Node) -> None:
        """The nodes of a fused body in the place of the node, so that each can be masked."""
        before = set(self.graph.nodes)
        results = self.graph.inline(node.attrs["body"], node.operands, node)
        made = [inner for inner in self.graph.nodes if inner not in before]
        for old, new in zip(node.outputs, results, strict=True):
            self.graph.replace_uses(old, new)
        self.graph.erase(node)
        for inner in made:
            settle(self.walk, inner, self.repair)

    # ---- masks

    def _mask_operand(self, node: Node, operand: int, axis: int, fill: Number) -> None:
        value = _operand(node, operand)
        self.graph.replace_input(node, operand, self._masked(value, axis, fill))

    def _masked(self, value: Value, axis: int, fill: Number) -> Value:
        """`value` with `fill` behind the real elements of `axis`; below an expansion along other axes."""
        source = _expanded_beside(value, axis)
        if source is not None:
            own = axis - value.tensor.rank + source.tensor.rank
            return self._op("expand", self._masked(source, own, fill), shape=value.shape)
        tail = self.walk.facts[value].tails[axis]
        assert tail is not None  # only axes that carry the dim are masked
        mask = self._mask(tail, axis, value.tensor.rank)
        return self._op("where", mask, value, self._number(fill, value.tensor.dtype))

    def _masked_sum(self, x: Value, axes: Sequence[int], keep_dims: bool, dtype: DType) -> Value:
        for axis in axes:
            tail = self.walk.facts[x].tails[axis]
            if tail is not None and tail.number != 0:
                x = self._masked(x, axis, 0)
        if dtype is not x.tensor.dtype:
            x = self._op("cast", x, to=dtype)
        return self._op("reduce_sum", x, axes=tuple(axes), keep_dims=keep_dims)

    def _mask(self, tail: Tail, axis: int, rank: int) -> Value:
        """bool, true for the real elements; it broadcasts to `rank` axes along `axis`."""
        key = (tail.extent, tail.outer, tail.inner)
        flat = self._masks.get(key)
        if flat is None:
            flat = self._masks[key] = self._flat_mask(tail)
        size = tail.outer * tail.extent * tail.inner
        shape = tuple(size if i == axis else 1 for i in range(rank))
        return flat if rank == 1 else self._op("reshape", flat, shape=shape)

    def _flat_mask(self, tail: Tail) -> Value:
        count = self._op("arange", limit=tail.extent)
        mask = self._op("less", count, self._real_extent(tail.extent))
        if tail.outer == 1 and tail.inner == 1:
            return mask
        spread = self._op("reshape", mask, shape=(1, tail.extent, 1))
        spread = self._op("expand", spread, shape=(tail.outer, tail.extent, tail.inner))
        return self._op("reshape", spread, shape=(product((tail.outer, tail.extent, tail.inner)),))

    def _real_extent(self, extent: Dim) -> Value:
        """i64[]: what `extent` is at the real size. Raises `Unsafe` unless it is the symbol, plus or minus a size."""
        rest = extent - symbol(self.symbol)
        if self.symbol in symbols(rest):
            raise Unsafe(f"the real size of an axis of size {extent} is not known on the device")
        if rest == 0:
            return self.real
        if extent not in self._real_extents:
            self._real_extents[extent] = self._op("add", self.real, self._op("dim", value=rest))
        return self._real_extents[extent]

    def _conjunction(self, mask: Value, real: Value) -> Value:
        """An attention mask that also hides what `real` (bool, along the keys) does not show."""
        if mask.tensor.dtype is DType.BOOL:
            return self._op("logical_and", mask, real)
        return self._op("where", real, mask, self._number(-np.inf, mask.tensor.dtype))

    def _number(self, number: Number, dtype: DType) -> Value:
        return self._op("constant", value=Constant(np.asarray(number).astype(dtype.numpy)))

    # ---- edits

    def _op(self, name: str, *operands: Value, **attrs: AttrValue) -> Value:
        origin = self._anchor.origin if self._anchor is not None else None
        try:
            node = Emitter(self.graph, anchor=self._anchor, origin=origin).node(native(name), operands, attrs)
        except TypeRuleError as error:
            raise Unsafe(f"no mask can be made: {error}") from error
        self._judge(node)
        return node.output

    def _judge(self, node: Node) -> None:
        if all(value in self.walk.facts for value in node.operands):
            self.walk.judge(node)

    def _remake(self, node: Node, operands: Sequence[Value | None]) -> None:
        """A node like `node` in its place, with operands that may have other types."""
        made = self.graph.insert_before(node, node.op, operands, node.attrs, origin=node.origin)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            self.graph.replace_uses(old, new)
        self.graph.erase(node)
        self._anchor = made
        settle(self.walk, made, self.repair)

    def _replace(self, node: Node, value: Value) -> None:
        self.graph.replace_uses(node.output, value)
        self.graph.erase(node)


def _operand(node: Node, index: int) -> Value:
    value = node.inputs[index]
    assert value is not None  # rules name operands that are there
    return value


def _real_size(graph: Graph, name: str) -> Value:
    """What holds the real size: the count of the node that makes the dim, or a new input of the graph."""
    for node in graph.nodes:
        if node.op.name.startswith(PREFIX) and node.attrs["size"] == symbol(name):
            return node.outputs[-1]
    return _real_size_input(graph, name)


def _real_size_input(graph: Graph, symbol: str) -> Value:
    key = f"{REAL_SIZE}{symbol}"
    if key in graph.metadata:
        return graph.value(graph.metadata[key])
    value = graph.add_input(graph.unused_name(f"real_{symbol}"), TensorType(DType.I64, ()))
    graph.metadata[key] = value.name
    return value


def _expanded_beside(value: Value, axis: int) -> Value | None:
    """What `value` expands along other axes than `axis`, if it does."""
    node = value.producer
    if node is None or node.op is not EXPAND:
        return None
    source = node.operands[0]
    own = axis - value.tensor.rank + source.tensor.rank
    return source if own >= 0 and source.shape[own] == value.shape[axis] else None
