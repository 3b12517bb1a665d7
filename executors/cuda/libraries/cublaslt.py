"""Matmuls by cuBLASLt, through the raw bindings of nvmath-python.

A row-major d = a @ b is the column-major d' = b' @ a', so that b is cuBLASLt's first matrix, a its second, and the
bias, one entry for each column of d, is one for each row of d', as cuBLASLt has it.
https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ....ir.errors import MissingPackageError, UnsupportedError
from ....ir.types import DType
from ..kernel_ir.launch import Argument, BufferPlace, LibraryCall
from .base import Enqueue
from .problems import MatmulProblem, Matrix

_DATA_TYPES = {
    DType.F32: 0,
    DType.F64: 1,
    DType.F16: 2,
    DType.I8: 3,
    DType.I32: 10,
    DType.BF16: 14,
    DType.F8E4M3FN: 28,
    DType.F8E5M2: 29,
}
"""`cudaDataType_t`."""

_COMPUTE_F32, _COMPUTE_F64, _COMPUTE_I32, _COMPUTE_TF32 = 68, 70, 72, 77
"""`cublasComputeType_t`."""

_EPILOGUES = {
    ("", False): "DEFAULT",
    ("", True): "BIAS",
    ("relu", False): "RELU",
    ("relu", True): "RELU_BIAS",
    ("gelu_tanh", False): "GELU",
    ("gelu_tanh", True): "GELU_BIAS",
}

MAX_ALGORITHMS = 8
"""How many of the heuristic's guesses are worth timing."""

_ALIGNMENT = 16
"""Bytes that tensor-core kernels ask of addresses; buffers of a plan begin at multiples of it."""


def open_library(device: int) -> "CublasLt":
    """The library on the current CUDA device.

    Raises `MissingPackageError` without nvmath-python, `UnsupportedError` where the library itself cannot be opened.
    """
    try:
        from nvmath.bindings import cublasLt as bindings
    except ImportError as error:
        raise MissingPackageError(
            f"matmuls on the GPU need nvmath-python, which cannot be imported: {error}",
            remedy='pip install "capgraph[cuda13]" (or cuda12)',
        ) from error
    try:
        return CublasLt(bindings, device)
    except (RuntimeError, bindings.cuBLASLtError) as error:  # the bindings look for the library when it is first needed
        raise UnsupportedError(
            f"cuBLASLt cannot be opened: {error}",
            remedy='pip install "capgraph[cuda13]" (or cuda12), which brings the library; it must fit the driver',
        ) from error


class CublasLt:
    """A handle, and the matmuls prepared with it.

    Threads may share the handle: calls name their stream, and each prepared matmul has descriptors of its own.
    """

    def __init__(self, bindings: Any, device: int) -> None:
        self.bindings = bindings
        self.device = device
        self.handle = bindings.create()
        self.failures: tuple[type[BaseException], ...] = (bindings.cuBLASLtError,)

    @cached_property
    def version(self) -> int:
        """The version that algorithms belong to."""
        return int(self.bindings.get_version())

    def prepare(self, call: LibraryCall) -> Enqueue:
        """Descriptors, algorithm and scalars of a call, made once."""
        matmul = _Matmul(self, call.problem, _alignments(call))
        algorithm = self._kept(call.algorithm)
        if algorithm is None:
            algorithm = matmul.guesses(call.workspace_bytes, 1)[0].data
        return _Enqueue(matmul, algorithm, call.workspace_bytes)

    def algorithms(self, call: LibraryCall) -> Sequence[Any]:
        """The heuristic's guesses, best first, as {"version", "data"}."""
        matmul = _Matmul(self, call.problem, _alignments(call))
        guesses = matmul.guesses(call.workspace_bytes, MAX_ALGORITHMS)
        return [{"version": self.version, "data": guess.data.tobytes().hex()} for guess in guesses]

    def _kept(self, choice: Any) -> Any:
        """An algorithm that `algorithms` of this version gave, as bytes; None for what is none, as files may hold."""
        if not isinstance(choice, Mapping) or choice.get("version") != self.version:
            return None
        try:
            data = bytes.fromhex(choice["data"])
        except (KeyError, TypeError, ValueError):
            return None
        is_whole = len(data) == self.bindings.matmul_algo_dtype.itemsize
        return np.frombuffer(data, dtype=np.uint8).copy() if is_whole else None


@dataclass(frozen=True)
class _Guess:
    data: Any
    workspace_bytes: int


def _alignments(call: LibraryCall) -> Mapping[str, int]:
    return {role: _alignment(argument) for role, argument in call.arguments.items()}


def _alignment(argument: Argument) -> int:
    return math.gcd(argument.offset, _ALIGNMENT) if isinstance(argument, BufferPlace) else _ALIGNMENT


class _Matmul:
    """The descriptors of one problem. They live as long as what enqueues it."""

    def __init__(self, library: CublasLt, problem: MatmulProblem, alignments: Mapping[str, int]) -> None:
        self.library = library
        self.lt = library.bindings
        self.problem = problem
        self.alignments = alignments
        self.first = self._layout(problem.b, problem.inner, problem.columns)
        self.second = self._layout(problem.a, problem.rows, problem.inner)
        self.result = self._layout(problem.d, problem.rows, problem.columns)
        self.addend = self.result if problem.c is None else self._layout(problem.c, problem.rows, problem.columns)
        self.operation = self._operation()
        scale = _scale_dtype(problem)
        self.alpha, self.beta = np.array([problem.alpha], scale), np.array([problem.beta], scale)

    def __del__(self) -> None:
        for layout in {self.first, self.second, self.result, self.addend}:
            self.lt.matrix_layout_destroy(layout)
        self.lt.matmul_desc_destroy(self.operation)

    def _layout(self, matrix: Matrix, rows: int, columns: int) -> int:
        """The matrix as the column-major matrix that the same memory is: rows for columns where it is row-major."""
        height, width = (columns, rows) if matrix.is_row_major else (rows, columns)
        layout = int(self.lt.matrix_layout_create(_DATA_TYPES[matrix.dtype], height, width, matrix.leading))
        if self.problem.batch > 1:
            names = self.lt.MatrixLayoutAttribute
            values = {names.BATCH_COUNT: self.problem.batch, names.STRIDED_BATCH_OFFSET: matrix.batch_stride}
            for name, value in values.items():
                content = np.array([value], self.lt.get_matrix_layout_attribute_dtype(name))
                self.lt.matrix_layout_set_attribute(layout, name, content.ctypes.data, content.nbytes)
        return layout

    def _operation(self) -> int:
        problem, names = self.problem, self.lt.MatmulDescAttribute
        scale = _DATA_TYPES[DType.of(_scale_dtype(problem))]
        operation = int(self.lt.matmul_desc_create(_compute_type(problem), scale))
        values = {
            names.TRANSA: int(not problem.b.is_row_major),
            names.TRANSB: int(not problem.a.is_row_major),
            names.EPILOGUE: getattr(self.lt.Epilogue, _EPILOGUES[problem.activation, problem.bias is not None]),
        }
        if problem.bias is not None:
            values[names.BIAS_DATA_TYPE] = _DATA_TYPES[problem.bias]
        if problem.scaled:  # the heuristic has to see that there are scales; each call brings their addresses
            values |= dict.fromkeys((names.A_SCALE_POINTER, names.B_SCALE_POINTER), _ALIGNMENT)
        for name, value in values.items():
            self.set_operation(operation, name, value)
        return operation

    def set_operation(self, operation: int, name: Any, value: int) -> None:
        """Sets an attribute of a matmul's descriptor."""
        content = np.array([value], self.lt.get_matmul_desc_attribute_dtype(name))
        self.lt.matmul_desc_set_attribute(operation, name, content.ctypes.data, content.nbytes)

    def guesses(self, workspace_bytes: int, count: int) -> list[_Guess]:
        """The heuristic's algorithms, best first. Raises `UnsupportedError` when it has none."""
        preference = self.lt.matmul_preference_create()
        try:
            self._set_preferences(preference, workspace_bytes)
            return self._guessed(preference, count)
        finally:
            self.lt.matmul_preference_destroy(preference)

    def _set_preferences(self, preference: int, workspace_bytes: int) -> None:
        names = self.lt.MatmulPreferenceAttribute
        values = {
            names.MAX_WORKSPACE_BYTES: workspace_bytes,
            names.MIN_ALIGNMENT_A_BYTES: self.alignments["b"],
            names.MIN_ALIGNMENT_B_BYTES: self.alignments["a"],
            names.MIN_ALIGNMENT_C_BYTES: self.alignments.get("c", self.alignments["d"]),
            names.MIN_ALIGNMENT_D_BYTES: self.alignments["d"],
        }
        for name, value in values.items():
            content = np.array([value], self.lt.get_matmul_preference_attribute_dtype(name))
            self.lt.matmul_preference_set_attribute(preference, name, content.ctypes.data, content.nbytes)

    def _guessed(self, preference: int, count: int) -> list[_Guess]:
        results = np.zeros(count, self.lt.matmul_heuristic_result_dtype)
        found = np.zeros(1, np.int32)
        try:
            self.lt.matmul_algo_get_heuristic(
                self.library.handle,
                self.operation,
                self.first,
                self.second,
                self.addend,
                self.result,
                preference,
                count,
                results.ctypes.data,
                found.ctypes.data,
            )
        except self.lt.cuBLASLtError as error:
            raise UnsupportedError(f"cuBLASLt has no matmul for {self.problem}: {error}") from error
        raw = results.view(np.uint8).reshape(count, results.dtype.itemsize)
        size = self.lt.matmul_algo_dtype.itemsize
        guesses = [
            _Guess(raw[index, :size].copy(), int(results["workspace_size"][index]))
            for index in range(int(found[0]))
            if int(results["state"][index]) == 0
        ]
        if not guesses:
            raise UnsupportedError(f"cuBLASLt has no matmul for {self.problem}")
        return guesses


class _Enqueue:
    """Enqueues one matmul; callable as `Enqueue` says."""

    def __init__(self, matmul: _Matmul, algorithm: Any, workspace_bytes: int) -> None:
        self.matmul = matmul
        self.algorithm = algorithm
        self.workspace_bytes = workspace_bytes
        names = matmul.lt.MatmulDescAttribute
        roles = {"bias": names.BIAS_POINTER, "a_scale": names.B_SCALE_POINTER, "b_scale": names.A_SCALE_POINTER}
        has = {"bias": matmul.problem.bias is not None, "a_scale": matmul.problem.scaled}
        self.pointers = {role: name for role, name in roles.items() if has.get(role, matmul.problem.scaled)}

    def __call__(self, stream: int, addresses: Mapping[str, int], workspace: int) -> None:
        """Sets the pointers that descriptors hold, and enqueues."""
        matmul = self.matmul
        for role, name in self.pointers.items():
            matmul.set_operation(matmul.operation, name, addresses[role])
        matmul.lt.matmul(
            matmul.library.handle,
            matmul.operation,
            matmul.alpha.ctypes.data,
            addresses["b"],
            matmul.first,
            addresses["a"],
            matmul.second,
            matmul.beta.ctypes.data,
            addresses.get("c", addresses["d"]),
            matmul.addend,
            addresses["d"],
            matmul.result,
            self.algorithm.ctypes.data,
            workspace,
            self.workspace_bytes,
            stream,
        )


def _compute_type(problem: MatmulProblem) -> int:
    if problem.a.dtype is DType.F64:
        return _COMPUTE_F64
    if problem.a.dtype is DType.I8:
        return _COMPUTE_I32
    return _COMPUTE_TF32 if problem.tf32 and problem.a.dtype is DType.F32 else _COMPUTE_F32


def _scale_dtype(problem: MatmulProblem) -> np.dtype[Any]:
    if problem.a.dtype is DType.F64:
        return np.dtype(np.float64)
    return np.dtype(np.int32) if problem.a.dtype is DType.I8 else np.dtype(np.float32)
