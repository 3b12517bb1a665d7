"""Plans of an MLP and of BERT on a CUDA device: run eagerly, recorded through CuPy, replayed, and held against PyTorch.

    python -m benchmarks.gpu.record_plans [--models mlp bert] [--quick] [--out FOLDER]

Kernels are the simplest ones that do what each step of a plan needs (`kernels.py`, `matmuls.py`), so times say what
launching costs and not what the models could take. Every comparison draws fresh inputs, poisons the whole arena first,
and is against the module in f64. Piecewise recordings keep attention outside. Findings go to FOLDER/record_plans.json.
"""

import argparse
import copy
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from capgraph.ir.constant import Array
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA
from capgraph.passes.catalog import level_pipeline
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.partition import CapturePolicy
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from . import models
from .device import Constants, DevicePlan, arena_for
from .findings import Findings
from .models import Model
from .timing import Call, Times, timed

TOLERANCES = {"float32": 1e-5, "float16": 1e-2}
"""The most that the norm of the error may be, relative to the norm of the result."""

FULL = CapturePolicy(min_kernels=0)
PIECEWISE = CapturePolicy(keep_outside=frozenset({"attention"}))
SAMPLES = 3
ALONE = 20
"""How many times in a row a kernel is recorded to be timed alone."""


@dataclass(frozen=True)
class Case:
    """One plan to record: a model at a batch size, an optimization level and a capture policy."""

    batch: int
    level: int
    policy: CapturePolicy

    @property
    def mode(self) -> str:
        return "piecewise" if self.policy.keep_outside else "full"


def plan_of(model: Model, case: Case) -> Plan:
    """The checked plan of a case."""
    graph = model.graph().clone()
    level_pipeline(case.level).run(graph)
    plan = make_plan(graph, model.sizes(case.batch), CUDA, PlanPolicy(case.policy))
    check_plan(plan)
    return plan


# ---- correctness


def relative_error(given: Array, expected: Array) -> float:
    """The norm of the difference over the norm of what was expected; infinite where something is not finite."""
    difference = given.astype(np.float64) - expected.astype(np.float64)
    error = float(np.linalg.norm(difference) / np.linalg.norm(expected.astype(np.float64)))
    return error if np.isfinite(error) else float("inf")


def reference_of(model: Model) -> Callable[[Array], Array]:
    """The module with the same weights, in f64."""
    wide = copy.deepcopy(model.module).double().cuda()

    def run(given: Array) -> Array:
        x = torch.from_numpy(given).cuda()
        with torch.no_grad():
            found: Array = wide(x if model.vocabulary else x.double()).cpu().numpy()
        return found

    return run


def torch_error(model: Model, reference: Callable[[Array], Array], batch: int) -> float:
    """How far PyTorch itself is from f64 in the dtype of the model."""
    given = model.draw(np.random.default_rng(1), batch)
    with torch.no_grad():
        found = model.module.cuda()(torch.from_numpy(given).cuda()).cpu().numpy()
    return relative_error(found, reference(given))


def run_once(device: DevicePlan, given: Array, run: Call) -> Array:
    """Poisons everything, copies the input to its place, and runs."""
    device.poison()
    device.load([given])
    run()
    device.wait()
    return device.results()[0]


def check(device: DevicePlan, model: Model, reference: Callable[[Array], Array], batch: int) -> dict[str, Any]:
    """Eager against f64, then replays of one recording on several inputs against f64 and against eager bit by bit."""
    rng = np.random.default_rng(2)
    eager = [model.draw(rng, batch) for _ in range(SAMPLES)]
    expected = [reference(given) for given in eager]
    results = [run_once(device, given, device.eager) for given in eager]
    segments = device.capture()
    replayed = [run_once(device, given, device.replay) for given in eager]
    fresh = [model.draw(rng, batch) for _ in range(SAMPLES)]
    again = [run_once(device, given, device.replay) for given in fresh]
    return {
        "graphs": segments,
        "eager_error": max(map(relative_error, results, expected)),
        "replay_error": max(map(relative_error, replayed, expected)),
        "fresh_error": max(map(relative_error, again, map(reference, fresh))),
        "same_bits": all(a.tobytes() == b.tobytes() for a, b in zip(results, replayed, strict=True)),
    }


def check_placed(device: DevicePlan, model: Model, reference: Callable[[Array], Array], batch: int) -> dict[str, Any]:
    """Records again with the input outside the arena, and replays twice without touching it in between."""
    given = model.draw(np.random.default_rng(4), batch)
    device.place([given])
    device.eager()
    device.capture()
    device.poison()
    device.replay()
    device.replay()
    device.wait()
    return {"placed_error": relative_error(device.results()[0], reference(given))}


# ---- times


def torch_times(model: Model, batch: int) -> dict[str, Any]:
    """PyTorch eager, the same in one CUDA graph, and the bytes that it allocates on the way."""
    module = model.module.cuda()
    x = torch.from_numpy(model.draw(np.random.default_rng(3), batch)).cuda()
    with torch.no_grad():
        module(x)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        module(x)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        eager = timed(lambda: module(x), torch.cuda.synchronize)
        graph = torch_graph(module, x)
        recorded = timed(graph.replay, torch.cuda.synchronize)
    return {"torch_peak_bytes": peak, "torch_eager": asdict(eager), "torch_graph": asdict(recorded)}


def torch_graph(module: Any, x: Any) -> Any:
    """The module recorded by PyTorch."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(x)
    return graph


def plan_times(device: DevicePlan) -> tuple[Times, Times]:
    """Eager and replay of a recorded plan, inputs in place."""
    return timed(device.eager, device.wait), timed(device.replay, device.wait)


def kernel_times(device: DevicePlan) -> list[dict[str, Any]]:
    """Each distinct kernel alone, many in one graph, so with what lies between dependent kernels."""
    counts = Counter(launch.name for launch in device.kernels)
    first = {launch.name: launch for launch in reversed(device.kernels)}
    found: list[dict[str, Any]] = []
    for name, launch in first.items():
        graph = device.launch_alone(launch, ALONE)
        times = timed(lambda graph=graph: graph.launch(device.stream), device.wait, seconds=0.02)
        found.append({"kernel": name, "op": launch.op, "count": counts[name], "us": times.many_us / ALONE})
    return sorted(found, key=lambda each: -each["us"] * each["count"])


# ---- cases


def facts(plan: Plan, device: DevicePlan) -> dict[str, Any]:
    """What there is to know of a plan without running it."""
    return {
        "steps": len(plan.steps),
        "kernels": len(device.kernels),
        "ops": dict(Counter(launch.op for launch in device.kernels)),
        "segments": len(plan.segments),
        "arena_bytes": plan.arena_bytes,
        "lower_bound": plan.lower_bound,
    }


def record(model: Model, case: Case, device: DevicePlan, reference: Callable[[Array], Array]) -> dict[str, Any]:
    """Checks and times one case."""
    found: dict[str, Any] = {"model": model.name, "dtype": model.dtype, "batch": case.batch, "level": case.level}
    found |= {"mode": case.mode, **facts(device.plan, device)}
    found |= check(device, model, reference, case.batch)
    found |= check_placed(device, model, reference, case.batch)
    found["passed"] = is_right(found)
    eager, graph = plan_times(device)
    return {**found, "eager": asdict(eager), "graph": asdict(graph), "kernel_times": kernel_times(device)}


def is_right(found: Mapping[str, Any]) -> bool:
    """Whether all errors are within the tolerance of the dtype, and replays gave the bits of eager execution."""
    worst = max(found[f"{name}_error"] for name in ("eager", "replay", "fresh", "placed"))
    return bool(worst <= TOLERANCES[found["dtype"]] and found["same_bits"] and found["graphs"] >= 1)


def cases_of(model: Model, batches: Sequence[int]) -> list[Case]:
    """Levels 1 and 2 in one graph, and level 2 in segments where there is attention to keep outside."""
    found = [Case(batch, level, FULL) for batch in batches for level in (1, 2)]
    return [*found, Case(batches[0], 2, PIECEWISE)] if model.vocabulary else found


def run_model(model: Model, batches: Sequence[int], findings: Findings) -> list[Mapping[str, Any]]:
    """Every case of a model, in one arena that all of them share, and PyTorch beside them."""
    title = f"{model.name} {model.dtype}"
    rows: list[Mapping[str, Any]] = []
    plans: dict[Case, Plan] = {}

    def prepare() -> Mapping[str, Any]:
        plans.update((case, plan_of(model, case)) for case in cases_of(model, batches))
        return {"plans": len(plans), "largest_arena": max(plan.arena_bytes for plan in plans.values())}

    if findings.stage(f"{title}: export and plan", prepare) is None:
        return rows
    arena, constants, reference = arena_for(list(plans.values())), Constants(), reference_of(model)
    peers: dict[int, Mapping[str, Any]] = {}
    for batch in batches:
        measured = findings.stage(f"{title} b{batch}: torch", lambda batch=batch: torch_row(model, reference, batch))
        peers[batch] = measured or {}
    for case, plan in plans.items():

        def work(case: Case = case, plan: Plan = plan) -> Mapping[str, Any]:
            device = DevicePlan(plan, arena, constants)
            return {**record(model, case, device, reference), **peers[case.batch]}

        row = findings.stage(f"{title} b{case.batch} level {case.level} {case.mode}", work)
        rows += [row] if row is not None else []
    return rows


def torch_row(model: Model, reference: Callable[[Array], Array], batch: int) -> dict[str, Any]:
    """What PyTorch does with a model."""
    return {"torch_error": torch_error(model, reference, batch), **torch_times(model, batch)}


# ---- the whole


def environment() -> dict[str, Any]:
    """The device and the versions that matter."""
    import cupy

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "torch": torch.__version__,
        "cupy": cupy.__version__,
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
    }


def warm_up(seconds: float = 1.0) -> None:
    """Work that brings the clocks up."""
    x = torch.randn(4096, 4096, device="cuda")
    timed(lambda: x @ x, torch.cuda.synchronize, seconds)


COLUMNS = ("eager", "graph", "torch_eager", "torch_graph")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Microseconds of a call that is waited for, and memory."""
    head = f"{'case':<34} {'kernels':>7} {'graphs':>6}" + "".join(f"{name:>12}" for name in COLUMNS)
    lines = [head + f"{'arena KiB':>11}{'torch KiB':>11}{'error':>10}{'torch err':>10}  ok"]
    for row in rows:
        name = f"{row['model']} {row['dtype']} b{row['batch']} L{row['level']} {row['mode']}"
        times = "".join(f"{row[key]['one_us'] if key in row else float('nan'):>12.1f}" for key in COLUMNS)
        memory = f"{row['arena_bytes'] / 1024:>11.1f}{row.get('torch_peak_bytes', 0) / 1024:>11.1f}"
        errors = f"{row['fresh_error']:>10.1e}{row.get('torch_error', float('nan')):>10.1e}"
        lines.append(f"{name:<34} {row['kernels']:>7} {row['graphs']:>6}{times}{memory}{errors}  {row['passed']}")
    return "\n".join(lines)


def kernel_table(row: Mapping[str, Any], most: int = 8) -> str:
    """The kernels that take most of a plan."""
    total = sum(each["us"] * each["count"] for each in row["kernel_times"])
    lines = [
        f"kernels of {row['model']} {row['dtype']} b{row['batch']} L{row['level']}: {total:.0f} us when timed alone"
    ]
    for each in row["kernel_times"][:most]:
        lines.append(f"  {each['op']:<12} x{each['count']:<4} {each['us']:>8.2f} us each")
    return "\n".join(lines)


def subjects(names: Sequence[str], is_quick: bool) -> list[tuple[Model, tuple[int, ...]]]:
    """Models with their batch sizes."""
    found: list[tuple[Model, tuple[int, ...]]] = []
    for dtype in ("float32", "float16"):
        if "mlp" in names:
            found.append((models.mlp(dtype, layers=4 if is_quick else 64), (1, 16) if is_quick else (1, 64, 512)))
        if "bert" in names:
            found.append((models.bert(dtype, layers=2 if is_quick else 12), (1,)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", default=["mlp", "bert"], choices=["mlp", "bert"])
    parser.add_argument("--quick", action="store_true", help="few layers")
    parser.add_argument("--out", type=Path, default=Path("build") / "benchmarks")
    arguments = parser.parse_args()
    findings = Findings(arguments.out / f"record_plans_{'_'.join(arguments.models)}.json")
    findings.stage("environment", environment)
    findings.stage("warm-up", warm_up)
    rows = [
        row
        for model, batches in subjects(arguments.models, arguments.quick)
        for row in run_model(model, batches, findings)
    ]
    print("\n" + "\n".join(kernel_table(row) for row in rows if row["batch"] == 1 and row["mode"] == "full"))
    print("\nmicroseconds of a call that is waited for\n" + table(rows))
    wrong = [f"{row['model']} {row['dtype']} b{row['batch']}" for row in rows if not row["passed"]]
    print(f"\nfailed stages: {findings.failed or 'none'}; wrong results: {wrong or 'none'}")
    return 1 if wrong or findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
