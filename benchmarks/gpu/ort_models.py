"""Three models in f16 at batch 1 for ONNX Runtime on a GPU, and sessions in graph mode over fixed memory."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch

CALLS = 60
MODELS = ("mlp", "bert", "resnet50")


def make(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model in f16 with random weights, and its inputs at batch 1."""
    nn = torch.nn
    if name == "mlp":

        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.n, self.l = nn.LayerNorm(256), nn.Linear(256, 256)

            def forward(self, x: Any) -> Any:
                return x + nn.functional.gelu(self.l(self.n(x)))

        return nn.Sequential(*[Block() for _ in range(64)]).half(), (torch.randn(1, 256).half(),)
    if name == "resnet50":
        import torchvision

        return torchvision.models.resnet50().eval().half(), (torch.randn(1, 3, 224, 224).half(),)
    from transformers import BertConfig, BertModel

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.m = BertModel(BertConfig(attn_implementation="sdpa"), add_pooling_layer=False)

        def forward(self, ids: Any) -> Any:
            return self.m(input_ids=ids).last_hidden_state

    return Bert().eval().half(), (torch.randint(0, 30000, (1, 128)),)


def exported(name: str, folder: Path) -> tuple[Path, tuple[Any, ...], np.ndarray]:
    """The ONNX file of a model, its inputs, and what torch gives for them."""
    torch.manual_seed(0)
    module, inputs = make(name)
    module = module.cuda().eval().requires_grad_(False)
    inputs = tuple(each.cuda() for each in inputs)
    path = folder / f"{name}.onnx"
    names = [f"i{index}" for index in range(len(inputs))]
    torch.onnx.export(module, inputs, str(path), dynamo=True, input_names=names, output_names=["o"], verbose=False)
    with torch.no_grad():
        expected = module(*inputs).float().cpu().numpy()
    return path, inputs, expected


class Session:
    """A session in graph mode over fixed memory; `variant` has its options."""

    def __init__(
        self, model: Path | bytes, inputs: tuple[Any, ...], expected: np.ndarray, variant: dict[str, Any]
    ) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        if variant.get("basic"):
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        for key, value in variant.get("entries", {}).items():
            options.add_session_config_entry(key, value)
        provider = {"enable_cuda_graph": "1", **variant.get("provider", {})}
        source = str(model) if isinstance(model, Path) else model
        start = time.perf_counter()
        self.session = ort.InferenceSession(source, options, providers=[("CUDAExecutionProvider", provider)])
        assert "CUDAExecutionProvider" in self.session.get_providers(), self.session.get_providers()
        self.binding = self.session.io_binding()
        self.held: list[Any] = []
        for index, each in enumerate(inputs):
            self.held.append(ort.OrtValue.ortvalue_from_numpy(each.cpu().numpy(), "cuda", 0))
            self.binding.bind_ortvalue_input(f"i{index}", self.held[-1])
        self.out = ort.OrtValue.ortvalue_from_shape_and_type(list(expected.shape), np.float16, "cuda", 0)
        self.binding.bind_ortvalue_output("o", self.out)
        self.options = ort.RunOptions()
        self.options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        for _ in range(3):
            self.call()
        torch.cuda.synchronize()
        self.setup = time.perf_counter() - start
        found = self.out.numpy().astype(np.float32)
        self.error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

    def call(self) -> None:
        self.session.run_with_iobinding(self.binding, self.options)

    def time(self) -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            self.call()
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - start) / CALLS
