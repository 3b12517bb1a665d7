"""Every model of onnx's backend suite as text and back, and as ONNX and back."""

import warnings
from pathlib import Path

import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.equality import first_difference
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import constants_of, print_graph
from capgraph.ir.verify import verify
from onnx.backend.test.loader import load_model_tests

from examples.light_models import FOLDER, NAMES

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@pytest.fixture(scope="module")
def graphs() -> dict[str, Graph]:
    """The graphs of the suite by case."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building the cases divides by zero on purpose
        cases = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    for case in cases:
        model = case.model
        if model is None and case.model_dir is not None:
            model = onnx.load(Path(case.model_dir) / "model.onnx")
        if model is not None:
            found[case.name] = import_model(model).graph
    for name in NAMES:  # the cases of kind "real"
        found[f"light {name}"] = import_model(FOLDER / f"light_{name}.onnx").graph
    assert len(found) == 2_033
    return found


def test_graphs_are_valid_and_read_back_from_their_text(graphs: dict[str, Graph]) -> None:
    for name, graph in graphs.items():
        verify(graph)
        text = print_graph(graph, origins=True)
        again = parse(text, constants=constants_of(graph))
        assert first_difference(graph, again) is None, name
        assert print_graph(again, origins=True) == text, name


def test_models_come_back_from_onnx_the_same(graphs: dict[str, Graph]) -> None:
    different = {}
    for name, graph in graphs.items():
        again = there_and_back(graph)
        difference = first_difference(graph, again)
        if difference is not None:
            different[name] = difference
    assert different == {}


def there_and_back(graph: Graph) -> Graph:
    return import_model(export_model(graph, dialect=Dialect.FAITHFUL), freeze_initializers=False).graph
