"""The host as a device of recorded programs."""

from collections.abc import Mapping

from ...ir.constant import Array
from ...ir.plan import Plan
from ..replay.recorder import NO_STATES, Arena
from .bound_plan import HostPlan
from .memory import HostArena


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
