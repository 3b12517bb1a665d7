"""What counts as right: as PyTorch, within rounding, or not finite where PyTorch is not."""

import math
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from benchmarks.gpu.sweep import check
from benchmarks.gpu.sweep.check import MOST, Checked, DividingBySix, Reference, results_of, together


def reference() -> Reference:
    torch.manual_seed(0)
    with torch.no_grad():
        return Reference(nn.Linear(64, 32).half(), (torch.randn(4, 64).half(),))


def test_what_eager_gives_is_right() -> None:
    found = reference()
    checked = found.check(found.own[0])
    assert checked.is_right
    assert checked.error == checked.own > 0


@pytest.mark.parametrize(("factor", "is_right"), [(0.4, True), (4.0, False)])
def test_errors_are_held_against_those_of_eager(factor: float, is_right: bool) -> None:
    found = reference()
    own = found.check(found.own[0]).own
    off = found.exact[0].double() * (1 + factor * MOST * own)
    checked = found.check(off.half())
    assert checked.is_right is is_right


@pytest.mark.parametrize(
    ("errors", "is_right"), [((9e-3, 3e-3), True), ((2e-2, 9e-3), False), ((math.inf, 1e-3), False)]
)
def test_several_inputs_are_judged_together(errors: tuple[float, float], is_right: bool) -> None:
    checks = [Checked(error, own, error <= MOST * own) for error, own in zip(errors, (2e-3, 8e-3), strict=True)]
    assert together(checks, torch.float16).is_right is is_right


def test_other_shapes_dtypes_and_numbers_of_results_are_wrong() -> None:
    found = reference()
    own = found.own[0]
    for given in (own.float(), own[:2], [own, own], []):
        checked = found.check(given)
        assert not checked.is_right
        assert checked.problem
    assert math.isinf(found.check(torch.full_like(own, math.nan)).error)


def test_integers_are_equal_or_wrong() -> None:
    found = Reference(nn.Identity(), (torch.arange(4),))
    assert found.check(torch.arange(4)).is_right
    assert not found.check(torch.arange(1, 5)).is_right


def test_what_is_not_finite_has_to_be_so_in_the_same_places() -> None:
    x = torch.tensor([1.0, math.inf])
    found = Reference(nn.Identity(), (x,))
    assert found.check(x).is_right
    assert not found.check(x.flip(0)).is_right


def test_encoder_layers_mean_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fast(*_: object) -> None:
        raise AssertionError("PyTorch's fast path on CUDA takes GELU for its tanh form")

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", fast)
    layer = nn.TransformerEncoderLayer(8, 2, 8, activation="gelu", batch_first=True).eval()
    x = torch.randn(1, 3, 8)
    with torch.no_grad(), pytest.raises(AssertionError):
        layer(x)
    found = Reference(layer, (x,))
    assert found.check(found.own[0].detach()).is_right
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize("function", [nn.functional.hardsigmoid, nn.functional.hardswish])
def test_hard_activations_are_divided_by_six(function: Any, is_in_place: bool) -> None:
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    with DividingBySix():
        given = function(x.clone(), inplace=is_in_place)
    torch.testing.assert_close(given, function(x), rtol=1e-15, atol=0)  # which divides, on the CPU


def test_what_is_exact_is_divided_by_six() -> None:
    with patch.dict(check._IN_SIXTHS, {torch.ops.aten.hardswish.default: torch.zeros_like}):
        found = Reference(nn.Hardswish(), (torch.ones(4),))
    assert not found.exact[0].any()
    assert found.own[0].all()


def test_results_are_the_tensors_of_whatever_is_given() -> None:
    x = torch.ones(2)
    assert len(results_of({"a": [x, None], "b": (x, 3)})) == 2
