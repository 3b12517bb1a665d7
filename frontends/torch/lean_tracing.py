"""What PyTorch does beside tracing for people who debug its graphs, left out: it is a quarter of the time of an export.

Nobody reads the Python code of the graph modules that torch.export makes in between, the memory formats of results,
and of the stack at each node more than the frames that are not PyTorch's. Linear layers, which PyTorch takes apart to
find the types of their results, get them by their shape. Operators that are not loaded are in no graph: they are looked
up once, not for each program and each namespace of operators.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch._export import utils as export_utils
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import proxy
from torch.fx.experimental import proxy_tensor, symbolic_shapes

_TORCH = str(Path(torch.__file__).parent)


@contextmanager
def short_notes() -> Iterator[None]:
    """Within it nodes get short stacks and no `tensor_meta`, and all composite operators are loaded once."""
    changes = (
        (export_utils, "_materialize_cpp_cia_ops", _composite_operators_loaded),
        (proxy, "CapturedTraceback", _Frames),
        (proxy_tensor, "_extract_tensor_metadata", lambda _tensor: None),
    )
    with ExitStack() as stack:
        for owner, name, change in changes:
            if hasattr(owner, name):  # not in all versions of PyTorch
                stack.enter_context(patch.object(owner, name, change))
        yield


@cache
def _composite_operators_loaded() -> None:
    _LOAD_COMPOSITE_OPERATORS()


_LOAD_COMPOSITE_OPERATORS = getattr(export_utils, "_materialize_cpp_cia_ops", lambda: None)
"""PyTorch's own."""


@contextmanager
def code_when_called() -> Iterator[None]:
    """Within it graph modules get their Python code when they are called, and have no signature until then."""
    recompile = torch.fx.GraphModule.recompile

    def wait(module: Any) -> None:
        information = getattr(module.graph._codegen, "pytree_info", None)
        if information is not None:
            module._in_spec, module._out_spec = information.in_spec, information.out_spec
        type(module).forward = forward

    def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        recompile(module)
        return module(*args, **kwargs)

    with patch.object(torch.fx.GraphModule, "recompile", wait):
        yield


@contextmanager
def matmuls_by_shape() -> Iterator[None]:
    """Within it fake tensors get the type of a linear layer's result by its shape, instead of by its parts.

    PyTorch takes these layers apart into views and a matmul to find it, each of them dispatched by itself.
    """
    kernels = _LINEAR.py_kernels
    if _PARTS in kernels:  # whoever has put it there means it
        yield
        return

    def result(x: Any, weight: Any, bias: Any = None) -> Any:
        if not _is_plain_matmul(x, weight, bias) or proxy_tensor.get_proxy_mode() is not None:
            return _LINEAR._op_dk(_PARTS, x, weight, bias)
        return x.new_empty((*x.shape[:-1], weight.shape[0]))

    kernels[_PARTS] = result
    _LINEAR._dispatch_cache.clear()
    try:
        yield
    finally:
        del kernels[_PARTS]
        _LINEAR._dispatch_cache.clear()


_LINEAR = torch.ops.aten.linear.default
_PARTS = torch._C.DispatchKey.CompositeImplicitAutograd


def _is_plain_matmul(x: Any, weight: Any, bias: Any) -> bool:
    """Whether it is known that the layer takes this input, and gives one that lies row by row."""
    given = [each for each in (x, weight, bias) if each is not None]
    if not all(type(each) is FakeTensor and each.dtype == x.dtype and each.device == x.device for each in given):
        return False
    if x.dim() < 2 or weight.dim() != 2 or torch.is_grad_enabled():
        return False
    counts = [x.shape[-1], *weight.shape, *(() if bias is None else bias.shape)]
    if not all(type(count) is int for count in counts):
        return False
    return counts[0] == counts[2] and counts[3:] in ([], [counts[1]])


class _Frames(traceback.StackSummary):
    """The frames around a node, the innermost last: those outside of PyTorch, of modules, and what called for it."""

    @classmethod
    def extract(cls, *_: Any, **__: Any) -> "_Frames":
        """Those of the call that asks, without the text of their lines."""
        hidden, found = symbolic_shapes.uninteresting_files(), cls()
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            if file not in hidden and (not found or name == "forward" or not file.startswith(_TORCH)):
                found.append(traceback.FrameSummary(file, frame.f_lineno, name, line=""))
            frame = frame.f_back
        found.reverse()
        return found

    def summary(self) -> "_Frames":
        """Itself: nothing is left to look up."""
        return self
