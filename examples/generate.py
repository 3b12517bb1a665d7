"""Text generation with a static cache: prompts and single tokens by one recorded program, sampling inside the graph.

    python examples/generate.py [--model llama|gpt2|FOLDER] [--tokens 64] [--batch 2 | --prompt "TEXT" --prompt ...]
                                [--temperature 0.8 --top-k 40 --top-p 0.9 --seed 1] [--json]

FOLDER is what `model.save_pretrained` of transformers has written, weights as safetensors; nothing is downloaded. With
a tokenizer in it prompts and results are text, otherwise token ids ("3 1 4"). The models llama and gpt2 have random
weights, so what they write means nothing; that it is, token by token, what transformers' own `generate` writes
(greedily) does, and is checked. Prompts are padded to one of a few lengths, batches to one of a few sizes; each that
comes is recorded. Texts, their ends and the cache lie on the device and are updated in place, so that one recording
serves every position and the host only starts it. Needs torch and transformers.
Exits with 1 when a token differs, with 2 when it cannot do what is asked.
"""

import argparse
import gc
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import capgraph
import torch
from capgraph import CapgraphError, InputError, ModelError
from capgraph.comparing.tables import json_text
from capgraph.executors.progress import Progress
from decoder import Decoder
from safetensors import SafetensorError

LENGTHS = (16, 32, 64, 128)
BATCHES = (1, 2, 4, 8)
SETTINGS = (torch.float32, torch.int64, torch.float32)
"""Of `temperature`, `top_k` and `top_p`."""
READ_EVERY = 16
"""After how many tokens the host looks whether all texts have ended; it sees those of the look before."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: greedily at temperature 0; 0 and 1 switch `top_k` and `top_p` off.

    Raises `InputError` for a temperature or `top_k` below 0, and for a `top_p` that is not from 0 to 1.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature {self.temperature} is below 0 or no number", remedy="0 is greedy")
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k} is below 0", remedy="0 is no limit")
        if not 0 <= self.top_p <= 1:
            raise InputError(f"top_p {self.top_p} is no probability", remedy="take one from 0 to 1; 1 is no limit")


class Generator:
    """A causal language model of transformers, compiled for generation over a cache of `length` positions.

    Raises `UnsupportedError` for a model that `Decoder` refuses, `InputError` for a cache of more positions than the
    model has and for a device that PyTorch does not have.
    """

    def __init__(
        self,
        model: Any,
        *,
        length: int,
        batches: Sequence[int] = BATCHES,
        lengths: Sequence[int] = LENGTHS,
        executor: str = "graph",
        device: str = "host",
    ) -> None:
        self.batches = sorted(batches)
        slots = max(3, *batches) if self._varies else self.batches[0]  # from 2 to 2 would be no range for PyTorch
        place = _place(device)
        _check_length(model, length)
        self.decoder = Decoder(model.to(place), slots=slots, length=length).requires_grad_(False)
        self.length = length
        self.lengths = sorted({min(size, length) for size in lengths})
        self.vocabulary = self.decoder.config.vocab_size
        self.ends = ends(model)
        self._spans = torch.arange(length, device=place)
        self._chances = torch.zeros(slots, length, device=place)
        self._settings = [torch.zeros(slots, device=place, dtype=dtype) for dtype in SETTINGS]
        recorded = {"capture": {"beyond": "exact", "copy_outputs": False, "inputs": {"": "rerecord"}}}
        self._options = {"executor": executor, "device": device, **(recorded if executor == "graph" else {})}
        self.programs: dict[bool, Any] = {}
        """Of the decoder, greedily and by drawing: each is made when it is first asked for."""

    @property
    def _varies(self) -> bool:
        """Whether batches come in several sizes: PyTorch traces a size that does not vary in two thirds of the time."""
        return len(self.batches) > 1

    def program(self, *, draws: bool) -> Any:
        """The program that writes the likeliest tokens, or that draws them."""
        if draws not in self.programs:
            row = {0: "batch"} if self._varies else None
            arguments = self._arguments(2 if self._varies else self.batches[0], 2, draws=draws)
            shapes = ({0: "length"}, *[row] * (len(arguments) - 1))
            with _collector_off():
                self.programs[draws] = capgraph.optimize(
                    self.decoder, args=arguments, dynamic_shapes=shapes, **self._options
                )
        return self.programs[draws]

    def _arguments(self, batch: int, count: int, *, draws: bool) -> tuple[Any, ...]:
        """What the decoder takes to read `count` tokens: always the same memory, so that nothing is copied."""
        temperature, *others = (each[:batch] for each in (*self._settings, self._chances))
        return self._spans[:count], temperature, *(others if draws else ())

    def __call__(
        self, prompts: Sequence[Sequence[int]], count: int, sampling: Sampling = Sampling()
    ) -> list[list[int]]:
        """`count` new tokens for each prompt, or fewer where one of `ends` ends its text.

        Raises `InputError` for no or empty prompts, numbers that are no tokens, and more than there is room for.
        """
        self._check(prompts, count)
        sizes = [len(prompt) for prompt in prompts]
        batch = next(size for size in self.batches if size >= len(prompts))
        width = next(size for size in self.lengths if size >= max(sizes))
        self._begin(prompts, sampling)
        reader = Reader(self.decoder.text)
        draws = sampling.temperature > 0
        program = self.program(draws=draws)
        names = [name for name in program.inputs if name not in program.states]
        inputs, step = (dict(zip(names, self._arguments(batch, each, draws=draws), strict=True)) for each in (width, 1))
        with Progress("generating", count) as progress:
            for index in range(count):
                program.run(inputs)
                inputs = step
                progress.advance(f"token {index + 1}")
                if self.ends and index % READ_EVERY == READ_EVERY - 1 and self._have_ended(reader.latest(), sizes):
                    break
        texts = self.decoder.text[: len(prompts)].tolist()
        return [self._until_end(text[size : size + count]) for text, size in zip(texts, sizes, strict=True)]

    def _begin(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> None:
        """Puts the prompts, and how tokens are drawn, where the decoder reads them; rows that are free have a token."""
        decoder = self.decoder
        texts, known = torch.zeros(decoder.text.shape, dtype=torch.int64), torch.ones_like(decoder.ends, device="cpu")
        for row, prompt in enumerate(prompts):
            texts[row, : len(prompt)] = torch.tensor(prompt)
            known[row] = len(prompt)
        decoder.text.copy_(texts)
        decoder.ends.copy_(known)
        for setting, value in zip(self._settings, (sampling.temperature, sampling.top_k, sampling.top_p), strict=True):
            setting.fill_(value)
        drawing = torch.Generator().manual_seed(sampling.seed)
        self._chances.copy_(torch.rand(self._chances.shape, generator=drawing))

    def _have_ended(self, texts: Any, sizes: Sequence[int]) -> bool:
        """Whether each of the texts that were read has a token behind its prompt that ends it."""
        return texts is not None and all(
            not self.ends.isdisjoint(text[size:].tolist()) for text, size in zip(texts, sizes, strict=False)
        )

    def _check(self, prompts: Sequence[Sequence[int]], count: int) -> None:
        if not prompts or not all(prompts) or count < 1:
            raise InputError("nothing to generate", remedy="give prompts of one token or more, and 1 or more to add")
        strange = next((token for row in prompts for token in row if not 0 <= token < self.vocabulary), None)
        if strange is not None:
            raise InputError(f"{strange} is no token of the model", remedy=f"tokens are 0 to {self.vocabulary - 1}")
        longest = max(map(len, prompts))
        if len(prompts) > self.batches[-1] or longest > self.lengths[-1] or longest + count > self.length:
            raise InputError(
                f"{len(prompts)} prompts of up to {longest} tokens, and {count} more, do not fit",
                remedy=f"give at most {self.batches[-1]} prompts of {self.lengths[-1]} tokens, {self.length} in all",
            )

    def _until_end(self, tokens: list[int]) -> list[int]:
        """The tokens up to the first that ends a text, with it."""
        end = next((index for index, token in enumerate(tokens) if token in self.ends), len(tokens))
        return tokens[: end + 1]


class Reader:
    """Reads texts from the device without waiting for it: what is given was read when it was last asked."""

    def __init__(self, text: Any) -> None:
        self._text = text
        self._read = torch.zeros(text.shape, dtype=text.dtype, pin_memory=text.is_cuda)
        self._event = torch.cuda.Event() if text.is_cuda else None
        self._has_read = False

    def latest(self) -> Any:
        """The texts as they were when this was called before, None the first time; they are read again."""
        found = None
        if self._has_read:
            if self._event is not None:
                self._event.synchronize()
            found = self._read.clone()
        self._read.copy_(self._text, non_blocking=True)
        if self._event is not None:
            self._event.record()
        self._has_read = True
        return found


@contextmanager
def _collector_off() -> Iterator[None]:
    """Tracing makes many objects that stay: the garbage collector would visit them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _place(device: str) -> Any:
    """Where PyTorch keeps the weights for a device of capgraph."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"PyTorch finds no GPU for device {device!r}", remedy='take device "host"')
    return torch.device(device if device.startswith("cuda") else "cpu")


def _check_length(model: Any, length: int) -> None:
    """Refuses a cache of more positions than the model knows."""
    known = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if known is not None and length > known:
        raise InputError(f"{type(model).__name__} has {known} positions, not {length}", remedy="ask for fewer tokens")


# ---- the models


def llama(**settings: Any) -> Any:
    """A small Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    ends = {"bos_token_id": None, "eos_token_id": None}  # no token ends a text: the weights are random
    config = LlamaConfig(
        **{"vocab_size": 1024, "num_key_value_heads": 4, "max_position_embeddings": 512, **size, **ends, **settings}
    )
    return LlamaForCausalLM(config).eval()


def gpt2(**settings: Any) -> Any:
    """A small GPT-2 with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 1024, "n_positions": 512}
    return GPT2LMHeadModel(GPT2Config(**{**size, "bos_token_id": None, "eos_token_id": None, **settings})).eval()


MODELS = {"llama": llama, "gpt2": gpt2}
_SAVED = "a folder that model.save_pretrained(folder) has written"


def given(folder: Path) -> tuple[Any, Any]:
    """The model that `save_pretrained` has written to a folder, and its tokenizer, None where there is none.

    Raises `ModelError` for a folder that transformers cannot read. What it says of sampling is left out: options do.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    local = {"local_files_only": True, "trust_remote_code": False}
    if not (folder / "config.json").is_file():
        raise ModelError("there is no model", where=str(folder), remedy=f"name {', '.join(MODELS)}, or {_SAVED}")
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, **local, use_safetensors=True)
        is_text = (folder / "tokenizer_config.json").exists()
        tokenizer = AutoTokenizer.from_pretrained(folder, **local) if is_text else None
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"transformers cannot read the model: {type(error).__name__}: {error}".splitlines()[0],
            where=str(folder),
            remedy=f"name {_SAVED}",
        ) from error
    model.generation_config = GenerationConfig(eos_token_id=model.generation_config.eos_token_id)
    return model.eval(), tokenizer


def ends(model: Any) -> set[int]:
    """The tokens that end a text."""
    tokens = model.generation_config.eos_token_id
    return set(tokens) if isinstance(tokens, list) else {tokens} - {None}


def reference(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """What transformers' own `generate` writes greedily after one prompt."""
    tokens = torch.tensor([prompt], device=model.device)
    with torch.no_grad():
        found = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
    return found[0, len(prompt) :].tolist()  # type: ignore[no-any-return]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        return _run(options)
    except CapgraphError as error:
        print(f"generate.py: {'; '.join(line.strip() for line in str(error).splitlines())}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed)
    model, tokenizer = (MODELS[options.model](), None) if options.model in MODELS else given(Path(options.model))
    prompts = _prompts(options, tokenizer, model)
    if len(prompts) > BATCHES[-1]:
        raise InputError(f"{len(prompts)} prompts are too many for one batch", remedy=f"give {BATCHES[-1]} or fewer")
    length = max(LENGTHS[0], max(map(len, prompts)) + options.tokens)
    begin = time.perf_counter()
    generator = Generator(
        model, length=length, batches=(len(prompts),), executor=options.executor, device=options.device
    )
    generator(prompts, min(4, options.tokens), sampling)  # records what these sizes need
    compiled = time.perf_counter() - begin
    begin = time.perf_counter()
    written = generator(prompts, options.tokens, sampling)
    seconds = time.perf_counter() - begin
    is_greedy = sampling.temperature == 0
    same = not is_greedy or written == [reference(model, prompt, options.tokens) for prompt in prompts]
    rate = options.tokens * len(prompts) / seconds
    texts = [tokenizer.decode(tokens) for tokens in written] if tokenizer else []
    if options.json:
        found = {"tokens": written, "texts": texts, "tokens_per_second": rate, "compile_seconds": compiled}
        print(json_text({**found, "same": same}))
        return 0 if same else 1
    shown = texts or [f"{' '.join(map(str, tokens[:16]))} ..." for tokens in written]
    for prompt, text in zip(prompts, shown, strict=True):
        print(f"after {len(prompt)} tokens: {text}")
    verdict = ("the same as transformers' generate" if same else "NOT what transformers writes") if is_greedy else ""
    print(f"compiled in {compiled:.1f} s, {rate:.1f} tokens a second {verdict}")
    return 0 if same else 1


def _prompts(options: argparse.Namespace, tokenizer: Any, model: Any) -> list[list[int]]:
    """The tokens of the prompts that are given, or of as many random ones as the batch has rows."""
    if not options.prompt:
        vocabulary = model.config.get_text_config(decoder=True).vocab_size
        return [torch.randint(1, vocabulary, (5 + 3 * row,)).tolist() for row in range(options.batch or 2)]
    if tokenizer is not None:
        return [tokenizer(text)["input_ids"] for text in options.prompt]
    try:
        return [[int(token) for token in text.split()] for text in options.prompt]
    except ValueError:
        raise InputError("a prompt is text, and the model has no tokenizer", remedy='token ids: "3 1 4"') from None


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama", help="llama, gpt2, or the folder of a saved model")
    parser.add_argument("--tokens", type=_positive, default=64)
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--batch", type=_positive, help="how many random prompts, 2 where none are given")
    rows.add_argument("--prompt", action="append", help="text, or token ids for a model without a tokenizer")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executor", default="graph")
    parser.add_argument("--device", default="host")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
