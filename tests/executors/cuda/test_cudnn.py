"""cuDNN opened, shared by threads, and its plans, listed and chosen before: on a library that is played."""

import json
import sys
from enum import Enum
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, LibraryCall
from capgraph.executors.cuda.libraries.cudnn import Cudnn, open_library
from capgraph.executors.cuda.libraries.problems import ConvProblem, TensorLayout
from capgraph.ir.errors import MissingPackageError, UnsupportedError
from capgraph.ir.types import DType

VERSION = 91900
KNOB = Enum("KNOB", ["TILE_SIZE"])


@pytest.fixture
def frontend() -> Any:
    made = MagicMock()
    made.cudnnGraphNotSupportedError = type("cudnnGraphNotSupportedError", (Exception,), {})
    made.knob_type = SimpleNamespace(TILE_SIZE="tile")
    made.backend_version.return_value = VERSION
    graph = made.pygraph.return_value
    graph.get_execution_plan_count.return_value = 1
    graph.get_workspace_size_plan_at_index.return_value = 512
    return made


def call(choice: Any, workspace_bytes: int = 1024) -> LibraryCall:
    image = TensorLayout(DType.F16, (1, 8, 4, 4), (128, 1, 32, 8))
    weight = TensorLayout(DType.F16, (8, 8, 1, 1), (8, 1, 8, 8))
    problem = ConvProblem(image, weight, image, (1, 1), (0, 0, 0, 0), (1, 1))
    places = {role: BufferPlace(index) for index, role in enumerate("xwy")}
    return LibraryCall("cudnn", problem, places, 0, workspace_bytes=workspace_bytes, algorithm=choice)


def test_a_plan_that_was_chosen_is_built_with_its_knobs(frontend: Any) -> None:
    Cudnn(frontend).prepare(call({"version": VERSION, "engine": 7, "knobs": {"TILE_SIZE": 3}}))
    frontend.pygraph.return_value.create_execution_plan.assert_called_once_with(7, {"tile": 3})


@pytest.mark.parametrize("choice", [None, {"version": VERSION - 1, "engine": 7, "knobs": {}}, "text", [VERSION]])
def test_the_heuristic_is_asked_where_there_is_no_choice_of_this_version(choice: Any, frontend: Any) -> None:
    Cudnn(frontend).prepare(call(choice))
    frontend.pygraph.return_value.create_execution_plan.assert_not_called()
    frontend.pygraph.return_value.create_execution_plans.assert_called_once()


@pytest.mark.parametrize(
    "parts",
    [
        {"engine": 7},
        {"engine": "seven", "knobs": {}},
        {"engine": None, "knobs": {}},
        {"engine": 7, "knobs": []},
        {"engine": 7, "knobs": {"NONE_SUCH": 1}},
        {"engine": 7, "knobs": {"TILE_SIZE": "large"}},
    ],
)
def test_what_is_no_choice_is_refused(parts: dict[str, Any], frontend: Any) -> None:
    with pytest.raises(UnsupportedError, match="is no engine of cuDNN's"):
        Cudnn(frontend).prepare(call({"version": VERSION, **parts}))


def test_a_plan_that_wants_more_workspace_than_there_is_is_refused(frontend: Any) -> None:
    with pytest.raises(UnsupportedError, match="engine 7 wants 512 bytes"):
        Cudnn(frontend).prepare(call({"version": VERSION, "engine": 7, "knobs": {}}, workspace_bytes=256))


@pytest.mark.parametrize(
    ("engines", "tried", "listed"),
    [
        ("7777777777", 6, "777777"),
        ("4444447777", 6, "444777"),
        ("4444", 3, "444"),
        ("b7b4b4447777", 9, "744477"),
    ],
)
def test_few_plans_are_built_to_be_listed_and_each_once(engines: str, tried: int, listed: str, frontend: Any) -> None:
    """Engine 4 is compiled when a plan is built; those called b cannot be built."""
    graph = frontend.pygraph.return_value
    graph.get_execution_plan_count.return_value = len(engines)
    graph.get_engine_and_knobs_at_index.side_effect = lambda index: (int(engines[index], 16), {KNOB.TILE_SIZE: index})
    notes = frontend.behavior_note
    graph.get_behavior_notes_for_plan_at_index.side_effect = lambda index: (
        [notes.RUNTIME_COMPILATION] if engines[index] == "4" else []
    )
    graph.build_plan_at_index.side_effect = lambda index: refused(engines[index] == "b")
    library = Cudnn(frontend)
    found = library.algorithms(call(None))
    assert "".join(str(each["engine"]) for each in found) == listed
    assert graph.build_plan_at_index.call_count == tried
    for algorithm in (None, *json.loads(json.dumps(found))):
        library.prepare(call(algorithm))
    assert graph.build_plan_at_index.call_count == tried, "what was listed is kept"


def refused(is_refused: bool) -> None:
    if is_refused:
        raise RuntimeError("Deselecting execution plan")


def test_without_the_frontend_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(MissingPackageError, match="nvidia-cudnn-frontend") as told:
        open_library(0)
    assert told.value.remedy == 'pip install "capgraph[cudnn]"'


@pytest.mark.parametrize("asked", ["create_handle", "backend_version"])
def test_a_frontend_without_the_library_says_what_to_install(
    asked: str, frontend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    getattr(frontend, asked).side_effect = RuntimeError("Unable to find symbol cudnnCreate")
    monkeypatch.setitem(sys.modules, "cudnn", frontend)
    with pytest.raises(UnsupportedError, match="cuDNN cannot be opened: Unable to find symbol cudnnCreate") as told:
        open_library(0)
    assert "pip install nvidia-cudnn-cu13" in (told.value.remedy or "")


def test_a_call_runs_on_its_stream_while_another_thread_enqueues(frontend: Any) -> None:
    on, ran = list[int](), list[tuple[int, ...]]()

    def set_stream(_handle: Any, stream: int) -> None:
        on[:] = [stream]
        if stream == 1:
            other.start()
            other.join(0.1)  # it waits for its turn

    def execute(addresses: dict[int, int], *_others: Any) -> None:
        ran.append((on[0], *addresses.values()))

    frontend.set_stream = set_stream
    frontend.pygraph.return_value.execute_plan_at_index = execute
    enqueue = Cudnn(frontend).prepare(call(None))
    other = Thread(target=enqueue, args=(2, {"x": 2}, 0))
    enqueue(1, {"x": 1}, 0)
    other.join(60)
    assert ran == [(1, 1), (2, 2)]


def test_threads_build_a_plan_once(frontend: Any) -> None:
    library = Cudnn(frontend)
    other = Thread(target=library.prepare, args=(call(None),))

    def build(_index: int) -> None:
        if other.ident is None:
            other.start()
            other.join(0.1)  # it waits for its turn

    frontend.pygraph.return_value.build_plan_at_index.side_effect = build
    library.prepare(call(None))
    other.join(60)
    frontend.pygraph.assert_called_once()


def test_plans_are_built_on_the_default_stream(frontend: Any) -> None:
    library, streams = Cudnn(frontend), list[int]()
    frontend.set_stream = lambda _handle, stream: streams.append(stream)
    library.prepare(call(None))(7, {}, 0)
    library.prepare(call(None, workspace_bytes=2048))
    library.algorithms(call(None))
    assert streams == [0, 7, 0, 0], "stream 7 may be gone by the time of the next plan"
