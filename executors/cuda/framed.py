"""A recording between its copies: one graph that fetches the inputs of a call, runs, and writes results anew.

To copy an input costs the host as much as to launch the whole graph, and so does a new array with the result. Here both
are kernels of the graph, one for all inputs and one for all results. Where they read and write is exchanged before a
launch, and only if it is elsewhere than in the call before.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.errors import CaptureError
from ...ir.plan import Place as Home
from ..host.memory import POISON
from ..replay.bucket import is_random
from ..replay.capture import collector_frozen
from .arrays import DeviceArray, Framework
from .bound_plan import CudaPlan
from .compiler import Failed
from .device import CudaDevice
from .driver import FramedGraph, KernelCall
from .launch import Kernel, KernelLaunch, Scalar

MOST_PARTS = 64
"""How many arrays one kernel copies at most: a kernel takes 4 KiB of arguments."""

_THREADS = 256
_WORDS_A_THREAD = 4
_BLOCKS_A_PROCESSOR = 8

Part = tuple[int, int]
"""An address in the memory of the plan, and bytes."""


def copy_kernel(parts: int, moving: str) -> str:
    """The text of a kernel that copies `parts` arrays, whose arguments are addresses that are exchanged, others, sizes.

    `moving` says which addresses are exchanged: "source" or "target". Row y of the grid copies array y.
    """
    fixed = "target" if moving == "source" else "source"
    names = [f"{name}_{index}" for name in (moving, fixed, "bytes") for index in range(parts)]
    others = [
        f"  if (blockIdx.y == {index}) source = source_{index}, target = target_{index}, bytes = bytes_{index};"
        for index in range(1, parts)
    ]
    return "\n".join(
        [
            f'extern "C" __global__ void NAME({", ".join(f"u64 {name}" for name in names)}) {{',
            "  u64 source = source_0, target = target_0, bytes = bytes_0;",
            *others,
            "  const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;",
            "  const u64 words = (source | target) % 16 ? 0 : bytes / 16;",
            "  const word16* from = (const word16*)source;",
            "  word16* to = (word16*)target;",
            "  u64 at = first;",
            "  for (; at + 3 * step < words; at += 4 * step) {",  # loads before stores: more of them are under way
            "    const word16 a = from[at], b = from[at + step], c = from[at + 2 * step], d = from[at + 3 * step];",
            "    to[at] = a, to[at + step] = b, to[at + 2 * step] = c, to[at + 3 * step] = d;",
            "  }",
            "  for (; at < words; at += step) to[at] = from[at];",
            "  for (u64 i = 16 * words + first; i < bytes; i += step)",
            "    ((unsigned char*)target)[i] = ((const unsigned char*)source)[i];",
            "}",
        ]
    )


def copy_launch(parts: Sequence[Part], moving: str, processors: int) -> KernelLaunch:
    """The launch of such a kernel; its arguments are those of `copy_arguments`."""
    largest = max(nbytes for _address, nbytes in parts)
    blocks = -(-largest // (16 * _THREADS * _WORDS_A_THREAD))
    grid = (max(1, min(blocks, _BLOCKS_A_PROCESSOR * processors)), len(parts), 1)
    kernel = Kernel(copy_kernel(len(parts), moving), grid, (_THREADS, 1, 1))
    return KernelLaunch(kernel, (), 2 * sum(nbytes for _address, nbytes in parts))


def copy_arguments(parts: Sequence[Part]) -> list[int | Scalar]:
    """Arguments with which each array is copied to itself: the addresses that are exchanged come first."""
    addresses = [address for address, _nbytes in parts]
    return [*addresses, *addresses, *(Scalar("long long", nbytes) for _address, nbytes in parts)]


class Framed:
    """Serves calls in one framework by one launch; `outputs` are the results that it hands out anew, by name."""

    def __init__(self, graph: FramedGraph, framework: Framework, outputs: Sequence[tuple[str, DeviceArray]]) -> None:
        self._graph = graph
        self._launch = graph.launch
        self._outputs = outputs
        self._fresh = framework.fresh
        self._sources: list[int] = []
        self._targets: list[int] = []

    def run(self, sources: list[int], stream: int) -> dict[str, Any]:
        """The outputs for inputs at these addresses. Raises what the driver raises."""
        if sources != self._sources:
            self._graph.read_from(sources)
            self._sources = sources
        results: dict[str, Any] = {}
        targets: list[int] = []
        for name, like in self._outputs:
            results[name], address = self._fresh(like)
            targets.append(address)
        if targets != self._targets:
            self._graph.write_to(targets)
            self._targets = targets
        self._launch(stream)
        return results

    @property
    def nbytes(self) -> int:
        """What the graph takes on the device, as far as that can be seen."""
        return self._graph.nbytes

    def close(self) -> None:
        """Gives the graph back, which must not be running."""
        self._graph.close()


class Framing:
    """What it takes to record a plan with copies of `inputs` to their places, and of `outputs` to new arrays.

    Kernels are compiled here. Raises `CaptureError` for one that does not compile.
    """

    def __init__(
        self,
        bound: CudaPlan,
        inputs: Sequence[Part],
        outputs: Sequence[tuple[str, DeviceArray]],
        framework: Framework,
    ) -> None:
        self._bound = bound
        self._inputs = inputs
        self._outputs = outputs
        self._framework = framework
        device = bound.device
        self._before = _call(device, inputs, "source") if inputs else None
        results = [(like.address, like.nbytes) for _name, like in outputs]
        self._after = _call(device, results, "target") if outputs else None

    def record(self) -> Framed:
        """A recording. Raises what the driver raises."""
        bound, device = self._bound, self._bound.device
        (segment,) = bound.plan.segments
        calls = [call for step in bound.plan.steps_of(segment) for call in bound.calls_of(step)]
        device.driver.synchronize(device.stream)
        bound.is_recording = True
        try:
            with collector_frozen():
                graph = device.driver.frame(self._before, calls, self._after, device.capture_stream)
        finally:
            bound.is_recording = False
        return Framed(graph, self._framework, self._outputs)

    def problem_with(self, made: Framed, sources: list[int], expected: Mapping[str, Any]) -> str:
        """What is wrong with results over poisoned memory, "" if nothing is; `expected` may lie in that memory."""
        bound, driver, stream = self._bound, self._bound.device.driver, self._bound.device.stream
        wanted = {name: self._bytes_of(each) for name, each in expected.items()}
        bound.poison()
        for address, nbytes in self._inputs:
            driver.fill(address, POISON, nbytes, stream)
        given = {**expected, **made.run(sources, stream)}
        for name, content in wanted.items():
            if not np.array_equal(self._bytes_of(given[name]), content):
                return f"output {name!r} is another than without"
        return ""

    def _bytes_of(self, native: Any) -> Array:
        return np.frombuffer(np.asarray(self._framework.wrap(native)).tobytes(), np.uint8)


def can_be_framed(bound: CudaPlan, inputs: int, outputs: int) -> bool:
    """Whether a plan can run once more to see that a graph with copies gives the same: without states and chance."""
    if not 0 < max(inputs, outputs) <= MOST_PARTS or len(bound.plan.segments) != 1:
        return False
    has_states = any(buffer.place is Home.STATE for buffer in bound.plan.buffers)
    return not has_states and not bound.plan.copies and not is_random(bound.plan)


def _call(device: CudaDevice, parts: Sequence[Part], moving: str) -> KernelCall:
    launch = copy_launch(parts, moving, device.driver.chip.multiprocessors)
    compiled = device.compiler.compile([launch.kernel])[launch.kernel.text]
    if isinstance(compiled, Failed):
        raise CaptureError(f"the kernel that copies does not compile: {compiled.log}")
    return KernelCall(launch, compiled, copy_arguments(parts))
