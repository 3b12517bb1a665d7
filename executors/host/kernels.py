"""Kernels on the host: for each op a NumPy call that writes into the planned result.

An op has an entry in one of the tables if NumPy can write its result in place; an entry may decline a node (None). All
others go through their meaning, whose result is copied. Either way the numbers are those of the meaning.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ...ir.constant import Array
from ...ir.evaluate import bound_attrs
from ...ir.foreign import meaning_of
from ...ir.graph import Node, Value
from ...ir.plan import View
from .calls import ArrayCall, ThroughMeaning
from .kernels_elementwise import ELEMENTWISE
from .kernels_layout import LAYOUT
from .kernels_linear import LINEAR, OVER_SCRATCH
from .kernels_reduction import REDUCTION

Kernel = Callable[[Node, Sequence[Array | None], tuple[Array, ...]], ArrayCall | None]

KERNELS: Mapping[str, Kernel] = {**ELEMENTWISE, **LAYOUT, **LINEAR, **REDUCTION}
"""Kernels by op name."""


def scratch_bytes(node: Node, _views: Mapping[Value, View]) -> int:
    """How many bytes the kernel of a node wants for itself while it runs, aligned as any buffer."""
    entry = OVER_SCRATCH.get(node.op.name)
    return entry[0](node) if entry is not None else 0


def call_of(
    node: Node, operands: Sequence[Array | None], results: tuple[Array, ...], scratch: Array | None = None
) -> ArrayCall:
    """The call that computes a node of known sizes.

    `operands` and `results` are arrays at their planned places, `scratch` the planned bytes for the kernel's own use.
    """
    if scratch is not None:
        return OVER_SCRATCH[node.op.name][1](node, operands, results, scratch) or through_meaning(
            node, operands, results
        )
    kernel = KERNELS.get(node.op.name) if _is_over_one_operand_at_most(operands, results) else None
    made = kernel(node, operands, results) if kernel is not None else None
    return made or through_meaning(node, operands, results)


def _is_over_one_operand_at_most(operands: Sequence[Array | None], results: tuple[Array, ...]) -> bool:
    """Whether a kernel may write its result in several passes: `layer_norm(x, x, x)` in place would read half of it."""
    over = [o for o in operands if o is not None and any(np.may_share_memory(o, result) for result in results)]
    return len(over) <= 1


def through_meaning(node: Node, operands: Sequence[Array | None], results: tuple[Array, ...]) -> ArrayCall:
    """The call that computes by the op's meaning and copies."""
    if node.op.is_foreign:
        function = partial(_foreign, node)
        return ArrayCall(ThroughMeaning(function, len(results)), tuple(operands), results)
    meaning = partial(node.op.meaning, **bound_attrs(node, {}))
    return ArrayCall(ThroughMeaning(meaning, len(results)), tuple(operands), results)


def _foreign(node: Node, *operands: Array | None) -> object:
    return meaning_of(node)(node, operands)
