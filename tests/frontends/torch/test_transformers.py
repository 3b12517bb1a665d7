"""Models of transformers by torch.export and by torch.compile: equal to eager PyTorch, and nothing foreign in them."""

from typing import Any

import capgraph
import pytest
import torch
from capgraph.program import foreign_nodes
from capgraph.torch_backend import CompiledFunction

from tests.frontends.torch.zoo import CASES

torch.set_num_threads(1)


def _tensors(result: Any) -> list[Any]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _assert_equal(found: Any, wanted: Any) -> None:
    for one, other in zip(_tensors(found), _tensors(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_exported(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make()
    dynamic = {**case.dynamic, **dict.fromkeys(case.fixed)}
    examples = {**case.inputs(*case.sizes[0]), **case.fixed}
    program = capgraph.optimize(model, kwargs=examples, dynamic_shapes=dynamic, executor="eager")
    assert not foreign_nodes(program.graph)
    for sizes in (*case.sizes, (1, 7)):
        given = {**case.inputs(*sizes), **case.fixed}
        with torch.no_grad():
            _assert_equal(program(**given), model(**given))


@pytest.mark.parametrize("name", CASES)
def test_exported_in_bfloat16(name: str) -> None:
    """By norm: single elements of results in bf16 differ by more, in PyTorch itself from one kernel to the next."""
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make().to(torch.bfloat16)
    given = {**_in_bfloat16(case.inputs(*case.sizes[0])), **case.fixed}
    program = capgraph.optimize(model, kwargs=given, executor="eager")
    assert not foreign_nodes(program.graph)
    with torch.no_grad():
        for found, wanted in zip(_tensors(program(**given)), _tensors(model(**given)), strict=True):
            assert found.dtype == wanted.dtype
            difference = (found.double() - wanted.double()).norm() / wanted.double().norm()
            assert difference <= 2e-2


def _in_bfloat16(given: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in given.items()}


@pytest.mark.parametrize("name", CASES)
def test_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[CompiledFunction] = []
    initialise = CompiledFunction.__init__
    monkeypatch.setattr(
        CompiledFunction, "__init__", lambda self, *args: (made.append(self), initialise(self, *args))[1]
    )
    torch.manual_seed(0)
    torch._dynamo.reset()
    case = CASES[name]
    model = case.make()
    compiled = torch.compile(model, backend="capgraph", options={"executor": "eager"}, fullgraph=True)
    for sizes in case.sizes:
        given = case.inputs(*sizes)
        for input_name, dims in case.dynamic.items():
            for axis in dims:
                torch._dynamo.mark_dynamic(given[input_name], axis)
        with torch.no_grad():
            _assert_equal(compiled(**given, **case.fixed), model(**given, **case.fixed))
    assert len(made) == 1, "one graph serves all sizes"
    assert not foreign_nodes(made[0].program.graph)
