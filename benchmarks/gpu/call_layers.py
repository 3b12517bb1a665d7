"""Host time of a call by layer, from `torch.compile` down to the launch of the graph: until the call returns.

    python -m benchmarks.gpu.call_layers [--models mlp,resnet18,weights100,decoder,llama] [--calls 1000]
                                         [--doors guards,aot,compile,unguarded,optimize,reduce-overhead] [--out FILE]

The device has nothing else to do when a call begins. `guards` is what `torch.compile` costs with a backend that returns
results which are there already, `aot` the same behind AOT autograd: both are PyTorch's. `torch.compile` is ours; the
rows behind it are parts of it, each within the one before or beside it: what Dynamo calls behind its guards, what AOT
autograd calls, the look at the weights, the call with these weights, the fast path, and the launch. `unguarded` is
ours where Dynamo has no guards on modules (`torch.compiler.skip_guard_on_all_nn_modules_unsafe`). `optimize` is a
program of `capgraph.optimize`, called as the module. Rows have the median and the 99th percentile in us, the median
where eight calls follow each other, and how many functions of Python and C a call enters.
"""

import argparse
import cProfile
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import capgraph
import torch
from capgraph.executors.cuda.run.fast_path import FastPath
from capgraph.pytorch import backend as torch_backend
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from benchmarks.gpu.decode_model import Decoder, Shape
from benchmarks.gpu.findings import Findings

Call = Callable[[], Any]

SLOTS, LLAMA_SLOTS = 256, 4096


class Weights(nn.Module):
    """A hundred small weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.inner:
            x = torch.tanh(layer(x))
        return x


def mlp(device: str) -> tuple[Any, dict[str, Any]]:
    layers = [nn.Linear(512, 512), nn.ReLU()] * 3
    return nn.Sequential(*layers).half().to(device), {"input": torch.randn(8, 512, device=device).half()}


def weights100(device: str) -> tuple[Any, dict[str, Any]]:
    return Weights().half().to(device), {"x": torch.randn(8, 64, device=device).half()}


def resnet18(device: str) -> tuple[Any, dict[str, Any]]:
    import torchvision

    image = torch.randn(1, 3, 224, 224, device=device).half()
    return torchvision.models.resnet18().half().to(device), {"x": image}


def decoder(device: str) -> tuple[Any, dict[str, Any]]:
    """A step of 16 layers whose caches are buffers."""
    with torch.device(device):
        module = Decoder(Shape(1024, 512, 16, 8, 4, 1024, 64, SLOTS)).bfloat16()
    tokens, position = torch.zeros(1, dtype=torch.int64, device=device), torch.tensor([7], device=device)
    return module, {"tokens": tokens, "position": position}


def llama(device: str) -> tuple[Any, dict[str, Any]]:
    """A step of 16 layers with a static cache, called as transformers' `generate` calls it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 1024, "hidden_size": 512, "num_hidden_layers": 16, "intermediate_size": 1024}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = LlamaConfig(**sizes, **heads, **ends, max_position_embeddings=2 * LLAMA_SLOTS)
    module = LlamaForCausalLM(config).to(device, torch.bfloat16).eval().requires_grad_(False)
    seen: list[dict[str, Any]] = []
    forward = module.forward

    def noted(**given: Any) -> Any:
        seen.append(given)
        if len(seen) == 4:
            raise _SeenEnough
        return forward(**given)

    module.forward = noted
    prompt = torch.randint(1, 1024, (1, 8), device=device)
    with suppress(_SeenEnough):
        module.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=LLAMA_SLOTS - 8,
            do_sample=False,
            cache_implementation="static",
            disable_compile=True,
        )
    del module.forward
    return module, seen[-1]


class _SeenEnough(Exception):
    """Ends a text whose steps are known."""


def begin_again(given: Mapping[str, Any]) -> None:
    """Has a cache that counts what it holds begin anew."""
    for layer in getattr(given.get("past_key_values"), "layers", ()):
        if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
            layer.cumulative_length.fill_(8)


MODELS: Mapping[str, Callable[[str], tuple[Any, dict[str, Any]]]] = {
    each.__name__: each for each in (mlp, resnet18, weights100, decoder, llama)
}


# ---- doors


def no_work(module: Any, examples: Any) -> Any:
    """A backend whose functions give what they gave in the first call."""
    kept: list[Any] = []

    def call(*arguments: Any) -> Any:
        if not kept:
            kept.append(module.forward(*arguments))
        return kept[0]

    return call


def no_work_behind_aot(module: Any, examples: Any) -> Any:
    """The same behind AOT autograd."""

    def compiled(graph: Any, _arguments: Any) -> Any:
        return make_boxed_func(no_work(graph, None))

    return aot_autograd(fw_compiler=compiled, keep_inference_input_mutations=True)(module, examples)


Spent = dict[str, list[float]]
"""Seconds by layer."""


@contextmanager
def timed_inside(spent: Spent, owner: Any, name: str, label: str) -> Iterator[None]:
    """Notes how long each call of a function takes, as a part of the whole."""
    plain, found = getattr(owner, name), spent.setdefault(label, [])

    def call(*arguments: Any) -> Any:
        start = time.perf_counter()
        result = plain(*arguments)
        found.append(time.perf_counter() - start)
        return result

    setattr(owner, name, call)
    yield
    setattr(owner, name, plain)


class Inside:
    """The layers of one call."""

    def __init__(self, call: Call, program: Any, layers: Sequence[tuple[Any, str, str]]) -> None:
        self.call = call
        self._layers = [*layers, (FastPath, "serve", "fast path"), *_launches(program)]

    def times(self, calls: int) -> Spent:
        """The seconds of each layer, within so many calls."""
        spent: Spent = {}
        with ExitStack() as stack:
            for each in self._layers:
                stack.enter_context(timed_inside(spent, *each))
            for _ in range(calls):
                wait()
                self.call()
        return spent


def _launches(program: Any) -> list[tuple[Any, str, str]]:
    path = getattr(program._executable, "_fast_path", None)
    if path is None:
        print("no fast path:", *program.explain().splitlines()[:8], sep="\n  ", flush=True)
        return []
    if path._with_copies is None:
        return []
    return [(path._with_copies, "run", "with copies"), (path._with_copies._copying, "_launch", "launch")]


class Behind:
    """What Dynamo calls, so that it can be timed."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def compiled_layers(
    module: Any, given: Mapping[str, Any], options: Mapping[str, Any], name: str = "torch.compile"
) -> Iterator[tuple[str, Any]]:
    """Our backend, layer by layer."""
    torch._dynamo.reset()
    behind: list[Behind] = []

    def backend(graph: Any, examples: Any, **settings: Any) -> Any:
        behind.append(Behind(torch_backend.backend(graph, examples, **settings)))
        return behind[-1]

    compiled = torch.compile(module, backend=backend, options=dict(options))
    for _ in range(40):
        compiled(**given)
    (program,) = torch_backend.live_programs()[-1:]
    call = partial(compiled, **given)
    layers = [(each, "function", "behind guards") for each in behind[-1:]]
    layers += [
        (torch_backend.CompiledFunction, "__call__", "compiled function"),
        (torch_backend._FixedFunction, "fits", "weights as before"),
        (torch_backend._FixedFunction, "__call__", "with these weights"),
    ]
    yield name, call
    yield name, Inside(call, program, layers)


def optimized(module: Any, given: Mapping[str, Any], device: str) -> Iterator[tuple[str, Any]]:
    """A program of `capgraph.optimize`, called as the module."""
    options = {"executor": "graph"} if device == "cpu" else {}
    with capgraph.optimize(module, kwargs=dict(given), **options) as program:
        for _ in range(40):
            program(**given)
        call = partial(program, **given)
        yield "optimize", call
        yield "optimize", Inside(call, program, [])


def other(module: Any, given: Mapping[str, Any], name: str, **settings: Any) -> Iterator[tuple[str, Any]]:
    """Another backend."""
    torch._dynamo.reset()
    compiled = torch.compile(module, **settings)
    for _ in range(6):
        compiled(**given)

    def call() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(**given)

    yield name, call


# ---- times


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def row(call: Call, calls: int) -> dict[str, Any]:
    """The time until a call returns, and how many functions it enters."""
    found: list[float] = []
    for _ in range(calls + WARM):
        wait()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    wait()
    return {**quantiles(found[WARM:]), "busy_us": round(busy_us(call, calls), 1), "functions": entered(call)}


def busy_us(call: Call, calls: int) -> float:
    """The median time of one of a few calls in a row, while earlier ones still run."""
    found: list[float] = []
    for _ in range(calls // TOGETHER):
        start = time.perf_counter()
        for _ in range(TOGETHER):
            call()
        found.append(1e6 * (time.perf_counter() - start) / TOGETHER)
        wait()
    return statistics.median(found)


TOGETHER = 8


WARM = 20


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile, in us."""
    found = sorted(1e6 * each for each in seconds)
    return {"p50_us": round(statistics.median(found), 1), "p99_us": round(found[int(0.99 * len(found))], 1)}


def entered(call: Call) -> int:
    """How many functions of Python and C a call enters."""
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count - 2


def layers(module: Any, given: Mapping[str, Any], device: str, doors: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """All rows of a model."""
    options = {"executor": "graph"} if device == "cpu" else {}
    found: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
        "guards": lambda: other(module, given, "guards", backend=no_work),
        "aot": lambda: other(module, given, "aot", backend=no_work_behind_aot),
        "compile": lambda: compiled_layers(module, given, options),
        "unguarded": lambda: compiled_layers(module, given, {**options, **UNGUARDED}, "unguarded"),
        "optimize": lambda: optimized(module, given, device),
        "reduce-overhead": lambda: other(module, given, "reduce-overhead", mode="reduce-overhead"),
    }
    for door in doors:
        if (
            door != "optimize" or "past_key_values" not in given
        ):  # a cache is an object, which torch.export does not take
            yield from found[door]()


DOORS = ("guards", "aot", "compile", "unguarded", "optimize", "reduce-overhead")
UNGUARDED = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The rows of a model."""
    found: dict[str, Any] = {}
    with torch.no_grad():
        torch.manual_seed(0)
        module, given = MODELS[name](arguments.device)
        module.eval().requires_grad_(False)
        for label, call in layers(module, given, arguments.device, arguments.doors.split(",")):
            begin_again(given)
            if isinstance(call, Inside):
                for layer, seconds in call.times(arguments.calls).items():
                    if seconds:
                        found[f"{label}: {layer}"] = quantiles(seconds[WARM:])
                        print(f"{name:12}{f'  {layer}':28}{found[f'{label}: {layer}']}", flush=True)
                continue
            found[label] = row(call, arguments.calls)
            print(f"{name:12}{label:28}{found[label]}", flush=True)
            if arguments.profile is not None and label in ("torch.compile", "optimize"):
                begin_again(given)
                with cProfile.Profile() as profile:
                    for _ in range(300):
                        call()
                        wait()
                arguments.profile.mkdir(parents=True, exist_ok=True)
                profile.dump_stats(arguments.profile / f"{name}-{label}.prof")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--doors", default=",".join(DOORS))
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=540, help="begin nothing new after this long")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/call_layers.json"))
    arguments = parser.parse_args()
    findings, start = Findings(arguments.out), time.perf_counter()
    for name in arguments.models.split(","):
        if time.perf_counter() - start > arguments.seconds:
            print(f"no time for {name}", flush=True)
            continue
        findings.stage(name, partial(measure, name, arguments))
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
