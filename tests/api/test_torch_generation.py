"""`capgraph.decoding_loop` in transformers' `generate`: the tokens of its own loop, by one recording."""

import copy
import gc
import threading
import weakref
from typing import Any

import capgraph
import pytest
import torch
from capgraph import CapgraphWarning, UnsupportedError
from capgraph.pytorch import backend as torch_backend
from capgraph.pytorch import decoding_step, generation
from capgraph.pytorch.generation import READ_EVERY, drawn
from transformers import MistralConfig, MistralForCausalLM

from tests.frontends.torch.generation import SMALL, small_llama, with_variety

torch.set_num_threads(1)

PROMPTS = torch.tensor([[3, 1, 4, 1, 5], [0, 0, 9, 2, 6]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
COUNT = 40


@pytest.fixture(scope="module")
def llama() -> Any:
    torch._dynamo.reset()
    return small_llama()


def written(model: Any, **options: Any) -> list[list[int]]:
    """What transformers' own loop writes."""
    settings = {"attention_mask": MASK, "max_new_tokens": COUNT, "do_sample": False, "pad_token_id": 0, **options}
    return model.generate(PROMPTS, **settings).tolist()  # type: ignore[no-any-return]


def recorded(model: Any, **options: Any) -> list[list[int]]:
    """What the recorded loop writes."""
    return written(model, cache_implementation="static", custom_generate=capgraph.decoding_loop, **options)


def test_a_text_is_that_of_transformers_by_one_recording(llama: Any) -> None:
    before = torch_backend.live_programs()
    wanted = written(llama)
    for _ in range(2):
        assert recorded(llama) == wanted
    assert len({token for row in wanted for token in row}) > 20
    (program,) = [each for each in torch_backend.live_programs() if all(each is not other for other in before)]
    counters = program.stats().counters
    assert (counters.eager_calls, counters.input_copies) == (1, 0)
    assert counters.replays == counters.replayed_calls == 2 * (COUNT - 1) - 1
    assert all(bucket.segments == 1 and not bucket.eager_segments for bucket in program.stats().buckets)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that torch.export has traced a step of, as often as it has."""
    found: list[Any] = []

    class Counted(decoding_step.DecodingStep):
        def __init__(self, function: Any, model: Any, cache: Any, texts: Any) -> None:
            found.append(weakref.ref(model))
            super().__init__(function, model, cache, texts)

    monkeypatch.setattr(decoding_step, "DecodingStep", Counted)
    return found


def test_a_step_is_traced_once_for_texts_of_the_same_shapes(traces: list[Any]) -> None:
    model, other = small_llama(), small_llama()
    for weight in other.parameters():
        weight.neg_()
    for count in (COUNT, COUNT - 10, COUNT):
        for each in (model, other):
            assert recorded(each, max_new_tokens=count) == written(each, max_new_tokens=count)
    assert len(traces) == 2
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(recorded(model)))
    thread.start()
    thread.join()
    assert found == [written(model)]
    assert len(traces) == 2
    recorded(model, do_sample=True)
    longer = COUNT + 10
    assert recorded(model, max_new_tokens=longer) == written(model, max_new_tokens=longer)
    assert len(traces) == 4


def test_texts_take_turns_in_one_step(traces: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, settings = small_llama(), {"max_new_tokens": COUNT, "do_sample": False, "attention_mask": MASK}
    static = {"cache_implementation": "static", "custom_generate": capgraph.decoding_loop}
    wanted, begun = [], []
    monkeypatch.setattr(generation, "_write_others", lambda *given: begun.append(copy.deepcopy(given[1:3])))
    for prompts in (PROMPTS, PROMPTS + 1):
        wanted.append(model.generate(prompts, **settings).tolist())
        model.generate(prompts, **settings, **static)
    for _ in range(COUNT - 1):
        for cache, texts in begun:
            step = decoding_step.step_for(generation._step, model, cache, texts)
            assert step is not None
            step(cache, texts)
    assert [texts.tokens.tolist() for _, texts in begun] == wanted
    assert len(traces) == 1


def test_what_a_model_becomes_is_seen(traces: list[Any]) -> None:
    model = small_llama()
    head = model.lm_head

    def changes() -> Any:
        yield head.weight.neg_()
        yield head.weight.data.copy_(-2 * head.weight)
        head.weight.data = -1 * head.weight
        yield
        yield model.double()
        yield head.register_forward_hook(lambda _module, _inputs, result: -result)

    recorded(model)
    for count, _ in enumerate(changes(), 2):
        assert recorded(model) == written(model)
        assert len(traces) == count


def test_nothing_holds_a_model_that_has_written(traces: list[Any]) -> None:
    model = small_llama()
    recorded(model)
    ((program,),) = [step.programs for step in decoding_step._STEPS[model]._made.values()]
    kept = [weakref.ref(each) for each in (model, model.lm_head.weight, program, *program.states.values())]
    del model, program
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)


def test_what_torch_export_does_not_take_torch_compile_does(traces: list[Any]) -> None:
    model = small_llama()
    model.register_buffer("calls", torch.zeros((), dtype=torch.int64))  # which is no cache

    def counted(*_: Any) -> None:
        model.get_buffer("calls").add_(1)

    model.lm_head.register_forward_hook(counted)
    with pytest.warns(CapgraphWarning, match="traced by torch.compile") as caught:
        assert recorded(model) == written(model)
    assert len([each for each in caught if each.category is CapgraphWarning]) == 1
    assert recorded(model) == written(model)
    assert len(traces) == 1
    assert int(model.get_buffer("calls")) == 4 * COUNT


def test_sliding_windows_end_before_the_text_does() -> None:
    torch.manual_seed(0)
    config = MistralConfig(**{**SMALL, "num_hidden_layers": 1}, sliding_window=8)
    model = with_variety(MistralForCausalLM(config))
    assert recorded(model, max_new_tokens=12) == written(model, max_new_tokens=12)


def test_texts_end_where_those_of_transformers_do(llama: Any) -> None:
    plain = written(llama)
    ends = [plain[0][12], plain[1][9]]
    wanted = written(llama, eos_token_id=ends)
    assert len(wanted[0]) < PROMPTS.shape[1] + READ_EVERY
    assert recorded(llama, eos_token_id=ends) == wanted
    assert recorded(llama, eos_token_id=plain[0][5]) == written(llama, eos_token_id=plain[0][5])


def test_drawn_texts_follow_the_seed_and_the_limits(llama: Any) -> None:
    assert recorded(llama, do_sample=True, top_k=1) == written(llama)
    settings = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9}
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(recorded(llama, **settings))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cache_implementation": "dynamic"}, "grows with the text"),
        ({"repetition_penalty": 1.5}, "RepetitionPenaltyLogitsProcessor"),
        ({"max_time": 5.0}, "MaxTimeCriteria"),
        ({"return_dict_in_generate": True}, "no beams, streams, scores"),
    ],
)
def test_what_is_no_part_of_a_recorded_token_is_refused(llama: Any, options: Any, reason: str) -> None:
    settings = {"cache_implementation": "static", "custom_generate": capgraph.decoding_loop, **options}
    with pytest.raises(UnsupportedError, match=reason) as caught:
        written(llama, **settings)
    assert "leave custom_generate out" in caught.value.remedy


def test_tokens_are_drawn_from_what_top_k_and_top_p_leave() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.3]]))

    def shares(temperature: float, top_k: int, top_p: float) -> list[int]:
        rows, ones = logits.expand(1000, 4), torch.ones(1000)
        chances = torch.linspace(0, 0.999, 1000)
        found = drawn(rows, ones * temperature, (ones * top_k).long(), ones * top_p, chances)
        return torch.bincount(found, minlength=4).tolist()

    assert shares(0.0, 0, 1.0) == [0, 1000, 0, 0]
    assert shares(1.0, 0, 1.0) == pytest.approx([100, 400, 200, 300], abs=2)
    assert shares(1.0, 2, 1.0) == pytest.approx([0, 571, 0, 429], abs=2)
    assert shares(1.0, 0, 0.65) == pytest.approx([0, 571, 0, 429], abs=2)
    assert shares(1.0, 2, 0.55) == [0, 1000, 0, 0], "top-p is a part of what top-k leaves: 4 / 7"
    assert shares(1.0, 3, 0.75) == pytest.approx([0, 571, 0, 429], abs=2)
    assert shares(0.5, 0, 1.0) == pytest.approx([33, 533, 133, 300], abs=2)
    assert shares(1.0, 0, 0.0) == [0, 1000, 0, 0], "the likeliest token is always kept"
    assert shares(1.0, -1, 1.0) == shares(1.0, 0, 1.0), "0 or less is no limit"


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 0.8), (30, 0.5), (64, 0.95), (64, 1.0), (3, 1.0)])
def test_what_is_kept_is_what_the_warpers_of_transformers_keep(top_k: int, top_p: float) -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    torch.manual_seed(0)
    logits, heat, count = 3 * torch.randn(1, 64), 0.7, 4096
    scores = TemperatureLogitsWarper(heat)(None, logits)
    for warper in (TopKLogitsWarper(top_k), TopPLogitsWarper(top_p)):
        scores = warper(None, scores)
    wanted = torch.softmax(scores, -1)[0]
    ones, chances = torch.ones(count), torch.linspace(0, 1 - 1e-6, count)
    found = drawn(logits.expand(count, 64), heat * ones, (top_k * ones).long(), top_p * ones, chances)
    torch.testing.assert_close(torch.bincount(found, minlength=64) / count, wanted, rtol=0, atol=1e-3)
