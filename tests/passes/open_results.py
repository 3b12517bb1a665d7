"""What operations and passes leave open: results that may be others after a pass, for what the inputs are.

* An integer divided by zero has no defined result: size / size is 1 to the passes.
* A guard around a softmax is for queries that see no key, whose scores are all -inf; attention, which takes its place,
  does not hide NaN that comes from NaN or inf among the scores.
* A very negative number that `where` puts in place of a score is added to it in attention. It swallows only scores of
  a common size.
* Where numbers come near the largest of their dtype, infinities may come about in another order of operations, and from
  them NaN, or zeros: of what is divided by them, and of queries of attention that see no key any more.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from capgraph.ir.evaluate import bind_inputs, evaluate_node
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.types import DType
from capgraph.passes.recognize.parts.scores import HIDDEN

SWALLOWED = 1e13
"""Scores below this vanish when a number that hides is added to them, also in f64."""
ROOM = 64.0
"""By how much the order of operations may change numbers on the way."""

_IS_LOST = re.compile(r"^output .* is (nan|-?inf|-?0\.0) instead of")


def excused_by(graph: Graph, inputs: Sequence[Any]) -> Callable[[str], bool]:
    """Whether a problem, given in words, is about results that are left open for these inputs."""
    values = _values(graph, inputs)
    is_open = any(
        rule(node, values) for node in graph.nodes for rule in (_divides_by_zero, _guards_scores, _hides_large)
    )
    is_near_limit = any(map(_is_huge, values.values()))

    def is_excused(problem: str) -> bool:
        return problem.startswith("output ") and (is_open or (is_near_limit and _IS_LOST.match(problem) is not None))

    return is_excused


def _values(graph: Graph, inputs: Sequence[Any]) -> dict[Value, Any]:
    values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    sizes: dict[str, int] = {}
    bind_inputs(graph, inputs, sizes)
    for node in graph.nodes:
        operands = [values[value] if value is not None else None for value in node.inputs]
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate_node(node, operands, sizes), strict=True))
    return values


def _divides_by_zero(node: Node, values: Mapping[Value, Any]) -> bool:
    if node.op.name not in ("div", "mod", "fmod"):
        return False
    divisor = values[node.operands[1]]
    return divisor.dtype.kind in "iu" and not divisor.all()


def _guards_scores(node: Node, values: Mapping[Value, Any]) -> bool:
    weights = node.operands[0].producer if node.op.name == "is_nan" else None
    if weights is not None and weights.op.name == "cast":
        weights = weights.operands[0].producer
    if weights is None or weights.op.name != "softmax":
        return False
    return not bool((values[weights.operands[0]].astype(np.float64) < np.inf).all())


def _hides_large(node: Node, values: Mapping[Value, Any]) -> bool:
    if node.op.name != "where" or not node.output.tensor.dtype.is_float:
        return False
    first, second = (values[operand].astype(np.float64) for operand in node.operands[1:])
    return any(
        -np.inf < np.max(fill, initial=-np.inf) <= HIDDEN and not (np.abs(x) < SWALLOWED).all()
        for fill, x in ((first, second), (second, first))
    )


def _is_huge(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.hasobject or not DType.of(value.dtype).is_float:
        return False
    largest = float(ml_dtypes.finfo(value.dtype).max)  # type: ignore[no-untyped-call]
    numbers = np.abs(value.astype(np.float64))
    return bool((numbers[np.isfinite(numbers)] > largest / ROOM).any())
