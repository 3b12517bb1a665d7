"""Element types, tensor types and tensors between ONNX protos and the IR.

Tensor contents are referenced where the proto allows it: external data is memory-mapped, `raw_data` is viewed.
"""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, TypeProto

from ...ir.constant import Array, Constant
from ...ir.dims import Dim, SymDim, symbol
from ...ir.errors import ModelError, UnsupportedError
from ...ir.op import FRESH
from ...ir.types import DType, OpaqueType, OptionalType, SequenceType, TensorType, Type

_MAX_DENSE_BITS = 8 << 31  # a sparse tensor is a few bytes in the file, whatever it claims to be when dense
_MAX_RANK = 64  # of a NumPy array
_MAX_BYTES = 2**63 - 1  # likewise, counted as if sizes of 0 were 1: an array without elements is held to it as well

_ELEMENT_TYPES: dict[int, DType] = {
    TensorProto.FLOAT: DType.F32,
    TensorProto.UINT8: DType.U8,
    TensorProto.INT8: DType.I8,
    TensorProto.UINT16: DType.U16,
    TensorProto.INT16: DType.I16,
    TensorProto.INT32: DType.I32,
    TensorProto.INT64: DType.I64,
    TensorProto.STRING: DType.STRING,
    TensorProto.BOOL: DType.BOOL,
    TensorProto.FLOAT16: DType.F16,
    TensorProto.DOUBLE: DType.F64,
    TensorProto.UINT32: DType.U32,
    TensorProto.UINT64: DType.U64,
    TensorProto.COMPLEX64: DType.C64,
    TensorProto.COMPLEX128: DType.C128,
    TensorProto.BFLOAT16: DType.BF16,
    TensorProto.FLOAT8E4M3FN: DType.F8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ: DType.F8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: DType.F8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: DType.F8E5M2FNUZ,
    TensorProto.UINT4: DType.U4,
    TensorProto.INT4: DType.I4,
    TensorProto.FLOAT4E2M1: DType.F4E2M1,
}
# Element types that came with later releases of onnx, by their names there.
_LATER = {
    "FLOAT8E8M0": DType.F8E8M0,
    "UINT2": DType.U2,
    "INT2": DType.I2,
    "FLOAT6E2M3": DType.F6E2M3,
    "FLOAT6E3M2": DType.F6E3M2,
}
_ELEMENT_TYPES |= {getattr(TensorProto, name): dtype for name, dtype in _LATER.items() if hasattr(TensorProto, name)}
_ELEMENT_NUMBERS = {dtype: number for number, dtype in _ELEMENT_TYPES.items()}

_MAP = re.compile(r"map\((\w+), (\w+)\)")

# The typed field of TensorProto that holds each element type, and what its integers are.
_TYPED_FIELDS: dict[DType, tuple[str, Any]] = {
    DType.F32: ("float_data", np.float32),
    DType.F64: ("double_data", np.float64),
    DType.I64: ("int64_data", np.int64),
    DType.U64: ("uint64_data", np.uint64),
    DType.U32: ("uint64_data", np.uint64),
    DType.C64: ("float_data", np.float32),
    DType.C128: ("double_data", np.float64),
}


def dtype_of(number: int) -> DType:
    """The IR's element type for ONNX's number. Raises `UnsupportedError` for one that the IR does not have."""
    found = _ELEMENT_TYPES.get(number)
    if found is None:
        raise UnsupportedError(f"element type {number} of ONNX is not supported", remedy="cast the tensor in the model")
    return found


def element_number(dtype: DType) -> int:
    """ONNX's number for an element type. Raises `UnsupportedError` where the installed onnx has none."""
    found = _ELEMENT_NUMBERS.get(dtype)
    if found is None:
        raise UnsupportedError(f"ONNX has no element type for {dtype}", remedy="cast it before exporting")
    return int(found)


def type_from_proto(proto: TypeProto, dim_of: Callable[[str], Dim] = symbol) -> Type | None:
    """The IR type of a `TypeProto`, None when it says nothing. Missing sizes are FRESH; `dim_of` reads named ones."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        if not proto.tensor_type.elem_type:
            return None
        return TensorType(dtype_of(proto.tensor_type.elem_type), _shape_from_proto(proto.tensor_type, dim_of))
    if kind == "sequence_type":
        element = type_from_proto(proto.sequence_type.elem_type, dim_of)
        return SequenceType(element) if element is not None else None
    if kind == "optional_type":
        element = type_from_proto(proto.optional_type.elem_type, dim_of)
        return OptionalType(element) if element is not None else None
    if kind in ("map_type", "opaque_type", "sparse_tensor_type"):
        is_told = kind == "opaque_type" or proto.sparse_tensor_type.elem_type or proto.map_type.key_type
        if not is_told:
            return None
        return OpaqueType(_opaque_name(_without_map_shapes(proto)))
    return None


def _opaque_name(proto: TypeProto) -> str:
    """`map(i64, f32)` for a map of numbers or strings; other types have no words that come back, and are bytes in hex.

    Those are sparse tensors, types of a domain, and maps of what is no tensor.
    """
    key = _ELEMENT_TYPES.get(proto.map_type.key_type)
    element = _ELEMENT_TYPES.get(proto.map_type.value_type.tensor_type.elem_type)
    if key and element and _map_type(key, element) == proto:
        return f"map({key}, {element})"
    data: bytes = proto.SerializeToString(deterministic=True)
    return data.hex()


def _opaque_to_proto(ty: OpaqueType) -> TypeProto:
    named = _MAP.fullmatch(ty.name)
    try:
        if named:
            return _map_type(DType(named[1]), DType(named[2]))
        opaque: TypeProto = TypeProto.FromString(bytes.fromhex(ty.name))
    except (ValueError, DecodeError) as error:
        raise UnsupportedError(f"{ty} is no type of ONNX") from error
    return opaque


def _map_type(key: DType, element: DType) -> TypeProto:
    value = TypeProto(tensor_type=TypeProto.Tensor(elem_type=element_number(element)))
    return TypeProto(map_type=TypeProto.Map(key_type=element_number(key), value_type=value))


def _without_map_shapes(proto: TypeProto) -> TypeProto:
    """A map without the shape of its values: they are scalars, which models state as [1] and onnx infers as []."""
    if not proto.map_type.value_type.tensor_type.HasField("shape"):
        return proto
    plain = TypeProto()
    plain.CopyFrom(proto)
    plain.map_type.value_type.tensor_type.ClearField("shape")
    return plain


def _shape_from_proto(tensor: TypeProto.Tensor, dim_of: Callable[[str], Dim]) -> tuple[Dim, ...] | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(_dim_from_proto(dim, dim_of) for dim in tensor.shape.dim)


def _dim_from_proto(dim: Any, dim_of: Callable[[str], Dim]) -> Dim:
    kind = dim.WhichOneof("value")
    if kind == "dim_value" and dim.dim_value >= 0:
        return int(dim.dim_value)
    if kind == "dim_param" and dim.dim_param and isinstance(dim.dim_param, str):
        return dim_of(dim.dim_param)
    return FRESH


def type_to_proto(ty: Type) -> TypeProto:
    """The `TypeProto` of an IR type; symbolic sizes are written as their text.

    Raises `UnsupportedError` for a size, or a number of bytes, that 64 bits do not hold.
    """
    if isinstance(ty, SequenceType):
        return onnx.helper.make_sequence_type_proto(type_to_proto(ty.element))
    if isinstance(ty, OptionalType):
        return onnx.helper.make_optional_type_proto(type_to_proto(ty.element))
    if isinstance(ty, OpaqueType):
        return _opaque_to_proto(ty)
    shape = None if ty.shape is None else [_dim_to_proto(dim) for dim in ty.shape]
    if ty.is_static and isinstance(ty.size, int) and ty.size * ty.dtype.itemsize > _MAX_BYTES:
        raise _too_large(ty)
    try:
        return onnx.helper.make_tensor_type_proto(element_number(ty.dtype), shape)
    except ValueError as error:
        raise _too_large(ty) from error


def _too_large(ty: TensorType) -> UnsupportedError:
    return UnsupportedError(f"ONNX has no sizes as large as those of {ty}", remedy="choose smaller ones")


def type_text(ty: Type | None) -> str:
    """The type as operator schemas write it: `tensor(float)`, `seq(tensor(int64))`; empty where they do not say it."""
    if isinstance(ty, TensorType):
        return f"tensor({TensorProto.DataType.Name(element_number(ty.dtype)).lower()})"
    if isinstance(ty, SequenceType | OptionalType):
        element = type_text(ty.element)
        kind = "seq" if isinstance(ty, SequenceType) else "optional"
        return f"{kind}({element})" if element else ""
    return ""


def _dim_to_proto(dim: Dim) -> int | str:
    if isinstance(dim, SymDim) and len(dim.symbols) == 1 and symbol(next(iter(dim.symbols))) == dim:
        return next(iter(dim.symbols))
    return dim if isinstance(dim, int) else str(dim)


# ---- tensors


def constant_from_proto(tensor: TensorProto, folder: Path | None) -> Constant:
    """The content of a `TensorProto`; external data is looked for in `folder`.

    Raises `ModelError` when bytes and shape do not agree or the external file is missing, too short or elsewhere.
    """
    dtype = dtype_of(tensor.data_type)
    shape = tuple(int(dim) for dim in tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ModelError(f"tensor {tensor.name!r} has a negative size: {list(shape)}")
    _refuse_impossible(f"tensor {tensor.name!r}", dtype, shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, dtype, shape, folder)
    if dtype is DType.STRING:
        items = np.array([text_of(item) for item in tensor.string_data], dtype=object)
        return Constant(_sized(tensor, items, shape).reshape(shape))
    if tensor.HasField("raw_data"):
        return Constant(_from_bytes(tensor, tensor.raw_data, dtype, shape))
    return Constant(_from_typed_field(tensor, dtype, shape))


def _refuse_impossible(what: str, dtype: DType, shape: tuple[int, ...]) -> None:
    """Refuses what no array can be. Where there are elements, their number not being that of the data says more."""
    extent = dtype.numpy.itemsize * math.prod(size for size in shape if size)
    if len(shape) > _MAX_RANK or (0 in shape and extent > _MAX_BYTES):
        sizes = f"{len(shape)} sizes" if len(shape) > _MAX_RANK else f"the sizes {list(shape)}"
        raise ModelError(
            f"{what} has {sizes}, which no array can have", remedy="the file is damaged: export the model again"
        )


def text_of(item: bytes) -> str | bytes:
    """The text that bytes are; the bytes themselves where they are none."""
    try:
        return item.decode()
    except UnicodeDecodeError:
        return item


def _from_bytes(tensor: TensorProto, data: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = _count(shape)
    wanted = (count * dtype.bits + 7) // 8
    if len(data) != wanted:
        raise ModelError(
            f"tensor {tensor.name!r} of type {TensorType(dtype, shape)} needs {wanted} bytes but has {len(data)}",
            remedy="the file is damaged: export the model again",
        )
    flat = np.frombuffer(data, dtype=np.uint8)
    if dtype.bits < 8:
        return _unpack(flat, dtype, count).reshape(shape)
    return flat.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False).reshape(shape)


def _unpack(packed: Array, dtype: DType, count: int) -> Array:
    """Elements of 2, 4 or 6 bits, stored low bits first, one to an array element."""
    bits = np.unpackbits(packed, bitorder="little")[: count * dtype.bits].reshape(count, dtype.bits)
    padded = np.zeros((count, 8), dtype=np.uint8)
    padded[:, : dtype.bits] = bits
    if dtype in (DType.I2, DType.I4):
        padded[:, dtype.bits :] = bits[:, -1:]
    codes = np.packbits(padded, axis=1, bitorder="little").reshape(count)
    if dtype.is_float:
        return codes.view(dtype.numpy)
    return codes.view(np.int8).astype(dtype.numpy) if dtype in (DType.I2, DType.I4) else codes.astype(dtype.numpy)


def _from_typed_field(tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> Array:
    field, numpy_type = _TYPED_FIELDS.get(dtype, ("int32_data", np.int32))
    flat = np.array(getattr(tensor, field), dtype=numpy_type)
    if dtype in (DType.C64, DType.C128):
        return _sized(tensor, flat.view(dtype.numpy), shape).reshape(shape)
    if dtype.bits == 6:  # one element in each entry, in its low bits
        return _sized(tensor, (flat & 0x3F).astype(np.uint8), shape).view(dtype.numpy).reshape(shape)
    if dtype.bits < 8:
        return _from_bytes(tensor, flat.astype(np.uint8).tobytes(), dtype, shape)
    if dtype.is_float and field == "int32_data":
        codes = flat.astype(np.uint16 if dtype.bits == 16 else np.uint8)
        return _sized(tensor, codes, shape).view(dtype.numpy).reshape(shape)
    return _sized(tensor, flat, shape).astype(dtype.numpy).reshape(shape)


def _sized(tensor: TensorProto, flat: Array, shape: tuple[int, ...]) -> Array:
    if flat.size != _count(shape):
        raise ModelError(
            f"tensor {tensor.name!r} of shape {list(shape)} has {flat.size} elements instead of {_count(shape)}",
            remedy="the file is damaged: export the model again",
        )
    return flat


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _external(tensor: TensorProto, dtype: DType, shape: tuple[int, ...], folder: Path | None) -> Constant:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(folder, entries.get("location", ""), tensor.name)
    wanted = (_count(shape) * dtype.bits + 7) // 8
    offset, length = _extent(tensor, entries, wanted)
    if length != wanted or path.stat().st_size < offset + length:
        raise ModelError(
            f"external data of tensor {tensor.name!r} needs {wanted} bytes at {offset} of {path.name}, which has "
            f"{path.stat().st_size} (declared length {length})",
            remedy="copy the model again together with its data files",
        )

    def load() -> Array:
        if not wanted:
            return np.empty(shape, dtype.numpy)
        try:
            mapped = np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=(length,))
        except (OSError, ValueError) as error:
            raise ModelError(
                f"external data of tensor {tensor_name.name!r} could not be read: {error}",
                remedy="leave a model's data files in place while it is in use",
            ) from error
        return _from_bytes(tensor_name, mapped, dtype, shape)

    tensor_name = TensorProto(name=tensor.name)
    return Constant.lazy(TensorType(dtype, shape), load)


def _extent(tensor: TensorProto, entries: dict[str, str], wanted: int) -> tuple[int, int]:
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or wanted)
    except ValueError as error:
        raise ModelError(f"external data of tensor {tensor.name!r} has a bad offset or length") from error
    if offset < 0 or length < 0:
        raise ModelError(f"external data of tensor {tensor.name!r} has a negative offset or length")
    return offset, length


def _inside(folder: Path | None, location: str, name: str) -> Path:
    """The file of an external tensor, which must lie below the model's folder, links resolved."""
    if folder is None:
        raise ModelError(
            f"tensor {name!r} is stored outside the model, whose folder is not known",
            remedy="pass the model's path rather than its proto or bytes, or `folder=`",
        )
    root = folder.resolve()
    path = (root / location).resolve()
    if not location or not path.is_relative_to(root):
        raise ModelError(
            f"tensor {name!r} refers to {location!r}, which is outside the model's folder",
            remedy="move the file beside the model and correct its location",
        )
    if not path.is_file():
        raise ModelError(f"the file {location!r} of tensor {name!r} is missing", remedy="copy it beside the model")
    return path


def constant_to_proto(constant: Constant, name: str) -> TensorProto:
    """A `TensorProto` with the content inline."""
    tensor = TensorProto(name=name, data_type=element_number(constant.dtype), dims=constant.shape)
    if constant.dtype is DType.STRING:
        items = constant.array.reshape(-1).tolist()
        tensor.string_data.extend(item if isinstance(item, bytes) else str(item).encode() for item in items)
        return tensor
    tensor.raw_data = packed_bytes(constant)
    return tensor


def packed_bytes(constant: Constant) -> bytes:
    """The content as ONNX stores it: little-endian, elements below 8 bits packed low bits first."""
    flat = np.ascontiguousarray(constant.array).reshape(-1)
    bits = constant.dtype.bits
    if bits >= 8:
        return flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes()
    codes = flat.view(np.uint8) if constant.dtype.is_float else flat.astype(np.int8).view(np.uint8)
    return np.packbits(np.unpackbits(codes[:, None], axis=1, bitorder="little")[:, :bits], bitorder="little").tobytes()


def dense_constant(sparse: onnx.SparseTensorProto, folder: Path | None) -> Constant:
    """A sparse initializer as the dense tensor that it means."""
    values, places = constant_from_proto(sparse.values, folder), constant_from_proto(sparse.indices, folder).array
    shape = tuple(int(dim) for dim in sparse.dims)
    name, count = sparse.values.name, _count(shape)
    if any(dim < 0 for dim in shape) or count * values.dtype.bits > _MAX_DENSE_BITS:
        raise ModelError(f"sparse tensor {name!r} has a shape that is negative or too large: {list(shape)}")
    _refuse_impossible(f"sparse tensor {name!r}", values.dtype, shape)
    listed = places.shape in ((values.size,), (values.size, len(shape)))
    if len(values.shape) != 1 or places.dtype != np.int64 or not listed:
        raise ModelError(f"sparse tensor {name!r} has indices that do not belong to its values")
    limits = np.array(shape if places.ndim == 2 else count)
    if not ((places >= 0) & (places < limits)).all():
        raise ModelError(f"sparse tensor {name!r} has an index outside its shape {list(shape)}")
    flat = np.ravel_multi_index(tuple(places.T), shape) if places.ndim == 2 else places
    dense = np.zeros(count, values.dtype.numpy)
    dense[flat] = values.array
    return Constant(dense.reshape(shape))
