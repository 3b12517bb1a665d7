"""What a model says of its inputs and outputs beside their types, both ways: documentation, metadata, denotations.

A graph keeps it in `graph.metadata`, as JSON under the name of each.
"""

import json
from typing import Any

from onnx import GraphProto, ModelProto, ValueInfoProto

from ....ir.graph import Graph

_SAID = "onnx.said."


def read_signature(proto: GraphProto) -> dict[str, str]:
    """What is said of inputs and outputs, as `Graph.metadata` keeps it."""
    found = {text_of(info.name): _said_of(info) for info in (*proto.input, *proto.output)}
    return {_SAID + name: json.dumps(said) for name, said in found.items() if said}


def _said_of(info: ValueInfoProto) -> dict[str, Any]:
    dims = [text_of(dim.denotation) for dim in info.type.tensor_type.shape.dim]
    said = {
        "doc": text_of(info.doc_string),
        "metadata": {text_of(entry.key): text_of(entry.value) for entry in info.metadata_props},
        "denotation": text_of(info.type.denotation),
        "dims": dims if any(dims) else [],
    }
    return {key: value for key, value in said.items() if value}


def write_signature(model: ModelProto, graph: Graph) -> None:
    """Writes what `read_signature` read."""
    for info in (*model.graph.input, *model.graph.output):
        text = graph.metadata.get(_SAID + info.name)
        if text is None:
            continue
        said = json.loads(text)
        info.doc_string = said.get("doc", "")
        for key, value in said.get("metadata", {}).items():
            info.metadata_props.add(key=key, value=value)
        info.type.denotation = said.get("denotation", "")
        for dim, denotation in zip(info.type.tensor_type.shape.dim, said.get("dims", ()), strict=False):
            dim.denotation = denotation


def text_of(said: str | bytes) -> str:
    """What a model says; protobuf gives what is no UTF-8 as bytes."""
    return said if isinstance(said, str) else said.decode(errors="replace")
