"""Models of transformers that decode on a GPU, as they are planned there: one recording, on the device alone."""

from typing import Any

import pytest
import torch
from capgraph.executors.cuda.kernel_ir.launch import HostCall
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.plan import Plan
from capgraph.optimization import pipeline_for
from capgraph.sources import Examples, load_model

BACKEND = Backend(libraries=frozenset({"cublaslt", "cudnn"}))
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}


def planned(example: Any, model: Any, batch: int) -> Plan:
    """One step of decoding with sampling, as it is planned for a GPU."""
    decoder = example.Decoder(model, slots=4, length=64).requires_grad_(False)
    row, zeros = {0: "batch"}, torch.zeros(2)
    arguments = (torch.arange(2), zeros, torch.zeros(2, dtype=torch.int64), zeros, torch.zeros(2, 64))
    graph = load_model(decoder, examples=Examples(arguments, None, ({0: "length"}, *[row] * 4))).graph
    pipeline_for(2, "cuda").run(graph, check="structure")
    planner = cuda_planning(BACKEND, ReplayOptions())
    return planner.of(graph)({"length": 1, "batch": batch}, CaptureMode.FULL)


def launches(plan: Plan) -> int:
    found = [launch for step in BACKEND.lower(plan) if step.candidates for launch in step.candidates[0].launches]
    assert not any(isinstance(launch, HostCall) for launch in found), "a step runs on the host"
    return len(found)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_layer_of_llama_is_eight_launches_and_copies_no_cache(example: Any, batch: int) -> None:
    counts = []
    for layers in (1, 2):
        model = example.llama(vocab_size=128, num_hidden_layers=layers, **SIZES).to(torch.bfloat16)
        plan = planned(example, model, batch)
        assert [segment.is_captured for segment in plan.segments] == [True]
        assert not plan.copies
        counts.append(launches(plan))
    assert counts[1] - counts[0] == 8


def test_gpt2_with_sampling_is_one_recording(example: Any) -> None:
    model = example.gpt2(vocab_size=128, n_embd=64, n_layer=1, n_head=4, n_positions=64).half()
    plan = planned(example, model, 2)
    assert [segment.is_captured for segment in plan.segments] == [True]
    assert not plan.copies
    launches(plan)


def test_a_cache_of_transformers_is_updated_in_place_by_one_recording() -> None:
    """`StaticCache` as its users hand it over, step by step through torch.compile."""
    from capgraph.pytorch.backend import live_programs
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = LlamaForCausalLM(config).eval()

    def tokens_of(step: Any) -> list[int]:
        cache, token, tokens = StaticCache(config=config, max_cache_len=32), torch.tensor([[3]]), []
        for index in range(6):
            position = torch.tensor([index])
            found = step(input_ids=token, past_key_values=cache, cache_position=position, position_ids=position[None])
            token = found.logits[:, -1].argmax(-1, keepdim=True)
            tokens.append(int(token))
        return tokens

    before = live_programs()
    with torch.no_grad():
        expected = tokens_of(model)
        found = tokens_of(torch.compile(model, backend="capgraph", options={"executor": "graph"}))
    assert found == expected
    made = [each for each in live_programs() if not any(each is other for other in before)]
    # The first call makes the cache's tensors: it is a graph of its own, and the next call begins another.
    counters = [each.stats().counters for each in made]
    assert sorted((each.captures, each.replayed_calls) for each in counters) == [(1, 0), (1, 4)]
