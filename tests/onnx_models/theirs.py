"""What a peer is known to get wrong, so that it is no judge of what hangs on it: each with what the standard says.

A rule looks at a node and, where it is known, at what its operands hold: within bodies that are not branches it is not.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from capgraph.ir.errors import ShapeError
from onnx import NodeProto, helper

from tests.onnx_models.draw import Value, names_read
from tests.onnx_models.parts import all_nodes, taken

RECURRENT = {"GRU", "LSTM", "RNN"}
_OF_LETTERS = {
    "Equal",
    "RegexFullMatch",
    "StringConcat",
    "StringNormalizer",
    "StringSplit",
    "TfIdfVectorizer",
    "Unique",
}
Known = Mapping[str, Value]
_SMALL_BIAS = 1e-2
_LARGEST_EXPONENT = 88
_CROP = b"tf_crop_and_resize"
_F32_STEP = 1e-6
_SCORES = 3  # which result of Attention they are
_WIDE = "takes windows that stick out"
_NO_AXIS = "takes an axis of a scalar, which has none"


@dataclass(frozen=True)
class Seen:
    """A node, and what it is given in a call."""

    node: NodeProto
    opset: int
    known: Known | None
    attributes: dict[str, Any] = field(default_factory=dict)
    read: frozenset[str] = frozenset()
    """What any node reads, or the model or a body gives."""

    def has(self, place: int) -> bool:
        """Whether there is such an operand."""
        return len(self.node.input) > place and bool(self.node.input[place])

    def content(self, place: int) -> Any:
        """What the operand holds: an array, a list, None where it is not known or not there."""
        if self.known is None or not self.has(place) or self.node.input[place] not in self.known:
            return None
        return self.known[self.node.input[place]].content

    def result(self) -> Any:
        """What the first result holds; None where it is not known."""
        result = self.known.get(self.node.output[0]) if self.known else None
        return result.content if result else None

    def may(self, holds: Callable[..., bool], *places: int) -> bool:
        """Whether `holds` is true of these operands, or may be, as one is not known."""
        contents = [self.content(place) for place in places]
        return any(each is None for each in contents) or bool(holds(*contents))


def reference_is_wrong(model: onnx.ModelProto, known: Known | None = None) -> str:
    """Why onnx's reference evaluator is no judge of the model; empty where it is one."""
    return next((why for node in _seen(model, known) if (why := _reference(node))), "")


def runtime_is_wrong(model: onnx.ModelProto, known: Known | None = None) -> str:
    """Why ONNX Runtime is no judge of the model; empty where it is one."""
    return next((why for node in _seen(model, known) if (why := _runtime(node))), "")


def prefers_reference(model: onnx.ModelProto, known: Known) -> bool:
    """Whether of the two peers only the reference may be right."""
    return bool(runtime_is_wrong(model, known)) and not reference_is_wrong(model, known)


def is_open(model: onnx.ModelProto, known: Known | None = None) -> str:
    """Why the standard leaves open what the model gives; empty where it does not."""
    nodes = _seen(model, known)
    if any(map(_looks_into_strings, nodes)) and any(_writes_strings(node, _is_float) for node in nodes):
        return "nothing says in which digits numbers are written"
    return next((why for node in nodes if (why := _open(node))), "")


def _seen(model: onnx.ModelProto, known: Known | None) -> list[Seen]:
    opset = int(model.opset_import[0].version)
    seen = _with_bodies(model.graph.node, known)
    seen += [(node, None) for function in model.functions for node in all_nodes(function.node)]
    graphs = (model.graph, *(a.g for node, _ in seen for a in node.attribute))
    read = frozenset(each.name for graph in graphs for each in graph.output)
    read = read.union(*(names_read(node) for node, _ in seen))
    return [
        Seen(node, opset, content, {a.name: helper.get_attribute_value(a) for a in node.attribute}, read)
        for node, content in seen
    ]


def _with_bodies(nodes: Iterable[NodeProto], known: Known | None) -> list[tuple[NodeProto, Known | None]]:
    """The nodes and those of their bodies with what is known there; of an If those that are run, where it is known."""
    found: list[tuple[NodeProto, Known | None]] = []
    for node in nodes:
        found.append((node, known))
        if node.op_type == "If" and known is not None and node.input[0] in known:
            found += _with_bodies(taken(node, known[node.input[0]].content).node, known)
        else:
            found += [(each, None) for attribute in node.attribute for each in all_nodes(attribute.g.node)]
    return found


def _reduces_a_scalar(seen: Seen) -> bool:
    """Whether a reduction is along an axis of what has none."""
    op, x = seen.node.op_type, seen.content(0)
    if not (op.startswith("Reduce") or op in ("ArgMax", "ArgMin")) or np.ndim(x) or x is None:
        return False
    axes = seen.attributes.get("axes", seen.content(1))
    return op.startswith("Arg") or (axes is not None and np.size(axes) > 0)


def _reference(seen: Seen) -> str:
    node = seen.node
    if _reduces_a_scalar(seen):
        return _NO_AXIS
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


def _ends_as_it_began(seen: Seen) -> bool:
    """Whether a recurrence goes no step from a state that is given, which is the last one too."""
    along = 1 if seen.attributes.get("layout") else 0

    def holds(x: Any, lengths: Any = None) -> bool:
        return x.shape[along] == 0 or (lengths is not None and 0 in lengths)

    is_given = seen.has(5) or seen.has(6)
    return is_given and seen.may(holds, 0, *([4] if seen.has(4) else []))


def _when(why: str, holds: Callable[[Seen], bool]) -> Callable[[Seen], str]:
    return lambda seen: why if holds(seen) else ""


def _always(why: str) -> Callable[[Seen], str]:
    return lambda _: why


def _size(x: Any) -> int:
    """How many elements a tensor has, or the tensors of a sequence together."""
    return sum(np.size(each) for each in x) if isinstance(x, list) else int(np.size(x))


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


def _sticks_out(seen: Seen) -> bool:
    """Whether a window is larger than the padded tensor that it slides over."""
    given = seen.attributes
    place = {"QLinearConv": 3}.get(seen.node.op_type, 1)
    pads = given.get("pads", ())

    def holds(x: Any, *weights: Any) -> bool:
        kernel = given.get("kernel_shape") or weights[0].shape[2:]
        count = len(kernel)
        reach = [1 + (k - 1) * d for k, d in zip(kernel, given.get("dilations") or [1] * count, strict=True)]
        both = [sum(pads[axis::count]) if pads else 0 for axis in range(count)]
        return any(size + pad < wide for size, pad, wide in zip(x.shape[2:], both, reach, strict=True))

    if given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID", b""):
        return seen.may(lambda x: 0 in x.shape[2:], 0)
    return seen.may(holds, 0) if "kernel_shape" in given else seen.may(holds, 0, place)


def _has_other_kernel(seen: Seen) -> bool:
    """Whether the weights of a convolution are not of the shape that `kernel_shape` says."""
    stated, place = seen.attributes.get("kernel_shape"), 3 if seen.node.op_type == "QLinearConv" else 1
    return bool(stated) and seen.may(lambda weights: weights.shape[2:] != tuple(stated), place)


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


def _gathers_elsewhere(seen: Seen) -> bool:
    count = seen.attributes.get("batch_dims", 0)
    return seen.may(lambda x, places: not x.size or x.shape[:count] != places.shape[:count], 0, 1)


def _has_other_scales(seen: Seen) -> bool:
    """Whether scales along an axis are of another size than it."""
    axis = seen.attributes.get("axis", 1)
    return not seen.attributes.get("block_size") and seen.may(
        lambda x, scale: scale.ndim == 1 and scale.size > 1 and scale.size != x.shape[axis], 0, 1
    )


def _has_larger_scale(seen: Seen) -> bool:
    """Whether slopes have more axes than the operand, or an axis that is neither 1 nor as long."""

    def holds(x: Any, slope: Any) -> bool:
        sizes = zip(x.shape[::-1], slope.shape[::-1], strict=False)
        return slope.ndim > x.ndim or any(one not in (1, size) for size, one in sizes)

    return seen.may(holds, 0, 1)


def _passes_over_dilations(seen: Seen) -> bool:
    """Whether a pool that pads by itself, or says that it does not, has gaps in its windows."""
    given = seen.attributes
    return given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"") and any(d > 1 for d in given.get("dilations", ()))


def _has_other_labels(seen: Seen) -> bool:
    """Whether the labels of a loss are not of the shape of the scores without their classes."""
    return seen.may(lambda x, labels: x.shape[:1] + x.shape[2:] != labels.shape, 0, 1)


def _has_other_channels(seen: Seen) -> bool:
    """Whether a normalization has not one scale, bias or statistic for each channel, or for each of its groups."""
    count = seen.attributes["num_groups"] if seen.node.op_type == "GroupNormalization" and seen.opset < 21 else None
    places = range(1, len(seen.node.input))

    def holds(x: Any, *others: Any) -> bool:
        return {each.size for each in others} != {count or (x.shape[1] if x.ndim > 1 else 1)}

    return seen.may(holds, 0, *places)


def _extends_nothing(seen: Seen) -> bool:
    """Whether a Pad repeats elements along an axis that has none."""
    if seen.attributes.get("mode", b"constant") == b"constant":
        return False

    def holds(x: Any, pads: Any, axes: Any = None) -> bool:
        ends = np.reshape(pads, (2, -1)).max(0)
        along = range(x.ndim) if axes is None else axes
        return any(x.shape[axis] == 0 and most > 0 for axis, most in zip(along, ends, strict=True))

    if seen.opset < 11:
        return seen.may(lambda x: holds(x, seen.attributes["pads"]), 0)
    return seen.may(holds, 0, 1, *([3] if seen.has(3) else []))


def _rotates_odd_heads(seen: Seen) -> bool:
    """Whether what is rotated of a head is not made of pairs."""
    given = seen.attributes
    part = given.get("rotary_embedding_dim", 0)
    heads = max(given.get("num_heads", 0), 1)
    return bool(part % 2) or seen.may(lambda x: not part and x.shape[-1] // (heads if x.ndim == 3 else 1) % 2, 0)


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


def _chooses_beyond(seen: Seen) -> bool:
    """Whether a condition of Compress holds behind the end of the axis."""
    axis = seen.attributes.get("axis")
    return seen.may(lambda x, chosen: chosen[x.size if axis is None else x.shape[axis] :].any(), 0, 1)


def _gathers_nothing(seen: Seen) -> bool:
    """Whether a GatherElements has no indices, and they do not suit what it gathers from."""

    def holds(x: Any, places: Any) -> bool:
        axis = seen.attributes.get("axis", 0)
        if x.ndim != places.ndim or not -x.ndim <= axis < x.ndim:
            return True
        pairs = enumerate(zip(x.shape, places.shape, strict=True))
        return any(size < count for place, (size, count) in pairs if place != axis % x.ndim)

    return seen.may(lambda x, places: not places.size and holds(x, places), 0, 1)


def _pads_strings(seen: Seen) -> bool:
    return seen.may(lambda x: x.dtype.kind == "O", 0)


def _looks_through_nan(seen: Seen, *places: int) -> bool:
    """Whether a scatter takes the greatest or the least of what has NaN, which then is that."""
    return seen.attributes.get("reduction") in (b"max", b"min") and any(seen.may(_has_nan, place) for place in places)


def _begins_before(seen: Seen) -> bool:
    """Whether a Slice goes backwards from a place before the first element, for which it is to take that one."""

    def holds(x: Any, starts: Any, axes: Any, steps: Any) -> bool:
        return any(step < 0 and start < -x.shape[axis] for start, axis, step in zip(starts, axes, steps, strict=True))

    if not seen.has(4):
        return False
    if seen.has(3):
        return seen.may(holds, 0, 1, 3, 4)
    return seen.may(lambda x, starts, steps: holds(x, starts, range(len(starts)), steps), 0, 1, 4)


def _lengths(seen: Seen) -> list[tuple[int, float, int]]:
    """Of each axis of a Resize its size, what the scale makes of it, and the size that this is rounded to."""
    x, y, sizes = seen.content(0), seen.result(), seen.content(3)
    scales = seen.attributes.get("scales", seen.content(1 if seen.opset < 11 else 2))
    if x is None or y is None or (scales is None and sizes is None):
        return []
    axes = [axis % x.ndim for axis in seen.attributes.get("axes", range(x.ndim))]
    if sizes is None:
        lengths = [x.shape[axis] * float(scale) for axis, scale in zip(axes, scales, strict=True)]
    elif (policy := seen.attributes.get("keep_aspect_ratio_policy", b"stretch")) == b"stretch":
        lengths = [float(size) for size in sizes]
    else:
        ratios = [size / max(x.shape[axis], 1) for axis, size in zip(axes, sizes, strict=True)]
        lengths = [x.shape[axis] * (min if policy == b"not_larger" else max)(ratios) for axis in axes]
    return [(x.shape[axis], length, y.shape[axis]) for axis, length in zip(axes, lengths, strict=True)]


def _has_single_element(seen: Seen) -> bool:
    lengths = _lengths(seen)
    return not lengths or any(abs(length - 1) < _F32_STEP for _, length, _ in lengths)


def _goes_by_size(seen: Seen) -> bool:
    """Whether a Resize makes a part of an element more, by which the others are placed."""
    mode, lengths = seen.attributes.get("coordinate_transformation_mode"), _lengths(seen)
    parts = [(before, after) for before, length, after in lengths if abs(length - after) > _F32_STEP * after]
    if mode in (b"align_corners", _CROP):
        return bool(parts) or not lengths
    is_one = mode == b"pytorch_half_pixel"
    return (is_one and not lengths) or any(before == after or (is_one and after == 1) for before, after in parts)


def _crops_what_stays(seen: Seen) -> bool:
    """Whether a Resize has a region along an axis whose size stays."""
    if seen.attributes.get("coordinate_transformation_mode") != _CROP:
        return False
    lengths, roi = _lengths(seen), seen.content(1)
    if not lengths or roi is None or roi.size != 2 * len(lengths):
        return True
    regions = zip(lengths, roi, roi[len(lengths) :], strict=False)
    return any(before == after and (begin, end) != (0, 1) for (before, _, after), begin, end in regions)


_OF_REFERENCE: dict[str, Callable[[Seen], str]] = {
    "LayerNormalization": _when(
        "its mean has the type of the operand, not that of stash_type, and scales may be larger than the operand",
        lambda s: len(s.node.output) > 1 or _has_larger_scale(s),
    ),
    "LpNormalization": _when(
        "adds the numbers themselves, not their magnitudes", lambda s: s.attributes.get("p", 2) == 1
    ),
    "RMSNormalization": _when("takes scales that are larger than the operand", _has_larger_scale),
    "PRelu": _when("takes slopes that are larger than the operand", _has_larger_scale),
    "TopK": _when(
        "finds fewer elements than it is to give",
        lambda s: s.has(1) and s.may(lambda x, k: k.reshape(-1)[0] > x.shape[s.attributes.get("axis", -1)], 0, 1),
    ),
    **dict.fromkeys(("Softmax", "Hardmax"), _when("knows the operator as of opset 13 alone", lambda s: s.opset < 13)),
    "LogSoftmax": _when(
        "knows the operator as of opset 13 alone, and takes the logarithm of what is too small for its type",
        lambda s: s.opset < 13 or _vanishes(s, s.attributes.get("axis", -1)),
    ),
    "Unique": _when(
        "sorts where it should not if one output is asked for, and takes the slices along another axis",
        lambda s: not s.attributes.get("sorted", 1) and ("axis" in s.attributes or len(s.node.output) == 1),
    ),
    "GlobalMaxPool": _always("keeps or drops axes of what is no picture"),
    "LRN": _always("leaves out the last channels"),
    "StringNormalizer": _always("drops accents and empty strings, and minds the case where it should not"),
    "BatchNormalization": _when(
        "has what it normalizes in its statistics before opset 14 said that it does not, and takes other channels",
        lambda s: s.opset < 14 or _has_other_channels(s),
    ),
    "OptionalGetElement": _always("wraps a sequence into another"),
    "Loop": _when(
        "runs no round where no condition is given, and joins what it scans along the first axis, not a new one",
        lambda s: not s.has(1) or len(s.node.output) > max(len(s.node.input) - 2, 0),
    ),
    "MaxUnpool": _when("counts indices in the shape of the kernel, not of what was pooled", lambda s: s.has(2)),
    "ConvTranspose": _when(
        "adds the bias of the first group to each, takes one of other channels and weights of other shapes than "
        "kernel_shape, and finds no pads from output_shape",
        lambda s: (
            _ignores_output_shape(s)
            or _has_other_kernel(s)
            or (s.has(2) and (s.attributes.get("group", 1) > 1 or s.may(lambda w, c: w.shape[1] != len(c), 1, 2)))
        ),
    ),
    "SplitToSequence": _when(
        "cuts where the parts do not make up the axis",
        lambda s: (
            s.has(1)
            and s.may(lambda x, parts: parts.ndim and int(parts.sum()) != x.shape[s.attributes.get("axis", 0)], 0, 1)
        ),
    ),
    "Split": _when("cuts where the parts do not make up the axis", _splits_elsewhere),
    "SequenceInsert": _when(
        "counts the end as the place before the last",
        lambda s: s.has(2) and s.may(lambda x, place: int(place.reshape(-1)[0]) == len(x), 0, 2),
    ),
    "NegativeLogLikelihoodLoss": _when("takes labels of other shapes where there are none", _has_other_labels),
    "SoftmaxCrossEntropyLoss": _when(
        "takes labels of other shapes where there are none, and the logarithm of what is too small for its type",
        lambda s: _has_other_labels(s) or _vanishes(s, 1),
    ),
    **dict.fromkeys(
        ("DepthToSpace", "SpaceToDepth"), _when("takes blocks that do not divide nothing into parts", _cuts_blocks)
    ),
    "CenterCropPad": _when("pads strings with the number 0", _pads_strings),
    "Pad": _when("pads strings with the number 0", _pads_strings),
    **dict.fromkeys(
        ("Conv", "ConvInteger", "QLinearConv"),
        _when(
            f"{_WIDE}, and weights of other shapes than kernel_shape",
            lambda s: _sticks_out(s) or _has_other_kernel(s),
        ),
    ),
    "DeformConv": _when("takes weights of other shapes than kernel_shape", _has_other_kernel),
    "MaxPool": _when(
        f"{_WIDE}, rounds the sizes of SAME down, counts indices within a channel, and takes pads for others",
        lambda s: (
            _sticks_out(s)
            or _misreads_pads(s)
            or (s.attributes.get("auto_pad", b"").startswith(b"SAME") and _is_strided(s))
            or (len(s.node.output) > 1 and s.node.output[1] in s.read)
        ),
    ),
    **dict.fromkeys(
        ("AveragePool", "LpPool"),
        _when(
            f"{_WIDE}, passes over NaN and dilations, and rounded up divides a norm by the elements that are there, "
            "and pads in front what is to be behind",
            lambda s: (
                _sticks_out(s)
                or _passes_over_dilations(s)
                or _is_padded_up(s)
                or s.may(lambda x: np.isnan(x).any(), 0)
                or (s.node.op_type == "LpPool" and bool(s.attributes.get("ceil_mode")))
            ),
        ),
    ),
    "Attention": _when(
        "has capped the products that are asked for as they are",
        lambda s: (
            len(s.node.output) > _SCORES
            and s.attributes.get("softcap", 0) > 0
            and not s.attributes.get("qk_matmul_output_mode", 0)
        ),
    ),
    "Resize": _when(
        "takes -0.5 for the place of a single element, which is 0",
        lambda s: (
            s.attributes.get("coordinate_transformation_mode") == b"pytorch_half_pixel" and _has_single_element(s)
        ),
    ),
    "ReverseSequence": _when(
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
    "RoiAlign": _when(
        "takes another number of pictures than of regions", lambda s: s.may(lambda r, which: len(r) != len(which), 1, 2)
    ),
    "ScatterElements": _when(
        "takes updates of other shapes than the indices, and passes over NaN among them",
        lambda s: s.may(lambda i, new: i.shape != new.shape, 1, 2) or _looks_through_nan(s, 2),
    ),
    "Shape": _when(
        "counts an end before the first size from the last again",
        lambda s: s.may(lambda x: s.attributes.get("end", 0) < -x.ndim, 0),
    ),
    "Slice": _when("takes nothing where it begins before the start and goes backwards", _begins_before),
    "TensorScatter": _when(
        "takes any number of indices", lambda s: s.has(2) and s.may(lambda x, first: len(first) != len(x), 0, 2)
    ),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _when("takes scales of other sizes", _has_other_scales)),
    "STFT": _when(
        "takes windows of other lengths than frames",
        lambda s: s.has(2) and s.has(3) and s.may(lambda window, length: window.size != length.reshape(-1)[0], 2, 3),
    ),
    "GatherElements": _when("takes any operands where there are no indices", _gathers_nothing),
    "GridSample": _when(
        "takes grids of another batch, and moves places outside where PyTorch and ONNX Runtime move each neighbor",
        lambda s: (
            s.may(lambda x, grid: x.shape[0] != grid.shape[0], 0, 1)
            or (s.attributes.get("mode") in (b"bicubic", b"cubic") and s.attributes.get("padding_mode") == b"border")
        ),
    ),
    **dict.fromkeys(
        ("GroupNormalization", "InstanceNormalization"), _when("takes other channels", _has_other_channels)
    ),
}


def _runtime(seen: Seen) -> str:
    if _reduces_a_scalar(seen):
        return _NO_AXIS
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
    """Whether earlier keys or values are of other lengths than those that come."""
    heads = seen.attributes.get("kv_num_heads", 1)

    def holds(new: Any, past: Any) -> bool:
        return new.shape[-1] != past.shape[-1] * (heads if new.ndim == 3 else 1)

    return any(seen.has(place + 3) and seen.may(holds, place, place + 3) for place in (1, 2))


def _has_nothing_or_nan(x: Any) -> bool:
    return not x.size or _has_nan(x)


def _has_nan(x: Any) -> bool:
    return _is_float(x) and bool(np.isnan(x).any())


def _is_float(x: Any) -> bool:
    return x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16


def _writes_strings(seen: Seen, holds: Callable[[Any], bool]) -> bool:
    """Whether what is such becomes strings."""
    if seen.node.op_type not in ("Cast", "CastLike"):
        return False
    to_strings = seen.attributes.get("to") == onnx.TensorProto.STRING
    is_string = seen.may(lambda like: like.dtype.kind in "OU", 1) if seen.node.op_type == "CastLike" else to_strings
    return is_string and seen.may(holds, 0)


def _looks_into_strings(seen: Seen) -> bool:
    """Whether a result hangs on the letters of strings."""
    return seen.node.op_type in _OF_LETTERS and seen.may(lambda x: x.dtype.kind in "OU", 0)


def _exceeds(bits: int) -> Callable[[Seen], bool]:
    """Whether an operand holds integers of more bits."""

    def holds(*operands: Any) -> bool:
        integers = [x for x in operands if x.dtype.kind in "iu" and x.size]
        return any(max(int(x.max()), -int(x.min())) > 1 << bits for x in integers)

    return lambda seen: seen.may(holds, *range(len(seen.node.input)))


def _has_no_labels(seen: Seen) -> bool:
    return seen.may(lambda labels: not labels.size, 1)


def _has_empty_kernel(seen: Seen) -> bool:
    place = {"ConvInteger": 1, "QLinearConv": 3}.get(seen.node.op_type)
    return place is not None and seen.may(lambda kernel: not kernel.size, place)


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


def _saturates(left: int, right: int) -> Callable[[Seen], str]:
    """A rule for products of u8 on the left of its kernel by i8 on the right."""
    return _when(
        "adds two products in 16 bits, where the processor has no VNNI, and reads outside of a kernel without elements",
        lambda s: s.may(
            lambda x, w: not x.size or not w.size or (x.dtype, w.dtype) == (np.uint8, np.int8), left, right
        ),
    )


def _multiplies_nothing(left: int, right: int) -> Callable[[Seen], str]:
    return _when(
        "passes over what does not broadcast where nothing is summed",
        lambda s: s.may(lambda x, y: not x.size or not y.size, left, right),
    )


def _product(left: int, right: int) -> Callable[[Seen], str]:
    """The rules for a product of matrices of bytes."""
    rules = _multiplies_nothing(left, right), _saturates(left, right)
    return lambda seen: next((why for rule in rules if (why := rule(seen))), "")


def _scanned(seen: Seen) -> list[tuple[onnx.TypeProto.Tensor, Any]]:
    """What a Loop or Scan gathers of its rounds: the type in the body, and what it is where that is known."""
    node, known = seen.node, seen.known or {}
    given = seen.attributes.get("num_scan_inputs", 2)  # a loop has a count and a condition
    first = max(len(node.input) - given, 0)
    infos = seen.attributes["body"].output[first + (node.op_type == "Loop") :]
    names = node.output[first:]
    return [
        (info.type.tensor_type, known[name].content if name in known else None)
        for info, name in zip(infos, names, strict=False)
    ]


def _scans_strings(seen: Seen) -> bool:
    return any(
        ty.elem_type == onnx.TensorProto.STRING and (each is None or len(each) > 1) for ty, each in _scanned(seen)
    )


_OF_RUNTIME: dict[str, Callable[[Seen], str]] = {
    "ConvTranspose": _when(
        "cuts no borders off where a stride is wider than the kernel",
        lambda s: s.attributes.get("auto_pad", b"").startswith(b"SAME") or _is_wider(s),
    ),
    "Resize": _when(
        "goes by the rounded size, and passes over the region along an axis whose size stays",
        lambda s: _goes_by_size(s) or _crops_what_stays(s),
    ),
    "Upsample": _when("passes over a scale that leaves a size as it is", _goes_by_size),
    "GatherND": _when("passes over indices into nothing, and over batches of other sizes", _gathers_elsewhere),
    **dict.fromkeys(("ArgMax", "ArgMin"), _when("finds a place in nothing", lambda s: s.may(lambda x: not x.size, 0))),
    "MaxUnpool": _when("takes indices for those of the shape that is asked for", lambda s: s.has(2)),
    "Compress": _when("passes over conditions that hold behind the end of the axis", _chooses_beyond),
    "GroupNormalization": _when("takes other channels", _has_other_channels),
    "Pad": _when("takes nothing where pads of both signs cancel", _extends_nothing),
    "RotaryEmbedding": _when("leaves out the last of an odd number", _rotates_odd_heads),
    "Concat": _when("takes empty tensors of any shape", _concatenates_empty),
    "ConcatFromSequence": _when("takes empty tensors of any shape", _concatenates_empty),
    "NonZero": _when(
        "gives a row for a scalar, for which the standard has none", lambda s: s.may(lambda x: not x.ndim, 0)
    ),
    "SplitToSequence": _when(
        "drops the axis where the sizes are given, with which keepdims is to be passed over",
        lambda s: s.has(1) and not s.attributes.get("keepdims", 1),
    ),
    "Gather": _when(
        "copies one string of each slice",
        lambda s: s.may(lambda x: x.dtype.kind == "O" and x.ndim > 1, 0),
    ),
    **dict.fromkeys(
        ("AveragePool", "LpPool", "MaxPool"),
        _when(_WIDE, lambda s: not s.attributes.get("ceil_mode") and _sticks_out(s)),
    ),
    **dict.fromkeys(
        ("Cast", "CastLike"),
        _when("writes 0 and 1 for False and True", lambda s: _writes_strings(s, lambda x: x.dtype == np.bool_)),
    ),
    "PRelu": _when("takes slopes that are larger than the operand", _has_larger_scale),
    "Gemm": _when("leaves beta out where nothing is summed", lambda s: s.may(lambda x: not x.size, 0)),
    "MatMul": _multiplies_nothing(0, 1),
    "Loop": _when("gives the strings of the first round alone", _scans_strings),
    **dict.fromkeys(
        RECURRENT,
        _when(
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
        _when("gives nothing, or 0, where it reduces nothing", lambda s: s.may(lambda x: not x.size, 0)),
    ),
    **dict.fromkeys(
        ("ReduceMax", "ReduceMin"),
        _when("passes over NaN, as over nothing", lambda s: s.may(_has_nothing_or_nan, 0)),
    ),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _when("passes over NaN", lambda s: _looks_through_nan(s, 0, 2))),
    "BatchNormalization": _when(
        "writes the running statistics over its operands", lambda s: bool(s.attributes.get("training_mode"))
    ),
    "NegativeLogLikelihoodLoss": _when(
        "gives 0 for the mean of nothing, and takes fewer labels", lambda s: _has_no_labels(s) or _has_other_labels(s)
    ),
    "SoftmaxCrossEntropyLoss": _when(
        "gives 0 for the mean of nothing, takes fewer labels, and gives numbers for scores that are none",
        lambda s: _has_no_labels(s) or _has_other_labels(s) or s.may(_is_special, 0),
    ),
    "Clip": _when(
        "takes the greatest number for a bound that is not there",
        lambda s: s.opset >= 11 and not (s.has(1) and s.has(2)) and s.may(_is_special, 0),
    ),
    "LRN": _when(
        "adds squares that come and takes off those that go, which without a bias is all that there is",
        lambda s: abs(s.attributes.get("bias", 1.0)) < _SMALL_BIAS,
    ),
    "Mod": _when("divides in f64", lambda s: bool(s.attributes.get("fmod")) and _exceeds(53)(s)),
    "Shrink": _when("computes in f32", _exceeds(24)),
    "RoiAlign": _when("reads outside of an empty picture", lambda s: s.may(lambda x: not x.size, 0)),
    "StringSplit": _when(
        "has no part of an empty string, where there is one that is empty",
        lambda s: "delimiter" in s.attributes and s.may(lambda x: "" in x.ravel().tolist(), 0),
    ),
    "Attention": _when(
        "takes queries, keys and what went before of different lengths, and other values than keys",
        lambda s: _lacks_kernel_of_heads(s) or _has_other_past(s) or _has_other_values(s),
    ),
    "ConvInteger": _saturates(1, 0),
    "MatMulInteger": _product(0, 1),
    "QLinearConv": _saturates(0, 3),
    "QLinearMatMul": _product(0, 3),
}


THROUGH_FLOATS = {"Gemm", "Mean", "Pow", "Einsum", "CumSum", "Resize", "Upsample"}
"""Of integers one peer or the other computes these in floats, which saturate; reductions, too."""


def is_inexact(model: onnx.ModelProto, known: Known | None = None, told: str = "integers") -> bool:
    """Whether a single peer is no judge of integers; of what they become then only if a float does not hold them."""
    return any(
        (seen.node.op_type in THROUGH_FLOATS or seen.node.op_type.startswith("Reduce"))
        and seen.may(lambda x: x.dtype.kind in "iu", 0)
        and (told == "integers" or _exceeds(24)(seen))
        for seen in _seen(model, known)
    )


UNORDERED = {
    "DFT",
    "STFT",
    "GridSample",
    "Resize",
    "RoiAlign",
    "Det",
    "GRU",
    "LSTM",
    "RNN",
    "Attention",
    "Upsample",
    "LRN",
    "DeformConv",
    "DynamicQuantizeLinear",
    "QuantizeLinear",
    "MaxPool",
    "MaxRoiPool",
    "GlobalMaxPool",
    "Hardmax",
    "TopK",
    "Unique",
    "ArgMax",
    "ArgMin",
}
"""What NaN and infinities become in these hangs on the order of sums and of comparisons."""


WINDOWS = {"BlackmanWindow", "HammingWindow", "HannWindow"}
STASHED = {"GroupNormalization", "LayerNormalization", "RMSNormalization"}


def lacks_kernel(error: Any) -> bool:
    """Whether ONNX Runtime does not run a file, as its pools need opset 22, from which on it has no such operator."""
    return "NOT_IMPLEMENTED" in str(error) and any(f"{op}(22)" in str(error) for op in ("RoiAlign", "MaxRoiPool"))


def refuses_values(error: Any) -> bool:
    """Whether ONNX Runtime finds a call wrong, and does not just lack a kernel: then it may be refused by us too."""
    return isinstance(error, Exception) and "NOT_IMPLEMENTED" not in str(error)


_NEVER_EQUAL = re.compile(r"broadcast sizes must be equal or 1: (.+) and (.+) differ")


def is_a_limit(error: Any) -> bool:
    """Whether a model is refused for sizes that always differ, though one of them may be 1: docs/onnx.md says so."""
    told = _NEVER_EQUAL.search(str(error)) if isinstance(error, ShapeError) else None
    return told is not None and not all(each.isdigit() for each in told.groups())


def _open(seen: Seen) -> str:
    op = seen.node.op_type
    if op in UNORDERED or (op in ("Softmax", "LogSoftmax") and seen.opset < 13):
        places = range(len(seen.node.input))
        if any(seen.has(place) and seen.may(_is_special, place) for place in places):
            return "NaN and infinities hang on an order here"
    if op == "MaxPool" and set(seen.attributes.get("dilations", ())) - {1} and any(seen.attributes.get("pads", ())):
        return "windows may see nothing but padding"
    if op in ("Loop", "Scan") and _has_unknown_sizes(seen):
        return "sizes of what no round gave"
    if op in WINDOWS and seen.attributes.get("output_datatype") == onnx.TensorProto.DOUBLE:
        return "the standard's own function computes it in f32"
    if op in STASHED and seen.attributes.get("stash_type", 1) == 1 and seen.may(lambda x: x.dtype == np.float64, 0):
        return "doubles go through f32 by the standard, and not in either peer"
    if op == "STFT" and seen.attributes.get("onesided", 1) and seen.may(lambda x: x.shape[-1] == 2, 0):
        return "half of the spectrum of complex signals"
    if op == "Resize" and seen.attributes.get("coordinate_transformation_mode") == _CROP:
        return "" if seen.has(1) and seen.may(lambda roi: roi.size > 0, 1) else "the region to crop is not given"
    return ""


def _has_unknown_sizes(seen: Seen) -> bool:
    """Whether a result of a Loop or Scan that ran no round has sizes of 0, which stand for those that nothing tells.

    Of a body whose output has no rank they may be missing as a whole.
    """
    return any(
        each is not None and not len(each) and (not ty.HasField("shape") or 0 in each.shape[1:])
        for ty, each in _scanned(seen)
    )


def _is_special(content: Any) -> bool:
    arrays = content if isinstance(content, list) else [content]
    return any(_is_float(a) and not np.isfinite(a).all() for a in arrays if isinstance(a, np.ndarray))
