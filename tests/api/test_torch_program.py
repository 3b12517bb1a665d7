"""Programs of PyTorch modules: how they are called, and what is wrong with a call."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import capgraph
import numpy as np
import pytest
import torch
from capgraph.executors.base import Request
from capgraph.executors.cuda import programs as cuda_programs
from capgraph.executors.cuda.programs import graphs_on
from capgraph.ir.errors import InputError, UnsupportedError
from torch import nn

from tests.executors.cuda.fake import fake_device, meanings

torch.set_num_threads(1)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Any, *, offset: Any, double: bool = True) -> Any:
        y = self.layer(x) + offset
        return (y * 2 if double else y), {"rows": x.shape[0], "sum": y.sum()}


@pytest.fixture(scope="module")
def module() -> Heads:
    return Heads().requires_grad_(False)


@pytest.fixture(scope="module")
def program(module: Heads) -> capgraph.TorchProgram:
    made = capgraph.optimize(
        module,
        args=(torch.zeros(3, 4),),
        kwargs={"offset": torch.zeros(2), "double": True},
        dynamic_shapes={"x": {0: torch.export.Dim("batch", min=3, max=8)}, "offset": None, "double": None},
        executor="eager",
    )
    assert isinstance(made, capgraph.TorchProgram)
    return made


def test_called_as_the_module_is(module: Heads, program: capgraph.TorchProgram) -> None:
    for batch in (3, 8):
        x, offset = torch.randn(batch, 4), torch.randn(2)
        found, wanted = program(x, offset=offset, double=True), module(x, offset=offset)
        torch.testing.assert_close(found, wanted)
        assert found[1]["rows"] == batch
        torch.testing.assert_close(program(x, double=True, offset=offset), wanted)
        torch.testing.assert_close(program(offset=offset, x=x), wanted)
        torch.testing.assert_close(program(x.numpy(), offset=offset.numpy()), wanted)


def test_by_name_tensors_give_tensors_and_arrays_give_arrays(module: Heads, program: capgraph.TorchProgram) -> None:
    x, offset = torch.randn(4, 4), torch.randn(2)
    wanted = module(x, offset=offset)[0]
    tensors = program.run({"x": x, "offset": offset})
    arrays = program.run({"x": x.numpy(), "offset": offset.numpy()})
    first = next(iter(program.outputs))
    torch.testing.assert_close(tensors[first], wanted)
    assert isinstance(arrays[first], np.ndarray)
    np.testing.assert_allclose(arrays[first], wanted.numpy(), rtol=1e-6)


def test_inputs_that_need_gradients(program: capgraph.TorchProgram) -> None:
    x, offset = torch.randn(3, 4, requires_grad=True), torch.zeros(2)
    with pytest.raises(UnsupportedError, match=r"(?s)'x' needs gradients.*try: .*no_grad\(\), or with x\.detach\(\)"):
        program(x, offset=offset, double=True)
    with pytest.raises(UnsupportedError, match="'x' needs gradients"):
        program.run({"x": x, "offset": offset})
    with torch.no_grad():
        assert not program(x, offset=offset, double=True)[0].requires_grad
    assert not program(x.detach(), offset=offset, double=True)[0].requires_grad


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((torch.zeros(3, 4),), {}, "missing a required argument: 'offset'"),
        ((torch.zeros(3, 4), 1), {"offset": torch.zeros(2), "double": True}, "too many positional arguments"),
        ((torch.zeros(3, 4),), {"offset": torch.zeros(2), "double": False}, "exported with True"),
        ((torch.zeros(2, 4),), {"offset": torch.zeros(2), "double": True}, "batch is 2, but .* exported for 3 to 8"),
        ((torch.zeros(9, 4),), {"offset": torch.zeros(2), "double": True}, "batch is 9, but .* exported for 3 to 8"),
        ((torch.zeros(3, 5),), {"offset": torch.zeros(2), "double": True}, "input 'x'"),
        ((torch.zeros(3, 4).half(),), {"offset": torch.zeros(2), "double": True}, r"(?s)torch.float16.*\.to\("),
        ((torch.zeros(3, 4, device="meta"),), {"offset": torch.zeros(2), "double": True}, "is on meta"),
    ],
)
def test_wrong_calls(program: capgraph.TorchProgram, args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        program(*args, **kwargs)


def test_a_module_needs_examples_and_other_models_none() -> None:
    with pytest.raises(InputError, match="traced on example inputs"):
        capgraph.optimize(Heads())
    with pytest.raises(InputError, match="this model needs none"):
        capgraph.optimize(b"", args=(torch.zeros(1),))


@pytest.mark.parametrize("model", [nn.Linear, torch.sin, lambda x: x])
def test_classes_and_functions_are_no_models(model: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)a model cannot be the (class|function).*instance of torch\.nn\.Module"):
        capgraph.optimize(model, args=(torch.zeros(1),))


def test_examples_of_another_kind(module: Heads) -> None:
    with pytest.raises(InputError, match="args is a Tensor, not the arguments in a tuple"):
        capgraph.optimize(module, args=torch.zeros(3, 4))
    with pytest.raises(InputError, match="kwargs is a list, not arguments by name"):
        capgraph.optimize(module, args=(torch.zeros(3, 4),), kwargs=[torch.zeros(2)])  # type: ignore[arg-type]
    exported = torch.export.export(nn.ReLU(), (torch.zeros(2),))
    with pytest.raises(InputError, match=r"(?s)of an exported program vary is fixed.*torch\.export\.export"):
        capgraph.optimize(exported, dynamic_shapes=({0: "n"},))


def test_run_takes_names(program: capgraph.TorchProgram) -> None:
    with pytest.raises(InputError, match="run takes its inputs by name, not a Tensor"):
        program.run(torch.zeros(3, 4))  # type: ignore[arg-type]


class Counts(nn.Module):
    def forward(self) -> Any:
        return torch.arange(3) * 2


def test_without_tensors_the_results_are_tensors() -> None:
    program = capgraph.optimize(Counts(), args=(), executor="eager")
    assert isinstance(program, capgraph.TorchProgram)
    found = program()
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [0, 2, 4]
    assert all(isinstance(each, np.ndarray) for each in program.run({}).values())


class Doubles(nn.Module):
    def forward(self, x: Any) -> Any:
        x.mul_(2)
        return x + 1


def test_an_array_is_written_to_as_the_module_does() -> None:
    program = capgraph.optimize(Doubles(), args=(torch.zeros(2),), executor="eager")
    x = np.ones(2, np.float32)
    assert program(x).tolist() == [3.0, 3.0]
    assert x.tolist() == [2.0, 2.0]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, dtype=torch.bfloat16))

    def forward(self, x: Any) -> Any:
        self.seen += x.sum(0).to(torch.bfloat16)
        return self.seen.float() * x


@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
def test_buffers_are_updated_in_place_by_every_executor(executor: str) -> None:
    module = Counter()
    held = module.seen
    options: dict[str, Any] = {"dynamic": {"n": (1, 8)}} if executor == "graph" else {}
    program = capgraph.optimize(
        module, args=(torch.zeros(3, 2),), dynamic_shapes=({0: "n"},), executor=executor, **options
    )
    for _ in range(4):
        found = program(torch.ones(3, 2))
    assert module.seen is held
    assert module.seen.tolist() == [12.0, 12.0]
    assert found.tolist() == [[12.0, 12.0]] * 3
    module.seen.zero_()
    assert program(torch.ones(3, 2)).tolist() == [[3.0, 3.0]] * 3, "what the user writes is seen"


def test_a_program_on_a_gpu_updates_buffers_in_main_memory_without_a_torch_for_cuda(tmp_path: Path) -> None:
    module = Counter()

    def executor(request: Request) -> Any:
        return graphs_on(fake_device(tmp_path), request)

    with (
        meanings(),
        patch.object(torch.cuda, "is_available", lambda: False),
        patch.object(cuda_programs, "graphs", executor),
    ):
        program = capgraph.optimize(module, args=(torch.zeros(3, 2),), executor="graph", device="cuda")
        (name,) = program.inputs.keys() - program.states.keys()
        for _ in range(3):
            program.run({name: np.ones((3, 2), np.float32)})
    assert module.seen.tolist() == [9.0, 9.0]


def test_programs_of_one_module_share_its_buffers() -> None:
    module = Counter()
    programs = [
        capgraph.optimize(module, args=(torch.zeros(rows, 2),), executor=executor)
        for rows, executor in ((1, "graph"), (2, "graph"), (3, "eager"))
    ]
    for program, rows in zip(programs * 2, (1, 2, 3) * 2, strict=True):
        program(torch.ones(rows, 2))
    assert module.seen.tolist() == [12.0, 12.0]


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = x + 1
        self.seen.add_(1)
        return x, x.t(), made, made.view(-1), made, self.weight, self.weight[1:], self.seen, self.seen.view(3, 1)


@pytest.mark.parametrize("executor", ["eager", "ort", "graph"])
def test_results_share_memory_with_nothing(executor: str) -> None:
    module, x = Views(), torch.zeros(2, 3)
    with torch.no_grad():
        results = capgraph.optimize(module, args=(x,), executor=executor)(x)
    memories = [each.untyped_storage().data_ptr() for each in (x, module.weight, module.seen, *results)]
    assert len(set(memories)) == len(memories)
    assert all(each.is_contiguous() for each in results)
