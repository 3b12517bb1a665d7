"""Nodes that move elements: shapes, axes, parts, paddings."""

import math

import numpy as np

from tests.onnx_models.draw import ELEMENTS, Draw, Unrunnable, Value, number_of, tensor_proto
from tests.onnx_models.registry import recipe


def sizes_of(d: Draw, content: list[int]) -> Value:
    """Sizes as an operand: a constant, or taken from the shape of another value where one has them."""
    if d.chance(0.35):
        known = [v for v in d.visible() if v.kind == "tensor" and list(v.shape) == content and v.rank]
        if known:
            return d.node("Shape", [d.pick(*known)])[0]
    if len(content) > 1 and d.chance(0.2):
        parts = [_one_size(d, size) for size in content]
        return d.node("Concat", parts, {"axis": 0})[0]
    return d.ints(content)


def _one_size(d: Draw, size: int) -> Value:
    """One size in a vector, by way of a Shape and a Gather where a value has it."""
    known = [(v, axis) for v in d.visible() if v.kind == "tensor" for axis, each in enumerate(v.shape) if each == size]
    if not known or d.chance(0.3):
        return d.ints([size], role="fixed")
    value, axis = d.pick(*known)
    return d.node("Gather", [d.node("Shape", [value])[0], d.ints([axis], role="fixed")], {"axis": 0})[0]


@recipe("Reshape")
def reshape(d: Draw, op: str) -> None:
    """To sizes with the same product, with -1 and 0."""
    x = d.some(op, d.schema(op).inputs[0].type_str, 0, 4)
    target, rest = [], math.prod(x.shape)
    for _ in range(d.whole(0, 3)):
        divisors = [n for n in range(1, rest + 1) if rest % n == 0] if rest else [0, 1, 2]
        part = d.pick(*divisors)
        target.append(part)
        rest = rest // part if part else rest
    if math.prod(target) != math.prod(x.shape):
        target.append(rest)
    if 0 not in target and target and d.chance(0.5):
        target[d.whole(0, len(target) - 1)] = -1
    elif d.chance(0.4):
        target = [
            0 if i < x.rank and size == x.shape[i] and size and d.chance(0.5) else size for i, size in enumerate(target)
        ]
    attributes = d.attributes(op, allowzero=1 if 0 in x.shape and -1 not in target else 0)
    d.node(op, [x, sizes_of(d, target)], attributes)


@recipe("Expand")
def expand(d: Draw, op: str) -> None:
    """To sizes that broadcast with the operand's."""
    x = d.some(op, "T", 0, 4)
    d.node(op, [x, sizes_of(d, list(d.broadcast(x.shape)) if d.chance(0.5) else _wider(d, x.shape))])


def _wider(d: Draw, shape: tuple[int, ...]) -> list[int]:
    lead = [d.size() for _ in range(d.whole(0, 2))] if len(shape) < 4 else []
    return [*lead, *(d.size() if size == 1 else size for size in shape)]


@recipe("Tile")
def tile(d: Draw, op: str) -> None:
    """Repeated along axes."""
    x = d.some(op, "T", 1, 4)
    d.node(op, [x, d.ints([d.pick(0, 1, 1, 1, 2, 2, 3) for _ in x.shape])])


@recipe("Transpose")
def transpose(d: Draw, op: str) -> None:
    """Axes in another order."""
    x = d.some(op, "T", 0, 5)
    perm = list(range(x.rank))
    d.rng.shuffle(perm)
    d.node(op, [x], {"perm": perm} if perm and d.chance(0.8) else {})


@recipe("Flatten")
def flatten(d: Draw, op: str) -> None:
    """To a matrix."""
    x = d.some(op, "T", 1, 4)
    axis = d.whole(-x.rank if d.opset >= 11 else 0, x.rank)
    d.node(op, [x], d.attributes(op, axis=axis))


@recipe("Squeeze")
def squeeze(d: Draw, op: str) -> None:
    """Without some axes of size 1, or all."""
    shape = [1 if d.chance(0.5) else size for size in d.shape(0, 5)]
    known = [v for v in d.visible() if v.kind == "tensor" and v.element in d.elements(op, "T") and 1 in v.shape]
    x = d.pick(*known) if known and d.chance(0.6) else d.new(d.element(op, "T"), shape)
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    chosen = d.rng.sample(ones, d.whole(1, len(ones))) if ones else []
    axes = [axis - x.rank if d.opset >= 11 and d.chance(0.3) else axis for axis in chosen]
    if not axes or d.chance(0.3):
        d.node(op, [x])
    elif d.opset < 13:
        d.node(op, [x], {"axes": axes})
    else:
        d.node(op, [x, d.ints(axes)])


@recipe("Unsqueeze")
def unsqueeze(d: Draw, op: str) -> None:
    """With axes of size 1."""
    x = d.some(op, "T", 0, 3)
    count = d.whole(1, 2)
    rank = x.rank + count
    axes = d.rng.sample(range(rank), count)
    axes = [axis - rank if d.opset >= 11 and d.chance(0.4) else axis for axis in axes]
    if d.opset < 13:
        d.node(op, [x], {"axes": axes})
    else:
        d.node(op, [x, d.ints(axes if count > 1 or d.chance(0.9) else axes[0])])


@recipe("Concat")
def concat(d: Draw, op: str) -> None:
    """Operands that differ along one axis."""
    x = d.some(op, "T", 1, 4)
    axis = d.axis(x.rank, negative=d.opset >= 11)
    others = []
    for _ in range(d.whole(0, 3)):
        shape = list(x.shape)
        shape[axis] = d.size() if d.chance(0.5) else shape[axis]
        others.append(d.like(x.element, shape))
    operands = [x, *others]
    d.rng.shuffle(operands)
    d.node(op, operands, {"axis": axis})


@recipe("Split")
def split(d: Draw, op: str) -> None:
    """Parts of equal or given sizes."""
    x = d.some(op, "T", 1, 4)
    axis = d.axis(x.rank, negative=d.opset >= 11)
    size, count = x.shape[axis], d.whole(1, 4)
    cuts = sorted(d.whole(0, size) for _ in range(count - 1))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    outputs = (True,) * count
    axis_given = {} if axis == 0 and d.chance(0.5) else {"axis": axis}
    is_equal = size % count == 0 and d.chance(0.5)
    if d.opset >= 18 and d.chance(0.5):
        d.node(op, [x], {**axis_given, "num_outputs": count}, outputs)
    elif is_equal and d.opset < 18:
        d.node(op, [x], axis_given, outputs)
    elif d.opset < 13:
        d.node(op, [x], {**axis_given, "split": parts}, outputs)
    else:
        d.node(op, [x, d.ints(parts)], axis_given, outputs)


@recipe("Slice")
def slice_(d: Draw, op: str) -> None:
    """Starts and ends beyond the ends too, steps backwards."""
    x = d.some(op, "T", 1, 4)
    axes = d.axes(x.rank, least=1, negative=d.opset >= 10)
    given = d.chance(0.7)
    if not given:
        axes = list(range(d.whole(1, x.rank)))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = x.shape[axis]
        step = d.pick(1, 1, 1, 2, 3, -1, -2) if d.opset >= 10 else 1
        beyond = (2**31 - 1, 2**63 - 1, size) if step > 0 else (-(2**31),)  # runtimes differ on the farther end
        first, last = d.whole(-size - 1, size + 1), d.pick(d.whole(-size - 1, size + 1), *beyond)
        starts.append(first)
        ends.append(last)
        steps.append(step)
    if d.opset < 10:
        d.node(op, [x], {"starts": starts, "ends": ends, **({"axes": axes} if given else {})})
        return
    element = d.pick("int64", "int64", "int32")
    if element == "int32":
        ends = [min(end, 2**31 - 1) for end in ends]
    has_steps = any(step != 1 for step in steps) or d.chance(0.4)
    operands = [
        d.ints(starts, element),
        d.ints(ends, element),
        d.ints(axes, element) if given else None,
        d.ints(steps, element) if has_steps else None,
    ]
    d.node(op, [x, *operands])


@recipe("Pad")
def pad(d: Draw, op: str) -> None:
    """Borders of all kinds, negative ones too."""
    x = d.some(op, "T", 1, 4)
    modes = ["constant", "constant", "reflect", "edge", *(["wrap"] if d.opset >= 19 else [])]
    mode = d.pick(*modes)
    axes = d.axes(x.rank, least=1) if d.opset >= 18 and d.chance(0.5) else list(range(x.rank))
    low = -1 if d.chance(0.2) else 0
    highest = [max(0, min(2, x.shape[a] - 1)) if mode == "reflect" else 2 for a in axes]
    pads = [d.whole(low, h) for h in (*highest, *highest)]
    attributes = d.attributes(op, mode=mode)
    if d.opset < 11:
        d.node(op, [x], {**attributes, "pads": pads, **d.attributes(op, value=d.real())})
        return
    value = d.given(d.array(x.element, ()), x.element) if d.chance(0.4) else None
    given = d.ints(axes, d.pick("int64", "int32")) if len(axes) != x.rank or (d.opset >= 18 and d.chance(0.2)) else None
    d.node(op, [x, d.ints(pads), value, given], attributes)


@recipe("DepthToSpace", "SpaceToDepth")
def blocks(d: Draw, op: str) -> None:
    """Blocks of pixels to channels and back."""
    block = d.whole(1, 3)
    n, c, h, w = d.whole(0 if d.chance(0.1) else 1, 2), d.whole(1, 2), d.whole(1, 3), d.whole(1, 3)
    shape = (n, c * block * block, h, w) if op == "DepthToSpace" else (n, c, h * block, w * block)
    d.node(op, [d.like(d.element(op, "T"), shape)], {"blocksize": block, **d.attributes(op, mode=d.pick("DCR", "CRD"))})


@recipe("Shape")
def shape_of(d: Draw, op: str) -> None:
    """Sizes, or some of them."""
    x = d.some(op, "T", 0, 4)
    d.node(op, [x], d.attributes(op, start=d.whole(-5, 5), end=d.whole(-5, 5)) if d.chance(0.6) else {})


@recipe("Size")
def size_of(d: Draw, op: str) -> None:
    """The number of elements."""
    d.node(op, [d.some(op, "T", 0, 4)])


@recipe("ConstantOfShape")
def filled(d: Draw, op: str) -> None:
    """One number everywhere."""
    shape = sizes_of(d, list(d.shape(0, 4)))
    element = d.element(op, "T2")
    proto = tensor_proto(d.array(element, (1,)), "", element)
    d.node(op, [shape], d.attributes(op, value=proto))


@recipe("CenterCropPad")
def centered(d: Draw, op: str) -> None:
    """Cut or padded about the middle."""
    x = d.some(op, "T", 1, 4)
    axes = d.axes(x.rank, least=1)
    given = d.chance(0.6)
    sizes = [d.whole(1, 5) for _ in (axes if given else x.shape)]
    d.node(op, [x, d.ints(sizes, d.pick("int64", "int32"))], {"axes": axes} if given else {})


@recipe("ReverseSequence")
def reversed_rows(d: Draw, op: str) -> None:
    """The first elements of each row backwards."""
    x = d.some(op, "T", 2, 4, least=1)
    batch = d.whole(0, 1)
    lengths = [d.whole(0 if d.chance(0.2) else 1, x.shape[1 - batch]) for _ in range(x.shape[batch])]
    d.node(op, [x, d.ints(lengths)], {"batch_axis": batch, "time_axis": 1 - batch})


@recipe("Compress")
def compressed(d: Draw, op: str) -> None:
    """Where a condition holds."""
    x = d.some(op, "T", 1, 4)
    axis = d.axis(x.rank) if d.chance(0.6) else None
    if axis is not None and d.opset < 11:
        axis %= x.rank
    size = x.content.size if axis is None else x.shape[axis]
    condition = d.new("bool", (max(0, size - (1 if d.chance(0.3) else 0)),))
    d.node(op, [x, condition], {} if axis is None else {"axis": axis})


@recipe("Col2Im")
def columns(d: Draw, op: str) -> None:
    """Windows summed into a picture."""
    rank = d.pick(1, 2, 2)
    block, picture = [d.whole(1, 3) for _ in range(rank)], [d.whole(3, 6) for _ in range(rank)]
    dilations = [d.whole(1, 2) for _ in range(rank)] if d.chance(0.3) else [1] * rank
    strides = [d.whole(1, 2) for _ in range(rank)]
    pads = [d.whole(0, 1) for _ in range(2 * rank)] if d.chance(0.4) else [0] * (2 * rank)
    counts = [
        (size + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i, size in enumerate(picture)
    ]
    if min(counts) < 1:
        raise Unrunnable("no windows")
    element = d.element(op, "T", ["float", "double", "int64", "float16"])
    x = d.like(element, (d.whole(1, 2), d.whole(1, 2) * math.prod(block), math.prod(counts)))
    attributes = {"dilations": dilations, "strides": strides, "pads": pads}
    d.node(op, [x, d.ints(picture), d.ints(block)], attributes)


@recipe("OneHot")
def one_hot(d: Draw, op: str) -> None:
    """Ones at indices."""
    index, depth = d.element(op, "T1", ["int64", "int32", "float"]), d.whole(1, 5)
    among = d.new(index, d.shape(0, 3), -depth if d.opset >= 11 else 0, depth - 1)
    if index == "float":
        among = d.given(np.round(among.content), "float")
    values = d.new(d.element(op, "T3"), (2,))
    kind = d.pick("int64", "int64", "float", "int32")
    given = d.given(np.asarray(depth if d.chance(0.6) else [depth], ELEMENTS[kind]), kind, "settled")
    axis = d.whole(-among.rank - 1, among.rank) if d.opset >= 11 else d.whole(-1, among.rank)
    d.node(op, [among, given, values], d.attributes(op, axis=axis))


@recipe("Upsample")
def upsample(d: Draw, op: str) -> None:
    """By whole factors, as the old operator has it."""
    x = d.some(op, "T", 1, 4, least=1)
    scales = [float(d.pick(1, 1, 2, 3)) for _ in x.shape]
    mode = d.attributes(op, mode=d.pick("nearest", "nearest", "linear"))
    if "scales" in d.schema(op).attributes:
        d.node(op, [x], {**mode, "scales": scales})
    else:
        d.node(op, [x, d.given(scales, "float", "settled")], mode)


@recipe("RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "RandomNormal", "RandomUniform")
def drawn(d: Draw, op: str) -> None:
    """Random numbers."""
    attributes = d.attributes(
        op,
        seed=d.real(1, 9),
        mean=d.real(),
        scale=max(d.real(0.5, 2), 0.5),
        low=-0.5,
        high=d.pick(0.5, 2.0),
        shape=list(d.shape(0, 3)),
        sample_size=d.whole(1, 4),
        dtype=number_of(d.element(op, d.schema(op).outputs[0].type_str)),
    )
    if op in ("RandomNormal", "RandomUniform"):
        d.node(op, [], attributes)
    elif op == "Multinomial":
        d.node(op, [d.new(d.element(op, "T1"), (d.whole(1, 3), d.whole(1, 4)), 0, 1)], attributes)
    elif op == "Bernoulli":
        d.node(op, [d.new(d.element(op, "T1"), d.shape(), 0, 1)], attributes)
    else:
        d.node(op, [d.some(op, "T1")], attributes)
