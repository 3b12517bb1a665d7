"""Reshapes and transposes in turns: one of three goes where a transpose can move past a reshape."""

from ....ir.graph import Value
from ....ir.ops.rules import normal_axes
from ...framework.pattern import Capture, Found, Match, Rule
from ...framework.rewriter import Rewriter
from .carried import after_reshape, before_reshape, units_as_in_result, units_in_place


def _reshape_around_transpose(rewriter: Rewriter, found: Found) -> Value | None:
    """`reshape(transpose(reshape(x)))`: the transpose goes to one of the ends."""
    x, middle, target = found["x"], found.node("first").output.shape, found.root.output.shape
    perm = normal_axes(found.node("move").attrs["perm"], len(middle))
    order = before_reshape(x.shape, middle, perm)
    if order is not None:
        return rewriter.op("reshape", rewriter.op("transpose", x, perm=order), shape=target)
    later = after_reshape(middle, perm, target)
    if later is None:
        return None
    shape, order = later
    return rewriter.op("transpose", rewriter.op("reshape", x, shape=shape), perm=order)


def _transpose_around_reshape(rewriter: Rewriter, found: Found) -> Value | None:
    """`transpose(reshape(transpose(x)))`: the two transposes become one."""
    x, first, middle = found["x"], found.node("first").output.shape, found.node("reshape").output.shape
    inner = normal_axes(found.node("first").attrs["perm"], len(first))
    outer = normal_axes(found.root.attrs["perm"], len(middle))
    order = before_reshape(first, middle, outer)
    if order is not None:
        moved = rewriter.op("transpose", x, perm=tuple(inner[axis] for axis in order))
        return rewriter.op("reshape", moved, shape=found.root.output.shape)
    later = after_reshape(x.shape, inner, middle)
    if later is None:
        return None
    shape, order = later
    return rewriter.op("transpose", rewriter.op("reshape", x, shape=shape), perm=tuple(order[axis] for axis in outer))


def _reshape_of_transpose(rewriter: Rewriter, found: Found) -> Value | None:
    """Where axes of size 1 stand before a reshape says nothing: one form, which further patterns expect."""
    x, move = found["x"], found.node("move")
    perm = normal_axes(move.attrs["perm"], x.tensor.rank)
    order = units_in_place(x.shape, perm)
    if order == perm:
        return None
    return rewriter.op("reshape", rewriter.op("transpose", x, perm=order), shape=found.root.output.shape)


def _transpose_of_reshape(rewriter: Rewriter, found: Found) -> Value | None:
    """Axes of size 1 stand in the reshape's result where they are wanted in the end."""
    middle = found.node("reshape").output.shape
    perm = normal_axes(found.root.attrs["perm"], len(middle))
    shape, order = units_as_in_result(middle, perm)
    if shape == middle:
        return None
    return rewriter.op("transpose", rewriter.op("reshape", found["x"], shape=shape), perm=order)


_X = Capture("x")

RULES: tuple[Rule, ...] = (
    Rule(
        "reshape-around-transpose",
        Match(
            "reshape",
            Match("transpose", Match("reshape", _X, name="first", only_user=True), name="move", only_user=True),
        ),
        _reshape_around_transpose,
    ),
    Rule(
        "transpose-around-reshape",
        Match(
            "transpose",
            Match("reshape", Match("transpose", _X, name="first", only_user=True), name="reshape", only_user=True),
        ),
        _transpose_around_reshape,
    ),
    Rule(
        "reshape-of-transpose",
        Match("reshape", Match("transpose", _X, name="move", only_user=True)),
        _reshape_of_transpose,
    ),
    Rule(
        "transpose-of-reshape",
        Match("transpose", Match("reshape", _X, name="reshape", only_user=True)),
        _transpose_of_reshape,
    ),
)
