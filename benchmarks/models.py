"""The eleven benchmark models: built from their configs with seeded random weights, exported to ONNX, cached on disk.

    python benchmarks/models.py [--models NAME ...] [--fixed | --dynamic]

The exports go to `build/models/NAME-VARIANT-HASH.onnx`, one file per model and variant; the hash covers the code that
made the file and the versions of torch, transformers and onnxscript, so a stale file is rebuilt and never read. Every
export is run in ONNX Runtime and compared with the module before it is kept.

Batch norms are given the statistics of drawn images, so that outputs depend on the input; an export whose output does
not is refused. Weights that PyTorch starts at zero or one (biases, norms) are made random too. With them left alone an
optimizer may drop every bias: onnxsim leaves 192 nodes of BERT and 370 of ViT instead of 216 and 442, which no trained
model shows.
"""

import argparse
import hashlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

Variant = Literal["fixed", "dynamic"]
Arrays = dict[str, np.ndarray]

FOLDER = Path(__file__).resolve().parent.parent / "build" / "models"
VARIANTS: tuple[Variant, ...] = ("fixed", "dynamic")
FIXED_SIZE = (1, 128)  # batch and length burnt into the fixed variant, and measured in both
TRACE_SIZE = (
    2,
    32,
)  # batch and length that the dynamic variant is traced with: 0 and 1 would be specialized by torch.export
OTHER_SIZE = (3, 21)  # batch and length that no export has seen
SEED = 20261120
VOCABULARY = 1000
LONGEST = 512
AUDIO_FRAMES = 1000


@dataclass(frozen=True)
class Model:
    """One benchmark model.

    `build` makes the module (PyTorch's random initialization), `draw` its inputs by name from (generator, batch,
    length). `axes` names the symbolic axes of every input, `repaired_axes` those of the output where the exporter loses
    them. `options` are keyword arguments that every call of the module gets.
    """

    build: "Callable[[], torch.nn.Module]"
    draw: Callable[[np.random.Generator, int, int], Arrays]
    axes: Mapping[str, Mapping[int, str]]
    options: Mapping[str, Any] = field(default_factory=dict)
    repaired_axes: Mapping[int, str] | None = None


def _with_statistics(module: "torch.nn.Module") -> "torch.nn.Module":
    """Batch norms that scale by one what they normalize, and know its spread.

    Fresh weights shrink an image at every layer, and fresh norms leave it so (those of EfficientNet scale by about
    0.02): nothing of it would reach the output of EfficientNet or MobileNet in f32, and outputs would be equal
    whatever became of the layers before.
    """
    import torch

    norms = [each for each in module.modules() if isinstance(each, torch.nn.BatchNorm2d)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        torch.nn.init.ones_(norm.weight)
    with torch.no_grad():
        module.train()(torch.from_numpy(_image(np.random.default_rng(SEED), 4, 0)["pixel_values"]))
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
    return module


def _resnet50() -> "torch.nn.Module":
    from transformers import ResNetConfig, ResNetForImageClassification

    return _with_statistics(ResNetForImageClassification(ResNetConfig(num_labels=1000)))  # by default ResNet-50


def _mobilenet_v2() -> "torch.nn.Module":
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    return _with_statistics(MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000)))


def _efficientnet_b0() -> "torch.nn.Module":
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        num_labels=1000, width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280, dropout_rate=0.2
    )
    return _with_statistics(EfficientNetForImageClassification(config))


def _vit() -> "torch.nn.Module":
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_labels=1000, hidden_size=384, num_attention_heads=6, intermediate_size=1536)  # ViT-S/16
    return ViTForImageClassification(config)


def _swin() -> "torch.nn.Module":
    from transformers import SwinConfig, SwinForImageClassification

    return SwinForImageClassification(SwinConfig(num_labels=1000))  # the default config is Swin-T


def _convnext() -> "torch.nn.Module":
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000))  # the default config is ConvNeXt-T


def _bert() -> "torch.nn.Module":
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        max_position_embeddings=LONGEST,
    )
    return BertModel(config, add_pooling_layer=False)


def _gpt2() -> "torch.nn.Module":
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=384,
        n_head=6,
        n_layer=6,
        n_positions=LONGEST,
        bos_token_id=None,  # the default lies outside this vocabulary
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


def _llama() -> "torch.nn.Module":
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=LONGEST,
    )
    return LlamaForCausalLM(config)


def _whisper_encoder() -> "torch.nn.Module":
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=384,
        encoder_layers=6,
        encoder_attention_heads=6,
        encoder_ffn_dim=1536,
        max_source_positions=AUDIO_FRAMES // 2,  # the second convolution halves the frames
    )
    return WhisperEncoder(config)


def _lstm() -> "torch.nn.Module":
    from torch import nn

    return nn.LSTM(input_size=128, hidden_size=256, num_layers=2, bidirectional=True, batch_first=True)


def _image(generator: np.random.Generator, batch: int, length: int) -> Arrays:
    return {"pixel_values": generator.standard_normal((batch, 3, 224, 224), dtype=np.float32)}


def _tokens(generator: np.random.Generator, batch: int, length: int) -> Arrays:
    return {"input_ids": generator.integers(0, VOCABULARY, (batch, length))}


def _spectrogram(generator: np.random.Generator, batch: int, length: int) -> Arrays:
    return {"input_features": generator.standard_normal((batch, 80, AUDIO_FRAMES), dtype=np.float32)}


def _sequence(generator: np.random.Generator, batch: int, length: int) -> Arrays:
    return {"input": generator.standard_normal((batch, length, 128), dtype=np.float32)}


BATCH = {0: "batch"}
BATCH_LENGTH = {0: "batch", 1: "length"}
IMAGE = {"pixel_values": BATCH}
NO_CACHE = {"use_cache": False}  # with a cache the exporter meets a DynamicCache object among the outputs

MODELS: dict[str, Model] = {
    "resnet50": Model(_resnet50, _image, IMAGE),
    "mobilenet-v2": Model(_mobilenet_v2, _image, IMAGE),
    "efficientnet-b0": Model(_efficientnet_b0, _image, IMAGE),
    "vit": Model(_vit, _image, IMAGE),
    "swin": Model(_swin, _image, IMAGE),
    "convnext": Model(_convnext, _image, IMAGE),
    "bert": Model(_bert, _tokens, {"input_ids": BATCH_LENGTH}),
    "gpt2": Model(_gpt2, _tokens, {"input_ids": BATCH_LENGTH}, NO_CACHE),
    "llama": Model(_llama, _tokens, {"input_ids": BATCH_LENGTH}, NO_CACHE),
    "whisper-encoder": Model(_whisper_encoder, _spectrogram, {"input_features": BATCH}),
    # torch.export unrolls nn.LSTM and so specializes the length; the exporter falls back to a draft export, whose nodes
    # serve every length but whose declared shapes hold the traced one.
    "lstm": Model(_lstm, _sequence, {"input": BATCH_LENGTH}, repaired_axes=BATCH_LENGTH),
}


def inputs(name: str, batch: int = FIXED_SIZE[0], length: int = FIXED_SIZE[1]) -> Arrays:
    """The inputs of model `name`, by graph input name, the same at every call.

    Images are f32 [batch, 3, 224, 224], tokens i64 [batch, length], spectrograms f32 [batch, 80, 1000], sequences f32
    [batch, length, 128]; models without a length ignore it. Raises KeyError for an unknown name.
    """
    return MODELS[name].draw(np.random.default_rng(SEED), batch, length)


def build(name: str) -> "torch.nn.Module":
    """Model `name` in f32 and eval mode with seeded random weights: the inputs in order give one tensor."""
    import torch

    class FirstOutput(torch.nn.Module):
        """Keeps the first tensor of a dataclass or tuple, which would else become several graph outputs."""

        def __init__(self, module: torch.nn.Module, options: Mapping[str, Any]) -> None:
            super().__init__()
            self.module = module
            self.options = dict(options)

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.module(*tensors, **self.options)[0]
            return result

    torch.manual_seed(SEED)
    module = MODELS[name].build().eval().requires_grad_(False)
    _vary_constants(module)
    return FirstOutput(module, MODELS[name].options).eval()


def _vary_constants(module: "torch.nn.Module") -> None:
    """Fresh norms scale by one and biases add zero: an optimizer could drop them, which no trained model allows."""
    import torch

    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if not tensor.is_floating_point() or not bool((tensor == tensor.flatten()[0]).all()):
            continue
        if name.endswith("running_var"):
            tensor.copy_(torch.empty_like(tensor).uniform_(0.5, 1.5))
        else:
            tensor.add_(torch.randn_like(tensor), alpha=0.05)


def path_of(name: str, variant: Variant) -> Path:
    """Where the export of `name` lies once made."""
    model = MODELS[name]
    made_by: list[Callable[..., object]] = [model.build, model.draw, build, _vary_constants, _write, _declare_output]
    if _with_statistics.__name__ in model.build.__code__.co_names:
        made_by.append(_with_statistics)
    settings = [model.axes, model.options, model.repaired_axes, FIXED_SIZE, TRACE_SIZE]
    numbers = [SEED, VOCABULARY, LONGEST, AUDIO_FRAMES]
    versions = [metadata.version(package) for package in ("torch", "transformers", "onnxscript")]
    text = "\n".join([*(inspect.getsource(function) for function in made_by), repr(settings), repr(numbers), *versions])
    return FOLDER / f"{name}-{variant}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.onnx"


def export(name: str, path: Path, dynamic: bool) -> None:
    """Write model `name` to `path` as unoptimized ONNX, atomically, once ONNX Runtime has given the module's numbers.

    With `dynamic` the batch and, where the model has one, the length are symbols of those names; without, they are
    `FIXED_SIZE`. Raises ValueError when the numbers differ, and whatever torch.onnx.export raises.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    try:
        module = write(name, draft, dynamic)
        for size in (FIXED_SIZE, OTHER_SIZE) if dynamic else (FIXED_SIZE,):
            _compare(name, module, draft, size)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write(name: str, path: Path, dynamic: bool) -> "torch.nn.Module":
    """Write model `name` as `export` does, compared with nothing; the module, which has the same weights."""
    module = build(name)
    _write(name, module, path, dynamic)
    repaired_axes = MODELS[name].repaired_axes
    if dynamic and repaired_axes:
        _declare_output(path, repaired_axes)
    return module


def _write(name: str, module: "torch.nn.Module", path: Path, dynamic: bool) -> None:
    import torch

    example = inputs(name, *(TRACE_SIZE if dynamic else FIXED_SIZE))
    symbols = {symbol: torch.export.Dim(symbol) for symbol in ("batch", "length")}
    axes = tuple({axis: symbols[symbol] for axis, symbol in MODELS[name].axes[key].items()} for key in example)
    torch.onnx.export(
        module,
        tuple(torch.from_numpy(array) for array in example.values()),
        path,
        dynamo=True,
        optimize=False,
        verbose=False,
        external_data=False,  # one file a model; none comes near 2 GB
        input_names=list(example),
        output_names=["output"],
        dynamic_shapes=(axes,) if dynamic else None,  # nested once more: forward takes *tensors
    )


def _declare_output(path: Path, axes: Mapping[int, str]) -> None:
    """Give the only output its symbolic axes and drop every other declared shape, which may be as wrong."""
    import onnx

    model = onnx.load(path)
    del model.graph.value_info[:]
    dims = model.graph.output[0].type.tensor_type.shape.dim
    for axis, symbol in axes.items():
        dims[axis].dim_param = symbol
    onnx.save(model, path)


def _compare(name: str, module: "torch.nn.Module", path: Path, size: tuple[int, int]) -> None:
    import onnxruntime
    import torch

    feeds = inputs(name, *size)
    with torch.no_grad():
        expected = module(*(torch.from_numpy(array) for array in feeds.values())).numpy()
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3  # it warns of every node that it cannot fold
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, feeds)
    scale = float(np.abs(expected).max())
    error = float(np.abs(actual - expected).max())
    print(f"{name}: batch and length {size}: largest output {scale:.3g}, difference {error:.2g}", file=sys.stderr)
    if not 1e-3 < scale < 1e4:
        raise ValueError(
            f"{name}: the largest output is {scale:.3g}: these weights tell nothing, change the initialization"
        )
    (turned,) = session.run(None, {key: np.flip(array, -1).copy() for key, array in feeds.items()})
    if not np.abs(turned - actual).max() > 0.01 * scale:
        raise ValueError(f"{name}: the output hardly depends on the input: change the initialization")
    if not error <= 1e-4 * scale:
        raise ValueError(
            f"{name}: ONNX Runtime differs from torch by {error:.3g} (largest output {scale:.3g}) at {size}"
        )


def ensure(name: str, variant: Variant) -> Path:
    """The path of an up-to-date export of `name`, made first in a process of its own if there is none.

    Raises subprocess.CalledProcessError when the export fails; its reason is on stderr.
    """
    path = path_of(name, variant)
    if path.exists():
        return path
    print(f"exporting {path.name}", file=sys.stderr)
    # The exporter warns of missing torchvision operators and of deprecations inside torch, many lines a model.
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "TORCH_LOGS": "-all", "TRANSFORMERS_VERBOSITY": "error"}
    subprocess.run([sys.executable, __file__, "--export", name, variant], check=True, env=quiet)
    for stale in set(FOLDER.glob(f"{name}-{variant}-*.onnx")) - {path}:
        stale.unlink()
    return path


def add_choices(parser: argparse.ArgumentParser) -> None:
    """The options that choose models and variants, shared by the benchmarks."""
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME", help=", ".join(MODELS)
    )
    variants = parser.add_mutually_exclusive_group()
    for variant in VARIANTS:
        variants.add_argument(f"--{variant}", dest="variants", action="store_const", const=(variant,), default=VARIANTS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Export the benchmark models to ONNX.")
    add_choices(parser)
    parser.add_argument("--export", nargs=2, metavar=("NAME", "VARIANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export:
        name, variant = options.export
        export(name, path_of(name, variant), variant == "dynamic")
        return 0
    failed = 0
    for name in options.models:
        for variant in options.variants:
            try:
                print(ensure(name, variant))
            except subprocess.CalledProcessError:
                failed += 1
                print(f"{name} {variant}: export failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
