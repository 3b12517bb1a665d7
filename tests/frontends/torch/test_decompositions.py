import copy
import importlib
from typing import Any
from unittest.mock import patch

import capgraph
import pytest
import torch
from capgraph.frontends.torch.decompositions import KEPT, aot_decompositions, composites_kept, decompositions
from capgraph.frontends.torch.ops import LOWERINGS
from torch._functorch.aot_autograd import aot_function

LOWERED = {name.split(".")[1] for name in LOWERINGS}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_exists_and_has_a_lowering(name: str) -> None:
    assert hasattr(torch.ops.aten, name)
    assert name in LOWERED


def test_lowerings_are_of_operators_that_exist() -> None:
    importlib.import_module("transformers.integrations.moe")  # it registers an operator of its own
    unknown = [
        name
        for name in LOWERINGS
        if not hasattr(getattr(torch.ops, name.split(".")[0]), name.split(".")[1])
        or (name.count(".") == 2 and name.split(".")[2] not in getattr(torch.ops.aten, name.split(".")[1]).overloads())
    ]
    assert not unknown


def test_a_table_without_what_is_kept() -> None:
    for table in (decompositions(), aot_decompositions()):
        assert torch.ops.aten.linear.default not in table
        assert torch.ops.aten.addmv.default not in table
        assert torch.ops.aten.smooth_l1_loss.default in table


def _operators(function: Any, *tensors: Any) -> list[str]:
    """What AOT autograd makes of a function."""
    found: list[str] = []

    def compile_forward(module: Any, _: Any) -> Any:
        found.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    with torch.no_grad():
        aot_function(function, fw_compiler=compile_forward, decompositions=aot_decompositions())(*tensors)
    return found


def test_composites_stay_whole_below_autograd_and_come_apart_again_afterwards() -> None:
    function = torch.nn.functional.linear
    tensors = (torch.ones(2, 3, 4), torch.ones(5, 4), torch.ones(5))
    with composites_kept():
        assert _operators(function, *tensors) == ["aten.linear.default"]
        assert torch.equal(function(*tensors), torch.full((2, 3, 5), 5.0)), "and they still run"
    assert "aten.addmm.default" in _operators(function, *tensors)


def test_what_keeps_composites_is_made_once_and_leaves_nothing_behind() -> None:
    from torch._subclasses.fake_impls import op_implementations_dict
    from torch.export import exported_program

    linear = torch.ops.aten.linear.default
    before = dict(linear.py_kernels), op_implementations_dict.get(linear)
    with composites_kept():
        inside = dict(linear.py_kernels)
    assert inside != before[0]
    with patch.object(exported_program, "_override_composite_implicit_decomp") as override, composites_kept():
        assert linear.py_kernels == inside
    assert not override.called
    assert (dict(linear.py_kernels), op_implementations_dict.get(linear)) == before


@pytest.mark.parametrize("way", ["compile", "optimize"])
@pytest.mark.parametrize("norm", [torch.nn.InstanceNorm1d(3, track_running_stats=True), torch.nn.BatchNorm1d(3)])
def test_norms_in_training_update_their_statistics(norm: Any, way: str) -> None:
    torch._dynamo.reset()
    x = torch.randn(2, 3, 4) + 1
    expected, module = copy.deepcopy(norm), copy.deepcopy(norm)
    with torch.no_grad():
        program = (
            torch.compile(module, backend="capgraph")
            if way == "compile"
            else capgraph.optimize(module, args=(x,), executor="eager")
        )
        for _ in range(2):
            torch.testing.assert_close(program(x), expected(x))
    for one, other in zip(module.buffers(), expected.buffers(), strict=True):
        torch.testing.assert_close(one, other)
