"""Two forms of one model, run on the same inputs: how far apart their outputs are, and how far they may be.

Both run at the same level of ONNX Runtime's own optimizations. What an output may be off by follows from the narrowest
float that the model computes in and from its longest sum. An output that is off by more is held to what the first model
itself is off by: from its result in f64 where that is cheap, else from its result without ONNX Runtime's optimizations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..executors.ort.library import failures, onnxruntime, problem_here
from ..ir.errors import CapgraphError, ExecutionError, InputError, UnsupportedError
from ..ir.graph import Graph
from ..sources import load_model
from .closeness import BY_MODEL, WORSE, OutputError, Tolerance, distance, output_error
from .exact_results import ExactResults, held_to_exact
from .fitting_inputs import DrawnInputs, Run, evaluator, fitting_inputs, run_on


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


def compare(
    graph: Graph,
    first: Path,
    second: Path,
    drawing: DrawnInputs,
    chosen: Tolerance = BY_MODEL,
) -> Comparison:
    """Runs the ONNX files `first` and `second` on inputs for `graph`, the graph of either.

    ONNX Runtime runs them if it is installed and can, both with all its optimizations; else the reference evaluator.
    Symbols that `drawing` leaves out get small sizes, or others that `first` runs on. Raises `ExecutionError` when the
    model cannot run on the inputs, `UnsupportedError` when it gives other outputs each time or ONNX Runtime refuses
    `second` alone, `InputError` when the second does not have the outputs of the first.
    """
    models = _Models(graph, first, second)
    bound, sets = fitting_inputs(graph, drawing, models.before)
    worst: dict[str, OutputError] = {}
    rtol = chosen.rtol_for(graph, sets[0]) if sets else 0.0
    for index, inputs in enumerate(sets):
        expected = run_on(models.before, inputs, bound)
        if index == 0:
            _refuse_random(expected, run_on(models.before, inputs, bound))
        given = run_on(models.after, inputs, bound)
        _check_names(expected, given, second)
        for name, old in expected.items():
            error = output_error(name, old, given[name], rtol, chosen.atol)
            if not error.is_close and not chosen.is_chosen:
                error = models.held_to_first(error, old, given[name], inputs)
            if name not in worst or _badness(error) > _badness(worst[name]):
                worst[name] = error
    ordered = sorted(worst.values(), key=_badness, reverse=True)
    return Comparison(models.runtime, drawing.count, bound, tuple(ordered))


def _badness(error: OutputError) -> tuple[bool, float]:
    return not error.is_close, error.relative


def _check_names(expected: Mapping[str, Any], given: Mapping[str, Any], second: Path) -> None:
    missing = [name for name in expected if name not in given]
    if missing:
        raise InputError(
            f"{second} has no output {missing[0]!r}, only {', '.join(map(repr, given))}",
            remedy="compare models with the same inputs and outputs",
        )


# ---- what runs the models


class _Models:
    """Both models as functions, and the first one in f64 and without ONNX Runtime's optimizations, made when needed."""

    def __init__(self, graph: Graph, first: Path, second: Path) -> None:
        self._first = first
        problem = problem_here()[0] or _not_taken(graph)
        if not problem:
            try:
                self.before = _session(first)
            except failures() as error:
                problem = f"onnxruntime cannot: {_line(error)}"
        self._is_reference = bool(problem)
        if problem:
            self.runtime = f"the reference evaluator ({problem})"
            self.before, self.after = evaluator(load_model(first).graph), evaluator(load_model(second).graph)
            return
        self.runtime = f"onnxruntime {onnxruntime().__version__}"
        try:
            self.after = _session(second)
        except failures() as error:
            raise UnsupportedError(
                f"ONNX Runtime runs the model, but refuses {second.name}: {_line(error)}",
                remedy="optimize for standard operators, at another --opset, or at a lower level",
            ) from error

    def held_to_first(self, error: OutputError, old: Any, new: Any, inputs: Mapping[str, Any]) -> OutputError:
        """`error` by how far the first model's output is from what it should be."""
        exact = self._exact(inputs)
        if exact is not None:
            return held_to_exact(error, exact[error.name], old, new)
        if self._plain is None:
            return error
        try:
            again = self._plain(inputs)[error.name]
        except CapgraphError:
            return error
        allowed = max(error.allowed, WORSE * distance(again, old))
        what = "the model without ONNX Runtime's optimizations"
        return replace(error, is_close=error.relative <= allowed, allowed=allowed, held_to=what)

    @cached_property
    def _plain(self) -> Run | None:
        return None if self._is_reference else _session(self._first, is_optimized=False)

    @cached_property
    def _exact(self) -> ExactResults:
        return ExactResults(load_model(self._first).graph)


def _line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _not_taken(graph: Graph) -> str:
    """Why the model's inputs and outputs do not go through onnxruntime, empty when they do."""
    from ..executors.ort.session import interface_problem  # imports onnx

    values = (*graph.inputs, *graph.outputs)
    return next(
        (f"%{value.name} {interface_problem(value.type)}" for value in values if interface_problem(value.type)), ""
    )


def _session(path: Path, *, is_optimized: bool = True) -> Run:
    options = onnxruntime().SessionOptions()
    levels = onnxruntime().GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if is_optimized else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime().InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]

    def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        feeds = {name: value for name, value in inputs.items() if name in wanted}
        try:
            return dict(zip(names, session.run(None, feeds), strict=True))
        except failures() as error:
            raise ExecutionError(str(error)) from error

    return run


def _refuse_random(once: Mapping[str, Any], again: Mapping[str, Any]) -> None:
    if any(distance(old, again[name]) for name, old in once.items()):
        raise UnsupportedError(
            "the model gives other outputs on each run, so it cannot be compared",
            remedy="compare one without random numbers",
        )
