"""Which framework an array is of: torch, CuPy for all that it can read, or NumPy for what lies in main memory.

A call speaks one framework: that of its first array on a device. It runs on the stream that this framework works on at
the time, so nothing has to wait for anything. Where a call also brings arrays of another framework it waits for what
that one has enqueued by then, and what that one enqueues afterwards waits for the call.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ....ir.constant import Array
from ....ir.errors import InputError
from .cupy import CupyArrays, is_exchanged, lies_on_gpu
from .protocol import DeviceArray, Framework
from .torch import TorchArrays

HOST_ARRAYS = "numpy"


def framework_of(given: Any) -> str:
    """The framework of an array: "numpy" for everything that lies in main memory, "cupy" for what CuPy can read."""
    kind: Any = type(given)  # which mypy does not take for hashable
    found = _framework_of_kind(kind)
    if found:
        return found
    return "cupy" if lies_on_gpu(given) else HOST_ARRAYS


def framework_of_call(inputs: Any) -> str:
    """That of a call: of its first array on a device, else of the first that is not NumPy's.

    What is no mapping is taken for "numpy". Raises `InputError` naming an input that does not say where it lies.
    """
    found = HOST_ARRAYS
    for input_name, given in inputs.items() if isinstance(inputs, Mapping) else ():
        try:
            name = framework_of(given)
        except InputError as error:
            error.located(f"input {input_name!r}")
            raise
        if name != HOST_ARRAYS and not getattr(given, "is_cpu", False):  # as torch says of tensors in main memory
            return name
        found = name if found == HOST_ARRAYS else found
    return found


@cache
def _framework_of_kind(kind: type) -> str:
    """That of all arrays of a class; "" where they lie here or there."""
    names = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "torch" in names:
        return "torch"
    if "cupy" in names or hasattr(kind, "__cuda_array_interface__"):
        return "cupy"
    return "" if HOST_ARRAYS not in names and is_exchanged(kind) else HOST_ARRAYS


_FRAMEWORKS: Mapping[str, type[TorchArrays] | type[CupyArrays]] = {"torch": TorchArrays, "cupy": CupyArrays}


def open_framework(name: str, index: int, download: Callable[[DeviceArray], Array]) -> Framework:
    """The framework of that name on a device."""
    return _FRAMEWORKS[name](index, download)
