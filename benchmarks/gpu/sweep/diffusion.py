"""A diffusion U-Net that is told the time and a text, and a VAE, as their authors write them."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from .subject import Subject, Tensors


def time_embedding(time: torch.Tensor, width: int) -> torch.Tensor:
    """Sines and cosines of the time at frequencies that fall geometrically."""
    half = width // 2
    rates = torch.exp(-math.log(10000) * torch.arange(half, device=time.device, dtype=torch.float32) / half)
    angles = time.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class ResBlock(nn.Module):
    """Two convolutions behind group norms, the time added between them, and a shortcut around both."""

    def __init__(self, inputs: int, outputs: int, embedded: int = 0) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(16, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(16, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(embedded, outputs) if embedded else None
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None and time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Heads over tokens; keys and values come from the text where there is one."""

    def __init__(self, width: int, heads: int, text: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(text or width, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, text: torch.Tensor | None = None) -> torch.Tensor:
        other = x if text is None else text
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q(x), self.k(other), self.v(other))
        )
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TextBlock(nn.Module):
    """A transformer block over pixels: each looks at the others, at the text, and through a gated network."""

    def __init__(self, width: int, heads: int, text: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(16, width)
        self.before, self.behind = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = Attention(width, heads), Attention(width, heads, text)
        self.gate, self.out = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        y = self.before(self.norm(x)).flatten(2).transpose(1, 2)
        y = y + self.own(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), text)
        value, gate = self.gate(self.norms[2](y)).chunk(2, dim=-1)
        y = y + self.out(value * F.gelu(gate))
        return x + self.behind(y.transpose(1, 2).reshape(x.shape))


class UNet(nn.Module):
    """Down, through the middle and up again; what was seen on the way down is put beside what comes up."""

    def __init__(self, width: int, factors: tuple[int, ...], text: int, heads: int) -> None:
        super().__init__()
        widths, embedded = [width * each for each in factors], 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, embedded), nn.SiLU(), nn.Linear(embedded, embedded))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        before = width
        for index, each in enumerate(widths):
            step = nn.Conv2d(each, each, 3, stride=2, padding=1) if index + 1 < len(widths) else nn.Identity()
            blocks = (ResBlock(before, each, embedded), TextBlock(each, heads, text), step)
            self.down.append(nn.ModuleList(blocks))
            before = each
        self.middle = nn.ModuleList(
            (ResBlock(before, before, embedded), TextBlock(before, heads, text), ResBlock(before, before, embedded))
        )
        for index, each in reversed(list(enumerate(widths))):
            step = nn.Conv2d(each, each, 3, padding=1) if index else nn.Identity()
            self.up.append(nn.ModuleList((ResBlock(before + each, each, embedded), TextBlock(each, heads, text), step)))
            before = each
        self.norm, self.last = nn.GroupNorm(16, width), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        embedded = self.time(time_embedding(time, self.width).to(x.dtype))
        x, seen = self.first(x), []
        for block, attention, step in self.down:
            x = attention(block(x, embedded), text)
            seen.append(x)
            x = step(x)
        x = self.middle[2](self.middle[1](self.middle[0](x, embedded), text), embedded)
        for block, attention, step in self.up:
            x = attention(block(torch.cat([x, seen.pop()], dim=1), embedded), text)
            if not isinstance(step, nn.Identity):
                x = step(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(F.silu(self.norm(x)))


class PixelAttention(nn.Module):
    """One head over all pixels, as in the middle of a VAE."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(16, width), Attention(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(y).transpose(1, 2).reshape(x.shape)


class Decoder(nn.Module):
    """From latents to an image of eight times their side."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        first = widths[0]
        layers: list[nn.Module] = [nn.Conv2d(4, first, 3, padding=1), ResBlock(first, first)]
        layers += [PixelAttention(first), ResBlock(first, first)]
        for before, each in zip((first, *widths), widths, strict=False):
            layers += [ResBlock(before, each), ResBlock(each, each), nn.Upsample(scale_factor=2, mode="nearest")]
            layers.append(nn.Conv2d(each, each, 3, padding=1))
        last = widths[-1]
        layers += [nn.GroupNorm(16, last), nn.SiLU(), nn.Conv2d(last, 3, 3, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Encoder(nn.Module):
    """From an image to the mean and the spread of latents; the mean is given."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, padding=1)]
        for before, each in zip((widths[0], *widths), widths, strict=False):
            layers += [ResBlock(before, each), nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(each, each, 3, stride=2)]
        last = widths[-1]
        layers += [ResBlock(last, last), PixelAttention(last), nn.GroupNorm(16, last), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(last, 8, 3, padding=1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = self.layers(x).chunk(2, dim=1)
        return mean, torch.exp(0.5 * spread.clamp(-30.0, 20.0))


def _unet(small: bool) -> nn.Module:
    return UNet(32, (1, 2), 48, 2) if small else UNet(192, (1, 2, 4), 768, 8)


def _noise(batch: int, size: int) -> Tensors:
    """Noisy latents, the time of each, and texts of 77 tokens."""
    width = 768 if size > 24 else 48
    return torch.randn(batch, 4, size, size), torch.randint(0, 1000, (batch,)), torch.randn(batch, 77, width)


def _latents(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, 4, size, size),)


def _image(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, 3, size, size),)


def subjects() -> Iterator[Subject]:
    """The three networks."""
    yield Subject("unet", _unet, _noise, (64, 48), (8, 12))
    widths = {True: (32, 32, 16), False: (256, 256, 128)}
    yield Subject("vae-decoder", lambda small: Decoder(widths[small]), _latents, (32, 24), (4, 6))
    yield Subject("vae-encoder", lambda small: Encoder(widths[small][::-1]), _image, (256, 192), (32, 48))
