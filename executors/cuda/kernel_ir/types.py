"""How element types are stored and computed in generated CUDA code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

import numpy as np

from ....ir.constant import Constant
from ....ir.plan import element_bytes
from ....ir.types import DType, Kind

_INTEGERS = {
    DType.U8: "unsigned char",
    DType.U16: "unsigned short",
    DType.U32: "unsigned",
    DType.U64: "u64",
    DType.I8: "signed char",
    DType.I16: "short",
    DType.I32: "int",
    DType.I64: "i64",
}
_WIDE = {DType.F32: "float", DType.F64: "double"}
_OWN = frozenset({DType.C64, DType.C128})
_SUB_BYTE_INTEGERS = {
    DType.U2: "unsigned char",
    DType.U4: "unsigned char",
    DType.I2: "signed char",
    DType.I4: "signed char",
}

WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "u64", 16: "word16"}
"""A type of each size, for elements that are moved and not looked at."""


def has_code(dtype: DType) -> bool:
    """Whether kernels can hold elements of this type: all but strings."""
    return dtype.kind is not Kind.STRING


def stored(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    if dtype is DType.BOOL:
        return "boolean"
    return _INTEGERS.get(dtype) or _WIDE.get(dtype) or str(dtype)


def computed(dtype: DType) -> str:
    """The C++ type of an element in a register: small floats are computed in float, each integer in its own type."""
    if dtype is DType.BOOL:
        return "bool"
    if dtype in _OWN:
        return str(dtype)
    return _INTEGERS.get(dtype) or _WIDE.get(dtype) or _SUB_BYTE_INTEGERS.get(dtype) or "float"


def unsigned(dtype: DType) -> str:
    """The type in which integers of `dtype` are added and multiplied, as signed overflow has no meaning in C++."""
    return "u64" if dtype.bits == 64 else "unsigned"


def word(dtype: DType) -> str:
    """The type as which elements of `dtype` are moved."""
    return WORDS[element_bytes(dtype)]


@dataclass(frozen=True, slots=True)
class Name:
    """A value in generated code: an expression of type `computed(dtype)`."""

    text: str
    dtype: DType

    @property
    def ctype(self) -> str:
        """Its C++ type."""
        return computed(self.dtype)


class _Form(Template):
    idpattern = "[0-9]+"


def hole(index: int, operand: Name) -> Name:
    """`$0`, `$1`, ...: what a form is written with in the place of an operand."""
    return Name(f"${index}", operand.dtype)


def filled(form: str, operands: Sequence[Name | None]) -> str:
    """The text of a form, an expression with `$0`, `$1`, ... where its operands stand."""
    return _Form(form).substitute({str(index): each.text for index, each in enumerate(operands) if each is not None})


def number(value: float, ctype: str) -> str:
    """A literal of type `float` or `double`."""
    macro = "NOT_A_NUMBER" if math.isnan(value) else "INFINITE" if value > 0 else "-INFINITE"
    if not math.isfinite(value):
        return f"(({ctype}){macro})"
    return f"{value!r}f" if ctype == "float" else repr(value)


def _integer(value: int, ctype: str) -> str:
    if ctype == "i64":
        return "(-9223372036854775807ll - 1)" if value == -(2**63) else f"{value}ll"
    if ctype == "u64":
        return f"{value}ull"
    return "(-2147483647 - 1)" if value == -(2**31) else f"({ctype}){value}{'u' if value >= 2**31 else ''}"


def literals(constant: Constant) -> list[str]:
    """The elements of a constant in row-major order, as expressions of type `computed(dtype)`."""
    dtype = constant.dtype
    items = constant.array.reshape(-1)
    if dtype is DType.BOOL:
        return ["true" if item else "false" for item in items]
    if dtype in _OWN:
        part = "float" if dtype is DType.C64 else "double"
        return [f"{dtype.value}{{{number(item.real, part)}, {number(item.imag, part)}}}" for item in items.tolist()]
    if dtype.is_integer:
        return [_integer(int(item), computed(dtype)) for item in items]
    # As f32, small floats are exact; the shortest text of an f32 reads back as the same f32.
    wide = items if dtype is DType.F64 else items.astype(np.float32)
    return [number(float(str(item)), computed(dtype)) for item in wide]
