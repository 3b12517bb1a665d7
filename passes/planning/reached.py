"""The part of a graph that some unknown sizes reach, taken out to be worked on, and put back.

What is proven of a size concerns the nodes between the one that makes it and those whose results it has left. The part
is these, and a few nodes before them, of which rules may know something. So the time that many such sizes take is that
of their parts, not of as many whole graphs.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import pairwise

from ...ir.analysis import all_nodes, input_symbols
from ...ir.analysis.extract import part_of
from ...ir.graph import Graph, Node, Value
from ...ir.types import type_symbols
from .padding.walk import symbols_of_attrs
from .specialize import bound_attrs

_CONTEXT = 64
"""How many nodes before those that sizes reach are looked at with them."""


class Mentions:
    """Which nodes of a graph mention which symbols, in their types and attributes."""

    def __init__(self, graph: Graph) -> None:
        self.of_inputs = frozenset(input_symbols(graph))
        self._nodes: dict[str, dict[Node, None]] = {}
        for node in graph.nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Takes in a node that is new."""
        for name in _mentioned_by(node):
            self._nodes.setdefault(name, {})[node] = None

    def remove(self, node: Node) -> None:
        """Leaves out a node that is to be erased."""
        for name in _mentioned_by(node):
            del self._nodes[name][node]

    def of(self, names: Iterable[str]) -> list[Node]:
        """The nodes that mention one of `names`."""
        return list(dict.fromkeys(node for name in names for node in self._nodes.get(name, ())))


def _mentioned_by(node: Node) -> frozenset[str]:
    types = (value.type for value in (*node.operands, *node.outputs))
    return symbols_of_attrs(node).union(*map(type_symbols, types))


@dataclass(frozen=True)
class Reached:
    """`nodes` of a graph in order, the `results` that others read, and a copy as `part`, which gives those.

    `early` nodes stand between them and do not depend on them, `late` ones do. `known` are names of values that the
    part computes too, for what may be known of them.
    """

    nodes: tuple[Node, ...]
    results: tuple[Value, ...]
    early: tuple[Node, ...]
    late: tuple[Node, ...]
    known: frozenset[str]
    part: Graph

    @property
    def passes_draws(self) -> bool:
        """Whether nodes of random numbers, or of unknown effects, would stand in another order when it is put back."""
        drawing = list(filter(_draws, (*self.early, *self.nodes, *self.late)))
        return any(later.precedes(node) for node, later in pairwise(drawing))


def _draws(node: Node) -> bool:
    inner = (each for region in node.regions.values() for each in all_nodes(region))
    return not node.op.is_pure or any(not each.op.is_pure for each in inner)


def reached(graph: Graph, mentions: Mentions, names: Collection[str]) -> Reached:
    """What some symbols reach, at least one node, and all nodes on a way from one of these to another."""
    core = set(mentions.of(names))
    window = _from_first_to_last(core)
    behind: set[Node] = set()
    for node in window:
        if any(value.producer in core or value.producer in behind for value in node.operands):
            behind.add(node)
    inside: set[Node] = set()
    for node in reversed(window):
        if node in core or (node in behind and any(user in inside for value in node.outputs for user in value.users)):
            inside.add(node)
    nodes = tuple(node for node in window if node in inside)
    results = tuple(value for node in nodes for value in node.outputs if value.is_read_outside(inside))
    context = _before(nodes, inside)
    part_nodes = [*context, *nodes]
    made = {value for node in part_nodes for value in node.outputs}
    taken = dict.fromkeys(value for node in part_nodes for value in node.operands if value not in made)
    return Reached(
        nodes,
        results,
        tuple(node for node in window if node not in inside and node not in behind),
        tuple(node for node in window if node in behind and node not in inside),
        frozenset(value.name for node in context for value in node.outputs),
        part_of(graph, part_nodes, list(taken), results),
    )


def _from_first_to_last(nodes: Collection[Node]) -> list[Node]:
    first = last = next(iter(nodes))
    for node in nodes:
        first, last = (node if node.precedes(first) else first), (node if last.precedes(node) else last)
    found = [last]
    while found[-1] is not first:
        previous = found[-1].previous
        assert previous is not None  # `first` comes before
        found.append(previous)
    return found[::-1]


def _before(nodes: Iterable[Node], inside: Collection[Node]) -> list[Node]:
    """The nearest nodes that others need, in order."""
    found: dict[Node, None] = {}
    pending = list(nodes)
    for node in pending:
        for value in node.operands:
            producer = value.producer
            if producer is not None and producer not in inside and producer not in found and len(found) < _CONTEXT:
                found[producer] = None
                pending.append(producer)
    return sorted(found, key=cmp_to_key(_order))


def _order(one: Node, other: Node) -> int:
    return -1 if one.precedes(other) else 1


def put_back(graph: Graph, was: Reached, part: Graph, mentions: Mentions) -> dict[Value, Value]:
    """Puts `part`, what became of the copy, in the place of the nodes. Where each of its values is now.

    Raises what an edit of a graph raises, and changes nothing then.
    """
    anchor = was.late[0] if was.late else was.nodes[-1]  # all that they read is known there
    with ExitStack() as undo:
        for node in was.early if was.late else ():
            if anchor.precedes(node):
                following = node.next
                assert following is not None  # one of the nodes, or what reads them
                undo.callback(graph.move_before, node, following)
                graph.move_before(node, anchor)
        where = _with_copies(graph, was, part, mentions, anchor, undo)
        _read_instead(graph, was, [where[value] for value in part.outputs], undo)
        undo.pop_all()
    for node in reversed(was.nodes):
        mentions.remove(node)
        graph.erase(node)
    for value, new in where.items():
        if new.name != value.name:  # the old node had it
            graph.rename(new, value.name)
    return where


def _with_copies(
    graph: Graph, was: Reached, part: Graph, mentions: Mentions, anchor: Node, undo: ExitStack
) -> dict[Value, Value]:
    """Copies the nodes of `part` to before `anchor`. Where each of its values is now."""
    where: dict[Value, Value] = {value: graph.value(value.name) for value in part.inputs}
    for node in part.nodes:
        if node.outputs[0].name in was.known:
            where.update((value, graph.value(value.name)) for value in node.outputs)
            continue
        copied = _copied(graph, node, where, anchor)
        undo.callback(graph.erase, copied)
        mentions.add(copied)
        undo.callback(mentions.remove, copied)
        where.update(zip(node.outputs, copied.outputs, strict=True))
    return where


def _read_instead(graph: Graph, was: Reached, results: Sequence[Value], undo: ExitStack) -> None:
    """Makes others read `results` instead of those of the nodes."""
    inside = set(was.nodes)
    for old, new in zip(was.results, results, strict=True):
        for use in old.uses:
            if isinstance(use.user, Graph):
                graph.set_output(use.index, new)
                undo.callback(graph.set_output, use.index, old)
            elif use.user not in inside:
                graph.replace_input(use.user, use.index, new)
                undo.callback(graph.replace_input, use.user, use.index, old)


def _copied(graph: Graph, node: Node, where: dict[Value, Value], anchor: Node) -> Node:
    operands = [where[value] if value is not None else None for value in node.inputs]
    types = [value.type for value in node.outputs]
    names = [value.name for value in node.outputs]
    attrs = bound_attrs(node.attrs, {}, graph.symbols)
    return graph.insert_before(anchor, node.op, operands, attrs, types=types, names=names, origin=node.origin)
