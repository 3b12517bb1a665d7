"""Element types and scalars of PyTorch in terms of the IR."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from ...ir.errors import UnsupportedError
from ...ir.types import DType

_DTYPES: dict[Any, DType] = {
    torch.bool: DType.BOOL,
    torch.uint8: DType.U8,
    torch.uint16: DType.U16,
    torch.uint32: DType.U32,
    torch.uint64: DType.U64,
    torch.int8: DType.I8,
    torch.int16: DType.I16,
    torch.int32: DType.I32,
    torch.int64: DType.I64,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.float32: DType.F32,
    torch.float64: DType.F64,
    torch.float8_e4m3fn: DType.F8E4M3FN,
    torch.float8_e4m3fnuz: DType.F8E4M3FNUZ,
    torch.float8_e5m2: DType.F8E5M2,
    torch.float8_e5m2fnuz: DType.F8E5M2FNUZ,
    torch.float8_e8m0fnu: DType.F8E8M0,
    torch.complex64: DType.C64,
    torch.complex128: DType.C128,
}
_TORCH_DTYPES = {dtype: torch_dtype for torch_dtype, dtype in _DTYPES.items()}

NUMPY_LACKS: dict[DType, Any] = {
    dtype: torch.int16 if dtype is DType.BF16 else torch.uint8
    for dtype in _TORCH_DTYPES
    if dtype is DType.BF16 or (dtype.is_float and dtype.bits == 8)
}
"""Dtypes that NumPy has only through ml_dtypes, and the integers as which PyTorch hands their bits over."""


def dtype_of(torch_dtype: Any) -> DType:
    """The `DType` of a `torch.dtype`. Raises `UnsupportedError` for one that the IR does not have (quantized ones)."""
    found = _DTYPES.get(torch_dtype)
    if found is None:
        remedy = "use complex64" if torch_dtype is torch.complex32 else "keep such numbers as integers and scales"
        raise UnsupportedError(f"tensors of {torch_dtype} cannot be imported", remedy=remedy)
    return found


def torch_dtype_of(dtype: DType) -> Any:
    """The `torch.dtype` of a `DType`. Raises `UnsupportedError` for one that PyTorch does not have."""
    found = _TORCH_DTYPES.get(dtype)
    if found is None:
        raise UnsupportedError(f"PyTorch has no tensors of {dtype}")
    return found


@cache
def cast_attrs(dtype: DType) -> Mapping[str, Any]:
    """How PyTorch casts to a dtype, as attributes of `cast`.

    What is out of range of an 8-bit float becomes the largest number, infinity or NaN, by dtype and by version of
    PyTorch, so it is asked. Powers of two are the nearest, 0 the least of them; of infinity, which is NaN in PyTorch,
    the greatest.
    """
    if dtype is DType.F8E8M0:
        return {"round_mode": "nearest"}
    if not dtype.is_float or dtype.bits != 8:
        return {}
    return {"saturate": bool(torch.tensor(float("inf")).to(torch_dtype_of(dtype)).float().isfinite())}
