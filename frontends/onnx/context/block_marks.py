"""What nodes that are imported from MatMulNBits do not say of it: kept in their metadata, in files too."""

from dataclasses import replace
from typing import NamedTuple

from ....ir.graph import Node
from ....ir.node import Origin

_KEY = "com.microsoft.MatMulNBits"
_BIAS = "Bias"


class BlockMark(NamedTuple):
    """The level of accuracy that was asked for (0: none, floats), and whether the operator had a bias."""

    accuracy: int = 0
    has_bias: bool = False


def marked(origin: Origin | None, mark: BlockMark) -> Origin:
    """`origin` with a mark, in the place of any that it has."""
    origin = origin or Origin()
    others = (entry for entry in origin.metadata if entry[0] != _KEY)
    text = f"{mark.accuracy} {_BIAS}" if mark.has_bias else str(mark.accuracy)
    return replace(origin, metadata=(*others, (_KEY, text)))


def mark_of(node: Node) -> BlockMark | None:
    """The mark of a node; None without one, or with one that somebody else has written."""
    words = dict(node.origin.metadata).get(_KEY, "").split() if node.origin is not None else []
    is_ours = bool(words) and words[0].isdecimal() and words[1:] in ([], [_BIAS])
    return BlockMark(int(words[0]), len(words) > 1) if is_ours else None
