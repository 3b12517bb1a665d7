"""Exports leave out what only debugging needs, and say as before where nodes come from."""

from typing import Any
from unittest.mock import patch

import torch
from capgraph.frontends.torch import from_torch
from capgraph.frontends.torch.lean_tracing import code_when_called, short_notes
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx


def test_an_export_compiles_no_code() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    whole = torch.fx.Graph.python_code
    made: list[Any] = []

    def counted(graph: Any, *args: Any, **options: Any) -> Any:
        made.append(graph)
        return whole(graph, *args, **options)

    with patch.object(torch.fx.Graph, "python_code", counted):
        model = from_torch(module, (torch.ones(2, 4),), dynamic_shapes=({0: "rows"},))
    assert not made
    assert [str(dim) for dim in model.graph.inputs[0].shape] == ["rows", "4"]


def test_modules_get_their_code_when_they_are_called() -> None:
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    graph.output(graph.call_function(torch.neg, (given,)))
    with code_when_called():
        inside = torch.fx.GraphModule(nn.Module(), graph)
        outside = torch.fx.GraphModule(nn.Module(), graph)
        assert inside(torch.ones(2)).tolist() == [-1, -1]
    assert outside(torch.ones(2)).tolist() == [-1, -1]
    assert "neg" in outside.code


class Doubles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x) * 2


def test_notes_name_the_innermost_frames() -> None:
    def stacks() -> list[list[str]]:
        traced = make_fx(Doubles(), record_module_stack=True, pre_dispatch=True)(torch.ones(2, 3))
        notes = [node.meta.get("stack_trace") for node in traced.graph.nodes if node.op == "call_function"]
        return [[line for line in note.splitlines() if line.lstrip().startswith("File")] for note in notes if note]

    whole = stacks()
    with short_notes():
        short = stacks()
    assert [lines[-1] for lines in short] == [lines[-1] for lines in whole]
    assert all(sum("Doubles" in line or "test_lean_tracing.py" in line for line in lines) for lines in short)
