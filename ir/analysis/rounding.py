"""Which operands in f32 a program may round, as plain data."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..graph import Graph, Node
from ..op import Op, Trait
from ..types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Tf32:
    """Whose operands in f32 may be rounded to 11 bits, as tensor cores take them (TF32); sums stay in f32."""

    products: bool = False
    convolutions: bool = False
    cells: bool = False

    def allows(self, node: Node) -> bool:
        """Whether operands of `node`, or of the heavy node of a region, may be rounded."""
        return next((getattr(self, kind) for each in _nodes(node) if (kind := _kind(each.op))), False)

    def within(self, graph: Graph) -> "Tf32":
        """The kinds that are rounded, of those that `graph` has in f32."""
        found = {_kind(each.op) for node in graph.nodes for each in _nodes(node) if _has_f32(each)}
        return Tf32(*(getattr(self, kind) and kind in found for kind in self.__slots__))

    def __str__(self) -> str:
        kinds = ("products", self.products), ("convolutions", self.convolutions), ("recurrent cells", self.cells)
        return ", ".join(name for name, is_rounded in kinds if is_rounded) or "nothing"


ROUNDS_NOTHING = Tf32()
ROUNDS_ALL = Tf32(products=True, convolutions=True, cells=True)


def _kind(op: Op) -> str:
    """The field of `Tf32` that speaks of an op, if one does."""
    if op.has(Trait.CONVOLUTION):
        return "convolutions"
    if op.has(Trait.RECURRENT):
        return "cells"
    return "products" if op.has(Trait.PRODUCT) else ""


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for body in node.regions.values():
        for each in body.nodes:
            yield from _nodes(each)


def _has_f32(node: Node) -> bool:
    types = [value.type for value in node.operands]
    return any(isinstance(each, TensorType) and each.dtype is DType.F32 for each in types)
