"""What cuBLASLt is told, by bindings that multiply as the library documents: column-major, flags, scales, epilogues."""

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.driver.packing import packed_bytes
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, LibraryCall, Packed
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.executors.cuda.kernels.gemm.quantized_gemm import lower_matmul_integer
from capgraph.executors.cuda.libraries.cublaslt import CublasLt, open_library
from capgraph.ir.constant import Array
from capgraph.ir.errors import MissingPackageError, UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.ops.nn.activation import gelu
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.scaled_cases import E4M3, E5M2, I8, Matmul
from tests.executors.cuda.solving import Setting, setting

DATA_TYPES = {
    0: DType.F32,
    1: DType.F64,
    2: DType.F16,
    3: DType.I8,
    10: DType.I32,
    14: DType.BF16,
    28: E4M3,
    29: E5M2,
}


class Desc(Enum):
    TRANSA = auto()
    TRANSB = auto()
    EPILOGUE = auto()
    BIAS_DATA_TYPE = auto()
    BIAS_POINTER = auto()
    A_SCALE_POINTER = auto()
    B_SCALE_POINTER = auto()


class LayoutAttribute(Enum):
    BATCH_COUNT = auto()
    STRIDED_BATCH_OFFSET = auto()


class Preference(Enum):
    MAX_WORKSPACE_BYTES = auto()
    MIN_ALIGNMENT_A_BYTES = auto()
    MIN_ALIGNMENT_B_BYTES = auto()
    MIN_ALIGNMENT_C_BYTES = auto()
    MIN_ALIGNMENT_D_BYTES = auto()


class Epilogue:
    DEFAULT, RELU, BIAS, RELU_BIAS, GELU, GELU_BIAS = 1, 2, 4, 6, 32, 36


@dataclass
class Layout:
    dtype: DType
    rows: int
    columns: int
    leading: int
    attributes: dict[LayoutAttribute, int] = field(default_factory=dict)

    def at(self, address: int) -> Array:
        """The matrices [batch, rows, columns] at an address."""
        batch = self.attributes.get(LayoutAttribute.BATCH_COUNT, 1)
        stride = self.attributes.get(LayoutAttribute.STRIDED_BATCH_OFFSET, 0)
        item = self.dtype.numpy.itemsize
        nbytes = item * ((batch - 1) * stride + (self.columns - 1) * self.leading + self.rows)
        data = (ctypes.c_uint8 * nbytes).from_address(address)
        strides = (item * stride, item, item * self.leading)
        return np.ndarray((batch, self.rows, self.columns), self.dtype.numpy, data, 0, strides)


class Bindings:
    """A stand-in for `nvmath.bindings.cublasLt`. With `has_none` its heuristic knows no algorithm."""

    class cuBLASLtError(Exception):  # the name of the real one
        pass

    MatmulDescAttribute, MatrixLayoutAttribute, MatmulPreferenceAttribute = Desc, LayoutAttribute, Preference
    matmul_algo_dtype = np.dtype("V64")
    matmul_heuristic_result_dtype = np.dtype([("algo", "V64"), ("workspace_size", "u8"), ("state", "i4")])

    def __init__(self, *, has_none: bool = False) -> None:
        self.Epilogue = Epilogue
        self.has_none = has_none
        self.objects: dict[int, Any] = {}
        self.names = count(1)
        self.at_heuristic: dict[Desc, int] = {}
        self.multiplied: list[dict[Desc, int]] = []

    def _new(self, content: Any) -> int:
        name = next(self.names)
        self.objects[name] = content
        return name

    def create(self) -> int:
        return 0

    def get_version(self) -> int:
        return 130000

    def matrix_layout_create(self, dtype: int, rows: int, columns: int, leading: int) -> int:
        assert leading >= rows
        return self._new(Layout(DATA_TYPES[dtype], rows, columns, leading))

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._new({"compute": compute, "scale": scale})

    def matmul_preference_create(self) -> int:
        return self._new({})

    def get_matrix_layout_attribute_dtype(self, _name: LayoutAttribute) -> Any:
        return np.int64

    get_matmul_desc_attribute_dtype = get_matmul_preference_attribute_dtype = get_matrix_layout_attribute_dtype

    def matrix_layout_set_attribute(self, layout: int, name: LayoutAttribute, address: int, nbytes: int) -> None:
        assert nbytes == 8
        self.objects[layout].attributes[name] = ctypes.c_int64.from_address(address).value

    def matmul_desc_set_attribute(self, operation: int, name: Desc, address: int, nbytes: int) -> None:
        assert nbytes == 8
        self.objects[operation][name] = ctypes.c_int64.from_address(address).value

    matmul_preference_set_attribute = matmul_desc_set_attribute

    def matrix_layout_destroy(self, name: int) -> None:
        del self.objects[name]

    matmul_desc_destroy = matmul_preference_destroy = matrix_layout_destroy

    def matmul_algo_get_heuristic(self, _handle: int, operation: int, *others: int) -> None:
        self.at_heuristic = dict(self.objects[operation])
        found = 0 if self.has_none else 1
        ctypes.c_int32.from_address(others[-1]).value = found

    def matmul(self, _handle: int, operation: int, alpha: int, *others: int) -> None:
        a_at, a_name, b_at, b_name, beta, c_at, c_name, d_at, d_name, *_ = others
        description = self.objects[operation]
        a, b, c, d = (self.objects[name] for name in (a_name, b_name, c_name, d_name))
        self.multiplied.append(dict(description))
        number = {0: ctypes.c_float, 1: ctypes.c_double, 10: ctypes.c_int32}[description["scale"]]
        first, second = a.at(a_at).astype(np.float64), b.at(b_at).astype(np.float64)
        if a.dtype.bits == 8:
            assert (description[Desc.TRANSA], description[Desc.TRANSB]) == (1, 0)
        first = first.swapaxes(1, 2) if description[Desc.TRANSA] else first
        second = second.swapaxes(1, 2) if description[Desc.TRANSB] else second
        found = number.from_address(alpha).value * (first @ second)
        for name in (Desc.A_SCALE_POINTER, Desc.B_SCALE_POINTER):
            if name in description:
                found = found * ctypes.c_float.from_address(description[name]).value
        weight = number.from_address(beta).value
        found = found + (weight * c.at(c_at).astype(np.float64) if weight else 0)
        d.at(d_at)[...] = self._ended(description, found).astype(d.dtype.numpy)

    def _ended(self, description: dict[Any, int], found: Array) -> Array:
        epilogue = description[Desc.EPILOGUE]
        if epilogue & Epilogue.BIAS:
            dtype = DATA_TYPES[description[Desc.BIAS_DATA_TYPE]].numpy
            nbytes = found.shape[1] * dtype.itemsize
            data = (ctypes.c_uint8 * nbytes).from_address(description[Desc.BIAS_POINTER])
            found = found + np.frombuffer(data, dtype).astype(np.float64)[:, np.newaxis]
        if epilogue & Epilogue.RELU:
            return np.maximum(found, 0)
        return gelu(found, approximate="tanh") if epilogue & Epilogue.GELU else found


def run(made: Setting, candidate: Candidate, bindings: Bindings) -> None:
    """Enqueues the calls of a candidate over the memory of its step."""
    packed: list[Array] = []

    def address(argument: Any) -> int:
        if isinstance(argument, Packed):
            packed.append(packed_bytes(argument))
            return int(packed[-1].ctypes.data)
        assert isinstance(argument, BufferPlace)
        return made.memory.address(argument.buffer) + argument.offset

    for call in candidate.launches:
        assert isinstance(call, LibraryCall)
        addresses = {role: address(argument) for role, argument in call.arguments.items()}
        enqueue = CublasLt(bindings, 0).prepare(call)
        assert bindings.at_heuristic
        enqueue(0, addresses, 0)


def result_of(made: Setting) -> Array:
    (found,) = made.found(Candidate("read", ()))
    return found.astype(np.float64)


def first_candidate(made: Setting, name: str) -> Candidate:
    return next(each for each in lower_matmul(made.task) if each.name == name)


def matmuls() -> Iterator[Matmul]:
    for dtypes in ((E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)):
        yield Matmul(dtypes=dtypes)
    for epilogue in (("bias",), ("bias", "relu"), ("residual", "bias"), ("bias", "gelu-tanh"), ("relu",)):
        yield Matmul(epilogue=epilogue, to=DType.BF16)
    yield Matmul(rows=(2, 3), is_turned=True, has_constant_weight=False)


@pytest.mark.parametrize("matmul", list(matmuls()))
def test_fp8_with_scales(matmul: Matmul) -> None:
    made, bindings = matmul.setting(), Bindings()
    run(made, first_candidate(made, "fp8"), bindings)
    expected = made.expected[0].astype(np.float64)
    assert np.abs(result_of(made) - expected).max() <= 1.6e-2 * np.abs(expected).max()


def test_the_heuristic_sees_that_there_are_scales_and_each_call_where_they_are() -> None:
    made, bindings = Matmul().setting(), Bindings()
    candidate = first_candidate(made, "fp8")
    run(made, candidate, bindings)
    assert {Desc.A_SCALE_POINTER, Desc.B_SCALE_POINTER} <= bindings.at_heuristic.keys()
    (call,), (description,) = candidate.launches, bindings.multiplied
    assert isinstance(call, LibraryCall)
    weight, rows = call.arguments["b_scale"], call.arguments["a_scale"]
    assert isinstance(weight, BufferPlace)
    assert isinstance(rows, BufferPlace)
    assert description[Desc.A_SCALE_POINTER] == made.memory.address(weight.buffer) + weight.offset
    assert description[Desc.B_SCALE_POINTER] == made.memory.address(rows.buffer) + rows.offset


def test_other_matmuls_have_no_scales() -> None:
    graph = Graph()
    arrays = {"a": np.ones((3, 4), np.float32), "b": np.ones((4, 5), np.float32)}
    values = [graph.add_input(name, TensorType(DType.F32, x.shape)) for name, x in arrays.items()]
    graph.set_outputs([graph.append(native("matmul"), values).output])
    made, bindings = setting(graph, arrays), Bindings()
    run(made, first_candidate(made, "cublaslt"), bindings)
    assert Desc.A_SCALE_POINTER not in bindings.multiplied[0]
    assert (result_of(made) == 4).all()


@pytest.mark.parametrize("leading", [(), (3,)])
def test_bytes_in_batches(leading: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    shapes = {"a": (*leading, 5, 32), "b": (*leading, 16, 32)}
    arrays = {name: random.integers(-128, 128, shape).astype(np.int8) for name, shape in shapes.items()}
    arrays["b"] = arrays["b"].swapaxes(-1, -2)
    graph = Graph()
    values = [graph.add_input(name, TensorType(I8, x.shape)) for name, x in arrays.items()]
    graph.set_outputs([graph.append(native("matmul_integer"), [*values, None, None]).output])
    made = setting(graph, arrays, {"b": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)})
    bindings = Bindings()
    run(made, next(iter(lower_matmul_integer(made.task))), bindings)
    assert (bindings.multiplied[0]["compute"], bindings.multiplied[0]["scale"]) == (72, 10)  # type: ignore[index]
    assert (result_of(made) == made.expected[0]).all()


def test_a_problem_without_an_algorithm_is_refused() -> None:
    made = Matmul().setting()
    call = first_candidate(made, "fp8").launches[0]
    assert isinstance(call, LibraryCall)
    with pytest.raises(UnsupportedError, match="has no matmul"):
        CublasLt(Bindings(has_none=True), 0).prepare(call)


WHOLE = "07" * 64


@pytest.mark.parametrize(
    ("choice", "is_kept"),
    [
        ({"version": 130000, "data": WHOLE}, True),
        ({"version": 120000, "data": WHOLE}, False),
        ({"version": 130000, "data": WHOLE[2:]}, False),
        ({"version": 130000, "data": WHOLE + "07"}, False),
        ({"version": 130000, "data": "no hex"}, False),
        ({"version": 130000, "data": 7}, False),
        ({"version": 130000}, False),
        ("text", False),
        ([130000, WHOLE], False),
    ],
)
def test_an_algorithm_from_a_file_is_used_only_if_it_can_be_one(choice: Any, is_kept: bool) -> None:
    made, bindings = Matmul().setting(), Bindings()
    call = first_candidate(made, "fp8").launches[0]
    assert isinstance(call, LibraryCall)
    enqueue: Any = CublasLt(bindings, 0).prepare(replace(call, algorithm=choice))
    assert enqueue.algorithm.nbytes == 64
    assert (enqueue.algorithm == 7).all() == is_kept
    assert bool(bindings.at_heuristic) != is_kept


def test_what_was_prepared_is_given_back() -> None:
    made, bindings = Matmul(epilogue=("bias",)).setting(), Bindings()
    run(made, first_candidate(made, "fp8"), bindings)
    assert not bindings.objects


def test_without_the_bindings_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvmath", None)
    with pytest.raises(MissingPackageError, match="nvmath-python") as told:
        open_library(0)
    assert "capgraph[cuda13]" in (told.value.remedy or "")


@pytest.mark.parametrize("kind", [RuntimeError, Bindings.cuBLASLtError])
def test_bindings_without_the_library_say_what_to_install(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def create() -> int:
        raise kind("CUDA driver is not found")

    bindings = SimpleNamespace(create=create, cuBLASLtError=Bindings.cuBLASLtError)
    monkeypatch.setitem(sys.modules, "nvmath", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "nvmath.bindings", SimpleNamespace(cublasLt=bindings))
    with pytest.raises(UnsupportedError, match="cuBLASLt cannot be opened: CUDA driver is not found") as told:
        open_library(0)
    assert "capgraph[cuda13]" in (told.value.remedy or "")
