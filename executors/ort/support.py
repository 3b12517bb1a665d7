"""Which nodes ONNX Runtime can run: asked of ONNX Runtime itself, one small model for each kind of node."""

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.analysis.extract import part_of
from ...ir.constant import Constant
from ...ir.errors import CapgraphError
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.types import Type
from .faults import known_fault, lost_signs
from .session import Session, interface_problem
from .sizes import size_givers

_SMALL_BYTES = 1 << 16


Ask = Callable[[Graph], str]
"""Why a graph of one node cannot run, empty when it can."""


def runs_alone(graph: Graph) -> str:
    """Asks a session on the CPU."""
    try:
        Session(graph, threads=1)  # a pool of threads takes longer to start than all else
    except CapgraphError as error:
        return error.message
    return ""


class Support:
    """Remembers the answer for each op, attributes and operand types, so that each is asked once."""

    def __init__(
        self,
        graph: Graph,
        refused: Mapping[Node, str],
        ask: Ask = runs_alone,
        takes: Callable[[Type], str] = interface_problem,
    ) -> None:
        self.graph = graph
        self._refused = refused
        self._signs = lost_signs(graph)
        self._ask = ask
        self._takes = takes
        self._answers: dict[Any, str] = {}

    def problem(self, node: Node) -> str:
        """Why ONNX Runtime cannot run `node`, empty when it can."""
        found = self._refused.get(node) or self._signs.get(node) or known_fault(node)
        if found:
            return found
        for value in (*node.operands, *node.outputs):
            problem = self._takes(value.type)
            if problem:
                return f"%{value.name} {problem}"
        key = (node.op, node.attrs, tuple((value.type, _is_small(value)) for value in node.operands))
        if key not in self._answers:
            self._answers[key] = self._ask(self._alone(node))
        return self._answers[key]

    def _alone(self, node: Node) -> Graph:
        """A graph of `node` and the small constants that it reads."""
        operands = tuple(dict.fromkeys(node.operands))
        constants = tuple(dict.fromkeys(v.producer for v in operands if v.producer is not None and _is_small(v)))
        taken = tuple(value for value in operands if not _is_small(value))
        nodes = (*constants, node)
        givers = tuple(value for value in size_givers(self.graph, nodes, taken) if value not in taken)
        return part_of(self.graph, nodes, (*taken, *givers), node.outputs)


def _is_small(value: Value) -> bool:
    """Whether a value depends on nothing and may stand in a model that is made only to ask."""
    node = value.producer
    if node is None or not is_free(node):
        return False
    contents = (attr for attr in node.attrs.values() if isinstance(attr, Constant))
    return all(content.nbytes <= _SMALL_BYTES for content in contents)


def is_free(node: Node) -> bool:
    """Whether a node depends on nothing, so that every segment that reads its results can have its own."""
    return not node.inputs and not node.op.has(Trait.IMPURE | Trait.FOREIGN)
