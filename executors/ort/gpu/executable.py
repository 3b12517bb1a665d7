"""Programs for one thread: ONNX Runtime keeps what it records by thread, and would record again in another."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from ....ir.errors import ExecutionError, InputError
from ....ir.graph import Graph
from ....ir.target import Target
from ...base import Coverage, Covered, Executable, Executor
from ...replay.counters import Counting, Stats


class OneThread:
    """Calls of `inner` from the thread whose inputs are the first to be accepted.

    ONNX Runtime keeps its recordings by thread: another would warm up, record and take memory anew, in the middle of a
    call. `notes` is asked for what there is to say of the sessions.
    """

    def __init__(self, inner: Executable, notes: Iterable[str]) -> None:
        self._inner = inner
        self._notes = notes
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`. Raises `ExecutionError` in another thread than that of the first call."""
        if self._thread is threading.current_thread():
            return self._inner.run(inputs)
        with self._lock:  # until a thread is found calls wait for each other
            self._check()
            self.belong_here()
            try:
                return self._inner.run(inputs)
            except InputError:  # nothing ran, so nothing is recorded for this thread
                self._thread = None
                raise

    def belong_here(self) -> None:
        """Makes the program that of the present thread."""
        self._thread = threading.current_thread()

    def _check(self) -> None:
        if self._thread is not None:
            here = threading.current_thread()
            raise ExecutionError(
                f"this program is called in thread {here.name!r}, but belongs to {self._thread.name!r}: ONNX Runtime "
                "keeps what it records for one thread",
                remedy="make all calls in one thread, such as a concurrent.futures.ThreadPoolExecutor(1), or a program "
                'for each thread; executor="graph" has no such limit',
            )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines for `explain()`."""
        return (*self._notes, *getattr(self._inner, "remarks", ()))

    def stats(self) -> Stats:
        """See `Counting.stats`."""
        assert isinstance(self._inner, Counting)  # a recorded program is one
        return self._inner.stats()

    def coverage(self) -> Coverage:
        """See `Covered.coverage`."""
        assert isinstance(self._inner, Covered)  # what runs on a GPU is one
        return self._inner.coverage()

    def close(self) -> None:
        """See `Executable.close`."""
        self._inner.close()


class OneThreadExecutor:
    """What `inner` makes of a graph, for one thread: that which makes it if it `is_bound_at_once`."""

    def __init__(self, inner: Executor, notes: Iterable[str], *, is_bound_at_once: bool) -> None:
        self._inner = inner
        self._notes = notes
        self._is_bound_at_once = is_bound_at_once

    def target(self) -> Target:
        """See `Executor.target`."""
        return self._inner.target()

    def compile(self, graph: Graph) -> OneThread:
        """See `Executor.compile`."""
        made = OneThread(self._inner.compile(graph), self._notes)
        if self._is_bound_at_once:
            made.belong_here()
        return made
