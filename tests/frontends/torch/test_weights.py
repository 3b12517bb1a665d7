"""Weights of PyTorch modules: shared and never copied by an import, known without being read."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from capgraph.frontends.torch.exported import from_torch
from capgraph.frontends.torch.model import TorchModel
from capgraph.frontends.torch.tensors import SharedConstants, array_of, is_brought
from capgraph.ir.constant import Constant
from capgraph.ir.errors import UnsupportedError
from capgraph.optimization import pipeline_for

torch.set_num_threads(1)


def llama(device: str, **sizes: Any) -> Any:
    with torch.device(device):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).to(torch.bfloat16).eval()


def imported(module: Any, device: str) -> TorchModel:
    tokens = torch.zeros(1, 8, dtype=torch.int64, device=device)
    dynamic = {"input_ids": {1: "length"}, "use_cache": None}
    return from_torch(module, (tokens,), {"use_cache": False}, dynamic_shapes=dynamic)


def constants_of(model: TorchModel) -> list[Constant]:
    return [node.attrs["value"] for node in model.graph.nodes if node.op.name == "constant"]


def test_an_import_shares_every_weight() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    module = llama("cpu", vocab_size=128, tie_word_embeddings=True, **sizes)
    parameters = [array_of(each) for each in module.parameters()]
    held = [content.array for content in constants_of(imported(module, "cpu")) if content.nbytes > 1024]
    shared = [array for array in held if any(np.shares_memory(array, each) for each in parameters)]
    assert len(shared) == len(held) == sum(each.nbytes > 1024 for each in parameters), "tied weights are there once"


def test_a_model_of_seven_billion_weights_is_imported_without_any() -> None:
    module = llama("meta", hidden_size=8192, intermediate_size=24576, num_hidden_layers=8, num_attention_heads=64)
    assert sum(each.numel() for each in module.parameters()) > 7e9
    model = imported(module, "meta")
    for device in ("host", "cuda"):
        graph = model.graph.clone()
        pipeline_for(2, device).run(graph, check="structure")
        assert sum(node.op.name == "attention" for node in graph.nodes) == 8
    weights = [content for content in constants_of(model) if content.nbytes > 1024]
    assert sum(content.nbytes for content in weights) == 2 * sum(each.numel() for each in module.parameters())
    assert not any(content.is_at_hand for content in weights)
    with pytest.raises(UnsupportedError, match="has no content"):
        _ = weights[0].array


def test_small_weights_elsewhere_have_an_identity_too() -> None:
    shared = SharedConstants()
    one, other = torch.empty(3, device="meta"), torch.empty(3, device="meta")
    assert shared.of(one) is shared.of(one)
    assert shared.of(one) != shared.of(other)


@pytest.mark.parametrize(
    ("shape", "brought"),
    [((2048,), True), ((256, 1024), True), ((2048, 2048), False), ((512, 512, 3, 3), True), ((64, 4096, 14336), False)],
)
def test_what_is_read_into_main_memory(shape: tuple[int, ...], brought: bool) -> None:
    assert is_brought(torch.empty(shape, dtype=torch.bfloat16, device="meta")) is brought
