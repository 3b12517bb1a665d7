"""One step of decoding with a static cache: modules of the shape of Llama, as they are written by hand in PyTorch.

The caches are buffers that the step writes to in place, and the position is a tensor, so that one recording serves
every position.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; `slots` is the length of its caches."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    head_size: int
    slots: int = 1024


SHAPES = {
    "decode-1b": Shape(128256, 2048, 16, 32, 8, 8192, 64),
    "decode-qwen0.6b": Shape(151936, 1024, 28, 16, 8, 3072, 128),
    "decode-tiny": Shape(32000, 512, 8, 8, 4, 1408, 64),
    "decode-toy": Shape(256, 64, 2, 4, 2, 96, 16, 32),
}
"""By name: Llama 3.2 1B, Qwen3 0.6B, and small ones."""


class RmsNorm(nn.Module):
    """Computed in f32, as models of this family do."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return (wide * scale).to(x.dtype) * self.weight


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding, halves of the head turned against each other."""
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


class Layer(nn.Module):
    """Attention over a cache that the layer owns, and a gated network."""

    def __init__(self, shape: Shape, batch: int) -> None:
        super().__init__()
        self.shape = shape
        width, size = shape.width, shape.head_size
        self.attention_norm, self.network_norm = RmsNorm(width), RmsNorm(width)
        self.q = nn.Linear(width, shape.heads * size, bias=False)
        self.k = nn.Linear(width, shape.kv_heads * size, bias=False)
        self.v = nn.Linear(width, shape.kv_heads * size, bias=False)
        self.o = nn.Linear(shape.heads * size, width, bias=False)
        self.gate = nn.Linear(width, shape.inner, bias=False)
        self.up = nn.Linear(width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, 0.1 * torch.randn(batch, shape.kv_heads, shape.slots, size))

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, position: Tensor, mask: Tensor) -> Tensor:
        y = self.attention_norm(x)
        q = rotated(self._heads(self.q(y)), cosines, sines)
        self.keys.index_copy_(2, position, rotated(self._heads(self.k(y)), cosines, sines))
        self.values.index_copy_(2, position, self._heads(self.v(y)))
        mixed = functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        y = self.network_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], 1, -1, self.shape.head_size).transpose(1, 2)


class Decoder(nn.Module):
    """From the last token of each sequence, i64[B], and the position of all, i64[1], to the next tokens, i64[B, 1]."""

    def __init__(self, shape: Shape, batch: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape, batch) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.width)
        rates = 500000 ** (torch.arange(0, shape.head_size, 2) / shape.head_size)
        angles = torch.arange(shape.slots)[:, None] / rates
        self.register_buffer("cosines", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sines", torch.cat((angles, angles), -1).sin())
        self.register_buffer("span", torch.arange(shape.slots))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(tokens)[:, None]
        cosines, sines = self.cosines[position], self.sines[position]
        mask = (self.span <= position)[None, None, None]
        for layer in self.layers:
            x = layer(x, cosines, sines, position, mask)
        logits = functional.linear(self.norm(x), self.embedding.weight)
        return logits.float().argmax(-1)

    @property
    def caches(self) -> list[Tensor]:
        """The caches of all layers."""
        return [cache for layer in self.layers for cache in (layer.keys, layer.values)]


def decoder(name: str, batch: int = 1, *, seed: int = 0, device: str = "cpu") -> Decoder:
    """A model of `SHAPES` in bf16 with random weights, ready for inference."""
    torch.manual_seed(seed)
    with torch.device(device):
        return Decoder(SHAPES[name], batch).bfloat16().eval().requires_grad_(False)
