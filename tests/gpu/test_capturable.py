"""Every op with a kernel is recorded on a GPU and replayed on fresh inputs; any other runs on the host and is named.

But where what the call before found of sizes makes it one with a kernel.
"""

import warnings

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

import capgraph
from capgraph.executors.cuda.executor import cuda_problem
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference

from tests.executors.cuda.op_cases import CONTROL_FLOW, NEVER_RECORDED, RANDOM, op_cases
from tests.strategies.graphs import random_inputs

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

TERMS = 2048
CALLS = 6


def case_of(op: str, *, has_kernel: bool) -> tuple[Graph, int]:
    """A graph with inputs around one node of an op, the same each time."""
    for graph, node, seed in op_cases(op):
        if graph.inputs and (not has_kernel or Backend().captures(node)):
            return graph, seed
    pytest.skip("it is only drawn without inputs")


def served(graph: Graph, seed: int, mode: str) -> tuple[list[str], int, int, list[str]]:
    """What is wrong with some calls, how many were served, how many replayed, and what the program says of itself."""
    wrong: list[str] = []
    calls = 0
    oracle = EagerExecutor().compile(graph)
    optimized = capgraph.optimize(graph, executor="graph", device="cuda", mode=mode, level=0, tune=False)
    with optimized as program, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for call in range(CALLS):
            _, arrays = random_inputs(graph, 1000 * call + seed)
            inputs = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
            try:
                expected = oracle.run(inputs)
            except CapgraphError:
                continue  # the numbers that were drawn are none for this op
            for name, given in program.run(inputs).items():
                problem = difference(expected[name], given, Exactness.ROUNDING, TERMS)
                wrong += [f"call {call}, {name} {problem}"] if problem else []
            calls += 1
        stats = program.stats()
        wrong += [*map(str, stats.refused), *(str(bucket.refusals) for bucket in stats.buckets if bucket.refusals)]
        if mode == "full" and not all(node.op.has(Trait.VIEW) for node in graph.nodes if node.inputs):
            wrong += [] if stats.counters.replayed_calls == max(calls - 1, 0) else ["calls are not replayed"]
        return wrong, calls, stats.counters.replayed_calls, [*program.remarks, *(str(each.message) for each in said)]


@pytest.mark.parametrize("op", sorted(OPS.keys() - NEVER_RECORDED - {"fused"}))
def test_what_has_a_kernel_is_recorded_and_replayed(op: str) -> None:
    wrong, calls, _, remarks = served(*case_of(op, has_kernel=True), "full")
    assert not wrong, "\n".join([*wrong, *remarks])
    assert calls
    assert not [line for line in remarks if "runs on the host" in line]


@pytest.mark.parametrize("op", sorted(NEVER_RECORDED - CONTROL_FLOW - RANDOM))
def test_what_has_none_runs_on_the_host_and_is_named(op: str) -> None:
    wrong, calls, replayed, remarks = served(*case_of(op, has_kernel=False), "full_and_piecewise")
    assert not wrong, "\n".join([*wrong, *remarks])
    named = (f"runs on the host: {op}", f"not everything is recorded: {op}")
    assert not calls or replayed or any(line.startswith(named) for line in remarks)
