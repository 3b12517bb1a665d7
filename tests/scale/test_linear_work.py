"""Ten times as many nodes are about ten times as much work, counted in the lines of the package that run."""

from collections.abc import Callable

import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.equality import assert_equal
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import constants_of, print_graph
from capgraph.ir.verify import verify
from capgraph.passes.catalog import level_pipeline
from onnx import ModelProto

from tests.counted_work import lines_in
from tests.scale.large_models import chain, concat_chain, equal_outputs, random_dag, shape_chain, wide

FEW, MANY = 100, 1_000
MAX_GROWTH = 1.2
"""How many times as much work a node may be in a model of ten times the size; what is quadratic takes ten times."""


def work_of(model: ModelProto) -> dict[str, int]:
    """Lines that each step of the way of a model to text and back takes."""
    graph = import_model(model).graph
    text, constants = print_graph(graph), constants_of(graph)
    again = parse(text, constants=constants)
    steps: dict[str, Callable[[], object]] = {
        "import": lambda: import_model(model),
        "verify": lambda: verify(graph),
        "print": lambda: print_graph(graph),
        "parse": lambda: parse(text, constants=constants),
        "compare": lambda: assert_equal(graph, again),
        "clone": graph.clone,
        "export": lambda: export_model(graph),
        "optimize": lambda: level_pipeline(2).run(graph),
    }
    return {name: lines_in(step) for name, step in steps.items()}


@pytest.mark.parametrize("make", [chain, random_dag, shape_chain, wide, concat_chain, equal_outputs])
def test_work_grows_with_the_nodes(make: Callable[[int], ModelProto]) -> None:
    few, many = work_of(make(FEW)), work_of(make(MANY))
    growth = {step: many[step] / MANY / (few[step] / FEW) for step in many}
    assert {step: factor for step, factor in growth.items() if factor > MAX_GROWTH} == {}
