from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx import tensors
from capgraph.frontends.onnx.tensors import (
    constant_from_proto,
    constant_to_proto,
    dense_constant,
    dtype_of,
    element_number,
    type_from_proto,
    type_text,
    type_to_proto,
)
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CapgraphError, ModelError, UnsupportedError
from capgraph.ir.op import FRESH
from capgraph.ir.text.parser import parse_type
from capgraph.ir.types import DType, OpaqueType, OptionalType, SequenceType, TensorType
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

MAP = onnx.helper.make_map_type_proto(7, onnx.helper.make_tensor_type_proto(1, None))
WITH_NUMBER = [dtype for dtype in DType if dtype is not DType.STRING]


def content(dtype: DType, shape: tuple[int, ...], seed: int) -> Constant:
    """Any bit pattern that the dtype has."""
    generator = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype is DType.BOOL:
        return Constant(generator.integers(0, 2, shape).astype(bool))
    if dtype.bits < 8 and dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype in (DType.I2, DType.I4) else 0
        return Constant(generator.integers(low, low + (1 << dtype.bits), shape).astype(np.int8).astype(dtype.numpy))
    if dtype.bits < 8:
        return Constant(generator.integers(0, 1 << dtype.bits, count).astype(np.uint8).view(dtype.numpy).reshape(shape))
    raw = generator.integers(0, 256, count * dtype.numpy.itemsize, dtype=np.uint8)
    return Constant(raw.view(dtype.numpy).reshape(shape))


SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@given(st.sampled_from(WITH_NUMBER), SHAPES, st.integers(0, 99))
def test_every_bit_comes_back(dtype, shape, seed):
    constant = content(dtype, shape, seed)
    assert constant_from_proto(constant_to_proto(constant, "x"), None) == constant


@given(st.sampled_from(WITH_NUMBER), SHAPES, st.integers(0, 99))
def test_onnx_reads_the_same_as_is_written(dtype, shape, seed):
    constant = content(dtype, shape, seed)
    theirs = numpy_helper.to_array(constant_to_proto(constant, "x"))
    assert theirs.dtype == constant.array.dtype
    assert theirs.tobytes() == constant.array.tobytes()


@example(DType.F6E2M3, (3, 5), 1)
@example(DType.F6E3M2, (4,), 2)
@given(st.sampled_from(WITH_NUMBER), SHAPES, st.integers(0, 99))
def test_typed_fields_are_read_as_onnx_reads_them(dtype, shape, seed):
    numbers = np.random.default_rng(seed).integers(0, 2, shape)
    values = numbers.astype(np.complex64 if dtype.kind.value == "complex" else np.float32).reshape(-1)
    try:
        proto = onnx.helper.make_tensor("x", element_number(dtype), shape, values.astype(dtype.numpy), raw=False)
    except (TypeError, ValueError):
        return  # onnx itself cannot write this type so
    theirs = numpy_helper.to_array(proto)
    assert constant_from_proto(proto, None) == Constant(theirs.reshape(shape))


def test_text_comes_back():
    constant = Constant(np.array(["a", "é", ""], object))
    assert constant_from_proto(constant_to_proto(constant, "x"), None).array.tolist() == ["a", "é", ""]


def test_text_that_is_not_utf8_stays_bytes():
    proto = TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])
    assert constant_from_proto(proto, None).array.tolist() == [b"\xff"]


@pytest.mark.parametrize("dtype", list(DType))
def test_element_types_both_ways(dtype):
    assert dtype_of(element_number(dtype)) is dtype


def test_an_element_type_that_the_installed_onnx_lacks(monkeypatch):
    monkeypatch.delitem(tensors._ELEMENT_NUMBERS, DType.F6E2M3)
    with pytest.raises(UnsupportedError, match="no element type for f6e2m3"):
        element_number(DType.F6E2M3)


def test_an_element_type_that_the_ir_lacks():
    with pytest.raises(UnsupportedError, match="element type 77"):
        dtype_of(77)


# ---- types


@pytest.mark.parametrize(
    ("ty", "text"),
    [
        (TensorType(DType.F32, (2, symbol("N"))), "tensor(float)"),
        (TensorType(DType.BF16, None), "tensor(bfloat16)"),
        (TensorType(DType.I4, ()), "tensor(int4)"),
        (SequenceType(TensorType(DType.STRING, (1,))), "seq(tensor(string))"),
        (OptionalType(SequenceType(TensorType(DType.C64, ()))), "optional(seq(tensor(complex64)))"),
    ],
)
def test_types_both_ways(ty, text):
    assert type_from_proto(type_to_proto(ty)) == ty
    assert type_text(ty) == text


def test_a_map_is_opaque_and_comes_back():
    ty = type_from_proto(MAP)
    assert ty == OpaqueType("map(i64, f32)")
    assert type_to_proto(ty) == MAP
    shaped = onnx.helper.make_map_type_proto(7, onnx.helper.make_tensor_type_proto(1, [1]))
    assert type_from_proto(shaped) == ty


@pytest.mark.parametrize(
    "proto",
    [
        onnx.helper.make_map_type_proto(7, MAP),
        onnx.helper.make_map_type_proto(7, onnx.helper.make_sequence_type_proto(MAP)),
        onnx.helper.make_map_type_proto(99, onnx.helper.make_tensor_type_proto(1, None)),
        onnx.helper.make_sparse_tensor_type_proto(1, [3, "N"]),
        onnx.TypeProto(opaque_type=onnx.TypeProto.Opaque(domain="my", name="Tree")),
        onnx.TypeProto(map_type=MAP.map_type, denotation="IMAGE"),
    ],
)
def test_other_opaque_types_come_back(proto):
    ty = type_from_proto(proto)
    assert isinstance(ty, OpaqueType)
    assert type_to_proto(ty) == proto
    assert parse_type(str(ty)) == ty


@pytest.mark.parametrize(
    "proto",
    [
        onnx.TypeProto(sparse_tensor_type=onnx.TypeProto.SparseTensor()),
        onnx.TypeProto(map_type=onnx.TypeProto.Map()),
        onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor()),
    ],
)
def test_a_type_without_elements_says_nothing(proto):
    assert type_from_proto(proto) is None


@pytest.mark.parametrize("name", ["map", "map(i64, number)", "ff"])
def test_an_opaque_type_of_another_ecosystem_is_refused(name):
    with pytest.raises(UnsupportedError, match="is no type of ONNX"):
        type_to_proto(OpaqueType(name))


def test_missing_and_negative_sizes_are_new_ones():
    proto = onnx.helper.make_tensor_type_proto(1, ["N", None, 3])
    proto.tensor_type.shape.dim.add(dim_value=-1)
    assert type_from_proto(proto) == TensorType(DType.F32, (symbol("N"), FRESH, 3, FRESH))


def test_a_type_that_says_nothing():
    assert type_from_proto(onnx.TypeProto()) is None
    assert type_from_proto(onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor())) is None


# ---- damaged tensors


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (TensorProto(name="w", data_type=1, dims=[2], raw_data=b"123"), "'w'.*needs 8 bytes but has 3"),
        (TensorProto(name="w", data_type=1, dims=[-2], raw_data=b""), "negative"),
        (TensorProto(name="w", data_type=1, dims=[2], float_data=[1]), "1 elements instead of 2"),
        (TensorProto(name="w", data_type=8, dims=[3], string_data=[b"a"]), "1 elements instead of 3"),
        (TensorProto(name="w", data_type=1, dims=[2**40, 2**40], raw_data=b""), "needs"),
        (TensorProto(name="w", data_type=22, dims=[4], int32_data=[1]), "needs 2 bytes"),
        (TensorProto(name="w", data_type=1, dims=[2**62, 4, 0], raw_data=b""), "no array can have"),
        (TensorProto(name="w", data_type=22, dims=[2**62, 4, 0]), "no array can have"),
        (TensorProto(name="w", data_type=8, dims=[2**62, 4, 0]), "no array can have"),
        (TensorProto(name="w", data_type=1, dims=[1] * 70, raw_data=b"1234"), "70 sizes, which no array"),
    ],
)
def test_content_that_does_not_fit_its_type(proto, message):
    with pytest.raises(ModelError, match=message):
        constant_from_proto(proto, None)


@given(
    st.sampled_from(WITH_NUMBER), st.lists(st.integers(-2, 2**33), max_size=3), st.binary(max_size=40), st.booleans()
)
def test_any_content_is_read_or_refused(dtype, dims, data, is_raw):
    proto = TensorProto(data_type=element_number(dtype), dims=dims)
    if is_raw:
        proto.raw_data = data
    else:
        proto.int32_data.extend(data)
    try:
        assert constant_from_proto(proto, None).array.nbytes <= 8 * 64 * 40
    except CapgraphError as error:
        assert error.message  # noqa: PT017  # either outcome is fine, and the error must say something


# ---- external data


def external(location: str, dims: tuple[int, ...] = (2,), **entries: int) -> TensorProto:
    proto = TensorProto(name="w", data_type=1, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        proto.external_data.add(key=key, value=str(value))
    return proto


def test_external_data_is_mapped_when_it_is_looked_at(tmp_path: Path):
    np.arange(6, dtype=np.float32).tofile(tmp_path / "w.bin")
    constant = constant_from_proto(external("w.bin", (2, 2), offset=8, length=16), tmp_path)
    assert constant.array.tolist() == [[2, 3], [4, 5]]
    base = constant.array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert base is not None


def test_external_four_bit_data(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(bytes([0x21, 0x0F]))
    proto = external("w.bin", (3,))
    proto.data_type = TensorProto.INT4
    assert constant_from_proto(proto, tmp_path).array.tolist() == [1, 2, -1]


def test_external_data_of_no_elements(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"")
    assert constant_from_proto(external("w.bin", (0, 4)), tmp_path).array.shape == (0, 4)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "sub/../../secret", "link/secret", ""])
def test_external_data_stays_inside_the_folder(tmp_path: Path, location: str):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(bytes(8))
    (inside / "link").symlink_to(tmp_path)
    with pytest.raises(ModelError, match="outside the model's folder"):
        constant_from_proto(external(location), inside)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 4}, "needs 8 bytes at 4"),
        ({"length": 4}, "needs 8 bytes"),
        ({"offset": -8}, "negative"),
        ({"offset": "x"}, "bad offset"),
        ({"length": 2**70}, "needs 8 bytes"),
    ],
)
def test_external_data_that_is_too_short_or_misplaced(tmp_path: Path, entries, message):
    (tmp_path / "w.bin").write_bytes(bytes(8))
    with pytest.raises(ModelError, match=message):
        constant_from_proto(external("w.bin", **entries), tmp_path)


def test_external_data_of_sizes_that_no_array_can_have(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"")
    proto = external("w.bin")
    proto.dims[:] = [2**62, 4, 0]
    with pytest.raises(ModelError, match="no array can have"):
        constant_from_proto(proto, tmp_path)


def test_external_data_that_is_missing(tmp_path: Path):
    with pytest.raises(ModelError, match=r"(?s)'w\.bin' of tensor 'w' is missing.*copy it"):
        constant_from_proto(external("w.bin"), tmp_path)


def test_external_data_without_a_folder():
    with pytest.raises(ModelError, match="folder is not known"):
        constant_from_proto(external("w.bin"), None)


def test_external_data_that_disappears_is_reported_when_it_is_looked_at(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(bytes(8))
    constant = constant_from_proto(external("w.bin"), tmp_path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match="could not be read"):
        _ = constant.array


# ---- sparse tensors


def sparse(values: list[float], indices: np.ndarray, dims: list[int]) -> onnx.SparseTensorProto:
    proto = onnx.SparseTensorProto(dims=dims)
    proto.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "w"))
    proto.indices.CopyFrom(numpy_helper.from_array(indices, "i"))
    return proto


@pytest.mark.parametrize("indices", [np.array([1, 5]), np.array([[0, 1], [1, 2]])])
def test_sparse_tensors_become_dense(indices):
    assert dense_constant(sparse([7, 8], indices, [2, 3]), None).array.tolist() == [[0, 7, 0], [0, 0, 8]]


@pytest.mark.parametrize(
    ("indices", "dims"),
    [
        (np.array([6]), [2, 3]),
        (np.array([-1]), [2, 3]),
        (np.array([[0, 3]]), [2, 3]),
        (np.array([0, 1]), [2, 3]),
        (np.array([[0]]), [2, 3]),
        (np.array([0], np.int32), [2, 3]),
        (np.array([0]), [-2, -3]),
        (np.array([0]), [2**20, 2**20]),
        (np.array([0]), [2**62, 4, 0]),
        (np.array([0]), [1] * 70),
    ],
)
def test_sparse_tensors_that_contradict_themselves(indices, dims):
    with pytest.raises(ModelError, match="sparse tensor 'w'"):
        dense_constant(sparse([7], indices, dims), None)


def test_small_floats_keep_their_type():
    constant = Constant(np.array([0.5, -1], ml_dtypes.float4_e2m1fn))
    assert constant_from_proto(constant_to_proto(constant, "x"), None).dtype is DType.F4E2M1
