"""What an edit of a graph is checked for before its first change."""

from collections.abc import Sequence

from .dims import Truth
from .errors import TypeRuleError
from .node import Node, Value
from .types import Type, compatible


def is_known_at(value: Value, node: Node) -> bool:
    """Whether `node` may read `value`, of the same graph."""
    return value.producer is None or (value.producer is not node and value.producer.precedes(node))


def check_replacement(old: Value, new: Value) -> None:
    """Raises `TypeRuleError` where `new` cannot be what `old` says it is."""
    if compatible(old.type, new.type) is Truth.NO:
        raise TypeRuleError(f"%{new.name}: {new.type} cannot stand for %{old.name}: {old.type}")


def check_declared(node: Node, declared: Sequence[Type], inferred: Sequence[Type]) -> None:
    """Raises `TypeRuleError` where results cannot have the types that they are said to have."""
    if len(declared) != len(inferred):
        raise TypeRuleError(f"{node.op.name} has {len(inferred)} results, not {len(declared)}", where=node.where())
    for index, (said, found) in enumerate(zip(declared, inferred, strict=True)):
        if compatible(said, found) is Truth.NO:
            raise TypeRuleError(f"result {index} of {node.op.name} is {found}, not {said}", where=node.where())


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names made different by a suffix, for outputs that return the same value twice."""
    taken: set[str] = set()
    distinct: list[str] = []
    for name in names:
        chosen, suffix = name, 1
        while chosen in taken:
            chosen, suffix = f"{name}_{suffix}", suffix + 1
        taken.add(chosen)
        distinct.append(chosen)
    return tuple(distinct)
