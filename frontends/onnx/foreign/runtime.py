"""What ONNX Runtime, where it is installed, knows of operators that onnx does not: types of results, and runs.

A model of one node is enough: ONNX Runtime infers its types when it loads it.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from ....ir.analysis.contents import any_constant_of
from ....ir.errors import ExecutionError
from ....ir.graph import Value
from ..context.import_context import ImportContext
from ..files.node_order import names_read
from ..tensors import constant_to_proto, type_to_proto

_IR_VERSION = 10  # every ONNX Runtime since 1.18 reads it
_MAX_DATA = 4096  # elements of a constant that inference is shown
_SILENT = 4  # log severity: what matters is raised


def is_here() -> bool:
    """Whether ONNX Runtime is installed, in any of its builds. Imports nothing."""
    return find_spec("onnxruntime") is not None


# ---- types


def runtime_types(ctx: ImportContext, domain: str) -> dict[str, TypeProto]:
    """The types of the node's results as ONNX Runtime infers them; none where it does not have the operator."""
    if not is_here():
        return {}
    node, known = _with_plain_names(ctx, domain)
    versions = {domain: ctx.version, "": ctx.scope.versions.get("", 0)}
    imports = [helper.make_opsetid(name, version) for name, version in versions.items() if version > 0]
    model = helper.make_model(_alone(node, known), opset_imports=imports, ir_version=_IR_VERSION)
    found = _told_types(model.SerializeToString(deterministic=True))
    return {name: found[plain] for name, plain in zip(ctx.proto.output, node.output, strict=True) if plain in found}


def _with_plain_names(ctx: ImportContext, domain: str) -> tuple[NodeProto, dict[str, Value]]:
    """The node with names that say only positions, so that equal nodes are asked about once, and what it reads."""
    known: dict[str, Value] = {}
    node = NodeProto(op_type=ctx.op_type, domain=domain)
    for position, value in enumerate(ctx.inputs):
        node.input.append(f"operand{position}" if value is not None else "")
        if value is not None:
            known[f"operand{position}"] = value
    node.attribute.extend(ctx.attributes.values())
    for name in sorted(names_read(node) - known.keys()):  # of its subgraphs, which keep their names
        captured = ctx.scope.lookup(name)
        if captured is not None:
            known[name] = captured
    node.output.extend(f"result{position}" if name else "" for position, name in enumerate(ctx.proto.output))
    return node, known


def _alone(node: NodeProto, known: dict[str, Value]) -> GraphProto:
    """A graph of `node`; small constants come as initializers, which shapes may depend on."""
    inputs, initializers = [], []
    for name, value in known.items():
        content = any_constant_of(value)
        if content is not None and content.size <= _MAX_DATA:
            initializers.append(constant_to_proto(content, name))
        else:
            inputs.append(ValueInfoProto(name=name, type=type_to_proto(value.type)))
    outputs = [ValueInfoProto(name=name) for name in node.output if name]
    return helper.make_graph([node], "alone", inputs, outputs, initializers)


@lru_cache(maxsize=1024)
def _told_types(model: bytes) -> dict[str, TypeProto]:
    """The tensor types of the outputs of a model; none where ONNX Runtime refuses it."""
    session = _session(model)
    formal = session.get_outputs() if session is not None else ()
    types = {each.name: _type(each) for each in formal}
    return {name: ty for name, ty in types.items() if ty is not None}


def _type(formal: Any) -> TypeProto | None:
    """The type of a session's output. ONNX Runtime says nothing of a scalar's shape as of one that it does not know."""
    kind = formal.type.removeprefix("tensor(").removesuffix(")")
    number = next((number for number, word in _element_words().items() if word == kind), None)
    if number is None:
        return None
    return helper.make_tensor_type_proto(number, formal.shape or None)


@cache
def _element_words() -> dict[int, str]:
    return {number: name.lower() for name, number in TensorProto.DataType.items()}


def _session(model: bytes) -> Any:
    """A session on the CPU, None where ONNX Runtime refuses the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except _failures():
        return None


@cache
def _failures() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises; its own exceptions have no common base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    own = (each for each in vars(native).values() if isinstance(each, type) and issubclass(each, Exception))
    return (*own, ValueError, RuntimeError)


# ---- running


class RuntimeNode:
    """A model of one node in a session, run as onnx's `ReferenceEvaluator` is."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, _names: None, feeds: dict[str, Any]) -> Sequence[Any]:
        """The results in order. Raises `ExecutionError`."""
        try:
            results: Sequence[Any] = self._session.run(None, feeds)
        except _failures() as error:
            raise ExecutionError(f"ONNX Runtime failed: {str(error).splitlines()[0]}") from error
        return results


def runtime_node(model: ModelProto) -> RuntimeNode | None:
    """`model` in ONNX Runtime; None where that is not installed or refuses it."""
    session = _session(model.SerializeToString()) if is_here() else None
    return RuntimeNode(session) if session is not None else None
