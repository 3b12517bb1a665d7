"""Faster ways to compute what an op means, for steps on the host: same results within the dtype's rounding."""

from ..ir.graph import Node
from ..ir.op import Meaning, Trait
from ..ir.ops.known import LOG_SOFTMAX, SOFTMAX
from ..ir.ops.nn.conv import conv_in_own_width

_FASTER: dict[str, Meaning] = {"conv": conv_in_own_width}

_NEAR = 16
"""About how many nodes are looked at between a product and a softmax."""


def host_meaning(node: Node) -> Meaning:
    """The function that eager steps call for `node`."""
    if node.op.name not in _FASTER or feeds_softmax(node):
        return node.op.meaning
    return _FASTER[node.op.name]


def feeds_softmax(node: Node) -> bool:
    """Whether results of `node` are scores of a softmax: they get there without another product in between.

    An exponential makes relative errors of absolute ones, and BLAS may give unlike sums of like terms (OpenBLAS for
    AVX2 adds up the rows of one block in different orders), so such sums are better taken in twice the width.
    """
    near = [node]
    for each in near:
        users = [user for value in each.outputs for user in value.users if not user.op.has(Trait.PRODUCT)]
        if any(user.op in (SOFTMAX, LOG_SOFTMAX) for user in users):
            return True
        if len(near) <= _NEAR:
            near += [user for user in dict.fromkeys(users) if user not in near]
    return False
