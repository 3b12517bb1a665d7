"""One file lock for the GPU, which a process holds while it measures, so that no measurement disturbs another."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
                yield
            finally:
                self._depth -= 1

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """`work`, done while the lock is held."""

        def locked(*args: Any, **kwargs: Any) -> Any:
            with self.held():
                return work(*args, **kwargs)

        return locked
