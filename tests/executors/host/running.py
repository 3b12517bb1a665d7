"""A plan made and run on the host, for tests: checked by the independent checker first."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from capgraph.executors.host.bound_plan import HostPlan
from capgraph.executors.host.kernels import scratch_bytes
from capgraph.executors.host.memory import HostArena
from capgraph.executors.replay.measured import cut_to_found
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Plan
from capgraph.ir.target import HOST, Target
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.partition import CapturePolicy
from capgraph.passes.planning.planner import PlanPolicy, make_plan

UNBOUNDED = replace(HOST, bounded=frozenset())
"""The host where sizes that only running tells stay so."""


def planned(
    graph: Graph,
    sizes: Mapping[str, int] | None = None,
    policy: CapturePolicy | None = None,
    resident: Collection[str] = (),
    target: Target = HOST,
) -> Plan:
    """A checked plan of `graph`."""
    lowering = Lowering(scratch=scratch_bytes)
    how = PlanPolicy(policy or CapturePolicy(), lowering, resident=resident)
    plan = make_plan(graph, sizes or {}, target, how)
    check_plan(plan)
    return plan


def host_plan(
    graph: Graph,
    sizes: Mapping[str, int] | None = None,
    policy: CapturePolicy | None = None,
    resident: Collection[str] = (),
    target: Target = HOST,
) -> HostPlan:
    """A checked plan with an arena of its own, filled with poison."""
    plan = planned(graph, sizes, policy, resident, target)
    return HostPlan(plan, HostArena(plan.arena_bytes, plan.alignment))


def run_plan(bound: HostPlan, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of one eager run, copied."""
    bound.start()
    for index, given in enumerate(inputs):
        bound.load(index, given)
    with np.errstate(all="ignore"):
        for segment in bound.plan.segments:
            bound.run(segment)
    asked = [index for index in range(len(bound.plan.graph.outputs)) if index != bound.plan.measured.output]
    shapes = cut_to_found(bound, dict.fromkeys(asked))
    results = [_copied(bound.result(index, shape)) for index, shape in shapes.items()]
    bound.finish()
    return results


def _copied(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value
