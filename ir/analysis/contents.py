"""What is known of values before anything runs: constants, bits that are read, -inf, and what may be rounded."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..constant import Constant
from ..dims import SymDim
from ..dims.atoms import Symbol
from ..graph import Graph, Node, Value
from ..op import Op, Trait
from ..ops.known import (
    ADD,
    BIT_CAST,
    CAST,
    CONCAT,
    CONSTANT,
    DYNAMIC_EXPAND,
    DYNAMIC_RESHAPE,
    DYNAMIC_SLICE,
    DYNAMIC_UNSQUEEZE,
    GATHER,
    MAX,
    MIN,
    MUL,
    NEG,
    SUB,
    TRILU,
    WHERE,
)
from ..types import DType, TensorType

SIGNS_READ = "capgraph.signs_read"
"""In a graph's metadata: what runs around it, or a node of it, tells -0.0 from 0.0."""

POSITIVE = "capgraph.positive"
"""In a graph's metadata: a JSON list of symbols that no call may have as 0, for what the model says of its nodes."""


def positive_symbols(graph: Graph) -> dict[str, tuple[int, None]]:
    """The least number of these symbols, 1, as bounds of dims take it."""
    return dict.fromkeys(json.loads(graph.metadata.get(POSITIVE, "[]")), (1, None))


def take_positive(graph: Graph, dim: SymDim) -> None:
    """Notes of a product of symbols that no call may have it as 0; of other dims it says nothing of the symbols."""
    if len(dim.terms) == 1 and not dim.constant:
        ((monomial, _),) = dim.terms
        names = {atom.name for atom in monomial if isinstance(atom, Symbol)} | positive_symbols(graph).keys()
        graph.metadata[POSITIVE] = json.dumps(sorted(names))


def constant_of(value: Value | None) -> Constant | None:
    """The content of a value that a `constant` node produces, if it is at hand; else None."""
    content = any_constant_of(value)
    return content if content is not None and content.is_at_hand else None


def any_constant_of(value: Value | None) -> Constant | None:
    """The same also for content that is not at hand.

    To read it takes a copy from a device, which no pass does but for tables of rotary embedding, or fails.
    """
    node = value.producer if value is not None else None
    content = node.attrs["value"] if node is not None and node.op is CONSTANT else None
    return content if isinstance(content, Constant) else None


def reads_bits(node: Node) -> bool:
    """Whether it tells -0.0 from 0.0. PyTorch's views as wider or narrower types do, too."""
    return node.op is BIT_CAST or (node.op.has(Trait.FOREIGN) and node.op.name.startswith("aten.view"))


def keeps_signs(graph: Graph) -> bool:
    """Whether signs of zeros count in a graph."""
    return SIGNS_READ in graph.metadata or any(map(reads_bits, graph.nodes))


_MOVES = (CONCAT, DYNAMIC_EXPAND, DYNAMIC_RESHAPE, DYNAMIC_SLICE, DYNAMIC_UNSQUEEZE, GATHER, TRILU, WHERE)
_FINITE = frozenset((*_MOVES, ADD, CAST, MAX, MIN, MUL, NEG, SUB))
"""Ops of finite operands that give finite results, beside views."""


def may_be_infinite(value: Value) -> bool:
    """Whether something that a value is made of is infinite or unknown; numbers that overflow are not looked for."""
    pending, seen = [value], set[Value]()
    while pending:
        current = pending.pop()
        if current in seen or not current.tensor.dtype.is_float:
            continue
        seen.add(current)
        content = any_constant_of(current)
        if content is not None:
            if not np.isfinite(content.array.astype(np.float64)).all():
                return True
        elif current.producer is None or not (current.producer.op in _FINITE or current.producer.op.has(Trait.VIEW)):
            return True
        else:
            pending += current.producer.operands
    return False


@dataclass(frozen=True, slots=True)
class Tf32:
    """Whose operands in f32 may be rounded to 11 bits, as tensor cores take them (TF32); sums stay in f32."""

    matmuls: bool = False
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
        kinds = ("matmuls", self.matmuls), ("convolutions", self.convolutions), ("recurrent cells", self.cells)
        return ", ".join(name for name, is_rounded in kinds if is_rounded) or "nothing"


ROUNDS_NOTHING = Tf32()
ROUNDS_ALL = Tf32(matmuls=True, convolutions=True, cells=True)


def _kind(op: Op) -> str:
    """The field of `Tf32` that speaks of an op, if one does."""
    if op.has(Trait.CONVOLUTION):
        return "convolutions"
    if op.has(Trait.RECURRENT):
        return "cells"
    return "matmuls" if op.has(Trait.ANCHOR) else ""


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for body in node.regions.values():
        for each in body.nodes:
            yield from _nodes(each)


def _has_f32(node: Node) -> bool:
    types = [value.type for value in node.operands]
    return any(isinstance(each, TensorType) and each.dtype is DType.F32 for each in types)
