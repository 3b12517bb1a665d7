"""One model of the sweep: how it is made with random weights, and its inputs for a batch and a size."""

import copy
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

SEED = 20261122

MEASURED = 8
"""On how many samples norms measure the spread of what they norm. Two may be nearly equal in a channel of one number a
sample, as in LeViT's head: a gain of 225 then makes rounding a result.
"""

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model by name.

    `make(small)` makes the module in f32 on torch's default device; small is for tests, with the same structure and
    fewer or narrower layers where the constructor has a say. `draw(batch, size)` draws the inputs; what is no integer
    is cast to the module's dtype. `sizes` are what `draw` takes: of a whole image's side, of tokens, of samples; the
    usual one and another. `small` are those for small modules. `package` is what has to be installed beside torch.
    `varies` says whether PyTorch traces the model with sizes that vary.
    """

    name: str
    make: Callable[[bool], nn.Module]
    draw: Callable[[int, int], Tensors]
    sizes: tuple[int, int]
    small: tuple[int, int]
    package: str = ""
    varies: bool = True

    @property
    def is_installed(self) -> bool:
        """Whether the model can be made here."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def module(self, *, small: bool, dtype: torch.dtype, device: str) -> nn.Module:
        """The module in evaluation mode, with weights that are the same in every process."""
        torch.manual_seed(SEED)
        with torch.device(device):
            module = self.make(small).requires_grad_(False).to(device)
        size = (self.small if small else self.sizes)[0]
        _vary(module)
        _measure_spread(module, self.inputs(MEASURED, size, torch.float32, device, seed=-1))
        return module.eval().to(dtype)

    def inputs(self, batch: int, size: int, dtype: torch.dtype, device: str, seed: int = 0) -> Tensors:
        """Inputs drawn from `seed`."""
        torch.manual_seed(SEED + 1 + seed)
        drawn = self.draw(batch, size)
        return tuple(each.to(device, dtype) if each.is_floating_point() else each.to(device) for each in drawn)


def _vary(module: nn.Module) -> None:
    """Biases and norms start at zero and one, and could be dropped; so do the matrices of some heads."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point() and (parameter.dim() == 1 or not parameter.any()):
                parameter.add_(0.05 * torch.randn_like(parameter))


def _measure_spread(module: nn.Module, inputs: Tensors) -> None:
    """Batch norms know the spread of what they norm: with fresh ones f16 holds no image of a deep net.

    A copy of the module is called: some keep what they compute in a first call, in f32, for all later ones.
    """
    if not _norms(module):
        return
    called = copy.deepcopy(module).eval()
    for norm in _norms(called):
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        called(*inputs)
    for norm, measured in zip(_norms(module), _norms(called), strict=True):
        norm.load_state_dict(measured.state_dict())


def _norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    return [each for each in norms if each.track_running_stats]


class Called(nn.Module):
    """A module called with its inputs by name, of whose results one attribute is given, or several."""

    def __init__(
        self, module: nn.Module, names: Sequence[str], gives: str | Sequence[str] = "", **options: Any
    ) -> None:
        super().__init__()
        self.module = module
        self.names = tuple(names)
        self.gives = (gives,) if isinstance(gives, str) else tuple(gives)
        self.options = options

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The first result without a name for it, a tuple for several names."""
        found = self.module(**dict(zip(self.names, inputs, strict=True)), **self.options)
        if self.gives == ("",):
            return found[0]
        picked = tuple(found[name] if isinstance(found, Mapping) else getattr(found, name) for name in self.gives)
        return picked[0] if len(picked) == 1 else picked


# ---- inputs that many models take


def images(batch: int, size: int) -> Tensors:
    """RGB images of `size` by `size`."""
    return (torch.randn(batch, 3, size, size),)


def tokens(vocabulary: int) -> Callable[[int, int], Tensors]:
    """Whole texts of `size` tokens."""
    return lambda batch, size: (torch.randint(2, vocabulary, (batch, size)),)


def padded_tokens(vocabulary: int) -> Callable[[int, int], Tensors]:
    """Texts with a mask: the last quarter of the first one is padding."""

    def draw(batch: int, size: int) -> Tensors:
        mask = torch.ones(batch, size, dtype=torch.int64)
        mask[0, size - size // 4 :] = 0
        return torch.randint(2, vocabulary, (batch, size)), mask

    return draw
