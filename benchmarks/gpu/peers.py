"""Ours beside other runtimes on one GPU, in one process: the same modules in f16 with the same weights and inputs.

    python -m benchmarks.gpu.peers [mlp resnet50 bert gpt2] [--kinds ours,eager,reduce-overhead] [--batches 1,32]
                                   [--out FILE.json] [--profile]

Each runtime gets its input where it lies and gives its result where it likes. A row has the median and the 99th
percentile of calls that are waited for, the median of calls back to back, and of the host time of a call that is not
waited for; errors are against the module in f64. The limit is the time to read all weights once. Then all runtimes take
turns: `pairs_us` is the median of calls back to back there, `ours / this` of the ratios in each turn.
"""

import argparse
import gc
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import capgraph
import torch
from capgraph.executors.cuda.run.profile import Profile, Rates

from benchmarks.gpu.findings import Findings, table
from benchmarks.gpu.peer_models import BUILDERS, PeerModel
from benchmarks.gpu.timing import in_pairs, paired, timed

Call = Callable[[], Any]

CHECKS = 3
AT_A_TIME = 16
"""How many calls are enqueued without waiting to see their host time: few enough that no queue fills up."""

READ_BYTES = 4 << 30


def read_bandwidth() -> float:
    """Bytes a second that a sum over 4 GiB reads."""
    x = torch.randn(READ_BYTES // 4, device="cuda")
    best = float("inf")
    for _ in range(8):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        x.sum()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end))
    return READ_BYTES / (best * 1e-3)


# ---- the runtimes: each makes a call, and may return what else is to be said of it


def _eager(model: PeerModel) -> Iterator[Call]:
    yield lambda: model.module(model.x)


def _eager_graph(model: PeerModel) -> Iterator[Call]:
    """Eager work recorded by hand."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model.module(model.x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = model.module(model.x)

    def call() -> torch.Tensor:
        graph.replay()
        return y

    yield call


def _compiled(mode: str | None) -> Callable[[PeerModel], Iterator[Call]]:
    def prepare(model: PeerModel) -> Iterator[Call]:
        module = torch.compile(model.module, mode=mode, fullgraph=True)

        def call() -> Any:
            torch.compiler.cudagraph_mark_step_begin()
            return module(model.x)

        for _ in range(3):
            call()
        yield call

    return prepare


def _onnxruntime(is_graph: bool) -> Callable[[PeerModel], Iterator[Call]]:
    def prepare(model: PeerModel) -> Iterator[Call]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        provider = {"enable_cuda_graph": str(int(is_graph))}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.onnx)
            session = onnxruntime.InferenceSession(path, options, providers=[("CUDAExecutionProvider", provider)])
        if "CUDAExecutionProvider" not in session.get_providers():
            raise RuntimeError("this onnxruntime has no provider for CUDA")
        y = torch.empty_like(model.module(model.x))
        binding = session.io_binding()
        for bind, name, tensor in ((binding.bind_input, "x", model.x), (binding.bind_output, "y", y)):
            dtype = str(tensor.dtype).removeprefix("torch.")
            bind(name, "cuda", 0, dtype, list(tensor.shape), tensor.data_ptr())
        run_options = onnxruntime.RunOptions()
        run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")

        def call() -> torch.Tensor:
            session.run_with_iobinding(binding, run_options)
            return y

        for _ in range(3):
            call()
        yield call

    return prepare


def _ours(capture: Mapping[str, Any]) -> Callable[[PeerModel], Iterator[Call]]:
    def prepare(model: PeerModel) -> Iterator[Call]:
        with capgraph.optimize(
            model.graph(), executor="graph", device="cuda", mode="full", capture=capture, strict=True
        ) as program:
            inputs = {"x": model.x}
            for _ in range(4):
                program.run(inputs)
            yield lambda: program.run(inputs)["y"]
            stats = program.stats()
            if stats.refused or len(stats.buckets) != 1 or stats.buckets[0].segments != 1:
                raise RuntimeError(f"not recorded whole: {program.explain()}")

    return prepare


KINDS: Mapping[str, Callable[[PeerModel], Iterator[Call]]] = {
    "ours": _ours({"inputs": {"x": "refuse"}, "copy_outputs": False}),
    "ours-copied": _ours({"inputs": {"x": "copy"}, "copy_outputs": True}),
    "eager": _eager,
    "eager-graph": _eager_graph,
    "compile": _compiled(None),
    "reduce-overhead": _compiled("reduce-overhead"),
    "max-autotune": _compiled("max-autotune"),
    "ort": _onnxruntime(is_graph=False),
    "ort-graph": _onnxruntime(is_graph=True),
}
USUAL = ("ours", "ours-copied", "eager", "eager-graph", "reduce-overhead", "ort-graph", "compile", "ort")


def host_us(call: Call) -> float:
    """Microseconds of host time that a call takes before it returns, while earlier ones still run: the median."""
    found = []
    for _ in range(40):
        start = time.perf_counter()
        for _ in range(AT_A_TIME):
            call()
        found.append((time.perf_counter() - start) / AT_A_TIME)
        torch.cuda.synchronize()
    return statistics.median(found) * 1e6


class Measured:
    """A model in all kinds that are asked for, one after another; then they take turns. To be closed."""

    def __init__(self, model: PeerModel, bandwidth: float) -> None:
        self.model = model
        self.live: dict[str, Call] = {}
        self.rows: list[dict[str, Any]] = []
        self._limit_us = 1e6 * model.weight_bytes / bandwidth
        self._prepared: list[Iterator[Call]] = []
        torch._dynamo.reset()

    @torch.no_grad()
    def measure(self, kind: str) -> dict[str, Any]:
        """One row: how long the set-up and calls take, and how wrong results are on fresh inputs."""
        model, start = self.model, time.perf_counter()
        prepared = KINDS[kind](model)
        call = next(prepared)
        self._prepared.append(prepared)
        torch.cuda.synchronize()
        setup = time.perf_counter() - start
        worst = 0.0
        for _ in range(CHECKS):
            model.x.copy_(model.draw())
            torch.cuda.synchronize()  # not every runtime uses torch's stream
            found = call()
            torch.cuda.synchronize()
            worst = max(worst, model.error(found, model.x))
        times = timed(call, torch.cuda.synchronize, seconds=1.0, warm_up=20)
        self.live[kind] = call
        row = {
            "model": f"{model.name}:{model.batch}",
            "kind": kind,
            "many_us": round(times.many_us, 1),
            "limit_us": round(self._limit_us, 1),
            "p50_us": round(times.one_us, 1),
            "p99_us": round(times.one_p99_us, 1),
            "host_us": round(host_us(call), 1),
            "error": float(f"{worst:.2e}"),
            "setup_s": round(setup, 1),
        }
        self.rows.append(row)
        return row

    @torch.no_grad()
    def take_turns(self) -> dict[str, Any]:
        """All kinds that ran, in pairs with ours."""
        found = in_pairs(paired(self.live, torch.cuda.synchronize), "ours")
        for row in self.rows:
            row |= {"pairs_us": found[row["kind"]]["us"], "ours / this": found[row["kind"]]["ours / this"]}
        return found

    def close(self) -> None:
        """Ends all; raises where ours was not recorded whole."""
        for prepared in reversed(self._prepared):
            next(prepared, None)


# ---- profiles


def profiled(model: PeerModel) -> Profile:
    """Each launch of ours by itself."""
    with capgraph.optimize(model.graph(), executor="graph", device="cuda", mode="full") as program:
        return program.profile({"x": model.x})


def summary(profile: Profile, bandwidth: float) -> list[str]:
    """Launches by op and candidate: how many, microseconds together, and the share of what is possible."""
    rates = Rates(bandwidth)
    groups: dict[tuple[str, str, int], list[Any]] = defaultdict(list)
    for each in profile.launches:
        groups[each.op, each.candidate.partition(" ")[0], each.nbytes].append(each)
    lines = []
    for (op, candidate, nbytes), found in groups.items():
        seconds = sum(each.seconds or 0.0 for each in found)
        share = sum(each.share(rates) * (each.seconds or 0.0) for each in found) / max(seconds, 1e-12)
        text = (
            f"{1e6 * seconds:8.1f} us {len(found):3} x {1e6 * seconds / len(found):6.2f}  {100 * share:3.0f}% of best"
        )
        lines.append((seconds, f"{text}  {op} {candidate} {nbytes} B"))
    total = f"{len(profile.launches)} launches, {1e6 * profile.launch_seconds:.1f} us one by one, "
    return [total + f"{1e6 * profile.call_seconds:.1f} us a call", *(line for _, line in sorted(lines, reverse=True))]


# ---- the run


def environment() -> dict[str, Any]:
    """What a result depends on."""
    packages = ("torch", "cupy-cuda13x", "cuda-core", "nvmath-python", "nvidia-cudnn-frontend", "transformers")
    versions = {name: _version(name) for name in (*packages, "onnxruntime", "onnxruntime-gpu", "numpy")}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name(),
        "cudnn": torch.backends.cudnn.version(),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "read_tb_per_s": round(read_bandwidth() / 1e12, 2),
        "versions": {name: version for name, version in versions.items() if version},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(BUILDERS)}, with :BATCH for another than 1")
    parser.add_argument("--kinds", default=",".join(USUAL), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--profile", action="store_true", help="also time each launch of ours")
    parser.add_argument("--seconds", type=float, default=540, help="begin nothing new after this long")
    parser.add_argument("--out", type=Path, default=Path("build/peers.json"))
    return parser.parse_args()


def main() -> int:
    arguments, start = parsed(), time.perf_counter()
    findings = Findings(arguments.out)
    findings.stage("environment", environment)
    bandwidth, rows = read_bandwidth(), list[Mapping[str, Any]]()
    for subject in arguments.models or ("mlp", "resnet50", "bert", "gpt2"):
        name, _, batch = subject.partition(":")
        made: list[Measured] = []
        findings.stage(
            f"{subject}: export",
            lambda: made.append(Measured(PeerModel(name, int(batch or 1)), bandwidth)),  # noqa: B023
        )
        if not made:
            continue
        (measured,) = made
        for kind in arguments.kinds.split(","):
            if time.perf_counter() - start > arguments.seconds:
                print(f"no time for {subject} {kind}", flush=True)
                continue
            findings.stage(f"{subject}: {kind}", partial(measured.measure, kind))
        if "ours" in measured.live and len(measured.live) > 1:
            findings.stage(f"{subject}: in turns", measured.take_turns)
        findings.stage(f"{subject}: end", measured.close)
        if arguments.profile:
            findings.stage(f"{subject}: profile", partial(_printed_profile, measured.model, bandwidth))
        rows += measured.rows
        made.clear()
        del measured
        gc.collect()
        torch.cuda.empty_cache()
    print(f"\nread bandwidth {bandwidth / 1e12:.2f} TB/s")
    print(table(rows, COLUMNS), flush=True)
    return 1 if findings.failed else 0


COLUMNS = (
    *("model", "kind", "many_us", "limit_us", "pairs_us", "ours / this", "p50_us", "p99_us", "host_us", "error"),
    "setup_s",
)


def _printed_profile(model: PeerModel, bandwidth: float) -> dict[str, Any]:
    lines = summary(profiled(model), bandwidth)
    print("\n".join(f"  {line}" for line in lines), flush=True)
    return {"lines": lines}


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "0")
    sys.exit(main())
