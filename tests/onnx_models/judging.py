"""How far results may be apart, and which of two peers they are held to."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from tests.onnx_models.parts import all_nodes

_ROUNDING = {"float64": 1e-9, "float32": 2e-5, "float16": 1e-2, "bfloat16": 8e-2}
_WIDEST = "float64"
_ELEMENTS = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
_QUANTIZING = {"Resize", "Upsample", "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"}


def narrowest(model: onnx.ModelProto, contents: Any = ()) -> str:
    """The narrowest float type in a model."""
    found = {str(np.asarray(each).dtype) for each in contents if isinstance(each, np.ndarray)}
    text = str(model.graph) if len(model.graph.node) < 40 else ""
    found |= {
        name
        for number, name in _ELEMENTS.items()
        if f"elem_type: {number}\n" in text or f"data_type: {number}\n" in text
    }
    order = ("bfloat16", "float16", "float32")
    return next((name for name in order if name in found), _WIDEST)


def tolerance(model: onnx.ModelProto, contents: Any = ()) -> float:
    """As a fraction of the largest number, by the narrowest float and how many nodes there are."""
    return _ROUNDING[narrowest(model, contents)] * (1 + len(model.graph.node) / 4)


def quantizes(model: onnx.ModelProto) -> bool:
    """Whether a result may fall on the edge between two codes."""
    graphs = (model.graph, *model.functions)
    return any(node.op_type in _QUANTIZING for graph in graphs for node in all_nodes(graph.node))


def difference(expected: Any, found: Any, allowed: float, *, steps: bool = False) -> str:
    """What is different, in a few words; nothing where it is close."""
    if isinstance(expected, list | tuple) or isinstance(found, list | tuple):
        if not isinstance(expected, list | tuple) or not isinstance(found, list | tuple):
            return "kind"
        if len(expected) != len(found):
            return "length of sequence"
        return next(
            (s for a, b in zip(expected, found, strict=True) if (s := difference(a, b, allowed, steps=steps))), ""
        )
    if expected is None or found is None:
        return "" if expected is found else "kind"
    old, new = np.asarray(expected), np.asarray(found)
    if old.dtype.kind in "OUS" or new.dtype.kind in "OUS":
        return "" if old.shape == new.shape and all(map(_are_same, old.ravel(), new.ravel())) else "strings"
    if old.dtype != new.dtype:
        return f"dtype {new.dtype} for {old.dtype}"
    if old.shape != new.shape:
        return "shape"
    return _numbers(old, new, allowed, steps)


def _are_same(one: Any, other: Any) -> bool:
    """Whether two strings are equal, or one number in other digits or case, of which no standard says more."""
    try:
        return str(one) == str(other) or bool(np.isclose(float(one), float(other), rtol=1e-3, equal_nan=True))
    except ValueError:
        return False


def _numbers(old: Any, new: Any, allowed: float, steps: bool) -> str:
    if not (old.dtype.kind == "f" or old.dtype in (ml_dtypes.bfloat16,)):
        if np.array_equal(old, new):
            return ""
        apart = np.abs(old.astype(np.float64) - new.astype(np.float64)).max() if old.size else 0
        return "" if steps and apart <= 1 else "integers"
    a, b = old.astype(np.float64), new.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return "NaN"
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "infinities"
    apart = np.abs(a[finite] - b[finite])
    scale = np.abs(a[finite]).max(initial=0.0)
    limit = allowed * max(scale, 1e-2)
    return "" if not apart.size or apart.max() <= limit else "numbers"
