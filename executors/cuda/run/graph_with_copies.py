"""A recording between its copies: one graph that fetches the inputs of a call, runs, and writes results anew.

To copy an input costs the host as much as to launch the whole graph, and so does a new array with the result. Here both
are kernels of the graph, one for all inputs and one for all results; results that lie otherwise than row by row are
brought together before. Where they read and write is exchanged before a launch, and only if it is elsewhere than in the
call before.

Large results are not even copied. A new array is memory that nobody else holds, and a framework gives the same memory
again once the caller has dropped what lay there: for places that come again there is a graph that computes them there.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....ir.constant import Array
from ....ir.errors import CaptureError
from ....ir.plan import Place as Home
from ...host.memory import POISON
from ...replay.bucket import is_random
from ...replay.capture import collector_frozen
from ..arrays.protocol import DeviceArray, Framework
from ..driver.compiler import Failed
from ..driver.protocol import GraphWithCopies, KernelCall
from ..kernel_ir.launch import Kernel, KernelLaunch, ScalarArgument
from .bound_plan import CudaPlan
from .device import CudaDevice

MOST_PARTS = 64
"""How many arrays one kernel copies at most: a kernel takes 4 KiB of arguments."""

LEAST_PLACED = 1 << 20
"""Results of so many bytes are computed where the caller gets them."""

MOST_PLACES = 4
"""For how many places at a time there are graphs; who holds a result until the next one is there needs two."""

_FIRST_SIGHTS = 3
"""How often memory has to be given for results before a graph is recorded for it."""
_MOST_SEEN = 64

_THREADS = 256
_WORDS_A_THREAD = 4
_BLOCKS_A_PROCESSOR = 8

Part = tuple[int, int]
"""An address in the memory of the plan, and bytes."""

Places = tuple[int, ...]
"""Addresses of large results."""


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


def copy_arguments(parts: Sequence[Part]) -> list[int | ScalarArgument]:
    """Arguments with which each array is copied to itself: the addresses that are exchanged come first."""
    addresses = [address for address, _nbytes in parts]
    return [*addresses, *addresses, *(ScalarArgument("long long", nbytes) for _address, nbytes in parts)]


class CallsWithCopies:
    """Serves calls in one framework by one launch; `outputs` are the results that it hands out anew, by name.

    `large` are those, by index, that a graph may compute where they are handed out. After a call `wanted` says where
    they lie if a graph for that is worth recording.
    """

    def __init__(
        self,
        graph: GraphWithCopies,
        framework: Framework,
        outputs: Sequence[tuple[str, DeviceArray]],
        large: Sequence[int] = (),
    ) -> None:
        self.wanted: Places = ()
        self._copying = _Exchanging(graph)
        self._placed: OrderedDict[Places, _Exchanging] = OrderedDict()
        self._outputs = outputs
        self._large = large
        self._others = [index for index in range(len(outputs)) if index not in large]
        self._fresh = framework.fresh
        self._seen: Counter[Places] = Counter()
        self._sights = _FIRST_SIGHTS

    def run(self, sources: list[int], stream: int) -> list[Any]:
        """The outputs for inputs at these addresses. Raises what the driver raises."""
        results: list[Any] = []
        targets: list[int] = []
        for _name, like in self._outputs:
            made, address = self._fresh(like)
            results.append(made)
            targets.append(address)
        if not self._large:
            self._copying.launch(sources, targets, stream)
            return results
        places = tuple([targets[index] for index in self._large])
        placed = self._placed.get(places)
        if placed is None:
            self._copying.launch(sources, targets, stream)
            self._see(places)
            return results
        self._placed.move_to_end(places)
        placed.launch(sources, [targets[index] for index in self._others], stream)
        return results

    def copy_into(self, targets: list[int], sources: list[int], stream: int) -> None:
        """Runs with the results copied to these addresses. Raises what the driver raises."""
        self._copying.launch(sources, targets, stream)

    def compute_into(self, graph: GraphWithCopies, targets: list[int], sources: list[int], stream: int) -> None:
        """Runs `graph`, recorded for the places among `targets`, whatever it is good for."""
        _Exchanging(graph).launch(sources, [targets[index] for index in self._others], stream)

    def _see(self, places: Places) -> None:
        """Counts places; those of calls long ago are forgotten."""
        if len(self._seen) == _MOST_SEEN:
            self._seen.clear()
        self._seen[places] += 1
        self.wanted = places if self._seen[places] >= self._sights else ()

    def serve(self, places: Places, graph: GraphWithCopies | None) -> None:
        """Has calls whose results come to lie there served by `graph`; None: no graph is wanted any more.

        Where more places come in turn than there are graphs, each is to be given twice as often as the one before.
        """
        self.wanted = ()
        del self._seen[places]
        if graph is None:
            self._large = ()
            return
        if len(self._placed) == MOST_PLACES:
            _unused, oldest = self._placed.popitem(last=False)
            oldest.close()
            self._sights *= 2
        self._placed[places] = _Exchanging(graph)

    @property
    def nbytes(self) -> int:
        """What the graphs take on the device, as far as that can be seen."""
        return sum(each.nbytes for each in (self._copying, *self._placed.values()))

    def close(self) -> None:
        """Gives the graphs back, which must not be running."""
        for each in (self._copying, *self._placed.values()):
            each.close()


class _Exchanging:
    """A graph, where it reads, and where it copies to."""

    def __init__(self, graph: GraphWithCopies) -> None:
        self._graph = graph
        self._launch = graph.launch
        self._sources: list[int] = []
        self._targets: list[int] = []
        self.nbytes = graph.nbytes
        self.close = graph.close

    def launch(self, sources: list[int], targets: list[int], stream: int) -> None:
        if sources != self._sources:
            self._graph.read_from(sources)
            self._sources = sources
        if targets != self._targets:
            self._graph.write_to(targets)
            self._targets = targets
        self._launch(stream)


class CopyRecorder:
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
        self._framework = framework
        self._buffers = {} if bound.has_states else _movable(bound, outputs)
        self._gathered = {index: like for index, (_name, like) in enumerate(outputs) if not like.is_contiguous}
        packed = {index: framework.empty(like.shape, like.dtype) for index, like in self._gathered.items()}
        self._outputs = [(name, packed.get(index, like)) for index, (name, like) in enumerate(outputs)]
        device = bound.device
        self._before = _call(device, inputs, "source") if inputs else None
        self._after = self._copies(range(len(outputs)))
        self._after_others = self._copies([index for index in range(len(outputs)) if index not in self._buffers])

    def _copies(self, indices: Sequence[int]) -> KernelCall | None:
        results = [(self._outputs[index][1].address, self._outputs[index][1].nbytes) for index in indices]
        return _call(self._bound.device, results, "target") if results else None

    def record(self) -> CallsWithCopies:
        """A recording. Raises what the driver raises."""
        return CallsWithCopies(self._recorded({}, self._after), self._framework, self._outputs, list(self._buffers))

    def record_at(self, places: Places) -> GraphWithCopies:
        """The graph that computes the large results there. Raises what the driver raises."""
        moved = dict(zip(self._buffers.values(), places, strict=True))
        return self._recorded(moved, self._after_others)

    def _recorded(self, moved: Mapping[int, int], after: KernelCall | None) -> GraphWithCopies:
        bound, device = self._bound, self._bound.device
        (segment,) = bound.plan.segments
        calls = [call for step in bound.plan.steps_of(segment) for call in bound.calls_at(step, moved)]
        calls += [partial(self._gather, index) for index in self._gathered]
        device.driver.synchronize(device.stream)
        bound.is_recording = True
        try:
            with collector_frozen():
                return device.driver.frame(self._before, calls, after, device.capture_stream)
        finally:
            bound.is_recording = False

    def _gather(self, index: int, stream: int) -> None:
        """Copies a result that lies otherwise than row by row to where it does, and is copied from."""
        source, target = self._gathered[index], self._outputs[index][1]
        places = (target.address, target.strides), (source.address, source.strides)
        self._bound.device.driver.copy_strided(*places, source.shape, source.dtype.itemsize, stream)

    def problem_with(
        self, made: CallsWithCopies, sources: list[int], expected: list[Any], begin: Callable[[], None] | None = None
    ) -> str:
        """What is wrong with results over poisoned memory, "" if nothing is; `expected` may lie in that memory.

        `begin` is done before it runs: it brings states back to where `expected` began.
        """
        stream = self._bound.device.stream
        return self._problem(lambda: made.run(sources, stream) or expected, expected, begin)

    def problem_at(self, made: CallsWithCopies, graph: GraphWithCopies, sources: list[int], results: list[Any]) -> str:
        """As `problem_with`, of a graph for the places of these `results`, which are right and are computed again."""
        driver, stream = self._bound.device.driver, self._bound.device.stream

        def again() -> list[Any]:
            for address, (_name, like) in zip(targets, self._outputs, strict=True):
                driver.fill(address, POISON, like.nbytes, stream)
            made.compute_into(graph, targets, sources, stream)
            return results

        targets = self.addresses(results)
        return self._problem(again, results)

    def addresses(self, results: list[Any]) -> list[int]:
        """Where results lie that were handed out, in order."""
        return [self._framework.wrap(each).address for each in results]

    def _problem(
        self, run: Callable[[], list[Any]], expected: list[Any], begin: Callable[[], None] | None = None
    ) -> str:
        bound, driver, stream = self._bound, self._bound.device.driver, self._bound.device.stream
        wanted = [self._bytes_of(each) for each in expected]
        if begin is not None:
            begin()
        bound.poison()
        for address, nbytes in self._inputs:
            driver.fill(address, POISON, nbytes, stream)
        for index, (given, content) in enumerate(zip(run(), wanted, strict=True)):
            if not np.array_equal(self._bytes_of(given), content):
                return f"output {repr(self._outputs[index][0]) if self._outputs else index} is another than without"
        return ""

    def _bytes_of(self, native: Any) -> Array:
        return np.frombuffer(np.asarray(self._framework.wrap(native)).tobytes(), np.uint8)


def _movable(bound: CudaPlan, outputs: Sequence[tuple[str, DeviceArray]]) -> dict[int, int]:
    """The buffers of large results, by index, in which nothing lies but the result and what it was made from."""
    graph, views = bound.plan.graph, bound.plan.views
    by_name = dict(zip(graph.output_names, graph.outputs, strict=True))
    held = Counter(views[by_name[name]].buffer for name, _like in outputs)
    held.update(views[value].buffer for value in graph.inputs if value in views)
    found: dict[int, int] = {}
    for index, (name, like) in enumerate(outputs):
        buffer = bound.plan.buffers[views[by_name[name]].buffer]
        is_alone = buffer.place is Home.ARENA and buffer.nbytes == like.nbytes and held[buffer.id] == 1
        if like.nbytes >= LEAST_PLACED and is_alone and like.is_contiguous:
            found[index] = buffer.id
    return found


def can_hold_copies(bound: CudaPlan, inputs: int, outputs: int) -> bool:
    """Whether a plan can run once more to see that a graph with copies gives the same: without chance."""
    if not 0 < max(inputs, outputs) <= MOST_PARTS or len(bound.plan.segments) != 1:
        return False
    return not bound.plan.copies and not is_random(bound.plan)


def _call(device: CudaDevice, parts: Sequence[Part], moving: str) -> KernelCall:
    launch = copy_launch(parts, moving, device.driver.chip.multiprocessors)
    compiled = device.compiler.compile([launch.kernel])[launch.kernel.text]
    if isinstance(compiled, Failed):
        raise CaptureError(f"the kernel that copies does not compile: {compiled.log}")
    return KernelCall(launch, compiled, copy_arguments(parts))
