"""The `onnxruntime` package: found, checked, and asked what it offers."""

import sys
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from ...ir.errors import MissingPackageError, UnsupportedError

_CPU, _GPU = "onnxruntime", "onnxruntime-gpu"


@cache
def required() -> None:
    """Raises `MissingPackageError` when onnxruntime is not installed, `UnsupportedError` when two builds of it are.

    Imports nothing. What was found once is not looked for again, which takes milliseconds.
    """
    if _is_installed(_CPU) and _is_installed(_GPU):
        raise UnsupportedError(
            f"both {_CPU} and {_GPU} are installed, and the one that was installed last wins silently",
            remedy=f"pip uninstall -y {_CPU} {_GPU}, then install just the one you want",
        )
    if not _is_found("onnxruntime"):
        raise MissingPackageError("onnxruntime is not installed", remedy="pip install 'capgraph[ort]'")
    if not _is_found("onnx"):
        raise MissingPackageError(
            "onnx is not installed, which writing models for onnxruntime needs", remedy="pip install 'capgraph[ort]'"
        )


@cache
def onnxruntime() -> Any:
    """The module. Raises what `required` does, and `MissingPackageError` when it is there and cannot be imported."""
    required()
    try:
        import onnxruntime as module
    except ImportError as error:
        raise MissingPackageError(
            f"onnxruntime is installed and cannot be imported: {error}",
            remedy='install it anew; executor="eager" does without it',
        ) from error
    return module


def problem_here() -> tuple[str, str]:
    """Why ONNX Runtime cannot be used here and what to do about it; two empty texts when it can."""
    try:
        required()
    except (MissingPackageError, UnsupportedError) as error:
        return error.message, error.remedy or ""
    return "", ""


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def _is_found(module: str) -> bool:
    """Whether a module is there, whatever the distribution is called that brings it: there are several builds."""
    try:
        return module in sys.modules or find_spec(module) is not None
    except ImportError:  # of what stands in the way of all imports
        return False


@cache
def failures() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises when it refuses a model or a run; its exception types have no common base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    own = (each for each in vars(native).values() if isinstance(each, type) and issubclass(each, Exception))
    return (*own, ValueError, RuntimeError)
