"""Horizontal fusion: matmuls of one value with several constant weights become one matmul, split afterwards.

The weights (and biases) are put side by side once. Queries, keys and values of attention, and gate and up of a gated
layer, are the cases that models have.

No level runs this pass: in ONNX Runtime's CPU provider one large matmul is not faster than three small ones, and the
split copies. Medians of time after to time before, batch 1, length 128: BERT 1.02, ViT 1.02, Whisper encoder 1.04, Swin
1.02, Llama 0.99. Programs for a GPU do: launches are what costs there, and parts of the result are read where they lie.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.analysis.contents import any_constant_of, constant_of
from ...ir.constant import Constant
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import ADD, DEQUANTIZE, MATMUL
from ...ir.ops.rules import normal_axis
from ..framework.base import Pass
from ..framework.deferred import concatenated, expanded
from ..framework.exactness import Exactness
from ..framework.rewriter import Rewriter
from .absorb import any_own_weight


@dataclass(frozen=True)
class MergeMatmuls(Pass):
    """Merges `matmul` nodes that read the same value, together with the addition of a bias to each.

    `least` is the number of matmuls that are worth a split. With `spares_epilogues` those stay apart whose results go
    into elementwise work, which a backend may do in the same kernel.
    """

    name: ClassVar[str] = "merge-matmuls"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING
    least: int = 2
    spares_epilogues: bool = False

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        groups: dict[tuple[Value, Hashable], list[_Matmul]] = {}
        for matmul in _matmuls(graph):
            if self.spares_epilogues and any(user.op.has(Trait.ELEMENTWISE) for user in matmul.result.users):
                continue
            groups.setdefault((matmul.node.operands[0], matmul.weight.format), []).append(matmul)
        for matmuls in groups.values():
            if len(matmuls) >= self.least and rewriter.may_rewrite("matmuls-of-one-value", matmuls[0].node):
                # What they read may itself have been a matmul that is now part of another.
                _merge(matmuls[0].node.operands[0], matmuls, rewriter)


@dataclass(frozen=True)
class _Weight:
    """A constant `[K, N]`, or one in codes that `back` dequantizes, with a scale for each column or block of one."""

    content: Constant
    back: Node | None = None

    @property
    def columns(self) -> int:
        return self.content.shape[1]

    @property
    def format(self) -> Hashable:
        """What two weights have to have in common to become one."""
        if self.back is None:
            return None
        scale = self.back.operands[1].tensor
        blocks = self.back.attrs["block_size"] if scale.rank > 1 else 0
        return (self.content.dtype, scale.dtype, self.back.attrs["to"], len(self.back.operands), blocks)

    def parameters(self) -> list[Constant]:
        """Scales, and zero points where there are some: one for all columns is repeated."""
        assert self.back is not None
        known = [any_constant_of(value) for value in self.back.operands[1:]]
        wide = (self.columns,)
        return [each if len(each.shape) > 1 else expanded(each, wide) for each in known if each is not None]


@dataclass(frozen=True)
class _Matmul:
    """A matmul with the weight `[K, N]`, and the node that adds the constant `bias` `[N]` where one does."""

    node: Node
    weight: _Weight
    addition: Node | None
    bias: Constant | None

    @property
    def result(self) -> Value:
        """What is read of it."""
        return (self.addition or self.node).output


def _matmuls(graph: Graph) -> Iterator[_Matmul]:
    for node in graph.nodes:
        if node.op is not MATMUL:
            continue
        weight = _weight_of(node.operands[1])
        if weight is not None and len(weight.content.shape) == 2 and node.operands[0].tensor.rank > 1:
            yield _Matmul(node, weight, *_bias_of(node, weight.columns))


def _weight_of(value: Value) -> _Weight | None:
    content, back = any_own_weight(value), value.producer
    if content is not None:
        return _Weight(content)
    if back is None or back.op is not DEQUANTIZE or value.use_count != 1:
        return None
    codes, scale, *_ = known = [any_constant_of(each) for each in back.operands]
    if codes is None or scale is None or None in known or len(codes.shape) != 2:
        return None
    axis = normal_axis(back.attrs["axis"], 2)
    is_by_column = axis == 1 and len(scale.shape) == 1
    is_by_block = axis == 0 and len(scale.shape) == 2 and scale.shape[1] == codes.shape[1]
    return _Weight(codes, back) if scale.shape in ((), (1,)) or is_by_column or is_by_block else None


def _bias_of(matmul: Node, size: int) -> tuple[Node, Constant] | tuple[None, None]:
    """The addition that alone reads a matmul, and the vector that it adds."""
    users = matmul.output.users
    if matmul.output.use_count != 1 or len(users) != 1 or users[0].op is not ADD:
        return None, None
    addition = users[0]
    other = addition.operands[1 if addition.operands[0] is matmul.output else 0]
    content = constant_of(other)
    if content is None or content.shape != (size,):
        return None, None
    return addition, content


def _merge(x: Value, matmuls: list[_Matmul], rewriter: Rewriter) -> None:
    sizes = tuple(matmul.weight.columns for matmul in matmuls)
    dtype = x.tensor.dtype
    joined = rewriter.op("matmul", x, _merged_weight([matmul.weight for matmul in matmuls], rewriter))
    if any(matmul.bias is not None for matmul in matmuls):
        biases = [
            matmul.bias.array if matmul.bias is not None else np.zeros(size, dtype.numpy)
            for matmul, size in zip(matmuls, sizes, strict=True)
        ]
        joined = rewriter.op("add", joined, rewriter.constant(Constant(np.concatenate(biases), dtype)))
    parts = rewriter.ops("split", joined, axis=x.tensor.rank - 1, sizes=sizes)
    for matmul, part in zip(matmuls, parts, strict=True):
        rewriter.replace(matmul.addition or matmul.node, part)


def _merged_weight(weights: list[_Weight], rewriter: Rewriter) -> Value:
    codes = rewriter.constant(concatenated([weight.content for weight in weights], axis=1))
    back = weights[0].back
    if back is None:
        return codes
    parts = zip(*(weight.parameters() for weight in weights), strict=True)
    parameters = [concatenated(part, axis=len(part[0].shape) - 1) for part in parts]
    attrs = {**back.attrs, "axis": len(parameters[0].shape) % 2}
    operands = [codes, *map(rewriter.constant, parameters), *[None] * (2 - len(parameters))]
    return rewriter.node(back.op, operands, attrs).output
