"""How a program of a PyTorch module may be called, and what is wrong with other calls."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.ir.errors import InputError
from torch import nn

torch.set_num_threads(1)
X = torch.ones(2, 3)


class Masked(nn.Module):
    def forward(self, x: Any, mask: Any = None, scale: Any = 2) -> Any:
        return (x if mask is None else x * mask) * scale


def _program(module: nn.Module, *args: Any, **options: Any) -> capgraph.TorchProgram:
    made = capgraph.optimize(module, args=args, executor="eager", **options)
    assert isinstance(made, capgraph.TorchProgram)
    return made


@pytest.fixture(scope="module")
def masked() -> capgraph.TorchProgram:
    return _program(Masked(), X, None, 2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X, X), r"argument mask is a Tensor of shape \[2, 3\], but .* exported with None"),
        ((X, np.zeros((2, 3))), "argument mask is a ndarray of shape .* exported with None"),
        ((X, None, torch.tensor(3)), r"argument scale is a Tensor of shape \[\], but .* exported with 2"),
        ((X, None, np.int64(2)), "argument scale is a int64 of shape .* exported with 2"),
        ((X, None, 3), "argument scale is 3, .* exported with 2"),
        ((X, None, 2.0), r"argument scale is 2\.0, .* exported with 2"),
        ((X, None, [2]), "argument scale is a list of 1, but was a single value"),
        ((None,), "argument x is None, .* exported with a tensor"),
        ((3,), "argument x is 3, .* exported with a tensor"),
        (([X],), "argument x is a list of 1, but was a single value"),
    ],
)
def test_values_that_were_others_at_the_export(masked: capgraph.TorchProgram, args: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        masked(*args)


@pytest.mark.parametrize(
    ("exported", "same", "other"), [(1, 1, True), (float("nan"), float("nan"), 1.0), (0.0, 0.0, -0.0)]
)
def test_plain_values_are_compared_by_type_and_bits(exported: Any, same: Any, other: Any) -> None:
    program = _program(Masked(), X, None, exported)
    torch.testing.assert_close(program(X, None, same), X * exported, equal_nan=True)
    with pytest.raises(InputError, match="argument scale is"):
        program(X, None, other)


def test_by_name_by_position_and_by_default(masked: capgraph.TorchProgram) -> None:
    for found in (masked(x=X), masked(X, scale=2), masked(scale=2, mask=None, x=X), masked(X)):
        assert torch.equal(found, X * 2)


def test_defaults_that_the_export_left_out() -> None:
    program = _program(Masked(), X)
    assert torch.equal(program(X, None, scale=2), X * 2)
    with pytest.raises(InputError, match=r"argument mask is a Tensor .* exported without it"):
        program(X, mask=X)


def test_calls_that_the_forward_does_not_take(masked: capgraph.TorchProgram) -> None:
    with pytest.raises(
        InputError, match=r"(?s)unexpected keyword argument 'y'.*forward\(x.*, mask.* = None, scale.* = 2\)"
    ):
        masked(X, y=X)


class Structured(nn.Module):
    def forward(self, given: Any, others: Any) -> Any:
        return given["a"] - given["b"]["c"] + others[0]


def test_dicts_in_another_order_and_other_structures() -> None:
    a, c, other = torch.full((2,), 5.0), torch.full((2,), 3.0), torch.ones(2)
    program = _program(Structured(), {"a": a, "b": {"c": c, "d": a}}, [other])
    assert program({"b": {"d": a, "c": c}, "a": a}, [other]).tolist() == [3.0, 3.0]
    with pytest.raises(InputError, match=r"argument given\['b'\] is a dict with 'c', but was a dict with 'c', 'd'"):
        program({"a": a, "b": {"c": c}}, [other])
    with pytest.raises(InputError, match="argument others is a tuple of 1, but was a list of 1"):
        program({"a": a, "b": {"c": c, "d": a}}, (other,))
    with pytest.raises(InputError, match=r"argument given\['b'\]\['c'\] is 1, .* exported with a tensor"):
        program({"a": a, "b": {"c": 1, "d": a}}, [other])


class Any_(nn.Module):
    def forward(self, *given: Any, **named: Any) -> Any:
        return given[0] + named["y"]


def test_a_forward_that_takes_anything() -> None:
    program = capgraph.optimize(Any_(), args=(X,), kwargs={"y": X}, executor="eager")
    assert torch.equal(program(X, y=X), X * 2)
    with pytest.raises(InputError, match=r"called with 2 arguments by .* none, but was exported with 1 .* by name y"):
        program(X, X)


def test_an_exported_program_is_called_by_its_names() -> None:
    program = capgraph.optimize(torch.export.export(Masked(), (X, None, 2)), executor="eager")
    assert torch.equal(program(x=X, scale=2, mask=None), X * 2)


class First(nn.Module):
    def forward(self, x: Any, count: int) -> Any:
        return x[:count] * 2


@pytest.mark.parametrize("count", [-2, 2.0, True, torch.tensor(2), None])
def test_what_is_no_size(count: Any) -> None:
    program = _program(First(), torch.ones(6), 3, dynamic_shapes=({0: "b"}, "n"))
    assert program(torch.ones(6), 4).shape == (4,)
    with pytest.raises(InputError, match=r"argument count is .* exported with a size, an int of 0 or more"):
        program(torch.ones(6), count)
    with pytest.raises(InputError, match=r"sizes with n <= b, but b = 6, n = 9"):
        program(torch.ones(6), 9)
