"""The ways into a recorded model: `capgraph.optimize`, `torch.compile` with our backend, and PyTorch's own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import capgraph
import torch
from capgraph.executors.replay.counters import Stats
from capgraph.program import Program
from capgraph.pytorch.backend import live_programs
from torch import nn

Call = Callable[[], Any]

_FALLBACKS = ("runs on the host:", "fell back", "refused", "outside:", "eager:")
"""How lines of `explain()` about work that is not recorded, or not done by the first choice, begin."""

_USUAL = "first call of its bucket"


@dataclass(slots=True)
class Door:
    """A model behind one door: `call` gives its results for the inputs as they lie; `facts` are for its row."""

    call: Call
    facts: Callable[[], dict[str, Any]]
    programs: list[Program] = field(default_factory=list)


def by_optimize(module: nn.Module, inputs: Sequence[torch.Tensor], *, tune: bool | None = None) -> Door:
    """Inputs and results stay where they are."""
    capture = {"inputs": {"": "refuse"}, "copy_outputs": False, "beyond": "exact"}
    device = "cuda" if inputs[0].is_cuda else "host"
    program = capgraph.optimize(module, args=tuple(inputs), executor="graph", device=device, capture=capture, tune=tune)
    names = program._model.inputs  # None for what the module never reads
    given = {name: each for name, each in zip(names, inputs, strict=True) if name is not None}
    return Door(lambda: list(program.run(given).values()), lambda: _facts([program]), [program])


def by_compile(module: nn.Module, inputs: Sequence[torch.Tensor], *, tune: bool | None = None) -> Door:
    """`torch.compile(backend="capgraph")` with its default options."""
    before = live_programs()
    options: dict[str, Any] = {} if tune is None else {"tune": tune}
    if not inputs[0].is_cuda:
        options["executor"] = "graph"  # as it is on a GPU
    compiled = torch.compile(module, backend="capgraph", dynamic=False, options=options)

    def ours() -> list[Program]:
        return [each for each in live_programs() if not any(each is other for other in before)]

    compiled(*inputs)
    return Door(lambda: compiled(*inputs), lambda: _facts(ours()), list(ours()))


def by_reduce_overhead(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Door:
    """PyTorch's own compiler with CUDA graphs."""
    compiled = torch.compile(module, mode="reduce-overhead", dynamic=False)

    def call() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*inputs)

    return Door(call, lambda: _facts_of_inductor(call))


def by_eager(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Door:
    """The module as it is."""
    return Door(lambda: module(*inputs), dict)


def _facts(programs: Sequence[Program]) -> dict[str, Any]:
    stats: list[Stats] = [each.stats() for each in programs]
    buckets = [bucket for each in stats for bucket in each.buckets]
    lines = [line.strip() for each in programs for line in each.explain().splitlines()]
    said = [line for line in lines if line.startswith(_FALLBACKS) and not line.endswith(_USUAL)]
    return {
        "programs": len(programs),
        "segments": sum(each.segments for each in buckets),
        "launches": sum(each.kernels for each in buckets),
        "eager_steps": sum(each.eager_steps for each in buckets),
        "eager_calls": sum(each.counters.eager_calls for each in stats),
        "host_steps": [line.partition(": ")[2] for line in lines if line.startswith("runs on the host:")],
        "said": list(dict.fromkeys(said)),
        "is_one": len(buckets) == 1 and buckets[0].segments == 1 and not buckets[0].eager_steps,
    }


def _facts_of_inductor(call: Call) -> dict[str, Any]:
    with _counted_replays() as replays:
        call()
        torch.cuda.synchronize()
    skips = int(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])
    return {"segments": replays[0], "skips": skips, "is_one": replays[0] == 1 and not skips}


@contextmanager
def _counted_replays() -> Iterator[list[int]]:
    """Counts the CUDA graphs that torch replays inside."""
    found, replay = [0], torch.cuda.CUDAGraph.replay

    def counting(graph: Any) -> None:
        found[0] += 1
        replay(graph)

    torch.cuda.CUDAGraph.replay = counting
    try:
        yield found
    finally:
        torch.cuda.CUDAGraph.replay = replay
