"""Integers that ONNX Runtime's CPU computes through f64 or compares by half of their bits, and when that is exact.

NumPy and the ops here wrap around. ONNX Runtime saturates sums and products at the limits of the dtype, drops what is
below the 53 bits of f64, and tells the least and the greatest of 64 bit integers by their lower 32 bits. Which dtypes
of which op are exact for any number is tabled in `tests/executors/ort/test_integers.py`. Where numbers are known to be
small, as those of a mask are, every op is exact.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.analysis import nested_graphs
from ...ir.analysis.shape_values import ShapeValues
from ...ir.constant import Constant
from ...ir.dims import Dim, lower_bound, upper_bound
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.ops.interfaces import reduction_kind
from ...ir.ops.known import ARANGE, CAST, DYNAMIC_REDUCE, EXPAND, GATHER, SHAPE, SLICE
from ...ir.types import DType, Kind

_F64 = 53
_HALF = 31
_OFTEN = 1 << 37
"""How many elements of unknown number there are at most: 2^37 of 64 bits are a tebibyte."""

Span = tuple[int, int]
"""The least and the greatest number that elements may be."""

_SIGNED = frozenset((DType.I32, DType.I64))
_LONG = frozenset((DType.I64, DType.U64))
_MULTIPLIED = (2, 3)
"""Exponents for which ONNX Runtime multiplies, if there is one exponent for all."""


def inexact(node: Node) -> str:
    """Why ONNX Runtime may give other integers than the ops mean, at a node or in its regions; empty when it cannot."""
    bodies = (body for region in node.regions.values() for body in nested_graphs(region))
    nodes = (node, *(inner for body in bodies for inner in body.nodes))
    return next((problem for each in nodes if (problem := _problem(each))), "")


def _problem(node: Node) -> str:
    check = _CHECKS.get(node.op.name)
    return check(node) if check is not None else ""


def _through_f64(what: str) -> str:
    return f"ONNX Runtime computes it in f64, where {what} of integers may not be exact, and saturates"


def _reduced(node: Node) -> str:
    """The greatest number that a reduction meets on its way must be one of the dtype and of f64."""
    x = node.operands[0]
    kind = str(node.attrs["kind"]) if node.op is DYNAMIC_REDUCE else reduction_kind(node.op)
    if x.tensor.dtype not in _SIGNED or kind in ("max", "min"):
        return ""
    if kind == "prod":
        is_exact = ShapeValues().of(x) is not None and _is_of_sizes(x)
    else:
        bound = _bound(x)
        power = 2 if kind in ("l2", "sum_square") else 1
        is_exact = bound is not None and _fits(bound**power * _count(node), x.tensor.dtype)
    return "" if is_exact else _through_f64("a sum or product")


def _is_of_sizes(value: Value) -> bool:
    """Whether elements are sizes of one tensor, which are far from 2^53 when multiplied."""
    node = value.producer
    if node is None or node.op is SHAPE:
        return node is not None
    is_part = node.op.has(Trait.VIEW) or node.op is SLICE
    return is_part and _is_of_sizes(node.operands[0])


def _count(node: Node) -> int:
    axes = node.attrs.get("axes")
    shape = node.operands[0].tensor.shape
    if shape is None:
        return _OFTEN
    dims = shape if axes is None else [shape[axis] for axis in axes]
    limits = [upper_bound(dim) for dim in dims]
    return math.prod(limit for limit in limits if limit is not None) if None not in limits else _OFTEN


def _power(node: Node) -> str:
    base, exponent = node.operands
    dtype = base.tensor.dtype
    if dtype not in _SIGNED:
        return ""
    least, greatest = _span(exponent) or (-1, -1)
    is_one = exponent.tensor.shape == () and exponent.tensor.dtype in _SIGNED
    if is_one and least == greatest and least in _MULTIPLIED:
        return ""
    bound = _bound(base)
    is_small = 0 <= least <= greatest <= dtype.bits and bound is not None and _fits(bound**greatest, dtype)
    return "" if is_small else _through_f64("a power")


def _remainder(node: Node) -> str:
    is_long = node.outputs[0].tensor.dtype in _LONG
    return _through_f64("a remainder") if is_long and not _are_below(node, _F64) else ""


def _compared(node: Node) -> str:
    if node.outputs[0].tensor.dtype is not DType.I64 or _are_below(node, _HALF):
        return ""
    return "ONNX Runtime compares 64 bit integers by their lower half there"


def _are_below(node: Node, bits: int) -> bool:
    bounds = [_bound(value) for value in node.operands]
    return all(bound is not None and bound < 1 << bits for bound in bounds)


def _fits(number: int, dtype: DType) -> bool:
    return number < 1 << min(_F64, dtype.bits - 1)


def _bound(value: Value) -> int | None:
    """The greatest magnitude that an element may have, None where nothing says so."""
    span = _span(value)
    return None if span is None else max(abs(span[0]), abs(span[1]))


def _span(value: Value) -> Span | None:
    """By constants, sizes (at most those of memory), sums, and narrower types that elements were cast from."""
    elements = ShapeValues().of(value)
    if elements is not None and elements.size:
        return _of_dims(elements.reshape(-1).tolist())
    found = _span_of_result(value.producer) if value.producer is not None else None
    own = _of_dtype(value.tensor.dtype)
    is_held = found is not None and (own is None or (own[0] <= found[0] and found[1] <= own[1]))
    return found if is_held else own  # what the dtype does not hold wraps around


def _span_of_result(node: Node) -> Span | None:
    content = node.attrs.get("value")
    if isinstance(content, Constant):
        return _of_numbers(content.array)
    if node.op is ARANGE:
        return _of_dims((node.attrs["start"], node.attrs["limit"]))
    if node.op.has(Trait.VIEW) or node.op in (CAST, GATHER, SLICE, EXPAND):
        return _span(node.operands[0])
    rule = _SPANS.get(node.op.name)
    if rule is None:
        return None
    spans = [_span(operand) for operand in node.operands]
    known = [span for span in spans if span is not None]
    return rule(*known) if len(known) == len(spans) else None


def _of_dims(dims: Sequence[Dim]) -> Span:
    """A symbol, and what is computed from some, is not beyond memory, to either side."""
    least, most = [lower_bound(dim) for dim in dims], [upper_bound(dim) for dim in dims]
    return min(-_OFTEN if end is None else end for end in least), max(_OFTEN if end is None else end for end in most)


def _of_numbers(array: Any) -> Span | None:
    if not array.size or array.dtype.kind not in "biuf":
        return None
    least, most = array.min().item(), array.max().item()
    return (int(least), int(most)) if math.isfinite(least) and least == int(least) and most == int(most) else None


_SPANS: dict[str, Callable[..., Span]] = {
    "abs": lambda x: (0, max(abs(x[0]), abs(x[1]))),
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "max": lambda *each: (max(least for least, _ in each), max(most for _, most in each)),
    "min": lambda *each: (min(least for least, _ in each), min(most for _, most in each)),
    "neg": lambda x: (-x[1], -x[0]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "where": lambda _c, x, y: (min(x[0], y[0]), max(x[1], y[1])),
}
"""The span of a result by those of the operands, as if nothing wrapped around."""


def _of_dtype(dtype: DType) -> Span | None:
    if dtype is DType.BOOL:
        return 0, 1
    if not dtype.is_integer:
        return None
    bits = dtype.bits - (dtype.kind is Kind.INT)
    return -(1 << bits) if dtype.kind is Kind.INT else 0, (1 << bits) - 1


_CHECKS: dict[str, Callable[[Node], str]] = {
    "dynamic_reduce": _reduced,
    "einsum": lambda node: _through_f64("a sum") if node.outputs[0].tensor.dtype in _SIGNED else "",
    "fmod": _remainder,
    "pow": _power,
    **{f"reduce_{kind}": _reduced for kind in ("l1", "l2", "log_sum", "mean", "prod", "sum")},
    "reduce_sum_square": _reduced,
    "sign": _compared,
}
