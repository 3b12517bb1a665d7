"""What elementwise ops compute, as C++ expressions of named values.

Small floats are computed in float and not rounded between the ops of a region; a `cast` to one rounds. Integers wrap
around as in NumPy: they are computed as unsigned numbers and cut to their own width.
"""

from collections.abc import Callable, Mapping, Sequence

from ....ir.attrs import Attrs
from ....ir.ops.interfaces import composed_ops
from ....ir.scalar import Scalar
from ....ir.types import DType, Kind
from .casts import bit_cast, cast, converted
from .types import Name, computed, number, unsigned

Operands = Sequence[Name | None]
Expression = Callable[[Operands, Attrs, DType], str]
"""From operands, attributes and the dtype of the result to an expression of type `computed(dtype)`."""


def _first(operands: Operands) -> Name:
    first = operands[0]
    assert first is not None  # no op's first operand is optional
    return first


def _texts(operands: Operands) -> list[str]:
    return [operand.text for operand in operands if operand is not None]


# ---- arithmetic


def _binary(symbol: str) -> Expression:
    def expression(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
        a, b = _texts(operands)
        if not dtype.is_integer:
            return f"{a} {symbol} {b}"
        wide = unsigned(dtype)
        return f"({computed(dtype)})(({wide}){a} {symbol} ({wide}){b})"

    return expression


def _division(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
    a, b = _texts(operands)
    return f"quotient({a}, {b})" if dtype.is_integer else f"{a} / {b}"


def _function(name: str) -> Expression:
    """A function of the prelude, for all dtypes."""
    return lambda operands, _attrs, _dtype: f"{name}({', '.join(_texts(operands))})"


def _mathematical(name: str) -> Expression:
    """A function of CUDA's library, which has an `f` behind the name of its form for float."""

    def expression(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
        suffix = "" if dtype is DType.F64 else "f"
        return f"{name}{suffix}({', '.join(_texts(operands))})"

    return expression


def _chained(name: str) -> Expression:
    def expression(operands: Operands, _attrs: Attrs, _dtype: DType) -> str:
        first, *others = _texts(operands)
        for other in others:
            first = f"{name}({first}, {other})"
        return first

    return expression


def _clip(operands: Operands, _attrs: Attrs, _dtype: DType) -> str:
    x, low, high = _first(operands).text, operands[1], operands[2]
    raised = x if low is None else f"greatest({x}, {low.text})"
    return raised if high is None else f"least({raised}, {high.text})"


def _negative(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
    x = _first(operands).text
    return f"({computed(dtype)})(0 - ({unsigned(dtype)}){x})" if dtype.is_integer else f"-{x}"


def _absolute(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
    x = _first(operands).text
    return x if dtype.kind is Kind.UINT else f"magnitude({x})"


def _power(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
    x, exponent = _first(operands), operands[1]
    assert exponent is not None
    if dtype.is_integer and exponent.dtype.is_integer:
        return f"integer_power({x.text}, {exponent.text})"
    if dtype.is_integer:
        return f"float_power({x.text}, (double){exponent.text})"
    is_narrow = max(dtype.bits, exponent.dtype.bits) <= 32 and exponent.dtype.is_float
    function, wide = ("powf", "float") if is_narrow else ("pow", "double")
    return f"({computed(dtype)}){function}(({wide}){x.text}, ({wide}){exponent.text})"


# ---- activations; x is the operand, f(0.5) a literal and e("exp") a function of its type


class _Unary:
    """An operand with what expressions of it are made from."""

    def __init__(self, operands: Operands, dtype: DType) -> None:
        self.x = _first(operands).text
        self.dtype = dtype
        self.is_double = dtype is DType.F64
        self.ctype = "double" if self.is_double else "float"

    def f(self, value: float) -> str:
        """A literal."""
        return f"({number(value, self.ctype)})"

    def call(self, name: str, argument: str) -> str:
        """A function of CUDA's library."""
        return f"{name}{'' if self.is_double else 'f'}({argument})"


def _activation(function: Callable[[_Unary, Attrs], str]) -> Expression:
    return lambda operands, attrs, dtype: function(_Unary(operands, dtype), attrs)


def _selu(u: _Unary, attrs: Attrs) -> str:
    negative = f"{u.f(attrs['alpha'])} * {u.call('expm1', f'least({u.x}, {u.f(0.0)})')}"
    return f"{u.f(attrs['gamma'])} * ({u.x} > 0 ? {u.x} : {negative})"


def _celu(u: _Unary, attrs: Attrs) -> str:
    alpha = u.f(attrs["alpha"])
    negative = f"{alpha} * {u.call('expm1', f'{u.x} / {alpha}')}"
    return f"greatest({u.x}, {u.f(0.0)}) + least({u.f(0.0)}, {negative})"


def _held(u: _Unary, text: str) -> str:
    return f"least(greatest({text}, {u.f(0.0)}), {u.f(1.0)})"


def _line(u: _Unary, slope: float, start: float) -> str:
    """Held within [0, 1]. The product is rounded by itself, so that the line meets zero where it does on the host."""
    product = f"__{'d' if u.is_double else 'f'}mul_rn({u.f(slope)}, {u.x})"
    return _held(u, f"{product} + {u.f(start)}")


def _hard_swish(u: _Unary, _attrs: Attrs) -> str:
    return f"{u.x} * {_line(u, 1 / 6, 0.5)}"


def _gelu(u: _Unary, attrs: Attrs) -> str:
    if attrs["approximate"] == "tanh":
        cubic = f"{u.x} + {u.f(0.044715)} * ({u.x} * {u.x} * {u.x})"
        inner = u.call("tanh", f"{u.f(0.7978845608028654)} * ({cubic})")
        return f"{u.f(0.5)} * {u.x} * ({u.f(1.0)} + {inner})"
    if u.dtype is DType.F16:  # below 2**-24, where 1 + erf would lose digits, f16 has none
        return f"{u.f(0.5)} * {u.x} * ({u.f(1.0)} + {u.call('erf', f'{u.f(0.7071067811865476)} * {u.x}')})"
    return f"{u.f(0.5)} * {u.x} * {u.call('erfc', f'{u.f(-0.7071067811865476)} * {u.x}')}"


def _silu(u: _Unary, attrs: Attrs) -> str:
    return f"{u.x} * sigmoid({u.f(attrs['alpha'])} * {u.x})"


def _shrink(operands: Operands, attrs: Attrs, dtype: DType) -> str:
    x, ctype = _first(operands).text, "float" if dtype.is_float and dtype is not DType.F64 else "double"
    lambd, bias = (f"({number(attrs[name], ctype)})" for name in ("lambd", "bias"))
    wide = f"({ctype}){x}"
    shrunk = f"{wide} < -{lambd} ? {wide} + {bias} : {wide} > {lambd} ? {wide} - {bias} : ({ctype})0"
    return converted(Name(f"({shrunk})", DType.F64), dtype) if dtype.is_integer else shrunk


def _prelu(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
    x, slope = _texts(operands)
    return f"{x} < 0 ? {_binary('*')(operands, _attrs, dtype)} : {x}" if slope else x


# ---- logic


def _comparison(symbol: str) -> Expression:
    def expression(operands: Operands, _attrs: Attrs, _dtype: DType) -> str:
        a, b = _texts(operands)
        return f"{a} {symbol} {b}"

    return expression


def _bitwise(symbol: str) -> Expression:
    def expression(operands: Operands, _attrs: Attrs, dtype: DType) -> str:
        a, b = _texts(operands)
        return f"({computed(dtype)})({a} {symbol} {b})"

    return expression


def _is_nan(operands: Operands, _attrs: Attrs, _dtype: DType) -> str:
    x = _first(operands).text
    return f"{x} != {x}"


def _is_inf(operands: Operands, attrs: Attrs, _dtype: DType) -> str:
    x = _first(operands)
    infinity = number(float("inf"), x.ctype)
    found = [f"{x.text} == {infinity}"] if attrs["detect_positive"] else []
    found += [f"{x.text} == -{infinity}"] if attrs["detect_negative"] else []
    return " || ".join(found) or "false"


def _where(operands: Operands, _attrs: Attrs, _dtype: DType) -> str:
    condition, x, y = _texts(operands)
    return f"{condition} ? {x} : {y}"


# ---- the table


def _composed(scalar: Scalar) -> Expression:
    def expression(operands: Operands, attrs: Attrs, dtype: DType) -> str:
        def made(op: str, parts: Operands) -> Name | None:
            return Name(f"({EXPRESSIONS[op](parts, attrs, dtype)})", dtype)

        found = scalar.written(operands[0], lambda value: Name(number(value, computed(dtype)), dtype), made)
        return _texts([found])[0]

    return expression


_MATHEMATICAL = {
    "floor": "floor", "ceil": "ceil", "round": "rint", "sqrt": "sqrt", "rsqrt": "rsqrt", "exp": "exp", "log": "log",
    "erf": "erf", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh",
}  # fmt: skip

_ACTIVATIONS: Mapping[str, Callable[[_Unary, Attrs], str]] = {
    "leaky_relu": lambda u, attrs: f"{u.x} < 0 ? {u.f(attrs['alpha'])} * {u.x} : {u.x}",
    "elu": lambda u, attrs: f"{u.x} < 0 ? {u.f(attrs['alpha'])} * {u.call('expm1', u.x)} : {u.x}",
    "selu": _selu,
    "celu": _celu,
    "thresholded_relu": lambda u, attrs: f"{u.x} > {u.f(attrs['alpha'])} ? {u.x} : {u.f(0.0)}",
    "hard_sigmoid": lambda u, attrs: _line(u, attrs["alpha"], attrs["beta"]),
    "hard_swish": _hard_swish,
    "mish": lambda u, _attrs: f"{u.x} * {u.call('tanh', f'softplus({u.x})')}",
    "gelu": _gelu,
    "silu": _silu,
}

_COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "logical_and": "&&",
    "logical_or": "||",
    "logical_xor": "!=",
}

EXPRESSIONS: Mapping[str, Expression] = {
    **{op: _composed(scalar) for op, scalar in composed_ops().items()},
    **{op: _mathematical(name) for op, name in _MATHEMATICAL.items()},
    **{op: _activation(function) for op, function in _ACTIVATIONS.items()},
    **{op: _comparison(symbol) for op, symbol in _COMPARISONS.items()},
    "add": _binary("+"),
    "sub": _binary("-"),
    "mul": _binary("*"),
    "div": _division,
    "mod": _function("remainder_of"),
    "fmod": _function("truncated_remainder"),
    "pow": _power,
    "min": _chained("least"),
    "max": _chained("greatest"),
    "clip": _clip,
    "neg": _negative,
    "abs": _absolute,
    "sign": _function("sign_of"),
    "reciprocal": lambda operands, _attrs, dtype: f"{number(1.0, computed(dtype))} / {_first(operands).text}",
    "relu": lambda operands, _attrs, dtype: f"greatest({_first(operands).text}, ({computed(dtype)})0)",
    "sigmoid": _function("sigmoid"),
    "softplus": _function("softplus"),
    "shrink": _shrink,
    "prelu": _prelu,
    "logical_not": lambda operands, _attrs, _dtype: f"!{_first(operands).text}",
    "bitwise_and": _bitwise("&"),
    "bitwise_or": _bitwise("|"),
    "bitwise_xor": _bitwise("^"),
    "bitwise_not": lambda operands, _attrs, dtype: f"({computed(dtype)})~{_first(operands).text}",
    "shift_left": _function("shifted_up"),
    "shift_right": _function("shifted_down"),
    "is_nan": _is_nan,
    "is_inf": _is_inf,
    "where": _where,
    "cast": cast,
    "bit_cast": bit_cast,
}
"""How each elementwise op of the IR is computed."""


def expression(op: str, operands: Operands, attrs: Attrs, dtype: DType) -> Name:
    """The result of an elementwise op of one result of type `dtype`, as an expression."""
    return Name(EXPRESSIONS[op](operands, attrs, dtype), dtype)
