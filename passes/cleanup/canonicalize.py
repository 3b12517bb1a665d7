"""Canonicalize: bring every node to the one form that other passes look for, and drop what changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..framework.base import PatternPass
from ..framework.pattern import Rule
from .canonical import layout, neutral, parts, reductions, views


@dataclass(frozen=True)
class Canonicalize(PatternPass):
    """Exact local simplifications; the rules stand in `passes/canonical/`."""

    name: ClassVar[str] = "canonicalize"

    def rules(self) -> Sequence[Rule]:
        return (*neutral.RULES, *layout.RULES, *views.RULES, *parts.RULES, *reductions.RULES)
