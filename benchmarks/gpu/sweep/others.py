"""Networks of PyTorch's own layers: recurrent ones, transformers, points, tables, recommendations, fields, pixels."""

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from .subject import Subject, Tensors, images


class Recurrent(nn.Module):
    """Words, a recurrent network over them in both directions, and classes of the last of each direction."""

    def __init__(self, kind: type[nn.RNNBase], width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.network = kind(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(2 * width, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.classes(self.network(self.words(ids))[0][:, -1])


class Translator(nn.Module):
    """`nn.Transformer` with positions and a causal mask."""

    def __init__(self, width: int, heads: int, layers: int, words: int = 1000) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(words, width), nn.Linear(width, words)
        self.network = nn.Transformer(width, heads, layers, layers, 4 * width, batch_first=True, norm_first=True)
        self.width = width

    def _placed(self, ids: torch.Tensor) -> torch.Tensor:
        place = torch.arange(ids.shape[1], device=ids.device)[:, None]
        rates = torch.exp(torch.arange(0, self.width, 2, device=ids.device) * (-math.log(10000.0) / self.width))
        table = torch.stack([(place * rates).sin(), (place * rates).cos()], dim=-1).flatten(1)
        return self.words(ids) + table.to(self.words.weight.dtype)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        later = nn.Transformer.generate_square_subsequent_mask(
            target.shape[1], device=target.device, dtype=self.words.weight.dtype
        )
        placed = self._placed(source), self._placed(target)
        return self.out(self.network(*placed, tgt_mask=later, tgt_is_causal=True))


class PointNet(nn.Module):
    """Points alone, then the largest of each feature beside each of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = (3, width, width, 2 * width, 16 * width)
        self.points = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm1d(each) for each in sizes[1:])
        self.turn = nn.Linear(16 * width, 9)
        self.parts = nn.Sequential(nn.Conv1d(18 * width, 4 * width, 1), nn.ReLU(), nn.Conv1d(4 * width, 12, 1))

    def _seen(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for conv, norm in zip(self.points, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
            found.append(x)
        return found

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        turn = self.turn(self._seen(points)[-1].amax(-1)).view(-1, 3, 3)
        turn = turn + torch.eye(3, device=points.device, dtype=points.dtype)
        seen = self._seen(torch.bmm(turn, points))
        whole = seen[-1].amax(-1, keepdim=True).expand(-1, -1, points.shape[-1])
        return F.log_softmax(self.parts(torch.cat([whole, seen[2]], dim=1)), dim=1)


class TableTransformer(nn.Module):
    """FT-Transformer: a token for each column, numbers and categories alike."""

    def __init__(self, width: int, layers: int, numbers: int = 12, categories: int = 8) -> None:
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.randn(numbers, width)) for _ in range(2))
        self.values = nn.Embedding(categories * 50, width)
        self.register_buffer("offsets", torch.arange(categories) * 50)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        columns = numbers[..., None] * self.scale + self.shift
        first = self.first.expand(numbers.shape[0], -1, -1)
        x = torch.cat([first, columns, self.values(categories + self.offsets)], dim=1)
        return self.out(self.layers(x)[:, 0])


class Recommender(nn.Module):
    """DLRM: bags of categories and a few numbers, every pair of them multiplied."""

    def __init__(self, width: int, tables: int = 8, rows: int = 10000) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = self.bottom(numbers)
        found = torch.stack([x, *(bag(each) for bag, each in zip(self.bags, ids.unbind(1), strict=True))], dim=1)
        products = torch.bmm(found, found.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1))


class Field(nn.Module):
    """NeRF: rays, points along them, sines of these, and colors weighted by what light is left."""

    def __init__(self, width: int, samples: int) -> None:
        super().__init__()
        self.samples = samples
        self.layers = nn.ModuleList(nn.Linear(63 if i in (0, 4) else width, width) for i in range(8))
        self.layers[4] = nn.Linear(width + 63, width)
        self.out = nn.Linear(width, 4)

    def forward(self, origins: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        depth = torch.linspace(2.0, 6.0, self.samples, device=origins.device, dtype=origins.dtype)
        points = origins[:, None] + directions[:, None] * depth[:, None]
        angles = (points[..., None] * 2.0 ** torch.arange(10, device=points.device, dtype=points.dtype)).flatten(-2)
        encoded = torch.cat([points, angles.sin(), angles.cos()], dim=-1)
        x = encoded
        for index, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, encoded], dim=-1) if index == 4 else x))
        density, color = self.out(x).split([1, 3], dim=-1)
        opacity = 1 - torch.exp(-F.relu(density[..., 0]) * (4.0 / self.samples))
        left = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity[:, :-1] + 1e-4], -1), dim=-1)
        return ((opacity * left)[..., None] * torch.sigmoid(color)).sum(-2)


class SuperResolution(nn.Module):
    """Residual convolutions at the small size; channels become pixels at the end."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(layers)
        )
        self.up = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = first = self.first(x)
        for block in self.blocks:
            y = y + 0.2 * block(y)
        return self.up(y + first) + F.interpolate(x, scale_factor=2, mode="bicubic")


class Mixer(nn.Module):
    """MLP-Mixer: a network over patches, then one over channels."""

    def __init__(self, width: int, layers: int, side: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.over_patches = nn.ModuleList(_network(side * side, 2 * side * side) for _ in range(layers))
        self.over_channels = nn.ModuleList(_network(width, 4 * width) for _ in range(layers))
        self.classes = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for index, (patches, channels) in enumerate(zip(self.over_patches, self.over_channels, strict=True)):
            x = x + patches(self.norms[2 * index](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * index + 1](x))
        return self.classes(x.mean(1))


def _network(width: int, inner: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


def _ids(batch: int, size: int) -> Tensors:
    return (torch.randint(0, 1000, (batch, size)),)


def _two_texts(batch: int, size: int) -> Tensors:
    return *_ids(batch, size), *_ids(batch, size // 2)


def _points(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, 3, size),)


def _rows(batch: int, size: int) -> Tensors:
    return torch.randn(batch * size, 12), torch.randint(0, 50, (batch * size, 8))


def _visits(batch: int, size: int) -> Tensors:
    return torch.randn(batch * size, 13), torch.randint(0, 10000, (batch * size, 8, 4))


def _rays(batch: int, size: int) -> Tensors:
    return torch.randn(batch * size, 3), F.normalize(torch.randn(batch * size, 3), dim=-1)


def subjects() -> Iterator[Subject]:
    """All of them."""
    width = {True: 32, False: 256}
    yield Subject("lstm", lambda small: Recurrent(nn.LSTM, width[small]), _ids, (64, 48), (6, 9))
    yield Subject("gru", lambda small: Recurrent(nn.GRU, width[small]), _ids, (64, 48), (6, 9))
    shape = {True: (32, 4, 2), False: (512, 8, 6)}
    yield Subject("transformer", lambda small: Translator(*shape[small]), _two_texts, (128, 96), (12, 8))
    yield Subject("pointnet", lambda small: PointNet(8 if small else 64), _points, (2048, 1024), (32, 48))
    yield Subject(
        "table-transformer", lambda small: TableTransformer(width[small], 2 if small else 6), _rows, (256, 100), (5, 3)
    )
    yield Subject("recommender", lambda small: Recommender(8 if small else 64), _visits, (256, 100), (5, 3))
    yield Subject("field", lambda small: Field(width[small], 8 if small else 64), _rays, (1024, 500), (256, 160))
    yield Subject(
        "super-resolution",
        lambda small: SuperResolution(8 if small else 64, 2 if small else 16),
        images,
        (128, 96),
        (12, 9),
    )
    mixer = {True: (32, 2, 2), False: (512, 8, 14)}
    yield Subject("mixer", lambda small: Mixer(*mixer[small]), images, (224, 224), (32, 32))
