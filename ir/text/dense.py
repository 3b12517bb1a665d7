"""Small constants in the text form, both ways and exact: `dense<bf16[3]: [1.0, -0.0, nan]>`.

An element is written as a person would, and in hexadecimal (`0x7fc1`, the bits) where that would not come back to the
same bits: a NaN with a payload, say. Complex numbers are pairs `(re, im)`, strings stand in JSON quotes, bytes are
`b"0aff"`.
"""

import re
from typing import Any

import numpy as np

from ..constant import Array, Constant
from ..types import DType, Kind, TensorType
from .cursor import STRING, Cursor, string_text

INLINE_LIMIT = 16
"""Constants of up to this many elements are written out; larger ones are named by digest."""

_FLOAT = re.compile(r"-?(?:[0-9]+\.[0-9]*(?:e[-+]?[0-9]+)?|[0-9]+e[-+]?[0-9]+|inf)|nan")
_OPEN = re.compile(r"\s*\[")
_CLOSE = re.compile(r"\s*\]")
_COMMA = re.compile(r"\s*,")
_BOOL = re.compile(r"\s*(true|false)\b")
_INT = re.compile(r"\s*(-?[0-9]{1,40})(?![0-9.])")
_REAL = re.compile(rf"\s*(?:(0x[0-9a-f]+)|({_FLOAT.pattern}|-?[0-9]{{1,400}}))")
_TEXT = re.compile(rf'\s*(?:b"((?:[0-9a-f][0-9a-f])*)"|({STRING}))')
_PAIR = (re.compile(r"\s*\("), re.compile(r"\s*,"), re.compile(r"\s*\)"))


def elements_text(constant: Constant) -> str:
    """The elements of a small constant: one bare element for rank 0, otherwise a flat list in row-major order."""
    items = constant.array.reshape(-1)
    texts = [_element_text(items[index : index + 1], constant.dtype) for index in range(items.size)]
    return f"[{', '.join(texts)}]" if constant.shape else texts[0]


def _element_text(item: Array, dtype: DType) -> str:
    """The text of an array of one element."""
    if dtype.kind is Kind.FLOAT:
        return float_text(item)
    if dtype.kind is Kind.COMPLEX:
        real, imaginary = item.view(dtype.numpy.type(0).real.dtype).reshape(2, 1)
        return f"({float_text(real)}, {float_text(imaginary)})"
    value = item[0]
    if dtype.kind is Kind.STRING:
        return bytes_text(value) if isinstance(value, bytes) else string_text(str(value))
    return ("true" if value else "false") if dtype.kind is Kind.BOOL else str(int(value))


def bytes_text(value: bytes) -> str:
    """`value` in hexadecimal: `b"0aff"`."""
    return f'b"{value.hex()}"'


def float_text(item: Array) -> str:
    """The shortest exact text of an array of one float."""
    bits = item.tobytes()
    candidates = (str(item[0]), repr(float(item[0])))
    for text in candidates:
        if _FLOAT.fullmatch(text) and _float(float(text), item.dtype).tobytes() == bits:
            return text
    return f"0x{bits[::-1].hex()}"


def _float(value: float, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):
        return np.array([value], dtype=np.float64).astype(dtype)


def read_elements(cursor: Cursor, ty: TensorType) -> Constant:
    """The constant of static type `ty` whose elements come next. Raises `ParseError`."""
    shape = tuple(dim for dim in ty.dims if isinstance(dim, int))
    start = cursor.position
    items = _read_list(cursor, ty.dtype) if shape else [_read_element(cursor, ty.dtype)]
    if len(items) != int(np.prod(shape, dtype=object)):
        raise cursor.error(f"{ty} has {ty.size} elements, but {len(items)} are given", start)
    joined = np.concatenate(items) if items else np.empty(0, ty.dtype.numpy)
    return Constant(joined.reshape(shape))


def _read_list(cursor: Cursor, dtype: DType) -> list[Array]:
    cursor.expect(_OPEN, "[ before the elements")
    if cursor.match(_CLOSE):
        return []
    items = [_read_element(cursor, dtype)]
    while cursor.match(_COMMA):
        items.append(_read_element(cursor, dtype))
    cursor.expect(_CLOSE, ", or ] after an element")
    return items


def _read_element(cursor: Cursor, dtype: DType) -> Array:
    if dtype.kind is Kind.FLOAT:
        return _read_float(cursor, dtype.numpy)
    if dtype.kind is Kind.COMPLEX:
        return _read_complex(cursor, dtype.numpy)
    if dtype.kind is Kind.STRING:
        return _read_string(cursor)
    if dtype.kind is Kind.BOOL:
        return np.array([cursor.expect(_BOOL, "true or false")[1] == "true"])
    return _read_int(cursor, dtype)


def _read_int(cursor: Cursor, dtype: DType) -> Array:
    token = cursor.expect(_INT, "an integer")[1]
    value = int(token)
    least = -(1 << (dtype.bits - 1)) if dtype.kind is Kind.INT else 0
    if not least <= value < least + (1 << dtype.bits):
        raise cursor.error(f"{value} does not fit {dtype}", cursor.position - len(token))
    return np.array([value], dtype=dtype.numpy)


def _read_float(cursor: Cursor, dtype: np.dtype[Any]) -> Array:
    found = cursor.expect(_REAL, "a float")
    if found[1] is None:
        return _float(float(found[2]), dtype)
    bits = int(found[1], 16)
    if bits >> (8 * dtype.itemsize):
        raise cursor.error(f"{found[1]} has more than {8 * dtype.itemsize} bits", found.start(1))
    return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype=dtype)


def _read_complex(cursor: Cursor, dtype: np.dtype[Any]) -> Array:
    part: np.dtype[Any] = dtype.type(0).real.dtype
    opening, comma, closing = _PAIR
    cursor.expect(opening, "a complex number: (re, im)")
    real = _read_float(cursor, part)
    cursor.expect(comma, ",")
    imaginary = _read_float(cursor, part)
    cursor.expect(closing, ")")
    return np.concatenate([real, imaginary]).view(dtype)


def _read_string(cursor: Cursor) -> Array:
    found = cursor.expect(_TEXT, "a string")
    item = np.empty(1, dtype=np.object_)
    item[0] = bytes.fromhex(found[1]) if found[2] is None else cursor.unquoted(found[2])
    return item
