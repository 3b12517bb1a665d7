"""Nodes that reduce along axes, order along one, or go along one."""

import numpy as np

from tests.onnx_models.draw import Draw
from tests.onnx_models.registry import recipe


@recipe(
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
    *("ReduceSum", "ReduceSumSquare"),
)
def reduction(d: Draw, op: str) -> None:
    """Axes as an attribute or an operand, given or not."""
    x = d.some(op, "T", 0, 5)
    if op == "ReduceLogSum" and d.chance(0.8):
        x = d.new(x.element, x.shape, 0, 4)
    axes = d.axes(x.rank) if x.rank else []
    attributes = d.attributes(op, keepdims=d.whole(0, 1), noop_with_empty_axes=d.whole(0, 1))
    if "axes" in d.schema(op).attributes:
        d.node(op, [x], {**attributes, **({"axes": axes} if axes else {})})
        return
    given = d.ints(axes) if axes or d.chance(0.4) else None
    d.node(op, [x, given], attributes)


@recipe("ArgMax", "ArgMin")
def place(d: Draw, op: str) -> None:
    """The place of an extreme."""
    x = d.some(op, "T", 1, 4, least=1)
    axis = d.axis(x.rank, negative=d.opset >= 11)
    d.node(op, [x], d.attributes(op, axis=axis, keepdims=d.whole(0, 1), select_last_index=d.whole(0, 1)))


@recipe("CumSum")
def running_sum(d: Draw, op: str) -> None:
    """A running sum."""
    x = d.some(op, "T", 1, 4)
    axis = d.ints(d.axis(x.rank), d.pick("int32", "int64"))
    d.node(op, [x, axis], d.attributes(op, exclusive=d.whole(0, 1), reverse=d.whole(0, 1)))


@recipe("TopK")
def largest(d: Draw, op: str) -> None:
    """The largest or smallest along an axis."""
    x = d.some(op, "T", 1, 4, least=1)
    axis = d.axis(x.rank, negative=d.opset >= 10)
    k = d.whole(1 if d.chance(0.9) else 0, x.shape[axis])
    attributes = d.attributes(op, axis=axis, largest=d.whole(0, 1), sorted=1)
    if d.schema(op).attributes.get("k"):
        d.node(op, [x], {**attributes, "k": k}, (True, True))
        return
    if "axis" not in attributes:
        k = min(k, x.shape[-1])
    d.node(op, [x, d.ints([k])], attributes, (True, True))


@recipe("Hardmax", "LogSoftmax", "Softmax")
def along_axis(d: Draw, op: str) -> None:
    """A softmax, before opset 13 of the operand as a matrix."""
    x = d.some(op, "T", 1, 4)
    d.node(op, [x], d.attributes(op, axis=d.axis(x.rank, negative=d.opset >= 11)))


@recipe("Unique")
def distinct(d: Draw, op: str) -> None:
    """Distinct elements or slices, in order or as they come."""
    x = d.some(op, "T", 0, 3)
    axis = d.axis(x.rank) if x.rank and d.chance(0.5) else None
    wanted = (True, *(d.chance(0.6) for _ in range(3)))
    attributes = d.attributes(op, sorted=d.whole(0, 1))
    d.node(op, [x], attributes if axis is None else {**attributes, "axis": axis}, wanted)


@recipe("NonZero")
def places(d: Draw, op: str) -> None:
    """Where elements are not 0."""
    d.node(op, [d.some(op, "T", 0, 4)])


@recipe("Det")
def determinant(d: Draw, op: str) -> None:
    """Of square matrices."""
    size = d.whole(1, 4)
    d.node(op, [d.like(d.element(op, "T"), (*d.shape(0, 2), size, size))])


@recipe("Trilu")
def triangle(d: Draw, op: str) -> None:
    """The upper or lower triangle."""
    x = d.some(op, "T", 2, 4)
    k = d.ints(d.whole(-3, 3)) if d.chance(0.6) else None
    d.node(op, [x, k], d.attributes(op, upper=d.whole(0, 1)))


@recipe("EyeLike")
def diagonal(d: Draw, op: str) -> None:
    """A diagonal of ones."""
    from tests.onnx_models.draw import number_of

    x = d.some(op, "T1", 2, 2)
    d.node(op, [x], d.attributes(op, dtype=number_of(d.element(op, "T2")), k=d.whole(-3, 3)))


@recipe("Range")
def steps(d: Draw, op: str) -> None:
    """Numbers from one to another."""
    element = d.element(op, "T")
    delta = d.pick(1, 2, -1, 3) if "int" in element else d.pick(1.0, 0.5, -0.75)
    start = d.whole(-3, 3)
    limit = start + int(delta * d.whole(-1, 6))
    d.node(op, [d.given(np.asarray(each), element, "settled") for each in (start, limit, delta)])
