"""Plans of recorded programs for the command line, made without the device."""

from collections.abc import Mapping

from ..executors.replay.modes import CaptureMode
from ..executors.replay.options import ReplayOptions
from ..executors.replay.planning import capture_policy
from ..executors.request import check_device, is_cuda, pipeline_for
from ..ir.graph import Graph
from ..ir.plan import Plan
from ..ir.target import CUDA, HOST
from ..passes.framework.base import Pass
from ..passes.planning.lowering import Lowering, masking_stages, planning_pipeline

_MODE = CaptureMode.FULL_AND_PIECEWISE


def stages_to_plan(device: str, sizes: Mapping[str, int]) -> tuple[tuple[Pass, ...], ...]:
    """The passes of a recorded program on `device` from an optimized graph to the plan of a bucket of these sizes.

    On a GPU those for kernels of capgraph's own on the chip that is taken where there is none.
    """
    policy = capture_policy(ReplayOptions(), _MODE, sizes)
    if is_cuda(device):
        from ..executors.cuda.lower.lowering import Backend
        from ..executors.cuda.programs import lowering_for

        planning = planning_pipeline(sizes, CUDA, policy, lowering_for(Backend(), policy))
    else:
        check_device(device)
        planning = planning_pipeline(sizes, HOST, policy, Lowering())
    return (*masking_stages(sizes), *planning.stages)


Lines = dict[int, tuple[str, ...]]
"""Texts by the index of a step."""


def shown_plan(graph: Graph, device: str, sizes: Mapping[str, int]) -> tuple[Plan, Lines, Lines]:
    """What a recorded program plans for `graph` at level 2; the names of each step's candidates; the first's launches.

    On a GPU those are kernels of capgraph's own on the chip that is taken where there is none; the host has none.
    Raises `UnsupportedError` for a device that is not known, and as `make_plan` does for sizes that do not fit.
    """
    optimized, _ = pipeline_for(2, device).applied(graph)
    if not is_cuda(device):
        from ..executors.host.programs import host_planning

        check_device(device)
        return host_planning(ReplayOptions()).of(optimized)(sizes, _MODE), {}, {}
    from ..executors.cuda.kernel_ir.printing import launch_lines
    from ..executors.cuda.lower.lowering import Backend
    from ..executors.cuda.programs import cuda_planning

    backend = Backend()
    plan = cuda_planning(backend, ReplayOptions()).of(optimized)(sizes, _MODE)
    lowered = {each.step.index: each.candidates for each in backend.lower(plan)}
    names = {index: tuple(each.name for each in candidates) for index, candidates in lowered.items()}
    return plan, names, {index: tuple(launch_lines(found[0])) for index, found in lowered.items() if found}
