"""Transposes that cancel across other operations, and never become more.

A transpose is taken up through the expression that makes its operand: elementwise operations, concats, pads, slices,
softmax and reductions do the same in another order of axes. At the leaves it meets the inverse transpose and both go,
or a constant that is stored in the other order; any other leaf would need a transpose of its own. The move is made only
if fewer transposes are left, so that it ends. What tf2onnx puts around channels-first operations is gone after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from ...ir.analysis.contents import any_constant_of, constant_of
from ...ir.attrs import AttrValue
from ...ir.constant import Constant
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.ops.interfaces import reduces_axes, with_trait
from ...ir.ops.known import TRANSPOSE
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import TensorType
from ..framework.base import PatternPass
from ..framework.deferred import transposed
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Match, Rule
from ..framework.rewriter import Rewriter

MAX_DEPTH = 8
"""How many operations a transpose is taken through at most."""

MAX_SHARED_BYTES = 1 << 16
"""A constant with further uses is copied in the other order up to this size."""

Perm = tuple[int, ...]


@dataclass(frozen=True)
class SinkTransposes(PatternPass):
    """Removes transposes that meet their inverses across other operations, and joins equal ones below operations."""

    name: ClassVar[str] = "sink-transposes"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING  # a sum along another axis of memory adds in another order

    def rules(self) -> Sequence[Rule]:
        return RULES


@dataclass(frozen=True)
class _Plan:
    """How to make a transposed value, and how many more transposes there are then."""

    cost: int
    build: Callable[[Rewriter], Value]


def _transposed(value: Value, perm: Perm, depth: int) -> _Plan:
    """The cheapest plan for `value` transposed by `perm`."""
    found = _stored(value, perm) or _cancelled(value, perm) or _through(value, perm, depth)
    if found is not None and found.cost <= 1:
        return found
    return _Plan(1, lambda rewriter: rewriter.op("transpose", value, perm=perm))


def _stored(value: Value, perm: Perm) -> _Plan | None:
    content = any_constant_of(value)
    if content is None or (value.use_count > 1 and content.nbytes > MAX_SHARED_BYTES):
        return None
    return _Plan(0, lambda rewriter: rewriter.constant(transposed(content, perm)))


def _cancelled(value: Value, perm: Perm) -> _Plan | None:
    """Two transposes are one, or none."""
    node = value.producer
    if node is None or node.op is not TRANSPOSE:
        return None
    x = node.operands[0]
    inner = normal_axes(node.attrs["perm"], len(perm))
    joined = tuple(inner[axis] for axis in perm)
    saved = int(value.use_count == 1)
    if joined == tuple(range(len(perm))):
        return _Plan(-saved, lambda _rewriter: x)
    return _Plan(1 - saved, lambda rewriter: rewriter.op("transpose", x, perm=joined))


def _through(value: Value, perm: Perm, depth: int) -> _Plan | None:
    """The operation on transposed operands, where nothing else reads it."""
    node = value.producer
    if node is None or not depth or value.use_count != 1 or len(node.outputs) != 1:
        return None
    attrs = _attrs_for(node, perm)
    if attrs is None:
        return None
    operands = [_operand(x, perm, depth) if x is not None else None for x in node.inputs]
    present = [plan for plan in operands if plan is not None]
    if len(present) < len(node.operands):
        return None

    def build(rewriter: Rewriter) -> Value:
        inputs = [plan.build(rewriter) if plan is not None else None for plan in operands]
        return rewriter.node(node.op, inputs, dict(attrs)).output

    return _Plan(sum(plan.cost for plan in present), build)


def _operand(x: Value, perm: Perm, depth: int) -> _Plan | None:
    """An operand for the transposed operation; one that broadcasts along all axes stays as it is."""
    if not isinstance(x.type, TensorType) or x.type.shape is None:
        return None
    rank, shape = len(perm), x.type.shape
    if all(size == 1 for size in shape):
        return _Plan(0, lambda _rewriter: x)
    if len(shape) == rank:
        return _transposed(x, perm, depth - 1)
    content = constant_of(x)
    if content is None or len(shape) > rank or content.nbytes > MAX_SHARED_BYTES:
        return None
    full = Constant(content.array.reshape((1,) * (rank - len(shape)) + content.shape), content.dtype)
    return _Plan(0, lambda rewriter: rewriter.constant(transposed(full, perm)))


# ---- operations in another order of axes


def _attrs_for(node: Node, perm: Perm) -> Mapping[str, AttrValue] | None:
    """The attributes with which `node` works on transposed operands; None when it minds the order."""
    if node.output.tensor.shape is None or node.output.tensor.rank != len(perm):
        return None
    rule = _MOVED.get(node.op.name)
    if rule is not None:
        return rule(node, perm)
    is_plain = node.op.has(Trait.ELEMENTWISE) and not {"axis", "axes"} & node.attrs.keys()
    return node.attrs if is_plain else None


def _one_axis(node: Node, perm: Perm) -> Mapping[str, AttrValue]:
    return {**node.attrs, "axis": perm.index(normal_axis(node.attrs["axis"], len(perm)))}


def _several_axes(node: Node, perm: Perm) -> Mapping[str, AttrValue]:
    return {**node.attrs, "axes": tuple(perm.index(axis) for axis in normal_axes(node.attrs["axes"], len(perm)))}


def _reduced(node: Node, perm: Perm) -> Mapping[str, AttrValue] | None:
    return _several_axes(node, perm) if node.attrs["keep_dims"] else None


def _padded(node: Node, perm: Perm) -> Mapping[str, AttrValue] | None:
    pads, rank = node.attrs["pads"], len(perm)
    if node.inputs[1] is not None and node.operands[1].shape != ():
        return None
    return {**node.attrs, "pads": tuple(pads[half + axis] for half in (0, rank) for axis in perm)}


_MOVED: Mapping[str, Callable[[Node, Perm], Mapping[str, AttrValue] | None]] = MappingProxyType(
    {
        "concat": _one_axis,
        "log_softmax": _one_axis,
        "pad": _padded,
        "slice": _several_axes,
        "softmax": _one_axis,
        **{f"reduce_{name}": _reduced for name in ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square")},
    }
)


# ---- the rules


def _taken_up(rewriter: Rewriter, found: Found) -> Value | None:
    value, axes = found["x"], found.root.attrs["perm"]
    perm = normal_axes(axes, len(axes))  # also where the rank of the value is not known
    plan = _cancelled(value, perm) or _through(value, perm, MAX_DEPTH)
    return plan.build(rewriter) if plan is not None and plan.cost < 1 else None


def _joined_below(rewriter: Rewriter, found: Found) -> Value | None:
    """An elementwise operation on two or more values transposed alike: one transpose below it."""
    root = found.root
    if len(root.outputs) != 1 or root.output.tensor.shape is None:
        return None
    perms = {_perm_of(value) for value in root.operands} - {None}
    perm = perms.pop() if len(perms) == 1 else None
    rank = root.output.tensor.rank
    if perm is None or len(perm) != rank or _attrs_for(root, tuple(range(rank))) != root.attrs:
        return None
    inverse = tuple(perm.index(axis) for axis in range(rank))
    operands = [_operand(value, inverse, 1) for value in root.operands]
    plans = [plan for plan in operands if plan is not None]
    if len(plans) < len(root.inputs) or sum(plan.cost for plan in plans) > -2:
        return None
    moved = rewriter.node(root.op, [plan.build(rewriter) for plan in plans], dict(root.attrs)).output
    return rewriter.op("transpose", moved, perm=perm)


def _perm_of(value: Value) -> Perm | None:
    node = value.producer
    if node is None or node.op is not TRANSPOSE:
        return None
    return normal_axes(node.attrs["perm"], len(node.attrs["perm"]))


def _reduction_of_transpose(rewriter: Rewriter, found: Found) -> Value | None:
    """The axes that are left stand in the same order without the transpose."""
    root, x = found.root, found["x"]
    moved = found.node("move").attrs["perm"]
    perm = normal_axes(moved, len(moved))
    axes = tuple(perm[axis] for axis in normal_axes(root.attrs["axes"], len(perm)))
    left = [axis for axis in perm if axis not in axes]
    if root.attrs["keep_dims"] or left != sorted(left):
        return None
    return rewriter.node(root.op, (x,), {**root.attrs, "axes": tuple(sorted(axes))}).output


_REDUCTIONS = tuple(filter(reduces_axes, with_trait(Trait.REDUCTION)))
_MOVE = Match("transpose", Capture("x"), name="move", only_user=True)

RULES: tuple[Rule, ...] = (
    Rule("transpose-up", Match("transpose", Capture("x")), _taken_up),
    Rule("transposes-below", Match(Trait.BROADCASTS, more=True), _joined_below),
    Rule("reduction-of-transpose", Match(_REDUCTIONS, _MOVE), _reduction_of_transpose),
)
