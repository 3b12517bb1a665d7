"""A model without what an output does not hang on, and one without calls of functions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import onnx
from onnx import GraphProto, NodeProto, helper
from onnx.inliner import inline_local_functions

from tests.onnx_models.cases import Case
from tests.onnx_models.draw import names_read


def ancestors(nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[NodeProto]:
    """The nodes that these outputs hang on, in their order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(_trimmed(node, wanted) if node.op_type == "If" else node)
            wanted |= set(names_read(kept[-1]))
    return kept[::-1]


def _trimmed(node: NodeProto, wanted: set[str]) -> NodeProto:
    """An If without results that are not wanted, and without what its branches have for them."""
    places = [place for place, name in enumerate(node.output) if name in wanted]
    branches = {}
    for attribute in node.attribute:
        body = onnx.GraphProto()
        body.CopyFrom(attribute.g)
        outputs = [attribute.g.output[place] for place in places]
        del body.node[:], body.output[:]
        body.node.extend(ancestors(attribute.g.node, [output.name for output in outputs]))
        body.output.extend(outputs)
        branches[attribute.name] = body
    return helper.make_node("If", node.input, [node.output[place] for place in places], node.name, **branches)


def part_of(case: Case, place: int) -> Case:
    """The case with that output alone: its ancestors, and the inputs, initializers and functions that they read."""
    graph = case.model.graph
    output = graph.output[place]
    nodes = ancestors(graph.node, [output.name])
    read = {output.name, *(name for node in nodes for name in names_read(node))}
    made = {name for node in nodes for name in node.output}
    kept = helper.make_graph(
        nodes,
        graph.name,
        [info for info in graph.input if info.name in read],
        [output],
        [tensor for tensor in graph.initializer if tensor.name in read],
        value_info=[info for info in graph.value_info if info.name in read | made],
    )
    model = helper.make_model(kept, opset_imports=case.model.opset_import, ir_version=case.model.ir_version)
    model.functions.extend(_called(case.model, nodes))
    names = {info.name for info in kept.input}
    calls = [{name: value for name, value in call.items() if name in names} for call in case.calls]
    return replace(case, model=model, calls=calls)


def inlined(case: Case) -> Case:
    """The case with the nodes of its functions in place of calls."""
    return replace(case, model=inline_local_functions(case.model)) if case.model.functions else case


def taken(node: NodeProto, condition: Any) -> GraphProto:
    """The branch of an If that is run."""
    name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    return next(attribute.g for attribute in node.attribute if attribute.name == name)


def all_nodes(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """The nodes and those of their bodies."""
    found, pending = [], list(nodes)
    while pending:
        node = pending.pop()
        found.append(node)
        pending += [inner for attribute in node.attribute for inner in attribute.g.node]
    return found


def _called(model: onnx.ModelProto, nodes: Sequence[NodeProto]) -> list[onnx.FunctionProto]:
    """The functions that nodes call, those that they call too."""
    known = {(function.domain, function.name): function for function in model.functions}
    found: dict[tuple[str, str], onnx.FunctionProto] = {}
    pending = all_nodes(nodes)
    while pending:
        node = pending.pop()
        key = (node.domain, node.op_type)
        if key in known and key not in found:
            found[key] = known[key]
            pending += all_nodes(known[key].node)
    return list(found.values())
