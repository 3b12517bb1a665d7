"""Sequences that never need to exist: an element of a split, or of a construction, taken at a known position.

The operators themselves stay foreign; where all their readers are resolved here, nothing is left of them.
"""

from collections.abc import Callable

from ....ir.dims import Dim
from ....ir.graph import Node, Value
from ....ir.ops import native
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext, NotNative


def import_sequence_at(ctx: ImportContext) -> Value:
    """SequenceAt of SplitToSequence with known sizes, or of SequenceConstruct."""
    producer, position = ctx.input(0).producer, ctx.dim(1)
    if producer is None or not isinstance(position, int):
        raise NotNative("an element that is known only at run time")
    if producer.op.name == "onnx.SequenceConstruct":
        return _element(producer.operands, position)
    if producer.op.name != "onnx.SplitToSequence":
        raise NotNative(f"an element of what {producer.op.name} gives")
    return _part(ctx, producer, position)


def _element(elements: tuple[Value, ...], position: int) -> Value:
    if not -len(elements) <= position < len(elements):
        raise NotNative(f"element {position} of {len(elements)}")  # the foreign operator says so when it runs
    return elements[position]


def _part(ctx: ImportContext, splitting: Node, position: int) -> Value:
    x = splitting.operands[0]
    if x.tensor.shape is None:
        raise NotNative("a split of a tensor of unknown rank")
    axis = int(splitting.attrs.get("axis", 0)) % max(len(x.shape), 1)
    sizes = _sizes(ctx, splitting, x.shape[axis])
    part = _element(_split(ctx, x, axis, sizes), position)
    keeps_axis = len(splitting.operands) > 1 or splitting.attrs.get("keepdims", 1)
    return part if keeps_axis else ctx.op("squeeze", part, axes=(axis,))


def _sizes(ctx: ImportContext, splitting: Node, whole: Dim) -> tuple[int, ...]:
    """The sizes of the parts: given one by one, or one for all but the last, or 1 where nothing is given."""
    if len(splitting.operands) > 1 and splitting.operands[1].tensor.rank == 1:
        given = ctx.shape_values.as_dims(splitting.operands[1]) or ()
        sizes = tuple(size for size in given if isinstance(size, int))
        if not sizes or len(sizes) != len(given):
            raise NotNative("a split with sizes that are known only at run time")
        return sizes
    size = ctx.shape_values.as_dim(splitting.operands[1]) if len(splitting.operands) > 1 else 1
    if not isinstance(size, int) or not isinstance(whole, int) or size < 1:
        raise NotNative("a split into an unknown number of parts")
    return tuple(min(size, whole - start) for start in range(0, whole, size))


def _split(ctx: ImportContext, x: Value, axis: int, sizes: tuple[int, ...]) -> tuple[Value, ...]:
    """The parts of `x`; a split that another element was taken from serves again."""
    for user in x.users:
        if user.op is native("split") and user.attrs["axis"] == axis and user.attrs["sizes"] == sizes:
            return user.outputs
    return ctx.ops("split", x, axis=axis, sizes=sizes)


def import_concat_from_sequence(ctx: ImportContext) -> Value:
    """ConcatFromSequence of SequenceConstruct: a concatenation, of operands with a new axis where one is asked for."""
    producer = ctx.input(0).producer
    if producer is None or producer.op.name != "onnx.SequenceConstruct":
        raise NotNative("a sequence that is not made in place")
    elements, axis = producer.operands, int(ctx.attr("axis"))
    if ctx.attr("new_axis", 0):
        elements = tuple(ctx.op("unsqueeze", value, axes=(axis,)) for value in elements)
    return ctx.op("concat", *elements, axis=axis)


IMPORTS = {"SequenceAt": import_sequence_at, "ConcatFromSequence": import_concat_from_sequence}

EXPORTS: dict[str, Callable[[ExportContext, Node], None]] = {}
