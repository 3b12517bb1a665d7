"""One model of the sweep in a process of its own: right or not, how it is recorded, and how long a call takes."""

import gc
import os
import random
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import doors
from .check import Checked, Reference, in_f64, together, worst
from .doors import Call, Door
from .locking import GpuLock, Quiet
from .subject import Subject, Tensors

Emit = Callable[[Mapping[str, Any]], None]

FRESH = 2
MORE = 10
"""How many fresh inputs a result is checked on, and how many more where it is wrong on one: all count together then."""

ROUNDS = 12
ROUND_SECONDS = 0.02
"""How often the doors take turns, and how long each is called back to back then."""

SLOW_SECONDS = 0.05
"""A call that takes as long is timed once."""

_DOORS: Mapping[str, Callable[..., Door]] = {
    "optimize": doors.by_optimize,
    "compile": doors.by_compile,
    "reduce-overhead": doors.by_reduce_overhead,
}


@dataclass(frozen=True, slots=True)
class Work:
    """What is asked of each model; `is_busy`: times are taken while other processes work."""

    dtypes: tuple[str, ...]
    timed: tuple[str, ...]
    batches: tuple[int, ...]
    doors: tuple[str, ...]
    small: bool
    device: str
    profiles: Path | None
    lock: Path
    is_busy: bool = False

    def tunes(self, dtype: str) -> bool | None:
        """Whether the candidates of a step are measured: only where calls are timed."""
        return None if dtype in self.timed else False


def run(subject: Subject, work: Work, emit: Emit) -> None:
    """Rows for one model, as they are found."""
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    lock = GpuLock(work.lock)
    _lock_measurements(lock)
    with torch.no_grad():
        for dtype in work.dtypes:
            try:
                module = subject.module(small=work.small, dtype=getattr(torch, dtype), device=work.device)
            except Exception as error:  # noqa: BLE001  # a row, not the end
                emit({"dtype": dtype, "error_text": _told(error)})
                continue
            for batch in work.batches:
                _Case(subject, work, lock, emit, module, dtype, batch).run()
                gc.collect()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
    emit({"door": "done", "seconds": round(time.perf_counter() - begin, 1), "waited_s": round(lock.waited, 1)})


class _Case:
    """A module at one batch size through all doors."""

    def __init__(
        self, subject: Subject, work: Work, lock: GpuLock, emit: Emit, module: nn.Module, dtype: str, batch: int
    ) -> None:
        self.subject, self.work, self.lock, self.module = subject, work, lock, module
        self.dtype, self.batch, self.quiet = dtype, batch, Quiet(work.lock)
        self.emit = lambda row: emit({"dtype": dtype, "batch": batch, **row})
        self.inputs = self._drawn(0)

    def run(self) -> None:
        rows: dict[str, dict[str, Any]] = {}
        with nullcontext() if self.work.is_busy else self.quiet.broken():
            opened = self._opened(rows)
        if self.dtype in self.work.timed and len(opened) > 1:
            opened["eager"] = doors.by_eager(self.module, self.inputs)
            rows["eager"] = {"door": "eager"}
            with nullcontext() if self.work.is_busy else self.quiet.kept():
                self._time(opened, rows)
            for name, row in rows.items():
                row["is_busy"] = self.work.is_busy and name in opened
            for row in rows.values():
                self.emit(row)
        for door in opened.values():
            for program in door.programs:
                program.close()
        torch._dynamo.reset()

    def _opened(self, rows: dict[str, dict[str, Any]]) -> dict[str, Door]:
        """The doors that open, with rows for all that were tried; first times are those beside other work."""
        opened: dict[str, Door] = {}
        try:
            references = self._references()  # loads libraries for seconds, and so leaves the GPU to others
        except Exception as error:  # noqa: BLE001
            self.emit({"door": "eager", "error_text": _told(error)})
            return opened
        for name in self.work.doors:
            begin = time.perf_counter()
            row = rows[name] = {"door": name}
            try:
                opened[name] = door = self._open(name)
                row |= {"setup_s": round(time.perf_counter() - begin, 1), **self._checked(door, references)}
                row |= door.facts()
                if self.dtype in self.work.timed:
                    self._time({name: door}, rows)  # in case that the next door never opens
            except Exception as error:  # noqa: BLE001
                row["error_text"] = _told(error)
                opened.pop(name, None)
            self.emit(row)
            if name == "optimize" and name in opened and self.work.profiles is not None:
                self._profile(opened[name], self.work.profiles)
        return opened

    def _drawn(self, seed: int) -> Tensors:
        size = (self.subject.small if self.work.small else self.subject.sizes)[0]
        return self.subject.inputs(self.batch, size, getattr(torch, self.dtype), self.work.device, seed)

    def _references(self, seeds: range = range(FRESH)) -> list[tuple[Tensors, Reference]]:
        wide = in_f64(self.module)
        drawn = [self._drawn(1 + seed) for seed in seeds]
        return [(each, Reference(self.module, each, wide)) for each in drawn]

    def _open(self, name: str) -> Door:
        if name == "reduce-overhead":
            torch._dynamo.utils.counters.clear()
            return doors.by_reduce_overhead(self.module, self.inputs)
        return _DOORS[name](self.module, self.inputs, tune=self.work.tunes(self.dtype))

    def _checked(self, door: Door, references: Sequence[tuple[Tensors, Reference]]) -> dict[str, Any]:
        door.call()  # may compile, and so leaves the GPU to others
        found, more = self._checks(door, references), dict[str, int]()
        told = worst(found)
        if not told.is_right and not told.problem:
            found += self._checks(door, self._references(range(FRESH, FRESH + MORE)))
            told, more = together(found, getattr(torch, self.dtype)), {"inputs": len(found)}
        row = {"is_right": told.is_right, "error": _rounded(told.error), "own": _rounded(told.own), **more}
        return {**row, "problem": told.problem} if told.problem else row

    def _checks(self, door: Door, references: Sequence[tuple[Tensors, Reference]]) -> list[Checked]:
        found: list[Checked] = []
        with self.lock.held():
            for _ in range(2):
                door.call()
            for fresh, reference in references:
                for place, content in zip(self.inputs, fresh, strict=True):
                    place.copy_(content)
                wait()
                found.append(reference.check(door.call()))
        return found

    def _time(self, opened: Mapping[str, Door], rows: Mapping[str, dict[str, Any]]) -> None:
        """The median of rounds in which the doors take turns, so that a slower moment is everybody's.

        Each round has an order of its own, as a GPU that has rested is faster for a while. Eager PyTorch, which lets it
        rest, comes last, by itself.
        """
        names, found = [name for name in opened if name != "eager"], {name: list[float]() for name in opened}
        order = random.Random(self.batch)
        with self.lock.held():
            counts = {name: _calls_in(door.call, ROUND_SECONDS) for name, door in opened.items()}
            turns = [order.sample(names, len(names)) for _ in range(ROUNDS * (2 if self.work.is_busy else 1))]
            for name in (*(each for turn in turns for each in turn), *["eager"] * (ROUNDS // 2 * ("eager" in opened))):
                if counts[name] > 1 or not found[name]:
                    found[name].append(_back_to_back(opened[name].call, counts[name]))
        for name, times in found.items():
            rows[name]["us"] = round(1e6 * statistics.median(times), 1)

    def _profile(self, door: Door, folder: Path) -> None:
        program = door.programs[0]
        given = {
            name: each
            for name, each in zip(program._model.inputs, self.inputs, strict=True)  # type: ignore[attr-defined]
            if name is not None
        }
        try:
            with self.lock.held():
                told = f"{program.explain()}\n\n{program.profile(given)}\n"
        except Exception as error:  # noqa: BLE001
            told = _told(error)
        (folder / f"{self.subject.name}-{self.dtype}-b{self.batch}.txt").write_text(told)


def _calls_in(call: Call, seconds: float) -> int:
    """How many calls a round takes; a slow one is called no oftener than it must, as others wait for the GPU."""
    if _back_to_back(call, 1) > SLOW_SECONDS:
        return 1
    for _ in range(4):
        call()
    return max(3, min(500, int(seconds / _back_to_back(call, 5))))


def _back_to_back(call: Call, count: int) -> float:
    wait()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - begin) / count


def wait() -> None:
    """Until the GPU has done what it was asked, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _lock_measurements(lock: GpuLock) -> None:
    """Whoever measures to choose, capgraph or inductor, has the GPU to itself meanwhile."""
    from capgraph.executors.cuda.run import profile as profiling
    from capgraph.executors.cuda.run import selection
    from torch._inductor.runtime import benchmarking

    selection.graph_seconds = lock.around(selection.graph_seconds)
    selection.seconds_alone = lock.around(selection.seconds_alone)
    profiling.graph_seconds = lock.around(profiling.graph_seconds)
    kind = type(benchmarking.benchmarker)
    kind.benchmark_gpu = lock.around(kind.benchmark_gpu)


def _rounded(number: float) -> float:
    return float(f"{number:.2e}")


def _told(error: BaseException) -> str:
    """In a line; the traceback goes to the log."""
    traceback.print_exception(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:600]} ({Path(where.filename).name}:{where.lineno})"


@contextmanager
def quiet(path: Path) -> Iterator[None]:
    """Whatever the process prints goes to a file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for each in (1, 2):
        os.dup2(file, each)
    yield
    sys.stdout.flush()
    sys.stderr.flush()
