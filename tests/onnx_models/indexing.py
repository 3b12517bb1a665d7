"""Nodes that read or write at indices."""

import math

import numpy as np

from tests.onnx_models.draw import Draw, Unrunnable, Value
from tests.onnx_models.registry import recipe


def indices(d: Draw, shape: tuple[int, ...], size: int, element: str | None = None) -> Value:
    """Indices into an axis, from the end too."""
    if size == 0 and math.prod(shape):
        raise Unrunnable("no element to index")
    low = -size if d.opset >= 11 and d.chance(0.4) else 0
    return d.new(element or d.pick("int64", "int64", "int32"), shape, low, max(size - 1, 0))


@recipe("Gather")
def gather(d: Draw, op: str) -> None:
    """Slices at indices of any rank."""
    x = d.some(op, "T", 1, 4)
    axis = d.axis(x.rank, negative=d.opset >= 11)
    d.node(op, [x, indices(d, d.shape(0, 2), x.shape[axis])], d.attributes(op, axis=axis) if axis else {})


@recipe("GatherElements")
def gather_elements(d: Draw, op: str) -> None:
    """An element for each index."""
    x = d.some(op, "T", 1, 4)
    axis = d.axis(x.rank)
    shape = [d.whole(0 if d.chance(0.1) else min(1, size), size) for size in x.shape]
    shape[axis] = d.size()
    d.node(op, [x, indices(d, tuple(shape), x.shape[axis])], {"axis": axis} if axis or d.chance(0.5) else {})


@recipe("GatherND")
def gather_nd(d: Draw, op: str) -> None:
    """Slices at tuples of indices."""
    x = d.some(op, "T", 1, 4, least=1)
    batch = d.whole(0, x.rank - 1) if d.opset >= 12 and d.chance(0.4) else 0
    depth = d.whole(1, x.rank - batch)
    lead = (*x.shape[:batch], *d.shape(0 if batch else 1, 2))
    columns = [indices(d, lead, x.shape[batch + i], "int64").content for i in range(depth)]
    given = d.given(np.stack(columns, -1) if columns else np.zeros((*lead, 0), np.int64), "int64")
    d.node(op, [x, given], d.attributes(op, batch_dims=batch) if batch == 0 else {"batch_dims": batch})


@recipe("ScatterElements", "Scatter")
def scatter_elements(d: Draw, op: str) -> None:
    """Updates at indices; without a reduction each place once."""
    x = d.some(op, "T", 1, 3, least=1)
    axis = d.axis(x.rank, negative=d.opset >= 11)
    reductions = ["none"]
    if d.opset >= 16 and x.element not in ("bool", "string"):
        reductions += ["add", "mul"] + (["max", "min"] if d.opset >= 18 else [])
    reduction = d.pick(*reductions)
    shape = [d.whole(1, size) for size in x.shape]
    orders = [d.rng.sample(range(x.shape[axis]), shape[axis]) for _ in range(math.prod(shape) // shape[axis])]
    places = np.array(orders, np.int64).reshape(*(s for i, s in enumerate(shape) if i != axis % x.rank), shape[axis])
    places = np.moveaxis(places, -1, axis)
    if reduction != "none":
        places = d.array("int64", shape, 0, x.shape[axis] - 1)
    if d.opset >= 11 and d.chance(0.3):
        places = np.where(d.array("bool", shape), places, places - x.shape[axis])
    element = d.pick("int64", "int32")
    attributes = {**({"axis": axis} if axis or d.chance(0.5) else {}), **d.attributes(op, reduction=reduction)}
    if reduction == "none" or "reduction" in attributes:
        d.node(op, [x, d.given(places, element), d.like(x.element, shape)], attributes)


@recipe("ScatterND")
def scatter_nd(d: Draw, op: str) -> None:
    """Slices written at tuples of indices."""
    x = d.some(op, "T", 1, 3, least=1)
    depth = d.whole(1, x.rank)
    places = list(np.ndindex(*x.shape[:depth]))
    count = d.whole(0 if d.chance(0.1) else 1, len(places))
    reductions = ["none"]
    if d.opset >= 16 and x.element not in ("bool", "string"):
        reductions += ["add", "mul"] + (["max", "min"] if d.opset >= 18 else [])
    reduction = d.pick(*reductions)
    chosen = d.rng.sample(places, count) if reduction == "none" else d.rng.choices(places, k=count)
    given = np.array(chosen, np.int64).reshape(count, depth)
    if d.chance(0.3):
        given = np.where(d.array("bool", given.shape), given, given - np.array(x.shape[:depth]))
    updates = d.like(x.element, (count, *x.shape[depth:]))
    d.node(op, [x, d.given(given, "int64"), updates], {"reduction": reduction} if reduction != "none" else {})


@recipe("TensorScatter")
def cache_update(d: Draw, op: str) -> None:
    """An update written into a cache at the place of each batch row."""
    b, h, longest, size, length = d.whole(1, 3), d.whole(1, 2), d.whole(2, 5), d.whole(1, 3), 1
    length = d.whole(1, longest)
    has_heads = d.chance(0.6)
    cache = d.like(d.element(op, "T"), (b, h, longest, size) if has_heads else (b, longest, size))
    update = d.like(cache.element, (b, h, length, size) if has_heads else (b, length, size))
    mode = d.pick("linear", "circular")
    last = longest - length if mode == "linear" else longest - 1
    given = d.new("int64", (b,), 0, last) if d.chance(0.7) else None
    d.node(op, [cache, update, given], {"mode": mode, "axis": -2 if d.chance(0.6) else cache.rank - 2})


@recipe("NonMaxSuppression")
def suppression(d: Draw, op: str) -> None:
    """Boxes that overlap less than a share."""
    batch, count, classes = d.whole(1, 2), d.whole(1, 5), d.whole(1, 2)
    center = d.whole(0, 1)
    corners = d.array("float", (batch, count, 4), 0, 4)
    scores = d.new("float", (batch, classes, count), 0, 1)
    most = d.ints(d.whole(0, 3) if d.chance(0.5) else [d.whole(1, 3)]) if d.chance(0.8) else None
    overlap = d.given(np.float32(d.real(0, 1)), "float", "settled") if d.chance(0.7) else None
    least = d.given(np.float32(d.real(0, 1)), "float", "settled") if d.chance(0.6) else None
    d.node(op, [d.given(corners, "float"), scores, most, overlap, least], d.attributes(op, center_point_box=center))
