"""Steps with their memory on a GPU: every candidate of one, each algorithm of a library, eagerly and in a graph."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from capgraph.executors.cuda.driver.protocol import Memory
from capgraph.executors.cuda.kernel_ir.launch import Argument, BufferPlace, Candidate, HostCall, LibraryCall, Packed
from capgraph.executors.cuda.lower.early_trigger import with_safe_triggers
from capgraph.executors.cuda.run.device import CudaDevice
from capgraph.ir.constant import Array
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.plan import View

from tests.executors.cuda.solving import PADDING, Setting

ALIGNMENT = 256
"""Where a plan puts buffers; cuBLASLt refuses a workspace that lies otherwise."""


class OnDevice:
    """The memory of a step, copied to a device: what a buffer holds begins behind its padding, aligned."""

    def __init__(self, setting: Setting, device: CudaDevice) -> None:
        self.setting, self.device = setting, device
        room = ALIGNMENT - PADDING
        self.memories: list[Memory] = [device.driver.allocate(data.nbytes + room) for data in setting.memory.buffers]
        self.addresses = [memory.address + room for memory in self.memories]
        self.packed: dict[Packed, Memory] = {}

    def results(self, candidate: Candidate) -> Iterator[tuple[str, list[Array]]]:
        """What a candidate gives by each algorithm, launched step by step and then by a graph of two runs.

        Raises `UnsupportedError` where a library has nothing for it.
        """
        for name, chosen in self._variants(candidate):
            (variant,) = with_safe_triggers([chosen])
            assert variant is not None
            for kind, run in (("eager", self._eagerly), ("graph", self._recorded)):
                self._reset()
                run(variant)
                yield f"{name}, {kind}", [self._read(view) for view in self.setting.task.results]

    def _variants(self, candidate: Candidate) -> Iterator[tuple[str, Candidate]]:
        calls = [launch for launch in candidate.launches if isinstance(launch, LibraryCall)]
        if len(calls) != 1:
            yield candidate.name, candidate
            return
        (call,) = calls
        for index, algorithm in enumerate(self.device.library(call.library).algorithms(call)):
            chosen = replace(call, algorithm=algorithm)
            launches = [chosen if launch is call else launch for launch in candidate.launches]
            yield f"{candidate.name}, algorithm {index}", replace(candidate, launches=tuple(launches))

    def _reset(self) -> None:
        for address, data in zip(self.addresses, self.setting.memory.buffers, strict=True):
            self.device.driver.copy(address, data.ctypes.data, data.nbytes, self.device.own_stream)
        for view in self.setting.task.results:
            data = self.setting.memory.buffers[view.buffer]
            is_read = any(each is not None and each.buffer == view.buffer for each in self.setting.task.operands)
            if not is_read:
                self.device.driver.fill(self.addresses[view.buffer], 0xFF, data.nbytes, self.device.own_stream)
        self.device.driver.synchronize(self.device.own_stream)

    def _address(self, argument: Argument) -> int:
        if isinstance(argument, BufferPlace):
            return self.addresses[argument.buffer] + PADDING + argument.offset
        assert isinstance(argument, Packed)
        if argument not in self.packed:
            self.packed[argument] = self.device.constants.packed(argument)
        return self.packed[argument].address

    def _enqueue(self, candidate: Candidate, stream: int) -> None:
        for launch in candidate.launches:
            assert not isinstance(launch, HostCall)
            self.device.bound(launch, self._address)(stream)

    def _eagerly(self, candidate: Candidate) -> None:
        self._enqueue(candidate, self.device.own_stream)
        self.device.driver.synchronize(self.device.own_stream)

    def _recorded(self, candidate: Candidate) -> None:
        """Captured after it was prepared, which must not happen during the capture."""
        driver, stream = self.device.driver, self.device.capture_stream
        enqueues = [
            self.device.bound(launch, self._address)
            for launch in candidate.launches
            if not isinstance(launch, HostCall)
        ]
        driver.begin_capture(stream)
        try:
            for enqueue in enqueues:
                enqueue(stream)
        except UnsupportedError:
            driver.abort_capture(stream)
            raise
        graph = driver.end_capture(stream)
        for _ in range(2):
            graph.launch(self.device.own_stream)
        driver.synchronize(self.device.own_stream)
        graph.close()

    def _read(self, view: View) -> Array:
        data = np.empty_like(self.setting.memory.buffers[view.buffer])
        self.device.driver.copy(data.ctypes.data, self.addresses[view.buffer], data.nbytes, self.device.own_stream)
        self.device.driver.synchronize(self.device.own_stream)
        return np.ndarray(view.shape, view.dtype.numpy, data, PADDING + view.offset, view.strides)
