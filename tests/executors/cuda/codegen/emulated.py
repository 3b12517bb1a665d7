"""Cases run by the emulator, each step by each of its candidates."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from capgraph.ir.constant import Array

from tests.executors.cuda.codegen.cases import Case, expected_of, is_close
from tests.executors.cuda.codegen.running import Prepared, Values, all_prepared, generated
from tests.executors.cuda.emulator import Emulator, compiled

MOST_TWICE = 4096
"""Up to how many elements of all inputs a case runs in both orders; larger ones run the last thread first."""


class _Memory(Values):
    """The memory of an emulated plan."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator

    def read(self, value: Any) -> Array:
        return self.emulator.placement.array(value).copy()

    def write(self, value: Any, content: Array) -> None:
        self.emulator.placement.array(value)[...] = content


def emulated_problems(cases: Iterable[Case], folder: Path) -> list[str]:
    """What is wrong with the results of cases, over poisoned memory, with threads in either order."""
    every = all_prepared(cases)
    library = compiled((kernel for made in every for kernel in made.kernels()), folder)
    return [f"{made.case.name}: {problem}" for made in every for problem in _problems(made, library)]


def results_of_candidates(cases: Iterable[Case], folder: Path) -> Iterator[tuple[Case, str, list[Array]]]:
    """The results of cases by each candidate of their last step, with its name."""
    every = all_prepared(cases)
    library = compiled((kernel for made in every for kernel in made.kernels()), folder)
    for made in every:
        for choice in range(made.choices):
            memory = _run(made, library, choice, is_backwards=False)
            yield (
                made.case,
                generated(made.lowered[-1])[choice].name,
                [memory.read(each) for each in made.plan.graph.outputs],
            )


def results_in_both_orders(case: Case, folder: Path) -> tuple[Array, Array]:
    """The only result of a case by the first candidate, with the first thread first and with the last one first."""
    (made,) = all_prepared([case])
    library = compiled(made.kernels(), folder)
    forwards, backwards = (_run(made, library, 0, is_backwards) for is_backwards in (False, True))
    (result,) = made.plan.graph.outputs
    return forwards.read(result), backwards.read(result)


def _run(made: Prepared, library: Any, choice: int, is_backwards: bool) -> _Memory:
    """The memory that candidate number `choice` leaves, poisoned before."""
    emulator = Emulator(made.plan, library, backwards=is_backwards)
    emulator.arena.bytes[...] = 0xFF
    memory = _Memory(emulator)
    for value, given in zip(made.plan.graph.inputs, made.case.inputs, strict=True):
        memory.write(value, given)
    made.run(choice, emulator.run, memory)
    return memory


def _problems(made: Prepared, library: Any) -> list[str]:
    expected = expected_of(made.case)
    found: list[str] = []
    is_large = sum(value.size for value in made.case.inputs) > MOST_TWICE
    orders = (True,) if is_large else (False, True)
    turns = [(choice, backwards) for choice in range(made.choices) for backwards in orders]
    for choice, backwards in turns:
        memory = _run(made, library, choice, backwards)
        for value, wanted in zip(made.plan.graph.outputs, expected, strict=True):
            why = is_close(memory.read(value), np.asarray(wanted), made.case.graph)
            order = ", last thread first" if backwards else ""
            found += [f"candidate {choice}{order}, {value.name}: {why}"] if why else []
    return found
