"""Padding safety: which symbolic dims may be run at a larger size without touching the real rows.

A call whose dim has a size between two buckets runs at the larger one. The inputs are then padded at their end with
whatever memory holds, and the outputs are cut to the real size. `padding_safety` proves, node by node, that no such
garbage reaches a real element of any output, or says where the proof fails. `mask_padding` repairs the nodes where it
fails: a further input with the real size lets them select the real elements.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....ir.graph import Graph
from .checker import refuted
from .claims import Certificate
from .repair import Budget, MaskInsertion
from .rules.facts import Number
from .walk import REAL_SIZE, UnsafeState, walked

__all__ = ["SafetyReport", "made_safe", "mask_padding", "padding_safety", "real_size_input"]


@dataclass(frozen=True)
class SafetyReport:
    """Whether a dim may be padded.

    `proof` has a line for each node that the dim reaches, with the rule that holds there. `failure` says why and where
    the proof fails, empty when it does not. `fills` are the graph inputs, by name, whose padded part must hold this
    number (an index that is in range); other inputs may hold anything there. The proof holds for calls all of whose
    sizes are at least `least`. `is_refuted` says that the checker did not accept a proof.
    """

    is_safe: bool
    proof: tuple[str, ...] = ()
    failure: str = ""
    fills: Mapping[str, Number] = field(default_factory=dict[str, Number])
    least: int = 0
    is_refuted: bool = False


def padding_safety(graph: Graph, symbol: str, largest: int | None = None, least: int = 0) -> SafetyReport:
    """Judges whether inputs may be padded with anything, NaN included, at the end of every axis that carries `symbol`.

    The graph is one before specializing; it is not changed. A caller that pads runs it at a larger `symbol`, fills
    inputs as `fills` says, gives the real size to the input that `real_size_input` names, if there is one, and cuts
    each output to its size at the real `symbol`. Padding several symbols at once is safe when each by itself is.

    Every size of the inputs is taken to be at least `least`, and the padded one at most `largest`: with that known,
    fewer indices can be out of range. Without real elements some nodes fail, as `argmax` does, which no padded call
    may hide: those are safe from 1 on only.
    """
    outcome = walked(graph, symbol, largest, least)
    walk, failure = outcome.walk, outcome.failure
    if failure is not None:
        return SafetyReport(False, tuple(walk.proof), f"{failure.reason}, at {outcome.where}", least=least)
    given = real_size_input(graph, symbol)
    problem = refuted(Certificate(graph, symbol, walk.facts, walk.fills, walk.together, given, largest, least))
    return SafetyReport(not problem, tuple(walk.proof), problem, walk.fills, least, bool(problem))


def mask_padding(graph: Graph, symbol: str, largest: int | None = None, least: int = 0) -> Graph | None:
    """A copy of `graph` for which `padding_safety` holds, None when masks cannot make it hold.

    The copy has one more input, i64[] and the last, for the real size of the dim (`real_size_input`), unless it needs
    no mask. Masks are selections by position; attention gets an operand that hides padded keys; a mean becomes a sum
    divided by the real size; padded rows of a state stay what they were.
    """
    safe, report = made_safe(graph, symbol, largest, least)
    if not report.is_safe:
        return None
    return graph.clone() if safe is graph else safe


def made_safe(
    graph: Graph, symbol: str, largest: int | None = None, least: int = 0, budget: Budget | None = None
) -> tuple[Graph, SafetyReport]:
    """`graph` where it is safe or cannot be made safe, else the copy that `mask_padding` gives; and why.

    Where `budget` refuses a repair it is the copy with those before, which means the same at its real size.
    """
    before = padding_safety(graph, symbol, largest, least)
    if before.is_safe or before.is_refuted:
        return graph, before
    copy = graph.clone()
    insertion = MaskInsertion(copy, symbol, budget)
    for _ in range(1 + len(graph.states)):
        outcome = walked(copy, symbol, largest, least, insertion.repair)
        if not isinstance(outcome.failure, UnsafeState):
            break
        if not insertion.keeps_state(outcome.walk, outcome.failure):
            return graph, before
    if insertion.is_stopped:
        return copy, before
    after = padding_safety(copy, symbol, largest, least)
    if after.is_safe:
        return copy, after
    return graph, (after if after.is_refuted else before)


def real_size_input(graph: Graph, symbol: str) -> str | None:
    """The name of the input that takes the real size of `symbol`, None when the graph needs none."""
    return graph.metadata.get(f"{REAL_SIZE}{symbol}")
