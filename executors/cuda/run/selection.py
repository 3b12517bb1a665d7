"""Which of several candidates does a step fastest: measured once per device and problem, and kept on disk.

Each candidate is recorded several times over, on buffers that take turns and together exceed the cache, and the graph
is timed. A choice is a small JSON file under the hash of what it was made for: device, problem, and candidates.
Choices can be exported and brought to another machine with the same device; whoever finds one measures nothing.
"""

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....ir.errors import CapgraphError, InputError, ResourceError, UnsupportedError
from ....ir.graph import Node
from ....ir.op import Trait
from ....ir.ops.known import ATTENTION, FUSED
from ....ir.plan import Step, View
from ....ir.types import DType
from ..driver.cache import read_file, write_file
from ..driver.protocol import Driver, Enqueue, Memory
from ..kernel_ir.launch import (
    Argument,
    BufferPlace,
    Candidate,
    HostCall,
    Kernel,
    KernelLaunch,
    LibraryCall,
    Packed,
    Task,
)
from ..lower.alike import node_lines
from ..lower.lowering import LoweredStep
from .timing import graph_seconds, seconds_alone

if TYPE_CHECKING:
    from .device import CudaDevice

ROTATED_BYTES = 192 << 20
"""How much memory the buffers of a measurement take together: several times the cache."""

MOST_TURNS = 16
REPETITIONS = 12

TOO_SLOW, HOST_SECONDS = 8, 5e-4
"""A candidate is measured no further if a call takes so many times what the quickest does, and what the host needs:
some of cuDNN's plans launch a kernel for each of hundreds of groups."""

_TRIES = 3

PIECE = 16
"""Bytes that kernels read at once, where an operand begins at a multiple of as many."""

_KEY = re.compile(r"[0-9a-f]{40}")
"""What a choice's file is named; nothing else becomes part of a path."""

HEAVY = Trait.ANCHOR | Trait.SPECTRAL
"""The traits of ops that are measured unless that is switched off."""

MANY_QUERIES = 16
"""From so many queries on attention is measured, too. What few cost depends on lengths, which are made up here."""


@dataclass(frozen=True)
class Choice:
    """The fastest candidate of a problem, the algorithm of its library call, and the seconds of all."""

    name: str
    algorithm: Any
    seconds: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """What is written."""
        return {"name": self.name, "algorithm": self.algorithm, "seconds": dict(self.seconds)}


class TuningCache:
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
        self.remember(key, choice)
        text = json.dumps(choice.as_json(), indent=1)
        write_file(self.folder / f"{key}.json", text.encode())

    def remember(self, key: str, choice: Choice) -> None:
        """Keeps a choice in this process alone."""
        self._known[key] = choice

    def read_all(self) -> int:
        """Takes note of every choice in the folder; how many there are."""
        names = [path.stem for path in sorted(self.folder.glob("*.json"))]
        return sum(self.find(name) is not None for name in names if _KEY.fullmatch(name))

    def export(self) -> str:
        """Every choice that was used, made or read, as JSON."""
        return json.dumps({key: each.as_json() for key, each in sorted(self._known.items())}, indent=1)

    def take_over(self, exported: str) -> int:
        """Keeps what `export` gave elsewhere; how many. Raises `InputError` for another text: all or nothing."""
        found = exported_entries(exported)
        for key, choice in found.items():
            self.keep(key, choice)
        return len(found)


def exported_entries(exported: str) -> dict[str, Choice]:
    """What `Choices.export` has written, by key. Raises `InputError` for another text."""
    try:
        parts = {key: _choice_in(json.dumps(each).encode()) for key, each in json.loads(exported).items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise _no_cache(str(error)) from error
    found = {key: choice for key, choice in parts.items() if choice is not None and _KEY.fullmatch(key)}
    strange = next((key for key in parts if key not in found), None)
    if strange is not None:
        raise _no_cache(f"the entry {strange[:80]!r} is none")
    return found


def _no_cache(why: str) -> InputError:
    return InputError(f"this is no exported tuning cache: {why}", remedy="pass the text that export gave")


def _choice_in(content: bytes) -> Choice | None:
    try:
        found = json.loads(content)
        seconds = {str(name): float(each) for name, each in found["seconds"].items()}
        return Choice(str(found["name"]), found["algorithm"], seconds)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class Selector:
    """Puts the fastest candidate of each step first. `tunes` None: of heavy ones; True: of all; False: of none."""

    def __init__(self, device: "CudaDevice", cache: TuningCache, tunes: bool | None = None) -> None:
        self.cache = cache
        self.measured = 0
        self._device = device
        self._tunes = tunes
        self._lacked_memory = False
        """Whether some candidate of the latest problem was not measured for lack of memory, which others may have."""
        self._memory = _Reused(device.driver)
        self._refused: dict[str, str] = {}
        """The candidates of the latest problem that the device refuses to run, memory or not, and what was said."""

    def kernels_wanted(self, steps: Sequence[LoweredStep]) -> list[Kernel]:
        """The kernels that all steps need first: compiled together they take all cores."""
        return [
            launch.kernel for lowered in steps for each in self._wanted(lowered) for launch in _kernel_launches(each)
        ]

    def _wanted(self, lowered: LoweredStep) -> Sequence[Candidate]:
        """The candidates of a step that are going to be measured, or else its first one."""
        measurable = self._measurable(lowered)
        choice = self.cache.find(self._key(lowered, measurable)) if measurable else None
        if measurable and choice is None:
            return measurable
        return _put_first(lowered, measurable, choice).candidates[:1]

    def _measurable(self, lowered: LoweredStep) -> list[Candidate]:
        """The candidates of a step among which measuring decides; none where there is nothing to decide."""
        if lowered.task is None or not self._is_tuned(lowered.task.node):
            return []
        measurable = [each for each in lowered.candidates if not _is_on_host(each)]
        is_open = len(measurable) > 1 or any(_open_call(each) is not None for each in measurable)
        return measurable if is_open else []

    def _key(self, lowered: LoweredStep, measurable: Sequence[Candidate]) -> str:
        assert lowered.task is not None  # else nothing is measurable
        return problem_key(self._device_name(), lowered.task, measurable)

    def ordered(self, lowered: LoweredStep) -> LoweredStep:
        """The candidates of a step, the one that was chosen for it first."""
        task, measurable = lowered.task, self._measurable(lowered)
        if task is None or not measurable:
            return lowered
        key = self._key(lowered, measurable)
        choice = self.cache.find(key)
        if choice is None:
            choice = self._measured(lowered.step, task, measurable)
            if choice is None:
                return self._without_refused(lowered)
            keep = self.cache.remember if self._lacked_memory else self.cache.keep
            keep(key, choice)
        return _put_first(lowered, measurable, choice)

    def _without_refused(self, lowered: LoweredStep) -> LoweredStep:
        """Candidates of which none could be measured, less those that would fail in every call; these are counted."""
        for name, said in self._refused.items():
            self._device.fallbacks.kernels[f"{lowered.step.node.op.name}, {name}: {said}"] += 1
        return replace(lowered, candidates=tuple(each for each in lowered.candidates if each.name not in self._refused))

    def _is_tuned(self, node: Node) -> bool:
        if self._tunes is not None:
            return self._tunes
        inside = node.attrs["body"].nodes if node.op is FUSED else (node,)
        return any(each.op.has(HEAVY) or _has_many_queries(each) for each in inside)

    def _device_name(self) -> str:
        driver = self._device.driver
        return f"{driver.name}, {driver.chip}"

    def _variants(self, candidate: Candidate) -> Iterator[tuple[Any, Candidate]]:
        """A candidate with each algorithm that its library has for it; None is the library's first choice."""
        yield None, candidate
        call = _open_call(candidate)
        if call is not None:
            for algorithm in self._device.library(call.library).algorithms(call)[1:]:
                yield algorithm, _with_algorithm(candidate, algorithm)

    # ---- measuring

    def _measured(self, step: Step, task: Task, candidates: Sequence[Candidate]) -> Choice | None:
        """The fastest of `candidates`; None when none could be measured."""
        device = self._device
        self.measured += 1
        self._lacked_memory = False
        self._refused = {}
        device.compiler.compile(kernel.kernel for each in candidates for kernel in _kernel_launches(each))
        seconds: dict[str, float] = {}
        best: tuple[float, str, Any] | None = None
        for candidate in candidates:
            if device.fails_to_compile(step, candidate):
                continue
            for algorithm, found in self._times(task, candidate, seconds):
                label = candidate.name if algorithm is None else f"{candidate.name} {json.dumps(algorithm)}"
                seconds[label] = found
                if best is None or found < best[0]:
                    best = found, candidate.name, algorithm
        self._memory.keep(())
        return None if best is None else Choice(best[1], best[2], seconds)

    def _times(self, task: Task, candidate: Candidate, known: Mapping[str, float]) -> Iterator[tuple[Any, float]]:
        """The seconds that a candidate takes by each algorithm that can be run; `known` grows meanwhile."""
        refusals: list[Exception] = []
        tried = self._tried(candidate)
        for algorithm, variant in tried:
            found = self._seconds(task, variant, TOO_SLOW * min(known.values(), default=math.inf) + HOST_SECONDS)
            if isinstance(found, Exception):
                refusals.append(found)
            else:
                yield algorithm, found
        lacked_memory = any(isinstance(each, ResourceError) for each in refusals)
        self._lacked_memory |= lacked_memory
        if refusals and len(refusals) == len(tried) and not lacked_memory:
            self._refused[candidate.name] = str(refusals[0]).partition("\n")[0]

    def _tried(self, candidate: Candidate) -> list[tuple[Any, Candidate]]:
        try:
            return list(self._variants(candidate))
        except UnsupportedError:
            return []  # the library has nothing for it

    def _seconds(self, task: Task, candidate: Candidate, limit: float) -> float | Exception:
        """What a candidate takes, or why it cannot be run."""
        refusals: tuple[type[BaseException], ...] = (*self._device.failures, CapgraphError)
        try:
            return Measurement(self._device, task, candidate, self._memory).seconds(limit)
        except refusals as error:
            explained = self._device.driver.explained(error)  # remembers a lost device
            self._device.driver.check()
            return explained


def _has_many_queries(node: Node) -> bool:
    """Whether a node is attention of many queries to all keys."""
    if node.op is not ATTENTION or any(value is not None for value in node.inputs[4:]):
        return False
    queries = node.operands[0].shape[-2]
    return isinstance(queries, int) and queries >= MANY_QUERIES


class _Reused:
    """Memory for the candidates of one problem in turn: to allocate it anew takes longer than to time one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._free: dict[int, list[Memory]] = {}

    def take(self, nbytes: int) -> Memory:
        """Memory of just so many bytes. Raises `ResourceError` where nothing that is free gives way to it."""
        free = self._free.get(nbytes)
        if free:
            return free.pop()
        try:
            return self._driver.allocate(nbytes)
        except ResourceError:
            if not self._free:
                raise
        self._free.clear()
        return self._driver.allocate(nbytes)

    def keep(self, sizes: Collection[int]) -> None:
        """Gives back what is free of other sizes."""
        self._free = {nbytes: free for nbytes, free in self._free.items() if nbytes in sizes}

    def give_back(self, memory: Memory, nbytes: int) -> None:
        """Takes memory back that was taken for so many bytes."""
        self._free.setdefault(nbytes, []).append(memory)


class Measurement:
    """One candidate of a task on its own buffers, in a graph. It gives the memory back when it ran or is dropped."""

    def __init__(self, device: "CudaDevice", task: Task, candidate: Candidate, memory: _Reused) -> None:
        self._device = device
        self._candidate = candidate
        self._memory = memory
        self._spans = dict(_spans(task))
        self._packed = {each: device.constants.packed(each) for each in _packed_in(candidate)}
        sizes = [*(each.nbytes for each in self._spans.values()), *(each.nbytes for each in self._packed.values())]
        memory.keep(sizes)
        self._turns = [self._turn() for _ in range(max(1, min(MOST_TURNS, ROTATED_BYTES // max(sum(sizes), 1))))]

    def seconds(self, limit: float) -> float:
        """What one repetition takes, the best of some replays; what it takes by itself where that is above `limit`.

        Afterwards the memory is the next candidate's.
        """
        found = self._timed(limit)
        for turn in self._turns:
            for key, memory in turn.items():
                held = self._packed[key].nbytes if isinstance(key, Packed) else self._spans[key].nbytes
                self._memory.give_back(memory, held)
        self._turns = []
        return found

    def _timed(self, limit: float) -> float:
        driver, stream = self._device.driver, self._device.capture_stream
        launches = [each for each in self._candidate.launches if not isinstance(each, HostCall)]
        first, *others = [[self._bound(launch, turn) for launch in launches] for turn in self._turns]
        for call in first:
            call(stream)
        alone = min(seconds_alone(self._device, first) for _ in range(_TRIES))  # others may be at work
        if alone > limit:
            return alone
        calls = [*first, *(call for each in others for call in each)]
        for call in calls:
            call(stream)
        driver.synchronize(stream)
        rounds = -(-REPETITIONS // len(self._turns))
        return graph_seconds(self._device, calls, rounds) / len(self._turns)

    def _turn(self) -> dict[int | Packed, Memory]:
        """Memory for every buffer and constant, filled as `_Span.fill` says."""
        driver, stream = self._device.driver, self._device.capture_stream
        made: dict[int | Packed, Memory] = {}
        for buffer, span in self._spans.items():
            memory = made[buffer] = self._memory.take(span.nbytes)
            driver.fill(memory.address, span.fill, memory.nbytes, stream)
        for packed, content in self._packed.items():
            memory = made[packed] = self._memory.take(content.nbytes)
            driver.copy(memory.address, content.address, content.nbytes, stream)
        return made

    def _bound(self, launch: KernelLaunch | LibraryCall, turn: Mapping[int | Packed, Memory]) -> Enqueue:
        def address(argument: Argument) -> int:
            if isinstance(argument, Packed):
                return turn[argument].address
            assert isinstance(argument, BufferPlace)  # numbers have no address
            return turn[argument.buffer].address + argument.offset - self._spans[argument.buffer].start

        return self._device.bound(launch, address)


SMALL_NUMBERS = 0x11
"""The byte that fills floats: a small positive number in each dtype. Zeros would be faster than real numbers."""


@dataclass(frozen=True)
class _Span:
    """The part of a buffer that a task touches, from `start`, which keeps the buffer's alignment, to `stop`.

    It is filled with small numbers of floats, with true of bools, as masks that hide all spare work, else with zeros,
    as they may be indices.
    """

    start: int
    stop: int
    fill: int

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
        yield buffer, _Span(low // _ALIGNMENT * _ALIGNMENT, high, _fill(found))
    if task.scratch is not None:
        yield task.scratch.buffer, _Span(0, task.scratch.offset + task.scratch_bytes, 0)


def _fill(views: Sequence[View]) -> int:
    if all(view.dtype.is_float for view in views):
        return SMALL_NUMBERS
    return int(all(view.dtype is DType.BOOL for view in views))


_ALIGNMENT = 256


def _put_first(lowered: LoweredStep, measurable: Sequence[Candidate], choice: Choice | None) -> LoweredStep:
    """The candidates of a step, the chosen one first if there is one."""
    if choice is None:
        return lowered
    first = [_with_algorithm(each, choice.algorithm) for each in measurable if each.name == choice.name]
    return replace(lowered, candidates=(*first, *lowered.candidates))


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


def _open_call(candidate: Candidate) -> LibraryCall | None:
    """The first library call whose algorithm is left to choose."""
    calls = (each for each in candidate.launches if isinstance(each, LibraryCall) and each.algorithm is None)
    return next(calls, None)


def _with_algorithm(candidate: Candidate, algorithm: Any) -> Candidate:
    call = _open_call(candidate)
    if call is None or algorithm is None:
        return candidate
    launches = [replace(call, algorithm=algorithm) if each is call else each for each in candidate.launches]
    return replace(candidate, launches=tuple(launches))


# ---- what a choice is made for


def problem_key(device: str, task: Task, candidates: Sequence[Candidate]) -> str:
    """The hash of a problem: equal ones, such as those of equal layers, share a choice.

    Algorithms of libraries count on where operands begin, and one that rounds f32 to TF32 is for programs that may.
    """
    layouts = [_layout(view) for view in (*task.operands, *task.results)]
    constants = sorted(task.constants)
    parts = [device, *node_lines(task.node), *layouts, str(constants), *(each.name for each in candidates)]
    if task.tf32:
        parts.append("tf32")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]


def _layout(view: View | None) -> str:
    if view is None:
        return "none"
    behind = view.offset % PIECE
    return f"{view.dtype.value}{list(view.shape)} by {list(view.strides)}{f' behind {behind}' if behind else ''}"
