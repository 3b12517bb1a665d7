"""How many nodes of each operator a model has."""

from collections import Counter
from collections.abc import Iterable, Mapping

from onnx import AttributeProto, ModelProto, NodeProto, defs

_STANDARD_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")
_WITH_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def operator_counts(model: ModelProto) -> Counter[str]:
    """The number of nodes by operator (`domain.Operator` outside the default domain).

    Subgraphs count as they stand, and a call of one of the model's functions as the nodes of its body.
    """
    bodies: dict[tuple[str, str], Counter[str] | None] = {}
    functions = {(each.domain, each.name): each for each in model.functions}

    def body_of(key: tuple[str, str]) -> Counter[str] | None:
        """The nodes of a function; None for a function that calls itself, which then counts as one node."""
        if key not in bodies:
            bodies[key] = None
            bodies[key] = counted(functions[key].node)
        return bodies[key]

    def counted(nodes: Iterable[NodeProto]) -> Counter[str]:
        found: Counter[str] = Counter()
        for node in nodes:
            key = (node.domain, node.op_type)
            body = body_of(key) if key in functions else None
            found.update(body if body is not None else {_name(node): 1})
            for attribute in node.attribute:
                if attribute.type in _WITH_GRAPHS:
                    for graph in (attribute.g, *attribute.graphs):
                        found.update(counted(graph.node))
        return found

    return counted(model.graph.node)


def _name(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def not_standard(operators: Mapping[str, int]) -> dict[str, int]:
    """Those of `operator_counts` that the ONNX standard does not have."""
    return {name: number for name, number in operators.items() if not _is_standard(name)}


def _is_standard(name: str) -> bool:
    domain, _, operator = name.rpartition(".")
    return domain in _STANDARD_DOMAINS and defs.has(operator, domain)
