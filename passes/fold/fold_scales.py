"""Multiplication, division, addition and subtraction of constants go into the weights before or after them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of, keeps_signs
from ...ir.constant import Constant
from ...ir.graph import Node, Value
from ...ir.op import Op
from ...ir.ops.known import ADD, CONV, DIV, GEMM, MATMUL, MUL, SUB
from ..cleanup.canonical.neutral import has_type_of
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Literal, Match, Rule
from ..framework.rewriter import Rewriter
from .absorb import ScaleShift, absorbed, aligned, are_powers_of_two, reciprocal
from .absorb_after import absorbed_after


@dataclass(frozen=True)
class FoldScales(PatternPass):
    """Takes constant factors and addends into constants of a node that is there anyway.

    These are the weight and bias of a convolution or matmul, the parameters of a norm, and another constant factor or
    addend, reached directly or through reshapes and transposes. An addend of 0 goes. A division by powers of two that
    is left is a multiplication, and with `rounds_inverses` one by any constant that has an inverse; other divisions do
    not join factors, as whole quotients stay whole. A zero may change its sign, as -0.0 + 0 is 0, but where a node of
    the graph reads the bits of numbers.
    """

    name: ClassVar[str] = "fold-scales"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING
    rounds_inverses: bool = False

    def rules(self) -> Sequence[Rule]:
        return (*RULES, _ROUNDED_DIVISION if self.rounds_inverses else _EXACT_DIVISION)


def _change(node: Node) -> tuple[Value, ScaleShift] | None:
    """What a node with one constant operand does to its other operand."""
    for side, value in enumerate(node.operands):
        other = node.operands[1 - side]
        content = constant_of(other)
        if content is None or (side == 1 and node.op in (SUB, DIV)) or not has_type_of(value, node):
            continue
        change = _as_affine(node.op, content, value)
        return (value, change) if change is not None else None
    return None


def _as_affine(op: Op, content: Constant, value: Value) -> ScaleShift | None:
    factor = reciprocal(content) if op is DIV else content
    part = aligned(factor, value) if factor is not None else None
    if part is None:
        return None
    if op in (MUL, DIV):
        return ScaleShift(scale=part, is_quotient=op is DIV and not are_powers_of_two(content))
    return ScaleShift(shift=np.negative(part) if op is SUB else part)


def _into_producer(rewriter: Rewriter, found: Found) -> Value | None:
    changed = _change(found.root) if _may_sign_zeros(rewriter, found.root) else None
    plan = absorbed(*changed) if changed is not None else None
    return plan(rewriter) if plan is not None else None


def _into_user(rewriter: Rewriter, found: Found) -> Value | None:
    changed = _change(found.node("changed")) if _may_sign_zeros(rewriter, found.root) else None
    plan = absorbed_after(found.root, *changed) if changed is not None else None
    return plan(rewriter) if plan is not None else None


def _as_product(rewriter: Rewriter, found: Found) -> Value | None:
    """Multiplying by `1 / c` is faster. Where that is rounded, a whole quotient may no longer be whole."""
    inverse = reciprocal(found.constant("c"))
    return rewriter.op("mul", found["x"], rewriter.constant(inverse)) if inverse is not None else None


def _operand(rewriter: Rewriter, found: Found) -> Value | None:
    x = found["x"]
    return x if has_type_of(x, found.root) and _may_sign_zeros(rewriter, found.root) else None


def _may_sign_zeros(rewriter: Rewriter, node: Node) -> bool:
    """Whether nothing sees it if zeros of a result get another sign: (1 - 1) * -2 is -0, and -2 + 2 is 0."""
    return not (node.output.tensor.dtype.is_float and keeps_signs(rewriter.graph))


_ARITHMETIC = (ADD, SUB, MUL, DIV)
_RIGHT = Match(_ARITHMETIC, Capture("x"), Literal(), name="changed")

RULES: tuple[Rule, ...] = (
    Rule("zero-addend", Match((ADD, SUB), Capture("x"), Literal(value=0.0)), _operand),
    Rule("constant-into-producer", _RIGHT, _into_producer),
    Rule("constant-into-user", Match((CONV, GEMM, MATMUL), _RIGHT, more=True), _into_user),
)


_ROUNDED_DIVISION = Rule("division-by-constant", Match("div", Capture("x"), Literal("c")), _as_product)
_EXACT_DIVISION = Rule(
    "division-by-power-of-two", Match("div", Capture("x"), Literal("c", where=are_powers_of_two)), _as_product
)
