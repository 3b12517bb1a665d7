"""What is true of ops, asked of their rows: a list of names that states a fact would miss the next op."""

from ..foreign import shaping_indices
from ..graph import Node, Value
from ..op import Op, Trait
from ..scalar import Scalar
from . import OPS, PLANNED_OPS


def with_trait(trait: Trait) -> tuple[Op, ...]:
    """The native ops that have (one of) these traits, also those that only planning makes."""
    return tuple(op for op in (*OPS.values(), *PLANNED_OPS.values()) if op.has(trait))


def reduces_axes(op: Op) -> bool:
    """Whether an op reduces the axes of its attribute `axes`, and `keep_dims` says what is left of them."""
    return op.has(Trait.REDUCTION) and "axes" in op.attrs


def reduction_kind(op: Op) -> str:
    """What an op with `reduces_axes` makes of elements: `sum`, `max`, ..."""
    return op.name.removeprefix("reduce_")


def shaping_operands(node: Node) -> tuple[Value, ...]:
    """The operands whose values say how large the results of a node are, or along which axes they are made."""
    if node.op.is_foreign:
        chosen = (node.inputs[index] for index in shaping_indices(node.op) if index < len(node.inputs))
    else:
        chosen = (value for index, value in enumerate(node.inputs) if node.op.operand_at(index).is_shaping)
    return tuple(value for value in chosen if value is not None)


def composed_ops() -> dict[str, Scalar]:
    """The expressions of the ops that are made from other elementwise ops, by name."""
    return {name: op.scalar for name, op in OPS.items() if op.scalar is not None}
