"""From a path, bytes or a `ModelProto` to a `ModelProto`, without loading external data; opsets before 7 become 7."""

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

from ....ir.errors import ModelError, ResourceError, UnsupportedError

_UNREADABLE = (ValueError, OSError, DecodeError, json_format.Error, text_format.Error, onnx.parser.ParseError)


def load_proto(source: str | Path | bytes | ModelProto) -> tuple[ModelProto, Path | None]:
    """The model and the folder that its external data lies in (None when `source` is not a path).

    Raises `ModelError` when the file is missing, cannot be decoded, or holds no graph.
    """
    if isinstance(source, ModelProto):
        return _checked(source, "the given model"), None
    if isinstance(source, bytes):
        return _checked(_decode(source, "the given bytes"), "the given bytes"), None
    path = Path(source)
    if not _is_file(path):
        raise ModelError(f"there is no model file {path}", remedy="check the path")
    return _checked(_read(path), str(path)), path.parent


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # the name is too long, or a folder may not be searched
        raise ModelError(f"{path} cannot be read: {error.strerror}", remedy="check the path") from error


def _read(path: Path) -> ModelProto:
    if path.suffix in (".json", ".textproto", ".prototxt", ".pbtxt", ".onnxtxt", ".onnxjson"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # onnx calls its own text form experimental
                return onnx.load(path, load_external_data=False)
        except _UNREADABLE as error:
            raise ModelError(f"{path} cannot be read: {error}", remedy="export the model again") from error
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except MemoryError as error:
        raise ResourceError(f"{path} does not fit into memory", remedy="store its weights as external data") from error
    return _decode(data, str(path))


def _decode(data: bytes, name: str) -> ModelProto:
    try:
        model: ModelProto = ModelProto.FromString(data)
        return model
    except (DecodeError, ValueError, RecursionError) as error:
        raise ModelError(f"{name} is not an ONNX model: {error}", remedy="export the model again") from error


def _checked(model: ModelProto, name: str) -> ModelProto:
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{name} holds no graph", remedy="export the model again")
    version, newest = opset_versions(model).get("", OLDEST_OPSET), onnx.defs.onnx_opset_version()
    if version > newest:
        raise UnsupportedError(
            f"{name} uses opset {version}, but the installed onnx knows them only up to {newest}",
            remedy="pip install --upgrade onnx",
        )
    return model if version >= OLDEST_OPSET else brought_up(model, version, name)


def opset_versions(model: ModelProto) -> dict[str, int]:
    """The opset version of each domain that the model imports; the default domain is `""`."""
    versions = {"" if entry.domain == "ai.onnx" else entry.domain: int(entry.version) for entry in model.opset_import}
    return versions or {"": 1 if model.ir_version < 3 else OLDEST_OPSET}


OLDEST_OPSET = 7
"""Import rules serve every opset from this one on."""


def brought_up(model: ModelProto, version: int, name: str) -> ModelProto:
    """`model`, of opset `version`, converted to `OLDEST_OPSET`. Raises `UnsupportedError` when onnx cannot do it."""
    stated = ModelProto()
    stated.CopyFrom(model)
    if not stated.opset_import:
        stated.opset_import.add(domain="", version=version)
    try:
        _align_operands(stated)
        return onnx.version_converter.convert_version(stated, OLDEST_OPSET)
    except (
        onnx.version_converter.ConvertError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ) as error:
        raise UnsupportedError(
            f"{name} uses opset {version} and cannot be converted to {OLDEST_OPSET}, the oldest supported: {error}",
            remedy="export the model again with a newer opset",
        ) from error


def _align_operands(model: ModelProto) -> None:
    """Gives second operands that stand along an axis of the first a shape that broadcasts.

    onnx's converter does so only for some; PRelu had one slope for each channel, along axis 1, without saying so.
    """
    graph = model.graph
    if not any(_axis(node) is not None for node in graph.node):
        return
    inferred = onnx.shape_inference.infer_shapes(model).graph
    infos = (*inferred.input, *inferred.value_info)
    shapes = {i.name: i.type.tensor_type.shape.dim for i in infos if i.type.tensor_type.HasField("shape")}
    ranks = {name: len(dims) for name, dims in shapes.items()} | {t.name: len(t.dims) for t in graph.initializer}
    nodes: list[NodeProto] = []
    for node in graph.node:
        axis = _axis(node)
        if axis is not None and node.input[0] in ranks and node.input[1] in ranks:
            first, second = ranks[node.input[0]], ranks[node.input[1]]
            nodes += _aligned(node, axis % max(first, 1), first, second)
        nodes.append(node)
    kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _axis(node: NodeProto) -> int | None:
    """The axis of the first operand that the second one's first axis stands for, None when they align at the end."""
    if node.op_type == "PRelu":
        return 1
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    return numbers.get("axis") if numbers.get("broadcast") and len(node.input) == 2 else None


def _aligned(node: NodeProto, axis: int, first: int, second: int) -> list[NodeProto]:
    added = first - axis - second
    kept = [attribute for attribute in node.attribute if attribute.name != "axis"]
    del node.attribute[:]
    node.attribute.extend(kept)
    if added <= 0:
        return []
    name = f"{node.input[1]}_along_{node.output[0]}"
    axes = list(range(second, second + added))
    spread = onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
    node.input[1] = name
    return [spread]


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
