"""Nodes that need not run: dead ones go, equal ones become one, and what depends on constants alone is computed now."""

import math
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import any_constant_of
from ...ir.analysis.shape_values import ShapeValues
from ...ir.constant import Constant
from ...ir.dims import SymDim, symbols
from ...ir.errors import CapgraphError
from ...ir.evaluate import evaluate_node
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops import native
from ...ir.types import DType, TensorType, type_symbols
from ..framework.base import Pass
from ..framework.deferred import deferred_node
from ..framework.rewriter import Rewriter


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Dead-code elimination: nodes whose results nobody reads go, last ones first. Inputs of the graph stay.

    Erases every node without uses. No op has side effects, so random and foreign ones go as well.
    """

    name: ClassVar[str] = "eliminate-dead-code"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.reversed_nodes:
            if not node.has_uses and rewriter.may_rewrite("unused", node):
                rewriter.erase(node)


@dataclass(frozen=True)
class Cse(Pass):
    """Common subexpressions: two nodes that compute the same become one.

    Nodes are equal when op, operands (in either order if it is commutative), attributes and result types are. An absent
    operand has its place in the comparison, so `clip(x, _, c)` and `clip(x, c, _)` stay apart. Constants are compared
    by content up to `max_constant_bytes`; larger ones, which would have to be read, only if that was done before, or
    they are the same object.

    Merges equal pure nodes into the first of them. Nodes that own regions are left alone.
    """

    name: ClassVar[str] = "cse"
    max_constant_bytes: int = 1 << 20

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        first: dict[Hashable, Node] = {}
        for node in graph.nodes:
            if not node.op.is_pure or node.regions:
                continue
            same = first.setdefault(self._key(node), node)
            if same is not node and rewriter.may_rewrite("duplicate", node):
                rewriter.replace(node, *same.outputs)

    def _key(self, node: Node) -> Hashable:
        inputs = tuple(sorted(node.inputs, key=id)) if node.op.has(Trait.COMMUTATIVE) else node.inputs
        types = tuple(value.type for value in node.outputs) if node.op.has(Trait.DATA_DEPENDENT) else ()
        return (node.op, inputs, self._attrs_key(node), types)

    def _attrs_key(self, node: Node) -> Hashable:
        content = node.attrs.get("value")
        if isinstance(content, Constant) and content.nbytes > self.max_constant_bytes and not content.has_digest:
            return id(content)
        return node.attrs


_NEVER = Trait.IMPURE | Trait.FOREIGN | Trait.CONTROL_FLOW
_DEQUANTIZE = native("dequantize_linear")


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Constant folding: what depends on constants alone is computed now, and shape arithmetic becomes dims.

    What has no elements is known without being a constant: a matmul of no inner axis is zeros.

    Folding runs an op's own meaning, so values and dtypes are exactly those that running the node would give. A result
    larger than its operands together is kept only up to `limit` bytes: a model must not grow tenfold because an
    expanded mask was written out. For the same reason a dequantized constant is never folded, however small: quantized
    weights stay what they are, and executors that run the quantized form look for the node.

    Replaces nodes by the constants that they compute; `limit` (bytes) bounds results that outgrow the operands.
    """

    name: ClassVar[str] = "fold-constants"
    limit: int = 1 << 20

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        shapes = ShapeValues()
        bound = frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs))
        for node in graph.nodes:
            if node.op.has(_NEVER) or node.op is _DEQUANTIZE or node.regions:
                continue
            if not node.has_uses or any_constant_of(node.outputs[0]) is not None:
                continue
            if not self._fold_values(node, rewriter) and node.inputs:
                _fold_shape(node, shapes, bound, rewriter)

    def _fold_values(self, node: Node, rewriter: Rewriter) -> bool:
        operands = [_known(value, node) if value is not None else None for value in node.inputs]
        if any(value is not None and content is None for value, content in zip(node.inputs, operands, strict=True)):
            return False
        if not self._is_affordable(node, operands):
            return False
        if not all(content is None or content.is_at_hand for content in operands):
            return _defer(node, operands, rewriter)
        try:
            results = evaluate_node(node, [content.array if content is not None else None for content in operands], {})
        except CapgraphError:
            return False  # it fails when it runs; that error belongs to the run, with its origin
        if not rewriter.may_rewrite("constant", node):
            return False
        rewriter.replace(node, *(rewriter.constant(Constant(_owned(result))) for result in results))
        return True

    def _is_affordable(self, node: Node, operands: list[Constant | None]) -> bool:
        if not all(isinstance(value.type, TensorType) and value.type.is_static for value in node.outputs):
            return False
        size = sum(_nbytes(value) for value in node.outputs)
        return size <= max(self.limit, sum(content.nbytes for content in operands if content is not None))


def _known(value: Value, node: Node) -> Constant | None:
    """The content of an operand; of one without elements, where results have some, that is known too."""
    content = any_constant_of(value)
    if content is not None or not _is_empty(value) or any(map(_is_empty, node.outputs)):
        return content
    shape, dtype = [dim for dim in value.shape if isinstance(dim, int)], value.tensor.dtype.numpy
    if math.prod(dim or 1 for dim in shape) * dtype.itemsize > sys.maxsize:  # NumPy makes none of them, empty or not
        return None
    return Constant(np.empty(shape, dtype))


def _is_empty(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.is_static and 0 in value.type.dims


def _defer(node: Node, operands: list[Constant | None], rewriter: Rewriter) -> bool:
    """Weights that are not at hand are only laid out anew, by whoever runs the graph."""
    content = deferred_node(node, operands)
    if content is None or not rewriter.may_rewrite("deferred", node):
        return False
    rewriter.replace(node, rewriter.constant(content))
    return True


def _nbytes(value: Value) -> int:
    count = value.tensor.size
    return count * value.tensor.dtype.bits // 8 if isinstance(count, int) else 0


def _owned(result: np.ndarray) -> np.ndarray:
    """The result in memory of its own, in order: a view of a larger array would keep all of it alive."""
    return result if result.base is None and result.flags.c_contiguous else result.copy()


def _fold_shape(node: Node, shapes: ShapeValues, bound: frozenset[str], rewriter: Rewriter) -> bool:
    """Replaces an i64 scalar or vector whose elements are known as dims of the graph's inputs."""
    if len(node.outputs) != 1 or not isinstance(node.outputs[0].type, TensorType):
        return False
    value = node.outputs[0]
    if value.tensor.dtype is not DType.I64 or value.tensor.shape is None or len(value.shape) > 1:
        return False
    content = shapes.of(value)
    if content is None or not _mentions_only(content, bound) or not rewriter.may_rewrite("shape", node):
        return False
    rewriter.replace(node, _dims_value(content, rewriter))
    return True


def _mentions_only(content: np.ndarray, bound: frozenset[str]) -> bool:
    return all(symbols(dim) <= bound for dim in content.reshape(-1).tolist())


def _dims_value(content: np.ndarray, rewriter: Rewriter) -> Value:
    dims = content.reshape(-1).tolist()
    if not any(isinstance(dim, SymDim) for dim in dims):
        return rewriter.constant(np.array(dims, dtype=np.int64).reshape(content.shape))
    if content.ndim == 0:
        return rewriter.op("dim", value=dims[0])
    return rewriter.node(native("dims"), (), {"values": tuple(dims)}).output
