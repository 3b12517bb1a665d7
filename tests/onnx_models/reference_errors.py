"""What onnx's reference evaluator is known to get wrong: each with what the standard says."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tests.onnx_models.operands import (
    CROP,
    F32_STEP,
    F64_STEP,
    NO_AXIS,
    RECURRENT,
    WIDE,
    Known,
    Seen,
    hangs_on_places,
    has_larger_scale,
    has_other_channels,
    has_other_labels,
    looks_through_nan,
    nodes_of,
    reduces_a_scalar,
    resized_lengths,
    sticks_out,
    when,
)

_SCORES = 3  # which result of Attention they are


def reference_is_wrong(model: onnx.ModelProto, known: Known | None = None) -> str:
    """Why onnx's reference evaluator is no judge of the model; empty where it is one."""
    return next((why for node in nodes_of(model, known) if (why := _reference(node))), "")


def _reference(seen: Seen) -> str:
    node = seen.node
    if reduces_a_scalar(seen):
        return NO_AXIS
    if node.op_type in RECURRENT:
        return _recurrent(seen)
    rule = _OF_REFERENCE.get(node.op_type)
    return rule(seen) if rule is not None else ""


def _recurrent(seen: Seen) -> str:
    if seen.has(4):
        return "passes over sequence lengths"
    if seen.attributes.keys() & {"clip", "activations", "activation_alpha", "activation_beta", "input_forget"}:
        return "passes over clip and activations"
    return "takes weights and states of other sizes, which it broadcasts" if _has_other_weights(seen) else ""


def _has_other_weights(seen: Seen) -> bool:
    """Whether weights, biases or states of a recurrence are not of the shapes that the standard gives them."""
    given, gates = seen.attributes, {"RNN": 1, "GRU": 3, "LSTM": 4}[seen.node.op_type]
    ways = 2 if given.get("direction") == b"bidirectional" else 1

    def holds(x: Any, recurrent: Any, *others: Any) -> bool:
        hidden = given.get("hidden_size", recurrent.shape[-1])
        state = (x.shape[0], ways, hidden) if given.get("layout") else (ways, x.shape[1], hidden)
        shapes = {1: (ways, gates * hidden, x.shape[2]), 3: (ways, 2 * gates * hidden), 5: state, 6: state}
        shapes[7] = (ways, 3 * hidden)
        pairs = zip(others, places, strict=True)
        return recurrent.shape != (ways, gates * hidden, hidden) or any(y.shape != shapes[at] for y, at in pairs)

    places = [place for place in (1, 3, 5, 6, 7) if seen.has(place)]
    return seen.may(holds, 0, 2, *places)


def _always(why: str) -> Callable[[Seen], str]:
    return lambda _: why


def _splits_elsewhere(seen: Seen) -> bool:
    """Whether the parts of a Split do not make up its axis."""
    axis = seen.attributes.get("axis", 0)
    if seen.has(1) or "split" in seen.attributes:
        split = seen.attributes.get("split")
        if split is not None:
            return seen.may(lambda x: sum(split) != x.shape[axis], 0)
        return seen.may(lambda x, parts: int(parts.sum()) != x.shape[axis], 0, 1)
    count = len(seen.node.output)
    if seen.opset < 18:  # before there was num_outputs, the parts are of equal sizes
        return seen.may(lambda x: bool(x.shape[axis] % count), 0)
    return seen.may(lambda x: -(-x.shape[axis] // count) * (count - 1) > x.shape[axis], 0)


def _has_other_kernel(seen: Seen) -> bool:
    """Whether the weights of a convolution are not of the shape that `kernel_shape` says."""
    stated, place = seen.attributes.get("kernel_shape"), 3 if seen.node.op_type == "QLinearConv" else 1
    return bool(stated) and seen.may(lambda weights: weights.shape[2:] != tuple(stated), place)


def _has_scales_of_other_channels(seen: Seen) -> bool:
    """Whether the weights of a quantized convolution have neither one scale and zero nor one for each channel."""
    return seen.node.op_type == "QLinearConv" and any(
        seen.has(place) and seen.may(lambda weights, each: each.size not in (1, weights.shape[0]), 3, place)
        for place in (4, 5)
    )


def _is_padded_up(seen: Seen) -> bool:
    """Whether the last window of a pool that is rounded up ends two elements or more behind the padding."""
    given = seen.attributes
    kernel = given["kernel_shape"]
    count, pads = len(kernel), given.get("pads")
    steps, gaps = given.get("strides") or [1] * count, given.get("dilations") or [1] * count

    def holds(x: Any) -> bool:
        both = [sum(pads[axis::count]) if pads else 0 for axis in range(count)]
        room = [s + p - 1 - (k - 1) * d for s, p, k, d in zip(x.shape[2:], both, kernel, gaps, strict=True)]
        return any(-free % step > 1 for free, step in zip(room, steps, strict=True))

    return bool(given.get("ceil_mode")) and seen.may(holds, 0)


def _misreads_pads(seen: Seen) -> bool:
    """Whether windows that go step by step have pads whose order matters, or that are rounded up.

    Those are computed apart, of pictures alone: pads are taken for above, below, left and right, and twice if rounded.
    """
    given = seen.attributes
    pads = given.get("pads", ())
    if not any(pads) or any(each > 1 for name in ("strides", "dilations") for each in given.get(name, ())):
        return False
    return bool(given.get("ceil_mode")) or len(pads) != 4 or pads[1] != pads[2]


def _is_strided(seen: Seen) -> bool:
    return any(step > 1 for step in seen.attributes.get("strides", ()))


def _ignores_output_shape(seen: Seen) -> bool:
    """Whether a ConvTranspose is to find the pads from the shape that is asked for, and they begin elsewhere.

    There the reference goes on with pads that are given, or with none.
    """
    given = seen.attributes
    asked = given.get("output_shape", ())
    is_same = given.get("auto_pad", b"").startswith(b"SAME") and "pads" not in given

    def holds(x: Any, weights: Any) -> bool:
        count = len(weights.shape) - 2
        ones, pads = [1] * count, given.get("pads") or [0] * count
        sizes = zip(x.shape[2:], weights.shape[2:], asked[-count:], strict=True)
        hows = zip(*(given.get(name) or ones for name in ("strides", "dilations")), strict=True)
        more = given.get("output_padding") or [0] * count
        total = [
            step * (size - 1) + extra + (wide - 1) * gap + 1 - wanted
            for (size, wide, wanted), (step, gap), extra in zip(sizes, hows, more, strict=True)
        ]
        return any(max(each + 1, 0) // 2 != begin for each, begin in zip(total, pads, strict=False))

    return bool(asked) and not is_same and seen.may(holds, 0, 1)


def _has_other_scales(seen: Seen) -> bool:
    """Whether scales along an axis are of another size than it."""
    axis = seen.attributes.get("axis", 1)
    return not seen.attributes.get("block_size") and seen.may(
        lambda x, scale: scale.ndim == 1 and scale.size > 1 and scale.size != x.shape[axis], 0, 1
    )


def _passes_over_dilations(seen: Seen) -> bool:
    """Whether a pool that pads by itself, or says that it does not, has gaps in its windows."""
    given = seen.attributes
    return given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"") and any(d > 1 for d in given.get("dilations", ()))


def _vanishes(seen: Seen, axis: int) -> bool:
    """Whether a softmax along the axis has parts that the type holds in less digits than others, or not at all."""

    def holds(x: Any) -> bool:
        wide = x.astype(np.float64)
        finite = np.isfinite(wide)
        most = np.max(wide, axis, keepdims=True, where=finite, initial=-np.inf)
        count = max(x.shape[axis], 1)
        return bool((finite & (most - wide + np.log(count) > -np.log(float(ml_dtypes.finfo(x.dtype).tiny)))).any())

    return seen.may(holds, 0)


def _cuts_blocks(seen: Seen) -> bool:
    """Whether blocks of SpaceToDepth or DepthToSpace do not divide the axes that they are made of."""
    block = seen.attributes["blocksize"]
    if seen.node.op_type == "SpaceToDepth":
        return seen.may(lambda x: any(size % block for size in x.shape[2:]), 0)
    return seen.may(lambda x: bool(x.shape[1] % (block * block)), 0)


def _gathers_nothing(seen: Seen) -> bool:
    """Whether a GatherElements has no indices, and they do not suit what it gathers from."""

    def holds(x: Any, places: Any) -> bool:
        axis = seen.attributes.get("axis", 0)
        if x.ndim != places.ndim or not -x.ndim <= axis < x.ndim:
            return True
        pairs = enumerate(zip(x.shape, places.shape, strict=True))
        return any(size < count for place, (size, count) in pairs if place != axis % x.ndim)

    return seen.may(lambda x, places: not places.size and holds(x, places), 0, 1)


def _gathers_outside(seen: Seen) -> bool:
    """Whether an index of a GatherElements lies outside of the axis, which "is an error"."""

    def holds(x: Any, places: Any) -> bool:
        size = x.shape[seen.attributes.get("axis", 0)] if x.ndim else 0
        return bool(((places < -size) | (places >= size)).any())

    return seen.may(holds, 0, 1)


def _scans_other_lengths(seen: Seen) -> bool:
    """Whether what a Scan goes through is not of one length."""
    count = seen.attributes["num_scan_inputs"]
    places = range(len(seen.node.input) - count, len(seen.node.input))
    axes = seen.attributes.get("scan_input_axes", [0] * count)
    return seen.may(lambda *scanned: len({x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}) > 1, *places)


def _pads_strings(seen: Seen) -> bool:
    return seen.may(lambda x: x.dtype.kind == "O", 0)


def _begins_before(seen: Seen) -> bool:
    """Whether a Slice goes backwards from a place before the first element, for which it is to take that one."""

    def holds(x: Any, starts: Any, axes: Any, steps: Any) -> bool:
        return any(step < 0 and start < -x.shape[axis] for start, axis, step in zip(starts, axes, steps, strict=True))

    if not seen.has(4):
        return False
    if seen.has(3):
        return seen.may(holds, 0, 1, 3, 4)
    return seen.may(lambda x, starts, steps: holds(x, starts, range(len(starts)), steps), 0, 1, 4)


def _misplaces_a_single_element(seen: Seen) -> bool:
    """Whether one element is to be at 0, or in the middle of a region by a scale that f32 rounds."""
    mode = seen.attributes.get("coordinate_transformation_mode")
    if mode not in (b"pytorch_half_pixel", CROP):
        return False
    lengths = [length for _, length, _ in resized_lengths(seen)]
    return not lengths or any(abs(each - 1) < F32_STEP and (mode != CROP or each != 1) for each in lengths)


def _leaves_its_region(seen: Seen) -> bool:
    """Whether a place comes out beyond an edge of the input that a region ends at, as its width is rounded."""
    region, lengths = seen.content(1), resized_lengths(seen)
    if seen.attributes.get("coordinate_transformation_mode") != CROP or region is None:
        return False

    def leaves(before: int, length: float, after: int, begin: Any, end: Any) -> bool:
        steps, last, outputs = float(length) - 1, before - 1, np.arange(after, dtype=np.float64)
        if steps == 0:
            return False
        exact = ((steps - outputs) * float(begin) + outputs * float(end)) * last / steps
        places = outputs * (end - begin) * last / steps + begin * last
        return bool((((places < 0) | (places > last)) != ((exact < 0) | (exact > last))).any())

    ends = region[len(lengths) :]
    return any(leaves(*each, *edges) for each, *edges in zip(lengths, region, ends, strict=False) if each[0])


_OF_REFERENCE: dict[str, Callable[[Seen], str]] = {
    "LayerNormalization": when(
        "its mean has the type of the operand, not that of stash_type, and scales may be larger than the operand",
        lambda s: len(s.node.output) > 1 or has_larger_scale(s),
    ),
    "LpNormalization": when(
        "adds the numbers themselves, not their magnitudes", lambda s: s.attributes.get("p", 2) == 1
    ),
    "RMSNormalization": when("takes scales that are larger than the operand", has_larger_scale),
    "PRelu": when("takes slopes that are larger than the operand", has_larger_scale),
    "TopK": when(
        "finds fewer elements than it is to give",
        lambda s: s.has(1) and s.may(lambda x, k: k.reshape(-1)[0] > x.shape[s.attributes.get("axis", -1)], 0, 1),
    ),
    **dict.fromkeys(("Softmax", "Hardmax"), when("knows the operator as of opset 13 alone", lambda s: s.opset < 13)),
    "LogSoftmax": when(
        "knows the operator as of opset 13 alone, and takes the logarithm of what is too small for its type",
        lambda s: s.opset < 13 or _vanishes(s, s.attributes.get("axis", -1)),
    ),
    "Unique": when(
        "sorts where it should not if one output is asked for, and takes the slices along another axis",
        lambda s: not s.attributes.get("sorted", 1) and ("axis" in s.attributes or len(s.node.output) == 1),
    ),
    "GlobalMaxPool": _always("keeps or drops axes of what is no picture"),
    "LRN": _always("leaves out the last channels"),
    "StringNormalizer": _always("drops accents and empty strings, and minds the case where it should not"),
    "BatchNormalization": when(
        "has what it normalizes in its statistics before opset 14 said that it does not, and takes other channels",
        lambda s: s.opset < 14 or has_other_channels(s),
    ),
    "OptionalGetElement": _always("wraps a sequence into another"),
    "Loop": when(
        "runs no round where no condition is given, and joins what it scans along the first axis, not a new one",
        lambda s: not s.has(1) or len(s.node.output) > max(len(s.node.input) - 2, 0),
    ),
    "MaxUnpool": when("counts indices in the shape of the kernel, not of what was pooled", lambda s: s.has(2)),
    "ConvTranspose": when(
        "adds the bias of the first group to each, takes one of other channels and weights of other shapes than "
        "kernel_shape, and finds no pads from output_shape",
        lambda s: (
            _ignores_output_shape(s)
            or _has_other_kernel(s)
            or (s.has(2) and (s.attributes.get("group", 1) > 1 or s.may(lambda w, c: w.shape[1] != len(c), 1, 2)))
        ),
    ),
    "SplitToSequence": when(
        "cuts where the parts do not make up the axis",
        lambda s: (
            s.has(1)
            and s.may(lambda x, parts: parts.ndim and int(parts.sum()) != x.shape[s.attributes.get("axis", 0)], 0, 1)
        ),
    ),
    "Split": when("cuts where the parts do not make up the axis", _splits_elsewhere),
    "SequenceInsert": when(
        "counts the end as the place before the last",
        lambda s: s.has(2) and s.may(lambda x, place: int(place.reshape(-1)[0]) == len(x), 0, 2),
    ),
    "NegativeLogLikelihoodLoss": when("takes labels of other shapes where there are none", has_other_labels),
    "SoftmaxCrossEntropyLoss": when(
        "takes labels of other shapes where there are none, and the logarithm of what is too small for its type",
        lambda s: has_other_labels(s) or _vanishes(s, 1),
    ),
    **dict.fromkeys(
        ("DepthToSpace", "SpaceToDepth"), when("takes blocks that do not divide nothing into parts", _cuts_blocks)
    ),
    **dict.fromkeys(
        ("CenterCropPad", "Pad", "Trilu"), when("takes the number 0 for the string that fills up", _pads_strings)
    ),
    **dict.fromkeys(
        ("Conv", "ConvInteger", "QLinearConv"),
        when(
            f"{WIDE}, weights of other shapes than kernel_shape, and other counts of scales than of channels",
            lambda s: sticks_out(s) or _has_other_kernel(s) or _has_scales_of_other_channels(s),
        ),
    ),
    "DeformConv": when("takes weights of other shapes than kernel_shape", _has_other_kernel),
    "MaxPool": when(
        f"{WIDE}, rounds the sizes of SAME down, counts indices within a channel, and takes pads for others",
        lambda s: (
            sticks_out(s)
            or _misreads_pads(s)
            or (s.attributes.get("auto_pad", b"").startswith(b"SAME") and _is_strided(s))
            or (len(s.node.output) > 1 and s.node.output[1] in s.read)
        ),
    ),
    **dict.fromkeys(
        ("AveragePool", "LpPool"),
        when(
            f"{WIDE}, passes over NaN and dilations, and rounded up divides a norm by the elements that are there, "
            "and pads in front what is to be behind",
            lambda s: (
                sticks_out(s)
                or _passes_over_dilations(s)
                or _is_padded_up(s)
                or s.may(lambda x: np.isnan(x).any(), 0)
                or (s.node.op_type == "LpPool" and bool(s.attributes.get("ceil_mode")))
            ),
        ),
    ),
    "Attention": when(
        "has capped the products that are asked for as they are",
        lambda s: (
            len(s.node.output) > _SCORES
            and s.attributes.get("softcap", 0) > 0
            and not s.attributes.get("qk_matmul_output_mode", 0)
        ),
    ),
    "Resize": when(
        "takes -0.5 for the place of a single element, which is 0, and rounds the places of others off an edge",
        lambda s: (
            _misplaces_a_single_element(s)
            or _leaves_its_region(s)
            or hangs_on_places(s, F64_STEP, lambda _mode, _scale: True)
        ),
    ),
    "Scan": when("ends with the shortest of what it scans, which is to be of one length", _scans_other_lengths),
    "ReverseSequence": when(
        "takes lengths beyond the last step, and another number of them than of rows",
        lambda s: s.may(
            lambda x, lengths: (
                (lengths > x.shape[s.attributes.get("time_axis", 0)]).any()
                or len(lengths) != x.shape[s.attributes.get("batch_axis", 1)]
            ),
            0,
            1,
        ),
    ),
    "RoiAlign": when(
        "takes another number of pictures than of regions", lambda s: s.may(lambda r, which: len(r) != len(which), 1, 2)
    ),
    "ScatterElements": when(
        "takes updates of other shapes than the indices, and passes over NaN among them",
        lambda s: s.may(lambda i, new: i.shape != new.shape, 1, 2) or looks_through_nan(s, 2),
    ),
    "Shape": when(
        "counts an end before the first size from the last again",
        lambda s: s.may(lambda x: s.attributes.get("end", 0) < -x.ndim, 0),
    ),
    "Slice": when("takes nothing where it begins before the start and goes backwards", _begins_before),
    "TensorScatter": when(
        "takes any number of indices", lambda s: s.has(2) and s.may(lambda x, first: len(first) != len(x), 0, 2)
    ),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), when("takes scales of other sizes", _has_other_scales)),
    "STFT": when(
        "takes windows of other lengths than frames",
        lambda s: s.has(2) and s.has(3) and s.may(lambda window, length: window.size != length.reshape(-1)[0], 2, 3),
    ),
    "GatherElements": when(
        "takes any operands where there are no indices, and wraps those outside",
        lambda s: _gathers_nothing(s) or _gathers_outside(s),
    ),
    "GridSample": when(
        "takes grids of another batch, cuts the weights of integers off, and moves places outside where PyTorch and "
        "ONNX Runtime move each neighbor",
        lambda s: (
            (s.attributes.get("mode") != b"nearest" and s.may(lambda x: x.dtype.kind in "iu", 0))
            or s.may(lambda x, grid: x.shape[0] != grid.shape[0], 0, 1)
            or (s.attributes.get("mode") in (b"bicubic", b"cubic") and s.attributes.get("padding_mode") == b"border")
        ),
    ),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), when("takes other channels", has_other_channels)),
}
