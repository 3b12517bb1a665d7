"""Writes one behind the other: those that fill a tensor are its parts put together."""

from collections.abc import Iterator

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.graph import Node, Value
from ....ir.ops.known import TENSOR_SCATTER
from ....ir.ops.rules import normal_axis
from ...framework.pattern import Capture, Found, Match, Rule
from ...framework.rewriter import Rewriter

_MOST = 1 << 14
"""Longer axes are not looked at."""


def _filled(rewriter: Rewriter, found: Found) -> Value | None:
    """What a loop over steps that was unrolled leaves: a write for each step into what was empty before."""
    root = found.root
    axis, size = _axis(root), root.output.shape[_axis(root)]
    if not isinstance(size, int) or size > _MOST or _is_followed(root):
        return None
    is_written, parts = [False] * size, dict[int, Value]()
    for start, update in _writes(root):
        length = update.shape[axis]
        if not isinstance(length, int) or not 0 < length <= size - start or start < 0:
            return None
        seen = is_written[start : start + length]
        if all(seen):
            continue
        if any(seen):
            return None
        is_written[start : start + length] = [True] * length
        parts[start] = update
        if all(is_written):
            return rewriter.op("concat", *(parts[start] for start in sorted(parts)), axis=axis)
    return None


def _axis(node: Node) -> int:
    return normal_axis(node.attrs["axis"], node.output.tensor.rank)


def _is_followed(node: Node) -> bool:
    """Whether another write follows, from which all of them are seen."""
    return any(user.op is TENSOR_SCATTER and user.inputs[0] is node.output for user in node.output.users)


def _writes(root: Node) -> Iterator[tuple[int, Value]]:
    """Where each write begins and what it writes, the last one first; those into a graph's input are left alone."""
    node: Node | None = root
    while node is not None and node.op is TENSOR_SCATTER and _axis(node) == _axis(root):
        base, update = node.operands[:2]
        start = _start(node.inputs[2])
        if start is None or node.attrs["mode"] != "linear" or base.producer is None:
            return
        yield start, update
        node = base.producer


def _start(positions: Value | None) -> int | None:
    """The one number that all positions are."""
    if positions is None:
        return 0
    content = constant_of(positions)
    if content is None or not content.size or np.any(content.array != content.array[0]):
        return None
    return int(content.array[0])


RULES: tuple[Rule, ...] = (Rule("writes-that-fill", Match("tensor_scatter", Capture("x"), more=True), _filled),)
