"""Plans of cuDNN that were chosen before: on a library that is played."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from capgraph.executors.cuda.cudnn import Cudnn
from capgraph.executors.cuda.launch import LibraryCall, Place
from capgraph.executors.cuda.problems import ConvProblem, Tensor
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.types import DType

VERSION = 91900


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
    image = Tensor(DType.F16, (1, 8, 4, 4), (128, 1, 32, 8))
    weight = Tensor(DType.F16, (8, 8, 1, 1), (8, 1, 8, 8))
    problem = ConvProblem(image, weight, image, (1, 1), (0, 0, 0, 0), (1, 1))
    places = {role: Place(index) for index, role in enumerate("xwy")}
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
