"""Programs on the host: eager, or recorded as lists of calls of NumPy."""

from ...ir.target import HOST
from ...passes.planning.lowering import Lowering
from ..base import Executor
from ..eager import EagerExecutor
from ..replay.options import ReplayOptions
from ..replay.planning import Planning, by_value, replayed
from ..request import Request
from .device import HostDevice
from .kernels import scratch_bytes
from .moving import FRESH_BYTES


def eager(_request: Request) -> Executor:
    """The executor "eager" on the host."""
    return EagerExecutor()


def graphs(request: Request) -> Executor:
    """The executor "graph" on the host."""
    options = request.recording
    return by_value(replayed(HostDevice(), HOST, host_planning(options).of, EagerExecutor(), options), request)


def host_planning(options: ReplayOptions) -> Planning:
    """Plans graphs for NumPy. Large results that the caller keeps lie in memory of their own."""
    fresh_bytes = FRESH_BYTES if options.copy_outputs else None
    lowering = Lowering(scratch=scratch_bytes, check=options.check)
    return Planning(options, HOST, lambda _: lowering, fresh_bytes)
