"""Recognize normalizations that exporters write out, and take the scale and bias that follow into them.

A normalization over trailing axes is found by its core, (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) or
without the means x / sqrt(mean(x^2) + epsilon); the quotient may also be a product with rsqrt, reciprocal, 1 / sqrt or
a power of -1/2, and the square a power or a product. The axes must be the last ones, kept by the reductions, and
epsilon one number, finite and not negative. Around a core are then taken in:

* casts from a narrower float dtype to f32 and back, as the statistics are in f32 anyway
* a scale and a bias that broadcast over the normalized axes alone (layer norm, RMS norm)
* a scale and a bias for each channel, where the core runs over all axes from 2 on (instance norm)
* the reshape to groups of channels and back (group norm; its scale may be absent, as a product with ones is dropped)

Scale and bias may be any values, also computed ones. Where the core, or the core with its scale, has other readers, it
stays apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.constant import Constant
from ...ir.dims import Dim, Truth, compare
from ...ir.graph import Node, Value
from ...ir.ops.known import INSTANCE_NORM, LAYER_NORM, RMS_NORM
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import DType
from ..cleanup.canonical.neutral import has_type_of, holds_every
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Literal, Match, Pattern, Rule
from ..framework.rewriter import Rewriter
from .parts.forms import number_of, over_root, scalar, square

_X, _S = Capture("x"), Capture("scale")


# ---- the core


def _variance(square_of: Pattern) -> Match:
    return Match("add", Match("reduce_mean", square(square_of), name="variance"), scalar("epsilon"))


_CENTRED = Match("sub", _X, Match("reduce_mean", _X, name="mean"), name="centered")


def _layer_norm(rewriter: Rewriter, found: Found) -> Value | None:
    axis = _trailing_axis(found["x"], (found.node("mean"), found.node("variance")))
    epsilon = number_of(found.constant("epsilon"))
    if axis is None or epsilon < 0 or not has_type_of(found["x"], found.root):
        return None
    return rewriter.op("layer_norm", found["x"], None, None, axis=axis, epsilon=epsilon)


def _rms_norm(rewriter: Rewriter, found: Found) -> Value | None:
    axis = _trailing_axis(found["x"], (found.node("variance"),))
    epsilon = number_of(found.constant("epsilon"))
    if axis is None or epsilon < 0 or not has_type_of(found["x"], found.root):
        return None
    return rewriter.op("rms_norm", found["x"], None, axis=axis, epsilon=epsilon)


def _trailing_axis(x: Value, reductions: Sequence[Node]) -> int | None:
    """The first of the axes that all reductions run over, negative; None unless these are kept and the last ones.

    What is reduced must have the shape of `x`: a constant exponent may have stretched the square.
    """
    rank = x.tensor.rank
    if not all(_has_sizes(node.operands[0].shape, x.shape) for node in reductions):
        return None
    first = min(normal_axes(reductions[0].attrs["axes"], rank), default=rank)
    wanted = tuple(range(first, rank))
    for node in reductions:
        if not node.attrs["keep_dims"] or tuple(sorted(normal_axes(node.attrs["axes"], rank))) != wanted:
            return None
    return first - rank if wanted else None


_CORES: tuple[Rule, ...] = (
    *(Rule("layer-norm", form, _layer_norm) for form in over_root(_CENTRED, _variance(_CENTRED))),
    *(Rule("rms-norm", form, _rms_norm) for form in over_root(_X, _variance(_X))),
)

# ---- casts around it

_NORMS = (LAYER_NORM, RMS_NORM)


def _narrow(rewriter: Rewriter, found: Found) -> Value | None:
    """Statistics are in f32 whatever the dtype of `x` is; a scale in f32 would be rounded before it is applied."""
    x, norm = found["x"], found.node("norm")
    dtype = x.tensor.dtype
    if dtype is not found.root.attrs["to"] or not dtype.is_float or not holds_every(norm.output.tensor.dtype, dtype):
        return None
    return rewriter.op(norm.op.name, x, *(None for _ in norm.inputs[1:]), **dict(norm.attrs))


_CASTS: tuple[Rule, ...] = (
    Rule("norm-in-f32", Match("cast", Match(_NORMS, Match("cast", _X), name="norm", only_user=True)), _narrow),
)

# ---- scale and bias


def _scaled(rewriter: Rewriter, found: Found) -> Value | None:
    norm, scale = found.node("norm"), found["scale"]
    fitted = _fitted(rewriter, scale, norm) if has_type_of(norm.output, found.root) else None
    if fitted is None:
        return None
    return rewriter.op(norm.op.name, found["x"], fitted, *norm.inputs[2:], **dict(norm.attrs))


def _shifted(rewriter: Rewriter, found: Found) -> Value | None:
    norm, bias = found.node("norm"), found["bias"]
    fitted = _fitted(rewriter, bias, norm) if has_type_of(norm.output, found.root) else None
    if fitted is None:
        return None
    return rewriter.op("layer_norm", found["x"], norm.inputs[1], fitted, **dict(norm.attrs))


def _fitted(rewriter: Rewriter, value: Value, norm: Node) -> Value | None:
    """`value` in the shape of the normalized axes; None unless it has just these sizes, after axes of size 1."""
    x = norm.operands[0]
    axis = normal_axis(norm.attrs["axis"], x.tensor.rank)
    count = x.tensor.rank - axis
    if value.tensor.dtype is not x.tensor.dtype or not _has_sizes(value.shape[-count:], x.shape[axis:]):
        return None
    if value.tensor.rank == count:
        return value
    is_plain = all(dim == 1 for dim in value.shape[:-count])
    return rewriter.op("reshape", value, shape=value.shape[-count:]) if is_plain else None


def _has_sizes(shape: Sequence[Dim], wanted: Sequence[Dim]) -> bool:
    return len(shape) == len(wanted) and all(compare(*pair) is Truth.YES for pair in zip(shape, wanted, strict=True))


def _without(operand: str) -> Match:
    """A norm that has no scale, or no bias, yet."""
    if operand == "scale":
        return Match(_NORMS, _X, name="norm", only_user=True)
    return Match("layer_norm", _X, Capture("s", is_optional=True), name="norm", only_user=True)


_AFFINE: tuple[Rule, ...] = (
    Rule("norm-scale", Match("mul", _without("scale"), _S), _scaled),
    Rule("norm-bias", Match("add", _without("bias"), Capture("bias")), _shifted),
    Rule(
        "norm-bias-of-zero",
        Match("layer_norm", _X, Capture("s", is_optional=True), Literal(value=0.0)),
        lambda rewriter, found: rewriter.op("layer_norm", found["x"], found.get("s"), None, **dict(found.root.attrs)),
    ),
)

# ---- per channel


def _by_channel(value: Value, x: Value) -> Value | None:
    """`value` if it has one element for each channel of `x`, and size 1 at all other axes."""
    rank, shape = x.tensor.rank, value.shape
    padded = (1,) * (rank - len(shape)) + shape
    if len(shape) > rank or value.tensor.dtype is not x.tensor.dtype or compare(padded[1], x.shape[1]) is not Truth.YES:
        return None
    return value if all(dim == 1 for axis, dim in enumerate(padded) if axis != 1) else None


def _instance_norm(rewriter: Rewriter, found: Found) -> Value | None:
    norm, x = found.node("norm"), found["x"]
    if x.tensor.rank < 3 or normal_axis(norm.attrs["axis"], x.tensor.rank) != 2 or not has_type_of(x, found.root):
        return None
    channels = (x.shape[1],)
    scale, bias = (_by_channel(found[name], x) for name in ("scale", "bias"))
    if scale is None or bias is None:
        return None
    operands = (rewriter.op("reshape", value, shape=channels) for value in (scale, bias))
    return rewriter.op("instance_norm", x, *operands, epsilon=norm.attrs["epsilon"])


def _group_norm(rewriter: Rewriter, found: Found) -> Value | None:
    """The groups are axis 1 of what the core normalizes over all axes from 2 on."""
    x, grouped = found["x"], found.node("grouped").output
    if x.tensor.rank < 3 or grouped.tensor.rank < 3 or not has_type_of(x, found.root):
        return None
    groups, channels = grouped.shape[1], x.shape[1]
    same_batch = compare(grouped.shape[0], x.shape[0]) is Truth.YES
    if not isinstance(groups, int) or not isinstance(channels, int) or not groups or channels % groups:
        return None
    norm = found.node("norm")
    if not same_batch or _first_axis(norm) != 2:
        return None
    given = [found[name] for name in ("scale", "bias") if found.get(name) is not None]
    if not all(_is_one_number(value, x) or _by_channel(value, x) is not None for value in given):
        return None
    operands = [_for_each(rewriter, value, channels) for value in given]
    if len(operands) == 1:
        operands.insert(0, rewriter.constant(_ones(channels, x.tensor.dtype)))
    return rewriter.op("group_norm", x, *operands, groups=groups, epsilon=norm.attrs["epsilon"])


def _is_one_number(value: Value, x: Value) -> bool:
    """Whether `value` has one element for all channels of `x`, as torch writes the bias of a norm without one."""
    shape = value.shape
    return value.tensor.dtype is x.tensor.dtype and len(shape) <= x.tensor.rank and all(dim == 1 for dim in shape)


def _for_each(rewriter: Rewriter, value: Value, channels: int) -> Value:
    if not all(dim == 1 for dim in value.shape):
        return rewriter.op("reshape", value, shape=(channels,))
    return rewriter.op("expand", rewriter.op("reshape", value, shape=(1,)), shape=(channels,))


def _ones(count: int, dtype: DType) -> Constant:
    return Constant(np.ones(count, dtype.numpy), dtype)


def _first_axis(norm: Node) -> int:
    return 2 if norm.op is INSTANCE_NORM else normal_axis(norm.attrs["axis"], norm.output.tensor.rank)


_PLAIN = Match("layer_norm", _X, name="norm", only_user=True)
_GROUPED = Match("reshape", _X, name="grouped")
_CORE_OF_GROUPS = (
    Match("layer_norm", _GROUPED, name="norm", only_user=True),
    Match("instance_norm", _GROUPED, Literal(value=1.0), Literal(value=0.0), name="norm", only_user=True),
)
_PARTED = tuple(Match("reshape", core, only_user=True) for core in _CORE_OF_GROUPS)


def _affine_of(core: Match) -> Match:
    return Match("add", Match("mul", core, _S, only_user=True), Capture("bias"))


_CHANNELS: tuple[Rule, ...] = (
    Rule("instance-norm", _affine_of(_PLAIN), _instance_norm),
    *(Rule("group-norm", _affine_of(parted), _group_norm) for parted in _PARTED),
    *(Rule("group-norm-by-bias", Match("add", parted, Capture("bias")), _group_norm) for parted in _PARTED),
)


@dataclass(frozen=True)
class RecognizeNorms(PatternPass):
    """Rewrites composed layer, RMS, instance and group norms to the ops that they are. A zero may change its sign."""

    name: ClassVar[str] = "recognize-norms"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return (*_CORES, *_CASTS, *_AFFINE, *_CHANNELS)
