"""Cases as plans with the candidates of their steps, and one pass over the steps on any memory."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Kernel, KernelLaunch
from capgraph.executors.cuda.lower.lowering import Backend, LoweredStep
from capgraph.ir.constant import Array
from capgraph.ir.evaluate import evaluate_node
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from tests.executors.cuda.codegen.cases import Case

UNBOUNDED = replace(CUDA, bounded=frozenset())
"""Sizes that only running tells stay so: results are compared as they are."""


@dataclass(frozen=True)
class Prepared:
    """A case, its plan, and the candidates of its steps."""

    case: Case
    plan: Plan
    lowered: tuple[LoweredStep, ...]

    def kernels(self) -> Iterator[Kernel]:
        """The kernels of all candidates."""
        for lowered in self.lowered:
            for candidate in generated(lowered):
                yield from (each.kernel for each in candidate.launches if isinstance(each, KernelLaunch))

    @property
    def choices(self) -> int:
        """How often a plan has to run until every candidate was taken."""
        return max((len(generated(lowered)) for lowered in self.lowered), default=0)

    def on_host(self) -> list[str]:
        """The ops of steps without a kernel."""
        return [lowered.step.node.op.name for lowered in self.lowered if lowered.candidates and not generated(lowered)]

    def run(self, choice: int, launch: Callable[[Candidate], None], values: "Values") -> None:
        """Every step by its candidate `choice` (the last where there are fewer); steps without a kernel by NumPy."""
        sizes = dict(self.plan.sizes)
        for lowered in self.lowered:
            known = generated(lowered)
            if known:
                launch(known[min(choice, len(known) - 1)])
            elif lowered.candidates:
                node = lowered.step.node
                operands = [None if value is None else values.read(value) for value in node.inputs]
                with np.errstate(all="ignore"):
                    for value, result in zip(node.outputs, evaluate_node(node, operands, sizes), strict=True):
                        values.write(value, result)


class Values:
    """Where values of a plan can be read and written as arrays."""

    def read(self, value: Any) -> Array:
        """A copy of its content."""
        raise NotImplementedError

    def write(self, value: Any, content: Array) -> None:
        """Replaces its content."""
        raise NotImplementedError


def generated(lowered: LoweredStep) -> list[Candidate]:
    """The candidates of a step that only launch kernels."""
    return [each for each in lowered.candidates if all(isinstance(launch, KernelLaunch) for launch in each.launches)]


def prepared(case: Case) -> Prepared | None:
    """The case as a plan; None where it has values of unknown size."""
    backend = Backend()
    plan = make_plan(case.graph, case.sizes, UNBOUNDED, PlanPolicy(lowering=Lowering(scratch=backend.scratch_bytes)))
    if plan.dynamic:
        return None
    return Prepared(case, plan, backend.lower(plan))


def all_prepared(cases: Iterable[Case]) -> list[Prepared]:
    """Those that can be planned whole."""
    return [made for made in map(prepared, cases) if made is not None]
