"""The only way for a pass to change a graph: it notes every edit, so that "changed" is seen and never claimed."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ...ir.attrs import AttrValue
from ...ir.binding import mentioned
from ...ir.builder import Emitter
from ...ir.dims import Truth
from ...ir.errors import CapgraphError, InvalidGraphError
from ...ir.graph import Graph, Node, Value
from ...ir.op import Op
from ...ir.ops.regions import attribute_symbols
from ...ir.types import Type, compatible, type_symbols
from .numeric import CallChange


@dataclass(frozen=True)
class Rewrite:
    """One rewrite: the rule, the node that it started from (as text with its origin), and the names of its results."""

    rule: str
    node: str
    results: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rule} at {self.node}"


class Rewriter(Emitter):
    """Edits of one graph during one pass.

    A pass asks `may_rewrite(rule, node)` before each self-contained rewrite; the answer is False once `budget` rewrites
    are spent, which is how `bisect` finds the single rewrite that broke a model. New nodes go right before the node
    given to `at` (or `may_rewrite`) and inherit its origin. `touched` collects nodes that the driver should look at
    again; those of them in `freed` were not edited, only one of their results is now read once. A pass that gives the
    graph other inputs or outputs says in `calls` how it is called from now on.
    """

    def __init__(self, graph: Graph, *, budget: int | None = None) -> None:
        super().__init__(graph)
        self.budget = budget
        self.edits = 0
        self.rewrites: Counter[str] = Counter()
        self.last: Rewrite | None = None
        self._before_last: Rewrite | None = None
        self.touched: dict[Node, None] = {}
        self.freed: set[Node] = set()
        self.calls: CallChange | None = None

    @property
    def changed(self) -> bool:
        """Whether any edit was made."""
        return self.edits > 0

    def may_rewrite(self, rule: str, node: Node) -> bool:
        """Whether the budget allows one more rewrite; if so it is counted, and new nodes go before `node`."""
        if self.budget is not None and self.rewrites.total() >= self.budget:
            return False
        self.rewrites[rule] += 1
        self._before_last, self.last = (
            self.last,
            Rewrite(rule, node.where(), tuple(value.name for value in node.outputs)),
        )
        self.at(node)
        return True

    def allowed(self, rule: str, nodes: Sequence[Node]) -> Sequence[Node]:
        """Those of `nodes`, the first ones, for which the budget allows a rewrite each; they are counted."""
        left = len(nodes) if self.budget is None else self.budget - self.rewrites.total()
        chosen = nodes[: max(left, 0)]
        if chosen:
            self.rewrites[rule] += len(chosen)
            results = tuple(value.name for value in chosen[-1].outputs)
            self._before_last, self.last = self.last, Rewrite(rule, chosen[-1].where(), results)
        return chosen

    def take_back(self, rule: str) -> None:
        """Uncounts the rewrite that `may_rewrite` allowed last and that then made no edit."""
        self.rewrites[rule] -= 1
        if not self.rewrites[rule]:
            del self.rewrites[rule]
        self.last = self._before_last

    # ---- new nodes

    def node(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        types: Sequence[Type] | None = None,
    ) -> Node:
        """A new node of any op."""
        made = super().node(op, inputs, attrs, types)
        self._note(made)
        return made

    def inline(self, body: Graph, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Copies of `body`'s nodes, `arguments` standing for its inputs; gives what stands for its outputs.

        Raises `TypeRuleError` or `ShapeError`, and makes nothing, when the arguments do not fit (see `Graph.inline`).
        """
        position = self.position
        outputs = self.graph.inline(body, arguments, self.anchor)
        for made in self.made_since(position):
            self._note(made)
        return outputs

    def attempt(self, build: Callable[[], Sequence[Value | None]]) -> tuple[Value | None, ...] | None:
        """What `build` gives, which may only make new nodes; None, and no edit, where an error stops it."""
        position, edits, touched = self.position, self.edits, dict(self.touched)
        try:
            return tuple(build())
        except CapgraphError:
            for made in reversed(self.made_since(position)):
                self.graph.erase(made)
            self.edits, self.touched = edits, touched
            return None

    @property
    def position(self) -> Node | None:
        """The node that new nodes go right after; None at the beginning of the graph."""
        return self.graph.last if self.anchor is None else self.anchor.previous

    def made_since(self, position: Node | None) -> list[Node]:
        """The new nodes since `position` was the position, in order."""
        found: list[Node] = []
        node = self.position
        while node is not None and node is not position:
            found.append(node)
            node = node.previous
        return found[::-1]

    # ---- edits

    def replace(self, node: Node, *values: Value | None) -> None:
        """Makes `values` stand for the results of `node` (None only for an unused one) and erases it.

        A new value takes over the name, and what the old type knew of its sizes. Producers left without uses go too.
        """
        if len(values) != len(node.outputs):
            raise InvalidGraphError(f"{len(values)} values for {len(node.outputs)} results", where=node.where())
        for old, new in zip(node.outputs, values, strict=True):
            if new is not None:
                self.replace_value(old, new)
        self.erase(node)
        self.anchor = None if self.anchor is node else self.anchor

    def replace_value(self, old: Value, new: Value) -> None:
        """Makes every use of `old` read `new`."""
        if old is new:
            return
        for user in old.users:
            self._note(user)
        if compatible(old.type, new.type) is Truth.UNKNOWN and not self._is_told_by(new, old.type):
            self.graph.refine_type(new, old.type)
        self.graph.replace_uses(old, new)
        self._take_name(old, new)
        self.edits += 1

    def _is_told_by(self, value: Value, ty: Type) -> bool:
        """Whether other values or attributes mention symbols that `value` would no longer tell with the type `ty`."""
        lost = type_symbols(value.type) - type_symbols(ty)
        if not lost:
            return False
        others = mentioned(each.type for each in self.graph.values if each is not value)
        return not lost.isdisjoint(others.union(*map(attribute_symbols, self.graph.nodes)))

    def _take_name(self, old: Value, new: Value) -> None:
        if new.producer is None or old.producer is None or not new.name.isdigit() or old.name.isdigit():
            return
        name = old.name
        self.graph.rename(old, "")
        self.graph.rename(new, name)

    def replace_input(self, node: Node, index: int, new: Value | None) -> None:
        """Makes operand `index` of `node` read `new`."""
        old = node.inputs[index]
        if old is new:
            return
        self.graph.replace_input(node, index, new)
        self._note(node)
        self._drop_unused(old)

    def set_output(self, index: int, new: Value) -> None:
        """Makes graph output `index` return `new`."""
        old = self.graph.outputs[index]
        if old is new:
            return
        self.graph.set_output(index, new)
        self.edits += 1
        self._drop_unused(old)

    def set_attrs(self, node: Node, /, **changes: AttrValue) -> None:
        """Changes attributes of `node`, whose result types stay."""
        before = node.attrs
        self.graph.set_attrs(node, **changes)
        if node.attrs != before:
            self._note(node)

    def reorder(self, order: Sequence[Node]) -> None:
        """Brings all nodes into `order`; no edit when they stand in it."""
        if list(self.graph.nodes) != list(order):
            self.graph.reorder(order)
            self.edits += 1

    def adopt(self, other: Graph) -> None:
        """Takes over the content of `other`, what became of the whole graph; nodes of before belong to none."""
        self.graph.adopt(other)
        self.edits += 1
        self.forget_touched()
        self.at(None)

    def edited(self) -> None:
        """Notes an edit that the graph's own methods made, within the rewrite that was allowed last."""
        self.edits += 1

    def move_before(self, node: Node, anchor: Node) -> None:
        """Moves `node` right before `anchor`."""
        self.graph.move_before(node, anchor)
        self._note(node)

    def erase(self, node: Node, kept: Collection[Value | None] = ()) -> None:
        """Removes an unused node, then the producers of its operands that are left unused and not of `kept` values."""
        pending = [node]
        while pending:
            current = pending.pop()
            producers = {value.producer: None for value in current.operands if value.producer is not None}
            self.graph.erase(current)
            self.edits += 1
            self.touched.pop(current, None)
            self.freed.discard(current)
            pending += [each for each in producers if not each.has_uses and not set(each.outputs) & set(kept)]
            self._touch_last_users(current)

    def _drop_unused(self, value: Value | None) -> None:
        if value is not None and value.producer is not None and not value.producer.has_uses:
            self.erase(value.producer)

    def _touch_last_users(self, node: Node) -> None:
        """Who alone reads now what `node` read, and the producer of that, have what some patterns wait for."""
        for value in node.operands:
            if value.use_count == 1:
                self.touched.update(dict.fromkeys(value.users))
                self.freed.difference_update(value.users)
                if value.producer is not None and value.producer not in self.touched:
                    self.touched[value.producer] = None
                    self.freed.add(value.producer)

    def forget_touched(self) -> None:
        """Starts the collection of touched nodes anew."""
        self.touched.clear()
        self.freed.clear()

    def _note(self, node: Node) -> None:
        self.edits += 1
        self.touched[node] = None
        self.freed.discard(node)
