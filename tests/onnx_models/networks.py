"""Nodes of networks: products, norms, losses, recurrent cells, attention."""

from typing import Any

import numpy as np

from tests.onnx_models.draw import Draw, Unrunnable, Value
from tests.onnx_models.registry import recipe


@recipe("MatMul")
def matmul(d: Draw, op: str) -> None:
    """Vectors, matrices, and stacks that broadcast."""
    x = d.some(op, "T", 1, 4)
    inner = x.shape[-1]
    if d.chance(0.2):
        shape: tuple[int, ...] = (inner,)
    else:
        lead = d.broadcast(x.shape[:-2]) if d.chance(0.6) else ()
        shape = (*lead, inner, d.size())
    d.node(op, [x, d.like(x.element, shape)])


@recipe("Gemm")
def gemm(d: Draw, op: str) -> None:
    """Both orientations, any addend."""
    x = d.some(op, "T", 2, 2)
    flip, turn = d.whole(0, 1), d.whole(0, 1)
    rows, inner = x.shape[::-1] if flip else x.shape
    columns = d.size()
    y = d.like(x.element, (columns, inner) if turn else (inner, columns))
    c = None
    if d.opset < 11 or d.chance(0.6):
        full = (rows, columns)
        shape = d.pick(full, (columns,), (1, columns), (rows, 1), (1,), (1, 1), *([()] if d.opset >= 7 else []))
        c = d.like(x.element, shape)
    numbers = d.attributes(op, alpha=d.real(), beta=d.real()) if "int" not in x.element else {}
    flips = {"transA": flip} if flip or d.chance(0.3) else {}
    d.node(op, [x, y, c], {**numbers, **flips, **({"transB": turn} if turn or d.chance(0.3) else {})})


@recipe("Einsum")
def einsum(d: Draw, op: str) -> None:
    """Letters drawn for each axis, an ellipsis now and then."""
    letters = "abcd"
    sizes = {letter: d.whole(1, 3) for letter in letters}
    element = d.element(op, "T", ["float", "double", "int64", "int32", "float16"])
    terms = ["".join(d.rng.sample(letters, d.whole(0, 3))) for _ in range(d.whole(1, 3))]
    if d.chance(0.1) and terms[0]:
        terms[0] += terms[0][0]
    dots = d.chance(0.2)
    batch = d.shape(1, 2, 1)
    operands = []
    for term in terms:
        lead = batch if dots else ()
        operands.append(d.like(element, (*lead, *(sizes[letter] for letter in term))))
    left = ",".join(("..." if dots else "") + term for term in terms)
    used = sorted(set("".join(terms)))
    if d.chance(0.3):
        equation = left
    else:
        equation = left + "->" + ("..." if dots else "") + "".join(d.rng.sample(used, d.whole(0, len(used))))
    if d.chance(0.2):
        equation = equation.replace(",", " , ").replace("->", " -> ")
    d.node(op, operands, {"equation": equation})


def _channels(d: Draw, op: str, param: str = "T") -> Value:
    return (
        d.some(op, param, 2, 4, least=1)
        if d.chance(0.5)
        else d.like(d.element(op, param), (2, d.whole(1, 4), *d.shape(0, 2, 1)))
    )


@recipe("BatchNormalization")
def batch_norm(d: Draw, op: str) -> None:
    """In inference, and in training from opset 14 on."""
    x = _channels(d, op)
    vector = (x.shape[1],)
    element = d.element(op, "T1", [x.element]) if d.opset >= 15 else x.element
    moments = [d.new(element, vector, 0.1, 2) if i == 3 else d.like(element, vector) for i in range(4)]
    attributes = d.attributes(op, epsilon=d.pick(1e-5, 1e-3), momentum=d.real(0, 1))
    if d.opset >= 14 and d.chance(0.25):
        d.node(op, [x, *moments], {**attributes, "training_mode": 1}, (True, True, True))
    else:
        d.node(op, [x, *moments], attributes)


@recipe("InstanceNormalization")
def instance_norm(d: Draw, op: str) -> None:
    """Over the spatial axes."""
    x = d.some(op, "T", 3, 4, least=1)
    d.node(op, [x, *(d.like(x.element, (x.shape[1],)) for _ in range(2))], d.attributes(op, epsilon=d.pick(1e-5, 1e-2)))


@recipe("GroupNormalization")
def group_norm(d: Draw, op: str) -> None:
    """Over groups of channels; scales of groups before opset 21."""
    groups, each = d.whole(1, 3), d.whole(1, 2)
    x = d.like(d.element(op, "T"), (d.whole(1, 2), groups * each, *d.shape(0, 2, 1)))
    vector = (groups * each,) if d.opset >= 21 else (groups,)
    attributes = {"num_groups": groups, **d.attributes(op, epsilon=d.pick(1e-5, 1e-2), stash_type=1)}
    d.node(op, [x, *(d.like(x.element, vector) for _ in range(2))], attributes)


@recipe("LayerNormalization", "RMSNormalization")
def layer_norm(d: Draw, op: str) -> None:
    """Over the last axes."""
    x = d.some(op, "T", 1, 4, least=1)
    axis = d.axis(x.rank)
    shape = list(x.shape[axis:])
    if d.chance(0.2):
        shape = [1 if d.chance(0.5) else size for size in shape]
    attributes = {**d.attributes(op, epsilon=d.pick(1e-5, 1e-2), stash_type=1), "axis": axis}
    if axis == -1 and d.chance(0.5):
        del attributes["axis"]
    scale = d.like(x.element, shape)
    if op == "RMSNormalization":
        d.node(op, [x, scale], attributes)
        return
    bias = d.like(x.element, shape) if d.chance(0.6) else None
    d.node(op, [x, scale, bias], attributes, (True, d.chance(0.3), d.chance(0.3)))


@recipe("LpNormalization")
def lp_norm(d: Draw, op: str) -> None:
    """Along an axis."""
    x = d.some(op, "T", 1, 4, least=1)
    d.node(op, [x], d.attributes(op, axis=d.axis(x.rank, negative=d.opset >= 22 or d.chance(0.2)), p=d.whole(1, 2)))


@recipe("MeanVarianceNormalization")
def mean_variance(d: Draw, op: str) -> None:
    """Along axes."""
    x = d.some(op, "T", 2, 4, least=1)
    axes = d.axes(x.rank, least=1, negative=False)
    d.node(op, [x], {"axes": axes} if x.rank != 4 or d.chance(0.5) else {})


@recipe("LRN")
def local_response(d: Draw, op: str) -> None:
    """Across channels."""
    x = d.like(d.element(op, "T"), (d.whole(1, 2), d.whole(1, 6), *d.shape(1, 2, 1)))
    numbers = d.attributes(op, alpha=d.real(0.01, 0.5), beta=d.real(0.3, 1), bias=d.real(0.5, 2))
    d.node(op, [x], {"size": d.pick(1, 3, 5, 2, 4), **numbers})


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d: Draw, op: str) -> None:
    """Every reduction, classes that are ignored, weights."""
    classes, n, rest = d.whole(1, 4), d.whole(1, 3), d.shape(0, 2, 1)
    x = d.like(d.element(op, "T"), (n, classes, *rest))
    target = d.new(d.pick("int64", "int64", "int32"), (n, *rest), 0, classes - 1)
    weight = d.new(x.element, (classes,), 0.1, 2) if d.chance(0.5) else None
    attributes = d.attributes(op, reduction=d.pick("none", "mean", "sum"))
    if d.chance(0.3):
        attributes["ignore_index"] = d.whole(0, classes - 1) if d.chance(0.7) else -1
    has_log = op == "SoftmaxCrossEntropyLoss" and d.chance(0.4)
    d.node(op, [x, target, weight], attributes, (True, has_log))


_CELLS = (
    "Relu",
    "Tanh",
    "Sigmoid",
    "Affine",
    "LeakyRelu",
    "ThresholdedRelu",
    "ScaledTanh",
    "HardSigmoid",
    "Elu",
    "Softsign",
    "Softplus",
)
_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}


@recipe("GRU", "LSTM", "RNN")
def recurrent(d: Draw, op: str) -> None:
    """Directions, other activations, clipping, lengths, initial states, peepholes, both layouts."""
    gates, functions = {"GRU": (3, 2), "LSTM": (4, 3), "RNN": (1, 1)}[op]
    direction = d.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    length, batch, size, hidden = d.whole(1, 4), d.whole(1, 3), d.whole(1, 3), d.whole(1, 3)
    layout = 1 if d.opset >= 14 and d.chance(0.25) else 0
    element = "float" if d.chance(0.9) else d.element(op, "T")
    x = d.like(element, (batch, length, size) if layout else (length, batch, size))
    state = (batch, ways, hidden) if layout else (ways, batch, hidden)
    operands: list[Value | None] = [x]
    operands += [d.new(x.element, (ways, gates * hidden, each)) for each in (size, hidden)]
    operands.append(d.like(x.element, (ways, 2 * gates * hidden)) if d.chance(0.6) else None)
    operands.append(d.new("int32", (batch,), 1, length) if d.chance(0.4) else None)
    operands.append(d.like(x.element, state) if d.chance(0.5) else None)
    if op == "LSTM":
        operands.append(d.like(x.element, state) if d.chance(0.5) else None)
        operands.append(d.new(x.element, (ways, 3 * hidden)) if d.chance(0.4) else None)
    attributes: dict[str, Any] = {"hidden_size": hidden} if d.chance(0.8) else {}
    if direction != "forward" or d.chance(0.3):
        attributes["direction"] = direction
    attributes |= d.attributes(op, linear_before_reset=d.whole(0, 1), layout=layout or None)
    if layout:
        attributes["layout"] = 1
    if d.chance(0.15):
        attributes["clip"] = d.real(0.5, 2)
    if d.chance(0.15) and op == "LSTM":
        attributes["input_forget"] = 1
    if d.chance(0.35):
        names = [d.pick(*_CELLS) for _ in range(functions * ways)]
        attributes["activations"] = names
        if d.chance(0.5) or {"Affine", "ScaledTanh", "ThresholdedRelu"} & set(names):  # no defaults, or two
            attributes["activation_alpha"] = [d.real(0.1, 1) for name in names if name in _ALPHA]
            attributes["activation_beta"] = [d.real(0.1, 1) for name in names if name in _BETA]
            attributes = {k: v for k, v in attributes.items() if v != []}
    wanted = [d.chance(0.7) for _ in range(3 if op == "LSTM" else 2)]
    d.node(op, operands, attributes, tuple(wanted) if any(wanted) else (True,))


@recipe("Attention")
def attention(d: Draw, op: str) -> None:
    """Both ranks, grouped heads, masks, caches, all outputs."""
    element = d.element(op, "T1")
    batch, groups, each = d.whole(1, 2), d.whole(1, 2), d.pick(1, 1, 2)
    heads, rows, keys, size, width = groups * each, d.whole(1, 3), d.whole(1, 4), d.whole(1, 4), d.whole(1, 4)
    is_flat = d.chance(0.4)

    def tensor(count: int, length: int, last: int) -> Value:
        return d.like(element, (batch, length, count * last) if is_flat else (batch, count, length, last))

    q, k, v = tensor(heads, rows, size), tensor(groups, keys, size), tensor(groups, keys, width)
    past = d.whole(0, 3) if d.chance(0.3) else None
    total = keys + (past or 0)
    mask = None
    if d.chance(0.5):
        shape = [*[1 if d.chance(0.3) else n for n in (batch, heads)][d.whole(0, 2) :], rows, total]
        kind = d.element(op, "U", ["bool", element])
        mask = d.new(kind, shape)
    caches = [None, None]
    if past is not None:
        caches = [d.like(element, (batch, groups, past, last)) for last in (size, width)]
    lengths = None
    if d.opset >= 24 and past is None and d.chance(0.3):
        lengths = d.new("int64", (batch,), 1, keys)
    attributes = d.attributes(
        op, is_causal=d.whole(0, 1), scale=d.real(0.2, 1), softcap=d.pick(0.0, 1.5), qk_matmul_output_mode=d.whole(0, 3)
    )
    if is_flat:
        attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    has_cache = past is not None
    wanted = (True, has_cache, has_cache, d.chance(0.25) or "qk_matmul_output_mode" in attributes)
    d.node(op, [q, k, v, mask, *caches, lengths], attributes, wanted)


@recipe("RotaryEmbedding")
def rotary(d: Draw, op: str) -> None:
    """Both ranks, parts of a head, interleaved or not."""
    batch, heads, length, size = d.whole(1, 2), d.whole(1, 3), d.whole(1, 3), d.pick(2, 4, 6)
    is_flat = d.chance(0.4)
    element = d.element(op, "T")
    x = d.like(element, (batch, length, heads * size) if is_flat else (batch, heads, length, size))
    part = d.pick(*range(2, size + 1, 2)) if d.chance(0.4) else 0
    half = (part or size) // 2
    positions = d.new("int64", (batch, length), 0, 4) if d.chance(0.5) else None
    shape = (5, half) if positions is not None else (batch, length, half)
    attributes = d.attributes(op, interleaved=d.whole(0, 1))
    if is_flat or d.chance(0.2):
        attributes["num_heads"] = heads
    if part:
        attributes["rotary_embedding_dim"] = part
    d.node(op, [x, d.new(element, shape), d.new(element, shape), positions], attributes)


@recipe("DFT", "STFT")
def fourier(d: Draw, op: str) -> None:
    """Transforms of real and complex numbers."""
    element = d.element(op, "T1", ["float", "double"])
    if op == "STFT":
        length, frame = d.whole(4, 8), d.whole(1, 4)
        window = d.new(element, (frame,)) if d.chance(0.6) else None
        is_complex = d.chance(0.25)
        x = d.like(element, (d.whole(1, 2), length, 2 if is_complex else 1))
        size = d.ints(frame) if window is None or d.chance(0.5) else None
        one_sided = 0 if is_complex else d.whole(0, 1)
        d.node(op, [x, d.ints(d.whole(1, 3)), window, size], {"onesided": one_sided})
        return
    is_complex = d.chance(0.5)
    x = d.like(element, (*d.shape(2, 3, 1), 2 if is_complex else 1))
    axis = d.axis(x.rank - 1, negative=False)
    inverse, one_sided = d.whole(0, 1), d.whole(0, 1)
    if is_complex and not inverse:
        one_sided = 0
    if one_sided and inverse:
        one_sided = 0
    length = d.ints(d.whole(1, 5)) if d.chance(0.4) else None
    attributes = d.attributes(op, inverse=inverse, onesided=one_sided)
    if d.opset < 20:
        d.node(op, [x, length], {**attributes, "axis": axis})
    else:
        d.node(op, [x, length, d.ints(axis)], attributes)


@recipe("BlackmanWindow", "HammingWindow", "HannWindow")
def window(d: Draw, op: str) -> None:
    """A window of a size."""
    from tests.onnx_models.draw import number_of

    element = d.element(op, "T2", ["float", "double", "float16"])  # of integers the last bit decides
    size = d.ints(d.whole(1, 6), d.element(op, "T1"))
    d.node(op, [size], d.attributes(op, periodic=d.whole(0, 1), output_datatype=number_of(element)))


@recipe("MelWeightMatrix")
def mel(d: Draw, op: str) -> None:
    """Triangles over frequencies."""
    kind = d.element(op, "T1")
    whole = [d.ints(n, kind) for n in (d.whole(1, 4), d.pick(8, 16), d.pick(8000, 16000))]
    low, high = d.real(0, 100), d.real(2000, 4000)
    edges = [d.given(np.float32(edge), "float", "settled") for edge in (abs(low), abs(high) + 1000)]
    d.node(op, [*whole, *edges])


@recipe("QuantizeLinear", "DequantizeLinear")
def quantize(d: Draw, op: str) -> None:
    """By one scale, along an axis, or in blocks."""
    is_quantize = op == "QuantizeLinear"
    names = d.elements(op, "T3" if is_quantize and d.opset >= 19 else "T2" if is_quantize else "T1")
    wide = [
        n for n in names if n in ("int8", "uint8", "int16", "uint16", "int4", "uint4", "float8e4m3fn", "float8e5m2")
    ]
    code = d.rng.choices(wide, [4 if n in ("int8", "uint8") else 1 for n in wide])[0]
    shape = d.shape(1, 4, 1)
    axis = d.axis(len(shape))
    kind = d.pick("all", "all", "axis", "block" if d.opset >= 21 else "axis") if d.opset >= 13 else "all"
    scale_shape: tuple[int, ...] = ()
    attributes: dict[str, Any] = {}
    if kind == "axis":
        scale_shape, attributes = (shape[axis],), {"axis": axis}
    elif kind == "block":
        block = d.whole(1, shape[axis])
        sizes = list(shape)
        sizes[axis] = -(-shape[axis] // block)
        scale_shape, attributes = tuple(sizes), {"axis": axis, "block_size": block}
    elements = ["float"] if d.opset < 19 else d.elements(op, "T2" if d.opset >= 23 or not is_quantize else "T1")
    element = d.rng.choice([e for e in elements if e in ("float", "float16")] + ["float"] * 3)
    scale = d.new(element, scale_shape, 0.05, 0.5)
    low, high = (0, 9) if code.startswith("u") else (-5, 5)
    zero = None
    if d.chance(0.6) or (is_quantize and code != "uint8"):
        zero = d.given(np.zeros(scale_shape), code) if "8e" in code else d.new(code, scale_shape, low, high)
    attributes |= d.attributes(op, saturate=d.whole(0, 1) if "8e" in code else None)
    if is_quantize:
        d.node(op, [d.new(element, shape, -3, 3) if d.chance(0.5) else d.like(element, shape), scale, zero], attributes)
    else:
        d.node(op, [d.new(code, shape, low, high), scale, zero], attributes)


@recipe("DynamicQuantizeLinear")
def dynamic_quantize(d: Draw, op: str) -> None:
    """By the range of the operand."""
    d.node(op, [d.like("float", d.shape(0, 3, 1))], outputs=(True, True, True))


@recipe("MatMulInteger", "QLinearMatMul")
def integer_product(d: Draw, op: str) -> None:
    """Products of 8-bit codes."""
    lead = d.shape(0, 2, 1)
    rows, inner, columns = d.whole(1, 3), d.whole(1, 4), d.whole(1, 3)
    kinds = ["int8", "uint8"]
    a = d.like(d.pick(*kinds), (*lead, rows, inner))
    b = d.like(d.pick(*kinds), (*(lead if d.chance(0.5) else ()), inner, columns))

    def zero(element: str, shape: tuple[int, ...] = ()) -> Value:
        return d.new(element, shape, 0, 4)

    if op == "MatMulInteger":
        zeros = [
            zero(a.element) if d.chance(0.6) else None,
            zero(b.element, d.pick((), (columns,))) if d.chance(0.6) else None,
        ]
        d.node(op, [a, b, *zeros])
        return
    element = d.element(op, "TS", ["float", "float16"]) if d.opset >= 21 else "float"

    def scale() -> Value:
        return d.new(element, (), 0.05, 0.5)

    out = d.pick(*kinds)
    d.node(op, [a, scale(), zero(a.element), b, scale(), zero(b.element), scale(), zero(out)])


@recipe("QLinearConv")
def quantized_convolution(d: Draw, op: str) -> None:
    """A convolution of 8-bit codes."""
    group, inner, outer = d.pick(1, 1, 2), d.whole(1, 2), d.whole(1, 2)
    kernel = [d.whole(1, 3), d.whole(1, 3)]
    x = d.like(d.pick("uint8", "int8"), (d.whole(1, 2), inner * group, d.whole(3, 5), d.whole(3, 5)))
    w = d.new(d.pick("int8", "uint8"), (outer * group, inner, *kernel))
    count = outer * group
    shape = d.pick((), (count,))

    def zero(element: str, of: tuple[int, ...] = ()) -> Value:
        return d.new(element, of, 0, 4)

    def scale(of: tuple[int, ...] = ()) -> Value:
        return d.new("float", of, 0.05, 0.5)

    attributes = {
        "group": group,
        **d.attributes(op, strides=[d.whole(1, 2)] * 2, pads=[d.whole(0, 1) for _ in range(4)], kernel_shape=kernel),
    }
    out = x.element
    bias = d.new("int32", (count,), -9, 9) if d.chance(0.5) else None
    weight_zero = d.given(np.full(shape, 1), w.element)
    d.node(op, [x, scale(), zero(x.element), w, scale(shape), weight_zero, scale(), zero(out), bias], attributes)
    if not kernel:
        raise Unrunnable("no kernel")
