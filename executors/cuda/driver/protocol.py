"""What the executor asks of one GPU: memory, streams, graphs, kernels. Addresses and streams are plain integers.

`cupy_driver.py` answers through CuPy and `cuda.core`; tests answer on the host.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from ....ir.constant import Array
from ..arrays.protocol import Shape
from ..kernel_ir.launch import Chip, KernelLaunch, ScalarArgument
from .compiler import Compiled

Enqueue = Callable[[int], None]
"""Enqueues work on a stream and waits for nothing."""


class Memory(Protocol):
    """Bytes on the device, given back once nobody holds them."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class DeviceGraph(Protocol):
    """A recorded graph, ready to be launched."""

    @property
    def nbytes(self) -> int:
        """What it takes on the device, as far as that can be seen."""
        ...

    @property
    def launch(self) -> Enqueue:
        """Launches it on a stream."""
        ...

    def close(self) -> None:
        """Gives it back; it must not be launched afterwards."""
        ...


class KernelCall(NamedTuple):
    """A launch with its machine code and its arguments: addresses, and numbers passed by value."""

    launch: KernelLaunch
    compiled: Compiled
    values: Sequence[int | ScalarArgument]


class UpdatableGraph(DeviceGraph, Protocol):
    """A graph of kernels, one behind another, whose arguments can be exchanged."""

    def update(self, index: int, values: Sequence[int | ScalarArgument]) -> None:
        """Other arguments for kernel `index`, from the next launch on."""
        ...


class GraphWithCopies(DeviceGraph, Protocol):
    """A captured graph between two kernels, whose first arguments can be exchanged."""

    def read_from(self, addresses: list[int]) -> None:
        """Other first arguments for the kernel in front, from the next launch on."""
        ...

    def write_to(self, addresses: list[int]) -> None:
        """Other first arguments for the kernel behind, from the next launch on."""
        ...


class Driver(Protocol):
    """One GPU. Whatever fails raises one of `failures`, of which `explained` makes an error for users.

    Within `active` the calls of this thread go to this GPU; it can be entered any number of times.
    """

    index: int
    active: AbstractContextManager[Any]
    name: str
    chip: Chip
    failures: tuple[type[BaseException], ...]

    def is_active(self) -> bool:
        """Whether the calls of this thread go to this GPU already: cheaper than to enter `active`."""
        ...

    def explained(self, error: BaseException) -> Exception:
        """One of `failures` as a `CapgraphError`; remembers when the device is lost."""
        ...

    def check(self) -> None:
        """Raises `ExecutionError` once the device is lost: nothing works any more in this process."""
        ...

    # ---- memory

    def allocate(self, nbytes: int) -> Memory:
        """Memory whose address is a multiple of 256. Raises `ResourceError` when there is not that much."""
        ...

    def available_bytes(self) -> int:
        """How much can be allocated."""
        ...

    def pinned(self, nbytes: int) -> Array:
        """Main memory u8[nbytes] that the device copies to and from without waiting."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copies bytes between any two places, main memory included."""
        ...

    def copy_rows(self, target: tuple[int, int], source: tuple[int, int], width: int, rows: int, stream: int) -> None:
        """Copies `rows` rows of `width` bytes; places are an address and the bytes from one row to the next."""
        ...

    def copy_strided(
        self,
        target: tuple[int, Sequence[int]],
        source: tuple[int, Sequence[int]],
        shape: Sequence[int],
        itemsize: int,
        stream: int,
    ) -> None:
        """Copies elements one by one; places are an address and strides in bytes."""
        ...

    def non_zero(self, address: int, shape: Shape, strides: Shape, dtype: np.dtype[Any], stream: int) -> Array:
        """The indices of the elements that are not zero, i64[rank, count] on the host, in row-major order.

        Strides are in bytes, of at least one axis; dtypes are NumPy's own. It waits for the stream.
        """
        ...

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        """Sets every byte."""
        ...

    # ---- streams and graphs

    def make_stream(self) -> int:
        """A stream of its own, which does not wait for the default stream."""
        ...

    def release_stream(self, stream: int) -> None:
        """Gives back a stream that `make_stream` made; what is enqueued there is still done."""
        ...

    def synchronize(self, stream: int) -> None:
        """Waits until all that was enqueued is done; raises what went wrong on the device."""
        ...

    def order(self, first: int, then: int) -> None:
        """Lets what is enqueued on `then` from now on wait for all that is on `first` by now."""
        ...

    def begin_capture(self, stream: int) -> None:
        """From now on what is enqueued on `stream` is recorded instead of run."""
        ...

    def end_capture(self, stream: int) -> DeviceGraph:
        """The graph of what was recorded, uploaded."""
        ...

    def abort_capture(self, stream: int) -> None:
        """Drops what was recorded, if anything is being recorded."""
        ...

    # ---- kernels

    def bind(self, call: KernelCall) -> Enqueue:
        """A launch that is ready to be made; the kernel is loaded by then."""
        ...

    def chain(self, calls: Sequence[KernelCall]) -> UpdatableGraph:
        """A graph of these kernels, one behind another. None of them may form clusters."""
        ...

    def frame(
        self, before: KernelCall | None, calls: Sequence[Enqueue], after: KernelCall | None, stream: int
    ) -> GraphWithCopies:
        """A graph of `before`, what `calls` enqueue, and `after`, captured on `stream` and uploaded.

        All arguments of the two kernels are of 8 bytes; a kernel that is None is left out, and never exchanged.
        """
        ...

    def timer(self) -> tuple[Enqueue, Enqueue, Callable[[], float]]:
        """Marks to be enqueued before and behind what is timed, and the seconds in between, once both have passed."""
        ...
