"""Text generation, a token at a time, on one GPU: our two doors beside transformers with inductor, in one process.

    python -m benchmarks.gpu.generate [--shape 1b|8b|tiny] [--doors loop,compile,example,inductor]
                                      [--samplings greedy,sampled] [--tokens 160] [--out FILE.json] [--profile]

`compile` is transformers' own `generate` with `CompileConfig(backend="capgraph")`, `unguarded` the same where Dynamo
has no guards on modules, `inductor` the same with its default, `loop` is `generate` with
`custom_generate=capgraph.decoding_loop`, `example` is `examples/generate.py`. A row has the set-up in phases and what a
token costs: the difference of two texts of different lengths, so that the prompt does not count. Weights are random,
and made on the device.

Every token is held against the same model in f32, which reads the finished text. `unlike` counts tokens that are not
its choice, `gap` is by how much the logit of such a token is at most below the largest, in units of bf16's rounding of
that. `eager_unlike` and `eager_gap` are the same of what eager PyTorch in bf16 chooses behind the same texts, and
`eager_error` is the largest difference of its logits. A choice is a tie where two logits with eager's error at that
token could have changed places: `no_tie` counts the others.
"""

import argparse
import copy
import cProfile
import pstats
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BEGAN = time.perf_counter()

import capgraph  # noqa: E402  # what importing takes is measured
import torch  # noqa: E402
from capgraph.pytorch import backend as torch_backend  # noqa: E402
from transformers import CompileConfig, LlamaConfig, LlamaForCausalLM  # noqa: E402

from benchmarks.gpu.findings import Findings  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
IMPORTED = time.perf_counter() - BEGAN

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "tie_word_embeddings": True,
    },
    "8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "tie_word_embeddings": True,
    },
}

PROMPT = 48
SHORT = 32
SAMPLED = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}


class Phases:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times what is done within, waiting for the device."""
        start = time.perf_counter()
        yield
        wait()
        self.seconds[name] = round(time.perf_counter() - start, 2)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


Write = Callable[[int], list[int]]
"""From a count to that many new tokens behind the prompt."""


def made(shape: str, device: str) -> Any:
    """A model with random weights in bf16."""
    torch.manual_seed(0)
    none = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = LlamaConfig(**SHAPES[shape], **none, max_position_embeddings=4096, rope_theta=500000.0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)


def through_transformers(model: Any, prompt: Any, sampling: str, **options: Any) -> Write:
    """The loop of transformers; the longest text comes first, as its caches are never made smaller."""
    drawing = {"do_sample": True, **SAMPLED} if sampling == "sampled" else {"do_sample": False}

    def write(count: int) -> list[int]:
        found = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=count,
            cache_implementation="static",
            **options,
            **drawing,
        )
        return found[0, prompt.shape[1] :].tolist()  # type: ignore[no-any-return]

    return write


def through_example(model: Any, prompt: Any, sampling: str, length: int) -> Write:
    """`examples/generate.py`."""
    sys.path.insert(0, str(EXAMPLES))
    import generate

    device = "cuda" if model.device.type == "cuda" else "host"
    generator = generate.Generator(model, length=length, batches=(1,), device=device)
    chosen = generate.Sampling(**SAMPLED, seed=1) if sampling == "sampled" else generate.Sampling()
    return lambda count: generator([prompt[0].tolist()], count, chosen)[0]  # type: ignore[no-any-return]


def door(name: str, model: Any, prompt: Any, sampling: str, length: int) -> Write:
    """One way of writing text."""
    torch._dynamo.reset()
    if name == "example":
        return through_example(model, prompt, sampling, length)
    if name == "loop":
        return through_transformers(model, prompt, sampling, custom_generate=capgraph.decoding_loop)
    model.__dict__.pop("_compiled_call", None)
    config = CompileConfig()
    if name in ("compile", "unguarded"):
        backend = "capgraph" if "capgraph" in torch._dynamo.list_backends() else torch_backend.backend  # not installed
        options: dict[str, Any] = {"executor": "graph"}
        if name == "unguarded":
            options["guard_filter_fn"] = torch.compiler.skip_guard_on_all_nn_modules_unsafe
        config = CompileConfig(backend=backend, mode=None, options=options)  # type: ignore[arg-type]
    if model.device.type != "cuda":
        config._compile_all_devices = True  # type: ignore[assignment]
    return through_transformers(model, prompt, sampling, compile_config=config)


def measure(
    name: str, model: Any, exact: Any, prompt: Any, sampling: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One row; `exact` is the model in f32."""
    phases, count = Phases(), arguments.tokens
    with torch.no_grad():
        with phases.phase("make"):
            write = door(name, model, prompt, sampling, PROMPT + count)
        with phases.phase("first"):
            write(count if name != "example" else SHORT)
        with phases.phase("second"):
            write(SHORT)
        costs = []
        for _ in range(3):
            starts = [time.perf_counter()]
            for each in (count, SHORT):
                text = write(each)
                wait()
                starts.append(time.perf_counter())
                if each == count:
                    kept = text
            whole, short = starts[1] - starts[0], starts[2] - starts[1]
            costs.append((whole - short) / (count - SHORT))
        with profiled(arguments.profile):
            write(count)
    if arguments.explain and name != "inductor":
        explain(write, name)
    return {
        "shape": arguments.shape,
        "door": name,
        "sampling": sampling,
        "token_us": round(1e6 * sorted(costs)[1], 1),
        "text_ms": round(1e3 * whole, 1),
        "setup_s": round(sum(phases.seconds[each] for each in ("make", "first")), 1),
        **phases.seconds,
        **held(model, exact, prompt, kept, sampling),
    }


def explain(write: Write, name: str) -> None:
    programs = torch_backend.live_programs() if name in ("compile", "unguarded", "loop") else []
    cells = [each.cell_contents for each in write.__closure__ or ()]  # type: ignore[attr-defined]
    programs += [program for cell in cells for program in getattr(cell, "programs", {}).values()]
    for program in programs:
        lines = program.explain().splitlines()
        print("\n".join(line for line in lines if not line.startswith(("input:", "output:"))), flush=True)


def held(model: Any, exact: Any, prompt: Any, tokens: list[int], sampling: str) -> dict[str, Any]:
    """What the model in f32, which reads the text, thinks of its tokens, and of eager's choices at the same places.

    Of drawn tokens it says how many are not among the 50 likeliest, or beyond the probability that is kept.
    """
    given = torch.tensor(tokens, device=prompt.device)
    text = torch.cat([prompt[0], given])[None]
    with torch.no_grad():
        wanted, eager = (each(text).logits[0, prompt.shape[1] - 1 : -1].float() for each in (exact, model))
    if sampling != "greedy":
        return {"unlike": _drawn_beyond(wanted, given), "drawn": len(set(tokens))}
    largest, best = wanted.max(-1)
    rounding = largest.abs() * 2**-8
    error = (eager - wanted).abs().amax(-1) / rounding

    def judged(chosen: Any, prefix: str) -> dict[str, Any]:
        gaps = (largest - wanted.gather(1, chosen[:, None])[:, 0]) / rounding
        found = {"unlike": int((chosen != best).sum()), "gap": round(float(gaps.max()), 1)}
        found["no_tie"] = int((gaps > 2 * error).sum())
        return {f"{prefix}{name}": value for name, value in found.items()}

    return {**judged(given, ""), **judged(eager.argmax(-1), "eager_"), "eager_error": round(float(error.max()), 1)}


def _drawn_beyond(logits: Any, given: Any) -> int:
    """How many tokens top-k and top-p leave out, with some room for the rounding of logits."""
    ranks = (logits > logits.gather(1, given[:, None])).sum(-1)
    heat = torch.softmax(torch.topk(logits / SAMPLED["temperature"], int(SAMPLED["top_k"])).values, -1)
    before = torch.where(torch.arange(heat.shape[1], device=heat.device) < ranks[:, None], heat, 0).sum(-1)
    return int(((ranks >= SAMPLED["top_k"] + 5) | (before > SAMPLED["top_p"] + 0.02)).sum())


@contextmanager
def profiled(is_wished: bool) -> Iterator[None]:
    """Prints where the host spent its time within."""
    if not is_wished:
        yield
        return
    profile = cProfile.Profile()
    with profile:
        yield
        wait()
    pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--doors", default="loop,compile,example,inductor")
    parser.add_argument("--samplings", default="greedy,sampled")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=540, help="begin nothing new after this long")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/generate.json"))
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    findings, phases = Findings(arguments.out), Phases()
    with phases.phase("model"):
        model = made(arguments.shape, arguments.device)
        prompt = torch.randint(1, model.config.vocab_size, (1, PROMPT), device=arguments.device)
        exact = copy.deepcopy(model).float()
    print(f"capgraph {capgraph.__file__}; import {IMPORTED:.2f} s, model {phases.seconds['model']} s", flush=True)
    for name in arguments.doors.split(","):
        for sampling in arguments.samplings.split(","):
            if time.perf_counter() - BEGAN > arguments.seconds:
                print(f"no time for {name} {sampling}", flush=True)
                continue
            stage = f"{arguments.shape} {name} {sampling}"
            findings.stage(stage, lambda: measure(name, model, exact, prompt, sampling, arguments))  # noqa: B023
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
