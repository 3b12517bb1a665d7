"""Protocols of recording: a recorder takes the steps of one captured segment and gives a recording to replay.

While a recorder records, the rules of a CUDA graph hold on every device: no memory is allocated, no value is read or
written by the host, nothing moves, no shape changes, and no call leaves for another framework. Whatever breaks one
raises `CaptureError`, after which `abort` must be called.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from ...ir.constant import Array
from ...ir.plan import Segment, Step

NO_STATES: Mapping[str, Any] = MappingProxyType({})

Cut = tuple[int | None, ...]
"""A shape that a result is cut to; None leaves an axis as it is."""


class Pointer(NamedTuple):
    """One row of a pointer table: the address at which a recording expects `name`."""

    name: str
    address: int


class Recording(Protocol):
    """Steps that were recorded. It refers to memory by address and is only valid while that memory stays.

    A replay gives the bits of an eager run. A recording that does not has an attribute `keeps_bits`, which is False.
    """

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """The memory that it refers to: the arena, states, and inputs that lie with the caller."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory that the recording itself takes, in bytes (an estimate on the host)."""
        ...

    def __len__(self) -> int:
        """The number of kernels that one replay runs."""
        ...

    def replay(self) -> None:
        """Runs the steps again. Raises `CaptureError`, before anything runs, when a pointer is stale.

        Raises `ExecutionError` when a kernel fails; the recording stays valid.
        """
        ...

    def repoint(self, index: int) -> bool:
        """Takes over where the bound plan has graph input `index` now; False where the recorder cannot do that."""
        ...

    def close(self) -> None:
        """Gives the recording back; a replay afterwards raises `CaptureError`."""
        ...


class Recorder(Protocol):
    """Records one segment after another. Recording runs nothing."""

    def begin(self, segment: Segment) -> None:
        """Starts recording; from now on the rules of capture hold."""
        ...

    def record(self, step: Step) -> None:
        """Records one step, in the order of the segment."""
        ...

    def end(self) -> Recording:
        """What was recorded, once every step of the segment was."""
        ...

    def abort(self) -> None:
        """Drops what was recorded so far and lifts the rules; allowed at any time."""
        ...


class Arena(Protocol):
    """Device memory that all buckets share in turn."""

    @property
    def nbytes(self) -> int: ...

    @property
    def address(self) -> int:
        """Where it lies; 0 once it was given back."""
        ...

    def close(self) -> None:
        """Gives the memory back."""
        ...


class BoundPlan(Protocol):
    """A plan with memory on a device.

    A run is: `start`, `load` each input, `run` or replay each segment, take results, `finish`.
    """

    @property
    def plan(self) -> Any: ...

    @property
    def arena(self) -> Arena: ...

    def start(self) -> None:
        """Begins a run."""
        ...

    def load(self, index: int, given: Any, fill: Any = None) -> None:
        """Copies input `index` to the front of its buffer; what the buffer is larger becomes `fill` (None: stays)."""
        ...

    def place(self, index: int, given: Any) -> bool:
        """Reads input `index` from the caller's own memory from now on; False where its layout does not allow that."""
        ...

    def unplace(self, index: int) -> None:
        """Reads input `index` from the place again that it has in the plan."""
        ...

    def placed_address(self, index: int) -> int | None:
        """Where input `index` lies with the caller, None when it lies where the plan has it."""
        ...

    def address_of(self, given: Any) -> int:
        """The address of an array that could be placed."""
        ...

    def move_states(self, states: Mapping[str, Any]) -> None:
        """Has states in other memory of the same shapes and dtypes from now on; recordings refer to the old one."""
        ...

    def run(self, segment: Segment) -> None:
        """Runs a segment eagerly."""
        ...

    def finish(self) -> None:
        """Ends a run: states get their new content, over which results may lie that are views of the old."""
        ...

    def result(self, index: int, shape: Cut | None = None) -> Any:
        """Output `index` where it lies, cut to `shape`."""
        ...

    def copy_of_result(self, index: int, shape: Cut | None = None) -> Any:
        """Output `index`, cut to `shape`, as memory of the caller's own."""
        ...

    def forget(self) -> None:
        """Lets go of what the run allocated outside of the arena."""
        ...

    def recorder(self) -> Recorder:
        """A recorder of this plan's segments."""
        ...

    # ---- for verification

    def live_results(self, segment: Segment) -> list[Any]:
        """Copies of what later segments and the caller see of a segment."""
        ...

    def save(self) -> Any:
        """The content of the arena and the states."""
        ...

    def restore(self, saved: Any) -> None:
        """Brings back what `save` gave."""
        ...

    def poison(self, step: int | None = None) -> None:
        """Overwrites the arena, but for what is needed at `step` (None: all of it), with what nobody may read."""
        ...


class Device(Protocol):
    """Where plans are bound to memory and recorded; `keeps_states` says whether `bind` takes states."""

    keeps_states: bool

    def state(self, content: Array) -> Any:
        """Memory with this content, a state that one program keeps: `copy()` and `array[...] = content` as NumPy's."""
        ...

    def reserve(self, nbytes: int, alignment: int) -> Arena:
        """An arena. Raises `ResourceError` when there is not that much memory."""
        ...

    def bind(self, plan: Any, arena: Arena, states: Mapping[str, Any] = NO_STATES) -> BoundPlan:
        """`plan` over `arena`, which is at least as large as the plan wants.

        `states` is the memory of states that others use as well, by the names of their inputs; the bound plan makes its
        own for the others.
        """
        ...
