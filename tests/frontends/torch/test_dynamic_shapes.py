"""Names for sizes in `dynamic_shapes`."""

from typing import Any

import capgraph
import pytest
import torch
from capgraph.frontends.torch.dynamic_shapes import with_dims
from capgraph.frontends.torch.exported import from_torch
from capgraph.ir.errors import InputError


class Both(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum(0), y["rows"].sum(0)


def _inputs(rows: int, others: int, dynamic_shapes: Any) -> list[str]:
    args = (torch.zeros(rows, 2), {"rows": torch.zeros(others, 3)})
    return [str(value.type) for value in from_torch(Both(), args, dynamic_shapes=dynamic_shapes).graph.inputs]


def test_names_stand_for_dims_of_any_range() -> None:
    dynamic = torch.export.Dim.DYNAMIC
    assert with_dims(({0: "n"}, None, {"a": ("n", 3)})) == ({0: dynamic}, None, {"a": (dynamic, 3)})


def test_names_in_every_structure() -> None:
    assert _inputs(3, 4, ({0: "n"}, {"rows": {0: "m"}})) == ["f32[n, 2]", "f32[m, 3]"]
    assert _inputs(3, 4, {"x": ("n", None), "y": {"rows": None}}) == ["f32[n, 2]", "f32[4, 3]"]
    assert _inputs(3, 3, {"x": {0: "n"}, "y": {"rows": {0: "n"}}}) == ["f32[n, 2]", "f32[n, 3]"]


def test_one_name_for_sizes_that_differ() -> None:
    with pytest.raises(InputError, match=r"(?s)sizes 'n' of which one is 3 .* another 4.*use two names"):
        _inputs(3, 4, ({0: "n"}, {"rows": {0: "n"}}))


def test_what_is_no_name() -> None:
    with pytest.raises(InputError, match="'the batch', which is no name"):
        _inputs(3, 4, ({0: "the batch"}, {"rows": None}))


@pytest.mark.parametrize("axis", [2, -1])
def test_axes_that_there_are_not(axis: int) -> None:
    with pytest.raises(InputError, match=rf"(?s)axis {axis} of a tensor of rank 2.*from 0 to 1"):
        _inputs(3, 4, ({axis: "n"}, {"rows": None}))


class First(torch.nn.Module):
    def forward(self, x: Any, count: int) -> Any:
        return x[:count] * 2


def test_a_number_has_its_name() -> None:
    model = from_torch(First(), (torch.ones(6), 3), dynamic_shapes=({0: "b"}, "n"))
    assert [str(value.type) for value in model.graph.inputs] == ["f32[b]", "bool[n]"]


def test_dims_that_are_made_of_others_have_their_names() -> None:
    half = torch.export.Dim("half", min=3, max=9)
    model = from_torch(
        Both(), (torch.zeros(8, 2), {"rows": torch.zeros(9, 3)}), dynamic_shapes=({0: 2 * half}, {"rows": None})
    )
    assert str(model.graph.inputs[0].type) == "f32[2*half, 2]"
    assert model.ranges == {"half": (3, 9)}


@pytest.mark.parametrize(
    ("dim", "least"),
    [
        (torch.export.Dim("n", min=2, max=9), 2),
        (torch.export.Dim("n", max=9), 0),
        (torch.export.Dim.DYNAMIC(min=2, max=9), 2),
        (torch.export.Dim.DYNAMIC(max=9), 0),
    ],
)
def test_a_minimum_that_is_stated_is_kept(dim: Any, least: int) -> None:
    model = from_torch(
        Both(), (torch.zeros(8, 2), {"rows": torch.zeros(9, 3)}), dynamic_shapes=({0: dim}, {"rows": None})
    )
    assert list(model.ranges.values()) == [(least, 9)]


class _Sum(torch.nn.Module):
    def forward(self, first: Any, *rest: Any) -> Any:
        return first + sum(rest)


@pytest.mark.parametrize(
    "spec", [({0: "n"}, {0: "n"}, {0: "n"}), ({0: "n"}, ({0: "n"}, {0: "n"})), [{0: "n"}, {0: "n"}, {0: "n"}]]
)
def test_shapes_by_position_for_any_number_of_arguments(spec: Any) -> None:
    x = torch.ones(3, 2)
    program = capgraph.optimize(_Sum(), args=(x, x + 1, x + 2), dynamic_shapes=spec, executor="eager")
    assert [str(ty) for ty in program.inputs.values()] == ["f32[n, 2]"] * 3
    more = torch.ones(5, 2)
    torch.testing.assert_close(program(more, more, more), 3 * more)


def test_a_size_that_a_guard_says_is_one_is_squeezed() -> None:
    torch._dynamo.reset()

    def function(x: Any) -> Any:
        return (x * 2).tensor_split(2, -2)[1].squeeze()

    compiled = torch.compile(function, backend="capgraph", dynamic=True)
    for rows in (3, 4):
        x = torch.arange(4.0 * rows).view(rows, 4)
        torch.testing.assert_close(compiled(x), function(x))
