"""Text generation with a static cache: prefill and decode as recorded programs, sampling inside the graph.

    python examples/generate.py [--model llama|gpt2] [--tokens 64] [--batch 2] [--temperature 0.8 --top-k 40] [--json]

The models have random weights, so what they write means nothing; that it is, token by token, what transformers' own
`generate` writes (greedily) does, and is checked. Prompts are padded to a bucket of lengths, batches to a bucket of
sizes. Both programs update one cache in place, and one recording serves every position. Needs torch and transformers.
Exits with 1 when a token differs.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import capgraph
import torch
from capgraph.progress import Progress
from capgraph.tables import json_text
from decoder import Decoder

LENGTHS = (16, 32, 64, 128)
BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: greedily at temperature 0; 0 and 1 switch `top_k` and `top_p` off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


class Generator:
    """A causal language model of transformers, compiled for generation over a cache of `length` positions."""

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
        slots = max(3, *batches)  # from 2 to 2 would be no range, and PyTorch takes sizes that vary to be 2 or more
        self.place = torch.device(device if device.startswith("cuda") else "cpu")
        self.decoder = Decoder(model.to(self.place), slots=slots, length=length).requires_grad_(False)
        self.length = length
        self.batches = sorted(batches)
        self.lengths = sorted(min(size, length) for size in lengths)
        prompt, single = {0: "batch", 1: "length"}, {0: "batch"}
        self.prefill = self._program(prompt, {"batch": self.batches, "length": self.lengths}, executor, device)
        self.decode = self._program(single, {"batch": self.batches}, executor, device)

    def _program(self, tokens: dict[int, str], buckets: dict[str, list[int]], executor: str, device: str) -> Any:
        """The decoder on tokens of these sizes, recorded for buckets of them."""
        batch, steps = 2, 2 if 1 in tokens else 1
        row = {0: "batch"}
        recorded = {"buckets": buckets, "dynamic": {name: (min(sizes), max(sizes)) for name, sizes in buckets.items()}}
        return capgraph.optimize(
            self.decoder,
            args=self._arguments(torch.zeros(batch, steps, dtype=torch.int64), torch.zeros(batch), Sampling()),
            dynamic_shapes=(tokens, tokens, row, row, row, row, row),
            executor=executor,
            device=device,
            **(recorded if executor == "graph" else {}),
        )

    def _arguments(
        self, tokens: Any, first: Any, sampling: Sampling, last: Any = None, chance: Any = None
    ) -> tuple[Any, ...]:
        """What the decoder takes for tokens [batch, count] that begin at position `first` of each row."""
        batch, count = tokens.shape
        positions = first.to(torch.int64)[:, None] + torch.arange(count)
        arguments = (
            tokens,
            torch.clamp(positions, max=self.length - 1),
            torch.zeros(batch, dtype=torch.int64) if last is None else last,
            torch.full((batch,), sampling.temperature),
            torch.full((batch,), sampling.top_k),
            torch.full((batch,), sampling.top_p),
            torch.zeros(batch) if chance is None else chance,
        )
        return tuple(each.to(self.place) for each in arguments)

    def __call__(
        self, prompts: Sequence[Sequence[int]], count: int, sampling: Sampling = Sampling()
    ) -> list[list[int]]:
        """`count` new tokens for each prompt. Raises `ValueError` for more than the cache has room for."""
        sizes = [len(prompt) for prompt in prompts]
        if len(prompts) > self.batches[-1] or max(sizes) > self.lengths[-1] or max(sizes) + count > self.length:
            raise ValueError(f"{len(prompts)} prompts of up to {max(sizes)} tokens, and {count} more, do not fit")
        draw = torch.Generator().manual_seed(sampling.seed)
        batch = next(size for size in self.batches if size >= len(prompts))
        width = next(size for size in self.lengths if size >= max(sizes))
        tokens = torch.zeros(batch, width, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = torch.tensor(prompt)
        ends = torch.tensor([*sizes, *[1] * (batch - len(prompts))])
        written: list[Any] = []
        with Progress("generating", count) as progress:
            first, last = torch.zeros(batch), ends - 1
            program = self.prefill
            for step in range(count):
                chance = torch.rand(batch, generator=draw)
                token = program(*self._arguments(tokens, first, sampling, last, chance))
                token = token.cpu()
                written.append(token)
                tokens, first, last, program = token[:, None], ends + step, None, self.decode
                progress.advance(f"token {step + 1}")
        return torch.stack(written, 1)[: len(prompts)].tolist()


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


def reference(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """What transformers' own `generate` writes greedily after one prompt."""
    tokens = torch.tensor([prompt], device=model.device)
    with torch.no_grad():
        found = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
    return found[0, len(prompt) :].tolist()  # type: ignore[no-any-return]


def main() -> int:
    options = _options()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = MODELS[options.model]()
    begin = time.perf_counter()
    generator = Generator(model, length=256, executor=options.executor, device=options.device)
    compiled = time.perf_counter() - begin
    prompts = [torch.randint(1, 1024, (5 + 3 * row,)).tolist() for row in range(options.batch)]
    sampling = Sampling(options.temperature, options.top_k, options.top_p)
    generator(prompts, 4, sampling)  # records the buckets
    begin = time.perf_counter()
    written = generator(prompts, options.tokens, sampling)
    seconds = time.perf_counter() - begin
    is_greedy = sampling.temperature == 0
    same = all(
        not is_greedy or tokens == reference(model, prompt, options.tokens)
        for prompt, tokens in zip(prompts, written, strict=True)
    )
    rate = options.tokens * len(prompts) / seconds
    if options.json:
        print(json_text({"tokens": written, "tokens_per_second": rate, "compile_seconds": compiled, "same": same}))
    else:
        for prompt, tokens in zip(prompts, written, strict=True):
            print(f"after {len(prompt)} tokens: {' '.join(map(str, tokens[:16]))} ...")
        verdict = (
            ("the same as transformers' generate" if same else "NOT what transformers writes") if is_greedy else ""
        )
        print(f"compiled in {compiled:.1f} s, {rate:.1f} tokens a second {verdict}")
    return 0 if same else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--executor", default="graph")
    parser.add_argument("--device", default="host")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
