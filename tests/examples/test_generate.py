"""The generation example: prefill and decode over one cache, equal to transformers' own generate."""

import importlib
from typing import Any

import pytest
import torch
from capgraph.ir.plan import Place, StepKind
from capgraph.ir.target import HOST
from capgraph.passes.planning.planner import make_plan

SMALL = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def llama(example: Any) -> tuple[Any, Any]:
    """A small Llama, and a generator of up to 256 positions made of it."""
    torch.manual_seed(0)
    model = example.llama(vocab_size=64, **SMALL, num_key_value_heads=2)
    return model, example.Generator(model, length=256, batches=(1, 2), lengths=(8, 16))


def test_200_tokens_equal_those_of_transformers(example: Any, llama: tuple[Any, Any]) -> None:
    model, generator = llama
    prompts = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8]]
    assert generator(prompts, 200) == [example.reference(model, prompt, 200) for prompt in prompts]
    counters = generator.decode.stats().counters
    assert counters.replayed_calls == counters.calls - 1, "the first call runs eagerly, all others are replayed"
    assert counters.captures == 1, "one recording serves every position"
    assert counters.replays == counters.replayed_calls, "the whole graph is one recording"


def test_no_cache_is_copied(llama: tuple[Any, Any]) -> None:
    _, generator = llama
    for program, sizes in ((generator.decode, {"batch": 2}), (generator.prefill, {"batch": 2, "length": 8})):
        plan = make_plan(program.graph, sizes, HOST)
        states = {value.name: value for value in program.graph.inputs[:4]}
        assert set(states) == {"keys_0", "keys_1", "values_0", "values_1"}
        assert not plan.copies
        planned = {value.name: value for value in plan.graph.inputs}
        caches = {plan.buffer_of(planned[name]).id for name in states}
        assert all(plan.buffers[index].place is Place.STATE for index in caches)
        writers = [
            step.node.op.name
            for step in plan.steps
            if step.kind is StepKind.COMPUTE
            and any(value in plan.views and plan.views[value].buffer in caches for value in step.node.outputs)
        ]
        assert len(writers) == 4, f"each cache is written once, in place: {writers}"
        largest = max(
            plan.buffer_of(value).nbytes
            for step in plan.steps
            for value in step.node.outputs
            if plan.buffer_of(value).place is Place.ARENA
        )
        assert largest < plan.buffers[min(caches)].nbytes, "nothing in the arena is as large as a cache"


def test_a_prompt_does_not_depend_on_what_is_beside_it(llama: tuple[Any, Any]) -> None:
    _, generator = llama
    assert generator([[5, 6, 7]], 12)[0] == generator([[9] * 11, [5, 6, 7]], 12)[1]


def test_gpt2(example: Any) -> None:
    torch.manual_seed(0)
    model = example.gpt2(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    generator = example.Generator(model, length=64, batches=(1,), lengths=(8,))
    assert generator([[1, 2, 3]], 40)[0] == example.reference(model, [1, 2, 3], 40)


def test_sampling_draws_from_what_top_k_and_top_p_leave(example: Any) -> None:
    sampled = importlib.import_module("decoder").sampled
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]]))

    def drawn(temperature: float, top_k: int, top_p: float) -> list[int]:
        chances = torch.linspace(0, 0.999, 1000)
        rows = logits.expand(1000, 4)
        ones = torch.ones(1000)
        found = sampled(rows, ones * temperature, (ones * top_k).long(), ones * top_p, chances)
        return torch.bincount(found, minlength=4).tolist()

    assert drawn(0.0, 0, 1.0) == [0, 1000, 0, 0]
    assert drawn(1.0, 0, 1.0) == pytest.approx([100, 400, 200, 300], abs=2)
    assert drawn(1.0, 2, 1.0) == pytest.approx([0, 571, 0, 429], abs=2)
    assert drawn(1.0, 0, 0.65) == pytest.approx([0, 571, 0, 429], abs=2)
    assert drawn(0.5, 0, 1.0) == pytest.approx([33, 533, 133, 300], abs=2)


def test_generation_with_sampling_repeats_with_its_seed(example: Any, llama: tuple[Any, Any]) -> None:
    _, generator = llama
    sampling = [example.Sampling(temperature=1.0, top_k=20, top_p=0.95, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (generator([[1, 2, 3]], 16, choice) for choice in sampling)
    assert first == again != other


def test_too_long_is_refused(llama: tuple[Any, Any]) -> None:
    _, generator = llama
    with pytest.raises(ValueError, match="do not fit"):
        generator([[1] * 8], 300)
