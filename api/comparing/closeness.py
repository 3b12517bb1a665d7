"""How far apart two results are, how far they may be, and what differences are let pass."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.analysis import nested_graphs
from ..ir.constant import Array
from ..ir.graph import Graph
from ..ir.types import DType, TensorType
from ..passes.framework.numeric import longest_sum
from .fitting_inputs import in_order

_ROUNDINGS = 16.0  # of one term of a sum, whose errors add up like a random walk


@dataclass(frozen=True)
class Tolerance:
    """What differences are let pass: below `atol`, or below `rtol` of an output's largest value; None: by the model."""

    rtol: float | None = None
    atol: float = 0.0

    @property
    def is_chosen(self) -> bool:
        return self.rtol is not None or self.atol > 0

    def rtol_for(self, graph: Graph, inputs: Mapping[str, Any]) -> float:
        """The fraction by which floats may be off: by the narrowest one inside, and by how many terms a sum has."""
        if self.rtol is not None:
            return self.rtol
        bodies = nested_graphs(graph)
        types = [value.type for body in bodies for value in body.values if isinstance(value.type, TensorType)]
        floats = {ty.dtype for ty in types if ty.dtype.is_float}
        summed = np.finfo(np.float64 if floats <= {DType.F64} else np.float32).eps
        terms = longest_sum(graph, in_order(graph, inputs))
        return max(*map(tolerance, floats), _ROUNDINGS * float(summed) * math.sqrt(terms), 0.0)


BY_MODEL = Tolerance()
"""What follows from the model alone."""


TOLERANCES = {DType.F64: 1e-9, DType.F32: 1e-4, DType.F16: 1e-2, DType.BF16: 5e-2}
"""The error of an output, as a fraction of its largest value, beyond which two models differ; other dtypes: none."""

WORSE = 4.0
"""How many times as far from the exact result as what it is held to an output may be."""

_SMALL_FLOATS = 0.25  # fp8 and smaller hold two or three significant bits


@dataclass(frozen=True)
class OutputError:
    """The largest error of one output over all inputs.

    `largest` is absolute, `relative` the same as a fraction of the output's largest value, infinite where shape, dtype,
    or NaN and infinities differ. `is_close` says whether that may be, and `allowed` which fraction may.
    `held_to` is what the output was held to where it is off by more than rounding should be.
    """

    name: str
    largest: float
    relative: float
    is_close: bool
    allowed: float = 0.0
    held_to: str = ""


def output_error(name: str, expected: Any, given: Any, rtol: float | None = None, atol: float = 0.0) -> OutputError:
    """How far `given` is from `expected`; of a sequence or a map in what is furthest apart.

    Floats may be off by `rtol` of the largest value (None: what their dtype allows), all numbers by `atol`.
    """
    errors = [_error(name, old, new, rtol, atol) for old, new in pairs(expected, given)]
    return max(errors, key=lambda error: error.relative, default=_equal_or_not(name, True))


def distance(expected: Any, given: Any) -> float:
    """How far numbers are apart as a fraction of the largest one expected, whatever their dtypes."""
    return max((_relative(old, new) for old, new in pairs(expected, given)), default=0.0)


def pairs(expected: Any, given: Any) -> list[tuple[Any, Any]]:
    """What is to be compared: the elements of a sequence, the values of a map as an array, else the two as they are."""
    if isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        return [pair for old, new in zip(expected, given, strict=True) for pair in pairs(old, new)]
    if isinstance(expected, dict) and isinstance(given, dict) and expected.keys() == given.keys():
        return [(_values(expected), _values({key: given[key] for key in expected}))]
    return [(expected, given)]


def tolerance(dtype: DType) -> float:
    """The fraction of the largest value by which results that were computed in `dtype` may be off."""
    if dtype.is_float:
        return TOLERANCES.get(dtype, _SMALL_FLOATS)
    return TOLERANCES[DType.F32] if dtype.numpy.kind == "c" else 0.0


def _values(found: Mapping[Any, Any]) -> Array:
    """The values of an ONNX map, which are f32 wherever a model gives one (ZipMap)."""
    return np.array(list(found.values()), np.float32)


def _error(name: str, expected: Any, given: Any, rtol: float | None, atol: float) -> OutputError:
    if not _are_numbers(expected, given):
        return _equal_or_not(name, repr(expected) == repr(given))
    if expected.dtype != given.dtype or expected.shape != given.shape:
        return _equal_or_not(name, False)
    own = tolerance(DType.of(expected.dtype))
    allowed = own if rtol is None or not own else rtol
    largest, relative = _distance(expected, given)
    return OutputError(name, largest, relative, relative <= allowed or largest <= atol, allowed)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, np.ndarray) and not value.dtype.hasobject for value in values)


def _relative(expected: Any, given: Any) -> float:
    if not _are_numbers(expected, given):
        return 0.0 if repr(expected) == repr(given) else math.inf
    return _distance(expected, given)[1] if expected.shape == given.shape else math.inf


def _distance(expected: Array, given: Array) -> tuple[float, float]:
    """The largest difference of two arrays of one shape, and the same as a fraction of the largest value expected."""
    old, new = _wide(expected), _wide(given)
    finite = np.isfinite(old)
    others_equal = np.array_equal(old[~finite], new[~finite], equal_nan=True)
    if not others_equal or not np.isfinite(new[finite]).all():
        return math.inf, math.inf
    largest = float(np.abs(new[finite] - old[finite]).max(initial=0.0))
    scale = float(np.abs(old[finite]).max(initial=0.0))
    return largest, largest / scale if scale else (math.inf if largest else 0.0)


def _equal_or_not(name: str, is_equal: bool) -> OutputError:
    error = 0.0 if is_equal else math.inf
    return OutputError(name, error, error, is_equal)


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        return array.astype(np.longdouble)  # holds every 64-bit integer
    return array.astype(np.float64)
