"""Networks over sound that no package here has: a vocoder, WaveNet, and a Conformer."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from .subject import Subject, Tensors


class Branch(nn.Module):
    """Dilated convolutions with residuals, as HiFi-GAN has them behind each upsampling."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.dilated = nn.ModuleList(
            nn.Conv1d(width, width, size, dilation=d, padding=d * (size // 2)) for d in (1, 3, 5)
        )
        self.plain = nn.ModuleList(nn.Conv1d(width, width, size, padding=size // 2) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for dilated, plain in zip(self.dilated, self.plain, strict=True):
            x = x + plain(F.leaky_relu(dilated(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Vocoder(nn.Module):
    """HiFi-GAN: from a spectrogram to samples, by transposed convolutions."""

    def __init__(self, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding=3)
        self.ups, self.branches = nn.ModuleList(), nn.ModuleList()
        for rate in rates:
            self.ups.append(nn.ConvTranspose1d(width, width // 2, 2 * rate, rate, padding=rate // 2))
            width //= 2
            self.branches.append(nn.ModuleList(Branch(width, size) for size in (3, 7, 11)))
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for up, branches in zip(self.ups, self.branches, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(branch(x) for branch in branches) / len(branches)
        return torch.tanh(self.last(F.leaky_relu(x)))


class WaveNet(nn.Module):
    """Causal convolutions, dilated further in each layer, with gates; each layer has its say in the result."""

    def __init__(self, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** (i % 8)) for i in range(layers))
        self.out = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, classes, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        said = torch.zeros_like(x)
        for gates, out in zip(self.gates, self.out, strict=True):
            value, gate = gates(F.pad(x, (gates.dilation[0], 0))).chunk(2, dim=1)
            kept, skipped = out(torch.tanh(value) * torch.sigmoid(gate)).chunk(2, dim=1)
            x, said = x + kept, said + skipped
        return self.last(said)


class ConformerBlock(nn.Module):
    """Half a network, attention, a depthwise convolution with a batch norm, and the other half."""

    def __init__(self, width: int, heads: int, size: int = 31) -> None:
        super().__init__()
        self.halves = nn.ModuleList(_feed_forward(width) for _ in range(2))
        self.norm, self.heads = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)
        self.conv_norm, self.before = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, size, padding=size // 2, groups=width)
        self.batch_norm, self.behind = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)
        self.last = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, is_padding: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.halves[0](x)
        y = self.norm(x)
        x = x + self.heads(y, y, y, key_padding_mask=is_padding, need_weights=False)[0]
        y = self.conv_norm(x).masked_fill(is_padding[..., None], 0.0).transpose(1, 2)
        y = self.behind(F.silu(self.batch_norm(self.depthwise(F.glu(self.before(y), dim=1)))))
        x = x + y.transpose(1, 2)
        return self.last(x + 0.5 * self.halves[1](x))


def _feed_forward(width: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))


class Conformer(nn.Module):
    """Speech to letters: a spectrogram is halved twice, then blocks, then letters' logarithms for CTC."""

    def __init__(self, width: int, layers: int, heads: int, letters: int = 128) -> None:
        super().__init__()
        self.halve = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2), nn.ReLU()
        )
        self.project = nn.Linear(width * 19, width)
        self.blocks = nn.ModuleList(ConformerBlock(width, heads) for _ in range(layers))
        self.letters = nn.Linear(width, letters)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.halve(x[:, None])
        x = self.project(x.transpose(1, 2).flatten(2))
        places = torch.arange(x.shape[1], device=x.device)
        is_padding = places[None] >= (((lengths - 1) // 2 - 1) // 2)[:, None]
        for block in self.blocks:
            x = block(x, is_padding)
        return F.log_softmax(self.letters(x), dim=-1)


def _spectrogram(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, 80, size),)


def _samples(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, 1, size),)


def _speech(batch: int, size: int) -> Tensors:
    """Spectrograms, of which the first is a third shorter than the others."""
    lengths = torch.full((batch,), size)
    lengths[0] = size - size // 3
    return torch.randn(batch, size, 80), lengths


def subjects() -> Iterator[Subject]:
    """The three networks."""
    rates = {True: (4, 2), False: (8, 8, 2, 2)}
    yield Subject("hifi-gan", lambda small: Vocoder(32 if small else 256, rates[small]), _spectrogram, (64, 48), (6, 9))
    yield Subject(
        "wavenet", lambda small: WaveNet(16 if small else 64, 4 if small else 16, 256), _samples, (8000, 6000), (64, 48)
    )
    yield Subject(
        "conformer",
        lambda small: Conformer(*((32, 2, 4) if small else (256, 8, 4))),
        _speech,
        (800, 600),
        (48, 40),
    )
