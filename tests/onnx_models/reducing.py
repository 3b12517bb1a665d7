"""A smaller model that shows the same."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import NodeProto, ValueInfoProto, helper

from tests.onnx_models.cases import Case
from tests.onnx_models.comparing import compared
from tests.onnx_models.draw import USUAL, Unrunnable, Value, names_read, tensor_proto
from tests.onnx_models.parts import ancestors, part_of
from tests.onnx_models.rounding import contents


def reduced(case: Case, way: str, text: str) -> Case:
    """The smallest case found that has the same finding: a single node if one shows it, else as few as it takes."""
    case = _with_one_output(case, way, text)
    for call in case.calls:
        try:
            known = contents(case.model, call)
        except (Unrunnable, KeyError):
            continue
        found = _reduced_with(case, known, call, way, text)
        if found is not None:
            return found
    return case


def _with_one_output(case: Case, way: str, text: str) -> Case:
    """The case with one output that has the finding, in the calls as they were."""
    chosen = (way,) if way not in ("read", "time") else ()
    parts = (part_of(case, place) for place in range(len(case.model.graph.output)))
    return next((part for part in parts if (way, text) in compared(part, chosen).findings), case)


def _reduced_with(case: Case, known: Mapping[str, Value], call: Mapping[str, Any], way: str, text: str) -> Case | None:
    nodes = list(case.model.graph.node)

    def shows(kept: Sequence[NodeProto], outputs: Sequence[str]) -> Case | None:
        for is_open in (False, True):
            part = _part(case, known, kept, outputs, is_open)
            if (
                part is not None
                and (way, text) in compared(part, (way,) if way not in ("read", "time") else ()).findings
            ):
                return part
        return None

    for node in nodes:
        if part := shows([node], [name for name in node.output if name]):
            return part
    best: Case | None = None
    kept, outputs = nodes, [output.name for output in case.model.graph.output]
    for output in outputs:
        fewer = ancestors(nodes, [output])
        if part := shows(fewer, [output]):
            best, kept, outputs = part, fewer, [output]
            break
    if best is None:
        return None
    for node in list(kept):
        fewer = [each for each in kept if each is not node]
        if not fewer or outputs[0] in node.output:
            continue
        needed = ancestors(fewer, outputs)
        if part := shows(needed, outputs):
            best, kept = part, needed
    return best


def _part(
    case: Case, known: Mapping[str, Value], nodes: Sequence[NodeProto], outputs: Sequence[str], is_open: bool
) -> Case | None:
    """The model of these nodes; what others made becomes an input, of open sizes or of fixed ones."""
    graph = case.model.graph
    made = {name for node in nodes for name in node.output}
    read = list(dict.fromkeys(name for node in nodes for name in names_read(node) if name not in made))
    settled = {tensor.name: tensor for tensor in graph.initializer}
    declared = {info.name: info for info in graph.input}
    infos, initializers, feeds = [], [], {}
    for name in read:
        value = known[name]
        if name in settled:
            initializers.append(settled[name])
        elif value.kind == "tensor" and not _is_plain(value):
            initializers.append(tensor_proto(value.content, name, value.element))
        else:
            shape = None
            if value.kind == "tensor":
                shape = [f"{name}_{axis}" for axis in range(value.rank)] if is_open else list(value.shape)
            own = declared.get(name) if is_open else None
            infos.append(own or ValueInfoProto(name=name, type=value.type_proto(shape)))
            feeds[name] = value.content
    if any(
        known[name].kind == "optional"
        or (known[name].kind == "tensor" and known[name].element not in USUAL | {"string"})
        for name in outputs
    ):
        return None
    results = [_output(known[name]) for name in outputs]
    made_graph = helper.make_graph(nodes, "part", infos, results, initializers)
    model = helper.make_model(made_graph, opset_imports=case.model.opset_import, ir_version=case.model.ir_version)
    model.functions.extend(case.model.functions)
    return Case(case.seed, model, [feeds], case.is_random)


def _is_plain(value: Value) -> bool:
    """Whether it is a tensor that runners take and give."""
    return value.kind == "tensor" and (value.element in USUAL or value.element == "string")


def _output(value: Value) -> ValueInfoProto:
    shape = [None] * value.rank if value.kind == "tensor" else None
    return ValueInfoProto(name=value.name, type=value.type_proto(shape))
