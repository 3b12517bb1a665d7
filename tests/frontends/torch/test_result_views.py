"""Results lie in memory as PyTorch's: the same strides, and one memory where PyTorch has one."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from capgraph.pytorch.backend import backend
from torch.nn import functional

torch.set_num_threads(1)


def parts(x: Any) -> Any:
    made = x + 1
    return made.view(-1), made[1:], made.t(), torch.cat([made, made]).T


def bits(x: Any) -> Any:
    made = x + 1
    return made, made.view(torch.int32), made.view(torch.uint8)[1], x.view(torch.int16)


def complex_parts(x: Any) -> Any:
    made = torch.complex(x, x + 1)
    return made.t(), made.conj()[1:], torch.view_as_real(made), made.imag


def copies(x: Any) -> Any:
    made = x + 1
    return made, made.clone(), made.clone(), x.clone(), x.clone(), torch.ones(3), torch.ones(3)


def written(x: Any) -> Any:
    made = x + 1
    view = made[1:]
    view.mul_(2)
    return view, made.view(-1), made.split(2)


def of_arguments(x: Any) -> Any:
    x.mul_(2)
    return x.view(-1), x[1:].t(), x + 0


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "parts": parts,
    "bits": bits,
    "complex": complex_parts,
    "copies": copies,
    "written": written,
    "arguments": of_arguments,
    "transposed": lambda x: (x + 1).t(),
    "one part": lambda x: (x + 1)[:, :2],
    "expanded": lambda x: (x + 1).unsqueeze(1).expand(4, 2, 3),
    "channels last": lambda x: functional.relu(x.view(1, 2, 2, 3).to(memory_format=torch.channels_last)),
    "conjugate, turned": lambda x: torch.fft.ifft(x, n=3, dim=0),
    "empty": lambda x: (x[:0] + 1, (x[:0] + 1).t()),
}


def leaves_of(given: Any) -> list[torch.Tensor]:
    return [each for each in torch.utils._pytree.tree_leaves(given) if isinstance(each, torch.Tensor)]


def groups_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """For each tensor the first that lies in the same memory."""
    storages = [each.untyped_storage().data_ptr() if each.numel() else -index for index, each in enumerate(tensors)]
    return [storages.index(each) for each in storages]


@pytest.mark.parametrize(("executor", "dynamic"), [("ort", True), ("eager", False)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_lie_as_those_of_pytorch(name: str, executor: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    function = FUNCTIONS[name]
    compiled = torch.compile(
        function, backend="capgraph", dynamic=dynamic, fullgraph=True, options={"executor": executor}
    )
    for _ in range(2):
        x, other = torch.arange(12.0).view(4, 3), torch.arange(12.0).view(4, 3)
        found, wanted = [x, *leaves_of(compiled(x))], [other, *leaves_of(function(other))]
        assert [each.stride() for each in found] == [each.stride() for each in wanted]
        assert groups_of(found) == groups_of(wanted)
        for one, two in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, two)
        for one, two in zip(found, wanted, strict=True):
            if one.dtype is torch.float32 and 0 not in one.stride():
                one.mul_(3)
                two.mul_(3)
        for one, two in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, two)


def test_writes_behind_a_break_of_the_graph_reach_all_views() -> None:
    def function(x: Any) -> Any:
        made = x + 1
        view = made.view(-1)
        torch._dynamo.graph_break()
        view.mul_(0)
        return made

    assert not torch.compile(function, backend="capgraph")(torch.ones(3, 2)).any()


@pytest.mark.parametrize("dynamic", [True, False])
def test_writes_to_a_part_of_a_memory_leave_the_rest(dynamic: bool) -> None:
    """Behind the break two arguments lie in one memory, of which PyTorch traces the part that they show."""
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        view = x.detach()
        same = view.contiguous()
        torch._dynamo.graph_break()
        view.mul_(-1)
        return same + 1

    found, wanted = torch.arange(1, 5), torch.arange(1, 5)
    compiled = torch.compile(function, backend="capgraph", dynamic=dynamic)
    assert compiled(found[:1].view(())).equal(function(wanted[:1].view(())))
    assert found.equal(wanted)


@pytest.mark.filterwarnings("error::capgraph.CapgraphWarning")
def test_a_graph_without_results_is_no_trouble() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        same = x.contiguous()
        torch._dynamo.graph_break()
        return same + 1

    assert torch.compile(function, backend="capgraph")(torch.ones(3)).eq(2).all()


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_results_that_are_one_tensor_stay_one(executor: str) -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        made = x + 1
        same = made.contiguous()
        torch._dynamo.graph_break()
        made.unsqueeze_(0)
        return made, same, made is same

    compiled = torch.compile(function, backend="capgraph", options={"executor": executor})
    made, same, is_same = compiled(torch.ones(3))
    assert is_same
    assert made.shape == same.shape == (1, 3)


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_views_of_a_result_whose_size_only_running_tells() -> None:
    def function(x: Any) -> Any:
        found = torch.masked_select(x, x > 1)
        return found, found.unsqueeze(0), found * 2

    compiled = torch.compile(function, backend="capgraph", fullgraph=True)
    for x in (torch.arange(5.0), torch.arange(5.0) + 1):
        found = compiled(x)
        found[0].add_(1)
        wanted = function(x)
        torch.testing.assert_close(found[1], wanted[1] + 1)
        torch.testing.assert_close(found[2], wanted[2])


def test_views_of_arguments_of_symbolic_sizes_begin_where_these_do() -> None:
    torch._dynamo.reset()

    def function(x: Any, y: Any, z: Any) -> Any:
        half, flat, gaps = x.tensor_split(2, 0)[0], y.view(-1), z.reshape(-1)
        half.mul_(2)
        flat.add_(1)
        gaps[0].sub_(3)
        return half, flat, y.t(), y * 2, gaps, z[:]

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for rows in (4, 6):
        given, wanted = (
            [
                torch.arange(30.0)[3:][: 2 * rows].view(rows, 2),
                torch.arange(40.0)[5:17].view(4, 3),
                torch.arange(50.0)[2:][: 2 * rows : 2],
            ]
            for _ in "ab"
        )
        results, expected = compiled(*given), function(*wanted)
        for one, other in zip(results, expected, strict=True):
            one.add_(1)
            other.add_(1)
        torch.testing.assert_close([*given, *results], [*wanted, *expected])


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_written_arguments_given_back_begin_where_they_do_beside_others_in_one_memory(executor: str) -> None:
    def function(x: Any, y: Any, z: Any, pairs: Any) -> Any:
        x[0].fill_(-3)
        torch.view_as_real(pairs)[0, 0].fill_(-3)
        z.mul_(2)
        return x, x[1:], x.t(), y, z, pairs, torch.view_as_real(pairs), pairs.split(1, -1)[-1]

    def arguments() -> Any:
        y = torch.arange(12.0)
        return torch.arange(14.0)[2:8].view(2, 3), y, y[3:], torch.arange(9).to(torch.complex64)[2:8].view(2, 3).mT

    given, wanted = arguments(), arguments()
    with torch.no_grad():
        compiled = backend(torch.fx.symbolic_trace(function), list(given), options={"executor": executor})
        results, expected = compiled(*given), function(*wanted)
    torch.testing.assert_close([*given, *results], [*wanted, *expected])
