"""Casts: to the same dtype, and through a dtype that loses nothing."""

from ....ir.graph import Value
from ....ir.types import DType, Kind
from ...framework.pattern import Capture, Found, Match, Rule
from ...framework.rewriter import Rewriter

_SIGNIFICAND = {DType.F64: 53, DType.F32: 24, DType.F16: 11, DType.BF16: 8}
_EXPONENT = {DType.F64: 11, DType.F32: 8, DType.F16: 5, DType.BF16: 8}


def holds_every(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`, so that casting there and back changes nothing."""
    if wide is narrow:
        return True
    if narrow is DType.BOOL:
        return wide.kind is not Kind.STRING and wide is not DType.F8E8M0  # which has no zero
    if wide in _SIGNIFICAND and narrow in _SIGNIFICAND:
        return _SIGNIFICAND[wide] >= _SIGNIFICAND[narrow] and _EXPONENT[wide] >= _EXPONENT[narrow]
    if wide.is_integer and narrow.is_integer:
        if wide.kind is narrow.kind:
            return wide.bits >= narrow.bits
        return narrow.kind is Kind.UINT and wide.bits > narrow.bits
    if wide in _SIGNIFICAND and narrow.is_integer:
        return _SIGNIFICAND[wide] >= narrow.bits
    return False


def _same_dtype(_rewriter: Rewriter, found: Found) -> Value | None:
    return found["x"] if found["x"].tensor.dtype is found.root.attrs["to"] else None


def _through(rewriter: Rewriter, found: Found) -> Value | None:
    source, middle, target = found["x"].tensor.dtype, found.node("inner").attrs["to"], found.root.attrs["to"]
    if not holds_every(middle, source):
        return None
    if target is DType.STRING:
        return None  # an integer, a float and a wider float are written differently
    if source.is_integer and middle.is_float and target.is_integer and not holds_every(target, source):
        return None  # floats out of range are not wrapped as integers are
    return found["x"] if target is source else rewriter.op("cast", found["x"], **dict(found.root.attrs))


_X = Capture("x")

RULES: tuple[Rule, ...] = (
    Rule("cast-to-same", Match("cast", _X), _same_dtype),
    Rule("cast-through", Match("cast", Match("cast", _X, name="inner")), _through),
)
