"""Batch norm at inference, a factor and an addend per channel: folded into weights, or left as two ops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Array, Constant
from ...ir.graph import Node, Value
from ...ir.ops.known import CONV, CONV_TRANSPOSE, GEMM, MATMUL
from ...ir.types import DType
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Literal, Match, Rule
from ..framework.rewriter import Rewriter
from .absorb import ScaleShift, absorbed, scaled_factor
from .absorb_after import absorbed_after


@dataclass(frozen=True)
class FoldBatchNorm(PatternPass):
    """Batch norm at inference is a factor and an addend per channel: both go into the weights before or after it.

    Takes `batch_norm` with constant parameters into a convolution or matmul next to it.

    One that is left alone stays, unless it does nothing or is a single addition or multiplication. Weights of f16 and
    bf16 are rounded, which errs alike at every place, so that no mean over an image takes it out: of a ResNeSt the
    error grows five times. With `keeps_small_images`, images in these stay with their norm, whose numbers are f32 where
    it is spread.
    """

    name: ClassVar[str] = "fold-batch-norm"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING
    keeps_small_images: bool = False

    def rules(self) -> Sequence[Rule]:
        return _FOLDING_OF_LARGE_IMAGES if self.keeps_small_images else _FOLDING


def channel_change(node: Node) -> ScaleShift | None:
    """Factor and addend of a batch norm of `[N, C, ...]`, as `[1, C, 1, ...]`; computed in f64.

    None where they are not known, or not finite.
    """
    contents = [constant_of(value) for value in node.inputs[1:]]
    known = [content.array.astype(np.float64) for content in contents if content is not None]
    if len(known) < 4:
        return None
    gain, bias, mean, variance = known
    with np.errstate(all="ignore"):
        scale = gain / np.sqrt(variance + float(node.attrs["epsilon"]))
        shift = bias - mean * scale
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return None
    layout = (1, -1, *[1] * (node.outputs[0].tensor.rank - 2))
    return ScaleShift(scale.reshape(layout), shift.reshape(layout))


def _change(node: Node) -> ScaleShift | None:
    """The same, where the addend is finite in the dtype of the result, too: in f16 `mean * scale` overflows soon."""
    change = channel_change(node)
    if change is None or change.shift is None:
        return None
    return change if np.isfinite(Constant(change.shift, node.outputs[0].tensor.dtype).array).all() else None


def _into_producer(rewriter: Rewriter, found: Found) -> Value | None:
    change = _change(found.root)
    if change is None:
        return None
    plan = absorbed(found["x"], change)
    if plan is not None:
        return plan(rewriter)
    scaled = absorbed(found["x"], ScaleShift(change.scale))  # a matmul has no bias: the addition is what remains
    if scaled is None or change.shift is None:
        return None
    return rewriter.op("add", scaled(rewriter), _constant(rewriter, change.shift, found.root))


def _into_user(rewriter: Rewriter, found: Found) -> Value | None:
    norm = found.node("norm")
    change = _change(norm)
    plan = absorbed_after(found.root, found["x"], change) if change is not None else None
    return plan(rewriter) if plan is not None else None


def _as_one_operation(rewriter: Rewriter, found: Found) -> Value | None:
    change = _change(found.root)
    if change is None or change.scale is None or change.shift is None:
        return None
    does_scale, does_shift = bool((change.scale != 1).any()), bool((change.shift != 0).any())
    if does_scale and does_shift:
        return None
    if does_scale:
        factor = scaled_factor(Constant(np.ones(1), found.root.outputs[0].tensor.dtype), change.scale[0])
        return rewriter.op("mul", found["x"], rewriter.constant(factor)) if factor is not None else None
    if does_shift:
        return rewriter.op("add", found["x"], _constant(rewriter, change.shift, found.root))
    return found["x"]


def _constant(rewriter: Rewriter, part: Array, node: Node) -> Value:
    return rewriter.constant(Constant(part[0], node.outputs[0].tensor.dtype))


_X = Capture("x")
_BATCH_NORM = Match("batch_norm", _X, *(Literal() for _ in range(4)), name="norm")

_FOLDING: tuple[Rule, ...] = (
    Rule("batch-norm-into-producer", _BATCH_NORM, _into_producer),
    Rule("batch-norm-into-user", Match((CONV, GEMM, MATMUL), _BATCH_NORM, more=True), _into_user),
    Rule("batch-norm-of-one-operation", _BATCH_NORM, _as_one_operation),
)


def _unless_small_image(rule: Rule) -> Rule:
    """The rule for what is no image in f16 or bf16."""

    def replaced(rewriter: Rewriter, found: Found) -> Value | Sequence[Value | None] | None:
        made = found.root.outputs[0].tensor
        return None if made.rank > 2 and made.dtype.is_small_float else rule.replace(rewriter, found)

    return Rule(rule.name, rule.pattern, replaced)


_FOLDING_OF_LARGE_IMAGES = tuple(map(_unless_small_image, _FOLDING))


@dataclass(frozen=True)
class SpreadBatchNorm(PatternPass):
    """Batch norm with constant parameters becomes a multiplication and an addition, in f32 for smaller floats.

    What multiplies sums in f32 behind a convolution anyway does so in its kernel, and weights stay as they are: as
    exact as the norm itself, and also where two convolutions share a weight. A bias of the convolution becomes part of
    the addend.

    Writes `batch_norm` as `mul` and `add` with a number for each channel, between casts for f16 and bf16.
    """

    name: ClassVar[str] = "spread-batch-norm"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return _SPREADING


def _spread(rewriter: Rewriter, found: Found) -> Value | None:
    change, x = channel_change(found.root), found["x"]
    if change is None or change.scale is None or change.shift is None:
        return None
    dtype = x.tensor.dtype
    wide = DType.F32 if dtype.is_small_float else dtype
    scale, shift = change.scale[0], change.shift[0]
    conv = x.producer
    bias = _bias_of(conv) if x.use_count == 1 else None
    if bias is not None:
        shift = shift + bias.reshape(scale.shape) * scale
    factor, addend = Constant(scale, wide), Constant(shift, wide)
    if not (np.isfinite(factor.array).all() and np.isfinite(addend.array).all()):
        return None
    if bias is not None and conv is not None:
        x = rewriter.node(conv.op, (*conv.inputs[:2], None), dict(conv.attrs)).outputs[0]
    y = rewriter.op("cast", x, to=wide) if wide is not dtype else x
    y = rewriter.op("mul", y, rewriter.constant(factor))
    y = rewriter.op("add", y, rewriter.constant(addend))
    return rewriter.op("cast", y, to=dtype) if wide is not dtype else y


def _bias_of(node: Node | None) -> Array | None:
    """The constant bias of a convolution, in f64."""
    if node is None or node.op not in (CONV, CONV_TRANSPOSE) or node.inputs[2] is None:
        return None
    content = constant_of(node.inputs[2])
    return None if content is None else content.array.astype(np.float64)


_SPREADING: tuple[Rule, ...] = (
    Rule("batch-norm", Match("batch_norm", Capture("x"), *(Literal() for _ in range(4))), _spread),
)
