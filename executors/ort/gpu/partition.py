"""Which nodes a GPU session in graph mode can take, and the graph with those nodes joined to subgraphs.

A subgraph is a `fused` node: what it means, and how it runs where no session can, is its body. So planning, memory and
dispatch are those of every recorded program, and see no more of a subgraph than its operands and results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from ....ir.analysis import input_symbols
from ....ir.analysis.extract import part_of
from ....ir.errors import CapgraphError
from ....ir.graph import Graph, Node, SymbolTable, Value
from ....ir.op import Trait
from ....ir.ops import native
from ....ir.run_order import in_run_order
from ....ir.types import DType, TensorType, Type, type_symbols
from ..session import Support, Written, is_free
from ..wrong_numbers import size_givers
from .session import Provider, off_device, opened_on

OPSETS = (None, 20)
"""At which opsets kernels are looked for (None: the dialect's). A kernel of a GPU is often registered for an older
version of its operator alone: of ResNet-50 at opset 24 not all nodes have one, at 18 they do."""

_SUBGRAPHS = count()

_REASONS = (
    (Trait.CONTROL_FLOW, "ONNX Runtime records no control flow"),
    (Trait.DATA_DEPENDENT, "the sizes of its results depend on values"),
    (Trait.READS_HOST, "it reads values on the host"),
    (Trait.IMPURE, "each run gives other results"),
)
_ELEMENTS = frozenset(
    {DType.BOOL, DType.U8, DType.U16, DType.U32, DType.U64, DType.I8, DType.I16, DType.I32, DType.I64}
    | {DType.F16, DType.BF16, DType.F32, DType.F64}
)


@dataclass(frozen=True)
class Capturable:
    """What can be recorded: `problems` names the nodes that cannot, each with the reason, at `opset`."""

    problems: Mapping[Node, str]
    opset: int | None


class Inquiry:
    """Asks for every kind of node of a graph whether it would stay on `provider`; each kind is asked once.

    `refused` are nodes that are known not to, with the reason; more may be added between two questions.
    """

    def __init__(self, graph: Graph, provider: Provider, refused: Mapping[Node, str]) -> None:
        self._graph = graph
        self._told = frozenset(input_symbols(graph))
        self._supports = {
            opset: Support(graph, refused, partial(_asked, provider, opset), interface_problem) for opset in OPSETS
        }

    def capturable(self) -> Capturable:
        """What can be recorded at the opset at which most can. Control flow is refused without asking."""
        best = self._at(OPSETS[0])
        for opset in OPSETS[1:]:
            other = self._at(opset) if best.problems else best
            best = min(best, other, key=lambda each: len(each.problems))
        return best

    def _at(self, opset: int | None) -> Capturable:
        support = self._supports[opset]
        working = [node for node in self._graph.nodes if not is_free(node)]
        found = {node: evident_problem(node, self._told) or support.problem(node) for node in working}
        return Capturable({node: problem for node, problem in found.items() if problem}, opset)


def evident_problem(node: Node, known: frozenset[str]) -> str:
    """Why graph mode cannot take a node, where that shows without asking; `known` are the sizes that inputs give."""
    for trait, reason in _REASONS:
        if node.op.has(trait):
            return reason
    values = (*node.operands, *node.outputs)
    if any(not type_symbols(value.type) <= known for value in values):
        return "it has sizes that only running tells"
    return ""


def interface_problem(ty: Type) -> str:
    """Why values of a type cannot be bound to memory of a session; empty when they can."""
    if not isinstance(ty, TensorType) or ty.shape is None:
        return f"is {ty}: only tensors of known rank are bound to memory"
    return "" if ty.dtype in _ELEMENTS else f"is {ty.dtype}, for which ONNX Runtime binds no memory"


def _asked(provider: Provider, opset: int | None, alone: Graph) -> str:
    try:
        session = opened_on(provider, alone, Written(opset))
    except CapgraphError as error:
        return error.message
    gone = off_device(session, provider)
    return f"{provider.name} has no kernel for {gone[0][1]}" if gone else ""


# ---- subgraphs


@dataclass(frozen=True)
class Subgraphs:
    """`graph` with `fused` nodes for `bodies`, by the name of their body."""

    graph: Graph
    bodies: Mapping[str, Graph]


def joined(graph: Graph, problems: Mapping[Node, str]) -> Subgraphs:
    """`graph` with the nodes that have no problem joined to as few subgraphs as their order allows."""
    maker = _Maker(graph)
    for run in in_run_order(graph, set(problems)):
        if any(node in problems for node in run):
            maker.copy(run)
        else:
            maker.join(run)
    return maker.finish()


class _Maker:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made = Graph(graph.name, symbols=SymbolTable(graph.symbols.names))
        self._made.metadata.update(graph.metadata)
        self._where: dict[Value, Value] = {}
        self._bodies: dict[str, Graph] = {}
        for value in graph.inputs:
            self._where[value] = self._made.add_input(value.name, value.type)
            if value.name in graph.defaults:
                self._made.set_default(self._where[value], graph.defaults[value.name])

    def copy(self, nodes: Sequence[Node]) -> None:
        """Takes nodes over as they are."""
        for node in nodes:
            self._copy(node)

    def join(self, nodes: Sequence[Node]) -> None:
        """Takes nodes over as one subgraph; what depends on nothing is taken where it is read."""
        inside = [node for node in nodes if not is_free(node)]
        outputs = [value for node in inside for value in node.outputs if value.is_read_outside(set(inside))]
        if not outputs:
            return
        read = dict.fromkeys(value for node in inside for value in node.operands if value.producer not in set(inside))
        own = dict.fromkeys(value.producer for value in read if value.producer is not None and is_free(value.producer))
        outer = [value for value in read if value.producer not in own]
        body_nodes = (*(node for node in own if node is not None), *inside)
        inputs = tuple(dict.fromkeys((*outer, *size_givers(self._graph, body_nodes, outer))))
        body = part_of(self._graph, body_nodes, inputs, outputs)
        body.name = f"subgraph{next(_SUBGRAPHS)}"
        self._bodies[body.name] = body
        fused = self._made.append(
            native("fused"),
            [self._found(value) for value in inputs],
            {"body": body.clone_with_map(self._made.symbols)[0]},
            types=[value.type for value in outputs],
            names=[value.name for value in outputs],
        )
        self._where.update(zip(outputs, fused.outputs, strict=True))

    def finish(self) -> Subgraphs:
        graph = self._graph
        self._made.set_outputs([self._found(value) for value in graph.outputs], graph.output_names)
        self._made.set_states(graph.states)
        return Subgraphs(self._made, self._bodies)

    def _found(self, value: Value) -> Value:
        """A value in the new graph; what depends on nothing is copied when it is first read."""
        if value not in self._where and value.producer is not None:
            self._copy(value.producer)
        return self._where[value]

    def _copy(self, node: Node) -> None:
        if any(value in self._where for value in node.outputs):
            return
        attrs = {
            name: value.clone_with_map(self._made.symbols)[0] if isinstance(value, Graph) else value
            for name, value in node.attrs.items()
        }
        operands = [None if value is None else self._found(value) for value in node.inputs]
        types, names = [value.type for value in node.outputs], [value.name for value in node.outputs]
        made = self._made.append(node.op, operands, attrs, types=types, names=names, origin=node.origin)
        self._where.update(zip(node.outputs, made.outputs, strict=True))
