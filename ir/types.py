"""Types of values: `DType`, `TensorType`, and the sequence and optional types that exist for foreign ops.

Types are frozen and compare by content. A tensor type knows its rank; a size is an int or a symbolic dim. The one
exception is `TensorType(dtype, None)`, a tensor of unknown rank: only foreign ops produce and take it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

from .dims import Dim, Truth, bind, compare, product, symbols
from .errors import TypeRuleError


class Kind(Enum):
    """The family of a dtype; rules speak of families ("any float") rather than of lists of names."""

    BOOL = "bool"
    UINT = "unsigned integer"
    INT = "signed integer"
    FLOAT = "float"
    COMPLEX = "complex"
    STRING = "string"


_DTYPE_FACTS: dict[str, tuple[Any, int, Kind]] = {
    "bool": (np.bool_, 8, Kind.BOOL),
    "u2": (ml_dtypes.uint2, 2, Kind.UINT),
    "u4": (ml_dtypes.uint4, 4, Kind.UINT),
    "u8": (np.uint8, 8, Kind.UINT),
    "u16": (np.uint16, 16, Kind.UINT),
    "u32": (np.uint32, 32, Kind.UINT),
    "u64": (np.uint64, 64, Kind.UINT),
    "i2": (ml_dtypes.int2, 2, Kind.INT),
    "i4": (ml_dtypes.int4, 4, Kind.INT),
    "i8": (np.int8, 8, Kind.INT),
    "i16": (np.int16, 16, Kind.INT),
    "i32": (np.int32, 32, Kind.INT),
    "i64": (np.int64, 64, Kind.INT),
    "f16": (np.float16, 16, Kind.FLOAT),
    "bf16": (ml_dtypes.bfloat16, 16, Kind.FLOAT),
    "f32": (np.float32, 32, Kind.FLOAT),
    "f64": (np.float64, 64, Kind.FLOAT),
    "f8e4m3fn": (ml_dtypes.float8_e4m3fn, 8, Kind.FLOAT),
    "f8e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, 8, Kind.FLOAT),
    "f8e5m2": (ml_dtypes.float8_e5m2, 8, Kind.FLOAT),
    "f8e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, 8, Kind.FLOAT),
    "f8e8m0fnu": (ml_dtypes.float8_e8m0fnu, 8, Kind.FLOAT),
    "f6e2m3fn": (ml_dtypes.float6_e2m3fn, 6, Kind.FLOAT),
    "f6e3m2fn": (ml_dtypes.float6_e3m2fn, 6, Kind.FLOAT),
    "f4e2m1fn": (ml_dtypes.float4_e2m1fn, 4, Kind.FLOAT),
    "c64": (np.complex64, 64, Kind.COMPLEX),
    "c128": (np.complex128, 128, Kind.COMPLEX),
    "string": (np.object_, 64, Kind.STRING),
}


class DType(Enum):
    """An element type. `value` is its name in the text form; `numpy`, `bits` and `kind` say the rest."""

    BOOL = "bool"
    U2 = "u2"
    U4 = "u4"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    I2 = "i2"
    I4 = "i4"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    F8E4M3FN = "f8e4m3fn"
    F8E4M3FNUZ = "f8e4m3fnuz"
    F8E5M2 = "f8e5m2"
    F8E5M2FNUZ = "f8e5m2fnuz"
    F8E8M0 = "f8e8m0fnu"
    F6E2M3 = "f6e2m3fn"
    F6E3M2 = "f6e3m2fn"
    F4E2M1 = "f4e2m1fn"
    C64 = "c64"
    C128 = "c128"
    STRING = "string"

    def __init__(self, name: str) -> None:
        scalar, bits, kind = _DTYPE_FACTS[name]
        self.numpy: np.dtype[Any] = np.dtype(scalar)
        self.bits: int = bits
        self.kind: Kind = kind

    # Members are singletons; the identity hash is several times faster than Enum's own.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return str(self._value_)

    @property
    def is_float(self) -> bool:
        """Of any width, not complex."""
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned, not bool."""
        return self.kind is Kind.INT or self.kind is Kind.UINT

    @property
    def is_small_float(self) -> bool:
        """A float below 32 bits, for which kernels accumulate in f32."""
        return self.kind is Kind.FLOAT and self.bits < 32

    @property
    def itemsize(self) -> float:
        """Bytes per element as stored in a tensor: 0.5 for 4-bit types; strings count as a pointer."""
        return self.bits / 8

    @staticmethod
    def of(dtype: Any) -> "DType":
        """The `DType` of a NumPy dtype, scalar type or name. Raises `TypeRuleError` for one the IR does not have."""
        if isinstance(dtype, DType):
            return dtype
        found = _BY_NAME.get(dtype) if isinstance(dtype, str) else None
        if found is not None:
            return found
        try:
            resolved = np.dtype(dtype)
        except TypeError:
            raise TypeRuleError(f"there is no element type {dtype!r}", remedy=f"one of {', '.join(_BY_NAME)}") from None
        found = _BY_NUMPY.get(resolved)
        if found is None and resolved.kind in "USOT":
            return DType.STRING
        if found is None:
            raise TypeRuleError(f"there is no element type for NumPy's {resolved}", remedy="cast the array first")
        return found


_BY_NAME = {dtype.value: dtype for dtype in DType}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DType}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor: element type and shape. `shape` None means unknown rank (foreign ops only)."""

    dtype: DType
    shape: tuple[Dim, ...] | None

    def __str__(self) -> str:
        dims = "*" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.dtype}[{dims}]"

    @property
    def rank(self) -> int:
        """Number of axes. Raises `TypeRuleError` when it is unknown."""
        return len(self.dims)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The shape of a ranked tensor. Raises `TypeRuleError` when the rank is unknown."""
        if self.shape is None:
            raise TypeRuleError(f"the rank of {self} is not known", remedy="give the model's inputs and outputs shapes")
        return self.shape

    @property
    def is_static(self) -> bool:
        """Whether every size is a plain integer."""
        return self.shape is not None and all(isinstance(dim, int) for dim in self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return product(self.dims)

    def with_shape(self, shape: "tuple[Dim, ...] | None") -> "TensorType":
        """The same element type with another shape."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> "TensorType":
        """The same shape with another element type."""
        return TensorType(dtype, self.shape)


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type (ONNX sequences)."""

    element: "Type"

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value or nothing (ONNX optionals)."""

    element: "Type"

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A value that only foreign ops look into (an ONNX map, say); `name` is its type in their words."""

    name: str

    def __str__(self) -> str:
        return f"opaque({self.name!r})"


Type = TensorType | SequenceType | OptionalType | OpaqueType


def bind_type(ty: Type, sizes: Mapping[str, Dim]) -> Type:
    """`ty` with symbols replaced by `sizes`; symbols that are not in `sizes` stay."""
    if isinstance(ty, TensorType):
        if ty.shape is None or ty.is_static:
            return ty
        return TensorType(ty.dtype, tuple(bind(dim, sizes) for dim in ty.shape))
    if isinstance(ty, SequenceType):
        return SequenceType(bind_type(ty.element, sizes))
    if isinstance(ty, OptionalType):
        return OptionalType(bind_type(ty.element, sizes))
    return ty


def type_symbols(ty: Type) -> frozenset[str]:
    """The names of all symbols in `ty`."""
    if isinstance(ty, TensorType):
        return frozenset[str]().union(*(symbols(dim) for dim in ty.shape or ()))
    if isinstance(ty, SequenceType | OptionalType):
        return type_symbols(ty.element)
    return frozenset()


def compatible(declared: Type, inferred: Type) -> Truth:
    """Whether a value declared as one type can be what a rule inferred: yes, no, or unknown until sizes are bound."""
    if declared is inferred or declared == inferred:
        return Truth.YES
    if isinstance(declared, TensorType) and isinstance(inferred, TensorType):
        if declared.dtype is not inferred.dtype:
            return Truth.NO
        return _compatible_shapes(declared.shape, inferred.shape)
    if isinstance(declared, SequenceType) and isinstance(inferred, SequenceType):
        return compatible(declared.element, inferred.element)
    if isinstance(declared, OptionalType) and isinstance(inferred, OptionalType):
        return compatible(declared.element, inferred.element)
    return Truth.NO


def _compatible_shapes(declared: tuple[Dim, ...] | None, inferred: tuple[Dim, ...] | None) -> Truth:
    if declared is None or inferred is None:
        return Truth.UNKNOWN
    if len(declared) != len(inferred):
        return Truth.NO
    answers = {compare(a, b) for a, b in zip(declared, inferred, strict=True)}
    if Truth.NO in answers:
        return Truth.NO
    return Truth.UNKNOWN if Truth.UNKNOWN in answers else Truth.YES
