"""The `onnxruntime` package: found, checked, and asked what it offers."""

from functools import cache
from importlib import metadata
from typing import Any

from ...ir.errors import MissingPackageError, UnsupportedError

_CPU, _GPU = "onnxruntime", "onnxruntime-gpu"


def required() -> None:
    """Raises `MissingPackageError` when onnxruntime is not installed, `UnsupportedError` when two builds of it are."""
    problem, remedy = problem_here()
    if problem:
        raise (UnsupportedError if "both" in problem else MissingPackageError)(problem, remedy=remedy)


@cache
def onnxruntime() -> Any:
    """The module. Raises what `required` does."""
    required()
    import onnxruntime as module

    return module


def problem_here() -> tuple[str, str]:
    """Why ONNX Runtime cannot be used here and what to do about it; two empty texts when it can. Imports nothing."""
    installed = [name for name in (_CPU, _GPU) if _version(name)]
    if len(installed) == len((_CPU, _GPU)):
        return (
            f"both {_CPU} and {_GPU} are installed, and the one that was installed last wins silently",
            f"pip uninstall -y {_CPU} {_GPU}, then install just the one you want",
        )
    if not installed:
        return "onnxruntime is not installed", "pip install 'capgraph[ort]'"
    if not _version("onnx"):
        return "onnx is not installed, which writing models for onnxruntime needs", "pip install 'capgraph[ort]'"
    return "", ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def failures() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises when it refuses a model or a run; its exception types have no common base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    names = (
        "EPFail",
        "Fail",
        "InvalidArgument",
        "InvalidGraph",
        "InvalidProtobuf",
        "NotImplemented",
        "RuntimeException",
    )
    return (*(getattr(native, name) for name in names if hasattr(native, name)), ValueError, RuntimeError)
