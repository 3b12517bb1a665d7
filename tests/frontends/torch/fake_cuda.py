"""Tensors on a CUDA device that is not there: what a trace on a GPU finds, on PyTorch for the CPU alone.

Fake tensors have a device and no content, and operators give on them the metadata that they give on the device. Only
the C++ side of PyTorch refuses, as its table of device guards has none for CUDA. That of the CPU, which does nothing,
takes its place.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from capgraph.frontends.torch.decompositions import aot_decompositions, composites_kept
from capgraph.frontends.torch.dynamo.aot import AotModel, from_aot
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

DEVICE = torch.device("cuda", 0)
_CPU, _CUDA, _KINDS = 0, 1, 22
"""Places in the table of guards, and how many there are: `c10/core/DeviceType.h`."""


@cache
def _set_guard() -> None:
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * _KINDS).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[_CUDA] is None:
        guards[_CUDA] = guards[_CPU]


@contextmanager
def fake_cuda() -> Iterator[FakeTensorMode]:
    """While active, tensors that are made are fake, on a CUDA device too."""
    _set_guard()
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode, torch.no_grad():
        yield mode


def on_cuda(mode: FakeTensorMode, tensor: Any) -> Any:
    """A fake tensor on the CUDA device, like the given one otherwise; what is no tensor as it is."""
    if not isinstance(tensor, torch.Tensor) or isinstance(tensor, FakeTensor):
        return tensor
    made = mode.from_tensor(tensor, static_shapes=True)
    made.fake_device = DEVICE
    return made


def module_on_cuda(mode: FakeTensorMode, module: Any) -> Any:
    """The module with fake tensors on the CUDA device for its weights."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        return module._apply(lambda tensor: on_cuda(mode, tensor)).requires_grad_(False)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


class _Function(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return torch.utils._pytree.tree_leaves(self.function(*args))


class NotTraced(Exception):
    """PyTorch does not trace a call for a device that is not there; its error is the cause."""


def imported_on_cuda(function: Any, tensors: Sequence[Any]) -> AotModel:
    """What torch.compile imports of a function of tensors for a GPU: the graph, checked against PyTorch's metadata.

    Raises `NotTraced`, and what the import raises.
    """
    traced: list[Any] = []
    with fake_cuda() as mode, composites_kept():
        try:
            given = [on_cuda(mode, tensor) for tensor in tensors]
            aot_module_simplified(
                _Function(function),
                given,
                fw_compiler=lambda forward, _arguments: traced.append(forward) or forward,
                decompositions=aot_decompositions(),
                keep_inference_input_mutations=True,
            )
        except Exception as error:  # PyTorch raises errors of many kinds
            raise NotTraced(f"{type(error).__name__}: {error}") from error
        return from_aot(traced[0], {})
