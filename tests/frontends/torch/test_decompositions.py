import copy
import importlib
from typing import Any
from unittest.mock import patch

import capgraph
import pytest
import torch
from capgraph.frontends.torch.decompositions import KEPT, aot_decompositions, composites_kept, decompositions
from capgraph.frontends.torch.ops import LOWERINGS
from capgraph.pytorch.backend import live_programs
from torch._functorch.aot_autograd import aot_function

LOWERED = {name.split(".")[1] for name in LOWERINGS}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_exists_and_has_a_lowering(name: str) -> None:
    assert hasattr(torch.ops.aten, name)
    assert name in LOWERED


def test_lowerings_are_of_operators_that_exist() -> None:
    for registers in ("transformers.integrations.moe", "torch._inductor.inductor_prims"):
        importlib.import_module(registers)
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


def _foreign_nodes() -> list[str]:
    names = (node.op.name for program in live_programs() for node in program.graph.nodes)
    return [name for name in names if "." in name]


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("of_lists", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.RAdam])
def test_the_step_of_an_optimizer_is_native(kind: Any, of_lists: bool) -> None:
    torch.compiler.reset()
    mine, theirs = ([torch.nn.Parameter(torch.linspace(-1, 1, n)) for n in (3, 4)] for _ in range(2))
    step, expected = (kind(parameters, lr=0.1, foreach=of_lists) for parameters in (mine, theirs))
    compiled = torch.compile(step.step, backend="capgraph", options={"executor": "eager"})
    for scale in (1.0, -2.0):
        for parameter in (*mine, *theirs):
            parameter.grad = scale * torch.ones_like(parameter)
        compiled()
        expected.step()
    torch.testing.assert_close(mine, theirs)
    assert not _foreign_nodes()


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch._foreach_add(x, y, alpha=2),
        lambda x, y: torch._foreach_mul(x, [2.0, 3.0]),
        lambda x, y: torch._foreach_mul([t.int() for t in x], 1.5),
        lambda x, y: torch._foreach_addcdiv(x, y, y, [2.0, 3.0]),
        lambda x, y: torch._foreach_pow(2.0, x),
        lambda x, y: torch._foreach_maximum(x, 0.5),
        lambda x, y: torch._foreach_norm(x, float("inf"), dtype=torch.float64),
    ],
)
def test_operators_of_lists(function: Any) -> None:
    torch.compiler.reset()
    lists = [torch.linspace(-1, 2, 3), torch.ones(2, 2)], [torch.ones(3), torch.full((2, 2), 0.25)]
    compiled = torch.compile(function, backend="capgraph", options={"executor": "eager"})
    torch.testing.assert_close(list(compiled(*lists)), list(function(*lists)))
    assert not _foreign_nodes()


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
