"""`capgraph.decoding_loop` in transformers' `generate`: the tokens of its own loop, by one recording."""

from typing import Any

import capgraph
import pytest
import torch
from capgraph import UnsupportedError
from capgraph.pytorch import backend as torch_backend
from capgraph.pytorch.generation import READ_EVERY, drawn

from tests.frontends.torch.generation import small_llama

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
