"""Every node knows the module and the line of Python that it comes from, whichever way it came in."""

from typing import Any

import pytest
import torch
from capgraph.frontends.torch.exported import from_torch
from capgraph.ir.errors import ExecutionError
from capgraph.ir.graph import Graph
from torch import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.layer(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x) + 1
        return x


def exported(module: Any, x: Any) -> Graph:
    return from_torch(module, (x,)).graph


def compiled(module: Any, x: Any) -> Graph:
    from capgraph.pytorch.backend import live_programs

    torch._dynamo.reset()
    before = live_programs()
    call = torch.compile(module, backend="capgraph", options={"executor": "eager", "level": 0})
    with torch.no_grad():
        call(x)
    (program,) = [each for each in live_programs() if not any(each is other for other in before)]
    return program.graph


@pytest.mark.parametrize("way", [exported, compiled])
def test_the_line_and_the_module(way: Any) -> None:
    nodes = list(way(Net(), torch.zeros(2, 4)).nodes)
    tanh = [str(node.origin) for node in nodes if node.op.name == "tanh"]
    assert ["blocks.0, " in tanh[0], "blocks.1, " in tanh[1]] == [True, True]
    lines = {origin.rpartition(":")[2] for origin in tanh}
    first = Block.forward.__code__.co_firstlineno + 1
    assert lines == {f"{first} in forward)"}
    assert all("test_origins.py" in origin for origin in tanh)


def test_a_failure_in_what_torch_compiles_names_the_line() -> None:
    torch._dynamo.reset()

    def root(x: Any) -> Any:
        return torch.linalg.cholesky_ex(x * 1, check_errors=True)[0]

    call = torch.compile(root, backend="capgraph", options={"executor": "eager"})
    with torch.no_grad():
        call(torch.eye(2))
        with pytest.raises(ExecutionError, match=r"(?s)linalg_cholesky_ex.*test_origins\.py:\d+ in root") as caught:
            call(-torch.eye(2))
    assert isinstance(caught.value.__cause__, RuntimeError), "PyTorch's own error is the cause"
