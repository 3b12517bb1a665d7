"""Control flow that is decided before the run: taken branches, counted loops, and what regions need not be given.

An `if` whose condition is constant, or whose bodies do the same, becomes the body. A `loop` or `scan` that is known to
run a small number of times becomes that many copies of its body, one after the other. What is left of control flow
loses the captured values that no body reads and the results that nobody reads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from ...ir.analysis import all_nodes
from ...ir.analysis.contents import constant_of
from ...ir.binding import mentioned
from ...ir.dims import Truth
from ...ir.equality import equal_bodies
from ...ir.errors import TypeRuleError
from ...ir.graph import Graph, Node, Value
from ...ir.ops.regions import attribute_symbols
from ...ir.types import Type, bind_type, compatible
from ..cleanup.static_shapes import KnownSizes
from ..framework.base import Pass
from ..framework.rewriter import Rewriter
from .trim_regions import trim
from .unroll import loop_trips, scan_trips, unroll_loop, unroll_scan

Build = Callable[[], Sequence[Value | None]]


@dataclass(frozen=True)
class SimplifyControlFlow(Pass):
    """Inlines decided branches and unrolls counted loops of up to `limit` nodes (iterations times nodes of the body).

    A copy of a random node is as random as the node was: no two of them are made one.
    """

    name: ClassVar[str] = "simplify-control-flow"
    limit: int = 256

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        while self._sweep(graph, rewriter):
            pass  # an inlined body may own regions that its arguments decide

    def _sweep(self, graph: Graph, rewriter: Rewriter) -> bool:
        """Whether anything was replaced."""
        known = KnownSizes(graph, rewriter)
        before = rewriter.edits
        for node in graph.nodes:
            known.bind(node)
            if not node.regions or not node.has_uses:
                continue
            build = self._inlined(node, rewriter)
            if build is None or not known.replaced(node, partial(_checked, node, build, known, rewriter)):
                trim(node, rewriter)
        return rewriter.edits > before

    def _inlined(self, node: Node, rewriter: Rewriter) -> Build | None:
        """What makes the nodes that stand for `node`; None when it has to stay."""
        inlined = _INLINED.get(node.op.name)
        return inlined(node, self.limit, rewriter) if inlined is not None else None


def _if(node: Node, _limit: int, rewriter: Rewriter) -> Build | None:
    body = _taken(node)
    return None if body is None else lambda: rewriter.inline(body, node.operands[1:])


def _taken(node: Node) -> Graph | None:
    """The body that an `if` runs, where that is known."""
    then_body, else_body = node.regions["then_body"], node.regions["else_body"]
    condition = constant_of(node.operands[0])
    if condition is not None:
        return then_body if bool(condition.array) else else_body
    return then_body if equal_bodies(then_body, else_body) else None


def _loop(node: Node, limit: int, rewriter: Rewriter) -> Build | None:
    trips = loop_trips(node)
    if trips is None or not _is_within(trips, node, limit):
        return None
    return lambda: unroll_loop(node, trips, rewriter)


def _scan(node: Node, limit: int, rewriter: Rewriter) -> Build | None:
    trips = scan_trips(node)
    if trips is None or not _is_within(trips, node, limit):
        return None
    return lambda: unroll_scan(node, trips, rewriter)


def _is_within(trips: int, node: Node, limit: int) -> bool:
    return trips * max(1, sum(1 for _ in all_nodes(node.regions["body"]))) <= limit


_INLINED: Mapping[str, Callable[[Node, int, Rewriter], Build | None]] = MappingProxyType(
    {"if": _if, "loop": _loop, "scan": _scan}
)


def _checked(node: Node, build: Build, known: KnownSizes, rewriter: Rewriter) -> tuple[Value | None, ...]:
    """The values for the results of `node`, None for unread ones. Raises `TypeRuleError` where they cannot stand."""
    position = rewriter.position
    made = build()
    bound = mentioned(value.type for value in rewriter.graph.inputs)
    _require_visible(node, rewriter.made_since(position), bound)
    values = tuple(new if old.has_uses else None for old, new in zip(node.outputs, made, strict=True))
    sizes = known.learned(node, values)
    for old, new in zip(node.outputs, values, strict=True):
        if new is not None:
            _require_fit(bind_type(old.type, sizes), new, bound)
    return values


def _require_visible(owner: Node, made: Sequence[Node], bound: frozenset[str]) -> None:
    """In a region all symbols of its owner's operands may be mentioned, outside only those of a node's own."""
    elsewhere = mentioned(value.type for value in owner.operands) - bound
    for node in made:
        results = mentioned(value.type for value in node.outputs)
        names = (attribute_symbols(node) | results) - mentioned(value.type for value in node.operands)
        if names & elsewhere:
            raise TypeRuleError(f"nothing that {node!r} reads tells {', '.join(sorted(names & elsewhere))}")
        elsewhere |= results - bound


def _require_fit(wanted: Type, value: Value, bound: frozenset[str]) -> None:
    """What cannot be decided is decided by the run, and may be taken as said only of sizes that calls bring along."""
    truth = compatible(wanted, value.type)
    is_of_the_call = mentioned([wanted, value.type]) <= bound
    if truth is Truth.NO or (truth is Truth.UNKNOWN and not is_of_the_call):
        raise TypeRuleError(f"%{value.name}: {value.type} cannot stand for {wanted}")
