"""Constants whose content is not at hand, laid out anew without reading them.

Weights may lie on a device, or not be there yet. What a pass wants of them in another order becomes a constant that
says how it follows from the others; whoever runs the graph computes it, once, and where it needs it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...ir.constant import Array, Constant, Derivation
from ...ir.graph import Node
from ...ir.op import Op, Trait
from ...ir.ops import native
from ...ir.ops.known import TRANSPOSE
from ...ir.types import TensorType


def can_be_deferred(op: Op) -> bool:
    """Whether an op moves elements, each to one place, and computes none."""
    return op is TRANSPOSE or op.has(Trait.RESHAPES | Trait.JOINS)


def deferred(name: str, contents: Sequence[Constant], attrs: Mapping[str, Any]) -> Constant:
    """What the op `name`, which `can_be_deferred`, gives for `contents`, computed when it is first read."""
    op = native(name)
    complete = op.complete_attrs(attrs).as_kwargs()
    (ty,) = op.result_types([each.type for each in contents], op.complete_attrs(attrs))
    assert isinstance(ty, TensorType)  # constants are tensors, and so is what is laid out anew
    return Constant.derived(
        ty, Derivation(name, complete, tuple(contents)), partial(_computed, name, contents, complete)
    )


def _computed(name: str, contents: Sequence[Constant], attrs: Mapping[str, Any]) -> Array:
    result: Array = native(name).meaning(*(each.array for each in contents), **attrs)
    return np.ascontiguousarray(result)


def deferred_node(node: Node, contents: Sequence[Constant | None]) -> Constant | None:
    """The result of a node over these operands, if it can be deferred."""
    present = [content for content in contents if content is not None]
    if not can_be_deferred(node.op) or len(present) < len(contents):
        return None
    return deferred(node.op.name, present, node.attrs.as_kwargs())


def transposed(content: Constant, perm: Sequence[int]) -> Constant:
    """With its axes in another order."""
    if not content.is_at_hand:
        return deferred("transpose", [content], {"perm": tuple(perm)})
    return Constant(np.ascontiguousarray(np.transpose(content.array, perm)), content.dtype)


def expanded(content: Constant, shape: Sequence[int]) -> Constant:
    """Repeated along axes where it has a size of 1, or none."""
    return made_of("expand", [content], shape=tuple(shape))


def made_of(name: str, contents: Sequence[Constant], **attrs: Any) -> Constant:
    """What the op `name` makes of constants: now where they are at hand, else when it is first read."""
    if not all(each.is_at_hand for each in contents):
        return deferred(name, contents, attrs)
    op = native(name)
    made: Array = op.meaning(*(each.array for each in contents), **op.complete_attrs(attrs).as_kwargs())
    return Constant(made)


def concatenated(contents: Sequence[Constant], axis: int) -> Constant:
    """Contents of one dtype put side by side along an axis."""
    if not all(each.is_at_hand for each in contents):
        return deferred("concat", contents, {"axis": axis})
    return Constant(np.concatenate([each.array for each in contents], axis=axis), contents[0].dtype)
