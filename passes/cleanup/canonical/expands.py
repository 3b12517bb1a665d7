"""Expansions: an op that broadcasts anyway needs none before it, and what is repeated is computed once before it is."""

from collections.abc import Sequence

from ....ir.dims import Truth
from ....ir.graph import Node, Value
from ....ir.op import Trait
from ....ir.ops.known import CONSTANT, EXPAND
from ....ir.types import compatible
from ...framework.pattern import Found, Match, Rule
from ...framework.rewriter import Rewriter


def _without_expand(rewriter: Rewriter, found: Found) -> Value | None:
    """The first operand that is expanded, and need not be for the result to have its shape."""
    root = found.root
    for index, value in enumerate(root.inputs):
        source = _expanded(value)
        if source is None:
            continue
        inputs = [*root.inputs[:index], source, *root.inputs[index + 1 :]]
        if _has_type_with(root, inputs):
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


def _is_single(value: Value | None) -> bool:
    return value is not None and all(size == 1 for size in value.shape)


def _has_type_with(node: Node, inputs: Sequence[Value | None]) -> bool:
    types = [value.type if value is not None else None for value in inputs]
    (made,) = node.op.result_types(types, node.attrs)
    return compatible(node.output.type, made) is Truth.YES


RULES: tuple[Rule, ...] = (
    Rule("no-expand-before-broadcast", Match(Trait.BROADCASTS, more=True), _without_expand),
    Rule("expand-after", Match(Trait.BROADCASTS, more=True), _after_op),
)
