"""Exported programs made functional without tracing again: the same model as by tracing, or none."""

import copy
from typing import Any

import capgraph
import pytest
import torch
from capgraph.frontends.torch import exported
from capgraph.frontends.torch.exported import from_torch
from capgraph.frontends.torch.functional import functional
from torch import nn


class Cache(nn.Module):
    """Writes a row to a buffer, counts it, and reads the buffer before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        before = self.rows.sum()
        self.rows.index_copy_(0, self.count, x[None])
        self.count.add_(1)
        return before, self.rows.transpose(0, 1) * 2, self.count + 1


class SameDevice(Cache):
    """Writes to a buffer through what is the buffer itself."""

    def forward(self, x: Any) -> Any:
        count = self.count.to("cpu")
        self.rows.index_copy_(0, count, x.contiguous()[None])
        count.add_(1)
        return self.rows * 2, self.count + 1


class StaleView(Cache):
    """Reads a view that was made before the write: PyTorch has it show the new content."""

    def forward(self, x: Any) -> Any:
        view = self.rows.transpose(0, 1)
        self.rows.index_copy_(0, self.count, x[None])
        return view * 2


class PartWritten(Cache):
    def forward(self, x: Any) -> Any:
        self.rows[1:2].copy_(x[None])
        return self.rows + 1


class Promoted(Cache):
    """The result of the addition would be f64, which the buffer is not."""

    def forward(self, x: Any) -> Any:
        self.rows.add_(x.double())
        return self.rows + 1


class Shared(Cache):
    """Two buffers in one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("other", self.rows.view(12))

    def forward(self, x: Any) -> Any:
        self.rows.index_copy_(0, self.count, x[None])
        return self.other + 1


class Temporary(nn.Module):
    """Writes to what it has made itself, and reads a name of Python's."""

    def forward(self, input: Any) -> Any:
        y = input * 2
        y.add_(1)
        return y.relu_().sum(0) + y[0]


class WritesInput(nn.Module):
    def forward(self, x: Any) -> Any:
        x.mul_(3)
        return x.sum()


X = torch.tensor([1.0, -2.0, 3.0])


def named(module: nn.Module) -> str:
    return type(module).__name__


def program_of(module: nn.Module, x: Any = X) -> Any:
    with torch.no_grad():
        return torch.export.export(module, (x,), strict=False)


@pytest.mark.parametrize("module", [Cache(), SameDevice(), Temporary(), WritesInput()], ids=named)
def test_it_is_the_model_that_tracing_gives(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(6.0).reshape(2, 3) - 2 if isinstance(module, Temporary) else X
    plain = functional(program_of(module, x))
    assert plain is not None
    assert not any(
        getattr(node.target, "_schema", None) and node.target._schema.is_mutable for node in plain.graph.nodes
    )
    quick = from_torch(module, (x,))
    monkeypatch.setattr(exported, "functional", lambda _program: None)
    traced = from_torch(module, (x,))
    assert [value.name for value in quick.graph.inputs] == [value.name for value in traced.graph.inputs]
    assert [str(value.type) for value in quick.graph.outputs] == [str(value.type) for value in traced.graph.outputs]
    assert quick.graph.states == traced.graph.states
    assert quick.state_outputs.keys() == traced.state_outputs.keys()


@pytest.mark.parametrize("module", [Cache(), SameDevice(), StaleView(), PartWritten(), Temporary()], ids=named)
def test_calls_give_what_the_module_gives(module: nn.Module) -> None:
    x = torch.arange(6.0).reshape(2, 3) - 2 if isinstance(module, Temporary) else X
    expected = copy.deepcopy(module)
    program = capgraph.optimize(module, args=(x,), executor="eager")
    for call in range(3):
        torch.testing.assert_close(program(x + call), expected(x + call))


@pytest.mark.parametrize("module", [StaleView(), PartWritten(), Promoted(), Shared()], ids=named)
def test_what_is_not_simple_is_traced(module: nn.Module) -> None:
    assert functional(program_of(module)) is None
    if not isinstance(module, Shared):  # which PyTorch refuses, with a remedy of ours
        assert from_torch(module, (X,)).states


def test_the_exported_program_stays_what_it_is() -> None:
    program = program_of(Cache())
    before = str(program.graph)
    assert functional(program) is not None
    assert str(program.graph) == before


def test_sizes_still_vary_where_part_of_a_buffer_is_read() -> None:
    class Part(Cache):
        def forward(self, x: Any) -> Any:
            return self.rows.narrow(0, 0, x.shape[0]) + x[:, None]

    program = capgraph.optimize(Part(), args=(torch.ones(4),), dynamic_shapes=({0: "length"},), executor="eager")
    torch.testing.assert_close(program(torch.ones(2)), torch.ones(2, 3))
