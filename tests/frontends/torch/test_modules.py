"""Modules as users write them, by torch.export and torch.compile: results, buffers and inputs as in eager PyTorch."""

import copy
from typing import Any

import capgraph
import pytest
import torch
from capgraph.program import foreign_nodes

from tests.frontends.torch.modules import MODULES, SelectedSizes, Tied

torch.set_num_threads(1)


def _made(name: str) -> tuple[Any, Any]:
    """A module and its twin."""
    torch.manual_seed(0)
    module = MODULES[name].make().eval().requires_grad_(False)
    return module, copy.deepcopy(module)


def _assert_same(name: str, call: Any, module: Any, twin: Any, batches: tuple[int, ...]) -> None:
    for batch in batches:
        given = MODULES[name].inputs(batch)
        kept = [tensor.clone() for tensor in given]
        with torch.no_grad():
            found, wanted = call(*given), twin(*kept)
        leaves, structure = torch.utils._pytree.tree_flatten(found)
        expected, whole = torch.utils._pytree.tree_flatten(wanted)
        assert structure == whole
        _assert_close(leaves, expected, MODULES[name].tolerance)
        _assert_close(given, kept, 0.0)
        _assert_close(list(module.buffers()), list(twin.buffers()), 1e-6)


def _assert_close(some: Any, others: Any, tolerance: float) -> None:
    for one, other in zip(some, others, strict=True):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=tolerance)
        else:
            assert one == other
            assert type(one) is type(other)


@pytest.mark.parametrize("name", MODULES)
def test_exported(name: str) -> None:
    module, twin = _made(name)
    given = MODULES[name].inputs(4)
    dynamic = tuple({0: "batch"} if tensor.shape[0] == 4 else None for tensor in given)
    program = capgraph.optimize(module, args=given, dynamic_shapes=dynamic, executor="eager")
    assert not foreign_nodes(program.graph)
    _assert_same(name, program, module, twin, (4, 3, 5))


@pytest.mark.parametrize("name", MODULES)
def test_compiled(name: str) -> None:
    torch._dynamo.reset()
    module, twin = _made(name)
    compiled = torch.compile(
        module, backend="capgraph", options={"executor": "eager"}, dynamic=True, fullgraph=MODULES[name].is_whole
    )
    _assert_same(name, compiled, module, twin, (4, 3))


WITHOUT_BFLOAT16 = {
    "complex_numbers": "PyTorch has no complex numbers of bf16",
    "mixed_precision": "it chooses bf16 itself, for a part",
}
IN_BFLOAT16 = [name for name in MODULES if name not in WITHOUT_BFLOAT16]


def _in_bfloat16(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tensor.bfloat16() if tensor.is_floating_point() else tensor for tensor in given)


def _assert_same_by_norm(name: str, call: Any, twin: Any, batches: tuple[int, ...]) -> None:
    """Numbers that are no floats, types and structures are equal; floats differ by 2e-2 of their norm at most."""
    for batch in batches:
        given = _in_bfloat16(MODULES[name].inputs(batch))
        kept = [tensor.clone() for tensor in given]
        with torch.no_grad():
            found, wanted = call(*given), twin(*kept)
        leaves, structure = torch.utils._pytree.tree_flatten((found, given))
        expected, whole = torch.utils._pytree.tree_flatten((wanted, tuple(kept)))
        assert structure == whole
        for one, other in zip(leaves, expected, strict=True):
            if not isinstance(other, torch.Tensor) or not other.is_floating_point():
                _assert_close([one], [other], 0.0)
                continue
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert (one.double() - other.double()).norm() <= 2e-2 * other.double().norm()


@pytest.mark.parametrize("name", IN_BFLOAT16)
def test_exported_in_bfloat16(name: str) -> None:
    module, twin = (each.bfloat16() for each in _made(name))
    given = _in_bfloat16(MODULES[name].inputs(4))
    dynamic = tuple({0: "batch"} if tensor.shape[0] == 4 else None for tensor in given)
    program = capgraph.optimize(module, args=given, dynamic_shapes=dynamic, executor="eager")
    assert not foreign_nodes(program.graph)
    _assert_same_by_norm(name, program, twin, (4, 3))


# Both ways end in the same importer: what bf16 changes there, `test_exported_in_bfloat16` holds for every module.
@pytest.mark.parametrize("name", ["lstm", "transformer", "statistics", "ring", "writes_its_input", "structures"])
def test_compiled_in_bfloat16(name: str) -> None:
    torch._dynamo.reset()
    module, twin = (each.bfloat16() for each in _made(name))
    compiled = torch.compile(
        module, backend="capgraph", options={"executor": "eager"}, dynamic=True, fullgraph=MODULES[name].is_whole
    )
    _assert_same_by_norm(name, compiled, twin, (4, 3))


@pytest.mark.parametrize("executor", ["graph", "ort"])
@pytest.mark.parametrize("name", ["masked_writes", "experts"])
def test_places_that_only_running_tells(name: str, executor: Any) -> None:
    for dynamic in (({0: "batch"},), None):
        module, twin = _made(name)
        sizes = {"batch": (1, 8)} if dynamic and executor == "graph" else None
        program = capgraph.optimize(
            module, args=MODULES[name].inputs(4), dynamic_shapes=dynamic, executor=executor, dynamic=sizes
        )
        _assert_same(name, program, module, twin, (4, 5, 4) if dynamic else (4, 4))
    torch._dynamo.reset()
    module, twin = _made(name)
    compiled = torch.compile(module, backend="capgraph", options={"executor": executor})
    _assert_same(name, compiled, module, twin, (4, 5))


def test_one_row_written_to_all_that_a_mask_selects() -> None:
    """Its size is known when it runs, as is how many places there are."""

    class Writes(torch.nn.Module):
        def forward(self, x: Any, places: Any, source: Any) -> Any:
            x = x.clone()
            x[places] = x[source]
            return x

    x, one = torch.randn(4, 3), torch.tensor([False, True, False, False])
    program = capgraph.optimize(Writes(), args=(x, x[:, 0] < 9, x[:, 0] < 9), executor="eager")
    expected = x.clone()
    expected[:3] = x[one]
    torch.testing.assert_close(program(x, torch.tensor([True, True, True, False]), one), expected)


def test_sizes_of_what_is_selected() -> None:
    torch.manual_seed(0)
    x, module = torch.randn(5, 8), SelectedSizes()
    program = capgraph.optimize(module, args=(x,), dynamic_shapes=({0: "batch"},), executor="eager")
    for given in (x, torch.randn(7, 8), -x.abs()):
        _assert_close(program(given), module(given), 1e-5)


@pytest.mark.parametrize("name", ["statistics", "ring", "unet", "structures", "lstm", "complex_numbers"])
def test_recorded(name: str) -> None:
    """Buffers are states of the recording, and stay the module's own memory."""
    module, twin = _made(name)
    memory = [buffer.data_ptr() for buffer in module.buffers()]
    given = MODULES[name].inputs(4)
    program = capgraph.optimize(
        module, args=given, dynamic_shapes=({0: "batch"},), executor="graph", dynamic={"batch": (1, 8)}
    )
    _assert_same(name, program, module, twin, (4, 4, 4, 3, 3))
    assert program.stats().counters.replayed_calls
    assert [buffer.data_ptr() for buffer in module.buffers()] == memory


def _exported_program(module: Any, x: Any) -> capgraph.Program:
    return capgraph.optimize(module, args=(x,), executor="eager", level=0)


def _compiled_program(module: Any, x: Any) -> capgraph.Program:
    from capgraph.pytorch.backend import live_programs

    torch._dynamo.reset()
    before = live_programs()
    compiled = torch.compile(module, backend="capgraph", options={"executor": "eager", "level": 0})
    with torch.no_grad():
        compiled(x)
    (program,) = [each for each in live_programs() if not any(each is other for other in before)]
    return program


@pytest.mark.parametrize("way", [_exported_program, _compiled_program])
def test_tied_weights_are_one_constant(way: Any) -> None:
    module = Tied().requires_grad_(False)
    program = way(module, torch.randn(4, 8))
    constants = [node.attrs["value"] for node in program.graph.nodes if node.op.name == "constant"]
    weights = [constant for constant in constants if constant.shape == (20, 8)]
    assert len(weights) == 1
    assert weights[0].array.__array_interface__["data"][0] == module.head.weight.data_ptr(), "and it is not copied"


def test_tied_weights_that_change_are_seen_by_what_torch_compiles() -> None:
    torch._dynamo.reset()
    module = Tied().requires_grad_(False)
    compiled = torch.compile(module, backend="capgraph")
    x = torch.randn(4, 8)
    with torch.no_grad():
        compiled(x)
        module.embedding.weight.mul_(2)
        torch.testing.assert_close(compiled(x), module(x))
