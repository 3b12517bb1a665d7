"""What one task has become serves those that are like it: the candidates are those of lowering each by itself."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Task
from capgraph.executors.cuda.lower import lowering
from capgraph.executors.cuda.lower.alike import Alike
from capgraph.executors.cuda.lower.lowering import Backend, LoweredStep
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.constant import Constant
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.plan import Plan
from capgraph.ir.types import DType, TensorType
from capgraph.optimization import pipeline_for

from tests.models.model_texts import model_graph, sizes_of

LIBRARIES = frozenset({"cublaslt", "cudnn"})


def lowered(graph: Graph, sizes: Mapping[str, int]) -> tuple[Plan, tuple[LoweredStep, ...]]:
    backend = Backend(libraries=LIBRARIES)
    planner = cuda_planning(backend, ReplayOptions())
    plan = planner.of(graph)(sizes, CaptureMode.FULL)
    return plan, backend.lower(plan)


def each_by_itself(_known: Alike, task: Task, lower: Callable[[Task], Iterable[Candidate]]) -> list[Candidate]:
    return list(lower(task))


def unreadable() -> Constant:
    """A weight on a device."""

    def read() -> Any:
        raise AssertionError("a weight was read")

    return Constant.elsewhere(TensorType(DType.BF16, (1024, 1024)), read)


def layers(count: int) -> Graph:
    graph = Graph("layers")
    value = graph.add_input("x", TensorType(DType.BF16, (2, 1024)))
    for _ in range(count):
        gate, up = (
            graph.append(
                native("matmul"), [value, graph.append(native("constant"), [], {"value": unreadable()}).output]
            )
            for _ in range(2)
        )
        active = graph.append(native("silu"), [gate.output])
        value = graph.append(native("mul"), [active.output, up.output]).output
    graph.set_outputs([value], ["y"])
    return graph


@pytest.mark.parametrize("make", [lambda: layers(3), lambda: model_graph("bert", "f16")], ids=["weights", "bert"])
def test_the_candidates_are_those_of_each_step_by_itself(make: Callable[[], Graph]) -> None:
    graph = make()
    pipeline_for(2, "cuda").run(graph, check="none")
    sizes = sizes_of(graph)
    plan, steps = lowered(graph, sizes)
    with patch.object(Alike, "candidates", each_by_itself):
        other, wanted = lowered(graph, sizes)
    assert plan.buffers == other.buffers
    assert [each.candidates for each in steps] == [each.candidates for each in wanted]


def test_equal_layers_are_lowered_once() -> None:
    calls: list[Task] = []
    families = lowering._that_fit

    def counted(task: Task) -> Iterable[Candidate]:
        calls.append(task)
        return families(task)

    counts = []
    with patch.object(lowering, "_that_fit", counted):
        for count in (4, 8):
            calls.clear()
            lowered(layers(count), {})
            counts.append(len(calls))
    assert counts[0] == counts[1]


def test_what_planning_has_lowered_is_not_lowered_again() -> None:
    backend, graph = Backend(libraries=LIBRARIES), model_graph("bert", "f16")
    pipeline_for(2, "cuda").run(graph, check="none")
    plan = cuda_planning(backend, ReplayOptions()).of(graph)(sizes_of(graph), CaptureMode.FULL)
    assert any(step.scratch is not None for step in plan.steps)
    with patch.object(lowering, "_that_fit", side_effect=AssertionError("lowered again")):
        backend.lower(plan)
