"""Batch norm with constant parameters becomes a multiplication and an addition, in f32 where the values are smaller.

What multiplies sums in f32 behind a convolution anyway does so in its kernel, and weights stay as they are: as exact as
the norm itself, and also where two convolutions share a weight. A bias of the convolution becomes part of the addend.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Array, Constant
from ...ir.graph import Node, Value
from ...ir.ops.known import CONV, CONV_TRANSPOSE
from ...ir.types import DType
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Literal, Match, Rule
from ..framework.rewriter import Rewriter
from .fold_batch_norm import channel_change


@dataclass(frozen=True)
class SpreadBatchNorm(PatternPass):
    """Writes `batch_norm` as `mul` and `add` with a number for each channel, between casts for f16 and bf16."""

    name: ClassVar[str] = "spread-batch-norm"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return RULES


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


RULES: tuple[Rule, ...] = (
    Rule("batch-norm", Match("batch_norm", Capture("x"), *(Literal() for _ in range(4))), _spread),
)
