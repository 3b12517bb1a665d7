"""Quantize and dequantize pairs: those that cancel go, and dequantizing moves down to where its reader is.

Exporters surround every quantized operator by a pair, also the ones that only move numbers or choose among them. Such
an op does the same to the quantized numbers: dequantizing moves behind it, where it meets the quantizing that takes it
back. Nothing is rounded that was not rounded before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Array, Constant
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.ops import native
from ...ir.ops.interfaces import with_trait
from ...ir.ops.known import EXPAND, SPLIT
from ...ir.types import DType, Kind
from ..framework.base import PatternPass
from ..framework.pattern import Capture, Found, Match, Rule
from ..framework.rewriter import Rewriter

_BYTES = (DType.I8, DType.U8)
"""What executors can move about and pool."""

MAX_TRIED = 1 << 22
"""Codes times scales: a pair with more stays."""

_MOVES = tuple(op for op in with_trait(Trait.VIEW | Trait.LOOKUP) if op not in (EXPAND, SPLIT))
"""Ops that move elements of their first operand about, and never make more of them than the result has."""


@dataclass(frozen=True)
class CleanUpQuantization(PatternPass):
    """Cancels quantizing what was just dequantized, and moves dequantizing down where that makes no more nodes."""

    name: ClassVar[str] = "clean-up-quantization"

    def rules(self) -> Sequence[Rule]:
        return _RULES


# ---- pairs that cancel


def _cancelled(_rewriter: Rewriter, found: Found) -> Value | None:
    """The quantized numbers themselves, if every one of them comes back."""
    back, again = found.node("dequantize"), found.root
    return found["x"] if _comes_back(back, again) else None


def _comes_back(back: Node, again: Node) -> bool:
    """Whether quantizing by `again` gives back what `back` dequantizes, tried for every number at every scale."""
    before, after = [constant_of(v) for v in back.operands[1:]], [constant_of(v) for v in again.operands[1:]]
    codes = _codes(back.operands[0].tensor.dtype)
    if codes is None or again.attrs["to"] is not back.operands[0].tensor.dtype:
        return False
    if not _same_granularity(back, again) or back.operands[1].type != again.operands[1].type:
        return False
    known = [content for content in (*before, *after) if content is not None]
    if len(known) < len(before) + len(after) or not known or known[0].size * codes.size > MAX_TRIED:
        return False
    return _all_equal(_evaluated(again, _evaluated(back, codes, before), after), codes)


def _same_granularity(a: Node, b: Node) -> bool:
    if _is_per_tensor(a) and _is_per_tensor(b):
        return True
    return all(a.attrs[name] == b.attrs[name] for name in ("axis", "block_size"))


def _codes(dtype: DType) -> Array | None:
    """Every number of a dtype of up to 16 bits; None for a wider one."""
    if dtype.bits > 16 or dtype.kind is Kind.BOOL:
        return None
    if not dtype.is_integer:
        return np.arange(1 << dtype.bits, dtype=np.uint16 if dtype.bits > 8 else np.uint8).view(dtype.numpy)
    low = 0 if dtype.kind is Kind.UINT else -(1 << (dtype.bits - 1))
    return np.arange(low, low + (1 << dtype.bits)).astype(dtype.numpy)


def _evaluated(node: Node, numbers: Array, parameters: Sequence[Constant | None]) -> Array:
    """What `node` makes of `numbers` at each of its scales: [scales, numbers]."""
    rows = [content.array.reshape(-1) for content in parameters if content is not None]
    spread = np.broadcast_to(numbers, (rows[0].size, numbers.shape[-1]))
    attrs: dict[str, Any] = {**node.attrs, "axis": 0, "block_size": 0}
    return np.asarray(node.op.meaning(spread, *rows, **attrs))


def _all_equal(made: Array, codes: Array) -> bool:
    """Bit for bit, but for the sign of zeros."""
    bits = np.dtype(f"u{codes.dtype.itemsize}")
    both_zero = (made.astype(np.float32) == 0) & (codes.astype(np.float32) == 0)
    return bool(np.all((made.view(bits) == codes.view(bits)) | both_zero))


# ---- dequantizing moves down


def _is_per_tensor(node: Node) -> bool:
    scale = node.operands[1].tensor
    return not scale.shape or (scale.shape == (1,) and node.attrs["block_size"] == 0)


def _moved_past(rewriter: Rewriter, found: Found) -> Value | None:
    """An op that only moves elements: it moves the quantized ones."""
    back, root = found.node("dequantize"), found.root
    moved = rewriter.node(root.op, (found["x"], *root.inputs[1:]), dict(root.attrs))
    return _dequantized(back, moved.output, rewriter)


def _dequantized(like: Node, value: Value, rewriter: Rewriter) -> Value:
    return rewriter.node(like.op, (value, *like.inputs[1:]), dict(like.attrs)).output


def _moved_past_concat(rewriter: Rewriter, found: Found) -> Value | None:
    """Parts that are dequantized in the same way are joined first."""
    root = found.root
    backs = [value.producer for value in root.operands]
    first = backs[0]
    parts = [back.operands[0] for back in backs if back is not None and _is_part(back, first, root)]
    if first is None or len(parts) < len(backs):
        return None
    return _dequantized(first, rewriter.op("concat", *parts, axis=root.attrs["axis"]), rewriter)


def _is_part(back: Node, first: Node | None, root: Node) -> bool:
    if first is None or back.op is not native("dequantize_linear") or any(u.user is not root for u in back.output.uses):
        return False
    if back.attrs["to"] is not first.attrs["to"] or len(back.operands) != len(first.operands):
        return False
    if back.operands[0].tensor.dtype is not first.operands[0].tensor.dtype:
        return False
    pairs = zip(back.operands[1:], first.operands[1:], strict=True)
    return _is_per_tensor(back) and _is_per_tensor(first) and all(_is_same(a, b) for a, b in pairs)


def _is_same(a: Value, b: Value) -> bool:
    content = constant_of(a)
    return a is b or (content is not None and content == constant_of(b))


def _moved_past_pool(rewriter: Rewriter, found: Found) -> Value | None:
    """The greatest number stays the greatest, as long as no window is all padding."""
    back, root = found.node("dequantize"), found.root
    if not _keeps_order(back) or _has_empty_windows(root):
        return None
    return _dequantized(back, rewriter.op("max_pool", found["x"], **root.attrs), rewriter)


def _keeps_order(back: Node) -> bool:
    """Whether the scale is known to be positive, and finite."""
    scale = constant_of(back.operands[1])
    if scale is None or scale.dtype not in (DType.F32, DType.F16, DType.BF16):
        return False
    number = float(scale.array.reshape(-1)[0])
    return 0 < number < np.inf


def _has_empty_windows(pool: Node) -> bool:
    kernel, pads = pool.attrs["kernel"], pool.attrs["pads"]
    if pool.attrs["ceil_mode"] or any(step != 1 for step in pool.attrs["dilations"]):
        return True
    return any(pad >= size for pad, size in zip(pads, kernel * 2, strict=True))


def _relu_of_positive(_rewriter: Rewriter, found: Found) -> Value | None:
    """A relu does nothing to numbers none of which lies below the zero point."""
    back = found.node("dequantize")
    zeros = [constant_of(value) for value in back.operands[2:]]
    if not _keeps_order(back) or None in zeros:
        return None
    zero = next((int(content.array.reshape(-1)[0]) for content in zeros if content is not None), 0)
    lowest = 0 if found["x"].tensor.dtype is DType.U8 else -128
    return back.output if zero == lowest else None


# ---- the table


def _is_movable(node: Node) -> bool:
    return _is_per_tensor(node) and node.operands[0].tensor.dtype in _BYTES


_DEQUANTIZE = Match("dequantize_linear", Capture("x"), more=True, name="dequantize", where=_is_movable)
_ONLY = Match("dequantize_linear", Capture("x"), more=True, name="dequantize", where=_is_movable, only_user=True)
_PAIR = Match("quantize_linear", Match("dequantize_linear", Capture("x"), more=True, name="dequantize"), more=True)

_RULES: tuple[Rule, ...] = (
    Rule("pair", _PAIR, _cancelled),
    Rule("relu", Match("relu", _DEQUANTIZE), _relu_of_positive),
    Rule("pool", Match("max_pool", _ONLY), _moved_past_pool),
    Rule("concat", Match("concat", _DEQUANTIZE, more=True), _moved_past_concat),
    Rule("move", Match(_MOVES, _ONLY, more=True), _moved_past),
)
