"""Numeric checking: the graph before and after a pass, evaluated on drawn inputs and compared.

An exact pass must not move a bit (equal NaNs count as equal, and so do the two zeros). What a rounding-changing pass
may move, where results are finite, follows from the dtype, from how many terms the longest sum has - errors of half a
unit in the last place add up like a random walk - and from how far the graph itself moves when every operation is off
by one rounding, which is measured by evaluating it that way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod, sqrt
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

from ..ir.analysis import all_nodes, last_uses, node_flops
from ..ir.constant import Array, is_array
from ..ir.dims import evaluate, symbols
from ..ir.errors import CapgraphError, UnsupportedError
from ..ir.evaluate import Sizes, bind_inputs, evaluate_node, failure
from ..ir.graph import Graph, Node, Value
from ..ir.op import Trait
from ..ir.types import DType, Kind, TensorType, type_symbols
from .exactness import Exactness

ROUNDINGS = 16.0
"""Roundings per term of the random walk that a pass may add before it counts as wrong."""

AMPLIFICATION = 64.0
"""How many times the graph's own response to one rounding of each operation a pass may add."""

APPROXIMATE_ERROR = 2e-2
"""Relative error, by the largest value of an output, that an approximate pass may add."""

_MANY = 64
_LITTLE = 4096
_RUNS_OF_SMALL = 6

SIZES = (3, 2, 5, 4, 7, 6)
"""What symbolic sizes are bound to, in the order of their names: small, and different from each other."""


_silent = np.errstate(all="ignore")  # infinities and NaN are compared like any other result


@dataclass(frozen=True)
class Sample:
    """One set of inputs, what the graph gave for it, and how far each output moves when operations err."""

    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]
    response: tuple[float, ...]


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
        if any(node.op.has(Trait.IMPURE) for node in all_nodes(graph)):
            raise UnsupportedError("a graph with random ops cannot be checked numerically", remedy="check='structure'")
        return cls(tuple(_sample(graph, each) for each in inputs), max(_most_terms(graph, each) for each in inputs))

    @property
    def inputs(self) -> list[tuple[Any, ...]]:
        """The inputs of each sample, in the order of the graph's inputs."""
        return [sample.inputs for sample in self.samples]

    def first_difference(self, graph: Graph, exactness: Exactness) -> str:
        """Where `graph` gives another result than expected: output, position and both values; empty when nowhere."""
        return self.compared(graph, exactness)[0]

    def compared(self, graph: Graph, exactness: Exactness) -> "tuple[str, Samples]":
        """`first_difference`, and samples that expect what `graph` gave, for the next pass to be held to."""
        given: list[Sample] = []
        for sample in self.samples:
            try:
                outputs = _outputs(graph, sample.inputs)
            except CapgraphError as error:
                return f"it cannot be evaluated any more: {error.message} at {error.where}", self
            problem = self._difference(graph, sample, outputs, exactness)
            if problem:
                return problem, self
            given.append(replace(sample, expected=outputs))
        return "", replace(self, samples=tuple(given))

    def _difference(self, graph: Graph, sample: Sample, outputs: Sequence[Any], exactness: Exactness) -> str:
        rows = zip(graph.output_names, outputs, sample.expected, sample.response, strict=True)
        for name, new, old, response in rows:
            problem = difference(old, new, exactness, self.terms, response)
            if problem:
                return f"output {name} {problem}"
        return ""


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
    close = np.abs(wide_new - wide_old) <= bound
    same = (wide_new == wide_old) | (np.isnan(wide_new) & np.isnan(wide_old))
    if exactness is not Exactness.EXACT:
        same |= ~np.isfinite(wide_old)  # what overflows in one order of operations need not in another
    wrong = np.argwhere(~(same | close))
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
    rounding = _epsilon(dtype) * scale * ROUNDINGS * sqrt(terms) + AMPLIFICATION * response
    return rounding if exactness is Exactness.ROUNDING else rounding + APPROXIMATE_ERROR * scale


def _epsilon(dtype: DType) -> float:
    if dtype.kind is Kind.COMPLEX:
        return float(np.finfo(dtype.numpy).eps)
    return float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]


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
        expected = _outputs(graph, inputs)
    except CapgraphError as error:
        raise UnsupportedError(
            f"the graph cannot be evaluated on drawn inputs: {error.message}",
            where=error.where,
            remedy="pass samples of real inputs, or check='structure'",
        ) from error
    return Sample(tuple(inputs), expected, _response(graph, inputs, expected))


@_silent
def _outputs(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What `graph` gives, every operation working on contiguous arrays: NumPy adds up others in another order."""
    sizes: Sizes = {}
    bind_inputs(graph, inputs, sizes)
    values: dict[Value, Any] = dict(zip(graph.inputs, map(_contiguous, inputs), strict=True))
    last = last_uses(graph)
    for node in graph.nodes:
        operands = [values[value] if value is not None else None for value in node.inputs]
        results = evaluate_node(node, operands, sizes)
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


def _response(graph: Graph, inputs: Sequence[Any], expected: Sequence[Any]) -> tuple[float, ...]:
    """How far each output moves when inputs, weights and computed floats are off by one rounding.

    Infinite where operations overflow, for then their order decides, and where a size depends on a rounding. Errors
    that cancel by chance in one of many elements do not matter; where there are few, several runs are made, and
    wherever these cost little, as one row among many can hang on a rounding that no other sees.
    """
    sizes = [value.size for value in (*inputs, *expected) if is_array(value)]
    is_small = sum(sizes) < _LITTLE or any(is_array(value) and value.size < _MANY for value in expected)
    runs = [_moved(graph, inputs, expected, seed) for seed in range(_RUNS_OF_SMALL if is_small else 1)]
    return tuple(map(max, *runs)) if len(runs) > 1 else runs[0]


def _moved(graph: Graph, inputs: Sequence[Any], expected: Sequence[Any], seed: int) -> tuple[float, ...]:
    run = _RoughRun(seed)
    try:
        moved = run.outputs(graph, inputs)
    except CapgraphError:
        return (inf,) * len(expected)
    overflowed = [value in run.overflowed for value in graph.outputs]
    return tuple(inf if lost else _distance(*pair) for *pair, lost in zip(expected, moved, overflowed, strict=True))


class _RoughRun:
    """An evaluation with an error in every operation; `overflowed` are values in which, or before which, one did."""

    def __init__(self, seed: int) -> None:
        self.overflowed: set[Value] = set()
        self._random = np.random.default_rng(seed)

    @_silent
    def outputs(self, graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
        sizes: Sizes = {}
        bind_inputs(graph, inputs, sizes)
        values = {value: self._nudged(given) for value, given in zip(graph.inputs, inputs, strict=True)}
        for node in graph.nodes:
            operands = [values[value] if value is not None else None for value in node.inputs]
            before = dict(sizes)
            results = evaluate_node(node, operands, sizes)
            if not self.overflowed.isdisjoint(node.operands) or _overflows(node, operands, results, before):
                self.overflowed.update(node.outputs)
            if _rounds(node):
                results = tuple(self._nudged(result) for result in results)
            values.update(zip(node.outputs, results, strict=True))
        return tuple(values[value] for value in graph.outputs)

    def _nudged(self, array: Any) -> Any:
        """Every float one rounding up or down; the largest number stays finite."""
        if not _is_float(array):
            return array
        step = self._random.choice((-1.0, 1.0), array.shape) * _epsilon(DType.of(array.dtype))
        moved = np.asarray(array.astype(np.float64) * (1.0 + step), dtype=array.dtype)  # with no axes it is a scalar
        return np.where(np.isfinite(moved), moved, array)


def _is_float(array: Any) -> bool:
    return is_array(array) and not array.dtype.hasobject and DType.of(array.dtype).is_float


def _overflows(node: Node, operands: Sequence[Any], results: Sequence[Any], sizes: Sizes) -> bool:
    """Whether infinities or NaN come about in an operation: also where 1 stands for all that were given to it."""
    if all(map(_is_finite, results)) or not any(map(_is_float, operands)):
        return False
    if all(map(_is_finite, operands)):
        return True
    try:
        tame = evaluate_node(node, [_finite(operand) for operand in operands], dict(sizes))
    except CapgraphError:
        return False
    return not all(map(_is_finite, tame))


def _is_finite(value: Any) -> bool:
    return not _is_float(value) or bool(np.isfinite(value).all())


def _finite(value: Any) -> Any:
    return (
        value if _is_finite(value) or not is_array(value) else np.where(np.isfinite(value), value, np.ones_like(value))
    )


_WITHOUT_ROUNDING = frozenset(("abs", "ceil", "clip", "floor", "max", "min", "neg", "relu", "round", "sign", "where"))


def _rounds(node: Node) -> bool:
    """Whether a pass may round what the node gives otherwise: computed floats, and weights, which take in factors."""
    if node.op.name in _WITHOUT_ROUNDING:
        return False
    return node.op.name == "constant" or node_flops(node) != 0


def _distance(first: Any, second: Any) -> float:
    if not is_array(first) or first.dtype.hasobject:
        return 0.0
    if first.shape != second.shape:
        return inf
    with np.errstate(all="ignore"):
        apart = np.abs(_wide(first).astype(np.complex128) - _wide(second))
    finite = apart[np.isfinite(apart)]
    return float(finite.max()) if finite.size else 0.0


def _most_terms(graph: Graph, inputs: Sequence[Any]) -> int:
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
