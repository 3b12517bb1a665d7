"""The executor "graph" for `capgraph.optimize`: planning, padding proofs and a device, put together."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from .backends import Request, check_device, is_cuda
from .executors.base import Executor
from .executors.eager import EagerExecutor
from .executors.host.device import HostDevice
from .executors.host.kernels import scratch_bytes
from .executors.host.moving import FRESH_BYTES
from .executors.replay.by_value import ByValueExecutor
from .executors.replay.dispatcher import Planner
from .executors.replay.executor import ReplayExecutor
from .executors.replay.modes import CaptureMode
from .executors.replay.options import ReplayOptions
from .executors.replay.recorder import Device
from .executors.replay.safety import Analysis
from .ir.analysis import constraints, parameter_bytes
from .ir.dims.constraints import Constraint
from .ir.graph import Graph
from .ir.ops.known import ATTENTION
from .ir.plan import Plan
from .ir.target import CUDA, HOST, Target
from .passes.catalog import launch_pipeline, level_pipeline
from .passes.cleanup.fold_constants import FoldConstants
from .passes.cleanup.static_shapes import StaticShapes
from .passes.framework.base import Pass
from .passes.framework.numeric import draw_sizes
from .passes.framework.pipeline import Pipeline
from .passes.planning.lowering import Lowering, drawn_calls, masking_stages, planning_pipeline
from .passes.planning.masking import MaskPadding, PadCalls
from .passes.planning.padding import SafetyReport, padding_safety, real_size_input
from .passes.planning.partition import CapturePolicy
from .passes.planning.planner import PlanPolicy, make_plan
from .whole_numbers import whole_number

_POLICIES = {
    CaptureMode.NONE: CapturePolicy(captures=False),
    CaptureMode.FULL: CapturePolicy(min_kernels=0),
    CaptureMode.PIECEWISE: CapturePolicy(keep_outside=frozenset({ATTENTION.name})),
    CaptureMode.FULL_AND_PIECEWISE: CapturePolicy(min_kernels=0),
}


def pipeline_for(level: int, device: str) -> Pipeline:
    """The passes of a level for a device."""
    return launch_pipeline(level) if is_cuda(device) else level_pipeline(level)


MASKED_SIZE = 4
"""The size at which calls are drawn to check the masks of a dim."""

MOST_READ_AGAIN = 1 << 26
"""Bytes of parameters up to which a graph is read again with what is known by then."""


def _prepare_again(pipeline: Pipeline, check: str, graph: Graph) -> tuple[Constraint, ...]:
    """Runs the passes; what the import left foreign since an operand was not known is read again, while that helps.

    Gives what must hold for the sizes: passes may leave out nodes that told it.
    """
    _WITH_VALUES.run(graph, check=check)
    assumed = constraints(graph)
    pipeline.run(graph, check=check)
    count, before = _foreign(graph), math.inf
    while 0 < count < before and parameter_bytes(graph) <= MOST_READ_AGAIN:
        from .frontends.onnx.exporting.exporter import export_model
        from .frontends.onnx.importing.importer import import_model

        graph.adopt(import_model(export_model(graph)).graph)
        pipeline.run(graph, check=check)
        count, before = _foreign(graph), count
    return assumed


_WITH_VALUES = Pipeline(((FoldConstants(), StaticShapes()),))


def _foreign(graph: Graph) -> int:
    """How many nodes of ONNX have no native form."""
    return sum(node.op.name.startswith("onnx.") for node in graph.nodes)


# ---- executors


def host_sessions(request: Request) -> Executor:
    """The executor "ort" on the host."""
    from .executors.ort.executor import OrtExecutor

    return OrtExecutor(strict=request.strict, threads=whole_number(request.threads), seeded=request.seeded)


def host_eager(_request: Request) -> Executor:
    """The executor "eager" on the host."""
    return EagerExecutor()


def host_graphs(request: Request) -> Executor:
    """The executor "graph" on the host."""
    recorded = replayed(HostDevice(), HOST, _host_planning(request.recording).of, EagerExecutor(), request.recording)
    return by_value(recorded, request)


def replayed(
    device: Device, target: Target, plan: Callable[[Graph], Planner], fallback: Executor, options: ReplayOptions
) -> Executor:
    """The executor that records on `device` what `plan` says."""
    analysis = Analysis(padding_safety, partial(_masked, options.check), real_size_input)
    return ReplayExecutor(device, target, plan, fallback, options, analysis)


def by_value(inner: Executor, request: Request) -> Executor:
    """`inner`, which also records graphs that inputs shape: with the values of these as constants."""
    pipeline = pipeline_for(request.level, request.device)
    return ByValueExecutor(inner, partial(_prepare_again, pipeline, request.recording.check))


def stages_to_plan(device: str, sizes: Mapping[str, int]) -> tuple[tuple[Pass, ...], ...]:
    """The passes of a recorded program on `device` from an optimized graph to the plan of a bucket of these sizes.

    On a GPU those for kernels of capgraph's own on the chip that is taken where there is none.
    """
    policy = _POLICIES[CaptureMode.FULL_AND_PIECEWISE]
    if is_cuda(device):
        from .cuda_programs import lowering_for
        from .executors.cuda.lower.lowering import Backend

        planning = planning_pipeline(sizes, CUDA, policy, lowering_for(Backend(), policy))
    else:
        check_device(device)
        planning = planning_pipeline(sizes, HOST, policy, Lowering())
    return (*masking_stages(sizes), *planning.stages)


def shown_plan(graph: Graph, device: str, sizes: Mapping[str, int]) -> tuple[Plan, dict[int, tuple[str, ...]]]:
    """What a recorded program plans for `graph` at level 2, and the names of the candidates for each step by its index.

    On a GPU those are kernels of capgraph's own on the chip that is taken where there is none; the host has none.
    Raises `UnsupportedError` for a device that is not known, and as `make_plan` does for sizes that do not fit.
    """
    mode, options = CaptureMode.FULL_AND_PIECEWISE, ReplayOptions()
    optimized, _ = pipeline_for(2, device).applied(graph)
    if not is_cuda(device):
        check_device(device)
        return _host_planning(options).of(optimized)(sizes, mode), {}
    from .cuda_programs import cuda_planning
    from .executors.cuda.lower.lowering import Backend

    backend = Backend()
    plan = cuda_planning(backend, options).of(optimized)(sizes, mode)
    return plan, {each.step.index: tuple(c.name for c in each.candidates) for each in backend.lower(plan)}


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


@dataclass(frozen=True)
class Planning:
    """Plans graphs for a target, by its lowering where a policy captures."""

    options: ReplayOptions
    target: Target
    lowering: Callable[[CapturePolicy], Lowering]
    fresh_bytes: int | None = None

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
        return make_plan(graph, sizes, self.target, policy)


def _host_planning(options: ReplayOptions) -> Planning:
    fresh_bytes = FRESH_BYTES if options.copy_outputs else None
    lowering = Lowering(scratch=scratch_bytes, check=options.check)
    return Planning(options, HOST, lambda _: lowering, fresh_bytes)


def capture_policy(options: ReplayOptions, mode: CaptureMode, sizes: Mapping[str, int]) -> CapturePolicy:
    """What is captured in a mode at given sizes."""
    outside = options.kept_outside(sizes)
    return _POLICIES[mode] if outside is None else replace(_POLICIES[mode], keep_outside=outside)
