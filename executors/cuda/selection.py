"""Which of several ways does a step fastest: measured once per device and problem, and kept on disk.

Each way is recorded several times over, on buffers that take turns and together exceed the cache, and the graph is
timed. A choice is a small JSON file under the hash of what it was made for: device, problem, and the ways there were.
Choices can be exported and brought to another machine with the same device; whoever finds one measures nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ir.constant import Constant
from ...ir.errors import CapgraphError, InputError
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.plan import View
from .cache import read_file, write_file
from .driver import Enqueue, Memory
from .launch import Argument, Candidate, HostCall, KernelLaunch, LibraryCall, Packed, Place, Task
from .lowering import Ways
from .timing import graph_seconds

if TYPE_CHECKING:
    from .device import CudaDevice

ROTATED_BYTES = 192 << 20
"""How much memory the buffers of a measurement take together: several times the cache."""

MOST_TURNS = 16
REPETITIONS = 12

HEAVY = Trait.PRODUCT
"""The trait of ops that are measured unless that is switched off."""


@dataclass(frozen=True)
class Choice:
    """The fastest way of a problem, and the seconds of all that could be measured."""

    name: str
    seconds: Mapping[str, float]


class Choices:
    """Choices on disk, in `folder`. What cannot be read, or makes no sense, counts as missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Choice] = {}

    def find(self, key: str) -> Choice | None:
        """The choice for a problem."""
        if key not in self._known:
            content = read_file(self.folder / f"{key}.json")
            found = None if content is None else _choice_in(content)
            if found is None:
                return None
            self._known[key] = found
        return self._known[key]

    def keep(self, key: str, choice: Choice) -> None:
        """Keeps a choice, in memory where the folder cannot be written."""
        self._known[key] = choice
        text = json.dumps({"name": choice.name, "seconds": dict(choice.seconds)}, indent=1)
        write_file(self.folder / f"{key}.json", text.encode())

    def export(self) -> str:
        """Every choice that was used or made, as JSON."""
        known = {key: {"name": each.name, "seconds": dict(each.seconds)} for key, each in sorted(self._known.items())}
        return json.dumps(known, indent=1)

    def take_over(self, exported: str) -> int:
        """Keeps what `export` gave elsewhere; how many. Raises `InputError` for another text."""
        try:
            parts = {key: _choice_in(json.dumps(each).encode()) for key, each in json.loads(exported).items()}
        except (ValueError, AttributeError) as error:
            raise InputError(
                f"these are no exported choices: {error}", remedy="pass the text that export gave"
            ) from error
        found = {key: choice for key, choice in parts.items() if choice is not None}
        for key, choice in found.items():
            self.keep(key, choice)
        return len(found)


def _choice_in(content: bytes) -> Choice | None:
    try:
        found = json.loads(content)
        return Choice(str(found["name"]), {str(name): float(each) for name, each in found["seconds"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Selector:
    """Puts the fastest way of each step first. `tunes` None: of heavy ones; True: of all; False: of none."""

    def __init__(self, device: "CudaDevice", choices: Choices, tunes: bool | None = None) -> None:
        self.choices = choices
        self.measured = 0
        self._device = device
        self._tunes = tunes

    def ordered(self, ways: Ways) -> Ways:
        """The ways of a step, the one that was chosen for it first."""
        task = ways.task
        if task is None or not self._is_tuned(task.node):
            return ways
        candidates = [each for way in ways.candidates for each in self._variants(way)]
        measurable = [each for each in candidates if not _is_on_host(each)]
        if len(measurable) < 2:
            return ways
        key = problem_key(self._device_name(), task, measurable)
        choice = self.choices.find(key)
        if choice is None:
            choice = self._measured(task, measurable)
            if choice is None:
                return ways
            self.choices.keep(key, choice)
        first = [each for each in measurable if each.name == choice.name]
        return replace(ways, candidates=(*first, *(each for each in candidates if each.name != choice.name)))

    def _is_tuned(self, node: Node) -> bool:
        if self._tunes is not None:
            return self._tunes
        inside = node.attrs["body"].nodes if node.op.name == "fused" else (node,)
        return any(each.op.has(HEAVY) for each in inside)

    def _device_name(self) -> str:
        driver = self._device.driver
        return f"{driver.name}, {driver.chip}"

    def _variants(self, candidate: Candidate) -> list[Candidate]:
        """A candidate with each algorithm that the library of its first open call has."""
        for position, launch in enumerate(candidate.launches):
            if isinstance(launch, LibraryCall) and launch.algorithm is None:
                algorithms = self._device.library(launch.library).algorithms(launch)
                return [candidate, *(_with_algorithm(candidate, position, launch, each) for each in algorithms[1:])]
        return [candidate]

    # ---- measuring

    def _measured(self, task: Task, candidates: Sequence[Candidate]) -> Choice | None:
        """The fastest of `candidates`; None when none could be measured."""
        self.measured += 1
        self._device.compiler.compile(kernel.kernel for each in candidates for kernel in _kernel_launches(each))
        seconds: dict[str, float] = {}
        refusals: tuple[type[BaseException], ...] = (*self._device.driver.failures, CapgraphError)
        for candidate in candidates:
            try:
                seconds[candidate.name] = Measurement(self._device, task, candidate).seconds()
            except refusals as error:
                self._device.driver.explained(error)  # remembers a lost device
                self._device.driver.check()
        if not seconds:
            return None
        return Choice(min(seconds, key=lambda name: seconds[name]), seconds)


class Measurement:
    """One way of a task on buffers of its own, in a graph. It gives the memory back when it is dropped."""

    def __init__(self, device: "CudaDevice", task: Task, candidate: Candidate) -> None:
        self._device = device
        self._candidate = candidate
        self._spans = dict(_spans(task))
        self._packed = {each: device.constants.packed(each) for each in _packed_in(candidate)}
        total = sum(span.nbytes for span in self._spans.values()) + sum(each.nbytes for each in self._packed.values())
        self._turns = [self._turn() for _ in range(max(1, min(MOST_TURNS, ROTATED_BYTES // max(total, 1))))]

    def seconds(self) -> float:
        """What one repetition takes, the best of some replays."""
        driver, stream = self._device.driver, self._device.capture_stream
        launches = [each for each in self._candidate.launches if not isinstance(each, HostCall)]
        calls = [self._bound(launch, turn) for turn in self._turns for launch in launches]
        for call in calls:
            call(stream)
        driver.synchronize(stream)
        rounds = -(-REPETITIONS // len(self._turns))
        return graph_seconds(self._device, calls, rounds) / len(self._turns)

    def _turn(self) -> dict[int | Packed, Memory]:
        """Memory for every buffer and constant: small numbers in floats, zeros elsewhere, as they may be indices."""
        driver, stream = self._device.driver, self._device.capture_stream
        made: dict[int | Packed, Memory] = {}
        for buffer, span in self._spans.items():
            memory = made[buffer] = driver.allocate(span.nbytes)
            driver.fill(memory.address, SMALL_NUMBERS if span.is_float else 0, memory.nbytes, stream)
        for packed, content in self._packed.items():
            memory = made[packed] = driver.allocate(content.nbytes)
            driver.copy(memory.address, content.address, content.nbytes, stream)
        return made

    def _bound(self, launch: KernelLaunch | LibraryCall, turn: Mapping[int | Packed, Memory]) -> Enqueue:
        def address(argument: Argument) -> int:
            if isinstance(argument, Packed):
                return turn[argument].address
            assert isinstance(argument, Place)  # numbers have no address
            return turn[argument.buffer].address + argument.offset - self._spans[argument.buffer].start

        return self._device.bound(launch, address)


SMALL_NUMBERS = 0x11
"""The byte that fills floats: a small positive number in each dtype. Zeros would be faster than real numbers."""


@dataclass(frozen=True)
class _Span:
    """The part of a buffer that a task touches, from `start`, which keeps the buffer's alignment, to `stop`."""

    start: int
    stop: int
    is_float: bool

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


def _spans(task: Task) -> Iterator[tuple[int, _Span]]:
    views: dict[int, list[View]] = {}
    for view in (*task.operands, *task.results):
        if view is not None:
            views.setdefault(view.buffer, []).append(view)
    for buffer, found in views.items():
        low = min(view.offset + view.reach[0] for view in found)
        high = max(view.offset + view.reach[1] for view in found)
        yield buffer, _Span(low // _ALIGNMENT * _ALIGNMENT, high, all(view.dtype.is_float for view in found))
    if task.scratch is not None:
        yield task.scratch.buffer, _Span(0, task.scratch.offset + task.scratch_bytes, False)


_ALIGNMENT = 256


def _packed_in(candidate: Candidate) -> set[Packed]:
    found: set[Packed] = set()
    for launch in candidate.launches:
        if isinstance(launch, KernelLaunch):
            found.update(each for each in launch.arguments if isinstance(each, Packed))
        elif isinstance(launch, LibraryCall):
            found.update(each for each in launch.arguments.values() if isinstance(each, Packed))
    return found


def _kernel_launches(candidate: Candidate) -> list[KernelLaunch]:
    return [launch for launch in candidate.launches if isinstance(launch, KernelLaunch)]


def _is_on_host(candidate: Candidate) -> bool:
    return any(isinstance(launch, HostCall) for launch in candidate.launches)


def _with_algorithm(candidate: Candidate, position: int, call: LibraryCall, algorithm: Any) -> Candidate:
    launches = list(candidate.launches)
    launches[position] = replace(call, algorithm=algorithm)
    return replace(candidate, name=f"{candidate.name} {json.dumps(algorithm)}", launches=tuple(launches))


# ---- what a choice is made for


def problem_key(device: str, task: Task, candidates: Sequence[Candidate]) -> str:
    """The hash of a problem: equal ones, such as those of equal layers, share a choice."""
    layouts = [_layout(view) for view in (*task.operands, *task.results)]
    constants = sorted(task.constants)
    parts = (device, *node_lines(task.node), *layouts, str(constants), *(each.name for each in candidates))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def _layout(view: View | None) -> str:
    return "none" if view is None else f"{view.dtype.value}{list(view.shape)} by {list(view.strides)}"


def node_lines(node: Node) -> Iterator[str]:
    """A node without names: ops, attributes, types; values of a body are numbered."""
    yield f"{node.op.name} {_attributes(node)}"
    for body in node.regions.values():
        yield from _body_lines(body)


def _body_lines(body: Graph) -> Iterator[str]:
    numbers: dict[Value, int] = {value: index for index, value in enumerate(body.inputs)}
    for node in body.nodes:
        operands = [None if value is None else numbers[value] for value in node.inputs]
        for value in node.outputs:
            numbers[value] = len(numbers)
        yield f"{[str(value.type) for value in node.outputs]} {operands}"
        yield from node_lines(node)
    yield str([numbers[value] for value in body.outputs])


def _attributes(node: Node) -> list[str]:
    return [f"{name}={_plain(value)}" for name, value in sorted(node.attrs.items()) if not isinstance(value, Graph)]


def _plain(value: Any) -> str:
    return value.digest if isinstance(value, Constant) else repr(value)
