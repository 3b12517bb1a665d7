"""`capgraph.compare`: one model in several executors, each held to the reference evaluator and timed."""

import gc
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from ..executors.backends import targets
from ..executors.base import is_cuda
from ..executors.memory import resident_bytes
from ..executors.signature import whole_number
from ..ir.constant import Array, is_array
from ..ir.errors import CapgraphError, InputError, UnsupportedError
from ..ir.evaluate import Sizes, bind_inputs, evaluate_graph
from ..ir.graph import Graph
from ..ir.target import HOST, Target
from ..ir.types import DType
from ..optimization import optimize
from ..program import Program
from ..sources import Model, load_model
from .closeness import OutputError, Tolerance, output_error, pairs
from .exact_results import ExactResults, held_to_exact
from .fitting_inputs import DrawnInputs, evaluator, fitting_inputs
from .tables import Cell

INFINITE = float("inf")
_RECORDING = ("graph", "ort@cuda")  # executors that want to know the range of every size


@dataclass(frozen=True)
class OutputAccuracy:
    """How far one output is from the reference, at its worst over all sets of inputs.

    `ulps` is the largest distance in units of the last place of the output's dtype (for integers: in ones), `position`
    where it is, in input set number `inputs`. `relative` is the norm of the error over the norm of the reference. Both
    are infinite, without a position, where dtype, shape, strings, or NaN and infinities differ. `is_close` says whether
    the error may be.
    """

    name: str
    ulps: float
    relative: float
    position: tuple[int, ...] | None
    inputs: int
    is_close: bool


@dataclass(frozen=True)
class ExecutorResult:
    """One executor. `problem` says why it could not run, empty when it did; the rest is then as it was found.

    `setup_seconds` is the time from the model to the end of the first call, in which recorded programs record,
    `latency_seconds` the median of the runs on the first set of inputs. `memory_bytes` is by how much the process has
    grown, which for the first executor that needs a package contains that package (None where the system does not say),
    and on a GPU the arena and the recordings there, without weights. `segments` counts the recordings or sessions of a
    timed run, `fallbacks` the nodes that ran outside of them or on the host; both are None for an executor that runs
    node by node anyway. `nodes` is what passes have left.
    """

    executor: str
    device: str = ""
    problem: str = ""
    remedy: str = ""
    setup_seconds: float = 0.0
    latency_seconds: float = 0.0
    memory_bytes: int | None = None
    nodes: int = 0
    segments: int | None = None
    fallbacks: int | None = None
    remarks: tuple[str, ...] = ()
    outputs: tuple[OutputAccuracy, ...] = ()

    @property
    def is_close(self) -> bool:
        """Whether it ran and every output is close to the reference."""
        return not self.problem and all(output.is_close for output in self.outputs)

    @property
    def error(self) -> float:
        """The largest relative error of an output."""
        return max((output.relative for output in self.outputs), default=0.0)


COLUMNS = (
    *("executor", "device", "error", "latency ms", "set-up s", "memory MiB", "segments", "fallbacks", "nodes"),
    "close",
)
"""What tables of executors show."""


def table_row(result: ExecutorResult) -> tuple[Cell, ...]:
    """An executor in `COLUMNS`; of one that cannot run its name and that alone."""
    if result.problem:
        return (result.executor, *(None,) * (len(COLUMNS) - 2), "cannot run")
    return (
        result.executor,
        result.device,
        result.error,
        result.latency_seconds * 1e3,
        result.setup_seconds,
        None if result.memory_bytes is None else result.memory_bytes / 2**20,
        result.segments,
        result.fallbacks,
        result.nodes,
        result.is_close,
    )


@dataclass(frozen=True)
class ExecutorComparison:
    """What `compare` found, in the order in which executors were asked for; `sizes` has the largest of each symbol.

    `skipped` are the executors that nobody asked for and that cannot run here, each with its problem and remedy.
    """

    model: str
    sizes: dict[str, int]
    inputs: int
    runs: int
    results: tuple[ExecutorResult, ...] = field(default_factory=tuple)
    skipped: tuple[ExecutorResult, ...] = ()


def compare(
    model: Model,
    executors: Sequence[str] | None = None,
    *,
    inputs: Sequence[Mapping[str, Any]] | None = None,
    sizes: Mapping[str, int] | None = None,
    draws: int = 2,
    runs: int = 20,
    level: int = 2,
    rtol: float | None = None,
    atol: float = 0.0,
) -> ExecutorComparison:
    """Runs `model` in each of `executors` (default: all that can run here) and in the reference evaluator.

    A PyTorch module is exported before: `torch.export.export(module, args)` is a model.
    An executor is named as in `optimize`, followed by "@" and a device where that is not "auto": "ort@cuda".
    `inputs` are sets of NumPy arrays by name; by default `draws` sets are drawn, for which `sizes` gives symbolic dims
    (others are small, or what the model runs on). The runs that are timed take turns, so that all executors meet the
    same state of the machine. A float may be off by `rtol` of an output's largest value (None: by the narrowest float
    inside, the longest sum, and what the reference is off by itself), any number by `atol`.
    An executor that was asked for and cannot run is a result with its problem; others that cannot are `skipped`.

    Raises `InputError` when there is nothing to run on and for arguments of another type, `UnsupportedError` for a
    model that draws random numbers, and what the reference raises when it cannot run the model on these inputs.
    """
    _check_executors(executors)
    _check_inputs(inputs)
    draws, runs = _checked_count("draws", draws), _checked_count("runs", runs)
    sizes = _checked_sizes(sizes)
    tolerance = Tolerance(None if rtol is None else _checked_fraction("rtol", rtol), _checked_fraction("atol", atol))
    graph = load_model(model).graph
    given = _inputs(graph, DrawnInputs(draws, sizes)) if inputs is None else [dict(each) for each in inputs]
    if not given:
        raise InputError("there is no set of inputs", remedy="leave inputs out to draw some")
    expected = [_reference(graph, each) for each in given]
    _refuse_random(graph, given[0], expected[0])
    known = [] if executors else targets()
    names = executors or [_name(target) for target in known if target.is_available]
    ranges = _ranges(graph, given)
    trials = [_Trial(name, model, level, ranges if _records(name) else None) for name in names]
    judge = _Judge(graph, tolerance, given, expected)
    for trial in trials:
        trial.check(given, judge)
    for _ in range(runs):
        for trial in trials:
            trial.time(given[0])
    return ExecutorComparison(
        graph.name,
        {name: high for name, (_, high) in ranges.items()},
        len(given),
        runs,
        tuple(trial.finish() for trial in trials),
        tuple(_skipped(target) for target in known if not target.is_available),
    )


def _check_executors(executors: object) -> None:
    if isinstance(executors, str):
        raise InputError(f"executors={executors!r} is no list of names", remedy=f"pass {executors.split(',')!r}")
    if executors is None or (isinstance(executors, Sequence) and all(isinstance(name, str) for name in executors)):
        return
    raise InputError(f"executors={executors!r} is no list of names", remedy='pass names, such as ["eager", "ort"]')


def _check_inputs(inputs: object) -> None:
    if isinstance(inputs, Mapping):
        raise InputError("inputs are a list of sets, not one of them", remedy="pass [inputs]")
    if inputs is None or (isinstance(inputs, Sequence) and all(isinstance(each, Mapping) for each in inputs)):
        return
    remedy = "a set is a mapping from names to arrays: [{'x': array}]"
    raise InputError(f"inputs are a list of sets, not {inputs!r:.80}", remedy=remedy)


def _checked_count(name: str, given: object) -> int:
    count = whole_number(given)
    if count is None or count < 1:
        raise InputError(f"{name}={given!r} is no whole number from 1 on", remedy=f"{name}=5")
    return count


def _checked_fraction(name: str, given: object) -> float:
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 <= given < INFINITE:
        raise InputError(f"{name}={given!r} is no number from 0 on", remedy=f"{name}=1e-4")
    return float(given)


def _checked_sizes(sizes: object) -> dict[str, int]:
    if sizes is None:
        return {}
    if not isinstance(sizes, Mapping):
        raise InputError(f"sizes={sizes!r} is no mapping", remedy='pass a size by name: {"batch": 4}')
    found = {name: whole_number(size) for name, size in sizes.items()}
    for name, size in found.items():
        if size is None or size < 0:
            raise InputError(f"the size of {name!r} is {sizes[name]!r}", remedy="an integer from 0 on")
    return {name: size for name, size in found.items() if size is not None}


def _name(target: Target) -> str:
    return target.executor if target.device == HOST.device else f"{target.executor}@{target.device}"


def _skipped(target: Target) -> ExecutorResult:
    return ExecutorResult(_name(target), target.device, target.problem, target.remedy)


def _records(executor: str) -> bool:
    return executor.startswith(_RECORDING)


class _Trial:
    """One executor on its way through a comparison. What it raises becomes its result."""

    def __init__(self, executor: str, model: Model, level: int, dynamic: Mapping[str, tuple[int, int]] | None) -> None:
        self._result = ExecutorResult(executor)
        self._times: list[float] = []
        self._program: Program | None = None
        gc.collect()
        self._memory = resident_bytes()
        start = time.perf_counter()
        name, _, device = executor.partition("@")
        try:
            self._program = optimize(model, executor=name, device=device or "auto", level=level, dynamic=dynamic)
        except CapgraphError as error:
            self._fail(error)
            return
        self._result = replace(
            self._result,
            setup_seconds=time.perf_counter() - start,
            device=self._program.target.device,
            nodes=len(self._program.graph),
        )

    def check(self, given: Sequence[Any], judge: "_Judge") -> None:
        """Runs each set of inputs once. The first call still belongs to setting up: it may record."""
        worst: dict[str, OutputAccuracy] = {}
        for index, inputs in enumerate(given):
            start = time.perf_counter()
            outputs = self._run(inputs)
            if outputs is None:
                return
            if index == 0:
                seconds = self._result.setup_seconds + time.perf_counter() - start
                self._result = replace(self._result, setup_seconds=seconds)
            for found in judge.accuracies(outputs, index):
                worst[found.name] = max(worst.get(found.name, found), found, key=_badness)
        self._result = replace(self._result, outputs=tuple(worst.values()), memory_bytes=self._taken_bytes())

    def _taken_bytes(self) -> int | None:
        """By how much this process has grown, and what the program has on a GPU."""
        after = resident_bytes()
        if after is None or self._memory is None or self._program is None:
            return None
        return max(0, after - self._memory) + device_bytes(self._program)

    def time(self, inputs: Mapping[str, Any]) -> None:
        """One run that counts."""
        start = time.perf_counter()
        if self._run(inputs) is not None:
            self._times.append(time.perf_counter() - start)

    def finish(self) -> ExecutorResult:
        """The result; the program is closed."""
        if self._program is None:
            return self._result
        segments, fallbacks = self._program.coverage or (None, None)
        found = replace(self._result, segments=segments, fallbacks=fallbacks, remarks=tuple(self._program.remarks))
        self._program.close()
        self._program = None
        return replace(found, latency_seconds=statistics.median(self._times))

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        if self._program is None:
            return None
        try:
            return self._program.run(inputs)
        except CapgraphError as error:
            self._program.close()
            self._program = None
            self._fail(error)
            return None

    def _fail(self, error: CapgraphError) -> None:
        where = f" at {error.where}" if error.where else ""
        self._result = replace(self._result, problem=f"{error.message}{where}", remedy=error.remedy or "")


def device_bytes(program: Program) -> int:
    """The arena and the recordings of a program on a GPU; 0 for one that records nothing."""
    if not is_cuda(program.target.device):
        return 0
    try:
        stats = program.stats()
    except UnsupportedError:
        return 0
    return stats.arena_bytes + stats.recording_bytes


def _badness(found: OutputAccuracy) -> tuple[bool, float, float]:
    return (not found.is_close, found.relative, found.ulps)


def _inputs(graph: Graph, drawing: DrawnInputs) -> list[dict[str, Any]]:
    return fitting_inputs(graph, drawing, evaluator(graph))[1]


def _reference(graph: Graph, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    return evaluate_graph(graph, _values(graph, inputs))


def _ranges(graph: Graph, given: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """The least and the largest size of each symbol in the sets of inputs."""
    found: dict[str, list[int]] = {}
    for inputs in given:
        sizes: Sizes = {}
        bind_inputs(graph, _values(graph, inputs), sizes)
        for name, size in sizes.items():
            found.setdefault(name, []).append(size)
    return {name: (min(sizes), max(sizes)) for name, sizes in found.items() if min(sizes) > 0}


def _values(graph: Graph, inputs: Mapping[str, Any]) -> list[Any]:
    values = {**{name: content.array for name, content in graph.defaults.items()}, **inputs}
    missing = [value.name for value in graph.inputs if value.name not in values]
    if missing:
        raise InputError(f"input {missing[0]!r} is missing", remedy="give a value for every input without a default")
    return [values[value.name] for value in graph.inputs]


def _refuse_random(graph: Graph, inputs: Mapping[str, Any], expected: Sequence[Any]) -> None:
    again = zip(graph.output_names, expected, _reference(graph, inputs), strict=True)
    if any(output_error(name, old, new).largest for name, old, new in again):
        raise UnsupportedError(
            "the model gives other outputs on each run, so that nothing can be held to it",
            remedy="compare a model without random numbers",
        )


# ---- how far apart


class _Judge:
    """Holds outputs to those of the reference, and what is off by more than it may be to the model in f64."""

    def __init__(
        self,
        graph: Graph,
        tolerance: Tolerance,
        given: Sequence[Mapping[str, Any]],
        expected: Sequence[Sequence[Any]],
    ) -> None:
        self._names = graph.output_names
        self._tolerance = tolerance
        self._rtol = tolerance.rtol_for(graph, given[0])
        self._given = given
        self._expected = expected
        self._exact = ExactResults(graph)
        self._found: dict[int, Mapping[str, Any] | None] = {}

    def accuracies(self, outputs: Mapping[str, Any], index: int) -> Iterator[OutputAccuracy]:
        """How far the outputs for set number `index` are from the reference."""
        for name, old in zip(self._names, self._expected[index], strict=True):
            error = self._error(name, old, outputs[name], index)
            yield replace(accuracy(name, old, outputs[name], index), is_close=error.is_close)

    def _error(self, name: str, old: Any, new: Any, index: int) -> OutputError:
        error = output_error(name, old, new, self._rtol, self._tolerance.atol)
        if error.is_close or self._tolerance.is_chosen:
            return error
        if index not in self._found:
            self._found[index] = self._exact(self._given[index])
        exact = self._found[index]
        return error if exact is None else held_to_exact(error, exact[name], old, new)


def accuracy(name: str, expected: Any, given: Any, inputs: int = 0) -> OutputAccuracy:
    """How far `given` is from `expected`; of a sequence or a map in what is furthest apart."""
    found = (_accuracy(name, old, new, inputs) for old, new in pairs(expected, given))
    return max(found, key=_badness, default=OutputAccuracy(name, 0.0, 0.0, None, inputs, True))


def _accuracy(name: str, expected: Any, given: Any, inputs: int) -> OutputAccuracy:
    close = output_error(name, expected, given)
    if close.largest == INFINITE or not is_array(expected) or expected.dtype.hasobject:
        return OutputAccuracy(name, close.largest, close.relative, None, inputs, close.is_close)
    old, new = _wide(expected), _wide(given)
    finite = np.isfinite(old)
    with np.errstate(all="ignore"):
        apart = np.where(finite, np.abs(new - old), 0)
        ulps = np.asarray(apart / _spacing(old, DType.of(expected.dtype)), dtype=np.float64)
    norm = float(np.linalg.norm(np.where(finite, old, 0).reshape(-1)))
    error = float(np.linalg.norm(apart.reshape(-1)))
    relative = error / norm if norm else (INFINITE if error else 0.0)
    worst = int(ulps.argmax()) if ulps.size else 0
    position = tuple(int(at) for at in np.unravel_index(worst, ulps.shape)) if ulps.size and error else None
    return OutputAccuracy(name, float(ulps.max(initial=0.0)), relative, position, inputs, close.is_close)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _spacing(values: Array, dtype: DType) -> Array:
    """The unit in the last place of each value; 1 for integers."""
    if not dtype.is_float and dtype.numpy.kind != "c":
        return np.ones(values.shape)
    facts: Any = np.finfo if dtype.numpy.kind == "c" else ml_dtypes.finfo
    limits = facts(dtype.numpy)
    size = np.maximum(np.abs(np.where(np.isfinite(values), values, 0)), float(limits.smallest_normal))
    units: Array = np.exp2(np.floor(np.log2(size))) * float(limits.eps)
    return units
