"""Sizes for the symbols of a drawn graph, and what type rules say once they are bound.

A rule that cannot decide about symbols accepts under a constraint, so not every choice of sizes fits a graph. Every
drawn graph accepts the sizes `HOME`; `admits` tells of others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from capgraph.ir.attrs import Attrs
from capgraph.ir.dims import Dim, SymDim, bind, lower_bound
from capgraph.ir.dims.constraints import collect_constraints
from capgraph.ir.errors import CapgraphError, ShapeError
from capgraph.ir.graph import Graph, Node
from capgraph.ir.op import Op
from capgraph.ir.types import TensorType, Type, bind_type

HOME: dict[str, int] = {"B": 2, "T": 6, "seq len": 3}
"""The sizes that every drawn graph accepts, and the names of all symbols that its inputs bind."""

MAX_ELEMENTS = 4096
"""What no tensor of a drawn graph exceeds at `HOME`, a data-dependent size taken to be `FRESH_SIZE`."""
FRESH_SIZE = 6


def at_home(dim: Dim) -> int | None:
    """The size of `dim` at `HOME`; None when it depends on data."""
    bound = bind(dim, HOME)
    return bound if isinstance(bound, int) else None


def is_sized(shape: Sequence[Dim]) -> bool:
    """Whether no size depends on data."""
    return all(at_home(dim) is not None for dim in shape)


def bound_attrs(attrs: Attrs, sizes: Mapping[str, Dim]) -> Attrs:
    """The attributes with symbols replaced; regions stay as they are."""
    return Attrs({name: _bound(value, sizes) for name, value in attrs.items()})


def _bound(value: Any, sizes: Mapping[str, Dim]) -> Any:
    if isinstance(value, SymDim):
        return bind(value, sizes)
    return tuple(_bound(item, sizes) for item in value) if isinstance(value, tuple) else value


def types_with_sizes(
    op: Op, operands: Sequence[Type | None], attrs: Attrs, sizes: Mapping[str, int]
) -> tuple[Type, ...]:
    """What the rule of `op` says for operands of these sizes.

    Raises `CapgraphError` when it refuses them, or when a constraint is left that only running can decide.
    """
    bound = [ty if ty is None else bind_type(ty, sizes) for ty in operands]
    with collect_constraints() as left:
        results = op.result_types(bound, bound_attrs(attrs, sizes))
    if left:
        raise ShapeError(f"{op.name} leaves open whether {left[0]}")
    for result in results:
        _require_sizes(result)
    return results


def _require_sizes(ty: Type) -> None:
    for dim in ty.dims if isinstance(ty, TensorType) else ():
        if isinstance(dim, int) and dim < 0:
            raise ShapeError(f"{ty} has a negative size")


def elements_at_home(ty: TensorType) -> int:
    """The number of elements at `HOME`, each data-dependent size taken to be `FRESH_SIZE`."""
    total = 1
    for dim in ty.dims:
        size = at_home(dim)
        total *= max(FRESH_SIZE, lower_bound(bind(dim, HOME)) or 0) if size is None else size
    return total


def node_types_with_sizes(node: Node, sizes: Mapping[str, int]) -> tuple[Type, ...]:
    """`types_with_sizes` for a node."""
    operands = [value.type if value is not None else None for value in node.inputs]
    return types_with_sizes(node.op, operands, node.attrs, sizes)


def admits(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether every type rule accepts these sizes, regions included."""
    try:
        for node in graph.nodes:
            node_types_with_sizes(node, sizes)
    except CapgraphError:
        return False
    return all(admits(body, sizes) for node in graph.nodes for body in node.regions.values())
