"""Two forms of one model, run on the same inputs: how far apart their outputs are, and how far they may be.

Both run at the same level of ONNX Runtime's own optimizations. What an output may be off by follows from the narrowest
float that the model computes in and from its longest sum. An output that is off by more is held to what the first model
itself is off by: from its result in f64 where that is cheap, else from its result without ONNX Runtime's optimizations.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from ..executors.ort.library import failures, onnxruntime, problem_here
from ..inputs import gather_inputs
from ..ir.analysis import constraints, flops, nested_graphs, parameter_bytes
from ..ir.analysis.contents import constant_of
from ..ir.analysis.widened import widened, widened_array
from ..ir.dims import Dim, evaluate, symbols
from ..ir.dims.constraints import Constraint
from ..ir.errors import CapgraphError, ExecutionError, InputError, UnsupportedError
from ..ir.evaluate import Sizes, bind_inputs, evaluate_graph
from ..ir.graph import Graph
from ..ir.ops.known import EQUAL
from ..ir.types import DType, TensorType
from ..passes.framework.numeric import draw_sizes, longest_sum
from ..sources import load_model
from .closeness import OutputError, distance, output_error, tolerance

_ROUNDINGS = 16.0  # of one term of a sum, whose errors add up like a random walk
_WORSE = 4.0  # times the error of the first model itself
_CHEAP_FLOPS = 5_000_000_000
_CHEAP_BYTES = 1 << 28
_OTHER_SIZES = (8, 16, 32, 64, 128, 224, 320, 512, 1024, 4096, 1)
"""What symbols are tried with where a model does not run on small sizes: on 1 broadcasting hides what does not fit."""
_MOST_ELEMENTS = 1 << 22
_MOST_ALONE = 3  # symbols
_LONGEST_S = 60.0
"""For how long other sizes are tried where a model does not run on small ones; the one begun last is ended."""

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Tolerance:
    """What differences are let pass: below `atol`, or below `rtol` of an output's largest value; None: by dtype."""

    rtol: float | None = None
    atol: float = 0.0

    @property
    def is_chosen(self) -> bool:
        return self.rtol is not None or self.atol > 0


@dataclass(frozen=True)
class DrawnInputs:
    """The inputs that models are compared on: `count` sets from `sources`, with `sizes`, as `gather_inputs` has it."""

    count: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


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
    chosen: Tolerance = Tolerance(),  # frozen
) -> Comparison:
    """Runs the ONNX files `first` and `second` on inputs for `graph`, the graph of either.

    ONNX Runtime runs them if it is installed and can, both with all its optimizations; else the reference evaluator.
    Symbols that `drawing` leaves out get small sizes, or others that `first` runs on. Raises `ExecutionError` when the
    model cannot run on the inputs, `UnsupportedError` when it gives other outputs each time or ONNX Runtime refuses
    `second` alone, `InputError` when the second does not have the outputs of the first.
    """
    models = _Models(graph, first, second)
    bound, sets = _gathered(graph, drawing, models)
    worst: dict[str, OutputError] = {}
    rtol = _rtol(graph, sets[0], chosen) if sets else 0.0
    for index, inputs in enumerate(sets):
        expected = _run(models.before, inputs, bound)
        if index == 0:
            _refuse_random(expected, _run(models.before, inputs, bound))
        given = _run(models.after, inputs, bound)
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


# ---- inputs


def _gathered(graph: Graph, drawing: DrawnInputs, models: "_Models") -> tuple[dict[str, int], list[dict[str, Any]]]:
    """The sizes, and a set of inputs for each count. Small sizes come first, then others, until the model runs.

    Sizes that break what the nodes ask of each other come last: there the model runs by chance, if at all.
    """
    small = draw_sizes(graph)
    free = [name for name in small if name not in drawing.sizes]
    failure: CapgraphError | None = None
    tries = [small, *_other_sizes(graph, free)]
    rules = constraints(graph)
    end = monotonic() + _LONGEST_S
    for otherwise in sorted(tries, key=lambda sizes: not _holds(rules, {**sizes, **drawing.sizes})):
        bound = {**otherwise, **drawing.sizes}
        try:
            sets = [_arrays(graph, drawing, otherwise, index) for index in range(drawing.count)]
            if sets:
                _run(models.before, sets[0], bound)
        except ExecutionError as error:
            failure = failure or error
            if not free or monotonic() > end:
                break
        else:
            return {**bound, **_sizes_of(graph, sets)}, sets
    assert failure is not None  # the loop runs at least once
    raise failure


def _sizes_of(graph: Graph, sets: Sequence[Mapping[str, Any]]) -> Sizes:
    sizes: Sizes = {}
    if sets:
        bind_inputs(graph, _in_order(graph, sets[0]), sizes)
    return sizes


def _other_sizes(graph: Graph, free: Sequence[str]) -> list[dict[str, int]]:
    """One size for all symbols but the first of each input's, which are 1; then also other symbols as 1."""
    if not free:
        return []
    shapes = [value.type.shape for value in graph.inputs if isinstance(value.type, TensorType) and value.type.shape]
    firsts = frozenset[str]().union(*(symbols(shape[0]) for shape in shapes))
    alone = [firsts]
    if len(free) <= _MOST_ALONE:
        alone += [frozenset(each) for count in range(len(free)) for each in combinations(free, count)]
    choices = [{name: 1 if name in ones else size for name in free} for ones in alone for size in _OTHER_SIZES]
    open_shapes = [shape for shape in shapes if any(map(symbols, shape))]
    fitting = (sizes for sizes in choices if _elements(open_shapes, sizes) <= _MOST_ELEMENTS)
    return sorted(fitting, key=lambda sizes: set(sizes.values()) == {1})


def _elements(shapes: Sequence[Sequence[Dim]], sizes: Mapping[str, int]) -> int:
    """About how many elements inputs of these shapes have."""
    plain = ((evaluate(dim, sizes) if symbols(dim) <= sizes.keys() else 1 for dim in shape) for shape in shapes)
    return sum(math.prod(map(int, shape)) for shape in plain)


def _holds(rules: Sequence[Constraint], sizes: Mapping[str, int]) -> bool:
    return all(rule.holds(sizes) for rule in rules if rule.symbols <= sizes.keys())


def _arrays(graph: Graph, drawing: DrawnInputs, otherwise: Mapping[str, int], seed: int) -> dict[str, Any]:
    try:
        sources = {**_compared_numbers(graph, seed), **drawing.sources}
        given = gather_inputs(graph, sources, drawing.sizes, seed, otherwise=otherwise)
    except UnsupportedError as error:
        raise UnsupportedError(error.message, where=error.where, remedy="leave --check out") from error
    return {name: each.value for name, each in given.items()}


def _compared_numbers(graph: Graph, place: int) -> dict[str, str]:
    """One of the numbers that an integer is compared with: it chooses what the model does, as a sampling rate may."""
    found: dict[str, str] = {}
    for value in graph.inputs:
        ty = value.type
        if not isinstance(ty, TensorType) or not ty.dtype.is_integer or ty.shape not in ((), (1,)):
            continue
        others = (other for node in value.users if node.op is EQUAL for other in node.operands)
        known = [content for other in others if (content := constant_of(other)) is not None and content.size == 1]
        if known and value.name not in graph.defaults:
            found[value.name] = str(known[place % len(known)].array.reshape(-1)[0])
    return found


# ---- how far they may be apart


def _rtol(graph: Graph, inputs: Mapping[str, Any], chosen: Tolerance) -> float:
    """The fraction by which floats may be off: by the narrowest one inside, and by how many terms a sum has."""
    if chosen.rtol is not None:
        return chosen.rtol
    bodies = nested_graphs(graph)
    types = [value.type for body in bodies for value in body.values if isinstance(value.type, TensorType)]
    floats = {ty.dtype for ty in types if ty.dtype.is_float}
    summed = np.finfo(np.float64 if floats <= {DType.F64} else np.float32).eps
    terms = longest_sum(graph, _in_order(graph, inputs))
    return max(*map(tolerance, floats), _ROUNDINGS * float(summed) * math.sqrt(terms), 0.0)


def _in_order(graph: Graph, inputs: Mapping[str, Any]) -> list[Any]:
    defaults = {name: content.array for name, content in graph.defaults.items()}
    return [{**defaults, **inputs}[value.name] for value in graph.inputs]


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
            self.before, self.after = _evaluator(load_model(first).graph), _evaluator(load_model(second).graph)
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
        exact = self._exact_results(inputs)
        if exact is not None:
            allowed = max(error.allowed, _WORSE * distance(exact[error.name], old))
            relative = distance(exact[error.name], new)
            return replace(
                error, relative=relative, is_close=relative <= allowed, allowed=allowed, held_to="the model in f64"
            )
        if self._plain is None:
            return error
        try:
            again = self._plain(inputs)[error.name]
        except CapgraphError:
            return error
        allowed = max(error.allowed, _WORSE * distance(again, old))
        what = "the model without ONNX Runtime's optimizations"
        return replace(error, is_close=error.relative <= allowed, allowed=allowed, held_to=what)

    @cached_property
    def _plain(self) -> Run | None:
        return None if self._is_reference else _session(self._first, is_optimized=False)

    @cached_property
    def _exact(self) -> Graph | None:
        """The first model in f64, None where that cannot be or takes long."""
        graph = load_model(self._first).graph
        if parameter_bytes(graph) > _CHEAP_BYTES:
            return None
        try:
            return widened(graph)
        except CapgraphError:  # an op without a form in f64
            return None

    def _exact_results(self, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        graph = self._exact
        if graph is None:
            return None
        wide = {name: widened_array(value) for name, value in inputs.items()}
        sizes = _sizes_of(graph, [wide])
        work = flops(graph)
        if not symbols(work) <= sizes.keys() or evaluate(work, sizes) > _CHEAP_FLOPS:
            return None
        try:
            return _evaluator(graph)(wide)
        except CapgraphError:
            return None


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


def _evaluator(graph: Graph) -> Run:
    def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(zip(graph.output_names, evaluate_graph(graph, _in_order(graph, inputs)), strict=True))

    return run


def _run(run: Run, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    try:
        return run(inputs)
    except CapgraphError as error:
        raise _cannot_run(error.message, sizes, error.where) from error


def _cannot_run(message: str, sizes: Mapping[str, int], where: str | None = None) -> ExecutionError:
    bound = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return ExecutionError(
        f"the model cannot run on drawn inputs{f' with {bound}' if bound else ''}: {message}",
        where=where,
        remedy="give inputs with --input NAME=SOURCE, sizes with --dim NAME=N, or leave --check out",
    )


def _refuse_random(once: Mapping[str, Any], again: Mapping[str, Any]) -> None:
    if any(distance(old, again[name]) for name, old in once.items()):
        raise UnsupportedError(
            "the model gives other outputs on each run, so it cannot be compared", remedy="leave --check out"
        )
