"""The meanings of foreign ops: frontends register, per domain, how to run a node that the IR does not know natively."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from .errors import UnsupportedError
from .graph import Node
from .op import Op, Trait

_Meaning = TypeVar("_Meaning")

ForeignMeaning = Callable[[Node, Sequence[Any]], Sequence[Any]]
"""Runs a node on the values of its inputs (None where absent) and gives its results in order."""

_meanings: dict[str, ForeignMeaning] = {}


def register_meaning(domain: str, meaning: ForeignMeaning) -> None:
    """Makes `meaning` run every foreign op of `domain` that has no closer registration.

    A dotted domain (`com.microsoft`) is looked up before its first part (`com`).
    """
    _meanings[domain] = meaning


class TensorMeaning(NamedTuple):
    """Runs a node on arrays of `framework` ("torch", say) wherever these lie, and gives arrays of that framework.

    It enqueues work where the framework does at the time. Inputs that are absent are None.
    """

    framework: str
    run: ForeignMeaning


_tensor_meanings: dict[str, TensorMeaning] = {}


def register_tensor_meaning(domain: str, meaning: TensorMeaning) -> None:
    """Makes `meaning` run the foreign ops of `domain`, looked up as for `register_meaning`, on a device."""
    _tensor_meanings[domain] = meaning


def tensor_meaning_of(node: Node) -> TensorMeaning | None:
    """How a device runs a foreign node on its own arrays; None where only the host runs it."""
    return _closest(_tensor_meanings, node.op.name) if node.op.has(Trait.FOREIGN) else None


_shaping: dict[str, tuple[int, ...]] = {}


def register_shaping(rows: Mapping[str, tuple[int, ...]]) -> None:
    """Foreign ops by name, and which of their operands say by their values how large results are."""
    _shaping.update(rows)


def shaping_indices(op: Op) -> tuple[int, ...]:
    """What `register_shaping` was told of a foreign op; nothing where nobody told."""
    return _shaping.get(op.name, ())


def _closest(table: Mapping[str, _Meaning], name: str) -> _Meaning | None:
    parts = name.split(".")
    found = (table.get(".".join(parts[:length])) for length in range(len(parts) - 1, 0, -1))
    return next((each for each in found if each is not None), None)


def meaning_of(node: Node) -> ForeignMeaning:
    """The registered meaning for `node`. Raises `UnsupportedError` when there is none."""
    found = _closest(_meanings, node.op.name)
    if found is not None:
        return found
    raise UnsupportedError(
        f"nothing here knows how to run {node.op.name}",
        where=node.where(),
        remedy="give the model a function body for it, import the frontend that knows it, or register what it means "
        "with capgraph.ir.foreign.register_meaning",
    )
