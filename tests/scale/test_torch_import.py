"""How importing a large PyTorch model grows: with its layers, not with its weights."""

from typing import Any

import torch
import transformers
from capgraph.executors.memory import resident_bytes
from capgraph.frontends.torch.exported import from_torch

from tests.counted_work import lines_in


def _llama(layers: int, **settings: Any) -> Any:
    """A decoder of the shape of Llama 7B, without weights."""
    config = transformers.LlamaConfig(
        **{"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "vocab_size": 32000, **settings},
        num_hidden_layers=layers,
    )
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()


def _import(module: Any, device: str) -> Any:
    examples = {"input_ids": torch.zeros(2, 8, dtype=torch.int64, device=device), "use_cache": False}
    dynamic = {"input_ids": {0: "batch", 1: "length"}, "use_cache": None}
    return from_torch(module, (), examples, dynamic_shapes=dynamic)


def test_work_grows_with_the_layers() -> None:
    work, nodes = [], []
    for layers in (1, 2):
        module = _llama(layers)
        work.append(lines_in(lambda module=module: nodes.append(len(_import(module, "meta").graph))) / layers)
    assert nodes[1] - nodes[0] <= 100
    assert work[1] <= work[0]


def test_weights_are_not_copied() -> None:
    module = _llama(1, vocab_size=256).to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.fill_(0.5)
    _import(_llama(1, hidden_size=64, intermediate_size=64, vocab_size=256).to_empty(device="cpu"), "cpu")  # warms up
    weights = {tensor.data_ptr(): tensor.nbytes for tensor in module.parameters()}
    before = resident_bytes()
    model = _import(module, "cpu")
    after = resident_bytes()
    contents = [node.attrs["value"] for node in model.graph.nodes if node.op.name == "constant"]
    addresses = {content.array.__array_interface__["data"][0] for content in contents}
    assert weights.keys() <= addresses
    assert before is not None
    assert after is not None
    assert after - before < sum(weights.values()) / 4
