"""The generation example: prefill and decode over one cache, equal to transformers' own generate."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from capgraph import InputError, UnsupportedError
from capgraph.ir.plan import Place, StepKind
from capgraph.ir.target import HOST
from capgraph.passes.planning.planner import make_plan
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

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
    counters = generator.program(draws=False).stats().counters
    assert counters.replayed_calls == counters.calls - 2, "prompts and tokens run eagerly once, then they are replayed"
    assert counters.captures == 2, "one recording serves every position"
    assert counters.replays == counters.replayed_calls, "the whole graph is one recording"
    assert counters.input_copies == 0


def test_no_cache_is_copied(llama: tuple[Any, Any]) -> None:
    _, generator = llama
    caches_of = {"keys_0", "keys_1", "values_0", "values_1"}
    for draws, length in itertools.product((False, True), (1, 8)):
        program = generator.program(draws=draws)
        plan = make_plan(program.graph, {"batch": 2, "length": length}, HOST)
        assert {*program.states} == {*caches_of, "text", "ends"}
        states = {value.name: value for value in program.graph.inputs if value.name in caches_of}
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


def test_a_token_costs_the_host_one_call(example: Any, llama: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made, copied or read between two tokens; texts are read now and then where a token may end them."""
    _, generator = llama
    prompt = [5, 6, 7]
    wanted = generator([prompt], 40)[0]
    program, calls, reads = generator.program(draws=False), [], []
    run = program.run
    monkeypatch.setattr(program, "run", lambda given: (calls.append(given), run(given))[1])
    latest = example.Reader.latest
    monkeypatch.setattr(example.Reader, "latest", lambda self: (reads.append(len(calls)), latest(self))[1])
    assert generator([prompt], 40)[0] == wanted
    assert reads == []
    assert all(given is calls[1] for given in calls[1:])
    monkeypatch.setattr(generator, "ends", {wanted[20]})
    first = wanted.index(wanted[20])
    calls.clear()
    assert generator([prompt], 200)[0] == wanted[: first + 1]
    assert reads == [16, 32, 48][: len(reads)]
    assert first < len(calls) <= first + 1 + 2 * example.READ_EVERY


def test_gpt2(example: Any) -> None:
    torch.manual_seed(0)
    model = example.gpt2(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    generator = example.Generator(model, length=64, batches=(1,), lengths=(8,))
    assert generator([[1, 2, 3]], 40)[0] == example.reference(model, [1, 2, 3], 40)


def test_generation_with_sampling_repeats_with_its_seed(example: Any, llama: tuple[Any, Any]) -> None:
    _, generator = llama
    sampling = [example.Sampling(temperature=1.0, top_k=20, top_p=0.95, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (generator([[1, 2, 3]], 16, choice) for choice in sampling)
    assert first == again != other


@pytest.mark.parametrize(
    ("prompts", "count", "reason"),
    [
        ([[1] * 8], 300, "300 more, do not fit"),
        ([[1]] * 3, 1, "3 prompts of up to 1 tokens"),
        ([[1] * 17], 1, "up to 17 tokens"),
        ([], 1, "nothing to generate"),
        ([[1], []], 1, "nothing to generate"),
        ([[1]], 0, "nothing to generate"),
        ([[1, 64]], 1, "64 is no token"),
        ([[-1]], 1, "-1 is no token"),
    ],
)
def test_what_cannot_be_generated_is_refused(llama: tuple[Any, Any], prompts: Any, count: int, reason: str) -> None:
    _, generator = llama
    with pytest.raises(InputError, match=reason) as caught:
        generator(prompts, count)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "settings", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": -0.1}, {"top_p": 1.5}]
)
def test_sampling_that_means_nothing_is_refused(example: Any, settings: Any) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        example.Sampling(**settings)


# ---- other models, their weights so large that what a token sees of the text decides

WIDE = {**SMALL, "vocab_size": 64, "num_key_value_heads": 2, "initializer_range": 0.2}
ENDLESS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0, "max_position_embeddings": 128}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "head_dim": 8}


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("MistralForCausalLM", "MistralConfig", {"sliding_window": 4, "num_hidden_layers": 1}),
        ("Gemma3ForCausalLM", "Gemma3TextConfig", MIXED),
    ],
)
def test_layers_see_what_their_windows_show(example: Any, name: str, config: str, settings: Any) -> None:
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**{**WIDE, **ENDLESS, **settings})).eval()
    generator = example.Generator(model, length=32, batches=(1,), lengths=(8,), executor="eager")
    prompt = [3, 1, 4, 1, 5, 9]
    assert generator([prompt], 20)[0] == example.reference(model, prompt, 20)


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("LlamaForCausalLM", "LlamaConfig", {}),
        ("MixtralForCausalLM", "MixtralConfig", {"sliding_window": 4, "num_local_experts": 2}),
        ("GptOssForCausalLM", "GptOssConfig", {**MIXED, "num_local_experts": 2, "num_experts_per_tok": 1}),
        ("Phi3ForCausalLM", "Phi3Config", {"sliding_window": 4}),
        ("Llama4ForCausalLM", "Llama4TextConfig", {"attention_chunk_size": 4, "head_dim": 8, "num_local_experts": 2}),
        ("Gemma2ForCausalLM", "Gemma2Config", MIXED),
        ("GPTJForCausalLM", "GPTJConfig", {"rotary_dim": 4}),
        ("FalconForCausalLM", "FalconConfig", {}),
        ("OPTForCausalLM", "OPTConfig", {}),
    ],
)
def test_decoders_give_the_numbers_of_the_model(example: Any, name: str, config: str, settings: Any) -> None:
    """A `Decoder` compares itself with its model."""
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**{**WIDE, **ENDLESS, **settings}))
    assert example.Decoder(model, slots=2, length=32).layers == 2


@pytest.mark.parametrize(
    ("name", "config", "settings", "reason"),
    [
        ("BloomForCausalLM", "BloomConfig", {}, "BloomForCausalLM .* takes no position_ids"),
        ("MambaForCausalLM", "MambaConfig", {}, "takes no position_ids and no past_key_values"),
        ("Lfm2ForCausalLM", "Lfm2Config", {"layer_types": ["conv", "full_attention"]}, "layers of conv"),
        ("FalconForCausalLM", "FalconConfig", {"alibi": True}, "does not run over a static cache: too many values"),
        (
            *("GPTNeoForCausalLM", "GPTNeoConfig"),
            {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 4, "window_size": 4},
            "other numbers over a static cache",
        ),
    ],
)
def test_decoders_of_other_models_are_refused(example: Any, name: str, config: str, settings: Any, reason: str) -> None:
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, config)(**{**WIDE, **ENDLESS, **settings}))
    with pytest.raises(UnsupportedError, match=reason) as caught:
        example.Decoder(model, slots=2, length=32)
    assert "Llama" in str(caught.value.remedy)


# ---- the command line


@pytest.fixture(scope="module")
def folder(example: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model whose text ends at the third token that it writes after 3 1 4."""
    torch.manual_seed(0)
    model = example.llama(vocab_size=64, **SMALL, num_key_value_heads=2, max_position_embeddings=64)
    model.generation_config.eos_token_id = example.reference(model, [3, 1, 4], 3)[-1]
    path = tmp_path_factory.mktemp("saved")
    model.save_pretrained(path)
    return path


def _run(example: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What the example writes with --json, run with the fastest executor to compile for."""
    assert example.main([*arguments, "--executor", "eager", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_given_model_writes_until_its_end(example: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _run(example, capsys, "--model", str(folder), "--tokens", "8", "--prompt", "3 1 4", "--prompt", "2 7")
    model, tokenizer = example.given(folder)
    assert found["same"]
    assert found["tokens"] == [example.reference(model, prompt, 8) for prompt in ([3, 1, 4], [2, 7])]
    assert len(found["tokens"][0]) == 3
    assert found["texts"] == []
    assert tokenizer is None


def test_a_given_tokenizer_reads_and_writes(
    example: Any,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def not_compiled(model: Any, **_: Any) -> Any:
        return lambda prompts, count, _sampling: [example.reference(model, prompt, count) for prompt in prompts]

    monkeypatch.setattr(example, "Generator", not_compiled)
    words = WordLevel({f"w{index}": index for index in range(64)}, unk_token="w0")
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = Whitespace()
    shutil.copytree(folder, tmp_path / "model")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "model")
    model = str(tmp_path / "model")
    found = _run(example, capsys, "--model", model, "--tokens", "8", "--prompt", "w3 w1 w4")
    assert found["tokens"] == [example.reference(example.given(folder)[0], [3, 1, 4], 8)]
    assert found["texts"] == [" ".join(f"w{token}" for token in found["tokens"][0])]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--device", "cuda"], "PyTorch finds no GPU for device 'cuda'"),
        (["--tokens", "600"], "has 512 positions, not 608"),
        (["--batch", "9"], "9 prompts are too many for one batch; try: give 8 or fewer"),
        (["--temperature", "-1"], "temperature -1.0 is below 0"),
        (["--top-p", "2"], "top_p 2.0 is no probability"),
        (["--top-k", "-1"], "top_k -1 is below 0"),
        (["--prompt", "hello"], "no tokenizer"),
        (["--executor", "none"], "no executor 'none'"),
        (["--model", "/nowhere"], "there is no model; at /nowhere; try: name llama, gpt2, or a folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    example: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    reason: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert example.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("generate.py: ")
    assert reason in line


def test_a_folder_that_transformers_cannot_read(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert example.main(["--model", str(tmp_path)]) == 2
    assert "transformers cannot read the model: ValueError: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--tokens", "0"], ["--batch", "0"], ["--batch", "2", "--prompt", "1"]])
def test_arguments_without_sense(example: Any, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        example.main(arguments)
    assert caught.value.code == 2
    assert "error: argument" in capsys.readouterr().err
