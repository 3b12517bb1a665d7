"""Whether CUDA can be used here, and what is in the way: packages, driver, device."""

import re
from functools import cache
from typing import NamedTuple

from ...ir.errors import UnsupportedError

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
