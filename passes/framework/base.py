"""What a pass is.

A pass is a frozen dataclass: its class attribute `name` is its name in pipelines and on the command line, its fields
are its options, and `run` is all that its author writes. The contract: a valid graph stays valid and means the same,
within what `exactness` allows; every edit goes through the `Rewriter`, which alone knows whether anything changed; and
a second run right after the first changes nothing.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ...ir.attrs import is_tuple
from ...ir.errors import CapgraphError, UnsupportedError
from ...ir.graph import Graph
from .driver import apply_rules
from .exactness import Exactness
from .pattern import Rule
from .rewriter import Rewriter


@dataclass(frozen=True)
class Pass(ABC):
    """A change of a whole graph. Subclasses are frozen dataclasses.

    The pipeline runs a pass on every region as well, innermost first, on bodies of fused nodes only if `enters_fused`.
    One that `runs_once` is of the whole graph: it does not run on regions, nor again when its stage repeats. A pass
    that `changes_calls` may give the graph other inputs or outputs and then says so in `Rewriter.calls`. Errors of the
    kinds in `refusals` tell of what the pass was asked for, such as sizes that the graph cannot have; all others are
    its faults.
    """

    name: ClassVar[str]
    exactness: ClassVar[Exactness] = Exactness.EXACT
    enters_fused: ClassVar[bool] = True
    runs_once: ClassVar[bool] = False
    changes_calls: ClassVar[bool] = False
    refusals: ClassVar[tuple[type[CapgraphError], ...]] = ()

    @abstractmethod
    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        """Rewrites `graph` through `rewriter`."""

    def __str__(self) -> str:
        """The textual form: the name, and the options that differ from their defaults in braces."""
        shown = [f for f in fields(self) if f.repr and getattr(self, f.name) != f.default]
        options = [f"{f.name}={_text(getattr(self, f.name))}" for f in shown]
        return f"{self.name}{{{', '.join(options)}}}" if options else self.name

    @classmethod
    def from_options(cls, options: dict[str, str]) -> "Pass":
        """An instance with options given as text. Raises `UnsupportedError` for an unknown option or a bad value."""
        known = {f.name: f.default for f in fields(cls)}
        for option in options:
            if option not in known:
                listed = ", ".join(known) or "none"
                raise UnsupportedError(f"pass {cls.name} has no option {option}", remedy=f"its options: {listed}")
        return cls(**{option: _value(cls.name, option, text, known[option]) for option, text in options.items()})


class PatternPass(Pass):
    """A pass that is a set of local rewrites, applied until none matches."""

    @abstractmethod
    def rules(self) -> Sequence[Rule]:
        """The rewrites, those tried first standing first."""

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        apply_rules(graph, rewriter, self.rules())


def _text(value: Any) -> str:
    if is_tuple(value):
        return "+".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(name: str, option: str, text: str, default: Any) -> Any:
    """`text` as the type of the option's default."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return float(text)
    except (KeyError, ValueError):
        wanted = type(default).__name__
        raise UnsupportedError(
            f"option {option} of pass {name} takes {wanted}, not {text!r}", remedy=f"as in {option}={_text(default)}"
        ) from None
    return tuple(re.split(r"\s*\+\s*", text)) if isinstance(default, tuple) else text
