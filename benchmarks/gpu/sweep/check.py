"""Is a result right: held against the module in f64, beside the error that PyTorch's own result in the dtype has."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

MOST = 1.5
"""How many times eager PyTorch's own error is still right."""

ROUNDING = 1.0
"""Errors of so many units in the last place of the dtype are right beside that: eager may have been lucky."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The worst of a model's results: its error and that of eager PyTorch, and whether all are right.

    Errors are norms over the norm of what is expected. `problem` says what is wrong besides numbers.
    """

    error: float
    own: float
    is_right: bool
    problem: str = ""


def worst(checks: Sequence[Checked]) -> Checked:
    """The one that is furthest from right."""
    return min(checks, key=lambda each: (each.is_right, -each.error))


def together(checks: Sequence[Checked], dtype: torch.dtype) -> Checked:
    """One verdict on results in `dtype` for several inputs, by the roots of the mean squares of errors.

    Deep modules with random weights multiply rounding errors by a hundred, and eager PyTorch itself errs ten times as
    much on one input as on another: there one input tells little.
    """
    if any(each.problem or not math.isfinite(each.error) for each in checks):
        return worst(checks)
    root = math.sqrt(len(checks))
    error, own = math.hypot(*[each.error for each in checks]) / root, math.hypot(*[each.own for each in checks]) / root
    return Checked(error, own, error <= MOST * own + ROUNDING * torch.finfo(dtype).eps)


class Reference:
    """What a module gives in f64, and in its own dtype by eager PyTorch, for one tuple of inputs."""

    def __init__(self, module: nn.Module, inputs: Sequence[torch.Tensor], wide: nn.Module | None = None) -> None:
        wide = wide or in_f64(module)
        with torch.no_grad(), as_written():
            self.own = results_of(module(*(each.clone() for each in inputs)))
            given = [each.double() if each.is_floating_point() else each for each in inputs]
            with DividingBySix():
                self.exact = results_of(wide(*given))

    def check(self, given: Any) -> Checked:
        """Holds a result against both."""
        found = results_of(given)
        if len(found) != len(self.own):
            return Checked(math.inf, 0.0, False, f"{len(found)} results instead of {len(self.own)}")
        checks = [_check(*each) for each in zip(found, self.own, self.exact, strict=True)]
        return worst(checks)


class DividingBySix(TorchDispatchMode):
    """Hard sigmoid and swish, which PyTorch's kernels for CUDA multiply by a sixth in f32, also of f64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _IN_SIXTHS.get(func, func)(*args, **(kwargs or {}))


def _hard_sigmoid(x: torch.Tensor) -> torch.Tensor:
    return (x + 3).clamp(0, 6) / 6


_IN_SIXTHS: Mapping[Any, Callable[..., torch.Tensor]] = {
    torch.ops.aten.hardsigmoid.default: _hard_sigmoid,
    torch.ops.aten.hardsigmoid_.default: lambda x: x.copy_(_hard_sigmoid(x)),
    torch.ops.aten.hardswish.default: lambda x: x * _hard_sigmoid(x),
    torch.ops.aten.hardswish_.default: lambda x: x.mul_(_hard_sigmoid(x)),
}


@contextmanager
def as_written() -> Iterator[None]:
    """Without PyTorch's fast path of encoder layers, which on CUDA takes GELU for its tanh form, in f64 too."""
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


def in_f64(module: nn.Module) -> nn.Module:
    """The module with the same weights, in f64; experts one by one, as PyTorch's grouped matmuls take no f64."""
    wide = copy.deepcopy(module).double()
    for each in wide.modules():
        if hasattr(getattr(each, "config", None), "_experts_implementation"):
            each.config._experts_implementation = "eager"
    return wide


def results_of(given: Any) -> list[torch.Tensor]:
    """The tensors in a result."""
    return [each for each in torch.utils._pytree.tree_leaves(given) if isinstance(each, torch.Tensor)]


def _check(found: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> Checked:
    if found.dtype != own.dtype or found.shape != own.shape:
        words = (f"{each.dtype}{list(each.shape)}".removeprefix("torch.") for each in (found, own))
        return Checked(math.inf, 0.0, False, " instead of ".join(words))
    if not own.is_floating_point():
        differ = float((found != own).double().mean())
        return Checked(differ, 0.0, differ == 0.0, "other integers" if differ else "")
    if not bool(own.isfinite().all()):
        is_alike = bool((found.isfinite() == own.isfinite()).all())
        return Checked(
            0.0, math.inf, is_alike, "eager is not finite" if is_alike else "not finite elsewhere than eager"
        )
    error, usual = _relative(found, exact), _relative(own, exact)
    return Checked(error, usual, error <= MOST * usual + ROUNDING * torch.finfo(own.dtype).eps)


def _relative(given: torch.Tensor, exact: torch.Tensor) -> float:
    """Infinite where a number is not finite."""
    size = torch.linalg.vector_norm(exact.double())
    error = float(torch.linalg.vector_norm(given.double() - exact.double()) / size.clamp(min=1e-30))
    return error if error < math.inf else math.inf
