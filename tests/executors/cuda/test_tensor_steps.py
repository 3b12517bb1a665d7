"""Foreign nodes of PyTorch in a program on a GPU: on tensors over its memory, on its stream, between recordings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capgraph.frontends.torch import from_torch
from capgraph.ir import foreign
from capgraph.ir.errors import ExecutionError
from capgraph.ir.graph import Graph

from tests.executors.cuda.fake import FakeDriver, GpuArray, HostTorch, fake_device, gpu_arrays, meanings
from tests.executors.cuda.test_executable import recorded

torch.set_num_threads(1)


class Between(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(x * 2).transpose(0, 1) + 1


class Aliasing(torch.nn.Module):
    """Its foreign op gives its operand's memory, and what follows has no size before it runs."""

    def forward(self, x: Any) -> Any:
        return torch.unique(torch.special.bessel_j0(x)), x + 1


class Refused(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.cholesky_ex(x, check_errors=True)[0]


def graph_of(module: Any, *given: Any) -> Graph:
    return from_torch(module, given).graph


def content(given: Any) -> Any:
    return given.numpy() if isinstance(given, torch.Tensor) else getattr(given, "content", given)


def test_it_runs_on_tensors_over_the_plan(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    with meanings(), gpu_arrays():
        gpu = fake_device(tmp_path)
        assert isinstance(gpu.driver, FakeDriver)
        program = recorded(graph_of(Between(), torch.zeros(3, 4)), gpu)
        for scale in (1, 2, 3):
            HostTorch.streams.clear()
            (found,) = program.run({"x": GpuArray(x * scale)}).values()
            expected = Between()(torch.from_numpy(x * scale)).numpy()
            np.testing.assert_allclose(content(found), expected, rtol=1e-5)
        assert HostTorch.streams == [7], "once, on the stream of the call"
        (remark,) = (line for line in program.remarks if "torch, between recordings" in line)
        assert "aten.special_bessel_j0.default" in remark
        assert not any(line.startswith("runs on the host") for line in program.remarks)


def test_sizes_that_running_tells_and_callers_on_the_host(tmp_path: Path) -> None:
    graph = graph_of(Aliasing(), torch.zeros(6))
    x = np.array([1, 2, 1, 3, 2, 1], np.float32)
    expected = Aliasing()(torch.from_numpy(x))
    with meanings(), gpu_arrays():
        program = recorded(graph, fake_device(tmp_path))
        for given in (GpuArray(x), x, GpuArray(x)):
            for found, wanted in zip(program.run({"x": given}).values(), expected, strict=True):
                np.testing.assert_allclose(content(found), wanted.numpy(), rtol=1e-5)


def test_what_it_raises_names_the_node(tmp_path: Path) -> None:
    graph = graph_of(Refused(), torch.eye(2))
    with meanings(), gpu_arrays():
        gpu = fake_device(tmp_path)
        gpu.failures = (*gpu.failures, RuntimeError)  # as CuPy's, of which what an operator raises is none
        program = recorded(graph, gpu)
        with pytest.raises(ExecutionError, match=r"aten.linalg_cholesky_ex.default failed: .*not positive") as caught:
            program.run({"x": GpuArray(np.full((2, 2), -1, np.float32))})
        assert "test_tensor_steps.py" in str(caught.value)


def test_other_domains_stay_on_the_host() -> None:
    graph = graph_of(Between(), torch.zeros(3, 4))
    (node,) = (node for node in graph.nodes if "." in node.op.name)
    meaning = foreign.tensor_meaning_of(node)
    assert meaning is not None
    assert meaning.framework == "torch"
    assert all(foreign.tensor_meaning_of(other) is None for other in graph.nodes if other is not node)
