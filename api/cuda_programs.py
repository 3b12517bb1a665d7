"""Programs on a GPU for `capgraph.optimize`: planning for its kernels, fusion, and the executors, put together."""

from dataclasses import replace
from functools import partial

from .executors.base import Executor
from .executors.cuda.availability import checked_index, cuda_problem
from .executors.cuda.executor import CudaEagerExecutor, CudaExecutor, open_device
from .executors.cuda.lower.lowering import Backend
from .executors.cuda.run.device import CudaDevice
from .executors.cuda.run.eager import SizedPlanner
from .executors.replay.executor import ReplayExecutor
from .executors.replay.modes import CaptureMode, InputPolicy
from .executors.replay.options import ReplayOptions
from .ir.analysis.rounding import ROUNDS_NOTHING, Tf32
from .ir.graph import Graph
from .ir.target import CUDA, Target
from .passes.cleanup.keep_reduced_axes import KeepReducedAxes
from .passes.fold.spread_batch_norm import SpreadBatchNorm
from .passes.framework.pipeline import Pipeline
from .passes.fuse.fuse import Fuse
from .passes.fuse.take_apart import TakeApart
from .passes.planning.lowering import Lowering
from .passes.planning.partition import CapturePolicy
from .recording import Planning, by_value, padding_analysis

LARGEST_REGION = 64
"""How many nodes one kernel may do. Set here so that no other default of `Fuse` changes the kernels of a GPU."""

NORMED_ROWS = 4
"""Up to so many rows a product norms them itself, as each of its warps reads them whole.

At most `MAX_ROWS` of `executors/cuda/kernels/gemm/gemv.py`, the kernel that does it, for each of its dtypes.
"""

FUSING_LEVEL = 2
"""From this level on nodes share kernels: values inside of one are not rounded to their dtype."""


def cuda_planning(backend: Backend, options: ReplayOptions, *, fuses: bool = True) -> Planning:
    """Plans graphs for the kernels of a GPU. With `fuses`, what one kernel can do is one step."""
    lowering = partial(lowering_for, backend, fuses=fuses, check=options.check)
    return Planning(options, CUDA, lowering)


def _eagerly(planning: Planning, graph: Graph) -> SizedPlanner:
    """The planner of one graph with nothing captured."""
    plan = replace(planning, options=ReplayOptions(check=planning.options.check)).of(graph)
    return lambda sizes: plan(sizes, CaptureMode.NONE)


def lowering_for(backend: Backend, policy: CapturePolicy, *, fuses: bool = True, check: str = "none") -> Lowering:
    """How graphs are brought to the kernels of `backend`."""
    kernels = kernel_pipeline(backend, policy.keep_outside) if fuses else Pipeline(())
    return Lowering(kernels, backend.captures, backend.scratch_bytes, check)


def kernel_pipeline(backend: Backend, kept_outside: frozenset[str] = frozenset()) -> Pipeline:
    """Fuses what `backend` has a kernel for. Regions without one, or with an op that is kept, are taken apart again."""
    fuse = Fuse(
        max_nodes=LARGEST_REGION,
        rows_behind_products=False,
        lookups=True,
        normed_rows=NORMED_ROWS,
        scaled_factors=True,
        draws=True,
    )
    return Pipeline(
        (
            (SpreadBatchNorm(),),
            (KeepReducedAxes(),),
            (fuse,),
            (TakeApart(tuple(sorted(kept_outside)), backend.captures),),
        )
    )


# ---- executors


def cuda_eager_executor(
    device: str, level: int, tune: bool | None, tf32: Tf32 = ROUNDS_NOTHING, check: str = "none"
) -> Executor:
    """The executor "eager" on a GPU. Raises `UnsupportedError` where that cannot be used."""
    return eager_on(open_device(checked_index(device), tune, tf32=tf32), device, level, check)


def cuda_graph_executor(
    device: str,
    options: ReplayOptions,
    level: int,
    tune: bool | None,
    tf32: Tf32 = ROUNDS_NOTHING,
) -> Executor:
    """The executor "graph" on a GPU. Raises `UnsupportedError` where that cannot be used."""
    gpu = open_device(checked_index(device), tune, tf32=tf32)
    return graphs_on(gpu, device, options, level)


def eager_on(gpu: CudaDevice, device: str, level: int, check: str = "none") -> Executor:
    """The executor "eager" on an opened GPU."""
    planning = cuda_planning(gpu.backend, ReplayOptions(check=check), fuses=level >= FUSING_LEVEL)
    eager = CudaEagerExecutor(gpu, Target("eager", device), partial(_eagerly, planning))
    return CudaExecutor(eager, eager, gpu)


def graphs_on(gpu: CudaDevice, device: str, options: ReplayOptions, level: int) -> Executor:
    """The executor "graph" on an opened GPU."""
    gpu.repoints = InputPolicy.REPOINT in options.inputs.values()
    planning = cuda_planning(gpu.backend, options, fuses=level >= FUSING_LEVEL)
    fallback = CudaEagerExecutor(gpu, Target("eager", device), partial(_eagerly, planning))
    target = replace(CUDA, device=device)
    inner = ReplayExecutor(gpu, target, planning.of, fallback, options, padding_analysis(options.check))
    return CudaExecutor(by_value(inner, device, level, options.check), fallback, gpu)


def cuda_target() -> Target:
    """The executor "graph" on a GPU, with what is in the way here."""
    problem = cuda_problem()
    return replace(CUDA, problem=problem.text, remedy=problem.remedy)
