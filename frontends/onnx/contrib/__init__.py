"""ONNX Runtime's own operators: which groups of nodes one of them does, and how it is written in their place.

A rule looks at the last node of a group and gives the group, or None. The graph stays what it is: what a group means is
what its nodes mean, and where the operator is not there, they are written one by one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from ....ir.graph import Graph, Node
from . import attention, block_matmuls, caches, convolutions, matmuls, norms
from .group import Group, Operator, order_of

Rule = Callable[[Node, Collection[Operator], Mapping[Node, int]], Group | None]

_FAMILIES = (caches, attention, norms, convolutions, block_matmuls, matmuls)
"""In the order in which rules are tried where those of several families look at the same op."""


def _gathered() -> Mapping[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for family in _FAMILIES:
        for name, rules in family.RULES.items():
            found[name] = (*found.get(name, ()), *rules)
    return MappingProxyType(found)


RULES = _gathered()
"""The rules by the op of a group's last node, in the order in which they are tried."""

OPERATORS: frozenset[Operator] = frozenset[Operator]().union(*(family.OPERATORS for family in _FAMILIES))
"""All operators that rules write: by name, with the element types for which ONNX Runtime 1.31 has a kernel, in f32 on
the CPU."""

IN_FILES: frozenset[Operator] = (
    OPERATORS - norms.SLOW_ON_CPU - caches.SLOW_ON_CPU - attention.RECENT - convolutions.RECENT
)
"""Those that a model for anybody's sessions gets: in f32 without what is slower on the CPU than standard operators. On
CUDA ONNX Runtime joins residuals and norms by itself. Nor does it get what older ONNX Runtimes refuse or get wrong."""

ON_HOST: frozenset[Operator] = block_matmuls.OPERATORS
"""What our own sessions on the CPU get: all else ONNX Runtime makes of standard operators by itself."""

ON_CUDA: frozenset[Operator] = convolutions.ON_CUDA | (
    OPERATORS - convolutions.OPERATORS - caches.OPERATORS - attention.ROTARY - block_matmuls.OPERATORS
)
"""Those that our own sessions on CUDA get, as they were measured. The operator on caches reads a length on the host,
which nothing that is recorded may do; of activations behind a convolution the kernel there knows but one. Matmuls of
weights in blocks have not been measured there."""


_SINCE = {"Gelu": 20, "LayerNormalization": 17}
"""The opsets from which on the standard has operators of the same name."""


def missing_in(opset: int, operators: Collection[Operator]) -> frozenset[Operator]:
    """Those of the operators that the standard has not by itself at this opset, but whoever takes it has."""
    return frozenset(
        each for each in operators if block_matmuls.SINCE.get(each, 0) <= opset < _SINCE.get(each.name, opset + 1)
    )


def find_groups(graph: Graph, available: Collection[Operator]) -> Mapping[Node, Group | None]:
    """The nodes that are not written as themselves: the last of a group with the group, its other nodes with None.

    Groups that end later are found first, so that the longest wins.
    """
    order = order_of(graph)
    found: dict[Node, Group | None] = {}
    for node in reversed(list(graph.nodes)):
        if node in found:
            continue
        group = _first(RULES.get(node.op.name, ()), node, available, order)
        if group is not None and found.keys().isdisjoint(group.inner):
            found[node] = group
            found.update(dict.fromkeys(group.inner))
    return found


def _first(
    rules: Sequence[Rule], node: Node, available: Collection[Operator], order: Mapping[Node, int]
) -> Group | None:
    for rule in rules:
        group = rule(node, available, order)
        if group is not None:
            return group
    return None
