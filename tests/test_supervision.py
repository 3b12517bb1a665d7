"""Tasks in worker processes: what is lost, and what goes on."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.supervision import MOST_LOST, Finished, Step, run_tasks


def letters(task: str, first: int) -> Iterator[str]:
    """A step for each letter of the name: `!` ends the process, `.` hangs."""
    for letter in task[first:]:
        if letter == "!":
            os._exit(3)
        if letter == ".":
            time.sleep(60)
        yield letter


@pytest.mark.parametrize("workers", [1, 2])
def test_every_step_gives_its_result(workers: int) -> None:
    events = list(run_tasks(letters, ["abc", "", "d"], workers=workers, limit_s=30))
    found = {task: [event for event in events if event.task == task] for task in ("abc", "", "d")}
    assert found["abc"] == [*(Step("abc", index, letter) for index, letter in enumerate("abc")), Finished("abc")]
    assert found[""] == [Finished("")]
    assert found["d"] == [Step("d", 0, "d"), Finished("d")]


def test_a_step_that_ends_its_process_is_lost_alone() -> None:
    events = list(run_tasks(letters, ["a!b", "c"], workers=1, limit_s=30))
    assert events == [
        Step("a!b", 0, "a"),
        Step("a!b", 1, lost="ended its process with status 3"),
        Step("a!b", 2, "b"),
        Finished("a!b"),
        Step("c", 0, "c"),
        Finished("c"),
    ]


def test_a_step_that_hangs_is_lost_alone() -> None:
    events = list(run_tasks(letters, ["a.b"], workers=1, limit_s=15))
    lost = Step("a.b", 1, lost="took longer than 15 s")
    assert events == [Step("a.b", 0, "a"), lost, Step("a.b", 2, "b"), Finished("a.b")]


def test_a_task_that_loses_many_steps_is_given_up() -> None:
    events = list(run_tasks(letters, ["!" * 20, "a"], workers=1, limit_s=30))
    assert [type(event) for event in events[:-2]] == [Step] * MOST_LOST + [Finished]
    assert events[-2:] == [Step("a", 0, "a"), Finished("a")]


def test_no_tasks() -> None:
    assert list(run_tasks(letters, [], workers=2, limit_s=1)) == []
