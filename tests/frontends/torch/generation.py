"""transformers' own `generate` through this backend: a small Llama, and texts over a static cache."""

from typing import Any

import torch
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM

PROMPT = (3, 1, 4, 1, 5)


SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
"""Of a config: two layers; no token ends a text."""


def small_llama() -> Any:
    """A model of these sizes with random weights."""
    torch.manual_seed(0)
    return with_variety(LlamaForCausalLM(LlamaConfig(**SMALL)))


def with_variety(model: Any) -> Any:
    """The model for inference with larger weights, so that a token is not the one before."""
    for weight in model.eval().requires_grad_(False).parameters():
        weight.mul_(20 if weight.dim() > 1 else 1)
    return model


def text(model: Any, count: int, **options: Any) -> list[int]:
    """`count` tokens that `generate` writes greedily behind the prompt."""
    tokens = torch.tensor([PROMPT])
    found = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, do_sample=False, **options
    )
    return found[0, len(PROMPT) :].tolist()  # type: ignore[no-any-return]


def compiled_text(model: Any, count: int, backend: Any = "capgraph", **options: Any) -> list[int]:
    """The same, by the one line that makes transformers compile with this backend."""
    config = CompileConfig(backend=backend, mode=None, options=options)  # type: ignore[arg-type]
    config._compile_all_devices = True  # type: ignore[assignment]  # else only on a GPU
    return text(model, count, cache_implementation="static", compile_config=config)
