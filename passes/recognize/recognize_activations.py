"""Recognize activation functions that exporters write out: one op instead of up to eight, and one pass over memory.

Every form must have the type of its operand as result: a constant of higher rank that broadcasts it is left alone.
Constants count as the number that they round (the square root of two in f16, say). Rewritten are, in any order of
commutative operands and any association of products:

* sigmoid: 1 / (1 + exp(-x));  softplus: log(1 + exp(x)), also with torch's threshold around it
* silu: x sigmoid(a x), x / (1 + exp(-x));  mish: x tanh(softplus(x));  ops made from others: by their expressions
* gelu: x/2 (1 + erf(x / sqrt(2))), and its tanh approximation with the cube as a power or as products
* hard_sigmoid: clip(x + 3, 0, 6) / 6;  hard_swish: x times that
* relu: max(x, 0), clip(x, 0);  leaky_relu: where(x > 0, x, a x), for 0 <= a <= 1 also max(x, a x)
* softmax: exp(x - m) / sum(exp(x - m)) with m = max(x);  log_softmax: log(softmax(x)), x - m - log(sum(exp(x - m)))

Those that ONNX Runtime cannot run in f64 stay as they are there: it has the kernels of their parts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.ops import native
from ...ir.ops.interfaces import composed_ops
from ...ir.ops.known import GREATER, GREATER_EQUAL
from ...ir.ops.rules import normal_axes
from ...ir.scalar import Scalar
from ...ir.types import DType
from ..cleanup.canonical.neutral import has_type_of
from ..framework.base import PatternPass
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Match, OneOf, Pattern, Replacement, Rule
from ..framework.rewriter import Rewriter
from .parts.forms import about, cube, number_of, products, scalar, square

_X = Capture("x")


def _can_be(op: str, x: Value, root: Node) -> bool:
    """Whether `op` of x can take the place of the root: they have one type, of which runtimes have the op."""
    return has_type_of(x, root) and not (x.tensor.dtype is DType.F64 and native(op).has(Trait.UP_TO_F32))


def _unary(op: str, **attrs: str | float) -> Replacement:
    """`op` of the captured x, if that can take the place of the root."""
    return lambda rewriter, found: rewriter.op(op, found["x"], **attrs) if _can_be(op, found["x"], found.root) else None


def _with_number(op: str, attr: str, is_allowed: Callable[[float], bool] = math.isfinite) -> Replacement:
    """As `_unary`, with the constant captured as "a" as attribute."""

    def replace(rewriter: Rewriter, found: Found) -> Value | None:
        number = number_of(found.constant("a"))
        if not is_allowed(number) or not _can_be(op, found["x"], found.root):
            return None
        return rewriter.op(op, found["x"], **{attr: number})

    return replace


# ---- softmax


def _over_one_axis(op: str) -> Replacement:
    """`op` along the one axis that maximum and sum run over, both keeping it."""

    def replace(rewriter: Rewriter, found: Found) -> Value | None:
        x, reductions = found["x"], (found.node("max"), found.node("sum"))
        axes = {normal_axes(node.attrs["axes"], x.tensor.rank) for node in reductions}
        if len(axes) != 1 or not all(node.attrs["keep_dims"] for node in reductions) or not has_type_of(x, found.root):
            return None
        (only,) = axes
        return rewriter.op(op, x, axis=only[0]) if len(only) == 1 else None

    return replace


def _log_of_softmax(rewriter: Rewriter, found: Found) -> Value | None:
    return rewriter.op("log_softmax", found["x"], axis=found.node("softmax").attrs["axis"])


_SHIFTED = Match("sub", _X, Match("reduce_max", _X, name="max"))
_POWERS = Match("exp", _SHIFTED, name="exp")
_TOTAL = Match("reduce_sum", _POWERS, name="sum")

_SOFTMAX: tuple[Rule, ...] = (
    Rule("softmax", Match("div", _POWERS, _TOTAL), _over_one_axis("softmax")),
    Rule("softmax-by-reciprocal", Match("mul", _POWERS, Match("reciprocal", _TOTAL)), _over_one_axis("softmax")),
    Rule("log-softmax", Match("sub", _SHIFTED, Match("log", _TOTAL)), _over_one_axis("log_softmax")),
    Rule("log-of-softmax", Match("log", Match("softmax", _X, name="softmax", only_user=True)), _log_of_softmax),
)

# ---- ops that are made from others


def _pattern(scalar: Scalar, x: Pattern) -> Match:
    found = scalar.written(x, about, lambda op, parts: Match(op, *parts))
    assert isinstance(found, Match)  # the operand alone is no row's meaning
    return found


# ---- sigmoids and what is made of them

_ONE = about(1.0)
_DECAY = Match("add", Match("exp", Match("neg", _X)), _ONE)
_EXP_AND_ONE = Match("add", Match("exp", _X), _ONE)


def _threshold(rewriter: Rewriter, found: Found) -> Value | None:
    """Above 20, softplus is x to within f32's rounding; f64 asks for a threshold of 40."""
    least = 40.0 if found["x"].tensor.dtype.bits == 64 else 20.0
    if number_of(found.constant("a")) < least or not has_type_of(found["x"], found.root):
        return None
    return rewriter.op("softplus", found["x"])


_SIGMOID: tuple[Rule, ...] = (
    Rule("sigmoid", Match("div", _ONE, _DECAY), _unary("sigmoid")),
    Rule("sigmoid-by-reciprocal", Match("reciprocal", _DECAY), _unary("sigmoid")),
    Rule("softplus", Match("log", _EXP_AND_ONE), _unary("softplus")),
    Rule(
        "softplus-threshold",
        Match("where", Match("greater", _X, scalar("a")), _X, Match("softplus", _X)),
        _threshold,
    ),
    Rule("silu", Match("mul", _X, Match("sigmoid", _X)), _unary("silu")),
    Rule(
        "silu-scaled",
        Match("mul", _X, Match("sigmoid", Match("mul", _X, scalar("a")))),
        _with_number("silu", "alpha"),
    ),
    Rule("silu-by-division", Match("div", _X, _DECAY), _unary("silu")),
    Rule("mish", Match("mul", _X, Match("tanh", Match("softplus", _X))), _unary("mish")),
)

# ---- GELU

_ROOT_TWO_OVER_PI = math.sqrt(2 / math.pi)
_ERF = Match("erf", OneOf(Match("mul", _X, about(math.sqrt(0.5))), Match("div", _X, about(math.sqrt(2)))))
_PART = about(0.044715)
_PART_OF_SQUARE = OneOf(Match("mul", square(_X), _PART), Match("mul", Match("mul", _X, _PART), _X))
_PART_OF_CUBE = OneOf(
    Match("mul", cube(_X), _PART),
    Match("mul", _PART_OF_SQUARE, _X),
    Match("mul", Match("mul", _X, _PART), square(_X)),
)
_CUBIC = Match("add", _X, _PART_OF_CUBE)
_SQUARED = Match("add", _PART_OF_SQUARE, _ONE)
_CURVE = OneOf(Match("mul", _CUBIC, about(_ROOT_TWO_OVER_PI)), *products(_X, _SQUARED, about(_ROOT_TWO_OVER_PI)))


def _half_of_x_and(factor: Match) -> tuple[Match, ...]:
    """`x / 2` times 1 + `factor`."""
    with_one = Match("add", factor, _ONE)
    halved = (
        Match("mul", Match("div", _X, about(2.0)), with_one),
        Match("div", Match("mul", _X, with_one), about(2.0)),
    )
    return (*products(_X, with_one, about(0.5)), *halved)


_GELU: tuple[Rule, ...] = (
    *(Rule("gelu", form, _unary("gelu")) for form in _half_of_x_and(_ERF)),
    *(Rule("gelu-tanh", form, _unary("gelu", approximate="tanh")) for form in _half_of_x_and(Match("tanh", _CURVE))),
)

# ---- pieces of lines

_TO_SIX = OneOf(
    Match("clip", Match("add", _X, about(3.0)), about(0.0), about(6.0)),
    Match("min", Match("max", Match("add", _X, about(3.0)), about(0.0)), about(6.0)),
    Match("min", Match("relu", Match("add", _X, about(3.0))), about(6.0)),
)


def _is_sixth(alpha: float) -> bool:
    return math.isclose(alpha, 1 / 6, rel_tol=1e-6)


_SIXTH = Match("hard_sigmoid", _X, attrs={"alpha": _is_sixth, "beta": 0.5})


_PIECES: tuple[Rule, ...] = (
    Rule("relu", Match("max", _X, about(0.0)), _unary("relu")),
    Rule("relu-by-clip", Match("clip", _X, about(0.0)), _unary("relu")),
    Rule("hard-sigmoid", Match("div", _TO_SIX, about(6.0)), _unary("hard_sigmoid", alpha=1 / 6, beta=0.5)),
    Rule("hard-sigmoid-by-factor", Match("mul", _TO_SIX, about(1 / 6)), _unary("hard_sigmoid", alpha=1 / 6, beta=0.5)),
    Rule("hard-swish", Match("mul", _X, _SIXTH), _unary("hard_swish")),
    Rule("hard-swish-divided-last", Match("div", Match("mul", _X, _TO_SIX), about(6.0)), _unary("hard_swish")),
    Rule("hard-swish-by-factor", Match("mul", Match("mul", _X, _TO_SIX), about(1 / 6)), _unary("hard_swish")),
    Rule(
        "leaky-relu",
        Match("where", Match((GREATER, GREATER_EQUAL), _X, about(0.0)), _X, Match("mul", _X, scalar("a"))),
        _with_number("leaky_relu", "alpha"),
    ),
    Rule(
        "leaky-relu-by-max",
        Match("max", _X, Match("mul", _X, scalar("a"))),
        _with_number("leaky_relu", "alpha", lambda number: 0 <= number <= 1),
    ),
)


_COMPOSED: tuple[Rule, ...] = tuple(
    Rule(name, _pattern(scalar, _X), _unary(name)) for name, scalar in composed_ops().items()
)


@dataclass(frozen=True)
class RecognizeActivations(PatternPass):
    """Rewrites composed activation functions to the ops that they are."""

    name: ClassVar[str] = "recognize-activations"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return (*_SOFTMAX, *_SIGMOID, *_GELU, *_PIECES, *_COMPOSED)
