"""The walk through a graph that finds, node by node, where the padded dim goes and what padding does there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ....ir.analysis import ancestors, input_symbols
from ....ir.attrs import is_tuple
from ....ir.dims import Dim, Ranges, SymDim, symbol, symbols
from ....ir.errors import ShapeError
from ....ir.graph import Graph, Node, Value
from ....ir.op import Trait
from ....ir.types import TensorType, type_symbols
from .rules import RULES
from .rules.elementwise import elementwise
from .rules.facts import Case, Fact, Number, Rule, Same, Tail, Unsafe, plain
from .rules.sizes import grows, narrowed

REAL_SIZE = "real size of "
"""Metadata key, followed by a symbol: the input, a scalar i64, that holds the real size of a graph's padded dim."""


class Walk:
    """The facts of the values of one graph, found in order of its nodes."""

    def __init__(self, graph: Graph, symbol: str, ranges: Ranges, fills: dict[str, Number]) -> None:
        self.graph = graph
        self.symbol = symbol
        self.ranges = ranges
        self.fills = fills
        self.facts: dict[Value, Fact] = {}
        self.together: dict[Node, list[Node]] = {}
        self.proof: list[str] = []

    def enter(self, facts: Sequence[Fact] | None = None) -> None:
        """Gives the inputs their facts; by default those of a call whose inputs are padded at the end."""
        given = facts if facts is not None else [self._input(value) for value in self.graph.inputs]
        self.facts.update(zip(self.graph.inputs, given, strict=True))

    def _input(self, value: Value) -> Fact:
        if self.graph.metadata.get(f"{REAL_SIZE}{self.symbol}") == value.name:
            return Fact((), real_extent=symbol(self.symbol), natural=True)
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            if self.symbol in type_symbols(value.type):
                raise Unsafe(f"input %{value.name} is no tensor")
            return plain(value)
        tails = tuple(self._input_tail(value, dim) for dim in value.shape)
        return Fact(tails, source=value.name, natural=value.tensor.dtype.value.startswith("u"))

    def _input_tail(self, value: Value, given: Dim) -> Tail | None:
        dim = narrowed(given, self.ranges)
        if self.symbol not in symbols(dim):
            return None
        size = symbol(self.symbol)
        inner = dim // size
        if self.symbol not in symbols(inner) and inner * size == dim:
            return Tail(size, inner=inner)
        if self.symbol not in symbols(dim - size):
            return Tail(dim)
        raise Unsafe(f"input %{value.name} has an axis of size {dim}")

    def judge(self, node: Node) -> None:
        """Finds the facts of a node's results. Raises `Unsafe` when padding may change real elements."""
        facts = tuple(self.facts[value] if value is not None else None for value in node.inputs)
        rule = RULES.get(node.op.name) or (elementwise if node.op.has(Trait.ELEMENTWISE) else None)
        if not self._is_reached(node, facts):
            self._learn(node, rule, facts)
            return
        if rule is None or node.op.has(Trait.IMPURE):
            raise Unsafe(f"{node.op.name} has no rule for an operand that carries {self.symbol}")
        try:
            found = rule(self._case(node, facts))
        except ShapeError as error:  # a dim of what it would claim has too great a number
            raise Unsafe(f"{node.op.name} makes sizes that no dim holds: {error.message}") from error
        for value, fact in zip(node.outputs, found, strict=True):
            self.facts[value] = self._checked(value, fact)
        self.proof.append(f"{node!r}: {_claim(rule)}")

    def _learn(self, node: Node, rule: Rule | None, facts: tuple[Fact | None, ...]) -> None:
        """What a rule knows of a node that the dim does not reach; nothing depends on it."""
        self.facts.update((value, plain(value)) for value in node.outputs)
        if rule is None or node.regions or not all(isinstance(value.type, TensorType) for value in node.outputs):
            return
        try:
            self.facts.update(zip(node.outputs, rule(self._case(node, facts)), strict=True))
        except (Unsafe, ShapeError):
            return

    def _case(self, node: Node, facts: tuple[Fact | None, ...]) -> Case:
        together = self.together.setdefault(node, [])
        together.clear()
        return Case(node, facts, self.symbol, self.ranges, self.fills, self._judge_body, self.facts, together)

    def _is_reached(self, node: Node, facts: Sequence[Fact | None]) -> bool:
        if any(fact is not None and (fact.is_padded or fact.real_extent is not None) for fact in facts):
            return True
        if any(self.symbol in type_symbols(value.type) for value in node.outputs):
            return True
        return self.symbol in symbols_of_attrs(node)

    def _checked(self, value: Value, fact: Fact) -> Fact:
        """Every axis whose size depends on the dim has a tail, which a greater size only makes longer."""
        dims = value.shape if isinstance(value.type, TensorType) else ()
        tails = list(fact.tails)
        for axis, (dim, tail) in enumerate(zip(dims, fact.tails, strict=True)):
            size = narrowed(dim, self.ranges)
            if self.symbol not in symbols(size):
                tails[axis] = None  # it only seemed to depend on the symbol: min(1, T)
            elif tail is None:
                raise Unsafe(f"axis {axis} of %{value.name} has the size {dim}, of which no part is known to be real")
            elif not grows(tail.extent, self.symbol, self.ranges):
                raise Unsafe(f"axis {axis} of %{value.name} gets shorter where {self.symbol} gets longer")
        return replace(fact, tails=tuple(tails))

    def _judge_body(self, body: Graph, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        inner = Walk(body, self.symbol, self.ranges, self.fills)
        inner.enter(facts)
        for node in body.nodes:
            try:
                inner.judge(node)
            except Unsafe as failure:
                raise Unsafe(f"{failure.reason}, at {node!r} in its body") from failure
        self.proof += inner.proof
        return tuple(_outside(inner.facts[value]) for value in body.outputs)

    def check_outputs(self) -> None:
        """Raises `Unsafe` unless every output holds its real elements first, and states keep what is not written."""
        for value, name in zip(self.graph.outputs, self.graph.output_names, strict=True):
            for tail in self.facts[value].tails:
                if tail is not None and not tail.is_prefix:
                    raise Unsafe(f"output {name} has its real elements between padding")
        for state in self.graph.states:
            old, new = self.graph.inputs[state.input], self.graph.outputs[state.output]
            self._check_state(old, new)

    def _check_state(self, old: Value, new: Value) -> None:
        for axis, tail in enumerate(self.facts[new].tails):
            if tail is not None and not (new is old or tail.fill == Same(old.name)):
                raise UnsafeState(f"padded rows along axis {axis} would be written into state %{old.name}", old, new)


def _outside(fact: Fact) -> Fact:
    """The fact of a body's result without what names values of the body."""
    tails = (tail.filled(None) if tail and isinstance(tail.fill, Same) else tail for tail in fact.tails)
    return replace(fact, tails=tuple(tails))


class UnsafeState(Unsafe):
    """Output `new` would write padded rows into the state that input `old` holds."""

    def __init__(self, reason: str, old: Value, new: Value) -> None:
        super().__init__(reason)
        self.old = old
        self.new = new


def _claim(rule: object) -> str:
    function = getattr(rule, "func", rule)
    return (getattr(function, "__doc__", None) or "").split("\n", 1)[0]


def symbols_of_attrs(node: Node) -> frozenset[str]:
    """The symbols in a node's attributes, its regions included."""
    if not node.op.bound_attrs:
        return frozenset()
    return frozenset(name for key in node.op.bound_attrs for name in _symbols(node.attrs[key]))


def _symbols(value: object) -> Iterator[str]:
    if isinstance(value, SymDim):
        yield from value.symbols
    elif isinstance(value, Graph):
        for inner in value.nodes:
            yield from symbols_of_attrs(inner)
        for result in value.values:
            yield from type_symbols(result.type)
    elif is_tuple(value):
        for item in value:
            yield from _symbols(item)


@dataclass(frozen=True)
class Outcome:
    """A walk that came to its end, or to a `failure` and `where` it was."""

    walk: Walk
    failure: Unsafe | None
    where: str


MOST_REPAIRS = 16
"""How many masks one node is given before it counts as unsafe."""

Repair = Callable[[Walk, Node, Unsafe], None]


def walked(graph: Graph, symbol: str, largest: int | None, least: int = 0, repair: Repair | None = None) -> Outcome:
    """Walks through the whole graph, calling `repair` where the proof fails, which raises `Unsafe` if it cannot help.

    The sizes of inputs are at least `least`. Nodes that no output depends on are left out.
    """
    ranges: dict[str, tuple[int, int | None]] = dict.fromkeys(input_symbols(graph), (least, None))
    walk = Walk(graph, symbol, ranges | {symbol: (least, largest)}, {})
    live = ancestors(graph.outputs)
    where = "its inputs"
    try:
        walk.enter()
        for node in graph.nodes:
            if node in live:
                where = node.where()
                settle(walk, node, repair)
        where = "its outputs"
        walk.check_outputs()
    except Unsafe as failure:
        return Outcome(walk, failure, where)
    return Outcome(walk, None, "")


def settle(walk: Walk, node: Node, repair: Repair | None) -> None:
    """Judges a node, repairing it as often as that helps. Raises `Unsafe` when it does not."""
    if repair is None:
        walk.judge(node)
        return
    for _ in range(MOST_REPAIRS):
        try:
            walk.judge(node)
        except Unsafe as failure:
            repair(walk, node, failure)
            if node.graph is not walk.graph:  # others have taken its place
                return
            continue
        return
    walk.judge(node)
