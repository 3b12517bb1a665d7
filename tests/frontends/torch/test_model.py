"""Where a trace has its inputs and outputs: on a GPU, or in main memory beside one."""

from typing import Any

import capgraph
import pytest
import torch
from capgraph.frontends.torch import from_torch
from capgraph.frontends.torch.exported import gpu_of

from tests.frontends.torch.fake_cuda import fake_cuda, imported_on_cuda, module_on_cuda, on_cuda


class Moving(torch.nn.Module):
    def forward(self, x: Any, places: Any) -> Any:
        y = x[places.to(x.device)]
        return y, y.sum(0).cpu()


def test_devices_of_an_export() -> None:
    x, places = torch.zeros(8, 4), torch.tensor([1, 3])
    with fake_cuda() as mode:
        model = from_torch(Moving(), (on_cuda(mode, x), mode.from_tensor(places, static_shapes=True)))
    assert model.on_gpu == {"x"}
    assert model.on_host == {model.outputs[1]}


def test_devices_of_a_compiled_function() -> None:
    model = imported_on_cuda(lambda x: (x + 1, x.sum().cpu()), [torch.zeros(3)]).model
    assert len(model.on_gpu) == 1
    assert model.on_host == {model.outputs[1]}


def test_a_trace_on_the_host_has_no_devices() -> None:
    model = from_torch(Moving(), (torch.zeros(8, 4), torch.tensor([1, 3])))
    assert not model.on_gpu
    assert not model.on_host


def test_a_module_on_a_gpu_wants_one() -> None:
    linear, x = torch.nn.Linear(3, 3), torch.zeros(2, 3)
    assert gpu_of(linear, (x,), None) == ""
    with fake_cuda() as mode:
        fake = on_cuda(mode, x)
        assert gpu_of(linear, (fake,), None) == "cuda:0"
        assert gpu_of(module_on_cuda(mode, linear), None, None) == "cuda:0"
        with pytest.raises(capgraph.UnsupportedError, match="cuda:0"):
            capgraph.optimize(linear, args=(fake,))
