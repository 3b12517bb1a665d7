"""A plan made and run on the host, for tests: checked by the independent checker first."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from capgraph.executors.host.bound_plan import HostPlan
from capgraph.executors.host.kernels import scratch_bytes
from capgraph.executors.host.memory import HostArena
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Plan
from capgraph.ir.target import HOST
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.partition import CapturePolicy
from capgraph.passes.planning.planner import make_plan


def planned(
    graph: Graph,
    sizes: Mapping[str, int] | None = None,
    policy: CapturePolicy | None = None,
    resident: Collection[str] = (),
) -> Plan:
    """A checked plan of `graph`."""
    plan = make_plan(graph, sizes or {}, HOST, policy, scratch=scratch_bytes, resident=resident)
    check_plan(plan)
    return plan


def host_plan(
    graph: Graph,
    sizes: Mapping[str, int] | None = None,
    policy: CapturePolicy | None = None,
    resident: Collection[str] = (),
) -> HostPlan:
    """A checked plan with an arena of its own, filled with poison."""
    plan = planned(graph, sizes, policy, resident)
    return HostPlan(plan, HostArena(plan.arena_bytes, plan.alignment))


def run_plan(bound: HostPlan, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of one eager run, copied."""
    bound.start()
    for index, given in enumerate(inputs):
        bound.load(index, given)
    with np.errstate(all="ignore"):
        for segment in bound.plan.segments:
            bound.run(segment)
    results = [_copied(bound.result(index)) for index in range(len(bound.plan.graph.outputs))]
    bound.finish()
    return results


def _copied(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value
