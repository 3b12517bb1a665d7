"""Conversions between element types as C++ expressions, with the meaning of `cast` and `bit_cast` in NumPy."""

from collections.abc import Sequence

from ....ir.attrs import Attrs
from ....ir.types import DType, Kind
from .types import Name, computed, number, stored

_LARGEST = {DType.F8E4M3FN: 448.0, DType.F8E4M3FNUZ: 240.0, DType.F8E5M2: 57344.0, DType.F8E5M2FNUZ: 57344.0}
_ROUND_MODES = {"up": 0, "down": 1, "nearest": 2}


def cast(operands: Sequence[Name | None], attrs: Attrs, to: DType) -> str:
    """The expression of a cast to `to`; to a small float it rounds."""
    x = operands[0]
    assert x is not None
    return converted(x, to, saturate=attrs["saturate"], round_mode=attrs["round_mode"])


def converted(x: Name, to: DType, *, saturate: bool = True, round_mode: str = "up") -> str:
    """`x` as type `to`: see the op `cast`."""
    if x.dtype is to:
        return x.text
    if x.dtype.kind is Kind.COMPLEX:
        return _from_complex(x, to, saturate=saturate, round_mode=round_mode)
    if to is DType.BOOL:
        return f"{x.text} != 0"
    if to.kind is Kind.COMPLEX:
        part = "float" if to is DType.C64 else "double"
        return f"{to.value}{{({part}){x.text}, ({part})0}}"
    if to.is_integer:
        return _to_integer(x, to)
    if to is DType.F8E8M0:
        mode = _ROUND_MODES[round_mode]
        return f"get(f8e8m0fnu{{power_of_two((double){x.text}, {mode}, {'true' if saturate else 'false'})}})"
    if to in (DType.F32, DType.F64):
        return f"({computed(to)}){x.text}"
    return _to_small(x, to, saturate)


def _from_complex(x: Name, to: DType, *, saturate: bool, round_mode: str) -> str:
    real = Name(f"{x.text}.re", DType.F32 if x.dtype is DType.C64 else DType.F64)
    if to is DType.BOOL:
        return f"{x.text}.re != 0 || {x.text}.im != 0"
    if to.kind is Kind.COMPLEX:
        part = "float" if to is DType.C64 else "double"
        return f"{to.value}{{({part}){x.text}.re, ({part}){x.text}.im}}"
    return converted(real, to, saturate=saturate, round_mode=round_mode)


def _to_integer(x: Name, to: DType) -> str:
    """Integers are cut off; floats out of range, whose meaning is open, become what they become in NumPy on x86."""
    if not x.dtype.is_float:
        text = f"({computed(to)}){x.text}"
    elif to is DType.U64:
        text = f"to_u64({x.text})"
    else:
        wide = "to_i64" if to in (DType.I64, DType.U32) else "to_i32"
        text = f"({computed(to)}){wide}({x.text})"
    return f"get(element<{stored(to)}>({text}))" if to.bits < 8 else text


def _to_small(x: Name, to: DType, saturate: bool) -> str:
    wide = f"to_odd({x.text})" if x.dtype is DType.F64 else f"(float){x.text}"
    if to in _LARGEST and saturate:
        limit = number(_LARGEST[to], "float")
        wide = f"least(greatest({wide}, -{limit}), {limit})"
    return f"rounded<{stored(to)}>({wide})"


def bit_cast(operands: Sequence[Name | None], _attrs: Attrs, to: DType) -> str:
    """The expression of the same bits taken for elements of `to`."""
    x = operands[0]
    assert x is not None
    return f"get(bits_as<{stored(to)}>(element<{stored(x.dtype)}>({x.text})))"
