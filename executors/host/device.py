"""The host as a device: programs that run eagerly, or are recorded as lists of calls of NumPy."""

from collections.abc import Mapping

from ...ir.constant import Array
from ...ir.plan import Plan
from ...ir.target import HOST
from ...passes.planning.lowering import Lowering
from ..base import Executor, Request
from ..replay.options import ReplayOptions
from ..replay.planning import Planning, by_value, replayed
from ..replay.recorder import NO_STATES, Arena
from ..steps import EagerExecutor
from .bound_plan import HostPlan
from .kernels import scratch_bytes
from .memory import FRESH_BYTES, HostArena


class HostDevice:
    """NumPy on one arena of bytes: a `Device`."""

    keeps_states = True

    def state(self, content: Array) -> Array:
        """See `Device.state`."""
        return content.copy()

    def reserve(self, nbytes: int, alignment: int) -> HostArena:
        """See `Device.reserve`."""
        return HostArena(nbytes, alignment)

    def bind(self, plan: Plan, arena: Arena, states: Mapping[str, Array] = NO_STATES) -> HostPlan:
        """See `Device.bind`. The arena is one that this device reserved."""
        assert isinstance(arena, HostArena)  # the dispatcher hands back what it got
        return HostPlan(plan, arena, states)


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
