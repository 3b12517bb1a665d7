"""The models whose plans are recorded: PyTorch modules with seeded random weights, and their graphs through ONNX."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from capgraph.ir.analysis import input_symbols
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.sources import load_model
from torch import nn

SEED = 20261120
BERT_LENGTH = 128
VOCABULARY = 30522


@dataclass
class Model:
    """A module with one input: token ids below `vocabulary`, or rows of `width` numbers.

    `is_dynamic` leaves the batch size open in its graph; otherwise it is 1.
    """

    name: str
    module: nn.Module
    dtype: str
    is_dynamic: bool = False
    vocabulary: int = 0
    width: int = 0
    graphs: dict[str, Graph] = field(default_factory=dict)

    def draw(self, rng: np.random.Generator, batch: int) -> Array:
        """A fresh random input."""
        if self.vocabulary:
            return rng.integers(0, self.vocabulary, (batch, BERT_LENGTH))
        return rng.standard_normal((batch, self.width)).astype(self.dtype)

    def sizes(self, batch: int) -> Mapping[str, int]:
        """The sizes of the graph's symbols, of which there is one at most, for this batch."""
        return dict.fromkeys(input_symbols(self.graph()), batch)

    def graph(self) -> Graph:
        """The graph as the exporter gives it, imported once."""
        if "raw" not in self.graphs:
            self.graphs["raw"] = _exported(self)
        return self.graphs["raw"]


class Residual(nn.Module):
    """x + GELU(Linear(LayerNorm(x)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.gelu(self.linear(self.norm(x)))


class Encoder(nn.Module):
    """BERT-base as `BertModel` of transformers, without the pooling layer: token ids to hidden states."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(attn_implementation="sdpa", num_hidden_layers=layers)
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bert(input_ids=ids).last_hidden_state


def mlp(dtype: str, width: int = 256, layers: int = 64) -> Model:
    """A residual MLP with an open batch size."""
    torch.manual_seed(SEED)
    module = nn.Sequential(*[Residual(width) for _ in range(layers)])
    return Model(f"mlp-{layers}x{width}", _ready(module, dtype), dtype, is_dynamic=True, width=width)


def bert(dtype: str, layers: int = 12) -> Model:
    """BERT-base on 128 tokens, batch 1."""
    torch.manual_seed(SEED)
    return Model(f"bert-{layers}", _ready(Encoder(layers), dtype), dtype, vocabulary=VOCABULARY)


def _ready(module: nn.Module, dtype: str) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:  # zeros and ones that an optimizer could drop
                parameter.add_(0.05 * torch.randn_like(parameter))
    return module.eval().requires_grad_(False).to(getattr(torch, dtype))


def _exported(model: Model) -> Graph:
    example = torch.from_numpy(model.draw(np.random.default_rng(SEED), 2 if model.is_dynamic else 1))
    shapes: Any = ({0: torch.export.Dim("batch")},) if model.is_dynamic else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            model.module,
            (example,),
            path,
            dynamo=True,
            input_names=["x"],
            output_names=["y"],
            dynamic_shapes=shapes,
            verbose=False,
        )
        graph = load_model(path).graph
        for node in graph.nodes:  # constants are read lazily, and the folder goes away
            if node.op.name == "constant":
                _ = node.attrs["value"].array
    return graph
