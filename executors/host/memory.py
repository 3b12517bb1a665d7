"""Memory on the host: bytes at a fixed address, and memory that lies elsewhere from run to run, with its calls."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.errors import CaptureError, ResourceError, out_of_memory
from ...ir.plan import Place, Plan, View
from ...ir.types import DType
from ..memory import available_bytes, size_text
from .calls import ArrayCall, ThroughMeaning

POISON = 0xFF
"""The byte that stands where nothing should be read: NaN in every float dtype, -1 in signed integers."""


class HostArena:
    """`nbytes` bytes at `address`, a multiple of `alignment`. They hold poison until something is written."""

    def __init__(self, nbytes: int, alignment: int) -> None:
        limit = available_bytes()
        if limit is not None and nbytes > limit:
            raise ResourceError(
                f"the arena takes {size_text(nbytes)}, but {size_text(limit)} are available",
                remedy="allow smaller sizes or fewer buckets",
            )
        try:
            memory = np.full(nbytes + alignment, POISON, dtype=np.uint8)
        except MemoryError as error:
            raise out_of_memory(f"an arena of {size_text(nbytes)}", remedy="allow smaller sizes") from error
        start = -address_of(memory) % alignment
        self._bytes: Array | None = memory[start : start + nbytes]
        self.nbytes = nbytes
        self.address = address_of(memory) + start

    @property
    def bytes(self) -> Array:
        """The memory, u8[nbytes]. Raises `CaptureError` once it was given back."""
        if self._bytes is None:
            raise CaptureError("the arena was given back", remedy="a program cannot run after close()")
        return self._bytes

    def close(self) -> None:
        """Gives the memory back; recordings that refer to it refuse to be replayed."""
        self._bytes = None
        self.address = 0


class ArenaPart:
    """`nbytes` bytes from `offset` on of another arena, which owns them."""

    def __init__(self, whole: "HostArena | ArenaPart", offset: int, nbytes: int) -> None:
        self._whole = whole
        self._offset = offset
        self.nbytes = nbytes

    @property
    def bytes(self) -> Array:
        """The memory, u8[nbytes]. Raises `CaptureError` once the arena was given back."""
        return self._whole.bytes[self._offset : self._offset + self.nbytes]

    @property
    def address(self) -> int:
        """Where it lies; 0 once the arena was given back."""
        return self._whole.address + self._offset if self._whole.address else 0

    def close(self) -> None:
        """Nothing: the arena is its owner's."""


def address_of(array: Array) -> int:
    """Where the first element lies."""
    return int(array.__array_interface__["data"][0])


def array_at(memory: Array, view: View) -> Array:
    """The array that `view` describes in the bytes of its buffer."""
    return np.ndarray(view.shape, view.dtype.numpy, memory, view.offset, view.strides)


FRESH_BYTES = 1 << 16
"""From how many bytes on, for each call that touches it, copying a result costs more than memory of its own."""


class MovingMemory:
    """Buffers of `plan` that lie elsewhere from run to run: results that are handed out, and inputs of callers.

    `arrays` has the arrays in them as they are now, None where there is no memory. A call that touches such memory is
    bound to indices of `arrays`, so that nothing else needs to change when a buffer moves, and no call holds what
    callers have got.
    """

    def __init__(self, plan: Plan) -> None:
        self._fresh = {buffer.id: buffer.nbytes for buffer in plan.buffers if buffer.place is Place.OUTPUT}
        self._nbytes = [buffer.nbytes for buffer in plan.buffers]
        self._memory: dict[int, Array] = {}
        self._unmarked: set[int] = set()
        self._made: set[int] = set()
        self._handed: set[int] = set()
        self._indices: dict[int, dict[View, int]] = {index: {} for index in self._fresh}
        self._whole: dict[int, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        self.arrays: list[Array | None] = []

    def __contains__(self, buffer: int) -> bool:
        """Whether a buffer lies here."""
        return buffer in self._fresh or buffer in self._memory

    # ---- what callers bring

    def put(self, buffer: int, array: Array) -> None:
        """Puts a buffer where `array` lies, which is contiguous and not empty."""
        whole = self._whole.get(buffer)
        if whole is None:
            self._move(buffer, array.reshape(-1).view(np.uint8))
        else:
            self._memory[buffer] = self.arrays[whole[0]] = array
        self._unmarked.add(buffer)

    def remove(self, buffer: int) -> None:
        """Lets go of the memory of a buffer."""
        if self._memory.pop(buffer, None) is not None:
            self._unmarked.discard(buffer)
            for index in self._indices[buffer].values():
                self.arrays[index] = None

    # ---- what callers get

    @property
    def fresh(self) -> dict[int, Array]:
        """The bytes of the buffers that are handed out after the run at hand, u8[n]."""
        found = {index: self._memory[index] for index in self._fresh if index in self._memory}
        return {index: array.reshape(-1).view(np.uint8) for index, array in found.items()}

    def renew(self) -> None:
        """Begins a run: what was handed out is not written again. Raises `ResourceError` when memory runs out."""
        if self._handed:
            self.drop()
        if len(self._made) < len(self._fresh):
            for buffer in self._fresh:
                if buffer not in self._memory:
                    self._allocate(buffer)

    def drop(self) -> None:
        """Ends a run: lets go of the memory for results."""
        for buffer in self._made:
            self.remove(buffer)
        self._made.clear()
        self._handed.clear()

    def hand_over(self, view: View, array: Array) -> bool:
        """Whether `array`, all or a part of `view`, becomes the caller's as it is: it is copied otherwise.

        Only one result gets a buffer, and only when it needs most of it.
        """
        nbytes = self._fresh.get(view.buffer)
        if nbytes is None or view.buffer in self._handed or 2 * array.nbytes < nbytes:
            return False
        if array.shape != view.shape and not array.flags.c_contiguous:
            return False
        self._handed.add(view.buffer)
        return True

    def handed_again(self, buffer: int) -> Array | None:
        """The only array in a buffer, as the caller's own; None where there are others, or it was handed out."""
        whole = self._whole.get(buffer)
        if whole is None or buffer in self._handed:
            return None
        self._handed.add(buffer)
        return self.arrays[whole[0]]

    def adopt(self, index: int, buffer: int, array: Array) -> bool:
        """Takes `array`, which nobody else has, in the stead of memory that only one view describes."""
        if buffer not in self._whole:
            return False
        self._memory[buffer] = self.arrays[index] = array
        return True

    # ---- arrays and calls

    def array(self, view: View) -> Array:
        """The array that `view` describes now."""
        if view.buffer not in self._memory:
            self.renew()
        if view.buffer in self._unmarked:
            self._unmarked.discard(view.buffer)
            self._move(view.buffer, np.asarray(_Root(self._memory[view.buffer].reshape(-1).view(np.uint8))))
        found = self.arrays[self._index(view)]
        assert found is not None  # there is memory for it
        return found

    def bound(self, call: ArrayCall) -> Callable[[], Any]:
        """`call` without arguments; those that lie in this memory are looked up when it is made."""
        arguments = (*call.operands, *call.results)
        views = [self._view_of(argument) for argument in arguments]
        moving = {place: self._index(view) for place, view in enumerate(views) if view is not None}
        if not moving:
            return call.bound()
        result = views[-1]
        is_meant = isinstance(call.function, ThroughMeaning) and len(call.results) == 1
        if is_meant and result is not None and result.buffer in self._fresh:
            return MeantResult(call, self, moving, result.buffer)
        return moving_call(call, self.arrays, moving)

    def _move(self, buffer: int, memory: Array) -> None:
        self._memory[buffer] = memory
        for view, index in self._indices.setdefault(buffer, {}).items():
            self.arrays[index] = array_at(memory, view)

    def _allocate(self, buffer: int) -> None:
        nbytes, whole = self._fresh[buffer], self._whole.get(buffer)
        try:
            if whole is None:
                self._move(buffer, np.empty(nbytes, np.uint8))
            else:
                index, shape, dtype = whole
                self._memory[buffer] = self.arrays[index] = np.empty(shape, dtype)
            self._made.add(buffer)
        except MemoryError as error:
            self.drop()
            raise out_of_memory(f"a result of {size_text(nbytes)}") from error

    def _index(self, view: View) -> int:
        indices = self._indices[view.buffer]
        found = indices.get(view)
        if found is None:
            found = indices[view] = len(self.arrays)
            memory = self._memory[view.buffer]
            self.arrays.append(array_at(memory, view))
            self._note_whole(view, found)
        return found

    def _note_whole(self, view: View, index: int) -> None:
        """Remembers whether one array is all that there is in a buffer."""
        is_alone = len(self._indices[view.buffer]) == 1
        self._whole.pop(view.buffer, None)
        if is_alone and view.is_contiguous and view.extent == self._nbytes[view.buffer]:
            self._whole[view.buffer] = (index, view.shape, view.dtype.numpy)

    def _view_of(self, argument: Any) -> View | None:
        """Where an argument lies in this memory, None for another."""
        if not isinstance(argument, np.ndarray):
            return None
        for buffer, memory in self._memory.items():
            if buffer not in self._unmarked and (argument is memory or argument.base is memory):
                offset = address_of(argument) - address_of(memory)
                return View(buffer, offset, DType.of(argument.dtype), argument.shape, argument.strides)
        return None


class _Root:
    """Memory of a caller under a base of its own.

    NumPy lets views refer to the owner of memory. A base of another type ends that, and so tells arrays that have to
    move from others in the same memory, such as a weight that is a part of what the caller brings.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def moving_call(call: ArrayCall, arrays: list[Array | None], moving: dict[int, int]) -> Callable[[], Any]:
    """A prebound call; the arguments whose places are in `moving` are looked up each time, by index into `arrays`."""
    function, given = call.function, (*call.operands, *call.results)
    places = sorted(moving)
    first, last = places[0], places[-1]
    before, between, after = given[:first], given[first + 1 : last], given[last + 1 :]
    one, other = moving[first], moving[last]
    if len(places) == 1:
        return lambda: function(*before, arrays[one], *after)
    if len(places) == 2:
        return lambda: function(*before, arrays[one], *between, arrays[other], *after)
    look_up = arguments_of(call, arrays, moving)
    return lambda: function(*look_up())


def arguments_of(call: ArrayCall, arrays: list[Array | None], moving: dict[int, int]) -> Callable[[], list[Any]]:
    """What gives operands and results as they lie at the time."""
    given = [None if place in moving else each for place, each in enumerate((*call.operands, *call.results))]
    pairs = tuple(moving.items())

    def look_up() -> list[Any]:
        found = given.copy()
        for place, index in pairs:
            found[place] = arrays[index]
        return found

    return look_up


class MeantResult:
    """A call through an op's meaning whose only result is handed out: what the meaning allocates need not be copied."""

    __slots__ = ("_arguments", "_buffer", "_function", "_index", "_memory")

    def __init__(self, call: ArrayCall, memory: MovingMemory, moving: dict[int, int], buffer: int) -> None:
        assert isinstance(call.function, ThroughMeaning)  # chosen for it
        self._function = call.function
        self._arguments = arguments_of(call, memory.arrays, moving)
        self._memory = memory
        self._index = moving[len(call.operands)]
        self._buffer = buffer

    def __call__(self) -> None:
        """Computes, and copies what cannot be taken as it is."""
        *operands, wanted = self._arguments()
        given = self._function.meaning(*operands)
        is_fit = _is_new(given, operands) and _is_alike(given, wanted)
        if not (is_fit and self._memory.adopt(self._index, self._buffer, given)):
            self._function.keep(given, (wanted,))


def _is_new(given: Any, operands: Sequence[Any]) -> bool:
    """Whether a meaning allocated what it gave."""
    if type(given) is not np.ndarray or given.base is not None or not given.flags.writeable:
        return False
    return all(given is not operand for operand in operands)


def _is_alike(given: Array, wanted: Array) -> bool:
    if not (given.flags.c_contiguous and wanted.flags.c_contiguous):
        return False
    return given.shape == wanted.shape and given.dtype == wanted.dtype
