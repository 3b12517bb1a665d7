"""Where the buffers of a plan are on a GPU."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING

from ....ir.graph import Value
from ....ir.plan import Place as Home
from ....ir.plan import Plan, View
from ..arrays.protocol import DeviceArray
from ..driver.memory import DeviceArena
from ..driver.protocol import Memory
from ..kernel_ir.launch import Argument, BufferPlace, HostCall, Launch, LibraryCall, Packed
from ..lower.lowering import constant_buffers

if TYPE_CHECKING:
    from .bound_plan import CudaPlan
    from .device import CudaDevice


NO_STATES: Mapping[str, DeviceArray] = MappingProxyType({})


class Placement:
    """Addresses of the buffers of `plan`, and of the constants that its launches pack.

    `states` are arrays of others that hold states, by the names of their inputs.

    The graph's inputs lie in the arena, resident ones in memory that the program keeps for them, until `place` puts an
    array of the caller in their stead; `placed` holds that array.
    """

    def __init__(
        self, plan: Plan, arena: DeviceArena, device: "CudaDevice", states: Mapping[str, DeviceArray] = NO_STATES
    ) -> None:
        self.plan = plan
        self.arena = arena
        self.placed: dict[Value, DeviceArray] = {}
        self._device = device
        self._contents = constant_buffers(plan)
        self._kept: dict[int, Memory] = {}
        self._states = {plan.views[plan.graph.value(name)].buffer: array for name, array in states.items()}
        self._packed: dict[Packed, Memory] = {}
        self._moved: dict[int, int] = {}

    def base(self, buffer: int) -> int:
        """Where a buffer begins."""
        moved = self._moved.get(buffer)
        if moved is not None:
            return moved
        held = self._states.get(buffer)
        if held is not None:
            return held.address
        each = self.plan.buffers[buffer]
        if each.place is Home.ARENA:
            return self.arena.address + each.offset
        kept = self._kept.get(buffer)
        if kept is None:
            kept = self._kept[buffer] = self._made(buffer)
        return kept.address

    def start_of(self, view: View) -> int:
        """Where the first element of a view lies."""
        return self.base(view.buffer) + view.offset

    def address(self, argument: Argument) -> int:
        """The address that an argument stands for."""
        if isinstance(argument, BufferPlace):
            return self.base(argument.buffer) + argument.offset
        assert isinstance(argument, Packed)  # numbers have no address
        found = self._packed.get(argument)
        if found is None:
            found = self._packed[argument] = self._device.constants.packed(argument)
        return found.address

    def place(self, value: Value, array: DeviceArray) -> None:
        """Puts `array`, contiguous and of the type of the graph input `value`, in the stead of its buffer."""
        self._moved[self.plan.views[value].buffer] = array.address
        self.placed[value] = array

    def unplace(self, value: Value) -> None:
        """Brings a graph input back to the place that it has in the plan."""
        self._moved.pop(self.plan.views[value].buffer, None)
        self.placed.pop(value, None)

    def hold(self, states: Mapping[str, DeviceArray]) -> list[int]:
        """Has states, by the names of their inputs, in other arrays of the same types; the buffers that these are."""
        held = {self.plan.views[self.plan.graph.value(name)].buffer: array for name, array in states.items()}
        self._states.update(held)
        return list(held)

    def buffers_of(self, bound: "CudaPlan", step: int) -> AbstractSet[int]:
        """The buffers that the launches of a step mention."""
        found: set[int] = set()
        for launch in bound.launches_of(self.plan.steps[step]):
            found |= buffers_in(launch)
        return found

    def _made(self, buffer: int) -> Memory:
        each = self.plan.buffers[buffer]
        if each.place is Home.CONSTANT:
            return self._device.constants.plain(self._contents[buffer])
        return self._device.shared_memory(each.label, each.nbytes)


def buffers_in(launch: Launch) -> set[int]:
    """The buffers that a launch mentions; a step on the host looks addresses up when it runs."""
    if isinstance(launch, HostCall):
        return set()
    arguments = launch.arguments.values() if isinstance(launch, LibraryCall) else launch.arguments
    return {argument.buffer for argument in arguments if isinstance(argument, BufferPlace)}
