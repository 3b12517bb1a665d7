"""Plans of texts, for the planner's tests; every plan is checked as it is made."""

from collections.abc import Mapping
from dataclasses import replace
from textwrap import dedent
from typing import Any

from capgraph.ir.plan import Place, Plan, View
from capgraph.ir.target import HOST, Target
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.planner import PlanPolicy, make_plan

CONTIGUOUS = replace(HOST, strided_views=False)
"""A target whose kernels take contiguous operands only."""


UNBOUNDED = replace(HOST, bounded=frozenset())
"""A target that has no bounds for sizes that only running tells."""


def planned(text: str, sizes: Mapping[str, int] | None = None, target: Target = HOST, **options: Any) -> Plan:
    """The plan of a graph given as text."""
    return make_plan(parse(dedent(text)), sizes or {}, target, PlanPolicy(**options))


def view(plan: Plan, name: str) -> View:
    """Where the value called `name` lives."""
    return plan.views[plan.graph.value(name)]


def place(plan: Plan, name: str) -> Place:
    """In which kind of memory the value called `name` lives."""
    return plan.buffer_of(plan.graph.value(name)).place


def shares(plan: Plan, *names: str) -> bool:
    """Whether all these values live in one buffer."""
    return len({view(plan, name).buffer for name in names}) == 1


def kinds(plan: Plan) -> dict[str, str]:
    """What each step does, by the name of its first result."""
    return {step.node.outputs[0].name: step.kind.value for step in plan.steps if step.node.inputs}
