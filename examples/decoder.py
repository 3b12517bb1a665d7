"""A decoder with a static cache: what `generate.py` compiles, of a decoder-only model of transformers.

The model must take `position_ids` and a mask of its attention, and keep keys and values, and nothing else, in its
cache. `Decoder` refuses others, and those that compute otherwise over this cache than over their own.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from capgraph import UnsupportedError
from capgraph.pytorch.generation import drawn
from torch.nn.attention import SDPBackend, sdpa_kernel

_TAKEN = ("input_ids", "attention_mask", "position_ids", "past_key_values")
_OTHERS = "generate with transformers itself, or take a decoder-only model such as Llama, Mistral, Gemma, Qwen or GPT-2"
_READY = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""PyTorch's own attention. cuDNN, which it takes first, compiles for a second before it runs a shape."""


class SlotCache:
    """The cache of all layers in the words of transformers: [slots, heads, length, size] for keys and for values.

    Row i of a batch lives in slot i. Each token is written at its own position, so that rows may be of any length.
    """

    def __init__(self, keys: list[Any], values: list[Any], positions: Any) -> None:
        self._keys, self._values = keys, values
        self._positions = positions[:, None, :, None]

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Writes the new keys and values [batch, heads, tokens, size] of a layer and gives those of all positions."""
        for cache, new in ((self._keys[layer], keys), (self._values[layer], values)):
            cache.scatter_(2, self._positions.expand(new.shape), new)
        batch = keys.shape[0]
        return self._keys[layer].narrow(0, 0, batch), self._values[layer].narrow(0, 0, batch)

    def get_seq_length(self, *_: Any) -> int:
        """Not asked for where positions are given."""
        return 0


class Decoder(torch.nn.Module):
    """Writes the next token behind each text, by a causal language model of transformers over a cache of fixed size.

    `text` i64[slots, length] holds the texts and `ends` i64[slots] how many tokens each has: prompts are put there, and
    what is written stays there, so that a step needs nothing of the step before but what lies on the device. Raises
    `UnsupportedError` for a model that cannot be run over such a cache, or not with the same results.
    """

    text: torch.Tensor
    ends: torch.Tensor

    def __init__(self, model: Any, slots: int, length: int) -> None:
        super().__init__()
        _check_arguments(model)
        self.model = model.eval()
        self.config = model.config.get_text_config(decoder=True)
        self.length = length
        self.attention = _attention_kinds(type(model).__name__, self.config)
        contents = _cache_of_one_token(model)
        self.layers = len(contents)
        for layer, (keys, values) in enumerate(contents):
            for name, content in (("keys", keys), ("values", values)):
                _, heads, _, size = content.shape
                cache = content.new_zeros(slots, heads, length, size)
                self.register_buffer(f"{name}_{layer}", cache, persistent=False)
        for name, shape in (("text", (slots, length)), ("ends", (slots,))):
            numbers = torch.zeros(shape, dtype=torch.int64, device=model.device)
            self.register_buffer(name, numbers, persistent=False)
        self._check_results()

    def forward(self, span: Any, temperature: Any, top_k: Any = None, top_p: Any = None, chances: Any = None) -> Any:
        """The next token of each row, i64[batch], which is put behind its text: the likeliest without `top_k`.

        `span` is 0, 1, ... up to the tokens that are read, at most `length`: those of a whole prompt (of the longest;
        what a shorter one reads behind its end is overwritten later), or the latest one. The other arguments are as in
        `capgraph.pytorch.generation.drawn`; `chances` f32[batch, length] has one for each position.
        """
        batch, count = temperature.shape[0], span.shape[0]
        ends = self.ends.narrow(0, 0, batch)
        first = torch.clamp(ends - count, min=0)
        positions = first[:, None] + span[None]
        tokens = torch.gather(self.text.narrow(0, 0, batch), 1, positions)
        logits = self._logits(tokens, positions, ends - 1 - first)
        if top_k is None:
            token = torch.argmax(logits, dim=-1)
        else:
            chance = torch.gather(chances, 1, ends[:, None])[:, 0]
            token = drawn(logits, temperature, top_k, top_p, chance)
        self.text.scatter_(1, ends[:, None], token[:, None])
        self.ends.scatter_(0, torch.arange(batch, device=span.device), ends + 1)
        return token

    def _logits(self, tokens: Any, positions: Any, last: Any = None) -> Any:
        """What the model says after each of the tokens [batch, tokens]: [batch, tokens, vocabulary].

        With `last` i64[batch] after that token of each row only: [batch, vocabulary].
        """
        keys, values = ([getattr(self, f"{name}_{i}") for i in range(self.layers)] for name in ("keys", "values"))
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        with _rows_alone(self.model, rows, last):
            logits = self.model(
                input_ids=tokens,
                attention_mask=self._masks(positions),
                position_ids=positions,
                past_key_values=SlotCache(keys, values, positions),
                use_cache=True,
            ).logits
        return logits if last is None else logits[:, 0]

    def _masks(self, positions: Any) -> Any:
        """The mask of the attention; where layers attend in different ways, one for each of these."""
        masks = {kind: self._mask(kind, positions[:, None, :, None]) for kind in self.attention}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, kind: str, query: Any) -> Any:
        """What tokens at the positions `query` [batch, 1, tokens, 1] see of the cache: [batch, 1, tokens, length]."""
        key = torch.arange(self.length, device=query.device)[None, None, None, :]
        seen = key <= query
        if kind == "sliding_attention":
            seen = seen & (key > query - self.config.sliding_window)
        if kind == "chunked_attention":
            size = self.config.attention_chunk_size
            seen = seen & (key // size == query // size)
        if self.config._attn_implementation != "eager":
            return seen
        hidden = torch.finfo(self.model.dtype).min  # PyTorch's attention takes booleans, transformers' adds the mask
        return torch.zeros(seen.shape, dtype=self.model.dtype, device=seen.device).masked_fill(~seen, hidden)

    @torch.no_grad()
    @sdpa_kernel(_READY)
    def _check_results(self) -> None:
        """Compares with the model over its own cache: all but one of the tokens that have room, then that one."""
        name = type(self.model).__name__
        count = min(self.length, getattr(self.config, "max_position_embeddings", None) or self.length)
        positions = torch.arange(count, device=self.model.device)[None]
        tokens = (positions * 7 + 1) % self.config.vocab_size
        wanted = self.model(input_ids=tokens).logits[:, -2:].float()
        try:
            prefilled = self._logits(tokens[:, :-1], positions[:, :-1])[:, -1:]
            found = torch.cat([prefilled, self._logits(tokens[:, -1:], positions[:, -1:])], 1).float()
        except Exception as error:  # a model's own code may raise anything over a cache that it does not expect
            raise UnsupportedError(f"{name} does not run over a static cache: {error}", remedy=_OTHERS) from error
        difference = ((found - wanted).norm() / wanted.norm()).item()
        if not difference <= (1e-3 if self.model.dtype == torch.float32 else 0.1):
            raise UnsupportedError(
                f"{name} gives other numbers over a static cache, by {difference:.2g} of them: a part of its attention "
                "is neither causal nor of the windows that its config names, or it reads its cache by itself",
                remedy=_OTHERS,
            )


@contextmanager
def _rows_alone(model: Any, rows: Any, last: Any) -> Iterator[None]:
    """Within it the vocabulary is asked for after the tokens `last` of the rows alone: for all it is much work."""
    if last is None:
        yield
        return
    head = model.get_output_embeddings()
    handle = head.register_forward_pre_hook(lambda _head, given: (given[0][rows, last][:, None], *given[1:]))
    try:
        yield
    finally:
        handle.remove()


def _check_arguments(model: Any) -> None:
    """Refuses a model whose `forward` lacks what the cache needs: positions come from them, not from the cache."""
    missing = [name for name in _TAKEN if name not in inspect.signature(model.forward).parameters]
    if missing:
        raise UnsupportedError(
            f"{type(model).__name__} has no static cache here: its forward takes no {' and no '.join(missing)}",
            remedy=_OTHERS,
        )


def _attention_kinds(name: str, config: Any) -> list[str]:
    """The ways in which the layers attend, in the words of transformers' configs. Raises for those without a mask."""
    kinds = sorted(set(getattr(config, "layer_types", None) or [_only_kind(config)]))
    unknown = [kind for kind in kinds if kind not in ("full_attention", "sliding_attention", "chunked_attention")]
    if unknown:
        raise UnsupportedError(f"{name} has layers of {' and '.join(unknown)}: they keep other state", remedy=_OTHERS)
    return kinds


def _only_kind(config: Any) -> str:
    """How all layers of a model attend whose config names no kinds."""
    if getattr(config, "sliding_window", None) is not None:
        return "sliding_attention"
    return "full_attention" if getattr(config, "attention_chunk_size", None) is None else "chunked_attention"


@torch.no_grad()
@sdpa_kernel(_READY)
def _cache_of_one_token(model: Any) -> list[tuple[Any, Any]]:
    """What each layer of a model keeps of one token, keys and values [1, heads, 1, size]: not all configs tell."""
    token = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
    cache = model(input_ids=token, use_cache=True).past_key_values
    contents = [
        (getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in getattr(cache, "layers", ())
    ]
    if not contents or any(keys is None or values is None for keys, values in contents):
        raise UnsupportedError(f"{type(model).__name__} keeps other state than keys and values", remedy=_OTHERS)
    return contents
