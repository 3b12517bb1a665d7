"""Foreign operators that are native where the sizes of their operands are known: they are read again with these.

An operator on a tensor of unknown rank comes in as a foreign op, though it has an import rule, and so does one whose
operand says how large the result is. When it runs, the sizes are there, and the rule says what it means.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ....ir.analysis.contents import constant_of
from ....ir.attrs import Attrs
from ....ir.constant import Constant, is_array
from ....ir.errors import ExecutionError, ModelError, ShapeError, TypeRuleError, UnsupportedError
from ....ir.evaluate import evaluate_graph
from ....ir.foreign import register_meaning, shaping_indices
from ....ir.graph import Graph, Node, Value
from ....ir.op import Op, Trait
from ....ir.types import TensorType, Type
from ..foreign.meaning import alone, run_foreign
from ..ops import IMPORTS
from .importer import import_model

_MOST_ELEMENTS = 4096
"""Of a constant that a rule is shown; a larger one is an operand like any other."""


def run_sized(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of a foreign node: by its import rule if that only had to know sizes, else as `run_foreign`.

    Raises as `run_foreign` does.
    """
    types = [_sized(value, operand) for value, operand in zip(node.inputs, operands, strict=True)]
    if not _may_be_native(node, types):
        return run_foreign(node, operands)
    shaping = shaping_indices(node.op)
    contents = tuple(
        Constant(np.array(operand)) if place in shaping and value is not None else _content(value)
        for place, (value, operand) in enumerate(zip(node.inputs, operands, strict=True))
    )
    graph = _native_graph(node.op, node.attrs, tuple(types), tuple(value.type for value in node.outputs), contents)
    if graph is None:
        return run_foreign(node, operands)
    pairs = zip(operands, types, contents, strict=True)
    return evaluate_graph(graph, [operand for operand, ty, content in pairs if ty is not None and content is None])


def _sized(value: Value | None, operand: Any) -> Type | None:
    """The type of an operand with its sizes."""
    if value is None:
        return None
    if not isinstance(value.type, TensorType) or not is_array(operand):
        return value.type
    return value.type.with_shape(np.shape(operand))


def _content(value: Value | None) -> Constant | None:
    content = constant_of(value)
    return content if content is not None and content.size <= _MOST_ELEMENTS else None


def _may_be_native(node: Node, types: Sequence[Type | None]) -> bool:
    """Whether the operator has a rule, which was not given all sizes before, nor what says them."""
    known = (value.type if value is not None else None for value in node.inputs)
    return (
        node.op.name.removeprefix("onnx.") in IMPORTS
        and not node.regions
        and all(isinstance(value.type, TensorType) for value in node.outputs)
        and (any(ty != before for ty, before in zip(types, known, strict=True)) or shaping_indices(node.op) != ())
    )


@lru_cache(maxsize=256)
def _native_graph(
    op: Op,
    attrs: Attrs,
    inputs: tuple[Type | None, ...],
    outputs: tuple[Type, ...],
    contents: tuple[Constant | None, ...],
) -> Graph | None:
    """The node in native ops; None if it has no such form."""
    try:
        graph = import_model(alone(op, attrs, inputs, outputs, contents=contents)).graph
    except UnsupportedError:
        return None
    except (ModelError, ShapeError, TypeRuleError) as error:
        raise ExecutionError(error.message) from error
    return None if any(node.op.has(Trait.FOREIGN) for node in graph.nodes) else graph


for _domain in ("onnx", "ai.onnx", "com.microsoft"):
    register_meaning(_domain, run_sized)
