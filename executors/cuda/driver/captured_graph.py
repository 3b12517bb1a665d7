"""A captured graph whose first and last kernel take other arguments, through the driver's own functions.

CuPy keeps of a captured graph what can be launched, and gives back the description that names its nodes. To exchange
arguments takes both.
"""

import ctypes
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from ..kernel_ir.launch import ScalarArgument
from .protocol import Enqueue, KernelCall


class CapturedGraph:
    """A `GraphWithCopies` of the description at `captured`, which it takes over.

    `launch_of` launches by handle and stream. Raises `CUDAError` of `cuda.core` where the driver refuses.
    """

    def __init__(
        self,
        captured: int,
        before: KernelCall | None,
        after: KernelCall | None,
        launch_of: Callable[[int, int], None],
        nbytes: int = 0,
    ) -> None:
        from cuda.bindings import driver

        self._graph = driver.CUgraph(captured)
        give_back = weakref.finalize(self, _destroyed, driver.cuGraphDestroy, self._graph)
        give_back.atexit = False
        self._given_back = [give_back]
        (self._executable,) = _asked(driver.cuGraphInstantiate(self._graph, 0))
        give_back = weakref.finalize(self, _destroyed, driver.cuGraphExecDestroy, self._executable)
        give_back.atexit = False
        self._given_back.append(give_back)
        self.nbytes = nbytes
        self.launch: Enqueue = partial(launch_of, int(self._executable))
        """See `DeviceGraph.launch`."""
        if before is not None:
            self.read_from = _Node(self._executable, _first(driver, self._graph), before).exchange
            """See `GraphWithCopies.read_from`."""
        if after is not None:
            self.write_to = _Node(self._executable, _last(driver, self._graph), after).exchange
            """See `GraphWithCopies.write_to`."""

    def upload(self, stream: int) -> None:
        """Brings the graph to the device, on a stream."""
        from cuda.bindings import driver

        _asked(driver.cuGraphUpload(self._executable, driver.CUstream(stream)))

    def close(self) -> None:
        """See `DeviceGraph.close`."""
        for give_back in reversed(self._given_back):
            give_back()


class _Node:
    """A kernel of an instantiated graph. Its arguments lie here one behind another, as the driver copies them."""

    def __init__(self, executable: Any, node: Any, call: KernelCall) -> None:
        from cuda.bindings import driver

        count = len(call.values)
        numbers = [int(each.value) if isinstance(each, ScalarArgument) else each for each in call.values]
        self._values = (ctypes.c_uint64 * count)(*numbers)
        start = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_void_p * count)(*[start + 8 * index for index in range(count)])
        (found,) = _asked(driver.cuGraphKernelNodeGetParams(node))
        found.kernelParams = ctypes.addressof(self._pointers)
        self._exchange = partial(driver.cuGraphExecKernelNodeSetParams, executable, node, found)
        self._fine = driver.CUresult.CUDA_SUCCESS

    def exchange(self, addresses: list[int]) -> None:
        """Other first arguments, from the next launch on."""
        for index, address in enumerate(addresses):
            self._values[index] = address
        (status,) = self._exchange()
        if status != self._fine:
            _asked((status,))


def _first(driver: Any, graph: Any) -> Any:
    """The one node that waits for no other."""
    (count,) = _asked(driver.cuGraphGetRootNodes(graph))[1:]
    return _asked(driver.cuGraphGetRootNodes(graph, count))[0][0]


def _last(driver: Any, graph: Any) -> Any:
    """The one node for which no other waits. Edges of programmatic launches are told by newer functions alone."""
    (count,) = _asked(driver.cuGraphGetNodes(graph))[1:]
    nodes = _asked(driver.cuGraphGetNodes(graph, count))[0]
    edges = getattr(driver, "cuGraphGetEdges_v2", driver.cuGraphGetEdges)
    starts = {int(each) for each in _asked(edges(graph, _asked(edges(graph))[-1]))[0]}
    return next(node for node in reversed(nodes) if int(node) not in starts)


def _asked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the driver answers behind its status. Raises `CUDAError` when it refuses."""
    from cuda.core._utils.cuda_utils import CUDAError

    status, *found = answer
    if status:
        raise CUDAError(f"{status.name}")
    return tuple(found)


def _destroyed(destroy: Callable[[Any], Any], handle: Any) -> None:
    destroy(handle)
