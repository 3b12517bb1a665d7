"""Expansions in front of ops that broadcast, and reductions of reductions or beside reshapes of the reduced axes."""

from collections.abc import Sequence

from ....ir.dims import Dim, Truth, compare
from ....ir.graph import Node, Value
from ....ir.op import Trait
from ....ir.ops.interfaces import reduces_axes, with_trait
from ....ir.ops.known import CONSTANT, EXPAND, REDUCE_MAX, REDUCE_MIN
from ....ir.ops.rules import normal_axes
from ....ir.types import compatible
from ...framework.pattern import Capture, Found, Match, Rule
from ...framework.rewriter import Rewriter


def _without_expand(rewriter: Rewriter, found: Found) -> Value | None:
    """The first operand that is expanded, and need not be for the result to have its shape."""
    root = found.root
    for index, value in enumerate(root.inputs):
        source = _expanded(value)
        if source is None:
            continue
        inputs = [*root.inputs[:index], source, *root.inputs[index + 1 :]]
        if _has_type_with(root, inputs) and _tell_sizes(value, inputs):
            return rewriter.op(root.op.name, *inputs, **dict(root.attrs))
    return None


def _after_op(rewriter: Rewriter, found: Found) -> Value | None:
    """Where one operand is expanded and the others are single numbers, the op comes first and the expand last."""
    root = found.root
    sources = [_expanded(value) for value in root.inputs]
    expanded = [source for source in sources if source is not None]
    if len(expanded) != 1 or not all(_is_single(v) for v, s in zip(root.inputs, sources, strict=True) if s is None):
        return None
    inputs = [value if source is None else source for value, source in zip(root.inputs, sources, strict=True)]
    made = rewriter.op(root.op.name, *inputs, **dict(root.attrs))
    return rewriter.op("expand", made, shape=root.output.shape)


def _expanded(value: Value | None) -> Value | None:
    """What `value` expands, if that is its only reader or a constant (which folds)."""
    node = value.producer if value is not None else None
    if value is None or node is None or node.op is not EXPAND:
        return None
    source = node.operands[0]
    is_constant = source.producer is not None and source.producer.op is CONSTANT
    return source if is_constant or len(value.uses) == 1 else None


def _tell_sizes(value: Value | None, inputs: Sequence[Value | None]) -> bool:
    """Whether each size of `value` is that of another operand: one that only meets it may be 1."""
    shapes = [each.shape[::-1] for each in inputs if each is not None and each.tensor.shape is not None]
    sizes = value.shape[::-1] if value is not None else ()
    return all(
        any(axis < len(shape) and compare(size, shape[axis]) is Truth.YES for shape in shapes)
        for axis, size in enumerate(sizes)
    )


def _is_single(value: Value | None) -> bool:
    return value is not None and all(size == 1 for size in value.shape)


def _has_type_with(node: Node, inputs: Sequence[Value | None]) -> bool:
    types = [value.type if value is not None else None for value in inputs]
    (made,) = node.op.result_types(types, node.attrs)
    return compatible(node.output.type, made) is Truth.YES


_EXPANSIONS: tuple[Rule, ...] = (
    Rule("no-expand-before-broadcast", Match(Trait.BROADCASTS, more=True), _without_expand),
    Rule("expand-after", Match(Trait.BROADCASTS, more=True), _after_op),
)


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
    *_EXPANSIONS,
)
