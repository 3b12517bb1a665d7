"""Models of transformers by torch.export and by torch.compile: equal to eager PyTorch, and nothing foreign in them."""

from typing import Any

import capgraph
import pytest
import torch
from capgraph.program import foreign_nodes
from capgraph.pytorch.backend import CompiledFunction

from tests.frontends.torch.zoo import CASES

torch.set_num_threads(1)

FOR_ONNX_RUNTIME = ("bert", "llama", "t5")


def _tensors(result: Any) -> list[Any]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _assert_equal(found: Any, wanted: Any) -> None:
    for one, other in zip(_tensors(found), _tensors(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_exported(name: str) -> None:
    """Of one layer: a second one has no other ops. `test_compiled` has two. ONNX Runtime gets the graph of three."""
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make(1)
    dynamic = {**case.dynamic, **dict.fromkeys(case.fixed)}
    examples = {**case.inputs(*case.sizes[0]), **case.fixed}
    program = capgraph.optimize(model, kwargs=examples, dynamic_shapes=dynamic, executor="eager")
    assert not foreign_nodes(program.graph)
    others = [capgraph.optimize(program.graph, executor="ort", device="host")] if name in FOR_ONNX_RUNTIME else []
    for sizes in (*case.sizes, (1, 7)):
        given = case.inputs(*sizes)
        with torch.no_grad():
            wanted = model(**given, **case.fixed)
            _assert_equal(program(**given, **case.fixed), wanted)
        for other in others:
            found = other.run({input_name: tensor.numpy() for input_name, tensor in given.items()})
            _assert_equal([torch.from_numpy(array) for array in found.values()], wanted)


@pytest.mark.parametrize("name", CASES)
def test_exported_in_bfloat16(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make(1).to(torch.bfloat16)
    dynamic = {**case.dynamic, **dict.fromkeys(case.fixed)}
    examples = {**_in_bfloat16(case.inputs(*case.sizes[0])), **case.fixed}
    program = capgraph.optimize(model, kwargs=examples, dynamic_shapes=dynamic, executor="eager")
    assert not foreign_nodes(program.graph)
    for sizes in case.sizes:
        given = {**_in_bfloat16(case.inputs(*sizes)), **case.fixed}
        with torch.no_grad():
            _assert_equal_by_norm(program(**given), model(**given))


def _in_bfloat16(given: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in given.items()}


def _assert_equal_by_norm(some: Any, others: Any) -> None:
    """Single elements of results in bf16 differ by more, in PyTorch itself from one kernel to the next."""
    for found, wanted in zip(_tensors(some), _tensors(others), strict=True):
        assert found.dtype == wanted.dtype
        difference = (found.double() - wanted.double()).norm() / wanted.double().norm()
        assert difference <= 2e-2


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[CompiledFunction]:
    """The functions that are compiled from now on."""
    found: list[CompiledFunction] = []
    initialize = CompiledFunction.__init__
    monkeypatch.setattr(
        CompiledFunction, "__init__", lambda self, *args: (found.append(self), initialize(self, *args))[1]
    )
    torch._dynamo.reset()
    return found


# Both ways end in the same importer: what bf16 changes there, `test_exported_in_bfloat16` holds for every model.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in CASES), *((name, torch.bfloat16) for name in ("llama", "resnet"))],
    ids=str,
)
def test_compiled(name: str, dtype: Any, made: list[CompiledFunction]) -> None:
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make(2).to(dtype)
    compiled = torch.compile(model, backend="capgraph", options={"executor": "eager"}, fullgraph=True)
    for sizes in (*case.sizes, (4, 9)):
        given = case.inputs(*sizes) if dtype is torch.float32 else _in_bfloat16(case.inputs(*sizes))
        for input_name, dims in case.dynamic.items():
            for axis in dims:
                torch._dynamo.mark_dynamic(given[input_name], axis)
        compare = _assert_equal if dtype is torch.float32 else _assert_equal_by_norm
        with torch.no_grad():
            compare(compiled(**given, **case.fixed), model(**given, **case.fixed))
    assert len(made) == 1, "one graph serves all sizes"
    assert not foreign_nodes(made[0].program.graph)
