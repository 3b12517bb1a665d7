"""Patterns as data: what a local rewrite looks for.

A pattern describes a value by the node that produces it:

    x, scale = Capture("x"), Literal("scale")
    Match("mul", Match("add", x, Literal(value=0.0)), scale)

`Capture` binds any value, the same name always the same value; `Literal` a constant; `Match` the result of a node;
`Maybe` a node that may be left out; `OneOf` alternatives. Operands of a commutative op match in both orders. A `Rule`
joins a pattern to a function that builds the replacement, or gives None to decline.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Constant
from ...ir.errors import InternalError
from ...ir.graph import Node, Value
from ...ir.op import Op, Trait
from ...ir.ops import native
from ...ir.ops.interfaces import with_trait
from ...ir.ops.known import CONSTANT

if TYPE_CHECKING:
    from .rewriter import Rewriter


@dataclass(frozen=True)
class Capture:
    """Any value, bound to `name`; `where` may refuse it. An absent operand matches only if `is_optional`."""

    name: str
    where: Callable[[Value], bool] | None = None
    is_optional: bool = False


@dataclass(frozen=True)
class Literal:
    """A constant, bound to `name` when that is given.

    `value` asks for every element to equal that number, `where` for anything else, looking at the constant.
    """

    name: str = ""
    value: float | None = None
    where: Callable[[Constant], bool] | None = None
    tolerance: float = 0.0


@dataclass(frozen=True, init=False)
class Match:
    """The result of a node whose operands match in turn: of the op `op`, of one of several, or of any with that trait.

    `name` binds the node. `attrs` maps attribute names to a value, or to a predicate on it. `only_user` asks that the
    result be read by the matched node above alone. `where` looks at the whole node. `result` says which result is meant
    (None: any). Operands beyond those listed must be absent, unless `more` allows them.
    """

    op: frozenset[str]
    operands: "tuple[Pattern, ...]"
    name: str
    attrs: Mapping[str, Any]
    only_user: bool
    where: Callable[[Node], bool] | None
    result: int | None
    more: bool

    def __init__(
        self,
        op: str | Op | Trait | Sequence[str | Op],
        *operands: "Pattern",
        name: str = "",
        attrs: Mapping[str, Any] | None = None,
        only_user: bool = False,
        where: Callable[[Node], bool] | None = None,
        result: int | None = 0,
        more: bool = False,
    ) -> None:
        # A misspelt op is an error when the table is made, not a rule that never fires.
        given = with_trait(op) if isinstance(op, Trait) else (op,) if isinstance(op, (str, Op)) else op
        ops = frozenset(each.name if isinstance(each, Op) else native(each).name for each in given)
        values = (ops, operands, name, dict(attrs or {}), only_user, where, result, more)
        for slot, value in zip(Match.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, slot, value)


@dataclass(frozen=True)
class Maybe:
    """Either `node`, or directly what its first operand matches (a cast or a reshape that some exporters leave out)."""

    node: Match


@dataclass(frozen=True, init=False)
class OneOf:
    """The first of several alternatives that matches."""

    choices: "tuple[Pattern, ...]"

    def __init__(self, *choices: "Pattern") -> None:
        object.__setattr__(self, "choices", choices)


Pattern = Capture | Literal | Match | Maybe | OneOf


@dataclass
class Found:
    """A match: values and nodes by the names that the pattern gave them."""

    root: Node
    values: dict[str, Value | None] = field(default_factory=dict[str, Value | None])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])

    def __getitem__(self, name: str) -> Value:
        """The value captured as `name`."""
        value = self.values[name]
        if value is None:
            raise InternalError(f"operand {name} is absent; ask with get()")
        return value

    def get(self, name: str) -> Value | None:
        """The value captured as `name`, None when it is absent or the pattern did not come by it."""
        return self.values.get(name)

    def constant(self, name: str) -> Constant:
        """The content of the constant captured as `name`."""
        content = constant_of(self[name])
        if content is None:
            raise InternalError(f"{name} is not a constant")
        return content

    def node(self, name: str) -> Node:
        return self.nodes[name]

    def has(self, name: str) -> bool:
        """Whether the pattern came by a node called `name` (one inside `Maybe`, say)."""
        return name in self.nodes


Replacement = Callable[["Rewriter", Found], Value | Sequence[Value | None] | None]


@dataclass(frozen=True)
class Rule:
    """A local rewrite: where `pattern` matches, `replace` builds the values that stand for the root's results.

    It gives one value (for the first result of the root), a sequence (one for each), or None to decline, and then it
    must not have made any node.
    """

    name: str
    pattern: Match
    replace: Replacement


def find(pattern: Match, root: Node) -> Found | None:
    """The first way in which the node `root` matches, None when it does not."""
    if root.op.name not in pattern.op or not _plausible(pattern, root):
        return None
    for bindings in _node(pattern, root, _Bindings({}, {})):
        return Found(root, bindings.values, bindings.nodes)
    return None


@dataclass(frozen=True)
class _Bindings:
    values: dict[str, Value | None]
    nodes: dict[str, Node]

    def with_value(self, name: str, value: Value | None) -> "_Bindings | None":
        if not name:
            return self
        if name in self.values:
            return self if self.values[name] is value else None
        return _Bindings({**self.values, name: value}, self.nodes)

    def with_node(self, name: str, node: Node) -> "_Bindings | None":
        if not name:
            return self
        if name in self.nodes:
            return self if self.nodes[name] is node else None
        return _Bindings(self.values, {**self.nodes, name: node})


def _plausible(pattern: Match, node: Node) -> bool:
    """A quick look at the operands' ops that turns away most nodes before the search begins."""
    if node.op.has(Trait.COMMUTATIVE):
        return True
    return all(
        _may_be(wanted, value)
        for wanted, value in zip(pattern.operands, node.inputs, strict=False)
        if value is not None
    )


def _may_be(pattern: Pattern, value: Value) -> bool:
    if isinstance(pattern, Match):
        return value.producer is not None and value.producer.op.name in pattern.op
    if isinstance(pattern, Literal):
        return value.producer is not None and value.producer.op is CONSTANT
    return True


def _node(pattern: Match, node: Node, bindings: _Bindings) -> Iterator[_Bindings]:
    if not _fits(pattern, node):
        return
    named = bindings.with_node(pattern.name, node)
    if named is None:
        return
    for inputs in _orders(node, len(pattern.operands)):
        yield from _operands(pattern.operands, inputs, named)


def _fits(pattern: Match, node: Node) -> bool:
    if node.op.name not in pattern.op:
        return False
    if not pattern.more and any(value is not None for value in node.inputs[len(pattern.operands) :]):
        return False
    for name, wanted in pattern.attrs.items():
        found = node.attrs[name]
        if not (wanted(found) if callable(wanted) else found == wanted):
            return False
    return pattern.where is None or pattern.where(node)


def _orders(node: Node, count: int) -> list[tuple[Value | None, ...]]:
    inputs = node.inputs[:count] + (None,) * (count - len(node.inputs))
    if node.op.has(Trait.COMMUTATIVE) and count == 2 and inputs[0] is not inputs[1]:
        return [inputs, (inputs[1], inputs[0])]
    return [inputs]


def _operands(patterns: Sequence[Pattern], values: Sequence[Value | None], bindings: _Bindings) -> Iterator[_Bindings]:
    if not patterns:
        yield bindings
        return
    for bound in _value(patterns[0], values[0], bindings):
        yield from _operands(patterns[1:], values[1:], bound)


def _value(pattern: Pattern, value: Value | None, bindings: _Bindings) -> Iterator[_Bindings]:
    if isinstance(pattern, Capture):
        yield from _capture(pattern, value, bindings)
    elif value is None:
        return
    elif isinstance(pattern, Literal):
        bound = bindings.with_value(pattern.name, value) if _is_literal(pattern, value) else None
        if bound is not None:
            yield bound
    elif isinstance(pattern, Match):
        yield from _result(pattern, value, bindings)
    elif isinstance(pattern, Maybe):
        yield from _result(pattern.node, value, bindings)
        yield from _value(pattern.node.operands[0], value, bindings)
    else:
        for choice in pattern.choices:
            yield from _value(choice, value, bindings)


def _capture(pattern: Capture, value: Value | None, bindings: _Bindings) -> Iterator[_Bindings]:
    if value is None and not pattern.is_optional:
        return
    if value is not None and pattern.where is not None and not pattern.where(value):
        return
    bound = bindings.with_value(pattern.name, value)
    if bound is not None:
        yield bound


def _result(pattern: Match, value: Value, bindings: _Bindings) -> Iterator[_Bindings]:
    node = value.producer
    if node is None or pattern.result not in (None, value.index):
        return
    if pattern.only_user and value.use_count != 1:
        return
    yield from _node(pattern, node, bindings)


def _is_literal(pattern: Literal, value: Value) -> bool:
    content = constant_of(value)
    if content is None or (pattern.where is not None and not pattern.where(content)):
        return False
    return pattern.value is None or is_filled_with(content, pattern.value, pattern.tolerance)


def is_filled_with(content: Constant, number: float, tolerance: float = 0.0) -> bool:
    """Whether a small constant is `number` everywhere, within a relative `tolerance` (larger constants are data)."""
    if not 0 < content.size <= 4096 or content.dtype.kind.value == "string":
        return False
    elements = content.array.astype(np.complex128 if content.array.dtype.kind == "c" else np.float64)
    with np.errstate(invalid="ignore"):  # an infinity is at no distance from itself
        return bool(np.all((elements == number) | (np.abs(elements - number) <= tolerance * abs(number))))
