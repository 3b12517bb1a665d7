"""Exports leave out what only debugging needs, and say as before where nodes come from."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from capgraph.frontends.torch import from_torch
from capgraph.frontends.torch.lean_tracing import code_when_called, matmuls_by_shape, short_notes
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
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


def test_composite_operators_are_loaded_once() -> None:
    """`ExportedProgram.run_decompositions` loads them for each namespace of operators that there is."""
    module = nn.BatchNorm1d(4).train()  # what it writes has to be taken apart
    name = "_dispatch_get_registrations_for_dispatch_key"
    with patch.object(torch._C, name, wraps=getattr(torch._C, name)) as registrations:
        for _ in range(2):
            from_torch(module, (torch.ones(2, 4),))
    assert registrations.call_count <= 1


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3), (4, 5, 3), (1, 1, 3), (2, 0, 3), (2, 4, 5, 3)], ids=str)
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_layers_have_the_type_that_their_parts_have(shape: tuple[int, ...], bias: bool) -> None:
    def result() -> tuple[Any, ...]:
        found = [nn.functional.linear(x, weight, addend) for x in (given, given.transpose(0, -2))]
        return tuple((each.shape, each.stride(), each.dtype, each.device) for each in found)

    with torch.no_grad(), FakeTensorMode(), enable_python_dispatcher():
        given, weight = torch.empty(shape, dtype=torch.bfloat16), torch.empty(6, 3, dtype=torch.bfloat16)
        given = given if given.dim() > 1 else given[None]
        addend = torch.empty(6, dtype=torch.bfloat16) if bias else None
        by_parts = result()
        with matmuls_by_shape():
            assert result() == by_parts
            with pytest.raises(RuntimeError):
                nn.functional.linear(given, weight.T, addend)
    assert not torch.ops.aten.linear.default.py_kernels


def test_layers_that_are_taken_apart_have_all_parts() -> None:
    """Of what is traced by its parts, as for another backend, none is lost."""
    with torch.no_grad(), matmuls_by_shape():
        traced = make_fx(nn.functional.linear, tracing_mode="fake")(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4))
    assert [str(node.target) for node in traced.graph.nodes if node.op == "call_function"] == [
        "aten.t.default",
        "aten.addmm.default",
    ]


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
