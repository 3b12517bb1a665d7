"""Modules and calls that torch.export refuses: what is said of them, where, and what to do."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.frontends.torch.exported import from_torch
from capgraph.ir.errors import UnsupportedError
from torch import nn


@dataclass
class Scores:
    values: Any


class Calls(nn.Module):
    """A module whose result a function gives."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.plain = torch.zeros(4)

    def forward(self, x: Any) -> Any:
        return self.function(x)


class WritesItsAttribute(Calls):
    def forward(self, x: Any) -> Any:
        self.plain.add_(1)
        return x + self.plain


class WritesShared(Calls):
    """Two buffers over the same memory."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__(function)
        self.register_buffer("first", self.plain)
        self.register_buffer("second", self.plain)

    def forward(self, x: Any) -> Any:
        self.first.add_(1)
        self.second.add_(x.sum())
        return self.first + self.second


def _endless(x: Any) -> Any:
    while x.sum() < 10:
        x = x + 1
    return x


MODULES: dict[str, tuple[Any, str, str, bool]] = {
    "a branch on data": (Calls(lambda x: x if x.sum() > 0 else -x), "data-dependent", "torch.cond", True),
    "a loop on data": (Calls(_endless), "data-dependent", "torch.cond", True),
    "a size from data": (Calls(lambda x: torch.zeros(int(x.sum().item()))), "data-dependent", "torch._check", True),
    "a dataclass": (Calls(lambda x: Scores(x + 1)), "class .*Scores.* in output", "register_dataclass", False),
    "an attribute": (WritesItsAttribute(abs), "mutated in the forward", "register_buffer", False),
    "shared buffers": (WritesShared(abs), "GraphModule", "share memory", False),
    "an alias": (
        Calls(lambda x: torch.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,))),
        "cond_true might be aliasing",
        r"x\.clone\(\)",
        False,
    ),
    "averages over calls": (
        nn.BatchNorm1d(4, momentum=None),
        "number of its calls",
        r"momentum.*torch\.compile",
        False,
    ),
    "a mistake": (Calls(lambda x: x @ x.new_ones(5)), "size mismatch|dim", r"see that module\(\*args", True),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    module, reason, remedy, has_place = MODULES[name]
    with pytest.raises(UnsupportedError, match=rf"torch\.export refuses \w+: .*({reason})") as caught:
        from_torch(module, (torch.ones(3, 4),))
    error = caught.value
    assert error.__cause__ is not None
    assert "\n" not in error.message
    assert re.search(remedy, str(error.remedy))
    assert (error.where is not None and "test_refusals.py" in error.where) == has_place


CALLS: dict[str, tuple[tuple[Any, ...], Any, str, str]] = {
    "too many": ((torch.ones(3, 4), 1, 2), None, "too many positional", "can be called"),
    "an array": ((np.ones((3, 4), np.float32),), None, "Unsupported input type", "torch.from_numpy"),
    "another device": ((torch.ones(3, 4, device="meta"),), None, "same device", "to one device"),
    "a name for all": ((torch.ones(3, 4),), "b", "_DimHint", '({0: "batch"},)'),
    "one dim for all": ((torch.ones(3, 4),), torch.export.Dim("n"), "type 'Dim'", '({0: "batch"},)'),
    "another name": ((torch.ones(3, 4),), {"y": {0: "n"}}, "top-level keys", "correct dynamic_shapes"),
    "a size that is fixed": ((torch.ones(3, 4),), ({1: "n"},), r"constant \(4\)", "correct dynamic_shapes"),
    "an example of 1": ((torch.ones(1, 4),), ({0: "n"},), "hint of 1", "examples of 2 or more"),
    "beyond its range": (
        (torch.ones(3, 4),),
        ({0: torch.export.Dim("n", min=4, max=8)},),
        r"3 not in range \[4, 8\]",
        "within their range",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    args, dynamic_shapes, reason, remedy = CALLS[name]
    with pytest.raises(UnsupportedError, match=rf"torch\.export refuses Linear: .*{reason}") as caught:
        from_torch(nn.Linear(4, 2), args, dynamic_shapes=dynamic_shapes)
    assert caught.value.__cause__ is not None
    assert remedy in str(caught.value.remedy)


def test_operators_whose_result_nobody_tells() -> None:
    with torch.library._scoped_library("capgraph_refusals", "DEF") as library:
        library.define("silent(Tensor x) -> Tensor")
        library.impl("silent", lambda x: x * 2, "CPU")
        with pytest.raises(UnsupportedError, match="silent") as caught:
            from_torch(Calls(torch.ops.capgraph_refusals.silent), (torch.ones(3),))
    assert "register_fake" in str(caught.value.remedy)


def test_nested_tensors_are_refused_when_a_function_is_compiled() -> None:
    torch._dynamo.reset()
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match=r"(?s)a nested tensor cannot be imported.*pad it"
    ):
        torch.compile(lambda x: x * 2, backend="capgraph")(nested)


def test_sparse_tensors_are_refused_where_a_module_is_imported_and_run_by_torch_compile() -> None:
    class Dense(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.to_dense() + 1

    sparse = torch.eye(3).to_sparse()
    with pytest.raises(capgraph.UnsupportedError, match=r"has the layout torch\.sparse_coo"):
        capgraph.optimize(Dense(), args=(sparse,))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(Dense(), backend="capgraph")(sparse), torch.eye(3) + 1)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
def test_torchscript_is_refused() -> None:
    traced = torch.jit.trace(torch.nn.ReLU(), torch.ones(2))
    with pytest.raises(UnsupportedError, match=r"(?s)TorchScript.*the module that it was made from"):
        from_torch(traced, (torch.ones(2),))


@pytest.mark.parametrize("module", [nn.Linear(3, 2), nn.Linear(3, 2, bias=False), nn.LayerNorm(3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("rows", [4, torch.export.Dim.DYNAMIC])
def test_dtypes_that_pytorch_refuses_only_when_it_runs(module: Any, dtype: Any, rows: Any) -> None:
    dynamic_shapes = None if rows == 4 else ({0: rows},)
    with pytest.raises(UnsupportedError, match=r"(?s)(PyTorch|torch\.export) refuses .*type") as caught:
        from_torch(module, (torch.ones(4, 3, dtype=dtype),), dynamic_shapes=dynamic_shapes)
    assert "module" in str(caught.value.remedy)
