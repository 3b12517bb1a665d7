"""One file lock for the GPU, which a process holds while it measures, so that no measurement disturbs another."""

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
