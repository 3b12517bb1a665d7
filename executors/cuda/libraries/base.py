"""Libraries whose calls a plan may contain, by name: how each turns a problem into an enqueued call."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..kernel_ir.launch import LibraryCall

LIBRARIES: Mapping[str, str] = {"cublaslt": ".cublaslt", "cudnn": ".cudnn", "cufft": ".cufft"}
"""Library name to the module that runs it, which has `open_library(device: int) -> Library`."""

Enqueue = Callable[[int, Mapping[str, int], int], None]
"""Enqueues one call on a stream: `(stream, addresses by role, address of the workspace)`. It waits for nothing,
allocates nothing, and so may be captured."""


class Library(Protocol):
    """One library on one device; it keeps its handle and what it has prepared. `failures` are what its calls raise."""

    failures: tuple[type[BaseException], ...]

    def prepare(self, call: LibraryCall) -> Enqueue:
        """Does all that must not happen while a stream is captured: descriptors, heuristics, building.

        Equal problems may share the result. Raises `UnsupportedError` where the library cannot do it after all; the
        next candidate of the step is then taken.
        """
        ...

    def algorithms(self, call: LibraryCall) -> Sequence[Any]:
        """The algorithms to be timed for `call.algorithm`, the library's own guess first; each can be written as JSON.

        Empty where there is no choice.
        """
        ...


def open_library(name: str, device: int) -> Library:
    """The library `name` on the CUDA device of that index.

    Raises `MissingPackageError` when it is not installed, `UnsupportedError` when it cannot be opened.
    """
    opened: Library = importlib.import_module(LIBRARIES[name], __package__).open_library(device)
    return opened
