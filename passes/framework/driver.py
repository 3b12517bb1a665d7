"""The one driver of local rewrites: a worklist over the nodes of a graph, until no rule matches.

Nodes are looked at in topological order; after a rewrite, the nodes that it made or touched and the users of its
results are looked at again. A set of rules that feeds itself for ever is stopped by a limit that a terminating set
cannot reach.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from ...ir.errors import InternalError
from ...ir.graph import Graph, Node, Value
from .faults import FAULTS, fault
from .pattern import Rule, find
from .rewriter import Rewriter

REWRITES_PER_NODE = 64
"""A graph of n nodes may be rewritten this many times n; more means that rules undo each other."""

MANY_USES = 16
"""A value with more uses is not followed to its users after a rewrite."""


def apply_rules(graph: Graph, rewriter: Rewriter, rules: Sequence[Rule]) -> None:
    """Applies `rules` to `graph` until none matches. Raises `InternalError` naming the rule that loops."""
    by_op = _index(rules)
    worklist = _Worklist(graph.nodes)
    limit = REWRITES_PER_NODE * (len(graph) + 16)
    while (node := worklist.pop()) is not None:
        if node.graph is not graph:
            continue
        rule = _rewrite(node, by_op.get(node.op.name, ()), rewriter)
        if rule is None:
            continue
        limit -= 1
        if limit < 0:
            raise InternalError(f"the rules do not come to an end; last applied: {rewriter.last}")
        worklist.extend(_affected(rewriter, graph))


def _index(rules: Sequence[Rule]) -> dict[str, list[Rule]]:
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        for op in rule.pattern.op:
            by_op.setdefault(op, []).append(rule)
    return by_op


def _rewrite(node: Node, rules: Iterable[Rule], rewriter: Rewriter) -> Rule | None:
    """Applies the first rule that matches `node` and does not decline. Raises `InternalError` naming a faulty rule."""
    for rule in rules:
        try:
            found = find(rule.pattern, node)
            if found is None:
                continue
            rewriter.forget_touched()
            if not rewriter.may_rewrite(rule.name, node):
                return None
            edits = rewriter.edits
            values = rule.replace(rewriter, found)
            if values is not None:
                _commit(rewriter, node, values)
        except FAULTS as error:
            raise fault(f"rule {rule.name}", error, node.where()) from error
        if rewriter.edits > edits:
            return rule
        rewriter.take_back(rule.name)
    return None


def _commit(rewriter: Rewriter, node: Node, values: Value | Sequence[Value | None]) -> None:
    given = (values,) if isinstance(values, Value) else tuple(values)
    rewriter.replace(node, *given, *(None,) * (len(node.outputs) - len(given)))


def _affected(rewriter: Rewriter, graph: Graph) -> list[Node]:
    """What to look at again: touched nodes, and their users up to a depth that patterns can see."""
    found: dict[Node, None] = dict(rewriter.touched)
    # The one reader of a freed result is touched itself; readers of thousands of other results saw no change.
    frontier = [node for node in found if node not in rewriter.freed or len(node.outputs) <= MANY_USES]
    rewriter.forget_touched()
    for _ in range(2):
        frontier = [user for node in frontier for user in _near_users(node) if user not in found]
        found.update(dict.fromkeys(frontier))
    return [node for node in found if node.graph is graph]


def _near_users(node: Node) -> Iterator[Node]:
    """The users of a node's results, where they are few.

    A constant or mask that thousands read does not make them all worth another look: those that got it just now are
    touched themselves.
    """
    for value in node.outputs:
        if value.use_count <= MANY_USES:
            yield from value.users


class _Worklist:
    """First in, first out, each node at most once."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._queue = deque(nodes)
        self._queued = set(self._queue)

    def pop(self) -> Node | None:
        if not self._queue:
            return None
        node = self._queue.popleft()
        self._queued.discard(node)
        return node

    def extend(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node not in self._queued:
                self._queued.add(node)
                self._queue.append(node)
