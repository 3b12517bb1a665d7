"""Networks over graphs: messages along edges are scattered to nodes, by PyTorch itself and by PyTorch Geometric."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn

from .subject import Subject, Tensors

FEATURES = 64


class Isomorphism(nn.Module):
    """GIN: each node adds what its neighbors are, by `index_add`, and thinks about it."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        self.last = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = F.relu(layer(x + torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])))
        return self.last(x)


class LargestMessages(nn.Module):
    """Each node takes of every feature the largest that a neighbor sends, and their mean, by `scatter_reduce`."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, width)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(layers))
        self.last = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = F.relu(message(torch.cat([x[edges[0]], x[edges[1]]], dim=-1)))
            index = edges[1][:, None].expand_as(sent)
            nothing = torch.zeros_like(x)
            largest = nothing.scatter_reduce(0, index, sent, "amax", include_self=False)
            mean = nothing.scatter_reduce(0, index, sent, "mean", include_self=False)
            x = x + F.relu(update(torch.cat([x, largest, mean], dim=-1)))
        return self.last(x)


class Stacked(nn.Module):
    """Layers of PyTorch Geometric one after another."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = F.elu(layer(x, edges))
        return self.layers[-1](x, edges)


def _stacked(layer: str, heads: int = 1) -> Callable[[bool], nn.Module]:
    def make(small: bool) -> nn.Module:
        from torch_geometric import nn as layers

        width, kind = (16 if small else 128), getattr(layers, layer)
        more = {"heads": heads} if heads > 1 else {}
        inner = [kind(FEATURES, width, **more), kind(width * heads, width, **more)]
        return Stacked([*inner, kind(width * heads, 10)])

    return make


def _graph(batch: int, size: int) -> Tensors:
    """`batch` graphs as one: of each `size` nodes, and eight times as many edges between its own nodes."""
    start = torch.arange(batch).repeat_interleave(8 * size) * size
    edges = torch.randint(0, size, (2, batch * 8 * size)) + start
    return torch.randn(batch * size, FEATURES), edges


def subjects() -> Iterator[Subject]:
    """Two with PyTorch's own scattering, four of PyTorch Geometric."""
    sizes, small = (2708, 2000), (20, 12)
    yield Subject("graph-gin", lambda is_small: Isomorphism(16 if is_small else 128, 3), _graph, sizes, small)
    yield Subject("graph-messages", lambda is_small: LargestMessages(16 if is_small else 128, 3), _graph, sizes, small)
    package = "torch_geometric"
    yield Subject("graph-gcn", _stacked("GCNConv"), _graph, sizes, small, package)
    yield Subject("graph-gat", _stacked("GATConv", heads=4), _graph, sizes, small, package)
    yield Subject("graph-sage", _stacked("SAGEConv"), _graph, sizes, small, package)
    yield Subject("graph-transformer", _stacked("TransformerConv", heads=2), _graph, sizes, small, package)
