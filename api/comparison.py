"""Two forms of one model, run on the same drawn inputs: how far apart their outputs are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .executors.ort.library import failures, onnxruntime, problem_here
from .inputs import gather_inputs
from .ir.constant import Array
from .ir.errors import CapgraphError, ExecutionError, UnsupportedError
from .ir.evaluate import evaluate_graph
from .ir.graph import Graph
from .ir.types import DType
from .passes.numeric import draw_sizes
from .sources import load_model

TOLERANCES = {DType.F64: 1e-9, DType.F32: 1e-4, DType.F16: 1e-2, DType.BF16: 5e-2}
"""The error of an output, as a fraction of its largest value, beyond which two models differ; other dtypes: none."""

_SMALL_FLOATS = 0.25  # fp8 and smaller hold two or three significant bits

Run = Callable[[Mapping[str, Any]], Sequence[Any]]


@dataclass(frozen=True)
class OutputError:
    """The largest error of one output over all inputs.

    `largest` is absolute, `relative` the same as a fraction of the output's largest value, infinite where shape, dtype,
    or NaN and infinities differ. `is_close` says whether it is within `TOLERANCES`.
    """

    name: str
    largest: float
    relative: float
    is_close: bool


@dataclass(frozen=True)
class Comparison:
    """What `compare` found, worst output first, what ran the models, and the sizes that symbols were given."""

    runtime: str
    inputs: int
    sizes: dict[str, int]
    outputs: tuple[OutputError, ...]

    @property
    def is_close(self) -> bool:
        return all(output.is_close for output in self.outputs)


def compare(graph: Graph, raw: Path, optimised: Path, *, count: int, sizes: Mapping[str, int]) -> Comparison:
    """Runs the ONNX files `raw` and `optimised` on `count` sets of inputs drawn for `graph`, the graph of either.

    ONNX Runtime runs them if it is installed and can, the raw one without optimisations of its own; else the reference
    evaluator. Symbols that `sizes` leaves out get small sizes. Raises `ExecutionError` when the model cannot run on
    drawn inputs, `UnsupportedError` when it gives other outputs each time or ONNX Runtime refuses `optimised` alone.
    """
    bound = {**draw_sizes(graph), **sizes}
    drawn = [_arrays(graph, bound, index) for index in range(count)]
    runtime, before, after = _runners(graph, raw, optimised)
    worst: dict[str, OutputError] = {}
    for index, inputs in enumerate(drawn):
        expected = _run(before, inputs, bound)
        if index == 0:
            _refuse_random(expected, _run(before, inputs, bound))
        for name, old, new in zip(graph.output_names, expected, _run(after, inputs, bound), strict=True):
            error = output_error(name, old, new)
            if name not in worst or error.relative > worst[name].relative:
                worst[name] = error
    ordered = sorted(worst.values(), key=lambda error: (error.is_close, -error.relative))
    return Comparison(runtime, count, bound, tuple(ordered))


def output_error(name: str, expected: Any, given: Any) -> OutputError:
    """How far `given` is from `expected`; of a sequence or a map in what is furthest apart."""
    errors = (_error(name, old, new) for old, new in pairs(expected, given))
    return max(errors, key=lambda error: error.relative, default=_equal_or_not(name, True))


def pairs(expected: Any, given: Any) -> list[tuple[Any, Any]]:
    """What is to be compared: the elements of a sequence, the values of a map as an array, else the two as they are."""
    if isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        return [pair for old, new in zip(expected, given, strict=True) for pair in pairs(old, new)]
    if isinstance(expected, dict) and isinstance(given, dict) and expected.keys() == given.keys():
        return [(_values(expected), _values({key: given[key] for key in expected}))]
    return [(expected, given)]


def _values(found: Mapping[Any, Any]) -> Array:
    """The values of an ONNX map, which are f32 wherever a model gives one (ZipMap)."""
    return np.array(list(found.values()), np.float32)


def _error(name: str, expected: Any, given: Any) -> OutputError:
    if not isinstance(expected, np.ndarray) or not isinstance(given, np.ndarray) or expected.dtype.hasobject:
        return _equal_or_not(name, repr(expected) == repr(given))
    if expected.dtype != given.dtype or expected.shape != given.shape:
        return _equal_or_not(name, False)
    old, new = _wide(expected), _wide(given)
    finite = np.isfinite(old)
    others_equal = np.array_equal(old[~finite], new[~finite], equal_nan=True)
    if not others_equal or not np.isfinite(new[finite]).all():
        return _equal_or_not(name, False)
    largest = float(np.abs(new[finite] - old[finite]).max(initial=0.0))
    scale = float(np.abs(old[finite]).max(initial=0.0))
    relative = largest / scale if scale else (float("inf") if largest else 0.0)
    return OutputError(name, largest, relative, relative <= _tolerance(DType.of(expected.dtype)))


def _equal_or_not(name: str, is_equal: bool) -> OutputError:
    error = 0.0 if is_equal else float("inf")
    return OutputError(name, error, error, is_equal)


def _tolerance(dtype: DType) -> float:
    if dtype.is_float:
        return TOLERANCES.get(dtype, _SMALL_FLOATS)
    return TOLERANCES[DType.F32] if dtype.numpy.kind == "c" else 0.0


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        return array.astype(np.longdouble)  # holds every 64-bit integer
    return array.astype(np.float64)


def _arrays(graph: Graph, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    try:
        return {name: each.value for name, each in gather_inputs(graph, {}, sizes, seed).items()}
    except UnsupportedError as error:
        raise UnsupportedError(error.message, where=error.where, remedy="leave --check out") from error


def _run(run: Run, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Sequence[Any]:
    try:
        return run(inputs)
    except CapgraphError as error:
        raise _cannot_run(error.message, sizes, error.where) from error


def _cannot_run(message: str, sizes: Mapping[str, int], where: str | None = None) -> ExecutionError:
    bound = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return ExecutionError(
        f"the model cannot run on drawn inputs{f' with {bound}' if bound else ''}: {message}",
        where=where,
        remedy="choose sizes with --dim NAME=N, or leave --check out",
    )


def _refuse_random(once: Sequence[Any], again: Sequence[Any]) -> None:
    if any(output_error("", old, new).largest for old, new in zip(once, again, strict=True)):
        raise UnsupportedError(
            "the model gives other outputs on each run, so it cannot be compared", remedy="leave --check out"
        )


# ---- what runs the models


def _runners(graph: Graph, raw: Path, optimised: Path) -> tuple[str, Run, Run]:
    problem = problem_here()[0] or _not_taken(graph)
    if problem:
        return _reference(raw, optimised, problem)
    levels = onnxruntime().GraphOptimizationLevel
    try:
        before = _session(raw, levels.ORT_DISABLE_ALL)
    except failures() as error:
        return _reference(raw, optimised, f"onnxruntime cannot: {str(error).splitlines()[0]}")
    try:
        after = _session(optimised, levels.ORT_ENABLE_ALL)
    except failures() as error:
        raise UnsupportedError(
            f"ONNX Runtime runs the model, but refuses the optimised one: {str(error).splitlines()[0]}",
            remedy="optimise for standard operators, or at a lower level",
        ) from error
    return f"onnxruntime {onnxruntime().__version__}", before, after


def _not_taken(graph: Graph) -> str:
    """Why the model's inputs and outputs do not go through onnxruntime, empty when they do."""
    from .executors.ort.session import interface_problem  # imports onnx

    values = (*graph.inputs, *graph.outputs)
    return next(
        (f"%{value.name} {interface_problem(value.type)}" for value in values if interface_problem(value.type)), ""
    )


def _session(path: Path, level: Any) -> Run:
    options = onnxruntime().SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    session = onnxruntime().InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}

    def run(inputs: Mapping[str, Any]) -> Sequence[Any]:
        feeds = {name: value for name, value in inputs.items() if name in wanted}
        try:
            found: Sequence[Any] = session.run(None, feeds)
        except failures() as error:
            raise ExecutionError(str(error)) from error
        return found

    return run


def _reference(raw: Path, optimised: Path, why: str) -> tuple[str, Run, Run]:
    return f"the reference evaluator ({why})", _evaluator(raw), _evaluator(optimised)


def _evaluator(path: Path) -> Run:
    graph = load_model(path).graph

    def run(inputs: Mapping[str, Any]) -> Sequence[Any]:
        defaults = {name: content.array for name, content in graph.defaults.items()}
        return evaluate_graph(graph, [{**defaults, **inputs}[value.name] for value in graph.inputs])

    return run
