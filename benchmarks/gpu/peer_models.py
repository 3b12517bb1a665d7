"""Models that are measured beside other runtimes: PyTorch modules in f16 with random weights, and their graphs."""

import copy
import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from capgraph.ir.graph import Graph
from capgraph.sources import load_model
from torch import nn

SEED = 20261120
TOKENS = 128


class Residual(nn.Module):
    """x + GELU(Linear(LayerNorm(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.linear(self.norm(x)))


class FirstResult(nn.Module):
    """The first tensor that a module of transformers gives."""

    def __init__(self, module: nn.Module, **options: Any) -> None:
        super().__init__()
        self.module = module
        self.options = options

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.module(ids, **self.options)[0]
        return found


def _mlp() -> nn.Module:
    return nn.Sequential(*[Residual(256) for _ in range(64)])


def _resnet50() -> nn.Module:
    import torchvision

    return _with_statistics(torchvision.models.resnet50())


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return FirstResult(BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False))


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return FirstResult(GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")), use_cache=False)


def _with_statistics(module: nn.Module) -> nn.Module:
    """Batch norms that know the spread of what they normalize; with fresh ones f16 holds no image of a deep net."""
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        module.train()(torch.randn(4, 3, 224, 224))
    return module


def _image(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, 224, 224)


def _tokens(batch: int) -> torch.Tensor:
    return torch.randint(0, 30000, (batch, TOKENS))


def _row(batch: int) -> torch.Tensor:
    return torch.randn(batch, 256)


BUILDERS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "mlp": (_mlp, _row),
    "resnet50": (_resnet50, _image),
    "bert": (_bert, _tokens),
    "gpt2": (_gpt2, _tokens),
}
"""By name: what makes the module, and what draws an input for a batch size."""


@dataclass
class PeerModel:
    """One model in f16 on the GPU at one batch size, with one input."""

    name: str
    batch: int = 1
    module: nn.Module = field(init=False)
    x: torch.Tensor = field(init=False)
    onnx: bytes = field(init=False)
    _wide: nn.Module | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        torch.manual_seed(SEED)
        build, _ = BUILDERS[self.name]
        self.module = with_varied_constants(build()).eval().requires_grad_(False).half()
        x = self.draw()
        self.onnx = _exported(self.module, x)
        self.module.cuda()
        self.x = x.cuda()

    @property
    def weight_bytes(self) -> int:
        """What a call reads of its parameters, but for the few rows of embeddings."""
        modules = list(self.module.modules())
        multiplied = {id(each.weight) for each in modules if isinstance(each, nn.Linear)}
        looked_up = {id(each.weight) for each in modules if isinstance(each, nn.Embedding)} - multiplied
        return sum(p.numel() * p.element_size() for p in self.module.parameters() if id(p) not in looked_up)

    def draw(self) -> torch.Tensor:
        """A fresh random input, on the host."""
        x = BUILDERS[self.name][1](self.batch)
        return x.half() if x.is_floating_point() else x

    def graph(self) -> Graph:
        """The graph as the exporter gives it."""
        return load_model(self.onnx).graph

    def error(self, given: torch.Tensor, x: torch.Tensor) -> float:
        """The norm of the error over the norm of what the module gives in f64; infinite where one is not finite."""
        if self._wide is None:
            self._wide = copy.deepcopy(self.module).double()
        with torch.no_grad():
            expected = self._wide(x.double() if x.is_floating_point() else x)
        error = float(torch.linalg.vector_norm(given.double() - expected) / torch.linalg.vector_norm(expected))
        return error if error < float("inf") else float("inf")


def with_varied_constants(module: nn.Module) -> nn.Module:
    """Biases and norms start at zero and one, and could be dropped."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.05 * torch.randn_like(parameter))
    return module


def _exported(module: nn.Module, x: torch.Tensor) -> bytes:
    with warnings.catch_warnings(action="ignore"):  # the exporter's own
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False, input_names=["x"], output_names=["y"])
    assert program is not None  # with dynamo there is one
    content = io.BytesIO()
    program.save(content)
    return content.getvalue()
