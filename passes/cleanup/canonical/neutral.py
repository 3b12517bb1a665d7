"""Neutral elements, repeated and cancelling operations: `x * 1`, `-(-x)`, `relu(relu(x))`, `where(c, x, x)`, casts."""

import math
from collections.abc import Callable

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.constant import Constant
from ....ir.dims import Truth, compare
from ....ir.graph import Node, Value
from ....ir.op import Op, Trait
from ....ir.ops.interfaces import with_trait
from ....ir.ops.known import MAX, MIN
from ....ir.types import DType, Kind, compatible
from ...framework.pattern import Capture, Found, Literal, Match, Replacement, Rule
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


_X, _Y = Capture("x"), Capture("y")

_CASTS: tuple[Rule, ...] = (
    Rule("cast-to-same", Match("cast", _X), _same_dtype),
    Rule("cast-through", Match("cast", Match("cast", _X, name="inner")), _through),
)


def _operand(name: str) -> Replacement:
    """The captured operand stands for the result, unless the result has another type (it broadcast the operand)."""
    return lambda _rewriter, found: found[name] if has_type_of(found[name], found.root) else None


def _chosen(name: str) -> Replacement:
    """As `_operand`, where no other operand may be longer: sizes that meet are taken to be one, but either may be 1."""

    def replaced(_rewriter: Rewriter, found: Found) -> Value | None:
        x = found[name]
        is_longest = all(_is_within(other, x) for other in found.root.operands)
        return x if is_longest and has_type_of(x, found.root) else None

    return replaced


def _is_within(other: Value, x: Value) -> bool:
    """Whether `other`, broadcast beside `x`, surely has no axis longer than it."""
    if other.tensor.shape is None or x.tensor.shape is None or other.tensor.rank > x.tensor.rank:
        return False
    sizes = zip(other.shape[::-1], x.shape[::-1], strict=False)
    return all(one == 1 or compare(one, size) is Truth.YES for one, size in sizes)


def has_type_of(value: Value, node: Node) -> bool:
    """Whether `value` surely has the type of the first result of `node`."""
    return compatible(node.outputs[0].type, value.type) is Truth.YES


def _is_exact_zero(content: Constant) -> bool:
    """A zero that leaves every sum as it is: an integer zero, or -0.0 (x + 0.0 turns -0.0 into 0.0)."""
    array = content.array
    if array.dtype.kind in "iu":
        return bool(np.all(array == 0))
    return content.dtype.is_float and bool(np.all((array == 0) & np.signbit(array.astype(np.float64))))


def _is_positive_zero(content: Constant) -> bool:
    array = content.array
    if array.dtype.kind in "iu":
        return bool(np.all(array == 0))
    return content.dtype.is_float and bool(np.all((array == 0) & ~np.signbit(array.astype(np.float64))))


def _small(check: Callable[[Constant], bool]) -> Callable[[Constant], bool]:
    return lambda content: 0 < content.size <= 4096 and check(content)


def _is_true(content: Constant) -> bool:
    return bool(np.all(content.array))


def _is_false(content: Constant) -> bool:
    return not np.any(content.array)


def _inner_operand(_rewriter: Rewriter, found: Found) -> Value | None:
    return found["x"] if has_type_of(found["x"], found.root) else None


def _inner_node(_rewriter: Rewriter, found: Found) -> Value | None:
    return found.node("inner").outputs[0]


def _single(_rewriter: Rewriter, found: Found) -> Value | None:
    operands = dict.fromkeys(found.root.operands)
    first = found.root.operands[0]
    return first if len(operands) == 1 and has_type_of(first, found.root) else None


def _clip_to_bounds(rewriter: Rewriter, found: Found) -> Value | None:
    """Clipping twice is clipping once, between the tighter constants (when the inner interval is not empty)."""
    inner, outer = found.node("inner"), found.root
    bounds = [_scalar(node.inputs[index]) for node in (inner, outer) for index in (1, 2)]
    if None in bounds:
        return None
    low, high, outer_low, outer_high = (bound for bound in bounds if bound is not None)
    if not low <= outer_low <= outer_high <= high:
        return None
    return rewriter.op("clip", found["x"], outer.inputs[1], outer.inputs[2])


def _clip_of_relu(rewriter: Rewriter, found: Found) -> Value | None:
    """A ReLU before a clip is a lower bound of 0, which an upper bound below it overrules."""
    given, dtype = found.root.inputs[1], found["x"].tensor.dtype
    number = _scalar(given) if given is not None else 0
    if number is None or math.isnan(number):
        return None
    low = given if number > 0 else rewriter.constant(np.zeros((), dtype.numpy), dtype)
    return rewriter.op("clip", found["x"], low, found.root.inputs[2])


def _scalar(value: Value | None) -> float | int | None:
    """The number in a constant; integers stay exact."""
    content = constant_of(value)
    if content is None or content.size != 1:
        return None
    number = content.array.reshape(-1)[0]
    return int(number) if content.dtype.is_integer else float(number)


def _base(_rewriter: Rewriter, found: Found) -> Value | None:
    """The base of a power of one. A float exponent takes integers through f64, which not all of 64 bits survive."""
    base, exponent = (value.tensor.dtype for value in found.root.operands)
    is_rounded = base.is_integer and base.itemsize == 8 and not exponent.is_integer
    return found["x"] if not is_rounded and has_type_of(found["x"], found.root) else None


_INVOLUTIONS = with_trait(Trait.INVOLUTION)
_IDEMPOTENT = with_trait(Trait.IDEMPOTENT)


def _takes(count: int, ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(op for op in ops if len(op.operands) == count)


RULES: tuple[Rule, ...] = (
    Rule("multiply-by-one", Match("mul", _X, Literal(value=1.0)), _operand("x")),
    Rule("divide-by-one", Match("div", _X, Literal(value=1.0)), _operand("x")),
    Rule("add-zero", Match("add", _X, Literal(where=_small(_is_exact_zero))), _operand("x")),
    Rule("subtract-zero", Match("sub", _X, Literal(where=_small(_is_positive_zero))), _operand("x")),
    Rule("power-of-one", Match("pow", _X, Literal(value=1.0)), _base),
    Rule("and-true", Match("logical_and", _X, Literal(where=_small(_is_true))), _operand("x")),
    Rule("or-false", Match("logical_or", _X, Literal(where=_small(_is_false))), _operand("x")),
    Rule("and-same", Match(_takes(2, _IDEMPOTENT), _X, _X), _operand("x")),
    Rule("where-same", Match("where", Capture("c"), _X, _X), _chosen("x")),
    Rule("where-true", Match("where", Literal(where=_small(_is_true)), _X, _Y), _chosen("x")),
    Rule("where-false", Match("where", Literal(where=_small(_is_false)), _Y, _X), _chosen("x")),
    Rule("one-operand", Match((MIN, MAX), _X, more=True), _single),
    Rule("no-bounds", Match("clip", _X), _operand("x")),
    Rule(
        "clip-twice",
        Match("clip", Match("clip", _X, Capture("l"), Capture("h"), name="inner"), Capture("low"), Capture("high")),
        _clip_to_bounds,
    ),
    Rule(
        "clip-of-relu",
        Match("clip", Match("relu", _X, name="inner", only_user=True), more=True),
        _clip_of_relu,
    ),
    *(Rule(f"{op.name}-twice", Match(op, Match(op, _X, name="inner")), _inner_operand) for op in _INVOLUTIONS),
    *(Rule(f"{op.name}-again", Match(op, Match(op, _X, name="inner")), _inner_node) for op in _takes(1, _IDEMPOTENT)),
    *_CASTS,
)
