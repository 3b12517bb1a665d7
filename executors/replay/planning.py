"""What recorded programs of every device share: plans by its lowering, padding that is proven, graphs by value."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ...ir.analysis import constraints, parameter_bytes
from ...ir.dims.constraints import Constraint, collect_constraints
from ...ir.graph import Graph
from ...ir.ops.known import ATTENTION
from ...ir.plan import Plan
from ...ir.target import Target
from ...passes.cleanup.redundancy import FoldConstants
from ...passes.cleanup.static_shapes import StaticShapes
from ...passes.framework.numeric import draw_sizes
from ...passes.framework.pipeline import Pipeline
from ...passes.planning.bounds import can_bound
from ...passes.planning.lowering import Lowering, drawn_calls
from ...passes.planning.masking import MaskPadding, PadCalls
from ...passes.planning.padding import SafetyReport
from ...passes.planning.partition import CapturePolicy
from ...passes.planning.planner import Lowered, PlanPolicy, lowered, make_plan
from ..base import Executor, Request, pipeline_for
from .by_value import ByValueExecutor
from .dispatcher import Planner
from .executor import ReplayExecutor
from .modes import CaptureMode
from .options import ReplayOptions
from .recorder import Device
from .safety import Analysis

_POLICIES = {
    CaptureMode.NONE: CapturePolicy(captures=False),
    CaptureMode.FULL: CapturePolicy(min_kernels=0),
    CaptureMode.PIECEWISE: CapturePolicy(keep_outside=frozenset({ATTENTION.name})),
    CaptureMode.FULL_AND_PIECEWISE: CapturePolicy(min_kernels=0),
}


MASKED_SIZE = 4
"""The size at which calls are drawn to check the masks of a dim."""

MOST_READ_AGAIN = 1 << 26
"""Bytes of parameters up to which a graph is read again with what is known by then."""


def _prepare_again(pipeline: Pipeline, request: Request, graph: Graph) -> tuple[Constraint, ...]:
    """Runs the passes; what the import left foreign since an operand was not known is read again, while that helps.

    Gives what must hold for the sizes: passes may leave out nodes that told it, and reading takes some for granted.
    """
    check = request.recording.check
    _WITH_VALUES.run(graph, check=check)
    assumed = constraints(graph)
    pipeline.run(graph, check=check)
    count, before = _foreign(graph), math.inf
    while request.reread is not None and 0 < count < before and parameter_bytes(graph) <= MOST_READ_AGAIN:
        with collect_constraints() as taken:
            graph.adopt(request.reread(graph))
        assumed = (*assumed, *dict.fromkeys(taken))
        pipeline.run(graph, check=check)
        count, before = _foreign(graph), count
    return assumed


_WITH_VALUES = Pipeline(((FoldConstants(), StaticShapes()),))


def _foreign(graph: Graph) -> int:
    """How many nodes of ONNX have no native form."""
    return sum(node.op.name.startswith("onnx.") for node in graph.nodes)


def replayed(
    device: Device, target: Target, plan: Callable[[Graph], Planner], fallback: Executor, options: ReplayOptions
) -> Executor:
    """The executor that records on `device` what `plan` says."""
    analysis = Analysis(repair=partial(_masked, options.check))
    return ReplayExecutor(device, target, plan, fallback, options, analysis)


def by_value(inner: Executor, request: Request) -> Executor:
    """`inner`, which also records graphs that inputs shape: with the values of these as constants."""
    pipeline = pipeline_for(request.level, request.device)
    return ByValueExecutor(inner, partial(_prepare_again, pipeline, request))


def _masked(check: str, graph: Graph, dim: str, /, *, largest: int | None, least: int) -> tuple[Graph, SafetyReport]:
    """`made_safe` as a pass of a pipeline."""
    samples = None
    if check == "numeric":
        size = MASKED_SIZE if largest is None else min(largest, MASKED_SIZE)
        samples = drawn_calls(graph, {**draw_sizes(graph), dim: size})
    masked, report = Pipeline(((MaskPadding(dim, largest, least),),)).applied(graph, check=check, samples=samples)
    (calls,) = report.calls
    assert isinstance(calls, PadCalls)  # of the one pass
    return (masked if report.changed else graph), calls.report


class LatestLowering:
    """What the latest plan was made of: a call's eager run and its recording are plans of the same nodes."""

    def __init__(self) -> None:
        self._held: tuple[Graph, object, Lowered] | None = None

    def lowered(self, graph: Graph, key: object, make: Callable[[], Lowered]) -> Lowered:
        """A copy of what was made for this graph and key right before, which is forgotten; else what `make` gives."""
        held, self._held = self._held, None
        if held is not None and held[0] is graph and held[1] == key:
            return replace(held[2], graph=held[2].graph.clone())
        made = make()
        self._held = graph, key, made
        return made


@dataclass(frozen=True)
class Planning:
    """Plans graphs for a target, by its lowering where a policy captures."""

    options: ReplayOptions
    target: Target
    lowering: Callable[[CapturePolicy], Lowering]
    fresh_bytes: int | None = None
    latest: LatestLowering = field(default_factory=LatestLowering)

    def of(self, graph: Graph) -> Planner:
        """The planner of one graph."""
        return partial(self.plan, graph)

    def eagerly_of(self, graph: Graph) -> Callable[[Mapping[str, int]], Plan]:
        """The planner of one graph with nothing captured, whatever the options say."""
        return partial(
            replace(self, options=ReplayOptions(check=self.options.check)).plan, graph, mode=CaptureMode.NONE
        )

    def plan(self, graph: Graph, sizes: Mapping[str, int], mode: CaptureMode) -> Plan:
        """The plan of a graph at these sizes."""
        capture = capture_policy(self.options, mode, sizes)
        resident = [value.name for value in graph.inputs if self.options.policy_of(value.name).is_in_place]
        policy = PlanPolicy(capture, self.lowering(capture), resident=resident, fresh_bytes=self.fresh_bytes)
        bounds = capture.captures and any(can_bound(self.target, node) for node in graph.nodes)
        key = (*sizes.items(), capture.keep_outside, bounds)
        known = self.latest.lowered(graph, key, lambda: lowered(graph, sizes, self.target, policy))
        return make_plan(graph, sizes, self.target, policy, known)


def capture_policy(options: ReplayOptions, mode: CaptureMode, sizes: Mapping[str, int]) -> CapturePolicy:
    """What is captured in a mode at given sizes."""
    outside = options.kept_outside(sizes)
    return _POLICIES[mode] if outside is None else replace(_POLICIES[mode], keep_outside=outside)
