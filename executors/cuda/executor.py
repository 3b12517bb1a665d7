"""The executors "eager" and "graph" on a GPU: whether CUDA can be used here, what is in the way, and programs."""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ...ir.analysis.contents import ROUNDS_NOTHING, Tf32
from ...ir.errors import MissingPackageError, UnsupportedError
from ...ir.graph import Graph
from ...ir.target import Target
from ..base import Executor
from .driver.cache import KernelCache, cache_folder
from .driver.compiler import Compiler
from .driver.memory import Constants
from .driver.protocol import Driver
from .libraries.base import LIBRARIES, Library, open_library
from .lower.lowering import Backend
from .run.device import CudaDevice
from .run.eager import CudaEagerExecutable, SizedPlanner
from .run.executable import CudaExecutable
from .run.selection import Selector, TuningCache

_INSTALL = 'pip install "capgraph[cuda13]" (or cuda12)'

_NAME = re.compile(r"cuda(:(?P<index>[0-9]{1,9}))?")


class Problem(NamedTuple):
    """What is in the way, and what to do; an empty text is no problem."""

    text: str = ""
    remedy: str = ""


@cache
def cuda_problem() -> Problem:
    """Why CUDA cannot be used in this process. Imports CuPy, and asks the driver for devices."""
    for package in ("cupy", "cuda.core"):
        if not _is_importable(package):
            return Problem(f"the package {package} cannot be imported", _INSTALL)
    import cupy

    runtime = cupy.cuda.runtime
    try:
        driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        count = runtime.getDeviceCount()
    except (runtime.CUDARuntimeError, ImportError, RuntimeError) as error:
        return _refused(str(error))
    if driver == 0:
        return _refused("no driver")
    if driver // 1000 < needed // 1000:
        return Problem(
            f"the driver is for CUDA {_version(driver)}, the installed packages are for CUDA {_version(needed)}",
            "update the driver, or install the packages of its version",
        )
    return Problem() if count else _refused("no device")


def _is_importable(package: str) -> bool:
    import importlib

    try:
        importlib.import_module(package)
    except (ImportError, OSError, RuntimeError):
        return False
    return True


def _refused(text: str) -> Problem:
    if "InsufficientDriver" in text:
        return Problem("the NVIDIA driver is older than CuPy needs, or there is none", "install or update the driver")
    return Problem(f"no NVIDIA GPU answers: {text}", "nvidia-smi must show one; check the driver")


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def checked_index(device: str) -> int:
    """The index of "cuda" or "cuda:N". Raises `UnsupportedError` where CUDA or that device is not there."""
    problem = cuda_problem()
    if problem.text:
        raise UnsupportedError(f"device={device!r} cannot be used: {problem.text}", remedy=problem.remedy)
    import cupy

    found = _NAME.fullmatch(device)
    index = int(found["index"] or 0) if found else -1
    count = cupy.cuda.runtime.getDeviceCount()
    if not 0 <= index < count:
        raise UnsupportedError(f"there is no {device!r}", remedy=f"the devices are cuda:0 to cuda:{count - 1}")
    return index


@cache
def _driver(index: int) -> Driver:
    from .driver.cupy import CupyDriver

    return CupyDriver(index)


class _Libraries(NamedTuple):
    """Those that can be used, by name, and why others cannot."""

    opened: dict[str, Library]
    missing: dict[str, str]


@cache
def _libraries(index: int) -> _Libraries:
    """What can be used on a device, opened once in a process: libraries keep what they have prepared."""
    found = _Libraries({}, {})
    for name in LIBRARIES:
        try:
            found.opened[name] = open_library(name, index)
        except (MissingPackageError, UnsupportedError) as error:
            found.missing[name] = f"{error.message}: {error.remedy}" if error.remedy else error.message
        except ImportError as error:
            found.missing[name] = str(error)
    return found


@cache
def _constants(index: int) -> Constants:
    return Constants(_driver(index))


@cache
def _compiler(arch: int) -> Compiler:
    return Compiler(arch, KernelCache(cache_folder() / "kernels"))


@cache
def tuning_cache() -> TuningCache:
    """The tuning cache of this process: what is on disk, and what it measures."""
    return TuningCache(cache_folder() / "tuning")


def open_device(index: int, tunes: bool | None = None, *, tf32: Tf32 = ROUNDS_NOTHING) -> CudaDevice:
    """The GPU `index`, for one program; machine code and constants are shared by all programs of the process.

    `tunes` says for which steps candidates are measured: None for matmuls, True for all, False for none. `tf32` says
    whose operands in f32 may be rounded. Raises `CapgraphError` when the device refuses.
    """
    driver = _driver(index)
    with driver.active:
        libraries = _libraries(index)
        backend = Backend(driver.chip, frozenset(libraries.opened), tf32)
        try:
            device = CudaDevice(driver, _compiler(driver.chip.arch), backend, _constants(index), libraries.opened)
        except driver.failures as error:
            raise driver.explained(error) from error
    device.missing_libraries = libraries.missing
    device.selector = None if tunes is False else Selector(device, tuning_cache(), tunes)
    return device


class CudaEagerExecutor:
    """Launches step by step on `device`: the executor "eager", and what recorded programs fall back to."""

    def __init__(self, device: CudaDevice, target: Target, plan: Callable[[Graph], SizedPlanner]) -> None:
        self._device = device
        self._target = target
        self._plan = plan

    def target(self) -> Target:
        """The device."""
        return self._target

    def compile(self, graph: Graph) -> CudaEagerExecutable:
        """`graph` as launches."""
        return CudaEagerExecutable(graph, self._plan, self._device)


class CudaExecutor:
    """What `inner` makes of a graph, for callers with arrays of any framework; `eager` is what profiles run."""

    def __init__(self, inner: Executor, eager: CudaEagerExecutor, device: CudaDevice) -> None:
        self._inner = inner
        self._eager = eager
        self._device = device

    def target(self) -> Target:
        """The device."""
        return self._inner.target()

    def compile(self, graph: Graph) -> CudaExecutable:
        """`graph` as a program on the device. Raises `CapgraphError` for what the device refuses meanwhile."""
        device = self._device
        with device.driver.active:
            try:
                return CudaExecutable(self._inner.compile(graph), self._eager.compile(graph), device)
            except device.failures as error:
                raise device.driver.explained(error) from error
