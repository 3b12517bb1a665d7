"""The order of a graph's nodes: a linked list with order labels.

Appending, inserting, removing and moving take constant time, and which of two nodes comes first is one comparison of
labels. Labels are spread so that there is room between neighbors; where it runs out, all are spread anew.
"""

# pyright: reportPrivateUsage=false
# The links of a node are private to the list that it stands in.

from collections.abc import Iterator

from .node import Node, write

_GAP = 1 << 32


class NodeList:
    """Nodes in order. A node stands in one list at a time."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.first: Node | None = None
        self.last: Node | None = None
        self.count = 0

    def __iter__(self) -> Iterator[Node]:
        """From first to last; the list must not change meanwhile."""
        node = self.first
        while node is not None:
            yield node
            node = node._next

    def insert(self, node: Node, anchor: Node | None) -> None:
        """Puts `node` right before `anchor`, or last when `anchor` is None."""
        previous = self.last if anchor is None else anchor._previous
        write(node, "_previous", previous)
        write(node, "_next", anchor)
        if previous is None:
            self.first = node
        else:
            write(previous, "_next", node)
        if anchor is None:
            self.last = node
        else:
            write(anchor, "_previous", node)
        self.count += 1
        self._label(node)

    def remove(self, node: Node) -> None:
        """Takes `node` out; its own links stay, so that an iteration that stands on it can go on."""
        if node._previous is None:
            self.first = node._next
        else:
            write(node._previous, "_next", node._next)
        if node._next is None:
            self.last = node._previous
        else:
            write(node._next, "_previous", node._previous)
        self.count -= 1

    def _label(self, node: Node) -> None:
        before = node._previous._label if node._previous is not None else 0
        if node._next is None:
            write(node, "_label", before + _GAP)
            return
        write(node, "_label", (before + node._next._label) // 2)
        if node._label in (before, node._next._label):
            for position, other in enumerate(self, start=1):
                write(other, "_label", position * _GAP)
