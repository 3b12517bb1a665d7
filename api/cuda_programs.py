"""Programs on a GPU for `capgraph.optimize`: planning for its kernels, fusion, and the executors, put together."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from .executors.base import Executor
from .executors.cuda.availability import checked_index, cuda_problem
from .executors.cuda.executor import CudaEagerExecutor, CudaExecutor, open_device
from .executors.cuda.lower.lowering import Backend
from .executors.cuda.run.device import CudaDevice
from .executors.cuda.run.eager import SizedPlanner
from .executors.replay.dispatcher import Planner
from .executors.replay.executor import ReplayExecutor
from .executors.replay.modes import CaptureMode, InputPolicy
from .executors.replay.options import ReplayOptions
from .executors.replay.safety import Analysis
from .ir.analysis.rounding import ROUNDS_NOTHING, Tf32
from .ir.graph import Graph, Node
from .ir.ops.known import FUSED
from .ir.plan import Plan
from .ir.target import CUDA, Target
from .passes.cleanup.keep_reduced_axes import KeepReducedAxes
from .passes.fold.spread_batch_norm import SpreadBatchNorm
from .passes.framework.pipeline import Pipeline
from .passes.fuse.fuse import Fuse
from .passes.planning.padding import made_safe, padding_safety, real_size_input
from .passes.planning.partition import CapturePolicy
from .passes.planning.planner import make_plan
from .recording import by_value

PolicyOf = Callable[[CaptureMode, Mapping[str, int]], CapturePolicy]
"""What is captured in a mode at given sizes."""

LARGEST_REGION = 64
"""How many nodes one kernel may do."""

NORMED_ROWS = 4
"""Up to so many rows a product norms them itself, as each of its warps reads them whole."""

FUSING_LEVEL = 2
"""From this level on nodes share kernels: values inside of one are not rounded to their dtype."""


@dataclass(frozen=True)
class CudaPlanner:
    """Plans graphs for the kernels of a GPU. With `fuses`, what one kernel can do is one step."""

    backend: Backend
    options: ReplayOptions
    policy: PolicyOf
    fuses: bool = True

    def of(self, graph: Graph) -> Planner:
        """The planner of one graph."""
        resident = [value.name for value in graph.inputs if self.options.policy_of(value.name).is_in_place]

        def plan(sizes: Mapping[str, int], mode: CaptureMode) -> Plan:
            policy = self.policy(mode, sizes)
            return make_plan(
                graph,
                sizes,
                CUDA,
                policy,
                scratch=self.backend.scratch_bytes,
                resident=resident,
                prepare=partial(self._prepare, policy),
                captures=self.backend.captures,
            )

        return plan

    def eagerly_of(self, graph: Graph) -> SizedPlanner:
        """The planner of one graph with nothing captured."""
        plan = replace(self, options=ReplayOptions(), policy=_nothing).of(graph)
        return lambda sizes: plan(sizes, CaptureMode.NONE)

    def _prepare(self, policy: CapturePolicy, graph: Graph) -> None:
        if self.fuses:
            fuse_for(graph, self.backend, policy.keep_outside)


def fuse_for(graph: Graph, backend: Backend, kept_outside: Collection[str] = ()) -> None:
    """Fuses what `backend` has a kernel for. Regions without one, or with an op that is kept, are taken apart again."""
    fuse = Fuse(
        max_nodes=LARGEST_REGION,
        rows_behind_products=False,
        lookups=True,
        normed_rows=NORMED_ROWS,
        scaled_factors=True,
        draws=True,
    )
    Pipeline(((SpreadBatchNorm(),), (KeepReducedAxes(),), (fuse,))).run(graph, check="none")
    for node in [node for node in graph.nodes if node.op is FUSED]:
        inside = {each.op.name for each in node.attrs["body"].nodes}
        if not inside.isdisjoint(kept_outside) or not backend.captures(node):
            _take_apart(graph, node)


def _take_apart(graph: Graph, node: Node) -> None:
    results = graph.inline(node.attrs["body"], node.operands, node)
    for old, new in zip(node.outputs, results, strict=True):
        graph.replace_uses(old, new)
    graph.erase(node)


def _nothing(_mode: CaptureMode, _sizes: Mapping[str, int]) -> CapturePolicy:
    return CapturePolicy(captures=False)


# ---- executors


def cuda_eager_executor(device: str, level: int, tune: bool | None, tf32: Tf32 = ROUNDS_NOTHING) -> Executor:
    """The executor "eager" on a GPU. Raises `UnsupportedError` where that cannot be used."""
    return eager_on(open_device(checked_index(device), tune, tf32=tf32), device, level)


def cuda_graph_executor(
    device: str,
    options: ReplayOptions,
    policy: PolicyOf,
    level: int,
    tune: bool | None,
    tf32: Tf32 = ROUNDS_NOTHING,
) -> Executor:
    """The executor "graph" on a GPU. Raises `UnsupportedError` where that cannot be used."""
    gpu = open_device(checked_index(device), tune, tf32=tf32)
    return graphs_on(gpu, device, options, policy, level)


def eager_on(gpu: CudaDevice, device: str, level: int) -> Executor:
    """The executor "eager" on an opened GPU."""
    planner = CudaPlanner(gpu.backend, ReplayOptions(), _nothing, level >= FUSING_LEVEL)
    eager = CudaEagerExecutor(gpu, Target("eager", device), planner.eagerly_of)
    return CudaExecutor(eager, eager, gpu)


def graphs_on(gpu: CudaDevice, device: str, options: ReplayOptions, policy: PolicyOf, level: int) -> Executor:
    """The executor "graph" on an opened GPU."""
    gpu.repoints = InputPolicy.REPOINT in options.inputs.values()
    planner = CudaPlanner(gpu.backend, options, policy, level >= FUSING_LEVEL)
    fallback = CudaEagerExecutor(gpu, Target("eager", device), planner.eagerly_of)
    analysis = Analysis(padding_safety, made_safe, real_size_input)
    inner = ReplayExecutor(gpu, replace(CUDA, device=device), planner.of, fallback, options, analysis)
    return CudaExecutor(by_value(inner, device, level), fallback, gpu)


def cuda_target() -> Target:
    """The executor "graph" on a GPU, with what is in the way here."""
    problem = cuda_problem()
    return replace(CUDA, problem=problem.text, remedy=problem.remedy)
