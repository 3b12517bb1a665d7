"""Graphs that are aimed at rules: rewrites say as data what they look for, so what they look for can be drawn.

`aimed_graph(seed, rules)` takes a rule and builds nodes as its pattern says: captures are inputs or constants, literals
are constants that the pattern admits, attributes that it leaves open are drawn. At times something is not quite as the
pattern wants it: a further reader, another operand order, a shape that broadcasts. Random nodes may follow.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from capgraph.ir.attrs import AttrKind
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim
from capgraph.ir.errors import CapgraphError, InternalError
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.op import Attribute, Op, Operand, Trait
from capgraph.ir.ops import OPS, native
from capgraph.ir.types import DType, Kind
from capgraph.passes.catalog import PASSES
from capgraph.passes.framework.base import PatternPass
from capgraph.passes.framework.driver import apply_rules
from capgraph.passes.framework.pattern import Capture, Literal, Match, Maybe, Pattern, Rule
from capgraph.passes.framework.rewriter import Rewriter

from tests.strategies.chooser import RandomChooser
from tests.strategies.draw import GraphDraw, sample
from tests.strategies.graphs import draw_graph

NUMBERS = (0.0, 1.0, -1.0, 2.0, -0.0, 0.5, -0.5, 3.0, 4.0, 6.0, 8.0, 0.125, 1e-5, 1e-6, -1e9, np.inf, -np.inf, 1.702)
CONSTANTS_OF_ACTIVATIONS = (0.044715, 2**0.5, 0.5**0.5, (2 / np.pi) ** 0.5, 1 / 6, 1 / 3, 100.0, 1000.0)
"""What the rules of real models look for: in GELU's approximations, hard sigmoids, attention scales."""

ATTEMPTS = 16
FLOATS = (DType.F32, DType.F32, DType.F64, DType.F16, DType.BF16)


def all_rules() -> list[tuple[str, Rule]]:
    """The rules of every pass that has rules, each with the name of its pass."""
    return [(name, rule) for name, each in PASSES.items() if issubclass(each, PatternPass) for rule in each().rules()]


def aimed_graph(seed: int, rules: Sequence[Rule]) -> Graph:
    """The graph number `seed` for one of these rules; a random one where the rule is too hard to meet."""
    choose = RandomChooser(seed)
    rule, tries = choose.pick(rules), choose.integer(1, ATTEMPTS)  # at times a near miss
    graph: Graph | None = None
    for _ in range(tries):
        try:
            graph = _Aim(choose, rule).graph()
        except (CapgraphError, _Unmet):
            continue
        if fires(rule, graph):
            return graph
    return graph or draw_graph(choose, tuple(OPS), max_nodes=4, symbolic=True)


def fires(rule: Rule, graph: Graph) -> bool:
    """Whether the rule finds something to rewrite; also true when it fails."""
    work = graph.clone()
    rewriter = Rewriter(work, budget=1)
    try:
        with np.errstate(all="ignore"):
            apply_rules(work, rewriter, [rule])
    except InternalError:
        return True
    return rewriter.changed


class _Unmet(Exception):
    """No operand or attribute was found that a pattern admits."""


class _Aim:
    """One try at a rule."""

    def __init__(self, choose: RandomChooser, rule: Rule) -> None:
        self.choose = choose
        self.draw = GraphDraw(choose, lambda _: None, symbolic=choose.chance(60))
        self.rule = rule
        self.dtype = choose.pick(FLOATS) if choose.chance(70) else choose.pick(tuple(DType))
        self.shape = self.draw.shape(choose.integer(0, 4))
        self.named: dict[str, Value] = {}

    def graph(self) -> Graph:
        root = self._match(self.rule.pattern, self.dtype).outputs[0]
        graph = self.draw.graph
        open_ends = [value for node in graph.nodes for value in node.outputs if not value.has_uses]
        outputs = list(dict.fromkeys([root, *open_ends]))
        if self.choose.chance(25):
            outputs.append(self.choose.pick([value for node in graph.nodes for value in node.outputs]))
        if self.choose.chance(20):
            outputs.append(self.draw.emit("neg", root))
        graph.set_outputs(outputs)
        return graph

    def _match(self, pattern: Match, wish: DType) -> Node:
        if pattern.name in self.named:
            node = self.named[pattern.name].producer
            assert node is not None  # only nodes are kept under the names of matches
            return node
        op = native(self.choose.pick(sorted(pattern.op)))
        dtype = wish if _admits(op, wish) else self.choose.pick(sorted(_result_dtypes(op), key=str))
        inputs = [self._value(each, op.operand_at(at), dtype) for at, each in enumerate(pattern.operands)]
        if op.traits & Trait.COMMUTATIVE and len(inputs) == 2 and self.choose.chance(30):
            inputs.reverse()
        inputs += self._further(pattern, op, inputs, dtype)
        node = self._node(pattern, op, inputs)
        if pattern.name:
            self.named[pattern.name] = node.outputs[0]
        return node

    def _further(self, pattern: Match, op: Op, inputs: list[Value | None], dtype: DType) -> list[Value | None]:
        """Operands beyond those of the pattern: absent, or any where it allows more."""
        signature = op.operands[len(inputs) :]
        if not pattern.more:
            return [None for operand in signature if not operand.is_variadic]
        like = next((value for value in inputs if value is not None), None)
        count = len(signature) - 1 + self.choose.integer(1, 3) if op.operands[-1].is_variadic else len(signature)
        return [self._another(op.operand_at(len(inputs) + at), like, dtype) for at in range(count)]

    def _another(self, operand: Operand, like: Value | None, dtype: DType) -> Value | None:
        if operand.is_optional and self.choose.chance(50):
            return None
        if like is not None and like.tensor.dtype in operand.dtypes and self.choose.chance(50):
            return like
        shape = like.shape if like is not None else self.shape
        return self.draw.shaped(dtype if dtype in operand.dtypes else self._dtype(operand), shape)

    def _dtype(self, operand: Operand) -> DType:
        return self.draw.dtype(operand.dtypes)

    def _value(self, pattern: Pattern, operand: Operand, dtype: DType) -> Value | None:
        wish = dtype if dtype in operand.dtypes else self._dtype(operand)
        if isinstance(pattern, Match):
            return self._result(self._match(pattern, wish), pattern.result or 0)
        if isinstance(pattern, Capture):
            return self._capture(pattern, wish)
        if isinstance(pattern, Literal):
            return self._literal(pattern, wish)
        if isinstance(pattern, Maybe):
            inside = self.choose.chance(50)
            return self._value(pattern.node if inside else pattern.node.operands[0], operand, wish)
        return self._value(self.choose.pick(pattern.choices), operand, wish)

    @staticmethod
    def _result(node: Node, index: int) -> Value:
        if index >= len(node.outputs):
            raise _Unmet
        return node.outputs[index]

    def _capture(self, pattern: Capture, dtype: DType) -> Value | None:
        if pattern.name in self.named:
            return self.named[pattern.name]
        if pattern.is_optional and self.choose.chance(50):
            return None
        for _ in range(ATTEMPTS):
            value = self._some_value(dtype)
            if pattern.where is None or pattern.where(value):
                self.named[pattern.name] = value
                return value
        raise _Unmet

    def _some_value(self, dtype: DType) -> Value:
        if self.choose.chance(75):
            return self.draw.shaped(dtype, self.shape)
        return self.draw.broadcastable(dtype, self.shape)

    def _literal(self, pattern: Literal, dtype: DType) -> Value:
        if pattern.name and pattern.name in self.named:
            return self.named[pattern.name]
        for _ in range(4 * ATTEMPTS):
            content = Constant(self._content(pattern, dtype), dtype)
            if pattern.where is None or pattern.where(content):
                value = self.draw.emit("constant", value=content)
                if pattern.name:
                    self.named[pattern.name] = value
                return value
        raise _Unmet

    def _content(self, pattern: Literal, dtype: DType) -> Any:
        static = [dim if isinstance(dim, int) else 1 for dim in self.shape]
        shape = static[self.choose.integer(0, len(static)) :] if self.choose.chance(40) else ()
        if pattern.value is None and self.choose.chance(15):
            return self.choose.generator().normal(0, 2, shape).astype(dtype.numpy)
        numbers = NUMBERS if self.choose.chance(60) else CONSTANTS_OF_ACTIVATIONS
        number = pattern.value if pattern.value is not None else self.choose.pick(numbers)
        if dtype.kind is Kind.STRING:
            raise _Unmet
        with np.errstate(all="ignore"):
            return np.full(shape, number).astype(dtype.numpy)

    def _node(self, pattern: Match, op: Op, inputs: list[Value | None]) -> Node:
        for _ in range(ATTEMPTS):
            attrs = {**drawn_attrs(self.draw, op, inputs), **_said(pattern)}
            mark = self.draw.mark()
            try:
                node = self.draw.add(op, sample(*inputs, **attrs))
            except CapgraphError:
                continue
            if _keeps(pattern, node):
                return node
            self.draw.roll_back(mark)
        raise _Unmet


def _admits(op: Op, dtype: DType) -> bool:
    return dtype in _result_dtypes(op)


def _result_dtypes(op: Op) -> frozenset[DType]:
    return op.operands[0].dtypes if op.operands else frozenset((DType.F32,))


def _said(pattern: Match) -> dict[str, Any]:
    return {name: value for name, value in pattern.attrs.items() if not callable(value)}


def _keeps(pattern: Match, node: Node) -> bool:
    """Whether the node is what the pattern's predicates ask for."""
    for name, wanted in pattern.attrs.items():
        if callable(wanted) and not wanted(node.attrs[name]):
            return False
    return pattern.where is None or pattern.where(node)


# ---- attributes


def drawn_attrs(d: GraphDraw, op: Op, inputs: Sequence[Value | None]) -> dict[str, Any]:
    """Attributes that may fit these operands; the rule of the op says whether they do."""
    x = next((value for value in inputs if value is not None), None)
    shape = x.shape if x is not None else ()
    drawn: dict[str, Any] = {}
    for name, attribute in op.attrs.items():
        made = _drawn(d, name, attribute, shape)
        if made is not None and (attribute.is_required or d.choose.chance(40)):
            drawn[name] = made
    return drawn


def _drawn(d: GraphDraw, name: str, attribute: Attribute, shape: Sequence[Dim]) -> Any:
    rank, choose = len(shape), d.choose
    by_name: dict[str, Callable[[], Any]] = {
        "perm": lambda: _permuted(d, rank),
        "axis": lambda: choose.integer(-rank, rank - 1) if rank else None,
        "axes": lambda: _axes(d, rank),
        "shape": lambda: _reshaped(d, shape),
        "to": lambda: choose.pick(tuple(DType)),
        "pads": lambda: (0,) * (2 * rank) if choose.chance(60) else d.ints(2 * rank, 0, 2),
        "repeats": lambda: d.ints(rank, 1, 2),
        "starts": lambda: (0,) * rank if choose.chance(50) else d.ints(rank, 0, 2),
        "ends": lambda: tuple(shape) if choose.chance(50) else (2**63 - 1,) * rank,
        "steps": lambda: (1,) * rank,
        "sizes": lambda: _split(d, shape),
        "epsilon": lambda: choose.pick((1e-5, 1e-6, 1e-12)),
        "value": lambda: Constant(np.zeros((), np.float32)),
    }
    if name in by_name:
        return by_name[name]()
    if attribute.kind is AttrKind.BOOL:
        return choose.chance(50)
    if attribute.kind is AttrKind.FLOAT:
        return choose.pick((1.0, 0.5, 2.0, 1.702))
    if attribute.choices:
        return choose.pick(attribute.choices)
    if attribute.kind is AttrKind.INT:
        return choose.integer(0, 2)
    if attribute.kind in (AttrKind.INTS, AttrKind.DIMS):
        return d.ints(max(rank - 2, 0), 1, 2)
    return None


def _permuted(d: GraphDraw, rank: int) -> tuple[int, ...]:
    if d.choose.chance(50) and rank >= 2:
        return (*range(rank - 2), rank - 1, rank - 2)
    return tuple(axis % rank for axis in d.axes(rank, rank)) if rank else ()


def _axes(d: GraphDraw, rank: int) -> tuple[int, ...]:
    if d.choose.chance(60):
        return tuple(range(-d.choose.integer(1, max(1, min(rank, 2))), 0))
    return tuple(sorted({axis % rank for axis in d.axes(rank)})) if rank else ()


def _reshaped(d: GraphDraw, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The same elements in other sizes: two axes joined, one split, an axis of 1 put in or left out, or as it was."""
    sizes, form = list(shape), d.choose.integer(0, 4)
    if form == 0 and len(sizes) >= 2:
        at = d.choose.integer(0, len(sizes) - 2)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    elif form == 1:
        sizes.insert(d.choose.integer(0, len(sizes)), 1)
    elif form == 2:
        sizes = [size for size in sizes if size != 1]
    elif form == 3:
        even = [at for at, size in enumerate(sizes) if isinstance(size, int) and size % 2 == 0 and size]
        if even:
            at = d.choose.pick(even)
            half = sizes[at] // 2
            sizes[at : at + 1] = [2, half] if d.choose.chance(50) else [half, 2]
    return tuple(sizes)


def _split(d: GraphDraw, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    size = d.choose.pick(tuple(shape)) if shape else 1
    if isinstance(size, int) and size > 1 and d.choose.chance(70):
        first = d.choose.integer(1, size - 1)
        return (first, size - first)
    return (size,)
