"""`as_strided` reads the memory that a tensor lies in, beyond the tensor itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

torch.set_num_threads(1)


def beyond_a_view(x: Any) -> Any:
    made = x + 1
    view = made[1:].t()
    read = view.as_strided((2, 2), (1, 3), 0) * 2
    made.as_strided((2, 2), (1, 3), 1).fill_(7)
    return made, read, view.as_strided((3,), (1,)) + 1


def overlapping(x: Any) -> Any:
    made = (x * 2).t()
    return made.as_strided((3, 3), (1, 1), 2) + 1, torch.as_strided_scatter(made, x[:2, :2], (2, 2), (1, 4), 1)


def of_complex_numbers(x: Any) -> Any:
    made = torch.complex(x, -x)
    written = made.clone()
    written.as_strided((2, 2), (1, 3), 1).mul_(-1)
    return made[1:].as_strided((2, 2), (3, 1), 1) * 2, written


@pytest.mark.parametrize("function", [beyond_a_view, overlapping, of_complex_numbers])
@pytest.mark.parametrize("x", [torch.arange(12.0).view(4, 3), torch.arange(12.0).view(3, 4).t()])
def test_places_count_from_the_memory_of_the_base(function: Callable[..., Any], x: torch.Tensor) -> None:
    torch._dynamo.reset()
    found = torch.compile(function, backend="capgraph", fullgraph=True)(x)
    torch.testing.assert_close(found, function(x))


def test_an_argument_may_be_a_part_of_more_memory_anywhere() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        relative, absolute = x.as_strided((2, 2), (1, 2)), x.as_strided((2, 2), (1, 9), 1)
        return relative + 1, absolute + 1, x[1:].as_strided((2,), (4,)) * 2

    memory = torch.arange(30.0)
    compiled = torch.compile(function, backend="capgraph", fullgraph=True)
    for start in (4, 6, 14):
        x = memory[start : start + 4]
        torch.testing.assert_close(compiled(x), function(x))


def test_copies_of_elements_that_share_memory_are_written_for_all() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        by_strides = x.as_strided_scatter(-x[:2, :2], (2, 2), (2, 1), 3)
        in_parts = x.select_scatter(-x[0], 0, -1), x.slice_scatter(-x[:, :1], 1, 2, 9)
        return x.diagonal_scatter(-x[0], -1), *in_parts, by_strides

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=False)
    for strides in ((1, 2), (2, 1), (1, 1), (0, 1), (7, 2)):
        x = torch.arange(40.0).as_strided((4, 3), strides, 3)
        torch.testing.assert_close(compiled(x), function(x))


def test_strides_that_sizes_tell() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        made = x + 1
        return made.t().as_strided((x.shape[0], 2), (x.shape[1], 1), 1) * 2

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for rows in (4, 5):
        x = torch.arange(3.0 * rows).view(rows, 3)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_resized_tensor_keeps_what_lies_in_memory() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return torch.ops.aten.resize(x, (2, 3)), torch.ops.aten.resize(
            x, (2, 3, 1, 1), memory_format=torch.channels_last
        )

    x = torch.arange(8.0).view(4, 2).t()
    for one, other in zip(torch.compile(function, backend="capgraph")(x), function(x), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


def written_after_a_break(x: Any) -> Any:
    made = x + 1
    views = made.view(-1), made.t(), made[1:], made.unfold(0, 2, 2), made.diagonal()
    torch._dynamo.graph_break()
    for number, view in enumerate(views):
        view.mul_(number + 2)
    return made, views


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_views_of_symbolic_sizes_are_written_to_after_a_break(executor: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(written_after_a_break, backend="capgraph", dynamic=True, options={"executor": executor})
    for rows in (4, 5):
        x = torch.arange(3.0 * rows).view(rows, 3)
        torch.testing.assert_close(compiled(x), written_after_a_break(x))


OTHERS: dict[str, Callable[[Any], Any]] = {
    "flat": lambda x: (x, x.view(-1)),
    "transposed": lambda x: (x.t(), x[1:]),
    "columns": lambda x: (x[:, 1:], x),
    "shifted": lambda x: (x[1:], x[:-1]),
    "windows": lambda x: (x, x.unfold(0, 2, 2)),
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=list(OTHERS))
def test_arguments_of_symbolic_sizes_share_memory(others: Callable[[Any], Any]) -> None:
    torch._dynamo.reset()

    def function(x: Any, y: Any) -> Any:
        y.mul_(2)
        return x + 1

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for rows in (4, 6):
        found, wanted = (torch.arange(3.0 * rows).view(rows, 3) for _ in range(2))
        torch.testing.assert_close(compiled(*others(found)), function(*others(wanted)))
        torch.testing.assert_close(found, wanted)


def test_parts_of_more_memory_of_symbolic_sizes() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        rows = x.shape[0]
        written = x.as_strided_scatter(-x[:, 0], (rows,), (1,))
        return x.as_strided((rows, 2), (2, 1)) + 1, x.as_strided((rows,), (1,), 1) * 2, written

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for rows in (4, 5):
        x = torch.arange(50.0)[3:].as_strided((rows, 3), (7, 2), 5)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_size_that_is_guarded_as_a_number_leaves_no_gaps() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        part = x.chunk(2, 1)[1]
        return torch.diagonal(part).sum() * 0 + part.clone().as_strided((2, 2), (1, 2), 0) + (part @ part.mT).sum()

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for rows in (2, 3):
        x = torch.arange(6.0 * rows).view(rows, 3, 2)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_copy_that_only_guards_tell_dense_is_read_by_strides() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return x.unflatten(0, (2, -1)).clone().as_strided((2, 2), (2, 1), 1) + 1

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for rows in (4, 6):
        x = torch.arange(3.0 * rows).view(3, rows).mT
        torch.testing.assert_close(compiled(x), function(x))


def _part_of_memory_with_gaps() -> torch.Tensor:
    return torch.arange(30.0)[3:27].view(6, 4).mT


def written_in_part(x: Any) -> Any:
    base = x[1:, ::2].view(torch.int32)
    torch._dynamo.graph_break()
    column, gap = base.as_strided((3,), (1,), 4), base.as_strided((2,), (1,), 7)
    torch._dynamo.graph_break()
    column.mul_(-2)
    return base + 1, column * 3, gap + 1


def complex_written_in_part(x: Any) -> Any:
    base = torch.view_as_real(torch.complex(x, -x))[1:, ::2].flatten(1)[:, 2:6].view(torch.complex64)
    torch._dynamo.graph_break()
    first, gap = base.as_strided((2,), (1,), 1), base.as_strided((1,), (1,), 3)
    torch._dynamo.graph_break()
    first.mul_(2j)
    return base + 1, first * 3, gap + 1


@pytest.mark.parametrize("is_dynamic", [True, False])
@pytest.mark.parametrize("function", [written_in_part, complex_written_in_part])
def test_an_argument_with_gaps_is_written_to_behind_a_break(function: Callable[..., Any], is_dynamic: bool) -> None:
    torch._dynamo.reset()
    found, wanted = _part_of_memory_with_gaps(), _part_of_memory_with_gaps()
    with torch.no_grad():
        results = torch.compile(function, backend="capgraph", dynamic=is_dynamic)(found)
    torch.testing.assert_close(results, function(wanted))
    torch.testing.assert_close(found, wanted)


def test_arguments_share_more_memory_than_tracing_knows() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        columns, first = x[:, ::2].view(torch.int32), x[:, 0].view(torch.int32)
        torch._dynamo.graph_break()
        first.mul_(2)
        return columns + 1, first

    found, wanted = (torch.arange(24.0).view(4, 6) for _ in range(2))
    with torch.no_grad():
        results = torch.compile(function, backend="capgraph", dynamic=False)(found)
    torch.testing.assert_close(results, function(wanted))
    torch.testing.assert_close(found, wanted)
