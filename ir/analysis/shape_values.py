"""The contents of small tensors, as dims where they are sizes: what makes the shape arithmetic of a model visible.

A model computes shapes with nodes: `shape`, `gather`, `mul`, `concat`. `ShapeValues` follows such chains, so that the
operand of a reshape is known to be `[B, 12*T, 64]` before anything runs. What depends on constants alone is computed by
the ops' own meanings, in whatever dtype; what depends on symbolic sizes by their `symbolic` meanings.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..attrs import AttrKind
from ..constant import Array
from ..dims import Dim, SymDim, dim_min, lower_bound, product, upper_bound
from ..errors import CapgraphError
from ..graph import Node, Value
from ..op import Trait
from ..ops import bounded
from ..ops.bounded import PREFIX
from ..ops.known import CONSTANT
from ..ops.rules import normal_axis
from ..types import DType, Kind, TensorType

MAX_ELEMENTS = 64
"""Larger tensors are data, not shapes: nothing is known of them."""

_ORDINARY = {32: 16, 64: 128}
"""The sizes, by the bits of an integer, up to which shape arithmetic must not wrap to be taken for arithmetic on sizes.

Products of sizes are counted in 32 bits by models whose tensors have fewer elements than that, with few large sizes
among them; numbers that wrap for small sizes already are hashes or masks."""
_LIMITS = {32: 1 << 30, 64: 1 << 56}
"""How far from 0 it may get on the way."""

_INTEGERS = (Kind.INT, Kind.UINT, Kind.BOOL)
_FOLLOWED = (*_INTEGERS, Kind.FLOAT)
_UNKNOWABLE = (CapgraphError, ValueError, TypeError, IndexError, ArithmeticError, KeyError, RuntimeError)
"""What a meaning may raise: an open dim has no truth value, one can grow past its limits, and a division by zero or an
index out of range is reported when the node runs, if it ever does."""


class ShapeValues:
    """The contents of values, computed when asked for and remembered; works on finished graphs and on ones being built.

    What was once answered stays: use a new one after binding symbols or after an edit that changed what a value means.
    """

    def __init__(self) -> None:
        # Plain content has the value's own dtype; content with symbols in it is an object array of dims.
        self._contents: dict[Value, Array | None] = {}
        self._answers: dict[Value, Array | None] = {}

    def of(self, value: Value) -> Array | None:
        """The content of `value`: a read-only object array of int and SymDim in its shape, None when it is not known.

        Known are at most the values of integer or bool tensors of static shape with up to 64 elements.
        """
        if value in self._answers:
            return self._answers[value]
        if not _is_followed(value, _INTEGERS):
            return None
        answer = _as_dims(self._content(value))
        self._answers[value] = answer
        return answer

    def as_dims(self, value: Value) -> tuple[Dim, ...] | None:
        """The content of a tensor of rank 1 as a tuple of dims; None when it is not known or of another rank."""
        found = self.of(value)
        return None if found is None or found.ndim != 1 else tuple(found.tolist())

    def as_dim(self, value: Value) -> Dim | None:
        """The content of a tensor with one element as a dim; None when it is not known or has another size."""
        found = self.of(value)
        if found is None or found.size != 1:
            return None
        dim: Dim = found.item()
        return dim

    def assume(self, value: Value, like: Value) -> None:
        """Takes the content of `value` (the input of a region, say) to be that of `like`, a value of another graph."""
        if not _is_followed(value) or not _is_followed(like):
            return
        known = self._content(like)
        if known is not None:
            self._contents[value] = known
            self._answers.pop(value, None)

    def _content(self, value: Value) -> Array | None:
        """The content of a followed value, after those of all that it depends on."""
        pending = [value]
        while pending:
            current = pending[-1]
            missing = self._unvisited_operands(current)
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if current not in self._contents:
                self._contents[current] = self._computed(current)
        return self._contents[value]

    def _unvisited_operands(self, value: Value) -> list[Value]:
        node = value.producer
        if value in self._contents or node is None:
            return []
        followed = [operand for operand in node.operands if _is_followed(operand)]
        if node.op.symbolic is None and len(followed) < len(node.operands):
            return []
        return [operand for operand in followed if operand not in self._contents]

    def _computed(self, value: Value) -> Array | None:
        node = value.producer
        if node is None:
            return None
        contents = [self._contents.get(operand) if operand is not None else None for operand in node.inputs]
        try:
            found = _result(node, contents, value.index)
        except _UNKNOWABLE:
            return None
        return None if found is None else _checked(found, value)


def _result(node: Node, contents: list[Array | None], index: int) -> Any:
    """Result `index` of a node by its meaning, or by its symbolic one; None when neither can tell."""
    if _is_evaluable(node, contents):
        with np.errstate(all="ignore"):
            results: Any = node.op.meaning(*contents, **node.attrs.as_kwargs())
    elif node.op.symbolic is not None and isinstance(node.outputs[index].type, TensorType):
        types = [operand.type if operand is not None else None for operand in node.inputs]
        results = node.op.symbolic(types, [_as_dims(content) for content in contents], node.attrs)
    else:
        return None
    if isinstance(results, tuple):
        return results[index]  # pyright: ignore[reportUnknownVariableType]
    return results if index == 0 else None


def _is_evaluable(node: Node, contents: list[Array | None]) -> bool:
    """Whether the meaning can be asked: a pure op without open sizes, all of whose operands have plain content."""
    if not node.op.is_pure or node.op.has(Trait.CONTROL_FLOW):
        return False
    for operand, content in zip(node.inputs, contents, strict=True):
        if operand is not None and (content is None or content.dtype.hasobject):
            return False
    return not any(_is_open(node.attrs[name], node.op.attrs[name].kind) for name in node.op.bound_attrs)


def _is_open(value: Any, kind: AttrKind) -> bool:
    if kind is AttrKind.DIMS:
        return any(isinstance(dim, SymDim) for dim in value)
    return kind is AttrKind.GRAPH or isinstance(value, SymDim)


def _is_followed(value: Value, kinds: tuple[Kind, ...] = _FOLLOWED) -> bool:
    ty = value.type
    if not isinstance(ty, TensorType) or ty.dtype.kind not in kinds or ty.shape is None:
        return False
    count = 1
    for dim in ty.shape:
        if not isinstance(dim, int):
            return False
        count *= dim
    return count <= MAX_ELEMENTS


def _as_dims(content: Array | None) -> Array | None:
    """Content as an object array of dims, None for floats."""
    if content is None or content.dtype.hasobject:
        return content
    if DType.of(content.dtype).kind not in _INTEGERS:
        return None
    return _read_only(content.astype(object))


def _checked(found: Any, value: Value) -> Array | None:
    """`found` as read-only content; None unless it has the shape and can be of the dtype of `value`."""
    dtype = value.tensor.dtype
    content = np.asarray(found)
    if content.shape != value.shape:
        return None
    if not content.dtype.hasobject:
        return _read_only(content) if DType.of(content.dtype) is dtype else None
    elements: list[Any] = content.reshape(-1).tolist()
    if not all(_fits(element, dtype) for element in elements):
        return None
    is_plain = not any(isinstance(element, SymDim) for element in elements)
    return _read_only(content.astype(dtype.numpy) if is_plain else content)


def _fits(element: Any, dtype: DType) -> bool:
    """Whether a dim can be an element: an integer must lie in range, a symbolic one where its sizes are ordinary."""
    if isinstance(element, SymDim):
        return dtype.is_integer and _stays_small(element, dtype)
    if dtype is DType.BOOL or isinstance(element, bool):
        return dtype is DType.BOOL and isinstance(element, bool)
    least = 0 if dtype.kind is Kind.UINT else -(1 << (dtype.bits - 1))
    return isinstance(element, int) and least <= element < least + (1 << dtype.bits)


def _stays_small(dim: SymDim, dtype: DType) -> bool:
    """Whether a dim stays far within the range of a dtype for all sizes of its symbols up to `_ORDINARY`."""
    if dtype.bits not in _ORDINARY:
        return False
    ranges = dict.fromkeys(dim.symbols, (0, _ORDINARY[dtype.bits]))
    low, high, limit = lower_bound(dim, ranges), upper_bound(dim, ranges), _LIMITS[dtype.bits]
    return (
        low is not None
        and high is not None
        and max(low, high, -low) <= limit
        and (low >= 0 or dtype.kind is not Kind.UINT)
    )


def _read_only(content: Array) -> Array:
    view = content.view()
    view.flags.writeable = False
    return view


def most_found(node: Node) -> Dim:
    """How many entries a node of an op in `DATA_SIZED` gives at most, by its operands' sizes and constants."""
    return DATA_SIZED[node.op.name](node)


def _most_compressed(node: Node) -> Dim:
    x, condition = node.operands
    axis = node.attrs["axis"]
    size = x.tensor.size if axis is None else x.shape[normal_axis(axis, x.tensor.rank)]
    return dim_min(size, condition.shape[0])


def _most_unique(node: Node) -> Dim:
    x, axis = node.operands[0], node.attrs["axis"]
    return x.tensor.size if axis is None else x.shape[normal_axis(axis, x.tensor.rank)]


def _most_selected(node: Node) -> Dim:
    """Each class of each sample keeps every box, or as many as a constant limit says."""
    scores, limit = node.operands[1], node.inputs[2]
    batch, classes, boxes = scores.shape
    if limit is None:
        return 0
    producer = limit.producer
    if producer is None or producer.op is not CONSTANT:
        return product((batch, classes, boxes))
    return product((batch, classes, dim_min(boxes, max(int(producer.attrs["value"].array.item()), 0))))


DATA_SIZED: Mapping[str, Callable[[Node], Dim]] = {
    "compress": _most_compressed,
    "non_max_suppression": _most_selected,
    "non_zero": lambda node: node.operands[0].tensor.size,
    "unique": _most_unique,
}
"""The ops, and the rule of each."""

assert [f"{PREFIX}{name}" for name in sorted(DATA_SIZED)] == sorted(op.name for op in bounded.OPS)
