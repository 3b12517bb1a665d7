"""What ONNX Runtime is known to get wrong: each with what the standard says."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from tests.onnx_models.operands import (
    CROP,
    F32_STEP,
    MOVES,
    NO_AXIS,
    RECURRENT,
    WIDE,
    Known,
    Seen,
    exceeds,
    hangs_on_places,
    has_larger_scale,
    has_nan,
    has_other_channels,
    has_other_labels,
    is_special,
    looks_through_nan,
    nodes_of,
    reduces_a_scalar,
    resized_lengths,
    scanned,
    sticks_out,
    when,
    writes_strings,
)

_POOLS = ("AveragePool", "LpPool", "MaxPool")
_WITHOUT_WINDOWS_IN_PADDING = 22
_SMALL_BIAS = 1e-2
_LARGEST_EXPONENT = 88
_OF_SQUARES = {"ReduceL2", "ReduceSumSquare"}
_SUMS = {"ReduceL1", "ReduceMean", "ReduceProd", "ReduceSum", *_OF_SQUARES}


def runtime_is_wrong(model: onnx.ModelProto, known: Known | None = None) -> str:
    """Why ONNX Runtime is no judge of the model; empty where it is one."""
    seen = nodes_of(model, known)
    return next((why for node in seen if (why := _runtime(node))), "") or _quantizes_floats(seen)


def _quantizes_floats(nodes: Sequence[Seen]) -> str:
    """Why it is wrong of what is between dequantizing and quantizing; empty where there are no floats beside it."""
    makers = {name: seen for seen in nodes for name in seen.node.output}
    matmuls = {name for name, seen in makers.items() if seen.node.op_type == "MatMul"}

    def dequantized(name: str) -> Seen | None:
        maker = makers.get(name)
        while maker is not None and maker.node.op_type in MOVES:
            maker = makers.get(maker.node.input[0])
        return maker if maker is not None and maker.node.op_type == "DequantizeLinear" else None

    def is_wrong(seen: Seen) -> bool:
        factors, place = seen.node.input, 2
        if seen.node.op_type == "Add" and not matmuls.isdisjoint(factors):
            product = next(name for name in factors if name in matmuls)
            factors, place = makers[product].node.input, int(product == factors[0])
        elif seen.node.op_type not in ("Conv", "ConvTranspose", "Gemm"):
            return False
        first, weight = factors[:2]
        scales = [dequantized(first), dequantized(weight)]
        if scales[0] is None or scales[1] is None:
            return scales[0] is not None
        if not seen.has(place) or dequantized(seen.node.input[place]):
            return False
        numbers = [seen.content(place), *(each.content(1) for each in scales if each)]
        bias, *steps = (None if each is None else np.abs(np.asarray(each, np.float64)) for each in numbers)
        return (
            bias is None
            or any(each is None for each in steps)
            or not bool(np.all(bias < np.prod([each.min() for each in steps if each is not None]) * 2.0**31))
        )

    is_quantized = any(seen.node.op_type == "QuantizeLinear" for seen in nodes)
    return "quantizes weights and biases in floats" if is_quantized and any(map(is_wrong, nodes)) else ""


def _ends_as_it_began(seen: Seen) -> bool:
    """Whether a recurrence goes no step from a state that is given, which is the last one too."""
    along = 1 if seen.attributes.get("layout") else 0

    def holds(x: Any, lengths: Any = None) -> bool:
        return x.shape[along] == 0 or (lengths is not None and 0 in lengths)

    is_given = seen.has(5) or seen.has(6)
    return is_given and seen.may(holds, 0, *([4] if seen.has(4) else []))


def _is_wider(seen: Seen) -> bool:
    """Whether the shape that is asked of a ConvTranspose is larger than what it makes without padding."""
    given = seen.attributes
    asked = given.get("output_shape", ())

    def holds(x: Any, weights: Any) -> bool:
        count = len(weights.shape) - 2
        steps = given.get("strides") or [1] * count
        reach = [1 + (k - 1) * d for k, d in zip(weights.shape[2:], given.get("dilations") or [1] * count, strict=True)]
        made = [step * (size - 1) + wide for step, size, wide in zip(steps, x.shape[2:], reach, strict=True)]
        return any(large > size for large, size in zip(asked[-count:], made, strict=True))

    return bool(asked) and seen.may(holds, 0, 1)


def _gathers_elsewhere(seen: Seen) -> bool:
    count = seen.attributes.get("batch_dims", 0)
    return seen.may(lambda x, places: not x.size or x.shape[:count] != places.shape[:count], 0, 1)


def _extends_nothing(seen: Seen) -> bool:
    """Whether a Pad repeats elements along an axis that has none."""
    if seen.attributes.get("mode", b"constant") == b"constant":
        return False

    def holds(x: Any, pads: Any, axes: Any = None) -> bool:
        ends = np.reshape(pads, (2, -1)).max(0)
        along = range(x.ndim) if axes is None else axes
        return any(x.shape[axis] == 0 and most > 0 for axis, most in zip(along, ends, strict=False))

    if seen.opset < 11:
        return seen.may(lambda x: holds(x, seen.attributes["pads"]), 0)
    return seen.may(holds, 0, 1, *([3] if seen.has(3) else []))


def _rotates_odd_heads(seen: Seen) -> bool:
    """Whether what is rotated of a head is not made of pairs."""
    given = seen.attributes
    part = given.get("rotary_embedding_dim", 0)
    heads = max(given.get("num_heads", 0), 1)
    return bool(part % 2) or seen.may(lambda x: not part and x.shape[-1] // (heads if x.ndim == 3 else 1) % 2, 0)


def _chooses_beyond(seen: Seen) -> bool:
    """Whether a condition of Compress holds behind the end of the axis."""
    axis = seen.attributes.get("axis")

    def holds(x: Any, chosen: Any) -> bool:
        count = x.size if axis is None else x.shape[axis] if -x.ndim <= axis < x.ndim else 0
        return bool(chosen[count:].any())

    return seen.may(holds, 0, 1)


def _goes_by_size(seen: Seen) -> bool:
    """Whether a Resize makes a part of an element more, by which the others are placed."""
    mode, lengths = seen.attributes.get("coordinate_transformation_mode"), resized_lengths(seen)
    parts = [(before, after) for before, length, after in lengths if abs(length - after) > F32_STEP * after]
    if mode in (b"align_corners", CROP):
        return bool(parts) or not lengths
    is_one = mode == b"pytorch_half_pixel"
    return (is_one and not lengths) or any(before == after or (is_one and after == 1) for before, after in parts)


def _rounds_places(seen: Seen) -> bool:
    def is_exact(mode: bytes, scale: float) -> bool:
        return float(np.float32(scale)) == scale and mode in (b"asymmetric", b"half_pixel", b"pytorch_half_pixel")

    return hangs_on_places(seen, F32_STEP, is_exact)


def _crops_what_stays(seen: Seen) -> bool:
    """Whether a Resize has a region along an axis whose size stays."""
    if seen.attributes.get("coordinate_transformation_mode") != CROP:
        return False
    lengths, roi = resized_lengths(seen), seen.content(1)
    if not lengths or roi is None or roi.size != 2 * len(lengths):
        return True
    regions = zip(lengths, roi, roi[len(lengths) :], strict=False)
    return any(before == after and (begin, end) != (0, 1) for (before, _, after), begin, end in regions)


def _passes_over_axes(seen: Seen) -> bool:
    policy = seen.attributes.get("keep_aspect_ratio_policy", b"stretch")
    return policy != b"stretch" and seen.has(3) and min(seen.attributes.get("axes", ()), default=0) < 0


def _runtime(seen: Seen) -> str:
    if reduces_a_scalar(seen):
        return NO_AXIS
    rule = _OF_RUNTIME.get(seen.node.op_type)
    return rule(seen) if rule is not None else ""


def _concatenates_empty(seen: Seen) -> bool:
    """Whether an operand of a Concat, or of a sequence, is empty."""
    places = range(len(seen.node.input))
    return any(
        seen.may(lambda x: any(not np.size(each) for each in x) if isinstance(x, list) else not x.size, place)
        for place in places
    )


def _lacks_kernel_of_heads(seen: Seen) -> bool:
    """Whether queries and keys are of different lengths."""
    heads = (seen.attributes.get("q_num_heads", 1), seen.attributes.get("kv_num_heads", 1))
    return seen.may(lambda q, k: q.shape[-1] * (heads[1] if q.ndim == 3 else 1) != k.shape[-1] * heads[0], 0, 1)


def _has_other_values(seen: Seen) -> bool:
    """Whether there are not as many values as keys, in heads or along the sequence."""
    return seen.may(lambda k, v: k.shape[:-1] != v.shape[:-1], 1, 2)


def _has_other_past(seen: Seen) -> bool:
    """Whether earlier keys or values are of other lengths, heads or samples than those that come."""
    heads = seen.attributes.get("kv_num_heads", 1)

    def holds(new: Any, past: Any) -> bool:
        if new.ndim == 3:
            return (*past.shape[:2], past.shape[-1] * heads) != (new.shape[0], heads, new.shape[2])
        return (*past.shape[:2], past.shape[-1]) != (*new.shape[:2], new.shape[-1])

    return any(seen.has(place + 3) and seen.may(holds, place, place + 3) for place in (1, 2))


def _sees_what_comes(seen: Seen) -> bool:
    """Whether one query behind a past is given several keys, of which it may see the first alone: j <= i + past."""

    def holds(q: Any, k: Any, past: Any) -> bool:
        return q.shape[-2] == 1 < k.shape[-2] and past.shape[-2] > 0

    return bool(seen.attributes.get("is_causal")) and seen.has(4) and seen.may(holds, 0, 1, 4)


def _sees_nothing_in_doubles(seen: Seen) -> bool:
    """Whether a query in doubles may see no key, or the count of the keys says what it sees.

    For doubles there is no kernel but the function of the standard before its erratum, which made rows of what sees
    nothing zeros and let the keys that are there end at the last query.
    """
    is_causal, places = bool(seen.attributes.get("is_causal")), [each for each in (3, 4, 6) if seen.has(each)]

    def holds(q: Any, k: Any, *others: Any) -> bool:
        given = dict(zip(places, others, strict=True))
        if q.dtype != np.float64:
            return False
        past = given[4].shape[-2] if 4 in given else 0
        count, length = q.shape[-2], past + k.shape[-2]
        if 6 in given and is_causal and (given[6] != count).any():
            return True
        allowed = np.tri(count, length, past if is_causal else length, bool)
        if 3 in given and given[3].dtype == bool:
            behind = [(0, 0)] * (given[3].ndim - 1) + [(0, length - given[3].shape[-1])]
            allowed = allowed & np.pad(given[3], behind)
        if 6 in given:
            allowed = allowed & (np.arange(length) < given[6].reshape(-1, 1, 1, 1))
        return not allowed.any(-1).all()

    return seen.may(holds, 0, 1, *places)


def _has_nothing_or_nan(x: Any) -> bool:
    return not x.size or has_nan(x)


def _has_no_labels(seen: Seen) -> bool:
    return seen.may(lambda labels: not labels.size, 1)


def _overflows(seen: Seen) -> bool:
    """Whether a Softplus in a recurrence may be given what exp has no f32 of."""

    def holds(x: Any, weights: Any, recurrent: Any, y: Any, *others: Any) -> bool:
        most = [np.abs(each).max(initial=0.0) for each in (x, y, *others)]
        sums = [np.abs(each).sum(-1).max(initial=0.0) for each in (weights, recurrent)]
        return not sums[0] * most[0] + sums[1] * max(most[1:]) + 2 * sum(most[2:]) < _LARGEST_EXPONENT

    if not any(name.lower() == b"softplus" for name in seen.attributes.get("activations", ())):
        return False
    others = [place for place in (3, 5, 6) if seen.has(place)]  # the bias and the states
    y = seen.result()
    return y is None or seen.may(lambda x, w, r, *each: holds(x, w, r, y, *each), 0, 1, 2, *others)


def _saturates_reduced(seen: Seen) -> bool:
    """Whether a reduction makes integers that f64 or their type does not hold, of which the standard's functions wrap.

    These are sums of `Abs` or of `Mul`.
    """
    op, given = seen.node.op_type, seen.attributes

    def holds(x: Any, *told: Any) -> bool:
        if x.dtype.kind not in "iu":
            return False
        axes = told[0] if told else given.get("axes")
        sizes = np.abs(x.astype(np.float64))
        every = axes is None or (not np.size(axes) and not given.get("noop_with_empty_axes"))
        total = np.prod if op == "ReduceProd" else np.sum
        reduced = total(sizes**2 if op in _OF_SQUARES else sizes, None if every else tuple(np.ravel(axes)))
        return bool((reduced > min(1 << 53, np.iinfo(x.dtype).max)).any())

    return op in _SUMS and seen.may(holds, 0, *([1] if seen.has(1) else []))


def _frames_nothing(seen: Seen) -> bool:
    """Whether the frames of an STFT have no samples, which no transform takes."""
    return any(seen.has(place) and seen.may(holds, place) for place, holds in ((2, _is_empty), (3, _is_zero)))


def _is_empty(x: Any) -> bool:
    return not x.size


def _is_zero(x: Any) -> bool:
    return not x.any()


def _saturates(left: int, right: int) -> Callable[[Seen], str]:
    """A rule for products of u8 on the left of its kernel by i8 on the right."""
    return when(
        "adds two products in 16 bits, where the processor has no VNNI, and reads outside of a kernel without elements",
        lambda s: s.may(
            lambda x, w: not x.size or not w.size or (x.dtype, w.dtype) == (np.uint8, np.int8), left, right
        ),
    )


def _multiplies_nothing(left: int, right: int) -> Callable[[Seen], str]:
    return when(
        "passes over what does not broadcast where nothing is summed",
        lambda s: s.may(lambda x, y: not x.size or not y.size, left, right),
    )


def _product(left: int, right: int) -> Callable[[Seen], str]:
    """The rules for a product of matrices of bytes."""
    rules = _multiplies_nothing(left, right), _saturates(left, right)
    return lambda seen: next((why for rule in rules if (why := rule(seen))), "")


def _scans_strings(seen: Seen) -> bool:
    return any(
        ty.elem_type == onnx.TensorProto.STRING and (each is None or len(each) > 1) for ty, each in scanned(seen)
    )


def _scans_other_shapes(seen: Seen) -> bool:
    """Whether states change their shape in rounds of which nothing is scanned.

    "It is an error if the dimensions or data type of these scan_outputs change across loop iterations."
    """
    known = seen.known or {}
    states = zip(seen.node.input[2:], seen.node.output, strict=False)
    pairs = [[known[name].content if name in known else None for name in pair] for pair in states]
    return any(each is None or (not each.size and len(each) > 1) for _, each in scanned(seen)) and any(
        not all(isinstance(each, np.ndarray) for each in pair) or pair[0].shape != pair[1].shape for pair in pairs
    )


def _hands_on(count: int | None, first: int) -> Callable[[Seen], bool]:
    """Whether a body gives one of its first `count` inputs as it is, among its results from `first` on."""

    def holds(seen: Seen) -> bool:
        body = seen.attributes["body"]
        return not {each.name for each in body.input[:count]}.isdisjoint(each.name for each in body.output[first:])

    return holds


_gives_iteration, _gives_input = _hands_on(1, 1), _hands_on(None, 0)


_OF_RUNTIME: dict[str, Callable[[Seen], str]] = {
    "ConvTranspose": when(
        "cuts no borders off where a stride is wider than the kernel",
        lambda s: s.attributes.get("auto_pad", b"").startswith(b"SAME") or _is_wider(s),
    ),
    "Resize": when(
        "goes by the rounded size, places elements in f32, passes over the region along an axis whose size stays, and "
        "over axes that an aspect policy has counted from the last",
        lambda s: _goes_by_size(s) or _rounds_places(s) or _crops_what_stays(s) or _passes_over_axes(s),
    ),
    "Upsample": when(
        "places elements in f32, and passes over a scale that leaves a size as it is",
        lambda s: _goes_by_size(s) or _rounds_places(s),
    ),
    "GatherND": when("passes over indices into nothing, and over batches of other sizes", _gathers_elsewhere),
    **dict.fromkeys(("ArgMax", "ArgMin"), when("finds a place in nothing", lambda s: s.may(lambda x: not x.size, 0))),
    "MaxUnpool": when("takes indices for those of the shape that is asked for", lambda s: s.has(2)),
    "Compress": when("passes over conditions that hold behind the end of the axis", _chooses_beyond),
    "GroupNormalization": when("takes other channels", has_other_channels),
    "Pad": when("takes nothing where pads of both signs cancel", _extends_nothing),
    "RotaryEmbedding": when("leaves out the last of an odd number", _rotates_odd_heads),
    "Concat": when("takes empty tensors of any shape", _concatenates_empty),
    "ConcatFromSequence": when("takes empty tensors of any shape", _concatenates_empty),
    "NonZero": when(
        "gives a row for a scalar, for which the standard has none", lambda s: s.may(lambda x: not x.ndim, 0)
    ),
    "SplitToSequence": when(
        "drops the axis where the sizes are given, with which keepdims is to be passed over",
        lambda s: s.has(1) and not s.attributes.get("keepdims", 1),
    ),
    "Gather": when(
        "copies one string of each slice",
        lambda s: s.may(lambda x: x.dtype.kind == "O" and x.ndim > 1, 0),
    ),
    **dict.fromkeys(
        _POOLS,
        when(WIDE, lambda s: not s.attributes.get("ceil_mode") and sticks_out(s)),
    ),
    **dict.fromkeys(
        ("Cast", "CastLike"),
        when("writes 0 and 1 for False and True", lambda s: writes_strings(s, lambda x: x.dtype == np.bool_)),
    ),
    "PRelu": when("takes slopes that are larger than the operand", has_larger_scale),
    "Gemm": when("leaves beta out where nothing is summed", lambda s: s.may(lambda x: not x.size, 0)),
    "MatMul": _multiplies_nothing(0, 1),
    "Loop": when(
        "gives the strings of the first round alone, joins shapes that differ where there is nothing in them, and "
        "counts on in an iteration that the body hands on as it is",
        lambda s: _scans_strings(s) or _scans_other_shapes(s) or _gives_iteration(s),
    ),
    "Scan": when("gives what lies in memory for an input that the body hands on as it is", _gives_input),
    **dict.fromkeys(
        RECURRENT,
        when(
            "hands the parameters of activations out in another way, takes exp for Softplus, which overflows, and ends "
            "in zeros where it goes no step",
            lambda s: (
                bool(s.attributes.keys() & {"activation_alpha", "activation_beta"})
                or _overflows(s)
                or _ends_as_it_began(s)
            ),
        ),
    ),
    **dict.fromkeys(
        ("Reduce" + kind for kind in ("L1", "L2", "LogSum", "LogSumExp", "Mean", "Prod", "Sum", "SumSquare")),
        when(
            "gives nothing, or 0, where it reduces nothing, and reduces integers in f64, which saturates",
            lambda s: s.may(lambda x: not x.size, 0) or _saturates_reduced(s),
        ),
    ),
    **dict.fromkeys(
        ("ReduceMax", "ReduceMin"),
        when("passes over NaN, as over nothing", lambda s: s.may(_has_nothing_or_nan, 0)),
    ),
    **dict.fromkeys(("ScatterElements", "ScatterND"), when("passes over NaN", lambda s: looks_through_nan(s, 0, 2))),
    "BatchNormalization": when(
        "writes the running statistics over its operands", lambda s: bool(s.attributes.get("training_mode"))
    ),
    "NegativeLogLikelihoodLoss": when(
        "gives 0 for the mean of nothing, and takes fewer labels", lambda s: _has_no_labels(s) or has_other_labels(s)
    ),
    "SoftmaxCrossEntropyLoss": when(
        "gives 0 for the mean of nothing, takes fewer labels, and gives numbers for scores that are none",
        lambda s: _has_no_labels(s) or has_other_labels(s) or s.may(is_special, 0),
    ),
    "Clip": when(
        "takes the greatest number for a bound that is not there",
        lambda s: s.opset >= 11 and not (s.has(1) and s.has(2)) and s.may(is_special, 0),
    ),
    "LRN": when(
        "adds squares that come and takes off those that go, which without a bias is all that there is",
        lambda s: abs(s.attributes.get("bias", 1.0)) < _SMALL_BIAS,
    ),
    "LogSoftmax": when(
        "gives numbers beside NaN in doubles", lambda s: s.may(lambda x: x.dtype == np.float64 and has_nan(x), 0)
    ),
    "Sign": when("gives 0 for NaN of 16 bits", lambda s: s.may(lambda x: x.itemsize == 2 and has_nan(x), 0)),
    "Mod": when("divides in f64", lambda s: bool(s.attributes.get("fmod")) and exceeds(53)(s)),
    "Shrink": when("computes in f32", exceeds(24)),
    "STFT": when("makes frames of no samples where there is no signal, and ends the process else", _frames_nothing),
    "RoiAlign": when("reads outside of an empty picture", lambda s: s.may(lambda x: not x.size, 0)),
    "StringSplit": when(
        "has no part of an empty string, where there is one that is empty",
        lambda s: "delimiter" in s.attributes and s.may(lambda x: "" in x.ravel().tolist(), 0),
    ),
    "Attention": when(
        "takes queries, keys and what went before of different sizes, and other values than keys, lets a single "
        "query see all keys that come, and knows no zeros of who sees nothing where it has no kernel",
        lambda s: (
            _lacks_kernel_of_heads(s)
            or _has_other_past(s)
            or _has_other_values(s)
            or _sees_what_comes(s)
            or _sees_nothing_in_doubles(s)
        ),
    ),
    "ConvInteger": _saturates(1, 0),
    "MatMulInteger": _product(0, 1),
    "QLinearConv": _saturates(0, 3),
    "QLinearMatMul": _product(0, 3),
}


def pools_nothing_of_files(model: onnx.ModelProto, known: Known | None = None) -> bool:
    """Whether a pool that files round down has an axis without elements, of which ONNX Runtime makes a window.

    Before opset 22 no rounding up leaves out windows in the padding alone. Rounded down, a kernel of 1 and a stride of
    2 make floor(-1 / 2) + 1 = 0 windows of nothing by the standard; ONNX Runtime divides as C++ does, which is 1.
    """
    return any(
        seen.node.op_type in _POOLS
        and seen.opset < _WITHOUT_WINDOWS_IN_PADDING
        and bool(seen.attributes.get("ceil_mode"))
        and seen.may(lambda x: 0 in x.shape[2:], 0)
        for seen in nodes_of(model, known)
    )


def lacks_kernel(error: Any) -> bool:
    """Whether ONNX Runtime does not run a file, as its pools need opset 22, from which on it has no such operator."""
    return "NOT_IMPLEMENTED" in str(error) and any(f"{op}(22)" in str(error) for op in ("RoiAlign", "MaxRoiPool"))


def refuses_values(error: Any) -> bool:
    """Whether ONNX Runtime finds a call wrong, and does not just lack a kernel: then it may be refused by us too."""
    return isinstance(error, Exception) and "NOT_IMPLEMENTED" not in str(error)
