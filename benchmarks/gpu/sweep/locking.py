"""File locks for the GPU, so that no measurement disturbs another.

A process holds one while it measures to choose, and another while it times programs, when nobody else does anything.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MEASURING = -10
"""The priority of a thread that measures: others compile meanwhile, on all cores."""


class GpuLock:
    """Held by one process at a time, which may hold it again inside. `waited` is how many seconds it took to get."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._depth = 0
        self.waited = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds it inside; a killed process gives it back."""
        if self._depth:
            yield
            return
        with self._path.open("a") as file:
            begin = time.perf_counter()
            fcntl.flock(file, fcntl.LOCK_EX)
            self.waited += time.perf_counter() - begin
            self._depth += 1
            try:
                with _in_front():
                    yield
            finally:
                self._depth -= 1

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """`work`, done while the lock is held."""

        def locked(*args: Any, **kwargs: Any) -> Any:
            with self.held():
                return work(*args, **kwargs)

        return locked


class Quiet:
    """Who makes programs does so beside others; who times them waits until these are done, and goes before new ones."""

    def __init__(self, path: Path) -> None:
        self._at_work = path.with_suffix(".work")
        self._wanted = path.with_suffix(".wanted")

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Works beside others inside, once nobody wants to time."""
        with _locked(self._wanted, fcntl.LOCK_EX):
            pass
        with _locked(self._at_work, fcntl.LOCK_SH):
            yield

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Is alone inside. Not to be called within `broken`."""
        with _locked(self._wanted, fcntl.LOCK_SH), _locked(self._at_work, fcntl.LOCK_EX), _in_front():
            yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("a") as file:  # a killed process gives the lock back
        fcntl.flock(file, how)
        yield


@contextmanager
def _in_front() -> Iterator[None]:
    """Lets this thread go before others, where the system allows it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, MEASURING)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
