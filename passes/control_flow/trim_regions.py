"""Regions without what they need not be given: captured values that no body reads, results that nobody reads.

Carried values stay, for iterations may need them to compute one another.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from ...ir.attrs import AttrValue
from ...ir.binding import mentioned
from ...ir.graph import Graph, Node, Value
from ...ir.ops.regions import attribute_symbols
from ..framework.rewriter import Rewriter

Item = TypeVar("Item")


class _Layout(NamedTuple):
    """Where a node's captured operands and droppable results begin, and how much later its bodies count them."""

    captured: int
    results: int
    input_shift: int
    output_shift: int


_LAYOUTS: Mapping[str, Callable[[Node], _Layout]] = MappingProxyType(
    {
        "if": lambda node: _Layout(1, 0, -1, 0),
        "loop": lambda node: _Layout(2 + int(node.attrs["carried"]), int(node.attrs["carried"]), 0, 1),
        "scan": lambda node: _Layout(
            int(node.attrs["states"]) + int(node.attrs["scan_inputs"]), int(node.attrs["states"]), 0, 0
        ),
    }
)
_PER_RESULT = ("output_axes", "output_reverse")


def trim(node: Node, rewriter: Rewriter) -> None:
    """Replaces a node with regions by one without the operands and results that are not needed, if there are any."""
    if node.op.name not in _LAYOUTS:
        return
    layout = _LAYOUTS[node.op.name](node)
    unread = {index for index in range(layout.results, len(node.outputs)) if not node.outputs[index].has_uses}
    outputs = {index + layout.output_shift for index in unread}
    unused = _unused_operands(node, layout, outputs, mentioned(value.type for value in rewriter.graph.inputs))
    if not (unread or unused) or not rewriter.may_rewrite("trim", node):
        return
    inputs = {index + layout.input_shift for index in unused}
    changed: dict[str, AttrValue] = {
        name: _trimmed(body, inputs, outputs, rewriter.graph) for name, body in node.regions.items()
    }
    dropped = {index - layout.results for index in unread}
    changed.update({name: _without(node.attrs[name], dropped) for name in _PER_RESULT if name in node.attrs})
    kept = [value for index, value in enumerate(node.outputs) if index not in unread]
    operands = _without(node.inputs, unused)
    made = rewriter.node(node.op, operands, {**node.attrs, **changed}, [value.type for value in kept])
    stands_for = dict(zip(kept, made.outputs, strict=True))
    rewriter.replace(node, *(stands_for.get(value) for value in node.outputs))


def _unused_operands(node: Node, layout: _Layout, dropped: set[int], bound: frozenset[str]) -> set[int]:
    """The captured operands that no body reads for anything but outputs that are `dropped`, nor for their sizes."""
    bodies = tuple(node.regions.values())
    candidates = [
        index
        for index in range(layout.captured, len(node.inputs))
        if all(_is_unused(body, body.inputs[index + layout.input_shift], dropped) for body in bodies)
    ]
    if not candidates:
        return set()
    operands = [value for index, value in enumerate(node.inputs) if value is not None and index not in candidates]
    known = bound | mentioned(value.type for value in operands)
    needed = mentioned(value.type for value in node.outputs)
    for body in bodies:
        needed |= _mentioned_in(body, {body.inputs[index + layout.input_shift] for index in candidates})
    return {index for index in candidates if not _known_by(node, index, layout, known) & needed}


def _known_by(node: Node, index: int, layout: _Layout, known: frozenset[str]) -> frozenset[str]:
    """The symbols that this operand alone tells the bodies."""
    operand = node.inputs[index]
    given = mentioned([operand.type]) if operand is not None else frozenset[str]()
    declared = mentioned(body.inputs[index + layout.input_shift].type for body in node.regions.values())
    return (given | declared) - (given & known)


def _mentioned_in(body: Graph, ignored: set[Value]) -> frozenset[str]:
    names = mentioned(value.type for value in body.values if value not in ignored)
    return names.union(*(attribute_symbols(node) for node in body.nodes))


def _is_unused(body: Graph, value: Value, dropped: set[int]) -> bool:
    return all(use.user is body and use.index in dropped for use in value.uses)


def _trimmed(body: Graph, inputs: set[int], outputs: set[int], graph: Graph) -> Graph:
    copy = body.clone_with_map(graph.symbols)[0]
    copy.set_outputs(_without(copy.outputs, outputs), _without(copy.output_names, outputs))
    for value in [copy.inputs[index] for index in sorted(inputs)]:
        copy.remove_input(value)
    return copy


def _without(items: Sequence[Item], indices: set[int]) -> tuple[Item, ...]:
    return tuple(item for index, item in enumerate(items) if index not in indices)
