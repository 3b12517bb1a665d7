"""Random numbers as statements of a program: each element by its place, from a state that is read once a thread."""

from collections.abc import Callable, Mapping

from ....ir.attrs import Attrs
from ....ir.ops.keyed import UNIFORM_BITS
from ....ir.types import DType
from .casts import converted
from .types import Name, number

Drawn = Callable[[str, list[Name], Attrs, DType], str]
"""From the arguments of a draw (key, count, place, element of a vector), the operands beside the state, attributes and
the dtype of the result to an expression of type `computed(dtype)`."""


def _scaled(drawn: str, factor: float, summand: float, dtype: DType) -> str:
    ctype = "double" if dtype is DType.F64 else "float"
    return f"plus(times({drawn}, {number(factor, ctype)}), {number(summand, ctype)})"


def _uniform(arguments: str, _operands: list[Name], attrs: Attrs, dtype: DType) -> str:
    low, high = _number(attrs, "low"), _number(attrs, "high")
    return _scaled(_unit(arguments, UNIFORM_BITS[dtype]), high - low, low, dtype)


def _normal(arguments: str, _operands: list[Name], attrs: Attrs, dtype: DType) -> str:
    mean, scale = _number(attrs, "mean"), _number(attrs, "scale")
    return _scaled(f"normal_{'double' if dtype is DType.F64 else 'float'}({arguments})", scale, mean, dtype)


def _number(attrs: Attrs, name: str) -> float:
    value = attrs[name]
    assert isinstance(value, float)  # its schema says so
    return value


def _bernoulli(arguments: str, operands: list[Name], _attrs: Attrs, dtype: DType) -> str:
    (x,) = operands
    drawn = _unit(arguments, UNIFORM_BITS[DType.F64 if x.dtype is DType.F64 else DType.F32])
    return converted(Name(f"({drawn} < {x.text})", DType.BOOL), dtype)


def _unit(arguments: str, bits: int) -> str:
    return f"uniform_double({arguments})" if bits > 32 else f"uniform_float<{bits}>({arguments})"


def arguments_of(key: Name, count: Name, place: Name, size: int, stream: int) -> str:
    """The arguments of a draw, within a loop over the elements `w` of a vector."""
    at = f"(unsigned){place.text}" if size < 1 << 32 else f"(u64){place.text}"
    return f"{key.text}, {count.text} + {stream % 2**64}ull, {at}, w"


DRAWS: Mapping[str, Drawn] = {
    "keyed_random_uniform": _uniform,
    "keyed_random_normal": _normal,
    "keyed_bernoulli": _bernoulli,
}
"""Ops that draw an element for each place."""
