from pathlib import Path

import onnx
import pytest
from capgraph.frontends.onnx.files.loading import data_files, external_tensors
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

PLACES = [
    *("initializer", "sparse", "attribute", "attributes", "sparse_attribute", "sparse_attributes"),
    *("subgraph", "subgraphs", "function", "default", "training"),
]


def external(name: str) -> TensorProto:
    made = TensorProto(name=name, dims=[3], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    made.external_data.add(key="location", value=f"{name}.data")
    return made


def model_with(place: str) -> ModelProto:
    """A model with one external tensor, called `w`."""
    w, sparse = external("w"), SparseTensorProto(values=external("w"))
    attributes = {
        "attribute": AttributeProto(name="a", t=w),
        "attributes": AttributeProto(name="a", tensors=[w]),
        "sparse_attribute": AttributeProto(name="a", sparse_tensor=sparse),
        "sparse_attributes": AttributeProto(name="a", sparse_tensors=[sparse]),
        "subgraph": AttributeProto(name="a", g=GraphProto(initializer=[w])),
        "subgraphs": AttributeProto(name="a", graphs=[GraphProto(), GraphProto(initializer=[w])]),
    }
    node = NodeProto(attribute=[attributes.get(place, AttributeProto(name="a", i=3))])
    model = ModelProto(graph=GraphProto(node=[node]))
    if place == "initializer":
        model.graph.initializer.append(w)
    elif place == "sparse":
        model.graph.sparse_initializer.append(SparseTensorProto(indices=w))
    elif place == "function":
        model.functions.add().node.add().attribute.append(attributes["attribute"])
    elif place == "default":
        model.functions.add().attribute_proto.append(attributes["attribute"])
    elif place == "training":
        model.training_info.add().algorithm.node.add().attribute.append(attributes["subgraph"])
    return model


@pytest.mark.parametrize("place", PLACES)
def test_external_tensors_are_found_wherever_they_are(place: str) -> None:
    model = model_with(place)
    assert [tensor.name for tensor in external_tensors(model)] == ["w"]
    assert data_files(model, Path("folder/model.onnx")) == [Path("folder/w.data")]


def test_what_lies_in_the_model_is_in_no_file() -> None:
    model = ModelProto(graph=GraphProto(initializer=[onnx.helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])]))
    assert list(external_tensors(model)) == []
    assert data_files(model, Path("model.onnx")) == []


def test_a_file_of_several_tensors_is_named_once() -> None:
    model = ModelProto(graph=GraphProto(initializer=[external("w"), external("w"), external("v")]))
    assert data_files(model, Path("model.onnx")) == [Path("w.data"), Path("v.data")]
