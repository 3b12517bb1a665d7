import json

import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.graph import State
from onnx import ModelProto

from tests.frontends.onnx.sample_models import parsed

CACHE = """net (float[N] x, float[M] old) => (float[K] y, float[M] new) {
  y = Concat <axis = 0> (x, old)
  new = Neg(old)
}"""


def test_what_a_model_says_of_itself_comes_back():
    model = parsed(CACHE)
    model.producer_name, model.producer_version, model.domain = "maker", "1.2", "example.com"
    model.model_version, model.doc_string, model.graph.doc_string = 7, "all", "the graph"
    model.metadata_props.add(key="author", value="me")
    again = export_model(import_model(model).graph)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props"):
        assert getattr(again, field) == getattr(model, field)
    assert again.graph.doc_string == "the graph"


def test_what_a_model_says_of_its_inputs_and_outputs_comes_back():
    model = parsed(CACHE)
    model.graph.metadata_props.add(key="kind", value="cache")
    for info in (model.graph.input[0], model.graph.output[1]):
        info.doc_string = f"the value {info.name}"
        info.metadata_props.add(key="unit", value="m/s")
        info.type.denotation = "TENSOR"
        info.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    again = export_model(import_model(model).graph)
    assert again.graph.metadata_props == model.graph.metadata_props
    assert again.graph.input == model.graph.input
    assert again.graph.output[1] == model.graph.output[1]


def with_state(pairs: object) -> ModelProto:
    model = parsed(CACHE)
    model.metadata_props.add(key="capgraph.states", value=pairs if isinstance(pairs, str) else json.dumps(pairs))
    return model


def test_states_come_back():
    graph = import_model(parsed(CACHE)).graph
    graph.set_states([(1, 1)])
    again = import_model(export_model(graph))
    assert again.graph.states == (State(1, 1),)
    assert again.notes == []


@pytest.mark.parametrize("pairs", ["{", "7", [["nothing", "new"]], [["old", "nothing"]], [["old"]], [["x", "new"]] * 2])
def test_states_that_do_not_fit_are_left_out_with_a_note(pairs):
    imported = import_model(with_state(pairs))
    assert imported.graph.states == ()
    assert "states" in imported.notes[0]


def test_our_own_entries_are_not_kept_as_the_model_s():
    assert import_model(with_state([["old", "new"]])).graph.metadata.keys() == {"onnx.opset", "onnx.ir_version"}
