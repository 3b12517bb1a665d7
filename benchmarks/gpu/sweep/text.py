"""Models of transformers that read or write text: encoders, decoders, both, experts, and state spaces."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .subject import Called, Subject, Tensors, padded_tokens, tokens

_SMALL_VOCABULARY = 128
_TOKENS = ((128, 96), (12, 9))

_Settings = Mapping[str, Any]


def _make(model: str, config: str, settings: _Settings, small: _Settings) -> Callable[[bool], nn.Module]:
    def make(is_small: bool) -> nn.Module:
        import transformers

        chosen = {**settings, **small} if is_small else settings
        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**chosen))
        return made

    return make


def _small(layers: int = 2, width: int = 64, heads: int = 4, **more: Any) -> dict[str, Any]:
    """Settings that most configurations share."""
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 2 * width,
        "vocab_size": _SMALL_VOCABULARY,
        "pad_token_id": 0,
        **more,
    }


def _encoder(family: str, settings: _Settings, small: _Settings) -> Subject:
    make = _make(f"{family}Model", f"{family}Config", settings, small)
    names = ("input_ids", "attention_mask")
    return Subject(
        f"hf-{family.lower()}",
        lambda is_small: Called(make(is_small), names, "last_hidden_state"),
        padded_tokens(_SMALL_VOCABULARY),
        *_TOKENS,
        "transformers",
    )


def _decoder(family: str, settings: _Settings, small: _Settings, sizes: tuple[int, int] = _TOKENS[0]) -> Subject:
    model = f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    make = _make(model, f"{family}Config", settings, small)
    return Subject(
        f"hf-{family.lower()}",
        lambda is_small: Called(make(is_small), ("input_ids",), "logits", use_cache=False),
        tokens(_SMALL_VOCABULARY),
        sizes,
        _TOKENS[1],
        "transformers",
    )


def _encoders() -> Iterator[Subject]:
    yield _encoder("Bert", {}, _small())
    yield _encoder("Roberta", {}, _small(max_position_embeddings=130))
    yield _encoder("DistilBert", {}, {"n_layers": 2, "dim": 64, "n_heads": 4, "hidden_dim": 128, "vocab_size": 128})
    yield _encoder(
        "Albert",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        _small(embedding_size=32),
    )
    yield _encoder("Electra", {}, _small(embedding_size=32))
    yield _encoder("MPNet", {}, _small(max_position_embeddings=130))
    yield _encoder("XLNet", {"n_layer": 6, "d_model": 768, "n_head": 12}, _of_xlnet())
    yield _encoder("ModernBert", {"num_hidden_layers": 8}, _small(local_attention=8))
    deberta = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": -1}
    yield _encoder("Deberta", {**deberta, "num_hidden_layers": 6}, _small(max_position_embeddings=64))
    version3 = {**deberta, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True}
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 6}
    yield _encoder("DebertaV2", {**version3, **sizes, "vocab_size": 128100}, _small(position_buckets=8))


def _of_xlnet() -> dict[str, Any]:
    return {"n_layer": 2, "d_model": 64, "n_head": 4, "d_inner": 128, "vocab_size": _SMALL_VOCABULARY}


def _decoders() -> Iterator[Subject]:
    yield _decoder("GPT2", {}, {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": _SMALL_VOCABULARY})
    pythia = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 12}
    yield _decoder("GPTNeoX", pythia, _small())
    yield _decoder("GPTJ", {"n_embd": 1024, "n_layer": 6, "n_head": 16}, _of_gptj())
    yield _decoder("OPT", {}, _small(ffn_dim=128, word_embed_proj_dim=64))
    grouped = _small(num_key_value_heads=2, head_dim=16)
    llama = {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8}
    yield _decoder("Llama", {**llama, "num_hidden_layers": 4, "vocab_size": 128256}, grouped)
    mistral = {"num_hidden_layers": 2, "sliding_window": 64}
    yield _decoder("Mistral", mistral, {**grouped, "sliding_window": 4})
    qwen2 = {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2}
    yield _decoder("Qwen2", {**qwen2, "num_hidden_layers": 8}, _small(num_key_value_heads=2))
    qwen3 = {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8}
    yield _decoder("Qwen3", {**qwen3, "num_hidden_layers": 8, "head_dim": 128}, grouped)
    yield _decoder("Gemma2", {"num_hidden_layers": 4}, {**grouped, "sliding_window": 4, "query_pre_attn_scalar": 16})
    gemma3 = {"hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1}
    gemma3 |= {"num_hidden_layers": 6, "head_dim": 256, "sliding_window": 64}
    of_text = _decoder("Gemma3", gemma3, {**grouped, "sliding_window": 4, "query_pre_attn_scalar": 16})
    yield Subject(of_text.name, _gemma3(gemma3, grouped), of_text.draw, *_TOKENS, "transformers")
    yield _decoder("Phi", {"num_hidden_layers": 4}, _small())
    yield _decoder("Phi3", {"num_hidden_layers": 3}, _small(num_key_value_heads=2, eos_token_id=1, bos_token_id=1))
    falcon = {"hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 4}
    yield _decoder("Falcon", falcon, _small())
    bloom = {"hidden_size": 1024, "n_layer": 8, "n_head": 16}
    yield _decoder("Bloom", bloom, {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": _SMALL_VOCABULARY})
    mixtral = {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 3, "num_attention_heads": 16}
    few = {"num_local_experts": 4, "num_experts_per_tok": 2}
    yield _decoder("Mixtral", {**mixtral, "num_key_value_heads": 4}, {**grouped, **few})
    experts = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 768, "num_hidden_layers": 3}
    few = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    shared = {"shared_expert_intermediate_size": 2048, "hidden_size": 1024}
    yield _decoder("Qwen2Moe", {**experts, **shared}, {**_small(num_key_value_heads=2), **few, **_OF_SHARED})
    yield _decoder("Qwen3Moe", {**experts, "hidden_size": 1024}, {**grouped, **few})
    states = {"hidden_size": 768, "state_size": 16, "num_hidden_layers": 6}
    yield _decoder("Mamba", states, {**_small(), "state_size": 8}, sizes=(64, 48))
    states = {"hidden_size": 768, "state_size": 64, "num_hidden_layers": 6, "num_heads": 24, "head_dim": 64}
    few = {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1, "chunk_size": 8}
    yield _decoder("Mamba2", {**states, "n_groups": 1, "chunk_size": 64}, {**_small(), **few})
    yield _decoder("Rwkv", {"num_hidden_layers": 4, "hidden_size": 512}, _of_rwkv(), sizes=(32, 24))


_OF_SHARED = {"shared_expert_intermediate_size": 64}


def _of_gptj() -> dict[str, Any]:
    return {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "vocab_size": _SMALL_VOCABULARY}


def _of_rwkv() -> dict[str, Any]:
    return {"num_hidden_layers": 2, "hidden_size": 64, "attention_hidden_size": 64, "vocab_size": _SMALL_VOCABULARY}


def _gemma3(settings: _Settings, grouped: _Settings) -> Callable[[bool], nn.Module]:
    few = {**grouped, "sliding_window": 4, "query_pre_attn_scalar": 16}
    make = _make("Gemma3ForCausalLM", "Gemma3TextConfig", settings, few)
    return lambda is_small: Called(make(is_small), ("input_ids",), "logits", use_cache=False)


def _both(family: str, name: str, settings: _Settings, small: _Settings) -> Subject:
    """An encoder, and a decoder that looks at what it gives."""
    make = _make(f"{family}ForConditionalGeneration", f"{family}Config", settings, small)
    draw_text = padded_tokens(_SMALL_VOCABULARY)

    def draw(batch: int, size: int) -> Tensors:
        return *draw_text(batch, size), torch.randint(2, _SMALL_VOCABULARY, (batch, max(2, size // 4)))

    names = ("input_ids", "attention_mask", "decoder_input_ids")
    return Subject(
        f"hf-{name}",
        lambda is_small: Called(make(is_small), names, "logits", use_cache=False),
        draw,
        *_TOKENS,
        "transformers",
    )


def _encoders_with_decoders() -> Iterator[Subject]:
    few = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": _SMALL_VOCABULARY}
    yield _both("T5", "t5", {}, few)
    gated = {"feed_forward_proj": "gated-gelu", "num_layers": 6, "num_heads": 8}
    yield _both("LongT5", "longt5", {**gated, "local_radius": 31}, {**few, **gated, "num_layers": 2, "local_radius": 3})
    few = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": _SMALL_VOCABULARY}
    few |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    few |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128)
    base = {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6}
    base |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 12)
    base |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 3072)
    yield _both("Bart", "bart", base, few)
    yield _both("M2M100", "m2m100", {**base, "vocab_size": 32000}, few)


def subjects() -> Iterator[Subject]:
    """All of them."""
    yield from _encoders()
    yield from _decoders()
    yield from _encoders_with_decoders()
