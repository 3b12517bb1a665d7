"""Small models of transformers with random weights, and inputs for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

VOCABULARY = 64


@dataclass(frozen=True)
class Case:
    """How a model is made of so many layers, inputs of given sizes, and which of these vary (`dynamic_shapes`)."""

    make: Callable[[int], Any]
    inputs: Callable[[int, int], dict[str, Any]]
    dynamic: Mapping[str, Any]
    sizes: tuple[tuple[int, int], tuple[int, int]] = ((2, 7), (3, 11))
    fixed: Mapping[str, Any] = field(default_factory=dict)


def _tokens(batch: int, length: int) -> Any:
    return torch.randint(0, VOCABULARY, (batch, length))


def _text(batch: int, length: int) -> dict[str, Any]:
    """Tokens, of which those behind the first four of the first row are padding."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, 4:] = 0
    return {"input_ids": _tokens(batch, length), "attention_mask": mask}


def _pictures(size: int) -> Callable[[int, int], dict[str, Any]]:
    return lambda batch, _length: {"pixel_values": torch.randn(batch, 3, size, size)}


_TEXT = {"input_ids": {0: "batch", 1: "length"}, "attention_mask": {0: "batch", 1: "length"}}
_PICTURES = {"pixel_values": {0: "batch"}}
_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_DECODER = {**_SMALL, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "num_key_value_heads": 2}
_NO_CACHE = {"use_cache": False}


_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")


def _model(name: str, config: str, **settings: Any) -> Callable[[int], Any]:
    def make(layers: int) -> Any:
        counts = {key: layers for key in settings if key in _LAYERS}
        depths = {"depths": [layers] * 2} if "depths" in settings else {}
        made = getattr(transformers, config)(**{**settings, **counts, **depths})
        return getattr(transformers, name)(made).eval()

    return make


def _t5_inputs(batch: int, length: int) -> dict[str, Any]:
    return {**_text(batch, length), "decoder_input_ids": _tokens(batch, length - 2)}


def _whisper_inputs(batch: int, length: int) -> dict[str, Any]:
    return {"input_features": torch.randn(batch, 16, 40), "decoder_input_ids": _tokens(batch, length)}


CASES = {
    "bert": Case(
        _model("BertModel", "BertConfig", vocab_size=VOCABULARY, max_position_embeddings=64, **_SMALL), _text, _TEXT
    ),
    "distilbert": Case(
        _model(
            "DistilBertModel", "DistilBertConfig", vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=4
        ),
        _text,
        _TEXT,
    ),
    "gpt2": Case(
        _model("GPT2LMHeadModel", "GPT2Config", vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64),
        _text,
        _TEXT,
        fixed=_NO_CACHE,
    ),
    "llama": Case(_model("LlamaForCausalLM", "LlamaConfig", **_DECODER), _text, _TEXT, fixed=_NO_CACHE),
    "mistral": Case(
        _model("MistralForCausalLM", "MistralConfig", sliding_window=4, **_DECODER), _text, _TEXT, fixed=_NO_CACHE
    ),
    "opt": Case(
        _model(
            *("OPTForCausalLM", "OPTConfig"),
            vocab_size=VOCABULARY,
            hidden_size=32,
            ffn_dim=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
        ),
        _text,
        _TEXT,
        fixed=_NO_CACHE,
    ),
    "gemma": Case(_model("GemmaForCausalLM", "GemmaConfig", head_dim=8, **_DECODER), _text, _TEXT, fixed=_NO_CACHE),
    "t5": Case(
        _model(
            *("T5ForConditionalGeneration", "T5Config"),
            vocab_size=VOCABULARY,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
        ),
        _t5_inputs,
        {**_TEXT, "decoder_input_ids": {0: "batch", 1: "written"}},
        fixed=_NO_CACHE,
    ),
    "vit": Case(_model("ViTModel", "ViTConfig", image_size=16, patch_size=4, **_SMALL), _pictures(16), _PICTURES),
    "resnet": Case(
        _model(
            *("ResNetForImageClassification", "ResNetConfig"),
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[2, 2],
            num_labels=5,
        ),
        _pictures(32),
        _PICTURES,
    ),
    "convnext": Case(
        _model(
            *("ConvNextForImageClassification", "ConvNextConfig"),
            num_stages=2,
            hidden_sizes=[8, 16],
            depths=[2, 2],
            num_labels=5,
        ),
        _pictures(32),
        _PICTURES,
    ),
    "whisper": Case(
        _model(
            *("WhisperModel", "WhisperConfig"),
            vocab_size=VOCABULARY,
            num_mel_bins=16,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_source_positions=20,
            max_target_positions=32,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        _whisper_inputs,
        {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "length"}},
        fixed=_NO_CACHE,
    ),
}
