"""What a model keeps outside of its own file: its external tensors, wherever they are, and the files that hold them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto


def data_files(model: ModelProto, path: Path) -> list[Path]:
    """The files that hold the external data of a model at `path`."""
    entries = (entry for tensor in external_tensors(model) for entry in tensor.external_data)
    names = dict.fromkeys(entry.value for entry in entries if entry.key == "location")
    return [path.parent / name for name in names]


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """The tensors that are kept outside of the model.

    They are initializers, values of attributes, or parts of sparse ones: in graphs, subgraphs, functions and training.
    """
    return (tensor for tensor in _tensors(model) if tensor.data_location == TensorProto.EXTERNAL)


def nested_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graphs inside the nodes of a graph, at any depth."""
    for attribute in _attributes_of(graph.node):
        for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
            yield inner
            yield from nested_graphs(inner)


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    graphs = [model.graph]
    for step in model.training_info:
        graphs += (step.initialization, step.algorithm)
    attributes: list[AttributeProto] = []
    for function in model.functions:
        attributes += function.attribute_proto
        attributes += _attributes_of(function.node)
    while graphs or attributes:
        if graphs:
            graph = graphs.pop()
            yield from _initializers(graph)
            attributes += _attributes_of(graph.node)
        else:
            attribute = attributes.pop()
            yield from _values(attribute)
            graphs += ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)


def _attributes_of(nodes: Iterable[NodeProto]) -> Iterator[AttributeProto]:
    return (attribute for node in nodes for attribute in node.attribute)


def _initializers(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from _parts(sparse)


def _values(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    if attribute.HasField("sparse_tensor"):
        yield from _parts(attribute.sparse_tensor)
    for sparse in attribute.sparse_tensors:
        yield from _parts(sparse)


def _parts(sparse: SparseTensorProto) -> Iterator[TensorProto]:
    yield sparse.values
    yield sparse.indices
