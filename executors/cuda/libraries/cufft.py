"""Fourier transforms by cuFFT, through the raw bindings of nvmath-python.

https://docs.nvidia.com/cuda/cufft/
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ....ir.errors import MissingPackageError, UnsupportedError
from ....ir.types import DType
from ..kernel_ir.launch import LibraryCall
from .base import Enqueue
from .problems import Spectrum, TransformProblem

_TYPES = {
    (Spectrum.COMPLEX, DType.F32): "C2C",
    (Spectrum.COMPLEX, DType.F64): "Z2Z",
    (Spectrum.OF_REAL, DType.F32): "R2C",
    (Spectrum.OF_REAL, DType.F64): "D2Z",
    (Spectrum.TO_REAL, DType.F32): "C2R",
    (Spectrum.TO_REAL, DType.F64): "Z2D",
}
"""`cufftType`."""

_FORWARD, _INVERSE = -1, 1


def open_library(device: int) -> "CuFft":
    """The library on the current CUDA device.

    Raises `MissingPackageError` without nvmath-python, `UnsupportedError` where the library itself cannot be opened.
    """
    del device  # plans belong to the device that is current when they are made
    try:
        from nvmath.bindings import cufft as bindings
    except ImportError as error:
        raise MissingPackageError(
            f"long Fourier transforms on the GPU need nvmath-python, which cannot be imported: {error}",
            remedy='pip install "capgraph[cuda13]" (or cuda12)',
        ) from error
    try:
        bindings.get_version()
    except (RuntimeError, bindings.cuFFTError) as error:  # the bindings look for the library when it is first needed
        raise UnsupportedError(
            f"cuFFT cannot be opened: {error}",
            remedy='pip install "nvmath-python[cu13]" (or cu12), which brings the library; it must fit the driver',
        ) from error
    return CuFft(bindings)


class CuFft:
    """Transforms prepared by the library: a plan each."""

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings
        self.failures: tuple[type[BaseException], ...] = (bindings.cuFFTError,)

    def prepare(self, call: LibraryCall) -> Enqueue:
        """The plan of a call, made once. Raises `UnsupportedError` where it wants more workspace than there is."""
        return _Transform(self.bindings, call.problem, call.workspace_bytes)

    def algorithms(self, call: LibraryCall) -> Sequence[Any]:
        """None: the library has no choice to offer."""
        del call
        return ()


class _Transform:
    """Enqueues one transform; callable as `Enqueue` says."""

    def __init__(self, bindings: Any, problem: TransformProblem, workspace_bytes: int) -> None:
        self.bindings = bindings
        kind = _TYPES[problem.spectrum, problem.dtype]
        self.plan = bindings.create()
        try:
            bindings.set_auto_allocation(self.plan, 0)
            # without embeddings rows lie one behind another, and strides are not looked at
            wanted = bindings.make_plan_many64(
                self.plan, 1, [problem.length], 0, 1, 0, 0, 1, 0, getattr(bindings.Type, kind), problem.count
            )
        except bindings.cuFFTError as error:
            raise UnsupportedError(f"cuFFT has no plan for {problem}: {error}") from error
        if wanted > workspace_bytes:
            raise UnsupportedError(f"cuFFT wants {wanted} bytes of workspace for {problem}, not {workspace_bytes}")
        self.execute = getattr(bindings, f"exec_{kind.lower()}")
        is_complex = problem.spectrum is Spectrum.COMPLEX
        self.direction = ((_INVERSE if problem.is_inverse else _FORWARD),) if is_complex else ()

    def __del__(self) -> None:
        self.bindings.destroy(self.plan)

    def __call__(self, stream: int, addresses: Mapping[str, int], workspace: int) -> None:
        """Sets what a plan holds of a call, and enqueues."""
        self.bindings.set_stream(self.plan, stream)
        self.bindings.set_work_area(self.plan, workspace)
        self.execute(self.plan, addresses["x"], addresses["y"], *self.direction)
