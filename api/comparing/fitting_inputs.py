"""Inputs that a model runs on: arrays that were given or are drawn, at sizes that are found by trying."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from time import monotonic
from typing import Any

from ..inputs import gather_inputs
from ..ir.analysis import constraints
from ..ir.analysis.contents import constant_of
from ..ir.dims import Dim, evaluate, symbols
from ..ir.dims.constraints import Constraint
from ..ir.errors import CapgraphError, ExecutionError, UnsupportedError
from ..ir.evaluate import Sizes, bind_inputs, evaluate_graph
from ..ir.graph import Graph
from ..ir.ops.known import EQUAL
from ..ir.types import TensorType, type_symbols
from ..passes.framework.numeric import draw_sizes

_OTHER_SIZES = (8, 16, 32, 48, 64, 128, 224, 320, 512, 1024, 4096, 1)
"""What symbols are tried with where a model does not run on small sizes: on 1 broadcasting hides what does not fit."""
_MOST_ELEMENTS = 1 << 22
_MOST_ALONE = 3  # symbols
_MOST_ROUNDS = 8
_MOST_TRIED = 1 << 10
_LONGEST_S = 60.0
"""For how long other sizes are tried where a model does not run on small ones; the one begun last is ended."""

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class DrawnInputs:
    """The inputs that models are compared on: `count` sets from `sources`, with `sizes`, as `gather_inputs` has it."""

    count: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


def fitting_inputs(graph: Graph, drawing: DrawnInputs, run: Run) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """The sizes, and a set of inputs for each count. Small sizes come first, then others, until the model runs.

    Sizes that break what the nodes ask of each other come last: there the model runs by chance, if at all.
    """
    small = draw_sizes(graph)
    free = [name for name in small if name not in drawing.sizes]
    failure: CapgraphError | None = None
    rules = constraints(graph)
    tries = [small, _adjusted({**small, **drawing.sizes}, rules, free), *_other_sizes(graph, free)]
    end = monotonic() + _LONGEST_S
    for otherwise in sorted(tries, key=lambda sizes: not _holds(rules, {**sizes, **drawing.sizes})):
        bound = {**otherwise, **drawing.sizes}
        try:
            sets = [_arrays(graph, drawing, otherwise, index) for index in range(drawing.count)]
            if sets:
                run_on(run, sets[0], bound)
        except ExecutionError as error:
            failure = failure or error
            if not free or monotonic() > end:
                break
        else:
            return {**bound, **sizes_of(graph, sets)}, sets
    assert failure is not None  # the loop runs at least once
    raise failure


def asked_sizes(graph: Graph, given: Mapping[str, int]) -> dict[str, int]:
    """Sizes for the symbols of the inputs that are not in `given`: 1, or what the nodes ask of them."""
    bound = {name for value in graph.inputs for name in type_symbols(value.type)}
    free = sorted(bound - given.keys())
    sizes = _adjusted({**dict.fromkeys(free, 1), **given}, constraints(graph), free)
    return {name: sizes[name] for name in free}


def sizes_of(graph: Graph, sets: Sequence[Mapping[str, Any]]) -> Sizes:
    """The sizes of the symbols in the first of the sets of inputs."""
    sizes: Sizes = {}
    if sets:
        bind_inputs(graph, in_order(graph, sets[0]), sizes)
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


def _adjusted(sizes: Mapping[str, int], rules: Sequence[Constraint], free: Sequence[str]) -> dict[str, int]:
    """Sizes of which some of `free` are others, one after another, until `rules` hold or that does not help."""
    found = dict(sizes)
    for _ in range(_MOST_ROUNDS):
        broken = [rule for rule in rules if rule.symbols <= found.keys() and not rule.holds(found)]
        for rule in broken:
            found |= _repair(rule, found, free)
        if not broken:
            break
    return found


def _repair(rule: Constraint, sizes: Mapping[str, int], free: Sequence[str]) -> dict[str, int]:
    """A size of one of `free` with which `rule` holds, none where there is none among small ones."""
    changes = ({name: size} for name in sorted(rule.symbols.intersection(free)) for size in range(1, _MOST_TRIED))
    return next((change for change in changes if rule.holds({**sizes, **change})), {})


def _holds(rules: Sequence[Constraint], sizes: Mapping[str, int]) -> bool:
    return all(rule.holds(sizes) for rule in rules if rule.symbols <= sizes.keys())


def _arrays(graph: Graph, drawing: DrawnInputs, otherwise: Mapping[str, int], seed: int) -> dict[str, Any]:
    sources = {**_compared_numbers(graph, seed), **drawing.sources}
    given = gather_inputs(graph, sources, drawing.sizes, seed, otherwise=otherwise)
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


def evaluator(graph: Graph) -> Run:
    """The reference evaluator as what runs a graph."""
    return lambda inputs: dict(zip(graph.output_names, evaluate_graph(graph, in_order(graph, inputs)), strict=True))


def run_on(run: Run, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    """The results. Raises `ExecutionError` with the sizes when the model cannot run on the inputs."""
    try:
        return run(inputs)
    except UnsupportedError:
        raise
    except CapgraphError as error:
        raise _cannot_run(error.message, sizes, error.where) from error


def _cannot_run(message: str, sizes: Mapping[str, int], where: str | None = None) -> ExecutionError:
    bound = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return ExecutionError(
        f"the model cannot run on drawn inputs{f' with {bound}' if bound else ''}: {message}",
        where=where,
        remedy="give inputs that it runs on (--input NAME=SOURCE) or sizes (--dim NAME=N)",
    )


def in_order(graph: Graph, inputs: Mapping[str, Any]) -> list[Any]:
    """Inputs in the order of the graph's, defaults where there is none."""
    defaults = {name: content.array for name, content in graph.defaults.items()}
    return [{**defaults, **inputs}[value.name] for value in graph.inputs]
