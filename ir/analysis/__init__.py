"""Facts about graphs: counts, costs, orders, reach. Everything here only reads.

Counts of operations and bytes are dims: exact numbers for graphs of static shape, expressions of the symbols otherwise.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..attrs import is_tuple
from ..constant import Constant
from ..dims import Dim, Truth, ceil_div, compare
from ..dims.constraints import Constraint, collect_constraints
from ..errors import ShapeError
from ..graph import Graph, Node, Value
from ..op import FRESH, Trait
from ..types import TensorType, Type, type_symbols

# ---- what is in a graph


def nested_graphs(graph: Graph) -> Iterator[Graph]:
    """`graph`, then its regions at any depth, each before its own regions."""
    pending = [graph]
    for body in pending:  # grows while it is read
        yield body
        pending.extend(region for node in body.nodes for region in node.regions.values())


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of `graph`, then those of its regions at any depth."""
    for body in nested_graphs(graph):
        yield from body.nodes


def op_counts(graph: Graph) -> Counter[str]:
    """How many nodes there are of each op, regions included."""
    return Counter(node.op.name for node in all_nodes(graph))


def constants_in(graph: Graph) -> tuple[Constant, ...]:
    """The defaults of inputs and the constants in attributes, regions included, each object once; none is loaded."""
    found: dict[int, Constant] = {}
    for body in nested_graphs(graph):
        found.update((id(constant), constant) for constant in body.defaults.values())
        for node in body.nodes:
            found.update((id(constant), constant) for constant in _constants_of(tuple(node.attrs.values())))
    return tuple(found.values())


def _constants_of(value: object) -> Iterator[Constant]:
    if isinstance(value, Constant):
        yield value
    elif is_tuple(value):
        for item in value:
            yield from _constants_of(item)


def parameter_count(graph: Graph) -> int:
    """The number of elements of all constants."""
    return sum(constant.size for constant in constants_in(graph))


def parameter_bytes(graph: Graph) -> int:
    """The bytes of all constants as packed tensors."""
    return sum(constant.nbytes for constant in constants_in(graph))


def input_symbols(graph: Graph) -> tuple[str, ...]:
    """The symbols that the inputs' types mention, in order of appearance: what a call's shapes decide."""
    found: dict[str, None] = {}
    for value in graph.inputs:
        found.update(dict.fromkeys(sorted(type_symbols(value.type))))
    return tuple(found)


def constraints(graph: Graph) -> tuple[Constraint, ...]:
    """What must hold for the symbols so that every node's rule agrees with its operands and with its declared types.

    Those of regions are not among them: their symbols mean something inside only. Raises what a rule raises when the
    graph is not valid.
    """
    with collect_constraints() as found:
        for node in graph.nodes:
            if not node.op.is_foreign:
                found.extend(_declared(node))
    return tuple(dict.fromkeys(found))


def _declared(node: Node) -> Iterator[Constraint]:
    """Where a result's type says more than the rule infers."""
    types = [value.type if value is not None else None for value in node.inputs]
    for value, inferred in zip(node.outputs, node.op.result_types(types, node.attrs), strict=True):
        said = value.type.shape if isinstance(value.type, TensorType) else None
        found = inferred.shape if isinstance(inferred, TensorType) else None
        for left, right in zip(said or (), found or (), strict=False):
            if right != FRESH and compare(left, right) is Truth.UNKNOWN:
                yield Constraint(left, right, f"%{value.name} is declared as {value.type}")


# ---- costs


def node_flops(node: Node) -> Dim:
    """The arithmetic operations of one run of `node`; those of its regions are counted by its op's own rule."""
    inputs = [value.type if value is not None else None for value in node.inputs]
    return node.op.flops(inputs, [value.type for value in node.outputs], node.attrs)


def node_bytes(node: Node) -> Dim:
    """The bytes that one run of `node` reads and writes: its operands, each once, and its results.

    Nothing for a view, and for a pure node without operands, which can be made before the run.
    """
    if node.op.has(Trait.VIEW) or (node.op.is_pure and not node.operands):
        return 0
    values = dict.fromkeys((*node.operands, *node.outputs))
    return _sum(type_bytes(value.type) for value in values)


def type_bytes(ty: Type) -> Dim:
    """The bytes of a packed tensor of this type; 0 when the rank is unknown and for what is no tensor."""
    if not isinstance(ty, TensorType) or ty.shape is None:
        return 0
    bits = ty.dtype.bits
    return ty.size * (bits // 8) if bits % 8 == 0 else ceil_div(ty.size * bits, 8)


def flops(graph: Graph) -> Dim:
    """The arithmetic operations of one run. Raises `ShapeError` when the sum has too many terms for a dim."""
    return _sum(node_flops(node) for node in graph.nodes)


def _sum(dims: Iterable[Dim]) -> Dim:
    total: Dim = 0
    for dim in dims:
        total = total + dim
    return total


# ---- orders and reach


def last_uses(graph: Graph) -> dict[Value, Node]:
    """The last node that reads each value. Values that the graph returns, or that no node reads, are not in it."""
    last = {value: node for node in graph.nodes for value in node.operands}
    for value in graph.outputs:
        last.pop(value, None)
    return last


def ancestors(values: Iterable[Value]) -> set[Node]:
    """The nodes that the values depend on, their producers included."""
    found: set[Node] = set()
    pending = [value.producer for value in values]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending.extend(value.producer for value in node.operands)
    return found


def reaches(a: Node, b: Node) -> bool:
    """Whether `b` depends on `a`, a node of the same graph; a node reaches itself."""
    if a is b:
        return True
    seen: set[Node] = set()
    pending = [b]
    while pending:
        for value in pending.pop().operands:
            node = value.producer
            if node is a:
                return True
            if node is not None and node not in seen and a.precedes(node):
                seen.add(node)
                pending.append(node)
    return False


def levels(graph: Graph) -> dict[Node, int]:
    """The number of nodes on the longest path to each node: 0 for those that read only inputs or nothing."""
    found: dict[Node, int] = {}
    for node in graph.nodes:
        producers = (value.producer for value in node.operands)
        found[node] = max((found[producer] + 1 for producer in producers if producer is not None), default=0)
    return found


def depth(graph: Graph) -> int:
    """The number of nodes on the longest path."""
    return max(levels(graph).values(), default=-1) + 1


# ---- a summary


@dataclass(frozen=True, slots=True)
class OpStatistics:
    """What the nodes of one op come to. `flops` and `bytes` are None when they have too many terms for a dim."""

    op: str
    is_foreign: bool
    nodes: int
    flops: Dim | None
    bytes: Dim | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """A graph in numbers.

    `nodes` and `parameters` count regions as well. `ops` has one row per op, the most frequent first; its costs are
    those of the graph's own nodes, for the rule of an op with regions counts what runs inside.
    """

    name: str
    nodes: int
    regions: int
    depth: int
    parameters: int
    parameter_bytes: int
    symbols: tuple[str, ...]
    flops: Dim | None
    bytes: Dim | None
    ops: tuple[OpStatistics, ...]


def statistics(graph: Graph) -> Statistics:
    """The numbers for `graph`; loads no constant."""
    counts = op_counts(graph)
    own: dict[str, list[Node]] = {name: [] for name in counts}
    for node in graph.nodes:
        own[node.op.name].append(node)
    foreign = {node.op.name for node in all_nodes(graph) if node.op.is_foreign}
    rows = [
        OpStatistics(name, name in foreign, count, _sum_or_none(map(node_flops, own[name])), _bytes_of(own[name]))
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Statistics(
        name=graph.name,
        nodes=counts.total(),
        regions=sum(1 for _ in nested_graphs(graph)) - 1,
        depth=depth(graph),
        parameters=parameter_count(graph),
        parameter_bytes=parameter_bytes(graph),
        symbols=input_symbols(graph),
        flops=_sum_or_none(row.flops for row in rows),
        bytes=_sum_or_none(row.bytes for row in rows),
        ops=tuple(rows),
    )


def _bytes_of(nodes: Iterable[Node]) -> Dim | None:
    return _sum_or_none(map(node_bytes, nodes))


def _sum_or_none(dims: Iterable[Dim | None]) -> Dim | None:
    total: Dim = 0
    try:
        for dim in dims:
            if dim is None:
                return None
            total = total + dim
    except ShapeError:  # too many terms
        return None
    return total
