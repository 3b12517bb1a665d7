"""One step of decoding with a static cache: modules of the shape of Llama, as they are written by hand in PyTorch.

The caches are buffers that the step writes to in place, and the position is a tensor, so that one recording serves
every position.
"""

from dataclasses import dataclass, replace

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


class CodedLinear(nn.Module):
    """A linear layer whose weight is kept as codes with a scale for each row, or for each block of a row."""

    BLOCK = 128

    def __init__(self, weight: Tensor, kind: str) -> None:
        super().__init__()
        self.kind = kind
        wide = weight.detach().float()
        blocks = wide.view(wide.shape[0], -1, self.BLOCK) if kind == "int4" else wide[:, None]
        scales = blocks.abs().amax(-1, keepdim=True) / {"int8": 127, "fp8": 448, "int4": 7}[kind]
        scales = scales.to(weight.dtype)
        quotient = (blocks / scales.float()).view(wide.shape)
        if kind == "fp8":
            codes = quotient.clamp(-448, 448).to(torch.float8_e4m3fn)
        else:
            codes = quotient.round().clamp(*((-8, 7) if kind == "int4" else (-127, 127))).to(torch.int8)
        if kind == "int4":
            pairs = (codes + 8).to(torch.uint8).view(wide.shape[0], -1, 2)
            codes = pairs[..., 0] | pairs[..., 1] << 4
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales if kind == "int4" else scales[..., 0])

    @property
    def weight(self) -> Tensor:
        """The weight in the dtype of its scales."""
        dtype = self.scales.dtype
        if self.kind != "int4":
            return self.codes.to(dtype) * self.scales
        numbers = torch.stack((self.codes & 15, self.codes >> 4), -1).view(*self.scales.shape[:2], self.BLOCK)
        return ((numbers.to(dtype) - 8) * self.scales).view(self.codes.shape[0], -1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


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
        self.head: CodedLinear | None = None
        rates = 500000 ** (torch.arange(0, shape.head_size, 2) / shape.head_size)
        angles = torch.arange(shape.slots)[:, None] / rates
        self.register_buffer("cosines", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sines", torch.cat((angles, angles), -1).sin())
        self.register_buffer("span", torch.arange(shape.slots))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        return self.logits(tokens, position).argmax(-1)

    def logits(self, tokens: Tensor, position: Tensor) -> Tensor:
        """f32[B, 1, vocabulary]."""
        x = self.embedding(tokens)[:, None]
        cosines, sines = self.cosines[position], self.sines[position]
        mask = (self.span <= position)[None, None, None]
        for layer in self.layers:
            x = layer(x, cosines, sines, position, mask)
        logits = (
            functional.linear(self.norm(x), self.embedding.weight) if self.head is None else self.head(self.norm(x))
        )
        return logits.float()

    @property
    def weight_bytes(self) -> int:
        """What a step reads of its weights."""
        tensors = [
            *self.parameters(),
            *(each for m in self.modules() if isinstance(m, CodedLinear) for each in m.buffers()),
        ]
        unread = self.embedding.weight if self.head is not None else None
        return sum(each.numel() * each.element_size() for each in tensors if each is not unread)

    @property
    def caches(self) -> list[Tensor]:
        """The caches of all layers."""
        return [cache for layer in self.layers for cache in (layer.keys, layer.values)]


def decoder(
    name: str,
    batch: int = 1,
    *,
    seed: int = 0,
    device: str = "cpu",
    weights: str = "bf16",
    slots: int = 0,
    is_drawn: bool = False,
) -> Decoder:
    """A model of `SHAPES` in bf16 with random weights, ready for inference.

    `weights` other than "bf16" are coded, caches have `slots` rows where these are given. With `is_drawn` the gains of
    norms are drawn too, and embeddings are small, so that layers decide on the next token.
    """
    torch.manual_seed(seed)
    shape = SHAPES[name]
    with torch.device(device):
        made = Decoder(replace(shape, slots=slots or shape.slots), batch).requires_grad_(False)
        if is_drawn:
            made.embedding.weight.mul_(0.02)
            for each in made.modules():
                if isinstance(each, RmsNorm):
                    each.weight.add_(0.1 * torch.randn_like(each.weight))
        made = made.bfloat16().eval()
        return made if weights == "bf16" else coded(made, weights)


def coded(model: Decoder, kind: str) -> Decoder:
    """The model with all linear layers in codes ("int8", "fp8" or "int4"), that of the logits too."""
    for layer in model.layers:
        for name, child in list(layer.named_children()):
            if isinstance(child, nn.Linear):
                setattr(layer, name, CodedLinear(child.weight, kind))
    model.head = CodedLinear(model.embedding.weight, kind)
    return model
