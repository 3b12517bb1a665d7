"""Reductions: of reductions, and with a reshape that only adds or drops the reduced axes."""

from ....ir.dims import Dim
from ....ir.graph import Node, Value
from ....ir.op import Trait
from ....ir.ops.interfaces import reduces_axes, with_trait
from ....ir.ops.known import REDUCE_MAX, REDUCE_MIN
from ....ir.ops.rules import normal_axes
from ...framework.pattern import Capture, Found, Match, Rule
from ...framework.rewriter import Rewriter

_REDUCTIONS = tuple(filter(reduces_axes, with_trait(Trait.REDUCTION)))


def _axes(node: Node) -> tuple[int, ...]:
    return normal_axes(node.attrs["axes"], node.operands[0].tensor.rank)


def _reduced_shape(x: Value, axes: tuple[int, ...], keep_dims: bool) -> tuple[Dim, ...]:
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape) if keep_dims or axis not in axes)


def _reshaped(rewriter: Rewriter, found: Found) -> Value | None:
    """The other `keep_dims` gives the reshaped result at once."""
    inner, x = found.node("inner"), found["x"]
    axes, keep_dims = _axes(inner), not inner.attrs["keep_dims"]
    if _reduced_shape(x, axes, keep_dims) != found.root.output.shape:
        return None
    return rewriter.node(inner.op, (x,), {**inner.attrs, "keep_dims": keep_dims}).output


def _softmax_before_reshape(rewriter: Rewriter, found: Found) -> Value | None:
    """The other `keep_dims` spares the reshape here too.

    A pool, flattened for a softmax as older models have to, is a pool again, which runtimes sum in other orders.
    """
    inner, x = found.node("inner"), found["x"]
    axes, was_kept = _axes(inner), inner.attrs["keep_dims"]
    left = [axis for axis in range(x.tensor.rank) if axis not in axes]
    if _reduced_shape(x, axes, not was_kept) != found.root.output.shape:
        return None
    (axis,) = normal_axes((found.node("softmax").attrs["axis"],), inner.output.tensor.rank)
    if was_kept and axis in axes:
        return None
    reduced = rewriter.node(inner.op, (x,), {**inner.attrs, "keep_dims": not was_kept}).output
    return rewriter.op("softmax", reduced, axis=left.index(axis) if was_kept else left[axis])


def _again(rewriter: Rewriter, found: Found) -> Value | None:
    """Maxima of maxima, minima of minima: over all axes at once, which is exact as nothing is rounded."""
    inner, root, x = found.node("inner"), found.root, found["x"]
    if inner.op is not root.op or inner.attrs["keep_dims"] != root.attrs["keep_dims"]:
        return None
    first, second = _axes(inner), _axes(root)
    if not inner.attrs["keep_dims"]:
        left = [axis for axis in range(x.tensor.rank) if axis not in first]
        second = tuple(left[axis] for axis in second)
    axes = tuple(sorted({*first, *second}))
    return rewriter.node(root.op, (x,), {**root.attrs, "axes": axes}).output


_X = Capture("x")
_ORDERED = (REDUCE_MAX, REDUCE_MIN)

_REDUCTION = Match(_REDUCTIONS, _X, name="inner", only_user=True)

RULES: tuple[Rule, ...] = (
    Rule("reshape-of-reduction", Match("reshape", _REDUCTION), _reshaped),
    Rule(
        "reshape-of-softmax-of-reduction",
        Match("reshape", Match("softmax", _REDUCTION, name="softmax", only_user=True)),
        _softmax_before_reshape,
    ),
    Rule("reduction-again", Match(_ORDERED, Match(_ORDERED, _X, name="inner")), _again),
)
