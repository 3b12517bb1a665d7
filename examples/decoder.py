"""A decoder with a static cache: what `generate.py` compiles. Works for any decoder-only model of transformers."""

from typing import Any

import torch


class SlotCache:
    """The cache of all layers in the words of transformers: [slots, heads, length, size] for keys and for values.

    Row i of a batch lives in slot i. Each token is written at its own position, so that rows may be of any length.
    """

    def __init__(self, keys: list[Any], values: list[Any], positions: Any) -> None:
        self._keys, self._values = keys, values
        self._positions = positions[:, None, :, None]

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Writes the new keys and values [batch, heads, tokens, size] of a layer and gives those of all positions."""
        places = self._positions.expand(keys.shape)
        for cache, new in ((self._keys[layer], keys), (self._values[layer], values)):
            cache.scatter_(2, places, new)
        batch = keys.shape[0]
        return self._keys[layer].narrow(0, 0, batch), self._values[layer].narrow(0, 0, batch)

    def get_seq_length(self, *_: Any) -> int:
        """Not asked for where positions are given."""
        return 0


class Decoder(torch.nn.Module):
    """Tokens in, next tokens out, by a causal language model of transformers over a cache of fixed size.

    `tokens` and `positions` are i64[batch, tokens]; `last` i64[batch] says which token of each row is its last one.
    Sampling is in the graph: `temperature` f32[batch] (0 is greedy), `top_k` i64[batch] (0 is no limit), `top_p`
    f32[batch] (1 is no limit), and one number `chance` f32[batch] in [0, 1) a row, which decides.
    """

    def __init__(self, model: Any, slots: int, length: int) -> None:
        super().__init__()
        self.model = model.eval()
        config = model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.layers, self.slots, self.length = config.num_hidden_layers, slots, length
        for layer in range(self.layers):
            for name in ("keys", "values"):
                content = torch.zeros(slots, heads, length, size, dtype=model.dtype, device=model.device)
                self.register_buffer(f"{name}_{layer}", content, persistent=False)

    def forward(
        self, tokens: Any, positions: Any, last: Any, temperature: Any, top_k: Any, top_p: Any, chance: Any
    ) -> Any:
        """The next token of each row, i64[batch]."""
        keys, values = ([getattr(self, f"{name}_{i}") for i in range(self.layers)] for name in ("keys", "values"))
        seen = torch.arange(self.length, device=tokens.device)
        mask = seen[None, None, None, :] <= positions[:, None, :, None]
        result = self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=SlotCache(keys, values, positions),
            use_cache=True,
        )
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        return sampled(result.logits[rows, last].float(), temperature, top_k, top_p, chance)


def sampled(logits: Any, temperature: Any, top_k: Any, top_p: Any, chance: Any) -> Any:
    """One token a row of logits f32[batch, vocabulary], drawn by the inverse of the cumulated probabilities."""
    heat = torch.where(temperature > 0, temperature, 1.0)
    ordered, places = torch.sort(logits / heat[:, None], dim=-1, descending=True)
    weights = torch.softmax(ordered, dim=-1)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    within = (rank[None] < top_k[:, None]) | (top_k[:, None] == 0)
    before = torch.cumsum(weights, dim=-1) - weights
    kept = torch.where(within & (before < top_p[:, None]), weights, 0.0)
    reached = torch.cumsum(kept, dim=-1)
    wanted = chance * reached[:, -1]
    drawn = torch.clamp((reached <= wanted[:, None]).sum(-1), max=logits.shape[-1] - 1)
    return torch.where(temperature > 0, torch.gather(places, 1, drawn[:, None])[:, 0], torch.argmax(logits, dim=-1))
