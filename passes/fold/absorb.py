"""Factors and addends taken into the constants of the node whose result they change.

`absorbed(value, scale, shift)` plans `value * scale + shift` without a further node: in the weight and bias of a
convolution or matmul, in the parameters of a norm, in a constant that is multiplied or added already, and for each of
these also when the value reaches the factor through reshapes, transposes and matmuls. It gives None when
that cannot be done; nothing is made before the plan is carried out.

Scale and shift have the rank of the value and at each axis its size or 1. Weights are multiplied in their own dtype, at
least f32, so each moves by at most one rounding; products that would be subnormal numbers are where `scaled_weight` and
`scaled_factor` draw the line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from ...ir.analysis.contents import any_constant_of, constant_of
from ...ir.constant import Array, Constant
from ...ir.dims import Dim
from ...ir.graph import Node, Value
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import DType
from ..cleanup.canonical.views import AxisGroups, axis_groups
from ..framework.rewriter import Rewriter

Plan = Callable[[Rewriter], Value]


@dataclass(frozen=True)
class ScaleShift:
    """`value * scale + shift`; None is 1 and 0.

    `is_quotient`: the scale is a rounded inverse, which would not keep whole quotients whole in a product of elements.
    """

    scale: Array | None = None
    shift: Array | None = None
    is_quotient: bool = False

    @property
    def rank(self) -> int:
        return next(each.ndim for each in (self.scale, self.shift) if each is not None)

    def along(self, *axes: int) -> bool:
        """Whether scale and shift have size 1 at all other axes."""
        parts = (each for each in (self.scale, self.shift) if each is not None)
        return all(size == 1 for each in parts for axis, size in enumerate(each.shape) if axis not in axes)

    @property
    def is_plain_factor(self) -> bool:
        return self.shift is None and self.along()

    def mapped(self, change: "Callable[[Array], Array | None]") -> "ScaleShift | None":
        """Both parts changed alike; None when one cannot be."""
        scale = change(self.scale) if self.scale is not None else None
        shift = change(self.shift) if self.shift is not None else None
        lost = (scale is None) != (self.scale is None) or (shift is None) != (self.shift is None)
        return None if lost else ScaleShift(scale, shift, self.is_quotient)


def aligned(content: Constant, value: Value) -> Array | None:
    """A float constant as the scale or shift of `value`: with its rank; None when it broadcasts the value."""
    array, shape = content.array, value.shape
    if not content.dtype.is_float or array.ndim > len(shape):
        return None
    array = wide(array).reshape((1,) * (len(shape) - array.ndim) + array.shape)
    fits = all(own in (1, size) for own, size in zip(array.shape, shape, strict=True))
    return array if fits and np.isfinite(array).all() else None


def wide(array: Array) -> Array:
    """In the dtype that weights are computed in: f64, or else f32."""
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def absorbed(value: Value, change: ScaleShift) -> Plan | None:
    """The plan for `value` with `change` applied, where `value` has one use: the node that applies it now."""
    node = value.producer
    if node is None or value.index != 0 or value.use_count != 1:
        return None
    rule = _RULES.get(node.op.name)
    return rule(node, change) if rule is not None and value.tensor.dtype.is_float else None


# ---- constants


def scaled_constant(content: Constant, scale: Array | None, shift: Array | None = None) -> Constant | None:
    """`content * scale + shift` in the dtype of `content`; None if that overflows or grows by broadcasting.

    For addends: one that loses digits as a subnormal number moves the sum by no more than a rounding.
    """
    array = wide(content.array)
    with np.errstate(all="ignore"):
        result = array if scale is None else array * scale.astype(array.dtype, copy=False)
        result = result if shift is None else result + shift.astype(array.dtype, copy=False)
        made = Constant(np.ascontiguousarray(result), content.dtype)
    largest = max([content.size, *(each.size for each in (scale, shift) if each is not None)])
    if made.size > largest or np.isfinite(made.array).sum() * content.size != np.isfinite(array).sum() * made.size:
        return None
    return made


def scaled_weight(content: Constant, scale: Array, summed: Sequence[int]) -> Constant | None:
    """Factors `content * scale` of terms that are added up along the axes `summed`; None also if sums lose digits.

    Sums may that vanish beside a rounding of the largest factor of all, as dead channels of real networks do.
    """
    made = scaled_constant(content, scale)
    if made is None or np.abs(wide(made.array)).max(initial=0) * _epsilon(made.dtype) >= smallest_normal(made.dtype):
        return made
    return scaled_factor(content, scale, summed)


def scaled_factor(content: Constant, scale: Array, alike: Sequence[int] = ()) -> Constant | None:
    """Factors `content * scale`; None also if digits are lost.

    The largest along the axes `alike` has to be a normal number: then none errs by more than that one is rounded by.
    """
    made = scaled_constant(content, scale)
    if made is None or not made.size:
        return made
    is_small = np.abs(wide(made.array)).max(axis=tuple(alike)) < smallest_normal(made.dtype)
    is_meant = ((content.array != 0) & (scale != 0)).any(axis=tuple(alike))  # zeros that underflow makes are not
    return None if (is_small & is_meant).any() else made


def smallest_normal(dtype: DType) -> float:
    """The smallest positive number of a float dtype that has all digits."""
    return float(ml_dtypes.finfo(dtype.numpy).tiny)  # type: ignore[no-untyped-call]


def _epsilon(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]


def own_weight(value: Value | None) -> Constant | None:
    """A float constant that one node reads: a changed copy of a shared one would have to be stored besides it."""
    content = any_own_weight(value)
    return content if content is not None and content.is_at_hand else None


def any_own_weight(value: Value | None) -> Constant | None:
    """The same also where its content is not at hand."""
    content = any_constant_of(value)
    if value is None or content is None or value.use_count != 1 or not content.dtype.is_float:
        return None
    return content


def _vector(part: Array | None, axis: int, size: int) -> Array | None:
    """A part that varies along one axis, as a vector with `size` entries."""
    if part is None:
        return None
    flat = part.reshape(-1)
    assert flat.size == part.shape[axis]  # callers have asked `along`
    return np.broadcast_to(flat, (size,))


def _rebuilt(node: Node, operand: Plan) -> Plan:
    """The same node on another first operand."""

    def build(rewriter: Rewriter) -> Value:
        return rewriter.node(node.op, (operand(rewriter), *node.inputs[1:]), dict(node.attrs)).outputs[0]

    return build


def _with_operands(node: Node, changes: Mapping[int, Constant | None], **attrs: Any) -> Plan:
    """The same node with other constants at some operands."""

    def build(rewriter: Rewriter) -> Value:
        inputs = list(node.inputs)
        for index, content in changes.items():
            inputs[index] = rewriter.constant(content) if content is not None else None
        return rewriter.node(node.op, inputs, {**node.attrs, **attrs}).outputs[0]

    return build


def _new_bias(bias: Value | None, scale: Array | None, shift: Array | None, dtype: DType) -> Constant | None:
    """The changed bias `[C]`; None where there is none, or cannot be one (ask `_bias_is_known` first)."""
    content = constant_of(bias)
    if content is not None:
        return scaled_constant(content, scale, shift)
    return Constant(np.ascontiguousarray(shift), dtype) if shift is not None else None


def _bias_is_known(bias: Value | None) -> bool:
    return bias is None or constant_of(bias) is not None


# ---- nodes with weights


def _conv(node: Node, change: ScaleShift) -> Plan | None:
    weight, bias = own_weight(node.inputs[1]), node.inputs[2]
    if weight is None or not change.along(1) or not _bias_is_known(bias):
        return None
    return _with_weight(node, weight, 0, weight.shape[0], change)


def _conv_transpose(node: Node, change: ScaleShift) -> Plan | None:
    """The weight is `[I, O/groups, ...]`: output channel `o` stands in the part of its group."""
    weight, bias = own_weight(node.inputs[1]), node.inputs[2]
    if weight is None or not change.along(1) or not _bias_is_known(bias):
        return None
    groups: int = node.attrs["groups"]
    if groups != 1 and not change.along():
        return None
    return _with_weight(node, weight, 1, weight.shape[1] * groups, change)


def _with_weight(node: Node, weight: Constant, axis: int, channels: int, change: ScaleShift) -> Plan | None:
    """`axis` is that of the output channels in the weight."""
    scale, shift = _vector(change.scale, 1, channels), _vector(change.shift, 1, channels)
    new_weight: Constant | None = weight
    if change.scale is not None:
        summed = [each for each in range(len(weight.shape)) if each != axis]
        factor = np.expand_dims(change.scale.reshape(-1), summed)
        new_weight = scaled_weight(weight, factor, summed)
    new_bias = _new_bias(node.inputs[2], scale, shift, weight.dtype)
    if new_weight is None or (new_bias is None and (node.inputs[2] is not None or shift is not None)):
        return None
    return _with_operands(node, {1: new_weight, 2: new_bias})


def _gemm(node: Node, change: ScaleShift) -> Plan | None:
    """Columns are channels; a plain factor may also go into alpha."""
    attrs, c = node.attrs, node.inputs[2]
    addend = constant_of(c)
    if not change.along(1) or (c is not None and addend is None):
        return None
    scaled = _scaled_gemm(node, change.scale)
    if scaled is None:
        return None
    changes, alpha = scaled
    beta = np.float32(attrs["beta"])
    if addend is not None:
        scale = beta if change.scale is None else change.scale * beta
        addend = scaled_constant(addend, np.asarray(scale), change.shift)
        if addend is None:
            return None
        changes[2] = addend if len(addend.shape) <= 2 else None
    elif change.shift is not None:
        changes[2] = Constant(np.ascontiguousarray(change.shift), node.output.tensor.dtype)
    return _with_operands(node, changes, alpha=alpha, beta=1.0)


def _scaled_gemm(node: Node, scale: Array | None) -> tuple[dict[int, Constant | None], float] | None:
    """The weight (by operand index) and alpha that scale the matmul."""
    alpha: float = node.attrs["alpha"]
    if scale is None:
        return {}, alpha
    if scale.size == 1 and _is_attribute(number := alpha * float(scale.reshape(())), node.output.tensor.dtype):
        return {}, number
    weight = own_weight(node.inputs[1])
    if weight is None:
        return None
    scaled = scaled_weight(weight, scale.T, (1,)) if node.attrs["trans_b"] else scaled_weight(weight, scale, (0,))
    return None if scaled is None else ({1: scaled}, alpha)


def _is_attribute(number: float, dtype: DType) -> bool:
    """Whether a number that values of `dtype` are multiplied with keeps its digits as an f32 attribute."""
    if dtype is DType.F64 and float(np.float32(number)) != number:
        return False
    return number == 0 or smallest_normal(DType.F32) <= abs(number) <= float(np.finfo(np.float32).max)


def _matmul(node: Node, change: ScaleShift) -> Plan | None:
    """Columns of a constant right side, rows of a constant left one; a plain factor may go through either side."""
    a, b = node.operands
    if change.scale is None or change.shift is not None or a.tensor.rank < 2 or b.tensor.rank < 2:
        return None
    if change.along(change.rank - 1) and (weight := own_weight(b)) is not None:
        return _matmul_weight(node, 1, weight, change.scale)
    if change.along(change.rank - 2) and (weight := own_weight(a)) is not None:
        return _matmul_weight(node, 0, weight, change.scale)
    return _matmul_operand(node, change) if change.is_plain_factor else None


def _matmul_weight(node: Node, side: int, weight: Constant, scale: Array) -> Plan | None:
    scaled = scaled_weight(weight, scale.reshape(scale.shape[-2:]), (-1 - side,))
    return None if scaled is None else _with_operands(node, {side: scaled})


def _matmul_operand(node: Node, change: ScaleShift) -> Plan | None:
    for side, operand in enumerate(node.operands):
        inner = absorbed(operand, _at_rank(change, operand.tensor.rank))
        if inner is not None:
            return _with_side(node, side, inner)
    return None


def _with_side(node: Node, side: int, inner: Plan) -> Plan:
    def build(rewriter: Rewriter) -> Value:
        inputs = list(node.operands)
        inputs[side] = inner(rewriter)
        return rewriter.op("matmul", *inputs)

    return build


def _at_rank(change: ScaleShift, rank: int) -> ScaleShift:
    """A plain factor for a value of another rank."""
    assert change.scale is not None  # a plain factor has a scale
    return ScaleShift(change.scale.reshape((1,) * rank))


# ---- norms


def _layer_norm(node: Node, change: ScaleShift) -> Plan | None:
    x, scale, bias = node.inputs
    assert x is not None  # only scale and bias are optional
    return _norm_parameters(node, scale, bias, change, normal_axis(node.attrs["axis"], x.tensor.rank))


def _rms_norm(node: Node, change: ScaleShift) -> Plan | None:
    x, scale = node.inputs
    assert x is not None  # only scale is optional
    if change.shift is not None:
        return None
    return _norm_parameters(node, scale, None, change, normal_axis(node.attrs["axis"], x.tensor.rank))


def _norm_parameters(node: Node, scale: Value | None, bias: Value | None, change: ScaleShift, axis: int) -> Plan | None:
    """Scale and bias of a norm over the axes from `axis` on have the shape of these axes."""
    content = constant_of(scale)
    shape = node.outputs[0].shape[axis:]
    sizes = [size for size in shape if isinstance(size, int)]
    if content is None or content.shape != tuple(sizes) or not change.along(*range(axis, change.rank)):
        return None
    if not _bias_is_known(bias):
        return None
    trailing = change.mapped(lambda part: np.broadcast_to(part.reshape(part.shape[axis:]), sizes))
    assert trailing is not None  # broadcasting loses nothing
    axes = range(len(sizes))
    changes = {1: scaled_weight(content, trailing.scale, axes) if trailing.scale is not None else content}
    new_bias = _new_bias(bias, trailing.scale, trailing.shift, content.dtype)
    if changes[1] is None or (new_bias is None and (bias is not None or trailing.shift is not None)):
        return None
    return _with_operands(node, changes if new_bias is None else {**changes, 2: new_bias})


def _batch_norm(node: Node, change: ScaleShift) -> Plan | None:
    scale, bias = (constant_of(value) for value in node.inputs[1:3])
    if scale is None or bias is None or not change.along(1):
        return None
    factor, shift = _vector(change.scale, 1, scale.size), _vector(change.shift, 1, scale.size)
    gain = scaled_weight(scale, factor, (0,)) if factor is not None else scale
    changed = {1: gain, 2: scaled_constant(bias, factor, shift)}
    return None if None in changed.values() else _with_operands(node, changed)


# ---- arithmetic with constants


def _add(node: Node, change: ScaleShift) -> Plan | None:
    for side, operand in enumerate(node.operands):
        content = constant_of(node.operands[1 - side])
        if content is not None and operand.shape == node.output.shape:
            return _sum(operand, content, change)
    return None


def _sub(node: Node, change: ScaleShift) -> Plan | None:
    x, subtracted = node.operands
    content = constant_of(subtracted)
    if content is None or x.shape != node.output.shape:
        return None
    return _sum(x, Constant(np.negative(content.array), content.dtype), change)


def _sum(x: Value, content: Constant, change: ScaleShift) -> Plan | None:
    """`(x + c) * scale + shift` is `x * scale + (c * scale + shift)`."""
    addend = scaled_constant(content, change.scale, change.shift)
    inner = absorbed(x, replace(change, shift=None)) if change.scale is not None else _unchanged(x)
    if addend is None or inner is None:
        return None
    return lambda rewriter: rewriter.op("add", inner(rewriter), rewriter.constant(_shortened(addend)))


def _unchanged(x: Value) -> Plan:
    def build(_rewriter: Rewriter) -> Value:
        return x

    return build


def _mul(node: Node, change: ScaleShift) -> Plan | None:
    for side, operand in enumerate(node.operands):
        content = constant_of(node.operands[1 - side])
        if content is not None and operand.shape == node.output.shape:
            return _product(operand, content, change)
    return None


def _div(node: Node, change: ScaleShift) -> Plan | None:
    x, divisor = node.operands
    content = constant_of(divisor)
    is_exact = content is not None and are_powers_of_two(content)
    inverse = reciprocal(content) if content is not None and is_exact and x.shape == node.output.shape else None
    return _product(x, inverse, change) if inverse is not None else None


def _product(x: Value, content: Constant, change: ScaleShift) -> Plan | None:
    if change.shift is not None or change.scale is None or change.is_quotient:
        return None
    factor = scaled_factor(content, change.scale)
    if factor is None:
        return None
    return lambda rewriter: rewriter.op("mul", x, rewriter.constant(_shortened(factor)))


def reciprocal(content: Constant) -> Constant | None:
    """`1 / content` of a float constant; None if an element has none, or loses digits as a subnormal number."""
    if not content.dtype.is_float or not content.size:
        return None
    with np.errstate(all="ignore"):
        inverse = 1.0 / content.array.astype(np.float64)
    made = Constant(inverse, content.dtype)
    usable = np.isfinite(made.array).all() and bool((np.abs(inverse) >= smallest_normal(content.dtype)).all())
    return made if usable else None


def are_powers_of_two(content: Constant) -> bool:
    """Whether every element is a float of which multiplying by the inverse moves no bit."""
    return content.dtype.is_float and bool((np.abs(np.frexp(content.array.astype(np.float64))[0]) == 0.5).all())


def _shortened(content: Constant) -> Constant:
    """Without leading axes of size 1, which broadcasting adds anyway."""
    shape = content.shape
    first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return Constant(content.array.reshape(shape[first:]), content.dtype) if first else content


# ---- shapes


def _reshape(node: Node, change: ScaleShift) -> Plan | None:
    """A part goes back through a reshape where the axes along which it varies come from axes of their own."""
    x = node.operands[0]
    groups = axis_groups(x.shape, node.output.shape)
    if groups is None:
        return None
    changed = change.mapped(lambda part: _before_reshape(part, x.shape, node.output.shape, groups))
    inner = absorbed(x, changed) if changed is not None else None
    return _rebuilt(node, inner) if inner is not None else None


def _before_reshape(part: Array, source: Sequence[Dim], target: Sequence[Dim], groups: AxisGroups) -> Array | None:
    """A part of the reshaped value as one of the value before; None when it varies along an axis of open size."""
    shape: list[int] = []
    for own, cut in groups:
        if all(part.shape[axis] == 1 for axis in cut):
            shape += [1] * len(own)
            continue
        wanted, before = _plain([target[axis] for axis in cut]), _plain([source[axis] for axis in own])
        if wanted is None or before is None:
            return None
        sizes = list(part.shape)
        for axis, size in zip(cut, wanted, strict=True):
            sizes[axis] = size
        part = np.broadcast_to(part, sizes)
        shape += before
    return part.reshape(shape)


def _plain(dims: Sequence[Dim]) -> list[int] | None:
    """The sizes, where all are known."""
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return sizes if len(sizes) == len(dims) else None


def _transpose(node: Node, change: ScaleShift) -> Plan | None:
    perm = normal_axes(node.attrs["perm"], change.rank)
    inverse = tuple(perm.index(axis) for axis in range(change.rank))
    changed = change.mapped(lambda part: np.transpose(part, inverse))
    inner = absorbed(node.operands[0], changed) if changed is not None else None
    return _rebuilt(node, inner) if inner is not None else None


_RULES: Mapping[str, Callable[[Node, ScaleShift], Plan | None]] = MappingProxyType(
    {
        "add": _add,
        "batch_norm": _batch_norm,
        "conv": _conv,
        "conv_transpose": _conv_transpose,
        "div": _div,
        "gemm": _gemm,
        "layer_norm": _layer_norm,
        "matmul": _matmul,
        "mul": _mul,
        "reshape": _reshape,
        "rms_norm": _rms_norm,
        "sub": _sub,
        "transpose": _transpose,
    }
)
