"""Matmuls over the channels of channels-last images become pointwise convolutions of channels-first ones.

Where a model leaves the channels-first order only for `matmul` and `add`, as ConvNeXt does, the order is kept instead:
`transpose(add(matmul(x, W), b))` is `conv(transpose(x), W, b)`, one node less, and an elementwise function in between
does not mind the order. In ONNX Runtime's CPU provider ConvNeXt-T takes 0.90 of the time that it takes with matmuls.

A matmul that mixes the steps of a sequence, as MLP-Mixer and gMLP do, has a transpose on either side. It multiplies
from the left instead: `transpose(add(matmul(transpose(x), W), b))` is `add(matmul(W', x), b')`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Constant
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.ops.known import ADD, MATMUL, TRANSPOSE
from ...ir.ops.rules import normal_axes
from ...ir.types import DType
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Literal, Match, Maybe, Rule
from ..framework.rewriter import Rewriter
from .absorb import own_weight


@dataclass(frozen=True)
class PointwiseConvolutions(PatternPass):
    """Turns a matmul and its bias, transposed to channels-first afterwards, into a convolution of width 1."""

    name: ClassVar[str] = "pointwise-convolutions"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return RULES


def _to_channels_first(rank: int) -> tuple[int, ...]:
    """The order that makes `[N, D1, ..., C]` `[N, C, D1, ...]`."""
    return (0, rank - 1, *range(1, rank - 1))


def _is_to_channels_first(node: Node) -> bool:
    rank = node.output.tensor.rank
    return rank > 2 and normal_axes(node.attrs["perm"], rank) == _to_channels_first(rank)


def _bias_vector(bias: Value | None, channels: int) -> Constant | None:
    """An addend along the last axis as `[C]`."""
    content = constant_of(bias)
    if content is None or content.size != channels or content.shape[-1:] != (channels,):
        return None
    return Constant(content.array.reshape(-1), content.dtype)


def _as_convolution(rewriter: Rewriter, found: Found) -> Value | None:
    x, weight = found["x"], own_weight(found["weight"])
    if weight is None or len(weight.shape) != 2 or x.tensor.rank != found.root.output.tensor.rank:
        return None
    bias = _bias_vector(found.get("bias"), weight.shape[1])
    if bias is None and found.get("bias") is not None:
        return None
    make = _from_the_left if _is_of_turned_sequence(x) else _convolution
    if make is _convolution and x.tensor.dtype is DType.F64:  # which ONNX Runtime's CPU provider only multiplies
        return None
    result = make(rewriter, x, weight, bias)
    if not found.has("function"):
        return result
    function = found.node("function")
    return rewriter.node(function.op, (result,), dict(function.attrs)).output


def _is_of_turned_sequence(x: Value) -> bool:
    """Whether `x` is `[N, C, D]` as `[N, D, C]`, or matmuls and functions of that, each for the next one alone."""
    node = x.producer
    while node is not None and _keeps_rows(node) and len(node.output.users) == 1:
        node = node.operands[0].producer
    return node is not None and node.op is TRANSPOSE and x.tensor.rank == 3 and _is_to_channels_first(node)


def _keeps_rows(node: Node) -> bool:
    return node.op in (MATMUL, ADD) or node.op.has(Trait.ACTIVATION)


def _from_the_left(rewriter: Rewriter, x: Value, weight: Constant, bias: Constant | None) -> Value:
    turned = rewriter.op("transpose", x, perm=(0, 2, 1))
    matmul = rewriter.op("matmul", rewriter.constant(Constant(np.ascontiguousarray(weight.array.T))), turned)
    if bias is None:
        return matmul
    return rewriter.op("add", matmul, rewriter.constant(Constant(bias.array.reshape(-1, 1), bias.dtype)))


def _convolution(rewriter: Rewriter, x: Value, weight: Constant, bias: Constant | None) -> Value:
    spatial = x.tensor.rank - 2
    kernel = np.ascontiguousarray(weight.array.T).reshape(*weight.shape[::-1], *[1] * spatial)
    return rewriter.op(
        "conv",
        rewriter.op("transpose", x, perm=_to_channels_first(spatial + 2)),
        rewriter.constant(Constant(kernel)),
        rewriter.constant(bias) if bias is not None else None,
        strides=(1,) * spatial,
        pads=(0,) * (2 * spatial),
        dilations=(1,) * spatial,
        groups=1,
    )


_MATMUL = Match("matmul", Capture("x"), Literal("weight"), only_user=True)
_BIASED = Maybe(Match("add", _MATMUL, Literal("bias"), only_user=True))
_FUNCTION = Match(Trait.ACTIVATION, _BIASED, name="function", only_user=True)

RULES: tuple[Rule, ...] = tuple(
    Rule(f"{name}-as-convolution", Match("transpose", operand, where=_is_to_channels_first), _as_convolution)
    for name, operand in (("matmul", _BIASED), ("function-of-matmul", _FUNCTION))
)
