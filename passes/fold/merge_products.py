"""Horizontal fusion: products of one value with several constant weights become one product, split afterwards.

The weights (and biases) are put side by side once. Queries, keys and values of attention, and gate and up of a gated
layer, are the cases that models have.

No level runs this pass: in ONNX Runtime's CPU provider one large product is not faster than three small ones, and the
split copies. Medians of time after to time before, batch 1, length 128: BERT 1.02, ViT 1.02, Whisper encoder 1.04, Swin
1.02, Llama 0.99. Programs for a GPU do: launches are what costs there, and parts of the result are read where they lie.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import constant_of
from ...ir.constant import Constant
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import ADD, MATMUL
from ..framework.base import Pass
from ..framework.deferred import concatenated
from ..framework.exactness import Exactness
from ..framework.rewriter import Rewriter
from .absorb import any_own_weight


@dataclass(frozen=True)
class MergeProducts(Pass):
    """Merges `matmul` nodes that read the same value, together with the addition of a bias to each.

    `least` is the number of products that are worth a split. With `spares_epilogues` those stay apart whose results go
    into elementwise work, which a backend may do in the same kernel.
    """

    name: ClassVar[str] = "merge-products"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING
    least: int = 2
    spares_epilogues: bool = False

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        groups: dict[Value, list[_Product]] = {}
        for product in _products(graph):
            if self.spares_epilogues and any(user.op.has(Trait.ELEMENTWISE) for user in product.result.users):
                continue
            groups.setdefault(product.node.operands[0], []).append(product)
        for products in groups.values():
            if len(products) >= self.least and rewriter.may_rewrite("products-of-one-value", products[0].node):
                # What they read may itself have been a product that is now part of another.
                _merge(products[0].node.operands[0], products, rewriter)


@dataclass(frozen=True)
class _Product:
    """A product with the constant weight `[K, N]`, and the node that adds the constant `bias` `[N]` where one does."""

    node: Node
    weight: Constant
    addition: Node | None
    bias: Constant | None

    @property
    def result(self) -> Value:
        """What is read of it."""
        return (self.addition or self.node).output


def _products(graph: Graph) -> Iterator[_Product]:
    for node in graph.nodes:
        if node.op is not MATMUL:
            continue
        weight = any_own_weight(node.operands[1])
        if weight is not None and len(weight.shape) == 2 and node.operands[0].tensor.rank > 1:
            yield _Product(node, weight, *_bias_of(node, weight.shape[1]))


def _bias_of(product: Node, size: int) -> tuple[Node, Constant] | tuple[None, None]:
    """The addition that alone reads a product, and the vector that it adds."""
    users = product.output.users
    if product.output.use_count != 1 or len(users) != 1 or users[0].op is not ADD:
        return None, None
    addition = users[0]
    other = addition.operands[1 if addition.operands[0] is product.output else 0]
    content = constant_of(other)
    if content is None or content.shape != (size,):
        return None, None
    return addition, content


def _merge(x: Value, products: list[_Product], rewriter: Rewriter) -> None:
    weights = concatenated([product.weight for product in products], axis=1)
    sizes = tuple(product.weight.shape[1] for product in products)
    dtype = x.tensor.dtype
    joined = rewriter.op("matmul", x, rewriter.constant(weights))
    if any(product.bias is not None for product in products):
        biases = [
            product.bias.array if product.bias is not None else np.zeros(size, dtype.numpy)
            for product, size in zip(products, sizes, strict=True)
        ]
        joined = rewriter.op("add", joined, rewriter.constant(Constant(np.concatenate(biases), dtype)))
    parts = rewriter.ops("split", joined, axis=x.tensor.rank - 1, sizes=sizes)
    for product, part in zip(products, parts, strict=True):
        rewriter.replace(product.addition or product.node, part)
