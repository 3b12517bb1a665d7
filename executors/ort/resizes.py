"""Where ONNX Runtime resizes to other numbers: found beside onnx's reference over random sizes and scales.

It computes positions in f32. Where one lies between two elements, or on the one where the floor begins, mode nearest
then picks another than the standard in f64. Scales of few binary digits are exact in both. It goes by the size of a
result even where a scale made a part of an element more, and passes over a region along axes whose size stays. Scales
that a call tells are looked at behind it: a session gives them with the sizes (`with_sizes_told`).
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from ...ir.analysis import input_symbols
from ...ir.analysis.contents import constant_of
from ...ir.builder import Emitter
from ...ir.constant import Array
from ...ir.dims import Dim, Truth, compare, evaluate, symbols
from ...ir.graph import Graph, Node, Value
from ...ir.ops.known import DYNAMIC_RESIZE, RESIZE
from ...ir.ops.nn.resize import ResampledAxis, positions, resize_targets
from ...ir.types import TensorType

_EXACT_BITS = 64.0  # a scale with at most six binary digits after the point
_MOST_THAT_KEEPS = 1.5  # times 2 is 3; any scale below 2 makes one element of one
_F32_STEPS = 1e-6  # some of f32's relative errors


ROUNDED = "ONNX Runtime rounds positions that lie between two elements to f32"
BY_SIZE = "ONNX Runtime goes by the rounded size, not by the scale"
_CROP = "tf_crop_and_resize"


def resizes_to_watch(graph: Graph) -> dict[Node, list[tuple[Dim, Dim]]]:
    """The nodes that a call may make wrong, each with the open sizes that it changes, before and after."""
    known = frozenset(input_symbols(graph))
    found = {node: _open_sizes(node) for node in graph.nodes if node.op is RESIZE}
    return {
        node: pairs
        for node, pairs in found.items()
        if pairs and all(symbols(dim) <= known for pair in pairs for dim in pair)
    }


def _open_sizes(node: Node) -> list[tuple[Dim, Dim]]:
    pairs = [(_shape(node, 0)[axis], node.outputs[0].tensor.dims[axis]) for axis in node.attrs["axes"]]
    scales = node.attrs["scales"]
    if scales is not None and _is_centered(node):
        return [pair for pair, scale in zip(pairs, scales, strict=True) if symbols(pair[0]) and not _is_whole(scale)]
    if node.attrs["mode"] != "nearest" or scales is not None or not _is_asymmetric(node):
        return []  # not in a session, or right at all sizes
    return [pair for pair in pairs if any(map(symbols, pair)) and not _is_multiple(*pair)]


def wrong_ones(
    resizes: Mapping[Node, Sequence[tuple[Dim, Dim]]], sizes: Mapping[str, int]
) -> list[tuple[list[Node], str]]:
    """Those of `resizes` that ONNX Runtime gets wrong at `sizes`, by what it does wrong there."""
    wrong = [
        node
        for node, pairs in resizes.items()
        if not all(_is_right_told(node, evaluate(old, sizes), evaluate(new, sizes)) for old, new in pairs)
    ]
    by_size = [node for node in wrong if node.attrs["scales"] is not None]
    return [(by_size, BY_SIZE), ([node for node in wrong if node not in by_size], ROUNDED)]


def _is_right_told(node: Node, before: int, after: int) -> bool:
    """Whether sizes of a call are right; one element that is left is, where each scale makes just one."""
    if not _is_centered(node) or node.attrs["scales"] is None:
        return _is_right_at(node, before, after, None)
    return after != 1 or all(before * float(scale) == 1 for scale in node.attrs["scales"])


def resize_fault(node: Node) -> str:
    """What ONNX Runtime does wrong at a resize; empty when nothing is known."""
    return _rounded_length(node) or _uncropped(node) or _rounded_size(node) or _between_elements(node)


def _scales(node: Node) -> Sequence[float | Fraction] | None:
    """The scale of each axis that places elements, NaN where only running tells it; None where the sizes are all."""
    attrs, shape = node.attrs, _shape(node, 0)
    if node.op is DYNAMIC_RESIZE:
        is_of_sizes = node.inputs[2] is None and attrs["policy"] == "stretch"
        return None if is_of_sizes else [math.nan] * len(attrs["axes"])
    if attrs["policy"] == "stretch":
        return attrs["scales"]  # type: ignore[no-any-return]
    before = [dim for axis in attrs["axes"] if isinstance(dim := shape[axis], int)]
    sizes = [dim for dim in attrs["sizes"] if isinstance(dim, int)]
    if not len(before) == len(sizes) == len(attrs["axes"]):
        return [math.nan] * len(attrs["axes"])
    return resize_targets(before, range(len(before)), sizes, None, attrs)[2]


def _rounded_length(node: Node) -> str:
    """The last element lies at the end of the input, or of a region, only where a scale makes a whole size."""
    scales = _scales(node)
    if node.attrs["coordinate_mode"] not in ("align_corners", _CROP) or scales is None:
        return ""
    sizes = [_shape(node, 0)[axis] for axis in node.attrs["axes"]]
    return "" if all(map(_makes_whole, sizes, scales)) else BY_SIZE


def _uncropped(node: Node) -> str:
    """A region along an axis whose size stays, or may stay, as it is."""
    if node.attrs["coordinate_mode"] != _CROP:
        return ""
    count, region = len(node.attrs["axes"]), constant_of(node.inputs[1])
    for order, axis in enumerate(node.attrs["axes"]):
        is_whole = region is not None and (region.array[order], region.array[count + order]) == (0, 1)
        if not is_whole and compare(_shape(node, 0)[axis], node.outputs[0].tensor.dims[axis]) is not Truth.NO:
            return "ONNX Runtime passes over the region along an axis whose size stays"
    return ""


def _is_whole(scale: float | Fraction) -> bool:
    return float(scale).is_integer()


def _makes_whole(size: Dim, scale: float | Fraction) -> bool:
    return _is_whole(scale) or (isinstance(size, int) and (size * float(scale)).is_integer())


def _rounded_size(node: Node) -> str:
    """A scale that leaves a size as it is moves elements, and one that leaves one element says where it is from.

    Of an open size a scale just above 1 may leave it, and one that f32 rounds may make another size.
    """
    scales = _scales(node)
    if scales is None:
        return ""
    is_centered = _is_centered(node)
    if node.op is DYNAMIC_RESIZE:
        return BY_SIZE if is_centered or node.attrs["antialias"] else ""
    for axis, scale in zip(node.attrs["axes"], scales, strict=True):
        before, after = _shape(node, 0)[axis], node.outputs[0].tensor.dims[axis]
        is_open = bool(symbols(before)) and (1 < scale < _MOST_THAT_KEEPS or float(np.float32(scale)) != scale)
        is_kept = before == after and scale != 1
        if is_open or is_kept or (is_centered and after == 1 and not _makes_whole(before, scale)):
            return BY_SIZE
    return ""


def is_by_told_scales(node: Node) -> bool:
    """Whether a resize is right but for scales other than 1 that leave every size as it is: a session copies then."""
    return node.op is DYNAMIC_RESIZE and node.inputs[2] is not None and not resize_fault(node)


def with_sizes_told(graph: Graph) -> tuple[Graph, list[Node]]:
    """`graph`, or a copy with three more outputs for each node of such: its scales, and the sizes before and after."""
    if not any(map(is_by_told_scales, graph.nodes)):
        return graph, []
    copy = graph.clone()
    nodes, emit = [node for node in copy.nodes if is_by_told_scales(node)], Emitter(copy)
    told: list[Value] = []
    for node in nodes:
        x, scales = node.inputs[0], node.inputs[2]
        assert x is not None
        assert scales is not None
        told += [scales, emit.op("shape", x), emit.op("shape", node.output)]
    taken = {*copy.output_names, *(value.name for value in copy.values)}
    names = [name for at in range(len(taken) + len(told)) if (name := f"told_{at}") not in taken]
    copy.set_outputs([*copy.outputs, *told], [*copy.output_names, *names[: len(told)]])
    return copy, nodes


def keeps_sizes(scales: Array, before: Array, after: Array) -> bool:
    """Whether scales are others than 1, and leave every size as it is."""
    return bool((scales != 1).any() and (before == after).all())


def _between_elements(node: Node) -> str:
    if node.attrs["mode"] != "nearest":
        return ""
    if node.attrs["coordinate_mode"] == _CROP:
        is_right = False
    elif node.op is DYNAMIC_RESIZE:
        is_right = node.inputs[3] is not None and _is_asymmetric(node)
    else:
        scales = _scales(node) or (None,) * len(node.attrs["axes"])
        is_right = all(_is_right(node, axis, scale) for axis, scale in zip(node.attrs["axes"], scales, strict=True))
    return "" if is_right else ROUNDED


def _is_right(node: Node, axis: int, given: float | Fraction | None) -> bool:
    before, after = _shape(node, 0)[axis], node.outputs[0].tensor.dims[axis]
    if not isinstance(before, int) or not isinstance(after, int):
        if given is None:
            return _is_multiple(before, after) or _is_asymmetric(node)
        return _is_exact(given) and (not _is_symmetric(node) or float(given).is_integer())
    return _is_right_at(node, before, after, given)


def _is_right_at(node: Node, before: int, after: int, given: float | Fraction | None) -> bool:
    if not before or not after:
        return True
    scale = Fraction(after, before) if given is None else given
    if scale == 0 or (_is_exact(scale) and (not _is_symmetric(node) or before * float(scale) == after)):
        return True
    at = positions(ResampledAxis(before, after, scale), node.attrs["coordinate_mode"])
    shift = 0.5 if node.attrs["nearest_mode"].startswith("round") else 0.0
    distance = np.abs(at - shift - np.round(at - shift))
    if _is_symmetric(node):
        return bool((distance > _F32_STEPS * (before + 2)).all())
    return bool(((distance > _F32_STEPS * (np.abs(at) + 2)) | ((at == 0) & (shift == 0))).all())


def _is_asymmetric(node: Node) -> bool:
    """Whether positions are as those of feature pyramids, whose open sizes stay with it until a call shows a fault."""
    return bool(node.attrs["coordinate_mode"] == "asymmetric")


def _is_centered(node: Node) -> bool:
    """Whether a single element that is left is the first one, which ONNX Runtime goes by the rounded size for."""
    return bool(node.attrs["coordinate_mode"] == "pytorch_half_pixel")


def _is_symmetric(node: Node) -> bool:
    """Whether elements move by what rounding a size makes of it, which ONNX Runtime computes in f32."""
    return bool(node.attrs["coordinate_mode"] == "half_pixel_symmetric")


def _is_exact(scale: float | Fraction) -> bool:
    return (float(scale) * _EXACT_BITS).is_integer()


def _is_multiple(before: Dim, after: Dim) -> bool:
    """Whether an open size grows by a whole factor."""
    factor = after // before if before != 0 else 0
    return isinstance(factor, int) and factor > 0 and after == before * factor


def _shape(node: Node, index: int) -> tuple[Dim, ...]:
    ty = node.operands[index].type
    return ty.dims if isinstance(ty, TensorType) else ()
