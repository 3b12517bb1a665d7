"""Tasks of many steps in worker processes: a step that hangs or crashes takes neither the task nor the rest along."""

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[str, int], Iterator[Any]]
"""A task by its name, from one of its steps on: gives the result of each step. Runs in a process of its own, so it is
a function of a module, and its results can be pickled."""
MOST_LOST = 5
"""A task that loses so many steps is given up."""
_TASKS_EACH = 60
"""So many tasks a process runs before another takes its place: what one leaves behind in memory goes with it."""


@dataclass(frozen=True)
class Step:
    """A step of a task has its result, or is lost: `lost` says how."""

    task: str
    index: int
    result: Any = None
    lost: str | None = None


@dataclass(frozen=True)
class Finished:
    """A task has no further step, or was given up."""

    task: str


def run_tasks(work: Work, tasks: Sequence[str], *, workers: int, limit_s: float) -> Iterator[Step | Finished]:
    """Runs `tasks` on so many processes. A step that takes longer than `limit_s` seconds is lost, with its process."""
    waiting = deque(tasks)
    active = [_Worker(work, limit_s) for _ in range(min(workers, len(waiting)))]
    try:
        for worker in active:
            worker.begin(waiting.popleft())
        while active:
            ready = wait([worker.connection for worker in active], timeout=1)
            for worker in list(active):
                yield from worker.events(worker.connection in ready)
                if worker.task is None and waiting:
                    worker.begin(waiting.popleft())
                elif worker.task is None:
                    worker.stop()
                    active.remove(worker)
    finally:
        for worker in active:
            worker.stop()


class _Worker:
    """A process, and the task that it is at."""

    connection: Connection

    def __init__(self, work: Work, limit_s: float) -> None:
        self._work = work
        self._limit_s = limit_s
        self._tasks = 0
        self.task: str | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self._work), daemon=True)
        self._process.start()
        other.close()  # so that the process's end is the end of the connection

    def begin(self, task: str) -> None:
        if self._tasks == _TASKS_EACH:
            self._restart()
        self._tasks += 1
        self.task, self._index, self._lost = task, 0, 0
        self._send()

    def _send(self) -> None:
        self._deadline = time.monotonic() + self._limit_s
        self.connection.send((self.task, self._index))

    def events(self, is_ready: bool) -> Iterator[Step | Finished]:
        """What has become of the task since the last call."""
        assert self.task is not None
        if is_ready:
            yield from self._received(self.task)
        elif time.monotonic() > self._deadline:
            yield from self._go_on(self.task, f"took longer than {self._limit_s:g} s")

    def _received(self, task: str) -> Iterator[Step | Finished]:
        try:
            is_step, result = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            yield from self._go_on(task, f"ended its process with status {self._process.exitcode}")
            return
        if is_step:
            yield Step(task, self._index, result)
            self._index += 1
            self._deadline = time.monotonic() + self._limit_s
        else:
            self.task = None
            yield Finished(task)

    def _go_on(self, task: str, why: str) -> Iterator[Step | Finished]:
        """Goes on after the step that is lost."""
        yield Step(task, self._index, lost=why)
        self._index, self._lost = self._index + 1, self._lost + 1
        self._restart()
        if self._lost < MOST_LOST:
            self._send()
        else:
            self.task = None
            yield Finished(task)

    def _restart(self) -> None:
        self.stop()
        self._tasks = 0
        self._start()

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(connection: Connection, work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    while True:
        task, index = connection.recv()
        for result in work(task, index):
            connection.send((True, result))
        connection.send((False, None))
