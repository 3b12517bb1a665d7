"""Large models take seconds, and ten times as many nodes about ten times as long.

Times are of the processor, not of the clock, so that what else the machine does counts little.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from capgraph.frontends.onnx.exporter import export_model
from capgraph.frontends.onnx.importer import import_model
from capgraph.ir.equality import assert_equal
from capgraph.ir.parser import parse
from capgraph.ir.printer import constants_of, print_graph
from capgraph.ir.verify import verify
from capgraph.passes.catalog import level_pipeline
from onnx import ModelProto

from tests.scale.large_models import chain, concat_chain, equal_outputs, random_dag, shape_chain, wide

MAX_SECONDS = 10.0
MAX_GROWTH = 3.0
"""How many times longer a node may take in a model of ten times the size; what is quadratic takes ten times."""

WARM_UP = 200
SHORTEST = 0.02
"""Seconds below which a time says nothing of growth."""

Times = dict[str, float]


@contextmanager
def clock(times: Times, step: str) -> Iterator[None]:
    gc.collect()
    start = time.process_time()
    yield
    times[step] = time.process_time() - start


def times_of(model: ModelProto) -> Times:
    """Seconds that each step of the way of a model to text and back takes."""
    times: Times = {}
    with clock(times, "import"):
        graph = import_model(model).graph
    with clock(times, "verify"):
        verify(graph)
    with clock(times, "print"):
        text = print_graph(graph)
    constants = constants_of(graph)
    with clock(times, "parse"):
        again = parse(text, constants=constants)
    with clock(times, "compare"):
        assert_equal(graph, again)
    del again
    with clock(times, "clone"):
        graph.clone()
    with clock(times, "export"):
        export_model(graph)
    return times


@pytest.mark.parametrize(
    ("make", "small", "large"),
    [(chain, 4_000, 40_000), (random_dag, 1_000, 10_000), (shape_chain, 1_000, 10_000)],
    ids=["chain", "dag", "shapes"],
)
def test_steps_are_quick_and_linear(make: Callable[[int], ModelProto], small: int, large: int) -> None:
    times_of(make(WARM_UP))
    few, many = times_of(make(small)), times_of(make(large))
    assert {step: seconds for step, seconds in many.items() if seconds > MAX_SECONDS} == {}
    growth = {step: (many[step] / large) / (max(few[step], SHORTEST) / small) for step in many}
    assert {step: factor for step, factor in growth.items() if factor > MAX_GROWTH} == {}


def optimising_time(model: ModelProto) -> float:
    graph = import_model(model).graph
    times: Times = {}
    with clock(times, "optimise"):
        level_pipeline(2).run(graph)
    return times["optimise"]


@pytest.mark.parametrize("make", [wide, concat_chain, equal_outputs])
def test_nodes_of_many_operands_or_results_are_optimised_in_linear_time(make: Callable[[int], ModelProto]) -> None:
    small, large = 400, 4_000
    optimising_time(make(WARM_UP))
    few, many = optimising_time(make(small)), optimising_time(make(large))
    assert many / large <= MAX_GROWTH * max(few, SHORTEST) / small
