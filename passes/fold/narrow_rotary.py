"""Heads of floats below f32 that are rotated in f32 are rotated as they are, with their tables in f32.

Models cast queries and keys to f32 before they rotate them, and back. A kernel that rotates reads and writes smaller
floats and computes in f32 by itself, which gives the same bits. Programs for a GPU do this, where launches cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import Value
from ...ir.types import DType
from ..framework.base import PatternPass
from ..framework.pattern import Capture, Found, Match, Rule
from ..framework.rewriter import Rewriter

_TABLES = (Capture("cos"), Capture("sin"), Capture("positions", is_optional=True))


def _narrowed(rewriter: Rewriter, found: Found) -> Value | None:
    x, node = found["x"], found.node("rotary")
    if not x.tensor.dtype.is_small_float or found.root.output.tensor.dtype is not x.tensor.dtype:
        return None
    if any(value.tensor.dtype is not DType.F32 for value in (node.output, found["cos"])):
        return None
    return rewriter.node(node.op, (x, *node.inputs[1:]), node.attrs).output


@dataclass(frozen=True)
class NarrowRotary(PatternPass):
    """Takes casts away around `rotary_embedding` in f32 of what was and will be a smaller float."""

    name: ClassVar[str] = "narrow-rotary"

    def rules(self) -> Sequence[Rule]:
        turned = Match("rotary_embedding", Match("cast", Capture("x")), *_TABLES, name="rotary", only_user=True)
        return (Rule("narrow-rotary", Match("cast", turned), _narrowed),)
