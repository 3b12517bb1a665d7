"""Windows: zeros around a tensor become a window's padding, and one window over all of every image is a reduction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.dims import Dim, Truth, is_at_least
from ...ir.graph import Node, Value
from ...ir.ops.known import AVERAGE_POOL, MAX_POOL
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Match, Rule
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class FoldPadding(PatternPass):
    """Zeros put around a tensor become the padding of the convolution or average pool that reads it.

    Takes a `pad` with zeros into `conv`, and into `average_pool` where every window then counts its padding.
    """

    name: ClassVar[str] = "fold-padding"

    def rules(self) -> Sequence[Rule]:
        return _PADDING


def _is_zero_padding(node: Node) -> bool:
    """Zeros, as many as zero or more, at the spatial axes of `[N, C, D1, ...]` alone."""
    x, value = node.inputs
    assert x is not None  # only the value is optional
    rank, pads = x.tensor.rank, node.attrs["pads"]
    content = constant_of(value)
    if node.attrs["mode"] != "constant" or rank < 3 or (value is not None and content is None):
        return False
    if content is not None and np.any(content.array):
        return False
    if any(pad != 0 for pad in (*pads[:2], *pads[rank : rank + 2])):
        return False
    return all(is_at_least(pad, 0) is Truth.YES for pad in pads)


def _joined(root: Node, pad: Node) -> tuple[Dim, ...]:
    """The pads of both nodes."""
    rank = len(pad.attrs["pads"]) // 2
    outer = (*pad.attrs["pads"][2:rank], *pad.attrs["pads"][rank + 2 :])
    return tuple(own + more for own, more in zip(root.attrs["pads"], outer, strict=True))


def _into_conv(rewriter: Rewriter, found: Found) -> Value:
    attrs = {**found.root.attrs, "pads": _joined(found.root, found.node("pad"))}
    return rewriter.node(found.root.op, (found["x"], *found.root.inputs[1:]), attrs).output


def _into_average_pool(rewriter: Rewriter, found: Found) -> Value | None:
    """The zeros were counted, so they still must be; a window that sticks out counts differently and stays."""
    attrs = found.root.attrs
    is_padded = any(pad != 0 for pad in attrs["pads"])
    if attrs["ceil_mode"] or (is_padded and not attrs["count_include_pad"]):
        return None
    pads = _joined(found.root, found.node("pad"))
    widths = [d * (k - 1) + 1 for k, d in zip(attrs["kernel"], attrs["dilations"], strict=True)]
    if not all(isinstance(pad, int) and pad < width for pad, width in zip(pads, widths * 2, strict=True)):
        return None  # runtimes refuse pads as wide as the window
    return rewriter.op("average_pool", found["x"], **{**attrs, "pads": pads, "count_include_pad": True})


_PAD = Match("pad", Capture("x"), Capture("value", is_optional=True), name="pad", where=_is_zero_padding)

_PADDING: tuple[Rule, ...] = (
    Rule("padding-into-conv", Match("conv", _PAD, more=True), _into_conv),
    Rule("padding-into-average-pool", Match("average_pool", _PAD), _into_average_pool),
)


@dataclass(frozen=True)
class GlobalPooling(PatternPass):
    """A pool with one window that covers all of every image is a reduction, which runtimes do in one sweep.

    Turns pools over whole images into `reduce_mean` and `reduce_max`; sums may be rounded in another order.
    """

    name: ClassVar[str] = "global-pooling"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return _POOLING


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


_POOLING: tuple[Rule, ...] = (
    Rule("global-pool", Match((AVERAGE_POOL, MAX_POOL), Capture("x"), where=_covers), _reduced),
)
