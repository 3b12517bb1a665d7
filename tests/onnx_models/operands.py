"""The nodes of a model with what their operands hold, and what several rules about them look at.

Within bodies that are not branches nothing is known of operands.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import NodeProto, helper

from tests.onnx_models.draw import Value, names_read
from tests.onnx_models.parts import all_nodes, taken

RECURRENT = {"GRU", "LSTM", "RNN"}
Known = Mapping[str, Value]
CROP = b"tf_crop_and_resize"
F32_STEP = 1e-6
F64_STEP = 1e-14
WIDE = "takes windows that stick out"
MOVES = {"Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
NO_AXIS = "takes an axis of a scalar, which has none"


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


def nodes_of(model: onnx.ModelProto, known: Known | None) -> list[Seen]:
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


def reduces_a_scalar(seen: Seen) -> bool:
    """Whether a reduction is along an axis of what has none."""
    op, x = seen.node.op_type, seen.content(0)
    if not (op.startswith("Reduce") or op in ("ArgMax", "ArgMin")) or np.ndim(x) or x is None:
        return False
    axes = seen.attributes.get("axes", seen.content(1))
    return op.startswith("Arg") or (axes is not None and np.size(axes) > 0)


def when(why: str, holds: Callable[[Seen], bool]) -> Callable[[Seen], str]:
    return lambda seen: why if holds(seen) else ""


def sticks_out(seen: Seen) -> bool:
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


def has_larger_scale(seen: Seen) -> bool:
    """Whether slopes have more axes than the operand, or an axis that is neither 1 nor as long."""

    def holds(x: Any, slope: Any) -> bool:
        sizes = zip(x.shape[::-1], slope.shape[::-1], strict=False)
        return slope.ndim > x.ndim or any(one not in (1, size) for size, one in sizes)

    return seen.may(holds, 0, 1)


def has_other_labels(seen: Seen) -> bool:
    """Whether the labels of a loss are not of the shape of the scores without their classes."""
    return seen.may(lambda x, labels: x.shape[:1] + x.shape[2:] != labels.shape, 0, 1)


def has_other_channels(seen: Seen) -> bool:
    """Whether a normalization has not one scale, bias or statistic for each channel, or for each of its groups."""
    count = seen.attributes["num_groups"] if seen.node.op_type == "GroupNormalization" and seen.opset < 21 else None
    places = range(1, len(seen.node.input))

    def holds(x: Any, *others: Any) -> bool:
        return {each.size for each in others} != {count or (x.shape[1] if x.ndim > 1 else 1)}

    return seen.may(holds, 0, *places)


def looks_through_nan(seen: Seen, *places: int) -> bool:
    """Whether a scatter takes the greatest or the least of what has NaN, which then is that."""
    return seen.attributes.get("reduction") in (b"max", b"min") and any(seen.may(has_nan, place) for place in places)


def resized_lengths(seen: Seen) -> list[tuple[int, float | Fraction, int]]:
    """Of each axis of a Resize its size, what the scale makes of it, and the size that this is rounded to.

    That is told by the result, and before there is one by the rounding that the standard asks for.
    """
    x, y, sizes = seen.content(0), seen.result(), seen.content(3)
    scales = seen.attributes.get("scales", seen.content(1 if seen.opset < 11 else 2))
    if x is None or (scales is None and sizes is None):
        return []
    axes = [axis % x.ndim for axis in seen.attributes.get("axes", range(x.ndim))]
    lengths: list[float | Fraction]
    half = 0.0
    if sizes is None:
        lengths = [x.shape[axis] * float(scale) for axis, scale in zip(axes, scales, strict=True)]
    elif (policy := seen.attributes.get("keep_aspect_ratio_policy", b"stretch")) == b"stretch":
        lengths = [float(size) for size in sizes]
    else:
        ratios = [Fraction(int(size), max(x.shape[axis], 1)) for axis, size in zip(axes, sizes, strict=True)]
        lengths = [x.shape[axis] * (min if policy == b"not_larger" else max)(ratios) for axis in axes]
        half = 0.5
    if not all(map(math.isfinite, lengths)):
        return []
    after = [math.floor(length + half) for length in lengths] if y is None else [y.shape[axis] for axis in axes]
    return [(x.shape[axis], *each) for axis, *each in zip(axes, lengths, after, strict=True)]


def hangs_on_places(seen: Seen, step: float, is_exact: Callable[[bytes, float], bool]) -> bool:
    """Whether a place is so close to where the nearest element changes that rounding has it on the edge, or beyond.

    Of a place that is on the edge by the formulas in f64 when that `is_exact`, given the mode and the scale, it is not.
    """
    given = seen.attributes
    mode = given.get("coordinate_transformation_mode", b"half_pixel" if seen.opset > 10 else b"asymmetric")
    if given.get("mode", b"nearest") != b"nearest" or mode == CROP:
        return False
    lengths = resized_lengths(seen)
    is_half = given.get("nearest_mode", b"round").startswith(b"round") and seen.opset > 10

    def is_near(before: int, exact: float | Fraction, after: int) -> bool:
        scale, outputs = float(exact / before), np.arange(after)
        length = scale * before
        if mode == b"asymmetric":
            places = outputs / scale
        elif mode == b"align_corners":
            places = outputs * (before - 1) / (length - 1) if length != 1 else np.zeros(after)
        else:
            moved = before / 2 * (1 - after / length) if mode == b"half_pixel_symmetric" else 0
            places = moved + (outputs + 0.5) / scale - 0.5
        edges = np.rint(places - is_half / 2) + is_half / 2
        apart = np.abs(places - edges)
        return bool(((apart < step * np.maximum(places, before)) & ((apart > 0) | (not is_exact(mode, scale)))).any())

    return not lengths or any(is_near(*each) for each in lengths if each[0] != each[1] and each[0] > 0)


def has_nan(x: Any) -> bool:
    return is_float(x) and bool(np.isnan(x).any())


def is_float(x: Any) -> bool:
    return x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16


def writes_strings(seen: Seen, holds: Callable[[Any], bool]) -> bool:
    """Whether what is such becomes strings."""
    if seen.node.op_type not in ("Cast", "CastLike"):
        return False
    to_strings = seen.attributes.get("to") == onnx.TensorProto.STRING
    is_string = seen.may(lambda like: like.dtype.kind in "OU", 1) if seen.node.op_type == "CastLike" else to_strings
    return is_string and seen.may(holds, 0)


def exceeds(bits: int) -> Callable[[Seen], bool]:
    """Whether an operand holds integers of more bits."""

    def holds(*operands: Any) -> bool:
        integers = [x for x in operands if x.dtype.kind in "iu" and x.size]
        return any(max(int(x.max()), -int(x.min())) > 1 << bits for x in integers)

    return lambda seen: seen.may(holds, *range(len(seen.node.input)))


def scanned(seen: Seen) -> list[tuple[onnx.TypeProto.Tensor, Any]]:
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


def is_special(content: Any) -> bool:
    arrays = content if isinstance(content, list) else [content]
    return any(is_float(a) and not np.isfinite(a).all() for a in arrays if isinstance(a, np.ndarray))
