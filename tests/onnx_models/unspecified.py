"""What has no judge: what the standard leaves open, and integers that a single peer computes in floats."""

from functools import partial
from typing import Any

import numpy as np
import onnx

from tests.onnx_models.operands import (
    CROP,
    Known,
    Seen,
    exceeds,
    is_float,
    is_special,
    nodes_of,
    scanned,
    writes_strings,
)

_OF_LETTERS = {
    "Equal",
    "RegexFullMatch",
    "StringConcat",
    "StringNormalizer",
    "StringSplit",
    "TfIdfVectorizer",
    "Unique",
}


def is_open(model: onnx.ModelProto, known: Known | None = None) -> str:
    """Why the standard leaves open what the model gives; empty where it does not."""
    nodes = nodes_of(model, known)
    if any(map(_looks_into_strings, nodes)) and any(writes_strings(node, is_float) for node in nodes):
        return "nothing says in which digits numbers are written"
    return next((why for node in nodes if (why := _open(node))), "")


def _looks_into_strings(seen: Seen) -> bool:
    """Whether a result hangs on the letters of strings."""
    return seen.node.op_type in _OF_LETTERS and seen.may(lambda x: x.dtype.kind in "OU", 0)


THROUGH_FLOATS = {"Gemm", "Mean", "Pow", "Einsum", "CumSum", "Resize", "Upsample"}
"""Of integers one peer or the other computes these in floats, which saturate; reductions, too."""


def is_inexact(model: onnx.ModelProto, known: Known | None = None, told: str = "integers") -> bool:
    """Whether a single peer is no judge of integers, and of what is not 0 among them.

    Of what else they become then it is not only if a float does not hold them.
    """
    return any(
        (seen.node.op_type in THROUGH_FLOATS or seen.node.op_type.startswith("Reduce"))
        and seen.may(lambda x: x.dtype.kind in "iu", 0)
        and (told in ("integers", "shape") or exceeds(24)(seen))
        for seen in nodes_of(model, known)
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
_MASK, _LENGTHS = 3, 6
_BY_HEAD = 4
STASHED = {"GroupNormalization", "LayerNormalization", "RMSNormalization"}


def _open(seen: Seen) -> str:
    op = seen.node.op_type
    if op in UNORDERED or (op in ("Softmax", "LogSoftmax") and seen.opset < 13):
        places = range(len(seen.node.input))
        if any(seen.has(place) and seen.may(is_special, place) for place in places):
            return "NaN and infinities hang on an order here"
    if op == "MaxPool" and _sees_padding_alone(seen):
        return "windows may see nothing but padding"
    if op == "Attention" and _attends_for_others(seen):
        return "a mask or lengths for other rows than those of the queries"
    if op == "Resize" and _has_no_ratio(seen):
        return "a size of 0 has no ratio"
    if op in ("Loop", "Scan") and _has_unknown_sizes(seen):
        return "sizes of what no round gave"
    if op in WINDOWS and seen.attributes.get("output_datatype") == onnx.TensorProto.DOUBLE:
        return "the standard's own function computes it in f32"
    if op in STASHED and seen.attributes.get("stash_type", 1) == 1 and seen.may(lambda x: x.dtype == np.float64, 0):
        return "doubles go through f32 by the standard, and not in either peer"
    if op == "STFT" and seen.attributes.get("onesided", 1) and seen.may(lambda x: x.shape[-1] == 2, 0):
        return "half of the spectrum of complex signals"
    if op == "Resize" and seen.attributes.get("coordinate_transformation_mode") == CROP:
        return "" if seen.has(1) and seen.may(lambda roi: roi.size > 0, 1) else "the region to crop is not given"
    return ""


def _sees_padding_alone(seen: Seen) -> bool:
    given = seen.attributes
    is_dilated = bool(set(given.get("dilations", ())) - {1})
    return any(given.get("pads", ())) and (is_dilated or seen.may(lambda x: 0 in x.shape[2:], 0))


def _attends_for_others(seen: Seen) -> bool:
    is_masked = seen.has(_MASK) and seen.may(partial(_masks_others, seen), 0, _MASK)
    return is_masked or (seen.has(_LENGTHS) and seen.may(lambda q, n: n.size not in (1, len(q)), 0, _LENGTHS))


def _masks_others(seen: Seen, queries: Any, mask: Any) -> bool:
    """Whether sizes of a mask, but for the last one, which counts keys, are neither 1 nor those of the scores."""
    rows = queries.shape[-2]
    heads = queries.shape[1] if queries.ndim == _BY_HEAD else seen.attributes.get("q_num_heads", 1)
    sizes = zip(mask.shape[-2::-1], (rows, heads, len(queries)), strict=False)
    return any(size not in (1, count) for size, count in sizes)


def _has_no_ratio(seen: Seen) -> bool:
    is_by_ratio = seen.attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    return is_by_ratio and seen.may(lambda x: 0 in x.shape, 0)


def _has_unknown_sizes(seen: Seen) -> bool:
    """Whether a result of a Loop or Scan that ran no round has sizes of 0, which stand for those that nothing tells.

    Of a body whose output has no rank they may be missing as a whole.
    """
    return any(
        each is not None and not len(each) and (not ty.HasField("shape") or 0 in each.shape[1:])
        for ty, each in scanned(seen)
    )
