"""Passes with planted faults, for the tests of what finds them: right in most places, wrong in one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from capgraph.ir.graph import Value
from capgraph.passes.framework.base import PatternPass
from capgraph.passes.framework.pattern import Capture, Found, Literal, Match, Rule
from capgraph.passes.framework.rewriter import Rewriter

_X = Capture("x")


def _multiply_instead(rewriter: Rewriter, found: Found) -> Value:
    """Right for a divisor of 1 or -1 alone."""
    return rewriter.op("mul", found["x"], found["divisor"])


@dataclass(frozen=True)
class WrongAlgebra(PatternPass):
    """x / c becomes x * c."""

    name: ClassVar[str] = "wrong-algebra"

    def rules(self) -> Sequence[Rule]:
        return (Rule("divide-as-multiply", Match("div", _X, Literal("divisor")), _multiply_instead),)


def _composed_the_wrong_way(rewriter: Rewriter, found: Found) -> Value:
    """Right where the two orders commute."""
    inner, outer = found.node("inner").attrs["perm"], found.root.attrs["perm"]
    return rewriter.op("transpose", found["x"], perm=tuple(outer[axis] for axis in inner))


@dataclass(frozen=True)
class WrongAxis(PatternPass):
    """Two transposes become one with the axes of their product in the other order."""

    name: ClassVar[str] = "wrong-axis"

    def rules(self) -> Sequence[Rule]:
        chain = Match("transpose", Match("transpose", _X, name="inner"))
        return (Rule("transpose-chain-reversed", chain, _composed_the_wrong_way),)


def _unswapped(rewriter: Rewriter, found: Found) -> Value:
    """Right where both are the same."""
    return rewriter.op("sub", found["y"], found["x"])


@dataclass(frozen=True)
class WrongOperandOrder(PatternPass):
    """-(y - x) becomes y - x."""

    name: ClassVar[str] = "wrong-operand-order"

    def rules(self) -> Sequence[Rule]:
        return (Rule("negated-difference", Match("neg", Match("sub", Capture("y"), _X)), _unswapped),)


def _without_bound(rewriter: Rewriter, found: Found) -> Value:
    """Right where no element passes the bound."""
    return rewriter.op("relu", found["x"])


@dataclass(frozen=True)
class DroppedOperand(PatternPass):
    """clip(x, 0, high) becomes relu(x)."""

    name: ClassVar[str] = "dropped-operand"

    def rules(self) -> Sequence[Rule]:
        return (Rule("clip-as-relu", Match("clip", _X, Literal(value=0.0), Capture("high")), _without_bound),)
