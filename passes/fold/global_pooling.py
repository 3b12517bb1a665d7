"""A pool with one window that covers all of every image is a reduction, which runtimes do in one sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import Node, Value
from ...ir.ops.known import AVERAGE_POOL, MAX_POOL
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Match, Rule
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class GlobalPooling(PatternPass):
    """Turns pools over whole images into `reduce_mean` and `reduce_max`; sums may be rounded in another order."""

    name: ClassVar[str] = "global-pooling"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return RULES


def _covers(node: Node) -> bool:
    """One window, from the first element to the last or beyond, without padding or gaps."""
    attrs = node.attrs
    sizes = node.operands[0].shape[2:]
    if any(pad != 0 for pad in attrs["pads"]) or any(step != 1 for step in attrs["dilations"]):
        return False
    is_one = all(count == 1 for count in node.output.shape[2:])
    return is_one and all(isinstance(s, int) and s <= k for s, k in zip(sizes, attrs["kernel"], strict=True))


def _reduced(rewriter: Rewriter, found: Found) -> Value:
    op = "reduce_mean" if found.root.op is AVERAGE_POOL else "reduce_max"
    return rewriter.op(op, found["x"], axes=tuple(range(2, found["x"].tensor.rank)), keep_dims=True)


RULES: tuple[Rule, ...] = (Rule("whole-pool", Match((AVERAGE_POOL, MAX_POOL), Capture("x"), where=_covers), _reduced),)
