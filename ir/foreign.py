"""The meanings of foreign ops: frontends register, per domain, how to run a node that the IR does not know natively."""

from collections.abc import Callable, Sequence
from typing import Any

from .errors import UnsupportedError
from .graph import Node

ForeignMeaning = Callable[[Node, Sequence[Any]], Sequence[Any]]
"""Runs a node on the values of its inputs (None where absent) and gives its results in order."""

_meanings: dict[str, ForeignMeaning] = {}


def register_meaning(domain: str, meaning: ForeignMeaning) -> None:
    """Makes `meaning` run every foreign op of `domain` that has no closer registration.

    A dotted domain (`com.microsoft`) is looked up before its first part (`com`).
    """
    _meanings[domain] = meaning


def meaning_of(node: Node) -> ForeignMeaning:
    """The registered meaning for `node`. Raises `UnsupportedError` when there is none."""
    parts = node.op.name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        found = _meanings.get(".".join(parts[:length]))
        if found is not None:
            return found
    raise UnsupportedError(
        f"nothing here knows how to run {node.op.name}",
        where=node.where(),
        remedy="give the model a function body for it, import the frontend that knows it, or register what it means "
        "with capgraph.ir.foreign.register_meaning",
    )
