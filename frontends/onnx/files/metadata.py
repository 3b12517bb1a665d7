"""The facts about a whole model and its inputs and outputs, both ways: producer, documentation, metadata, states.

A graph keeps what a model says of itself in `graph.metadata` under keys that begin with `onnx.`. Its states are written
to the model's metadata, as ONNX has no word for them.

A graph keeps it in `graph.metadata`, as JSON under the name of each.
"""

import json
from collections.abc import Mapping
from typing import Any

from onnx import GraphProto, ModelProto, ValueInfoProto

from ....ir.dims import SymDim, symbol
from ....ir.errors import CapgraphError
from ....ir.graph import Graph
from ....ir.text.parser import parse_type
from ....ir.types import TensorType, Type
from ..tensors import type_to_proto
from .loading import external_tensors, opset_versions
from .writing import EXTERNAL_KEY, IR_KEY, OPSET_KEY

_OWN = "capgraph."
_STATES = _OWN + "states"
_OPSET_REASON = _OWN + "opset_reason"
_DECLARED = "onnx.declared."
_OF_GRAPH = "onnx.graph_metadata."
AS_PARTS = _OWN + "as_parts"
_SYMBOLS = _OWN + "symbols"


def read_metadata(proto: ModelProto) -> dict[str, str]:
    """What the model says of itself, as `Graph.metadata` keeps it."""
    facts = {
        "onnx.producer_name": proto.producer_name,
        "onnx.producer_version": proto.producer_version,
        "onnx.domain": proto.domain,
        "onnx.model_version": str(proto.model_version or ""),
        "onnx.doc_string": proto.doc_string,
        "onnx.graph_doc_string": proto.graph.doc_string,
        OPSET_KEY: str(opset_versions(proto).get("") or ""),
        IR_KEY: str(proto.ir_version or ""),
        EXTERNAL_KEY: "yes" if any(external_tensors(proto)) else "",
    }
    entries = {text_of(entry.key): entry.value for entry in proto.metadata_props}
    facts |= {f"onnx.metadata.{key}": value for key, value in entries.items() if not key.startswith(_OWN)}
    facts |= {f"{_OF_GRAPH}{text_of(entry.key)}": entry.value for entry in proto.graph.metadata_props}
    return {key: text_of(value) for key, value in facts.items() if value} | read_signature(proto.graph)


def write_metadata(model: ModelProto, graph: Graph, opset_reason: str, as_parts: Mapping[str, int]) -> None:
    """Writes what `read_metadata` and `read_states` read, and what was written how.

    `opset_reason` says why the opset is newer than asked for, `as_parts` how many nodes of which ops were written as
    their parts, as the opset lacks their operators.
    """
    facts = {key.removeprefix("onnx."): value for key, value in graph.metadata.items() if key.startswith("onnx.")}
    model.producer_name = facts.get("producer_name", "")
    model.producer_version = facts.get("producer_version", "")
    model.domain = facts.get("domain", "")
    model.model_version = int(facts.get("model_version") or 0)
    model.doc_string = facts.get("doc_string", "")
    model.graph.doc_string = facts.get("graph_doc_string", "")
    entries = {key.removeprefix("metadata."): value for key, value in facts.items() if key.startswith("metadata.")}
    for key, value in graph.metadata.items():
        if key.startswith(_OF_GRAPH):
            model.graph.metadata_props.add(key=key.removeprefix(_OF_GRAPH), value=value)
    if graph.states:
        pairs = [[graph.inputs[state.input].name, graph.output_names[state.output]] for state in graph.states]
        entries[_STATES] = json.dumps(pairs)
    names = _expression_symbols(graph)
    if names:
        entries[_SYMBOLS] = json.dumps(names)
    if opset_reason:
        entries[_OPSET_REASON] = opset_reason
    if as_parts:
        entries[AS_PARTS] = json.dumps(dict(sorted(as_parts.items())))
    add_metadata(model, entries)


def add_metadata(model: ModelProto, entries: Mapping[str, str]) -> None:
    """Writes further entries to a model's metadata."""
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=value)


def own_metadata(version: str, passes: str, target: str) -> dict[str, str]:
    """What a written file says of how it was made: by which version of the package, by which passes, for whom."""
    return {_OWN + "version": version, _OWN + "passes": passes, _OWN + "target": target}


def written_as_parts(model: ModelProto) -> dict[str, int]:
    """How many nodes of which ops a model that we wrote has as their parts."""
    text = {entry.key: entry.value for entry in model.metadata_props}.get(AS_PARTS, "{}")
    found: dict[str, int] = json.loads(text)
    return found


def opset_reason(model: ModelProto) -> str:
    """Why the opset of a model that we wrote is newer than asked for; empty where it is not."""
    return next((str(entry.value) for entry in model.metadata_props if entry.key == _OPSET_REASON), "")


def _expression_symbols(graph: Graph) -> list[str]:
    """The symbols of the inputs, when a size like `2*T` is among them: by itself ONNX would take that for a name."""
    shapes = [value.type.shape or () for value in graph.inputs if isinstance(value.type, TensorType)]
    dims = [dim for shape in shapes for dim in shape if isinstance(dim, SymDim)]
    if all(len(dim.symbols) == 1 and dim == symbol(next(iter(dim.symbols))) for dim in dims):
        return []
    return sorted(frozenset[str]().union(*(dim.symbols for dim in dims)))


def read_symbols(proto: ModelProto) -> frozenset[str]:
    """The symbols that an exported graph's sizes are expressions over; none for a model from elsewhere."""
    text = {entry.key: entry.value for entry in proto.metadata_props}.get(_SYMBOLS)
    try:
        names = json.loads(text) if text is not None else []
    except json.JSONDecodeError:
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def keep_declared(graph: Graph, name: str, declared: Type) -> None:
    """Notes the shape that a model states for an output of which nothing else tells the rank."""
    graph.metadata[_DECLARED + name] = str(declared)


def declare_outputs(proto: GraphProto, graph: Graph) -> None:
    """States the shapes that `keep_declared` noted, where the rank is still unknown."""
    for info, name, value in zip(proto.output, graph.output_names, graph.outputs, strict=True):
        text = graph.metadata.get(_DECLARED + name)
        if text is not None and isinstance(value.type, TensorType) and value.type.shape is None:
            info.type.CopyFrom(type_to_proto(parse_type(text)))


def read_states(proto: ModelProto, graph: Graph) -> str:
    """Declares the states that an exported graph had. Gives a remark when they do not fit the model any more."""
    text = {entry.key: entry.value for entry in proto.metadata_props}.get(_STATES)
    if text is None:
        return ""
    inputs = {value.name: value.index for value in graph.inputs}
    try:
        graph.set_states([(inputs[old], graph.output_names.index(new)) for old, new in json.loads(text)])
    except (ValueError, KeyError, TypeError, RecursionError, CapgraphError) as error:
        return f"the states in the model's metadata do not fit it and were left out: {error}"
    return ""


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
