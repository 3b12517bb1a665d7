"""Models of transformers that see and hear."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .subject import Called, Subject, Tensors, images

_FEW = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
_FIXED = ((224, 224), (32, 32))


def _built(
    model: str,
    config: Callable[[Any, bool], Any],
    names: Sequence[str],
    gives: str | Sequence[str],
    **options: Any,
) -> Callable[[bool], nn.Module]:
    def make(is_small: bool) -> nn.Module:
        import transformers

        return Called(getattr(transformers, model)(config(transformers, is_small)), names, gives, **options)

    return make


def _configured(name: str, settings: Mapping[str, Any], small: Mapping[str, Any]) -> Callable[[Any, bool], Any]:
    return lambda package, is_small: getattr(package, name)(**({**settings, **small} if is_small else settings))


def _seeing(
    family: str,
    small: Mapping[str, Any],
    sizes: tuple[tuple[int, int], tuple[int, int]] = _FIXED,
    suffix: str = "Model",
    gives: str = "last_hidden_state",
    **settings: Any,
) -> Subject:
    make = _built(f"{family}{suffix}", _configured(f"{family}Config", settings, small), ("pixel_values",), gives)
    return Subject(f"hf-{family.lower()}", make, images, *sizes, "transformers")


def _images() -> Iterator[Subject]:
    few = {**_FEW, "image_size": 32, "patch_size": 8}
    yield _seeing("ViT", few)
    yield _seeing("Dinov2", few, ((224, 224), (32, 32)), num_hidden_layers=6, image_size=224, patch_size=14)
    yield _seeing("Beit", few, num_hidden_layers=6, use_relative_position_bias=True)
    yield _seeing("Yolos", {**few, "image_size": (32, 32)}, num_hidden_layers=6, image_size=(224, 224))
    depths = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 40, 64], "num_attention_heads": [1, 2, 5, 8]}
    yield _seeing("Segformer", depths, ((512, 256), (64, 96)), "ForSemanticSegmentation", "logits")
    narrow = {"neck_hidden_sizes": [8, 12, 16, 20, 24, 28, 32], "hidden_sizes": [24, 32, 40], "num_attention_heads": 2}
    yield _seeing("MobileViT", narrow, ((256, 224), (64, 96)))
    yield _seeing("SiglipVision", few, num_hidden_layers=6)
    yield _seeing("VitDet", {**_FEW, "image_size": 64}, ((224, 224), (64, 64)), num_hidden_layers=6)
    yield Subject("hf-detr", _detr(), images, (320, 256), (64, 96), "transformers")
    yield Subject("hf-dpt", _dpt(), images, (224, 224), (32, 32), "transformers")
    yield Subject("hf-clip", _clip("CLIP"), _pairs, (224, 224), (32, 32), "transformers")
    yield Subject("hf-siglip", _clip("Siglip"), _pairs, (224, 224), (32, 32), "transformers")


def _detr() -> Callable[[bool], nn.Module]:
    def config(package: Any, is_small: bool) -> Any:
        backbone = {"depths": [2, 2], "hidden_sizes": [32, 64], "embedding_size": 16} if is_small else {}
        stages = [f"stage{len(backbone.get('depths', [1] * 4))}"]
        resnet = package.ResNetConfig(out_features=stages, **backbone)
        few = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
        few |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_queries": 10}
        return package.DetrConfig(
            use_timm_backbone=False,
            use_pretrained_backbone=False,
            backbone=None,
            backbone_config=resnet,
            **(few if is_small else {}),
        )

    return _built("DetrForObjectDetection", config, ("pixel_values",), ("logits", "pred_boxes"))


def _dpt() -> Callable[[bool], nn.Module]:
    few = {**_FEW, "image_size": 32, "patch_size": 8, "backbone_out_indices": [0, 1, 2, 3], "num_hidden_layers": 4}
    few |= {"neck_hidden_sizes": [8, 16, 24, 32], "fusion_hidden_size": 16}
    settings = {"image_size": 224, "num_hidden_layers": 12, "is_hybrid": False}
    config = _configured("DPTConfig", settings, few)
    return _built("DPTForDepthEstimation", config, ("pixel_values",), "predicted_depth")


def _clip(family: str) -> Callable[[bool], nn.Module]:
    def config(package: Any, is_small: bool) -> Any:
        few = {"vision_config": {**_FEW, "image_size": 32, "patch_size": 8}, "text_config": {**_FEW, "vocab_size": 128}}
        few["text_config"] |= {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
        settings = {key: {"num_hidden_layers": 6} for key in ("vision_config", "text_config")}
        return getattr(package, f"{family}Config")(**(few if is_small else settings))

    return _built(f"{family}Model", config, ("input_ids", "pixel_values"), "logits_per_image")


def _pairs(batch: int, size: int) -> Tensors:
    """Images, and four texts of 16 tokens that they are compared with."""
    return torch.randint(2, 128, (4, 16)), *images(batch, size)


# ---- sound


def _samples(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, size),)


def _sound() -> Iterator[Subject]:
    few = {**_FEW, "conv_dim": [32] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    for family in ("Wav2Vec2", "Hubert"):
        config = _configured(f"{family}Config", {}, few)
        make = _built(f"{family}Model", config, ("input_values",), "last_hidden_state")
        yield Subject(f"hf-{family.lower()}", make, _samples, (16000, 12000), (3200, 4000), "transformers")
    yield Subject("hf-whisper", _whisper(), _spoken, (3000, 3000), (64, 64), "transformers")
    few = {**_FEW, "max_length": 64, "num_mel_bins": 32}
    config = _configured("ASTConfig", {"num_hidden_layers": 6}, few)
    make = _built("ASTModel", config, ("input_values",), "last_hidden_state")
    yield Subject("hf-ast", make, _spectrogram, (1024, 1024), (64, 64), "transformers")


def _whisper() -> Callable[[bool], nn.Module]:
    few = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 128, "max_source_positions": 32}
    few |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    few |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128)
    few |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1}
    base = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6}
    base |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 8)
    base |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 2048)
    config = _configured("WhisperConfig", base, few)
    names = ("input_features", "decoder_input_ids")
    return _built("WhisperForConditionalGeneration", config, names, "logits", use_cache=False)


def _spoken(batch: int, size: int) -> Tensors:
    return torch.randn(batch, 80, size), torch.randint(2, 128, (batch, 16))


def _spectrogram(batch: int, size: int) -> Tensors:
    return (torch.randn(batch, size, 128 if size > 100 else 32),)


def subjects() -> Iterator[Subject]:
    """All of them."""
    yield from _images()
    yield from _sound()
