"""States in a named store: memory that outlives calls, and that several programs read and update in place."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.errors import InputError, UnsupportedError
from ...ir.graph import Graph
from ...ir.types import DType
from .recorder import NO_STATES


class StateStore:
    """Arrays by name, such as the caches of a model, for the recorded programs that are given this store.

    A program finds a state under the name of the graph input that holds its old content. `store[name]` gives a copy,
    `store[name] = array` overwrites the content with an array of the same shape and dtype. Programs that share a store
    wait for each other.
    """

    def __init__(self, initial: Mapping[str, Any]) -> None:
        self._arrays = {name: np.array(array, order="C") for name, array in initial.items()}
        self.lock = threading.RLock()

    @classmethod
    def over(cls, arrays: Mapping[str, Any]) -> "StateStore":
        """A store of these very arrays, whose owners then see every update. They must be C-contiguous and writeable.

        Arrays of an executor's device have `copy()` and take new content by `array[...] = content`, as NumPy's do.
        """
        made = cls({})
        for name, array in arrays.items():
            if not (array.flags.c_contiguous and array.flags.writeable):
                raise InputError(f"the memory of state {name!r} is not contiguous, or may not be written to")
            made._arrays[name] = array
        return made

    def __repr__(self) -> str:
        return f"StateStore({', '.join(self._arrays)}; {self.nbytes} bytes)"

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __getitem__(self, name: str) -> Array:
        """A copy of what the state holds now. Raises `InputError` for a name that is not there."""
        with self.lock:
            found: Array = self.memory(name).copy()
            return found

    def __setitem__(self, name: str, content: Any) -> None:
        """Overwrites a state. Raises `InputError` for a name that is not there or content that does not fit."""
        held = self.memory(name)
        given = content if isinstance(content, type(held)) else np.asarray(content)
        if held.shape != given.shape or held.dtype != given.dtype:
            raise _other_type(name, held, given)
        with self.lock:
            held[...] = given

    def move(self, arrays: Mapping[str, Any]) -> None:
        """Holds other arrays in the stead of some, of the same shapes and dtypes; programs must be told.

        Raises `InputError` for a name that is not there and for an array that does not fit.
        """
        for name, array in arrays.items():
            held = self.memory(name)
            if (held.shape, held.dtype) != (array.shape, array.dtype):
                raise _other_type(name, held, array)
        with self.lock:
            self._arrays.update(arrays)

    @property
    def nbytes(self) -> int:
        """What all states take."""
        return sum(array.nbytes for array in self._arrays.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The states."""
        return tuple(self._arrays)

    @property
    def lies_on_host(self) -> bool:
        """Whether a state lies in main memory."""
        return any(isinstance(array, np.ndarray) for array in self._arrays.values())

    def memory(self, name: str) -> Any:
        """The array itself, always the same. Raises `InputError` for a name that is not there."""
        if name not in self._arrays:
            known = ", ".join(self._arrays) or "none"
            raise InputError(f"there is no state {name!r} in the store", remedy=f"its states are: {known}")
        return self._arrays[name]


def _other_type(name: str, held: Any, given: Any) -> InputError:
    return InputError(
        f"state {name!r} is {held.dtype}{list(held.shape)}, not {given.dtype}{list(given.shape)}",
        remedy="a state keeps its shape; make another store for another",
    )


class StoredStates:
    """The states of one graph that live in a store: their inputs are not asked for, their outputs not handed out.

    `own` are arrays that no other program has: what the program knows by itself, the state of its random numbers.
    `inputs` are the indices of those inputs, `visible` those of the outputs that callers get. Raises `InputError` for a
    state of another dtype or shape than the graph's, `UnsupportedError` for one whose shape each call chooses.
    """

    def __init__(self, graph: Graph, store: StateStore, own: Mapping[str, Any] = NO_STATES) -> None:
        known = {name: store.memory(name) for name in store.names if name not in own} | dict(own)
        held = [state for state in graph.states if graph.inputs[state.input].name in known]
        names = {state.input: graph.inputs[state.input].name for state in held}
        self.lock = store.lock
        self.own = own
        self.arrays = {name: known[name] for name in names.values()}
        self.inputs = frozenset(names)
        self._store = store
        self._outputs = {state.output: names[state.input] for state in held}
        self.visible = tuple(index for index in range(len(graph.outputs)) if index not in self._outputs)
        for name, array in self.arrays.items():
            _check_fits(graph, name, array)

    def with_inputs(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a call and what the store holds. Raises `InputError` for a stored state that is given."""
        if not self.arrays or not isinstance(given, Mapping):  # where inputs are bound, what is no mapping is refused
            return given
        for name in self.arrays:
            if name in given:
                raise InputError(f"state {name!r} lives in the store", remedy=f"store[{name!r}] = ... overwrites it")
        return {**given, **self.arrays}

    def copied(self, values: Sequence[Any]) -> list[Any]:
        """The inputs of a call in order, with copies of what the store holds."""
        return [value.copy() if index in self.inputs else value for index, value in enumerate(values)]

    def keep(self, results: Sequence[Any]) -> list[Any]:
        """Takes new contents out of the results of an eager call, and gives the others."""
        for index, name in self._outputs.items():
            self.arrays[name][...] = results[index]
        return [results[index] for index in self.visible]

    def move(self, arrays: Mapping[str, Any]) -> None:
        """Has states in other arrays from now on. Raises `InputError` for one that does not fit."""
        self._store.move(arrays)
        self.arrays.update(arrays)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Brings back afterwards what the store holds now."""
        before = {name: array.copy() for name, array in self.arrays.items()}
        try:
            yield
        finally:
            for name, content in before.items():
                self.arrays[name][...] = content


def _check_fits(graph: Graph, name: str, array: Any) -> None:
    ty = graph.value(name).tensor
    if not ty.is_static:
        raise UnsupportedError(
            f"state {name!r} is {ty}: calls choose its shape, and the store has one for all",
            remedy="give it a fixed shape, such as a slot for each request that there may be",
        )
    if ty.shape != array.shape or ty.dtype is not DType.of(array.dtype):
        raise InputError(
            f"state {name!r} is {ty}, but the store holds {array.dtype}{list(array.shape)}",
            remedy="make a store with arrays of the model's shapes and dtypes",
        )


def checked_store(graph: Graph, store: StateStore | None) -> StateStore:
    """The store of a program; an empty one where none is wished. Raises `InputError` for one that it would not use."""
    if store is None:
        return StateStore({})
    names = [graph.inputs[state.input].name for state in graph.states]
    if not any(name in store for name in names):
        raise InputError(
            f"the store holds no state of {graph.name}: it has {', '.join(store.names) or 'none'}",
            remedy=f"the states of the model are: {', '.join(names) or 'none'}",
        )
    return store
