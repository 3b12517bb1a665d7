"""Programs on a GPU: passes and planning for its kernels, fusion with its limits, and the executors."""

from dataclasses import replace
from functools import partial

from ...ir.errors import UnsupportedError
from ...ir.target import CUDA, Target
from ...passes.cleanup.keep_reduced_axes import KeepReducedAxes
from ...passes.cleanup.redundancy import EliminateDeadCode
from ...passes.fold.batch_norm import SpreadBatchNorm
from ...passes.framework.pipeline import Pipeline
from ...passes.fuse.fuse import Fuse
from ...passes.fuse.list_segments import ListSegments
from ...passes.fuse.take_apart import TakeApart
from ...passes.planning.lowering import Lowering
from ...passes.planning.partition import CapturePolicy
from ..base import Executor, Request
from ..replay.modes import InputPolicy
from ..replay.options import ReplayOptions
from ..replay.planning import Planning, by_value, replayed
from .executor import CudaEagerExecutor, CudaExecutor, checked_index, cuda_problem, open_device
from .lower.lowering import Backend
from .lower.old_rows import kept_for_attention
from .run.device import CudaDevice

MOST_NODES = 1024
"""Up to so many nodes may become one kernel. This file sets all limits of fusion on a GPU, and no default is used.

Recurrences that are written out step by step have so many: RWKV's of 32 steps 818, which read 68 operands.
"""

MOST_OPERANDS = 80
"""Up to so many operands, constants not counted, may a region read."""

NORMED_ROWS = 4
"""Up to so many rows a matmul norms them itself, as each of its warps reads them whole.

At most `MAX_ROWS` of `kernels/gemm/gemv.py`, the kernel that does it, for each of its dtypes.
"""

NORMED_HALF_ROWS = 16
"""The same for rows of 16 bits, of which tensor cores take more (`kernels/gemm/few_rows/`)."""

FUSING_LEVEL = 2
"""From this level on nodes share kernels: values inside of one are not rounded to their dtype."""


def cuda_planning(backend: Backend, options: ReplayOptions, *, fuses: bool = True) -> Planning:
    """Plans graphs for the kernels of a GPU. With `fuses`, what one kernel can do is one step."""
    lowering = partial(lowering_for, backend, fuses=fuses, check=options.check)
    return Planning(options, CUDA, lowering)


def lowering_for(backend: Backend, policy: CapturePolicy, *, fuses: bool = True, check: str = "none") -> Lowering:
    """How graphs are brought to the kernels of `backend`."""
    kernels = kernel_pipeline(backend, policy.keep_outside) if fuses else Pipeline(())
    return Lowering(kernels, backend.captures, backend.scratch_bytes, kept_for_attention, check)


def kernel_pipeline(backend: Backend, kept_outside: frozenset[str] = frozenset()) -> Pipeline:
    """Fuses what `backend` has a kernel for. Regions without one, or with an op that is kept, are taken apart again."""
    fuse = Fuse(
        max_nodes=MOST_NODES,
        max_inputs=MOST_OPERANDS,
        epilogues=True,
        rows_behind_anchors=False,
        lookups=True,
        normed_rows=NORMED_ROWS,
        normed_half_rows=NORMED_HALF_ROWS,
        paired_matmuls=True,
        scaled_operands=True,
        draws=True,
        segments=True,
    )
    return Pipeline(
        (
            (SpreadBatchNorm(),),
            (KeepReducedAxes(),),
            (ListSegments(), EliminateDeadCode()),
            (fuse,),
            (TakeApart(tuple(sorted(kept_outside)), backend.captures),),
        )
    )


# ---- executors


def eager(request: Request) -> Executor:
    """The executor "eager" on a GPU. Raises `UnsupportedError` where that cannot be used."""
    return eager_on(_opened(request), request)


def graphs(request: Request) -> Executor:
    """The executor "graph" on a GPU. Raises `UnsupportedError` where that cannot be used."""
    states = request.recording.states
    if states is not None and states.lies_on_host:
        raise UnsupportedError("a store of states lives on the host yet", remedy='use device="host"')
    return graphs_on(_opened(request), request)


def _opened(request: Request) -> CudaDevice:
    return open_device(checked_index(request.device), request.tune, tf32=request.tf32)


def eager_on(gpu: CudaDevice, request: Request) -> Executor:
    """The executor "eager" on an opened GPU."""
    fallback = _steps(gpu, request, _planning(gpu, request, ReplayOptions(check=request.check)))
    return CudaExecutor(fallback, fallback, gpu)


def graphs_on(gpu: CudaDevice, request: Request) -> Executor:
    """The executor "graph" on an opened GPU."""
    options = request.recording
    gpu.repoints = InputPolicy.REPOINT in options.policies.values()
    planning = _planning(gpu, request, options)
    fallback = _steps(gpu, request, planning)
    recorded = replayed(gpu, replace(CUDA, device=request.device), planning.of, fallback, options)
    return CudaExecutor(by_value(recorded, request), fallback, gpu)


def _planning(gpu: CudaDevice, request: Request, options: ReplayOptions) -> Planning:
    return cuda_planning(gpu.backend, options, fuses=request.level >= FUSING_LEVEL)


def _steps(gpu: CudaDevice, request: Request, planning: Planning) -> CudaEagerExecutor:
    return CudaEagerExecutor(gpu, Target("eager", request.device), planning.eagerly_of)


def cuda_target() -> Target:
    """The executor "graph" on a GPU, with what is in the way here."""
    problem = cuda_problem()
    return replace(CUDA, problem=problem.text, remedy=problem.remedy)
