from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import numpy as np
import pytest
from capgraph import optimize
from capgraph.executors import backends
from capgraph.executors.backends import choose_executor, passed_over, targets
from capgraph.executors.base import Request
from capgraph.executors.ort.executor import OrtExecutor
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.target import Target
from capgraph.ir.text.parser import parse


@pytest.mark.parametrize(
    ("executor", "device", "chosen"),
    [("auto", "auto", OrtExecutor), ("auto", "host", OrtExecutor), ("eager", "host", EagerExecutor)],
)
def test_the_best_that_is_here_is_chosen(executor: str, device: str, chosen: type) -> None:
    assert isinstance(choose_executor(executor, Request(device=device)), chosen)


def test_without_onnxruntime_eager_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgraph.executors.ort.executor.problem_here", lambda: ("not installed", "install it"))
    assert isinstance(choose_executor("auto", Request()), EagerExecutor)
    with pytest.raises(UnsupportedError, match="threads=1 is for ONNX Runtime on the CPU, not for executor='eager'"):
        choose_executor("auto", Request(threads=1))
    with pytest.raises(UnsupportedError, match="install it"):
        choose_executor("ort", Request(device="host"))


def test_what_auto_passed_over_is_told_by_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse("graph @main(%x: f32[2]) { %y: f32[2] = relu(%x) return %y }")
    assert "passed over" not in optimize(graph).explain()
    monkeypatch.setattr("capgraph.executors.ort.executor.problem_here", lambda: ("not installed", "install it"))
    note = "executor=\"auto\" passed over 'ort': not installed (try: install it)"
    assert f"note: {note}" in optimize(graph).explain()
    assert passed_over("auto", "host") == (note,)
    assert passed_over("eager", "host") == ()  # that is what was asked for
    assert passed_over("auto", "cuda") == ()


def test_numbers_of_numpy_are_numbers_of_threads() -> None:
    graph = parse("graph @main(%x: f32[2]) { %y: f32[2] = relu(%x) return %y }")
    threads: Any = np.int64(2)
    assert optimize(graph, executor="ort", threads=threads).run({"x": np.ones(2, np.float32)})["y"].tolist() == [1, 1]


def test_onnxruntime_is_told_how_many_threads_to_take() -> None:
    chosen = choose_executor("auto", Request(device="host", threads=1))
    assert isinstance(chosen, OrtExecutor)
    assert chosen.threads == 1


@pytest.mark.parametrize(("executor", "device"), [("", "auto"), ("auto", "cuda")])
def test_what_cannot_run_is_refused_with_a_way_around(executor: str, device: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        choose_executor(executor, Request(device=device))
    assert caught.value.remedy


def test_every_executor_says_what_keeps_it_from_running() -> None:
    found = {target.executor: target for target in targets()}
    assert found["eager"].is_available
    assert all(target.problem for target in found.values() if not target.is_available)


# ---- executors of others


class Doubling(EagerExecutor):
    """Runs on the host, and says so by its name."""

    def target(self) -> Target:
        return Target(executor="doubling", device="host")


def _named(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    points = EntryPoints(EntryPoint("doubling", value, backends.PLUG_INS) for value in values)
    monkeypatch.setattr(backends, "entry_points", points.select)


def doubling(_request: Request) -> Doubling:
    return Doubling()


def test_an_executor_is_given_as_an_object_or_by_a_name_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse("graph @main(%x: f32[2]) { %y: f32[2] = relu(%x) return %y }")
    _named(monkeypatch, f"{__name__}:doubling")
    for executor in (Doubling(), "doubling"):
        program = optimize(graph, executor=executor)
        assert program.target.executor == "doubling"
        assert program.run({"x": np.array([-1, 1], np.float32)})["y"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("no_such_package:made",), "'doubling' of no_such_package:made cannot be loaded: No module named"),
        (("one:made", "other:made"), "'doubling' is there twice: one:made and other:made"),
    ],
)
def test_a_package_whose_executor_cannot_be_had_is_named(
    values: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _named(monkeypatch, *values)
    with pytest.raises(UnsupportedError, match=words):
        choose_executor("doubling", Request())
    with pytest.raises(UnsupportedError, match=r"there is no executor 'moon'\s+try: one of auto, .*doubling"):
        choose_executor("moon", Request())
    assert isinstance(choose_executor("eager", Request()), EagerExecutor), "the others work"


def test_what_is_no_executor_is_refused() -> None:
    wrong: Any = object()
    with pytest.raises(UnsupportedError, match="no name, and no executor"):
        optimize(parse("graph @main(%x: f32[2]) { return %x }"), executor=wrong)
