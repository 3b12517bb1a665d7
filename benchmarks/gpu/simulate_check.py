"""How well `capgraph.simulate` predicts what is measured: costs are fitted to small plans, and others are predicted.

    python -m benchmarks.gpu.simulate_check [--quick] [--held-out] [--out FOLDER]

Fitted to: chains of additions, of layer norms and of matmuls, and MLPs of other widths. Predicted: MLPs and BERT, none
of which was fitted to, eager and recorded; with `--held-out` the plans of `held_out.py`, which nobody had looked at
when the form of the model was chosen. The kernels are those of `record_plans`, so the fitted rates are theirs. What a
launch costs the host changes from one machine and moment to the next: costs are fitted in the process that measures,
and a chain of tiny kernels before and after each predicted plan tells what launches cost at that time.
All measurements go to FOLDER/simulate_check.json, with bytes and FLOPs of every kernel, so fits can be repeated without
a device.
"""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA
from capgraph.passes.planning.planner import PlanPolicy, make_plan
from capgraph.passes.planning.simulation import H200, Costs, simulate

from . import held_out, models
from .device import Constants, DevicePlan, arena_for
from .findings import Findings
from .record_plans import FULL, PIECEWISE, Case, environment, kernel_times, plan_of, plan_times, warm_up

ALLOWED = 0.2
"""How far a prediction may be from what is measured."""

TINY = 1024
HUGE = 1 << 26


@dataclass(frozen=True)
class Pair:
    """A plan and what it took, in microseconds, as a whole and each of its kernels alone."""

    name: str
    plan: Plan
    eager_us: float
    graph_us: float
    alone: Sequence[Mapping[str, Any]] = ()


# ---- plans to fit to


def additions(length: int, size: int) -> Graph:
    b = Builder()
    x, y = b.input("x", f"f32[{size}]"), b.input("y", f"f32[{size}]")
    for _ in range(length):
        x = b.op("add", x, y)
    return b.finish([x])


def norms(length: int, rows: int, width: int) -> Graph:
    b = Builder()
    x = b.input("x", f"f32[{rows}, {width}]")
    for _ in range(length):
        x = b.op("layer_norm", x, None, None, axis=-1)
    return b.finish([x])


def multiplications(length: int, rows: int, width: int) -> Graph:
    """Matmuls with weights of their own each, scaled so that values stay where they are."""
    rng = np.random.default_rng(rows + width)
    b = Builder()
    x = b.input("x", f"f32[{rows}, {width}]")
    for _ in range(length):
        weight = rng.standard_normal((width, width), dtype=np.float32) / np.float32(math.sqrt(width))
        x = b.op("matmul", x, b.constant(weight))
    return b.finish([x])


CLOCK = 192
"""The length of the chain that tells what a launch costs the host."""
LAUNCHES = {f"add x{length}": (lambda length=length: additions(length, TINY)) for length in (8, 32, 96, CLOCK)}
WORK: Mapping[str, Callable[[], Graph]] = {
    "add x8 of 256 MiB": lambda: additions(8, HUGE),
    "layer_norm x48 [1, 256]": lambda: norms(48, 1, 256),
    "layer_norm x48 [128, 768]": lambda: norms(48, 128, 768),
    "matmul x24 [1, 512]": lambda: multiplications(24, 1, 512),
    "matmul x24 [1, 1024]": lambda: multiplications(24, 1, 1024),
    "matmul x24 [32, 512]": lambda: multiplications(24, 32, 512),
    "matmul x16 [128, 512]": lambda: multiplications(16, 128, 512),
    "matmul x16 [128, 1024]": lambda: multiplications(16, 128, 1024),
    "matmul x8 [256, 1024]": lambda: multiplications(8, 256, 1024),
    "matmul x8 [512, 1024]": lambda: multiplications(8, 512, 1024),
}


def fitted_mlps(is_quick: bool) -> list[tuple[str, Plan]]:
    """MLPs that the costs are fitted to, of other widths than those that are predicted."""
    layers = 4 if is_quick else 32
    cases = [("float32", 128, 4), ("float16", 512, 16), ("float16", 512, 128)]
    return [
        (f"mlp-{layers}x{width} {dtype} b{batch}", plan_of(models.mlp(dtype, width, layers), Case(batch, 2, FULL)))
        for dtype, width, batch in cases
    ]


def predicted_plans(is_quick: bool) -> list[tuple[str, Plan]]:
    """Plans that nothing is fitted to."""
    layers, encoders = (4, 1) if is_quick else (64, 12)
    deep = {dtype: models.mlp(dtype, layers=layers) for dtype in ("float32", "float16")}
    found = [
        (f"{deep[dtype].name} {dtype} b{batch}", plan_of(deep[dtype], Case(batch, 2, FULL)))
        for dtype, batch in (("float32", 1), ("float16", 1), ("float16", 64), ("float32", 512))
    ]
    encoder = models.bert("float16", encoders)
    found.append((f"{encoder.name} float16 level 2", plan_of(encoder, Case(1, 2, FULL))))
    found.append((f"{encoder.name} float16 level 1", plan_of(encoder, Case(1, 1, FULL))))
    found.append((f"{encoder.name} float16 level 2 segments", plan_of(encoder, Case(1, 2, PIECEWISE))))
    return found


# ---- measuring


def measured(name: str, plan: Plan) -> Pair:
    """Eager and recorded times of a plan on random inputs."""
    device = DevicePlan(plan, arena_for([plan]), Constants())
    rng = np.random.default_rng(5)
    device.place([_drawn(rng, value.tensor.dtype.numpy, value.shape) for value in plan.graph.inputs])
    device.eager()
    device.wait()
    device.capture()
    eager, graph = plan_times(device)
    return Pair(name, plan, eager.one_us, graph.one_us, kernel_times(device))


def _drawn(rng: np.random.Generator, dtype: Any, shape: Sequence[Any]) -> Any:
    if dtype.kind == "i":
        return rng.integers(0, 1000, shape, dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


# ---- fitting


def fit(launches: Sequence[Pair], work: Sequence[Pair]) -> Costs:
    """Costs of kernels in a graph from chains of tiny ones, rates from the others, launches where the host is slower.

    What a launch costs the host differs from second to second and from kernel to kernel: the median of plans decides,
    in which the chains of additions count as one.
    """
    lengths = [len(pair.plan.steps) for pair in launches]
    node, around = np.polyfit(lengths, [pair.graph_us for pair in launches], 1)
    host_bound = [pair for pair in (launches[-1], *work) if pair.eager_us > HOST_BOUND * pair.graph_us]
    launch = np.median([pair.eager_us / kernel_count(pair.plan) for pair in host_bound])
    costs = replace(H200, launch_us=float(launch), node_us=float(node), graph_launch_us=float(around + node))
    return fit_rates(costs, work)


HOST_BOUND = 1.5
"""Eager execution that takes this many times as long as the recorded graph is bound by the host."""


def kernel_count(plan: Plan) -> int:
    """How many kernels a plan launches."""
    return len(simulate(plan).kernels)


RATES = ("barrier_us", "bandwidth", "flops", "chain_flops")


def fit_rates(costs: Costs, pairs: Sequence[Pair]) -> Costs:
    """The rates that bring the predicted logarithms of recorded times nearest, by coordinate descent on a log scale."""
    best = replace(costs, half_flops=costs.flops)
    error = misfit(best, pairs)
    step = 4.0
    while step > 1.005:
        tried = [_scaled(best, name, factor) for name in RATES for factor in (step, 1 / step)]
        errors = [misfit(each, pairs) for each in tried]
        least = min(errors)
        if least < error:
            best, error = tried[errors.index(least)], least
        else:
            step = math.sqrt(step)
    return best


def _scaled(costs: Costs, name: str, factor: float) -> Costs:
    changed = replace(costs, **{name: getattr(costs, name) * factor})
    return replace(changed, half_flops=changed.flops)  # the kernels sum products in f32 whatever the dtype


def misfit(costs: Costs, pairs: Sequence[Pair]) -> float:
    """The sum of squared logarithms of predicted over measured times of recorded graphs."""
    return sum(math.log(simulate(pair.plan, costs).piecewise_us / pair.graph_us) ** 2 for pair in pairs)


# ---- reporting


def row(pair: Pair, costs: Costs) -> dict[str, Any]:
    """Predicted and measured times of a plan, and what each of its kernels does."""
    found = simulate(pair.plan, costs)
    return {
        "plan": pair.name,
        "kernel_count": len(found.kernels),
        "eager_us": pair.eager_us,
        "eager_predicted_us": found.none_us,
        "eager_ratio": found.none_us / pair.eager_us,
        "graph_us": pair.graph_us,
        "graph_predicted_us": found.piecewise_us,
        "graph_ratio": found.piecewise_us / pair.graph_us,
        "kernels": [asdict(kernel) for kernel in found.kernels],
        "measured_alone": list(pair.alone),
    }


def is_within(found: Mapping[str, Any]) -> bool:
    """Whether both predictions are near enough."""
    return all(abs(found[key] - 1) <= ALLOWED for key in ("eager_ratio", "graph_ratio"))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Predicted beside measured."""
    columns = "".join(f" {mode:>10} {'predicted':>10} {'ratio':>6}" for mode in ("eager us", "graph us"))
    lines = [f"{'plan':<32} {'kernels':>7}{columns}"]
    for each in rows:
        eager = f"{each['eager_us']:>10.1f} {each['eager_predicted_us']:>10.1f} {each['eager_ratio']:>6.2f}"
        graph = f"{each['graph_us']:>10.1f} {each['graph_predicted_us']:>10.1f} {each['graph_ratio']:>6.2f}"
        mark = "" if is_within(each) else "  beyond 20%"
        lines.append(f"{each['plan']:<32} {each['kernel_count']:>7} {eager} {graph}{mark}")
    return "\n".join(lines)


def measure_all(findings: Findings, named: Mapping[str, Callable[[], Plan]]) -> list[Pair]:
    """Every plan that can be made and measured."""
    pairs: list[Pair] = []
    for name, make in named.items():

        def work(name: str = name, make: Callable[[], Plan] = make) -> Mapping[str, Any]:
            pairs.append(measured(name, make()))
            return {"eager_us": pairs[-1].eager_us, "graph_us": pairs[-1].graph_us}

        findings.stage(name, work)
    return pairs


def plans_by_name(found: Sequence[tuple[str, Plan]]) -> dict[str, Callable[[], Plan]]:
    return {name: lambda plan=plan: plan for name, plan in found}


def chains(graphs: Mapping[str, Callable[[], Graph]]) -> dict[str, Callable[[], Plan]]:
    return {name: lambda make=make: make_plan(make(), {}, CUDA, PlanPolicy(FULL)) for name, make in graphs.items()}


def surrounded(name: str, make: Callable[[], Plan]) -> dict[str, Callable[[], Plan]]:
    """A plan between two chains whose time is the host's."""
    before, after = (
        chains({f"add x{CLOCK} {when} {name}": lambda: additions(CLOCK, TINY)}) for when in ("before", "after")
    )
    return {**before, name: make, **after}


def at_that_time(costs: Costs, fitted: Pair, around: Sequence[Pair]) -> Costs:
    """Costs with launches as dear as they were around a measurement, by the chain that `costs` were fitted to."""
    factor = np.mean([pair.eager_us for pair in around]) / fitted.eager_us
    return replace(costs, launch_us=float(costs.launch_us * factor))


@dataclass(frozen=True)
class Outcome:
    """Costs, and the rows of the plans that they were fitted to and of those that they predict."""

    costs: Costs
    fitted: list[dict[str, Any]]
    predicted: list[dict[str, Any]]

    def text(self) -> str:
        return f"costs: {self.costs}\n\nfitted to\n{table(self.fitted)}\n\npredicted\n{table(self.predicted)}"

    @property
    def beyond(self) -> list[str]:
        """The predicted plans that are too far off."""
        return [each["plan"] for each in self.predicted if not is_within(each)]


def check(findings: Findings, others: Mapping[str, Callable[[], Plan]], *, is_quick: bool = False) -> Outcome:
    """Measures, fits, and predicts `others`."""
    launches = measure_all(findings, chains(LAUNCHES))
    work = measure_all(findings, {**chains(WORK), **plans_by_name(fitted_mlps(is_quick))})
    costs = fit(launches, work)
    findings.stage("costs", lambda: asdict(costs))
    predicted: list[dict[str, Any]] = []
    for name, make in others.items():
        match measure_all(findings, surrounded(name, make)):
            case [before, pair, after]:
                predicted.append(row(pair, at_that_time(costs, launches[-1], (before, after))))
    found = Outcome(costs, [row(pair, costs) for pair in (*launches, *work)], predicted)
    findings.stage("fitted", lambda: {"rows": found.fitted})
    findings.stage("predicted", lambda: {"rows": found.predicted})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="few layers")
    parser.add_argument("--held-out", action="store_true", help="predict the plans that the model was not chosen by")
    parser.add_argument("--out", type=Path, default=Path("build") / "benchmarks")
    arguments = parser.parse_args()
    findings = Findings(arguments.out / "simulate_check.json")
    findings.stage("environment", environment)
    findings.stage("warm-up", warm_up)
    others = held_out.PLANS if arguments.held_out else plans_by_name(predicted_plans(arguments.quick))
    found = check(findings, others, is_quick=arguments.quick)
    print(f"\n{found.text()}")
    print(f"\nfailed stages: {findings.failed or 'none'}; predictions beyond {ALLOWED:.0%}: {found.beyond or 'none'}")
    return 1 if found.beyond or findings.failed or not found.predicted else 0


if __name__ == "__main__":
    sys.exit(main())
