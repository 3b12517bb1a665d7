"""Kernels on the host: for each op a NumPy call that writes into the planned result; here those that move elements.

An op has an entry in one of the tables if NumPy can write its result in place; an entry may decline a node (None). All
others go through their meaning, whose result is copied. Either way the numbers are those of the meaning.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.evaluate import bound_attrs
from ...ir.foreign import meaning_of
from ...ir.graph import Node, Value
from ...ir.ops.indexing import checked_indices
from ...ir.plan import View
from .calls import ArrayCall, ThroughMeaning, copy
from .kernels_elementwise import ELEMENTWISE
from .kernels_linear import LINEAR, OVER_SCRATCH
from .kernels_reduction import REDUCTION

_Operands = Sequence[Array | None]
_Results = tuple[Array, ...]


def _copied_view(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    """A view op into memory of its own: one strided copy, found by applying the op to the operand's strides."""
    source = operands[0]
    if source is None or len(results) != 1:
        return None
    seen = node.op.meaning(source, *operands[1:], **bound_attrs(node, {}))
    if isinstance(seen, np.ndarray) and (not seen.size or np.may_share_memory(seen, source)):
        return ArrayCall(copy, (seen,), results)
    return None


def _reshape(_node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    """The result is contiguous, so it has a view of the operand's shape, whatever the operand's strides are."""
    (source,) = operands
    if source is None or np.may_share_memory(source, results[0]):
        return None
    return ArrayCall(copy, (source,), (results[0].reshape(source.shape),))


def _concat(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    if any(np.may_share_memory(part, results[0]) for part in operands if part is not None):
        return None
    return ArrayCall(partial(concat_into, axis=node.attrs["axis"]), tuple(operands), results)


def concat_into(*parts_and_result: Array, axis: int) -> None:
    """The parts one after another along `axis`, in the last array."""
    *parts, result = parts_and_result
    np.concatenate(parts, axis, out=result)


def _gather(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    return ArrayCall(partial(gather_into, axis=node.attrs["axis"]), tuple(operands), results)


def gather_into(x: Array, indices: Array, result: Array, *, axis: int) -> None:
    """The slices of `x` at `indices` along `axis`. Raises `ExecutionError` for an index out of range."""
    checked = checked_indices(indices, x.shape[axis], "gather")
    np.take(x, checked, axis, out=result, mode="clip")  # any other mode would buffer the whole result


def _pad(node: Node, operands: _Operands, results: _Results) -> ArrayCall | None:
    """Constant padding that cuts nothing off: fill, then copy into the middle."""
    x, fill = operands
    pads = bound_attrs(node, {})["pads"]
    if x is None or node.attrs["mode"] != "constant" or not x.ndim or any(pad < 0 for pad in pads):
        return None
    (result,) = results
    inner = result[tuple([slice(begin, begin + size) for begin, size in zip(pads, x.shape, strict=False)])]
    return ArrayCall(pad_into, (x, result.dtype.type(0) if fill is None else fill), (result, inner))


def pad_into(x: Array, fill: Any, result: Array, inner: Array) -> None:
    """`fill` everywhere in `result`, and `x` in its part `inner`."""
    np.copyto(result, fill)
    np.copyto(inner, x)


LAYOUT: dict[str, Any] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "transpose": _copied_view,
    "expand": _copied_view,
    "slice": _copied_view,
    "reverse": _copied_view,
    "concat": _concat,
    "gather": _gather,
    "pad": _pad,
}
"""Kernels by op name."""


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
