"""A graph cut into pieces: sessions for what ONNX Runtime can run, NumPy steps for the rest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.evaluate import Sizes
from ...ir.extract import extract
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.turns import in_turns
from ...ir.types import type_symbols
from ..steps import Steps
from .session import Session
from .support import Support

Run = Callable[[Sequence[Any], Sizes], Sequence[Any]]


@dataclass(frozen=True)
class Piece:
    """Some nodes of a graph: they read `inputs` and give `outputs`. `reasons` says per node why it runs eagerly."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: int
    is_session: bool
    reasons: tuple[str, ...]
    run: Run


def cut(graph: Graph) -> list[Piece]:
    """The pieces of `graph` in an order in which they can run, as few as the nodes to keep out allow."""
    support = Support(graph)
    problems = {node: support.problem(node) for node in graph.nodes}
    turns = in_turns(graph, {node for node, problem in problems.items() if problem})
    wanted = set(graph.outputs)
    pieces: list[Piece] = []
    for turn in reversed(turns):
        made = [value for node in turn for value in node.outputs]
        outputs = [value for value in made if value in wanted]
        if outputs:
            piece = _piece(graph, turn, outputs, problems)
            wanted |= set(piece.inputs)
            pieces.append(piece)
    return pieces[::-1]


def _piece(graph: Graph, nodes: Sequence[Node], outputs: Sequence[Value], problems: Mapping[Node, str]) -> Piece:
    outer = _outer_operands(nodes)
    part, taken = extract(graph, outputs, {*outer, *_size_givers(graph, nodes, outer)})
    reasons = tuple(f"{node.where()}: {problems[node]}" for node in nodes if problems[node])
    if reasons:
        steps = Steps(part)
        return Piece(taken, tuple(outputs), len(nodes), False, reasons, steps.run)
    session = Session(part)
    return Piece(taken, tuple(outputs), len(nodes), True, (), lambda values, _sizes: session.run(values))


def _outer_operands(nodes: Sequence[Node]) -> list[Value]:
    """What the nodes read from outside; constants are not among them, every piece has its own."""
    inside = set(nodes)
    operands = (value for node in nodes for value in node.operands if value.producer not in inside)
    return [value for value in operands if not _is_free(value)]


def _is_free(value: Value) -> bool:
    node = value.producer
    return node is not None and not node.inputs and not node.op.has(Trait.IMPURE | Trait.FOREIGN)


def _size_givers(graph: Graph, nodes: Sequence[Node], outer: Sequence[Value]) -> list[Value]:
    """Inputs of the graph that a piece takes only to know the sizes that its attributes mention."""
    mentioned = frozenset[str]().union(*(type_symbols(value.type) for node in nodes for value in node.outputs))
    bound = frozenset[str]().union(*(type_symbols(value.type) for value in outer))
    missing = mentioned - bound
    return [value for value in graph.inputs if type_symbols(value.type) & missing]
