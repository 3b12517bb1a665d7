"""Numeric checking: the graph before and after a pass, evaluated on drawn inputs and compared.

An exact pass must not move a bit (equal NaNs count as equal, and so do the two zeros). What a rounding-changing pass
may move, where results are finite, follows from the dtype, from how many terms the longest sum has - errors of half a
unit in the last place add up like a random walk - and from how far the graph itself moves when every operation is off
by one rounding, which is measured by evaluating it that way. Elements that hang on an overflow are held to nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod, sqrt
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

from ...ir.analysis import all_nodes, last_uses, node_flops
from ...ir.constant import Array, is_array
from ...ir.dims import evaluate, symbols
from ...ir.errors import CapgraphError, UnsupportedError
from ...ir.evaluate import Sizes, bind_inputs, evaluate_node, failure
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import CONSTANT
from ...ir.types import DType, Kind, TensorType, type_symbols
from .exactness import Exactness

ROUNDINGS = 16.0
"""Roundings per term of the random walk that a pass may add before it counts as wrong."""

AMPLIFICATION = 64.0
"""How many times the graph's own response to one rounding of each operation a pass may add."""

APPROXIMATE_ERROR = 2e-2
"""Relative error, by the largest value of an output, that an approximate pass may add."""

_RUNS_BY_ELEMENT = 8
_RUNS_OF_OVERFLOWS = 8
_MANY = 64
_LITTLE = 4096
_RUNS_OF_SMALL = 6

SIZES = (3, 2, 5, 4, 7, 6)
"""What symbolic sizes are bound to, in the order of their names: small, and different from each other."""


_silent = np.errstate(all="ignore")  # infinities and NaN are compared like any other result


@dataclass(frozen=True)
class Response:
    """How an output answers to operations that err, by one rounding or by an overflow.

    `moved` is the farthest that any element moves; infinite where the output as a whole is open: its shape hangs on a
    rounding, or it is no array and hangs on an overflow. `is_open` marks elements that may be anything: infinities and
    NaN, and what hangs on an overflow, after which the order of operations decides; None where there are none. Beside
    them stand numbers as large as the dtype has, by which the others must not be measured: `by_element` is how far each
    element moves; None where they are measured by the largest.
    """

    moved: float
    is_open: Array | None = None
    by_element: Array | None = None

    @property
    def is_judged(self) -> bool:
        """Whether any element can be held to anything after a pass that may round."""
        return self.moved < inf and (self.is_open is None or not self.is_open.all())


Cut = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""What a caller gets of the outputs of a graph."""


@dataclass(frozen=True)
class Sample:
    """One set of inputs, what the caller got for it, and how each output answers when operations err.

    `cut` is what callers get of the outputs; None where they get them as they are. `is_resized` says that `expected`
    is of a call of other sizes, at which libraries add up in another order.
    """

    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    responses: tuple[Response, ...]
    cut: Cut | None = None
    is_resized: bool = False

    def results(self, graph: Graph) -> tuple[Any, ...]:
        """What the caller gets when `graph` runs. Raises what evaluating raises."""
        outputs = _outputs(graph, self.inputs)
        return outputs if self.cut is None else self.cut(outputs)

    @classmethod
    def of(cls, graph: Graph, inputs: Sequence[Any]) -> "Sample":
        """A sample with these inputs. Raises what evaluating raises."""
        expected = _outputs(graph, inputs)
        return cls(tuple(inputs), expected, _responses(graph, inputs, expected))


class CallChange(ABC):
    """How calls of a graph become calls of what a pass made of it, with other inputs or outputs."""

    @abstractmethod
    def samples(self, before: Graph, sample: Sample) -> Iterable[Sample]:
        """Samples of the graph after the pass, made from one of the graph `before` it."""


@dataclass(frozen=True)
class Samples:
    """Inputs and expected outputs of a graph before any pass ran; `terms` is the length of its longest sum."""

    samples: tuple[Sample, ...]
    terms: int

    @classmethod
    def drawn(cls, graph: Graph, *, count: int = 2, seed: int = 0, sizes: Mapping[str, int] | None = None) -> "Samples":
        """Draws `count` sets of inputs on which `graph` can be evaluated.

        `sizes` gives symbols of the inputs; those that it leaves out get small sizes. Raises `UnsupportedError` when
        the graph cannot be evaluated on any, or gives other results each time.
        """
        random = np.random.default_rng(seed)
        bound = {**draw_sizes(graph), **(sizes or {})}
        return cls.of(graph, [[draw(value, bound, random) for value in graph.inputs] for _ in range(count)])

    @classmethod
    def of(cls, graph: Graph, inputs: Sequence[Sequence[Any]]) -> "Samples":
        """Samples for given inputs, each in the order of the graph's inputs."""
        if any(node.op.has(Trait.IMPURE) and node.attrs["seed"] is None for node in all_nodes(graph)):
            raise UnsupportedError("a graph with random ops cannot be checked numerically", remedy="check='structure'")
        return cls(tuple(_sample(graph, each) for each in inputs), max(longest_sum(graph, each) for each in inputs))

    def called(self, change: CallChange | None, before: Graph) -> "Samples":
        """The samples of what a pass made of `before`, where that is called as `change` says."""
        if change is None:
            return self
        made = ((sample, each) for sample in self.samples for each in change.samples(before, sample))
        return replace(self, samples=tuple(replace(new, is_resized=new.cut is not old.cut) for old, new in made))

    def expecting(self, graph: Graph) -> "Samples":
        """The same samples, which expect what `graph` gives."""
        return replace(self, samples=tuple(replace(each, expected=each.results(graph)) for each in self.samples))

    @property
    def inputs(self) -> list[tuple[Any, ...]]:
        """The inputs of each sample, in the order of the graph's inputs."""
        return [sample.inputs for sample in self.samples]

    @property
    def unjudged(self) -> list[int]:
        """The positions of outputs of which no sample tells anything after a pass that may round."""
        by_output = zip(*(sample.responses for sample in self.samples), strict=True)
        return [index for index, each in enumerate(by_output) if not any(one.is_judged for one in each)]

    def first_difference(self, graph: Graph, exactness: Exactness) -> str:
        """Where `graph` gives another result than expected: output, position and both values; empty when nowhere."""
        return self.compared(graph, exactness)[0]

    def compared(self, graph: Graph, exactness: Exactness) -> "tuple[str, Samples]":
        """`first_difference`, and samples that expect what `graph` gave, for the next pass to be held to."""
        given: list[Sample] = []
        for sample in self.samples:
            try:
                outputs = sample.results(graph)
            except CapgraphError as error:
                return f"it cannot be evaluated any more: {error.message} at {error.where}", self
            problem = self._difference(graph, sample, outputs, exactness)
            if problem:
                return problem, self
            given.append(replace(sample, expected=outputs, is_resized=False))
        return "", replace(self, samples=tuple(given))

    def _difference(self, graph: Graph, sample: Sample, outputs: Sequence[Any], exactness: Exactness) -> str:
        if len(outputs) != len(sample.expected):
            return f"it gives {len(outputs)} outputs instead of {len(sample.expected)}"
        if sample.is_resized and exactness is Exactness.EXACT:
            exactness = Exactness.ROUNDING
        rows = zip(outputs, sample.expected, sample.responses, strict=True)
        for name, (new, old, response) in zip(graph.output_names, rows, strict=False):  # further ones are cut off
            problem = answered_difference(old, new, exactness, self.terms, response)
            if problem:
                return f"output {name} {problem}"
        return ""


def answered_difference(old: Any, new: Any, exactness: Exactness, terms: int, response: Response) -> str:
    """As `difference`, where an output that answers so may move further, and is open in places."""
    pair = (old, new) if exactness is Exactness.EXACT else _closed(old, new, response)
    problem = difference(*pair, exactness, terms, response.moved)
    if not problem and exactness is Exactness.ROUNDING and response.by_element is not None:
        problem = _difference_of_elements(*pair, response.by_element, terms)
    return problem


def _closed(old: Any, new: Any, response: Response) -> tuple[Any, Any]:
    """Two results with zeros where `response` leaves open what they are."""
    if response.is_open is None or old.dtype != new.dtype or old.shape != new.shape:
        return old, new
    zero: Array = np.zeros((), old.dtype)
    return np.where(response.is_open, zero, old), np.where(response.is_open, zero, new)


@_silent
def difference(old: Any, new: Any, exactness: Exactness, terms: int = 1, response: float = 0.0) -> str:
    """How `new` differs from `old` by more than `exactness` allows, in words; empty when it does not.

    Sequences are lists, and maps are dicts of f32 values.
    """
    if _is_sequence(old) and _is_sequence(new):
        return _difference_of_sequences(old, new, exactness, terms, response)
    if _is_map(old) and _is_map(new):
        old, new = _aligned(old, new)
    if not is_array(old) or not is_array(new):
        return "" if repr(old) == repr(new) else f"is {new!r} instead of {old!r}"
    if exactness is not Exactness.EXACT and response == inf and old.dtype == new.dtype:
        return ""
    if old.dtype != new.dtype or old.shape != new.shape:
        return f"is {new.dtype}{list(new.shape)} instead of {old.dtype}{list(old.shape)}"
    if old.dtype.hasobject:
        return "" if old.tolist() == new.tolist() else "has other strings"
    wide_old, wide_new = _wide(old), _wide(new)
    bound = tolerance(wide_old, DType.of(old.dtype), exactness, terms, response)
    close = _apart(wide_new, wide_old) <= bound
    same = (wide_new == wide_old) | (np.isnan(wide_new) & np.isnan(wide_old))
    if exactness is not Exactness.EXACT:
        same |= ~np.isfinite(wide_old)  # what overflows in one order of operations need not in another
    return _first_wrong(old, new, ~(same | close))


@_silent
def _difference_of_elements(old: Array, new: Array, moved: Array, terms: int) -> str:
    """How `new` differs from `old` by more than a pass that rounds may, every element being measured by itself.

    Below the smallest normal number errors are not in proportion: what underflows is lost as a whole.
    """
    smallest = float(ml_dtypes.finfo(old.dtype).smallest_normal)  # type: ignore[no-untyped-call]
    rounding = (_epsilon(DType.of(old.dtype)) * np.abs(_wide(old)) + smallest) * ROUNDINGS * sqrt(terms)
    apart = _apart(_wide(new), _wide(old))
    return _first_wrong(old, new, apart > rounding + AMPLIFICATION * moved)


def _first_wrong(old: Array, new: Array, is_wrong: Array) -> str:
    wrong = np.argwhere(is_wrong)
    if not len(wrong):
        return ""
    where = tuple(int(index) for index in wrong[0])
    return f"at {list(where)} is {new[where]!s} instead of {old[where]!s} ({len(wrong)} of {old.size} differ)"


def _is_sequence(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_map(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _difference_of_sequences(old: list[Any], new: list[Any], exactness: Exactness, terms: int, response: float) -> str:
    if len(old) != len(new):
        return f"has {len(new)} elements instead of {len(old)}"
    found = (difference(before, after, exactness, terms, response) for before, after in zip(old, new, strict=True))
    return next((f"in element {index} {words}" for index, words in enumerate(found) if words), "")


def _aligned(old: dict[Any, Any], new: dict[Any, Any]) -> tuple[Any, Any]:
    """The values of two maps in one order of keys; the maps themselves where their keys differ."""
    if old.keys() != new.keys():
        return old, new
    return np.array(list(old.values()), np.float32), np.array([new[key] for key in old], np.float32)


def tolerance(expected: Array, dtype: DType, exactness: Exactness, terms: int, response: float) -> float:
    """The absolute error that is allowed for an output with these expected values."""
    if exactness is Exactness.EXACT:
        return 0.0
    if dtype.kind not in (Kind.FLOAT, Kind.COMPLEX):
        return AMPLIFICATION * response
    finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.max()) if finite.size else 0.0
    rounding = (_epsilon(dtype) * scale + _least(dtype)) * ROUNDINGS * sqrt(terms) + AMPLIFICATION * response
    return rounding if exactness is Exactness.ROUNDING else rounding + APPROXIMATE_ERROR * scale


def _epsilon(dtype: DType) -> float:
    if dtype.kind is Kind.COMPLEX:
        return float(np.finfo(dtype.numpy).eps)
    return float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]


def _least(dtype: DType) -> float:
    """The smallest positive number, by which results near it are rounded."""
    if dtype.kind is Kind.COMPLEX:
        return float(np.finfo(dtype.numpy).smallest_subnormal)
    return float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)  # type: ignore[no-untyped-call]


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array if array.dtype.kind in "iub" and array.dtype.itemsize == 8 else array.astype(np.float64)


# ---- drawing


def draw_sizes(graph: Graph) -> dict[str, int]:
    """Small sizes for the symbols of a graph's inputs."""
    names = sorted(frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs)))
    return {name: SIZES[index % len(SIZES)] for index, name in enumerate(names)}


def draw(value: Value, sizes: Mapping[str, int], random: np.random.Generator) -> Array:
    """An array for an input: floats from a normal distribution, integers 0 or 1 so that they are valid indices."""
    ty = value.type
    if not isinstance(ty, TensorType) or ty.shape is None:
        raise UnsupportedError(f"no value can be drawn for input {value.name} of type {ty}", remedy="pass samples")
    shape = tuple(evaluate(dim, sizes) for dim in ty.shape)
    if ty.dtype.kind is Kind.FLOAT:
        return random.standard_normal(shape).astype(ty.dtype.numpy)
    if ty.dtype.kind is Kind.COMPLEX:
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(ty.dtype.numpy)
    if ty.dtype.kind is Kind.STRING:
        return np.full(shape, "text", dtype=object)
    return random.integers(0, 2, shape).astype(ty.dtype.numpy)


def _sample(graph: Graph, inputs: Sequence[Any]) -> Sample:
    try:
        return Sample.of(graph, inputs)
    except CapgraphError as error:
        raise UnsupportedError(
            f"the graph cannot be evaluated on drawn inputs: {error.message}",
            where=error.where,
            remedy="pass samples of real inputs, or check='structure'",
        ) from error


Step = Callable[[Node, Sequence[Any], Sizes], tuple[Any, ...]]
"""How a node is evaluated: its results from its operands, adding to the sizes."""


@_silent
def _outputs(graph: Graph, inputs: Sequence[Any], step: Step = evaluate_node) -> tuple[Any, ...]:
    """What `graph` gives, every operation working on contiguous arrays: NumPy adds up others in another order."""
    sizes: Sizes = {}
    bind_inputs(graph, inputs, sizes)
    values: dict[Value, Any] = dict(zip(graph.inputs, map(_contiguous, inputs), strict=True))
    last = last_uses(graph)
    for node in graph.nodes:
        operands = [values[value] if value is not None else None for value in node.inputs]
        results = step(node, operands, sizes)
        try:
            values.update(zip(node.outputs, map(_contiguous, results), strict=True))
        except MemoryError as error:  # of a view, such as an expand to an enormous size
            raise failure(node, error) from error
        for value in dict.fromkeys(node.operands):
            if last.get(value) is node:
                del values[value]
    return tuple(values[value] for value in graph.outputs)


def _contiguous(value: Any) -> Any:
    return np.ascontiguousarray(value).reshape(value.shape) if is_array(value) else value


# ---- how outputs answer to operations that err


_LOST = object()
"""What stands for the results of a node that fails in a rough evaluation, and for all that is computed from them."""


def _responses(graph: Graph, inputs: Sequence[Any], expected: Sequence[Any]) -> tuple[Response, ...]:
    """How each output answers when inputs, weights and computed floats are off by one rounding, and to overflows.

    Errors that cancel by chance in one of many elements do not matter; where there are few, several runs are made, and
    wherever these cost little, as one row among many can hang on a rounding that no other sees. What hangs on an
    overflow shows by moving, to the last bit, when other numbers stand for the infinities and NaN that came about.
    """
    sizes = [value.size for value in (*inputs, *expected) if is_array(value)]
    is_small = sum(sizes) < _LITTLE or any(is_array(value) and value.size < _MANY for value in expected)
    nudged = [_nudged_outputs(graph, inputs, seed) for seed in range(_RUNS_OF_SMALL if is_small else 1)]
    replaced = [_outputs(graph, inputs, partial(_replacing_step, np.random.default_rng(0)))]
    if any(map(_differs, expected, replaced[0])):
        seeds = range(1, _RUNS_OF_OVERFLOWS)
        replaced += [_outputs(graph, inputs, partial(_replacing_step, np.random.default_rng(seed))) for seed in seeds]
    found = tuple(
        _response(value, [run[index] for run in nudged], [run[index] for run in replaced])
        for index, value in enumerate(expected)
    )
    if not any(map(_is_partly_open, expected, found)):
        return found
    uneven = [_nudged_outputs(graph, inputs, seed, _UNEVEN) for seed in range(_RUNS_BY_ELEMENT)]
    return tuple(
        _measured_by_element(response, value, [run[index] for run in uneven])
        for index, (value, response) in enumerate(zip(expected, found, strict=True))
    )


def _is_partly_open(expected: Any, response: Response) -> bool:
    return _is_float(expected) and response.is_open is not None and response.is_judged


@_silent
def _measured_by_element(response: Response, expected: Any, runs: Sequence[Any]) -> Response:
    """The same response with `by_element` where some elements are open and others are not.

    The errors of `runs` are of several sizes, so that they hardly ever cancel in all runs.
    """
    if not _is_partly_open(expected, response) or any(_shape(run) != expected.shape for run in runs):
        return response
    apart = np.array([np.abs(_wide(run) - _wide(expected)) for run in runs])
    return replace(response, by_element=np.where(np.isfinite(apart), apart, inf).max(axis=0))


@_silent
def _response(expected: Any, nudged: Sequence[Any], replaced: Sequence[Any]) -> Response:
    if any(_shape(run) != _shape(expected) for run in (*nudged, *replaced)):
        return Response(inf)
    if not is_array(expected) or expected.dtype.hasobject:
        return Response(inf if any(_differs(expected, run) for run in replaced) else 0.0)
    wide = _wide(expected)
    is_open = ~np.isfinite(wide)
    for run in replaced:
        is_open |= ~((_wide(run) == wide) | (np.isnan(_wide(run)) & np.isnan(wide)))
    for run in nudged:
        is_open |= ~np.isfinite(_wide(run))
    return Response(max(_distance(expected, run, ~is_open) for run in nudged), is_open if is_open.any() else None)


def _shape(value: Any) -> Any:
    """What an evaluation with errors must not move for its result to be comparable; None where there is no shape."""
    return _LOST if value is _LOST else getattr(value, "shape", None)


def _differs(first: Any, second: Any) -> bool:
    return second is _LOST or bool(difference(first, second, Exactness.EXACT))


def _distance(first: Array, second: Array, where: Array) -> float:
    apart = _apart(_wide(first), _wide(second))[where]
    return float(np.max(apart, where=np.isfinite(apart), initial=0.0))


def _apart(first: Array, second: Array) -> Array:
    """How far wide numbers are from each other, in f64; of long integers, which f64 lacks, the difference is taken."""
    if first.dtype.kind not in "iu":
        return np.asarray(np.abs(first - second))
    return np.where(first < second, second - first, first - second).astype(np.float64)


def _tolerant_step(node: Node, operands: Sequence[Any], sizes: Sizes) -> tuple[Any, ...]:
    """The results of a node, lost where it fails or an operand is."""
    if any(operand is _LOST for operand in operands):
        return (_LOST,) * len(node.outputs)
    try:
        return evaluate_node(node, operands, sizes)
    except CapgraphError:
        return (_LOST,) * len(node.outputs)


_EVEN = (-1.0, 1.0)
_UNEVEN = (-3.0, -2.0, -1.0, 1.0, 2.0, 3.0)


@_silent
def _nudged_outputs(graph: Graph, inputs: Sequence[Any], seed: int, steps: Sequence[float] = _EVEN) -> tuple[Any, ...]:
    """What `graph` gives when inputs and computed floats are off by one of `steps`, in roundings."""
    nudge = _Nudge(seed, steps)
    return _outputs(graph, [nudge.moved(value) for value in inputs], nudge.step)


class _Nudge:
    """Moves floats by one of `steps`, in roundings, drawn for each element."""

    def __init__(self, seed: int, steps: Sequence[float]) -> None:
        self._random = np.random.default_rng(seed)
        self._steps = steps

    def step(self, node: Node, operands: Sequence[Any], sizes: Sizes) -> tuple[Any, ...]:
        results = _tolerant_step(node, operands, sizes)
        return tuple(map(self.moved, results)) if _rounds(node) else results

    def moved(self, array: Any) -> Any:
        """The largest number stays finite, and zero what it is."""
        if not _is_float(array):
            return array
        dtype, wide = DType.of(array.dtype), array.astype(np.float64)
        rounding = np.where(wide == 0, 0.0, np.maximum(np.abs(wide) * _epsilon(dtype), _least(dtype)))
        moved = wide + self._random.choice(self._steps, array.shape) * rounding
        moved = np.asarray(moved, dtype=array.dtype)  # with no axes it is a scalar
        return np.where(np.isfinite(moved), moved, array)


def _replacing_step(random: np.random.Generator, node: Node, operands: Sequence[Any], sizes: Sizes) -> tuple[Any, ...]:
    """The results of a node, with numbers of either sign for the infinities and NaN that came about in it."""
    before = dict(sizes)
    results = _tolerant_step(node, operands, sizes)
    if all(map(_is_finite, results)) or not any(map(_is_float, operands)):
        return results
    tame = results if all(map(_is_finite, operands)) else _tame_results(node, operands, before)
    return tuple(_replaced(result, other, random) for result, other in zip(results, tame, strict=True))


def _tame_results(node: Node, operands: Sequence[Any], sizes: Sizes) -> tuple[Any, ...]:
    """The results of a node to which infinities or NaN were given, where 1 stands for these."""
    return _tolerant_step(node, [_finite(operand) for operand in operands], sizes)


def _replaced(result: Any, tame: Any, random: np.random.Generator) -> Any:
    """`result` with other numbers, common and very large ones, where neither it nor `tame` is finite.

    Common ones may vanish beside what they are added to, very large ones may win whatever they are.
    """
    if _is_finite(result) or not _is_float(tame) or tame.shape != result.shape:
        return result
    shape: tuple[int, ...] = result.shape
    largest = np.log2(float(ml_dtypes.finfo(result.dtype).max))  # type: ignore[no-untyped-call]
    exponents = np.where(random.random(shape) < 0.5, random.uniform(-3, 3, shape), random.uniform(0.6, 0.9) * largest)
    other = np.asarray(random.choice((-1.0, 1.0), shape) * np.exp2(exponents), dtype=result.dtype)
    return np.where(np.isfinite(result) | np.isfinite(tame), result, other)


def _is_float(array: Any) -> bool:
    return is_array(array) and not array.dtype.hasobject and DType.of(array.dtype).is_float


def _is_finite(value: Any) -> bool:
    return not _is_float(value) or bool(np.isfinite(value).all())


def _finite(value: Any) -> Any:
    return (
        value if _is_finite(value) or not is_array(value) else np.where(np.isfinite(value), value, np.ones_like(value))
    )


def _rounds(node: Node) -> bool:
    """Whether a pass may round a node's floats otherwise: computed, drawn, and weights, which take in factors."""
    if node.op.has(Trait.UNROUNDED):
        return False
    return node.op is CONSTANT or node.op.has(Trait.DRAWS) or node_flops(node) != 0


def longest_sum(graph: Graph, inputs: Sequence[Any]) -> int:
    """The most operations per element that any node writes, where sizes are known: how long its sums are."""
    sizes: Sizes = {}
    bind_inputs(graph, inputs, sizes)
    return max((_terms(node, sizes) for node in graph.nodes), default=1)


def _terms(node: Node, sizes: Sizes) -> int:
    shapes = [value.type.shape for value in node.outputs if isinstance(value.type, TensorType)]
    dims = [dim for shape in shapes for dim in shape or ()]
    work = node_flops(node)
    if not frozenset[str]().union(symbols(work), *map(symbols, dims)) <= sizes.keys():
        return 1
    written = min((prod(evaluate(dim, sizes) for dim in shape or ()) for shape in shapes), default=1)
    return max(evaluate(work, sizes) // max(written, 1), 1)
