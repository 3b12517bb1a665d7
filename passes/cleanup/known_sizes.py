"""Sizes that become known: the symbols of a replaced node's results are bound wherever they are mentioned below it.

A node whose result sizes only running can tell makes symbols for them. What takes its place may know these sizes, and
the symbols, which nothing makes any more, must go from the types, attributes and regions of all nodes that follow.
"""

from collections.abc import Sequence

from ...ir.binding import Sizes, bind_attr, mentioned, plain_sizes
from ...ir.graph import Graph, Node, Value
from ...ir.op import FRESH
from ...ir.ops.regions import free_symbols
from ...ir.types import Type, bind_type
from ..framework.rewriter import Rewriter


class KnownSizes:
    """What one walk over a graph, first node to last, learns of sizes. Every node walked over goes through `bind`."""

    def __init__(self, graph: Graph, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._bound = mentioned(value.type for value in graph.inputs)
        self._sizes: Sizes = {}
        self._mentioned_before: dict[Node, frozenset[str]] = {}

    def learned(self, node: Node, values: Sequence[Value | None]) -> Sizes:
        """The sizes of the symbols that `node` makes, if `values` stand for its results (None for an unused one)."""
        given = self._bound | mentioned(value.type for value in node.operands)
        sizes: Sizes = {}
        for old, new in zip(node.outputs, values, strict=True):
            if new is not None:
                made = mentioned([old.type]) - given
                sizes.update((name, size) for name, size in plain_sizes(old.type, new.type) if name in made)
        return sizes

    def replace(self, node: Node, values: Sequence[Value | None]) -> None:
        """Makes `values` stand for the results of `node`, and notes what that tells of sizes."""
        sizes = self.learned(node, values)
        self._sizes.update(sizes)
        for old in node.outputs:
            self._refine(old, bind_type(old.type, sizes))
        self._rewriter.replace(node, *values)

    def bind(self, node: Node) -> None:
        """Replaces symbols by what is known of them in the result types, attributes and regions of a node."""
        if not self._sizes:
            return
        for value in node.outputs:
            self._refine(value, bind_type(value.type, self._sizes))
        changes = {name: bind_attr(value, self._sizes) for name, value in node.attrs.items()}
        changes = {name: value for name, value in changes.items() if value is not node.attrs[name]}
        changes.update(self._bound_regions(node))
        if changes:
            self._rewriter.set_attrs(node, **changes)
        known = self._known_by_rule(node)
        self._sizes.update(known)
        for value in node.outputs:
            self._refine(value, bind_type(value.type, known))

    def _known_by_rule(self, node: Node) -> Sizes:
        """The sizes that `node` made symbols for and that its rule knows, now that more is known of the operands."""
        made = mentioned(value.type for value in node.outputs)
        made -= self._bound | mentioned(value.type for value in node.operands)
        if not made or node.op.is_foreign:
            return {}
        inferred = node.op.result_types(
            [value.type if value is not None else None for value in node.inputs], node.attrs
        )
        pairs = zip(node.outputs, inferred, strict=True)
        sizes = (each for value, ty in pairs for each in plain_sizes(value.type, ty))
        return {name: size for name, size in sizes if name in made and size != FRESH}

    def _refine(self, value: Value, ty: Type) -> None:
        if ty == value.type:
            return
        for user in value.users:
            if user.regions:
                before = self._mentioned_before.get(user, frozenset())
                self._mentioned_before[user] = before | mentioned([value.type])
        self._rewriter.graph.refine_type(value, ty)

    def _bound_regions(self, node: Node) -> dict[str, Graph]:
        """Copies of the regions that mention a size which got known.

        A symbol of a region's inputs is the region's own unless the operands mention it, or did before it was bound.
        """
        outside = self._mentioned_before.get(node, frozenset()) | mentioned(value.type for value in node.operands)
        copies: dict[str, Graph] = {}
        for name, region in node.regions.items():
            own = mentioned(value.type for value in region.inputs) - outside
            inner = {symbol: size for symbol, size in self._sizes.items() if symbol not in own}
            if inner.keys() & (free_symbols(region) | mentioned(value.type for value in region.values)):
                copies[name] = region.clone_with_map(self._rewriter.graph.symbols, inner)[0]
        return copies
