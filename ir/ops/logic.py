"""Comparisons, booleans, bits and selection: elementwise, operands broadcast as in NumPy.

Meanings follow the ONNX operators. Comparisons with NaN are false, except `not_equal`.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..attrs import Attribute, AttrKind, Attrs
from ..constant import Array
from ..dims import Dim, Truth, compare, is_at_least
from ..op import BOOLS, COMPLEX, FLOAT8, FLOATS, INTEGERS, NUMBERS, STRINGS, DTypes, Op, Symbolic, Trait, op
from ..types import DType, TensorType, Type
from .elementwise import symbolic_elements, unary
from .rules import broadcast_shapes, broadcast_type, compare_type

_Truth = Callable[[Dim, Dim], bool | None]

_TRUTHS: dict[Truth, bool | None] = {Truth.YES: True, Truth.NO: False, Truth.UNKNOWN: None}
_TESTED = FLOATS | FLOAT8 - {DType.F8E8M0}


# ---- comparisons


def compared(function: Callable[[Any, Any], Any]) -> Callable[[Array, Array], Array]:
    """A meaning that compares elements; strings too."""
    return lambda a, b: np.asarray(function(a, b), dtype=np.bool_)


def _equal(a: Dim, b: Dim) -> bool | None:
    return _TRUTHS[compare(a, b)]


def _at_least(a: Dim, b: Dim) -> bool | None:
    return _TRUTHS[is_at_least(a, b)]


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


# ---- connectives of known truths


def _and(a: bool, b: bool) -> bool:
    return a and b


def _or(a: bool, b: bool) -> bool:
    return a or b


def _xor(a: bool, b: bool) -> bool:
    return a != b


# ---- tests of floats


def is_nan(x: Array) -> Array:
    """Whether an element is not a number."""
    return np.asarray(np.isnan(x))


def is_inf(x: Array, *, detect_negative: bool, detect_positive: bool) -> Array:
    """Whether an element is an infinity of one of the signs that are looked for."""
    looked_for = np.zeros(x.shape, dtype=np.bool_)
    if detect_negative:
        looked_for |= x < 0
    if detect_positive:
        looked_for |= x > 0
    return np.asarray(np.isinf(x) & looked_for)


def test_type(x: TensorType, **_attrs: Any) -> TensorType:
    """The result is bool, in the shape of the operand."""
    return x.with_dtype(DType.BOOL)


# ---- shifts


def shift_left(a: Array, b: Array) -> Array:
    """Bits moved up by `b` places, the sign bit like the others; 0 when `b` is negative or not below the width."""
    moved = np.left_shift(a, _shift_within_width(a, b))
    return np.where(_exceeds_width(a, b), a.dtype.type(0), moved)


def shift_right(a: Array, b: Array) -> Array:
    """Bits moved down by `b` places, copies of the sign following; nothing but the sign when `b` exceeds the width."""
    moved = np.right_shift(a, _shift_within_width(a, b))
    sign = -(a < 0).astype(a.dtype)
    return np.where(_exceeds_width(a, b), sign, moved)


def _exceeds_width(a: Array, b: Array) -> Array:
    return np.asarray((b < 0) | (b >= 8 * a.dtype.itemsize))


def _shift_within_width(a: Array, b: Array) -> Array:
    """Shifts that C defines: NumPy passes the others on to it."""
    return np.where(_exceeds_width(a, b), b.dtype.type(0), b)


# ---- selection


def where(condition: Array, x: Array, y: Array) -> Array:
    """`x` where the condition holds, `y` elsewhere."""
    return np.where(condition, x, y)


def where_type(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    """All three broadcast together; the result has the dtype of `x` and `y`."""
    return TensorType(x.dtype, broadcast_shapes(condition.dims, x.dims, y.dims))


def _symbolic_where(types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Any:
    condition, x, y = operands
    if condition is not None:
        return symbolic_elements(_selected)(types, operands, attrs)
    common = symbolic_elements(_common)(types, (x, y), attrs)
    return common if common is not None and types[0] == TensorType(DType.BOOL, common.shape) else None


def _selected(holds: bool, x: Dim, y: Dim) -> Dim:
    return x if holds else y


def _common(x: Dim, y: Dim) -> Dim | None:
    return x if compare(x, y) is Truth.YES else None


# ---- the table


def _comparison(
    name: str,
    function: Callable[..., Any],
    doc: str,
    symbolic: _Truth,
    *,
    dtypes: DTypes = NUMBERS,
    traits: Trait = Trait.NONE,
) -> Op:
    return op(
        name,
        "a: T, b: T",
        T=dtypes,
        infer=compare_type,
        meaning=compared(function),
        traits=Trait.ELEMENTWISE | Trait.BROADCASTS | Trait.COMPARES | traits,
        symbolic=symbolic_elements(symbolic),
        doc=doc,
    )


def _connective(
    name: str,
    function: Callable[..., Any],
    doc: str,
    dtypes: DTypes,
    symbolic: Symbolic | None = None,
    traits: Trait = Trait.NONE,
) -> Op:
    return op(
        name,
        "a: T, b: T",
        T=dtypes,
        infer=broadcast_type,
        meaning=function,
        traits=Trait.ELEMENTWISE | Trait.BROADCASTS | Trait.COMMUTATIVE | traits,
        aliases=((0, 0), (0, 1)),
        symbolic=symbolic,
        doc=doc,
    )


def _equality(name: str, function: Callable[..., Any], doc: str, symbolic: _Truth) -> Op:
    dtypes = BOOLS | NUMBERS | STRINGS
    return _comparison(name, function, doc, symbolic, dtypes=dtypes, traits=Trait.COMMUTATIVE)


def _shift(name: str, function: Callable[..., Any]) -> Op:
    return op(
        name,
        "a: T, b: T",
        T=INTEGERS,
        infer=broadcast_type,
        meaning=function,
        traits=Trait.ELEMENTWISE | Trait.BROADCASTS,
        aliases=((0, 0), (0, 1)),
    )


OPS: tuple[Op, ...] = (
    _connective("logical_and", np.logical_and, "Both.", BOOLS, symbolic_elements(_and), Trait.IDEMPOTENT),
    _connective("logical_or", np.logical_or, "Either or both.", BOOLS, symbolic_elements(_or), Trait.IDEMPOTENT),
    _connective("logical_xor", np.logical_xor, "Exactly one.", BOOLS, symbolic_elements(_xor)),
    unary(
        "logical_not",
        np.logical_not,
        "Not.",
        dtypes=BOOLS,
        symbolic=symbolic_elements(operator.not_),
        traits=Trait.INVOLUTION,
    ),
    _connective("bitwise_and", np.bitwise_and, "The bits set in both.", INTEGERS, traits=Trait.IDEMPOTENT),
    _connective("bitwise_or", np.bitwise_or, "The bits set in either.", INTEGERS, traits=Trait.IDEMPOTENT),
    _connective("bitwise_xor", np.bitwise_xor, "The bits set in exactly one.", INTEGERS),
    unary("bitwise_not", np.bitwise_not, "All bits turned over.", dtypes=INTEGERS, traits=Trait.INVOLUTION),
    _shift("shift_left", shift_left),
    _shift("shift_right", shift_right),
    _equality("equal", np.equal, "a == b.", _equal),
    _equality("not_equal", np.not_equal, "a != b.", lambda a, b: _not(_equal(a, b))),
    _comparison("less", np.less, "a < b.", lambda a, b: _not(_at_least(a, b))),
    _comparison("less_equal", np.less_equal, "a <= b.", lambda a, b: _at_least(b, a)),
    _comparison("greater", np.greater, "a > b.", lambda a, b: _not(_at_least(b, a))),
    _comparison("greater_equal", np.greater_equal, "a >= b.", _at_least),
    op("is_nan", "x: T", T=_TESTED, infer=test_type, meaning=is_nan, traits=Trait.ELEMENTWISE),
    op(
        "is_inf",
        "x: T",
        T=_TESTED,
        attrs=(
            Attribute("detect_negative", AttrKind.BOOL, default=True),
            Attribute("detect_positive", AttrKind.BOOL, default=True),
        ),
        infer=test_type,
        meaning=is_inf,
        traits=Trait.ELEMENTWISE,
    ),
    op(
        "where",
        "condition: B, x: T, y: T",
        B=BOOLS,
        T=BOOLS | NUMBERS | STRINGS | COMPLEX,
        infer=where_type,
        meaning=where,
        traits=Trait.ELEMENTWISE | Trait.BROADCASTS | Trait.UNROUNDED,
        aliases=((0, 1), (0, 2)),
        symbolic=_symbolic_where,
    ),
)
