"""fx graphs of torch calls, of ATen calls, and with fake tensors on their inputs."""

from typing import Any

import capgraph
import pytest
import torch
from capgraph.frontends.torch.exported import from_exported
from capgraph.frontends.torch.fx import from_fx
from capgraph.ir.errors import InputError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx


def _function(x: Any) -> Any:
    y = torch.relu(x).clone()
    y.select(1, 0).fill_(1)
    return y.transpose(0, 1) @ x


def _assert_equal(model: Any, x: Any) -> None:
    torch.testing.assert_close(torch.from_numpy(evaluate_graph(model.graph, [x.numpy()])[0]), _function(x))


def test_torch_calls_methods_and_modules() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.layer(x).sigmoid() + torch.sin(x)

    module = Net().requires_grad_(False)
    traced = torch.fx.symbolic_trace(module)
    model = from_fx(traced, (torch.zeros(3, 4),), dynamic_shapes=({0: "rows"},))
    assert str(model.graph.inputs[0].type) == "f32[rows, 4]"
    x = torch.randn(5, 4)
    torch.testing.assert_close(torch.from_numpy(evaluate_graph(model.graph, [x.numpy()])[0]), module(x))


def test_aten_calls_with_in_place_updates() -> None:
    traced = make_fx(_function)(torch.zeros(3, 4))
    assert any("fill_" in str(node.target) for node in traced.graph.nodes)
    _assert_equal(from_fx(traced, (torch.zeros(3, 4),)), torch.randn(3, 4))


def test_fake_tensors_stand_for_examples_and_their_symbols_vary() -> None:
    model = from_fx(make_fx(_function, tracing_mode="symbolic")(torch.zeros(3, 5)))
    for rows, columns in ((3, 5), (6, 2)):
        _assert_equal(model, torch.randn(rows, columns))


def test_a_graph_that_takes_a_structure() -> None:
    class Named(nn.Module):
        def forward(self, x: Any, *, more: Any) -> Any:
            return x * 2 + more["y"]

    x, y = torch.randn(3), torch.randn(3)
    exported = torch.export.export(Named(), (x,), {"more": {"y": y}})
    program = capgraph.optimize(exported.module(), executor="eager")
    torch.testing.assert_close(program(x, more={"y": y}), x * 2 + y)
    assert from_exported(exported).in_spec == exported.call_spec.in_spec


def test_without_examples_and_fake_tensors() -> None:
    with pytest.raises(InputError, match="does not tell the type of its input 'x'"):
        from_fx(torch.fx.symbolic_trace(_function))


def test_what_torch_refuses_is_the_cause() -> None:
    traced = torch.fx.symbolic_trace(_function)
    with pytest.raises(UnsupportedError, match=r"torch\.export refuses _function: Dimension out of range") as caught:
        from_fx(traced, (torch.zeros(3),))
    assert caught.value.__cause__ is not None
