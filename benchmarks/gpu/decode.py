"""Decoding with a static cache on one GPU: torch.compile with our backend beside PyTorch's own, in one process.

    python -m benchmarks.gpu.decode [decode-1b decode-1b:8 decode-qwen0.6b] [--kinds ours,eager-graph,reduce-overhead]
                                    [--weights bf16,int8,fp8,int4] [--positions 512,16,1000] [--slots 1024]
                                    [--calls 1000] [--out FILE.json] [--profile]

All run the same module with the same weights and caches. The limit is what a step has to read, weights and the cache up
to the position, over the bandwidth of a sum. Rows are of the first position; `at` has others of the same compiled
module. `pairs_us` is the median of calls back to back where all kinds take turns, `ours / this` of the ratios in each
turn. `edges` counts those of our recorded graph by kind. `cache_error` is how far the caches are from those that eager
PyTorch leaves after the same steps, by norm; `same_tokens` how many tokens are its own. `error` and `eager_error` are
how far either is from the same module in f64. Weights other than bf16 are codes: of each linear layer, the logits' too.
Gains of norms are drawn, but for `--plain-gains`, where all are one.
"""

import argparse
import copy
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from capgraph.pytorch import backend as torch_backend

from benchmarks.gpu.decode_model import Decoder, decoder
from benchmarks.gpu.findings import Findings, table
from benchmarks.gpu.host_time import contents
from benchmarks.gpu.peers import environment, host_us, read_bandwidth, summary
from benchmarks.gpu.timing import in_pairs, paired, timed

Call = Callable[[], Any]

CHECKED = 8
"""Steps that are compared, up to the position."""


class DecodeModel:
    """A decoder with its inputs, and what eager PyTorch makes of a few steps."""

    def __init__(
        self, name: str, batch: int, bandwidth: float, weights: str, place: int, slots: int, is_drawn: bool
    ) -> None:
        self.name, self.batch, self.weights, self.place, self.is_drawn = name, batch, weights, place, is_drawn
        self.bandwidth = bandwidth
        self.module: Decoder = decoder(name, batch, device="cuda", weights=weights, slots=slots, is_drawn=is_drawn)
        self.tokens = torch.randint(0, self.module.embedding.num_embeddings, (batch,), device="cuda")
        self.position = torch.tensor([place], device="cuda")
        self._caches = [cache.clone() for cache in self.module.caches]
        caches = sum(cache.numel() * cache.element_size() for cache in self._caches) * (place + 1) / slots
        self.limit_us = 1e6 * (self.module.weight_bytes + caches) / bandwidth
        with torch.no_grad():
            self._expected = self._steps(self.module, lambda: self.module(self.tokens, self.position))
            exact = copy.deepcopy(self.module).double()
            self._exact = self._steps(exact, lambda: exact(self.tokens, self.position))[1]
        self._eager_error = self._distance(self._expected[1], self._exact)

    def _steps(self, module: Decoder, call: Call) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The tokens of a few steps from the first caches on, and the caches behind them."""
        for cache, first in zip(module.caches, self._caches, strict=True):
            cache.copy_(first)
        found = []
        for position in self._checked:
            self.position.fill_(position)
            found.append(call().clone())
        torch.cuda.synchronize()
        self.position.fill_(self.place)
        return found, [cache.clone() for cache in module.caches]

    @property
    def _checked(self) -> range:
        return range(max(0, self.place - CHECKED), self.place)

    def check(self, call: Call) -> dict[str, Any]:
        """How far a few steps are from eager PyTorch's."""
        tokens, caches = self._steps(self.module, call)
        same = sum(bool((a == b).all()) for a, b in zip(tokens, self._expected[0], strict=True))
        return {
            "same_tokens": f"{same}/{len(tokens)}",
            "cache_error": self._distance(caches, self._expected[1]),
            "error": self._distance(caches, self._exact),
            "eager_error": self._eager_error,
        }

    def _distance(self, caches: list[torch.Tensor], others: list[torch.Tensor]) -> float:
        """The greatest of all caches, by norm, of the rows that the steps have written."""
        slots = slice(self._checked.start, self._checked.stop)
        errors = [
            float((a[:, :, slots].double() - b[:, :, slots].double()).norm() / b[:, :, slots].double().norm())
            for a, b in zip(caches, others, strict=True)
        ]
        return float(f"{max(errors):.2e}")


def _eager(model: DecodeModel) -> Iterator[Call]:
    yield lambda: model.module(model.tokens, model.position)


def _eager_graph(model: DecodeModel) -> Iterator[Call]:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model.module(model.tokens, model.position)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = model.module(model.tokens, model.position)

    def call() -> torch.Tensor:
        graph.replay()
        return y

    yield call


def _compiled(**settings: Any) -> Callable[[DecodeModel], Iterator[Call]]:
    def prepare(model: DecodeModel) -> Iterator[Call]:
        module = torch.compile(model.module, fullgraph=True, **settings)

        def call() -> Any:
            torch.compiler.cudagraph_mark_step_begin()
            return module(model.tokens, model.position)

        for _ in range(4):
            call()
        yield call

    return prepare


def _ours(model: DecodeModel) -> Iterator[Call]:
    module = torch.compile(model.module, fullgraph=True, backend=torch_backend.backend)
    for _ in range(4):
        module(model.tokens, model.position)
    yield lambda: module(model.tokens, model.position)


KINDS: Mapping[str, Callable[[DecodeModel], Iterator[Call]]] = {
    "ours": _ours,
    "eager": _eager,
    "eager-graph": _eager_graph,
    "compile": _compiled(),
    "reduce-overhead": _compiled(mode="reduce-overhead"),
    "max-autotune": _compiled(mode="max-autotune"),
}
USUAL = ("ours", "eager-graph", "reduce-overhead", "max-autotune")


class Measured:
    """A model in all kinds that are asked for, one after another; then they take turns."""

    def __init__(self, model: DecodeModel, calls: int, positions: Sequence[int], has_profile: bool) -> None:
        self.model, self.calls, self.positions, self.has_profile = model, calls, positions, has_profile
        self.live: dict[str, Call] = {}
        self.rows: list[dict[str, Any]] = []
        torch._dynamo.reset()

    @torch.no_grad()
    def measure(self, kind: str) -> dict[str, Any]:
        """One row."""
        model, start = self.model, time.perf_counter()
        call = next(KINDS[kind](model))
        torch.cuda.synchronize()
        setup = time.perf_counter() - start
        checked = model.check(call)
        times = timed(call, torch.cuda.synchronize, seconds=1.0, warm_up=20, calls=self.calls)
        self.live[kind] = call
        row = {
            "model": f"{model.name}:{model.batch}",
            "weights": model.weights + ("" if model.is_drawn else " plain"),
            "position": f"{model.place}/{model.module.caches[0].shape[2]}",
            "kind": kind,
            "many_us": round(times.many_us, 1),
            "limit_us": round(model.limit_us, 1),
            "of_limit": round(times.many_us / model.limit_us, 3),
            "p50_us": round(times.one_us, 1),
            "p99_us": round(times.one_p99_us, 1),
            "host_us": round(host_us(call), 1),
            "at": {place: round(self._at(place, call), 1) for place in self.positions},
            **checked,
            "setup_s": round(setup, 1),
        }
        self.rows.append(row)
        return row | (self._of_ours() if kind == "ours" else {})

    def _at(self, place: int, call: Call) -> float:
        """Microseconds of a call back to back at another position."""
        self.model.position.fill_(place)
        found = timed(call, torch.cuda.synchronize, warm_up=20).many_us
        self.model.position.fill_(self.model.place)
        return found

    def _of_ours(self) -> dict[str, Any]:
        """What was recorded, and the time of each launch."""
        model, program = self.model, torch_backend.live_programs()[-1]
        graph = contents(program)
        found = {"launches": sum(graph["nodes"].values()), "nodes": graph["nodes"], "edges": graph["edges"]}
        self.rows[-1] |= {"launches": found["launches"]}
        if self.has_profile:
            sizes = {name: ty for name, ty in program.inputs.items() if name not in program.states}
            given = dict(zip(sizes, (model.tokens, model.position), strict=True))
            print("\n".join(f"  {line}" for line in summary(program.profile(given), model.bandwidth)), flush=True)
        return found

    @torch.no_grad()
    def take_turns(self) -> dict[str, Any]:
        """All kinds that ran, in pairs with ours."""
        found = in_pairs(paired(self.live, torch.cuda.synchronize), "ours")
        for row in self.rows:
            row |= {"pairs_us": found[row["kind"]]["us"], "ours / this": found[row["kind"]]["ours / this"]}
        return found


COLUMNS = (
    *("model", "weights", "position", "kind", "many_us", "limit_us", "of_limit", "pairs_us", "ours / this", "p50_us"),
    *("p99_us", "host_us", "at", "same_tokens", "error", "eager_error", "launches", "setup_s"),
)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["decode-1b"], help="with :BATCH for another than 1")
    parser.add_argument("--kinds", default=",".join(USUAL), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--weights", default="bf16", help="formats, of bf16, int8, fp8, int4 (blocks of 128)")
    parser.add_argument("--positions", default="512", help="the first is that of the rows")
    parser.add_argument("--slots", type=int, default=1024, help="rows of a cache")
    parser.add_argument("--plain-gains", action="store_true", help="gains of norms are one")
    parser.add_argument("--calls", type=int, default=1000, help="at least so many are waited for one by one")
    parser.add_argument("--profile", action="store_true", help="also time each launch of ours")
    parser.add_argument("--seconds", type=float, default=540, help="begin nothing new after this long")
    parser.add_argument("--out", type=Path, default=Path("build/decode.json"))
    return parser.parse_args()


def main() -> int:
    arguments, start = parsed(), time.perf_counter()
    findings = Findings(arguments.out)
    findings.stage("environment", environment)
    bandwidth = read_bandwidth()
    place, *others = map(int, arguments.positions.split(","))
    rows: list[Mapping[str, Any]] = []
    for subject, weights in product(arguments.models, arguments.weights.split(",")):
        name, _, batch = subject.partition(":")
        if time.perf_counter() - start > arguments.seconds:
            print(f"no time for {subject} {weights}", flush=True)
            continue
        settings = weights, place, arguments.slots, not arguments.plain_gains
        measured = Measured(
            DecodeModel(name, int(batch or 1), bandwidth, *settings), arguments.calls, others, arguments.profile
        )
        for kind in arguments.kinds.split(","):
            if time.perf_counter() - start > arguments.seconds:
                print(f"no time for {subject} {weights} {kind}", flush=True)
                continue
            findings.stage(f"{subject} {weights}: {kind}", partial(measured.measure, kind))
        if "ours" in measured.live and len(measured.live) > 1:
            findings.stage(f"{subject} {weights}: in turns", measured.take_turns)
        rows += measured.rows
        del measured
        gc.collect()
        torch.cuda.empty_cache()
    print(f"\nread bandwidth {bandwidth / 1e12:.2f} TB/s")
    print(table(rows, COLUMNS), flush=True)
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
