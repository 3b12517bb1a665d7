"""Inputs whose values shape the graph: a program for each set of values that comes again, in which they are constants.

A model may take as inputs the axes of a sum, the shape of a reshape, or the scales of a resize. Nothing behind them has
a size before the run, so that the graph as it stands is not recorded. With their values as constants it is.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import numpy as np

from ...ir.analysis import all_nodes, input_symbols
from ...ir.constant import Array, Constant
from ...ir.dims import SymDim
from ...ir.dims.constraints import Constraint, Difference
from ...ir.errors import CapgraphError, MiscompiledError
from ...ir.graph import Graph, Value
from ...ir.op import Trait
from ...ir.ops import native
from ...ir.ops.interfaces import shaping_operands
from ...ir.ops.known import CONSTANT
from ...ir.target import Target
from ...ir.types import TensorType
from ..base import Coverage, Covered, Executable, Executor
from .counters import Counters, Counting, Stats
from .report import remarks_on

MOST_ELEMENTS = 64
"""An input with more elements is data."""
KEPT = 8
"""So many sets of values have a program of their own; where more come, the others are served by the general one."""
MOST_SEEN = 64
"""So many sets of values are remembered that came once."""


def shaping_inputs(graph: Graph) -> tuple[str, ...]:
    """The small inputs that alone decide operands by which nodes are shaped; none for a graph with states."""
    if graph.states:
        return ()
    found: set[Value] = set()
    for node in graph.nodes:
        for operand in shaping_operands(node):
            sources = set(_sources(operand))
            if all(map(_is_small, sources)):
                found |= sources
    return tuple(value.name for value in graph.inputs if value in found)


def _is_constant(value: Value) -> bool:
    return value.producer is not None and value.producer.op is CONSTANT


def _sources(value: Value) -> Iterator[Value]:
    """The inputs whose elements a value is computed from."""
    seen: set[Value] = set()
    open_values = [value]
    while open_values:
        each = open_values.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.producer is None:
            yield each
        elif not each.producer.op.has(Trait.SIZES):
            open_values += each.producer.operands


def _is_small(value: Value) -> bool:
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return False
    size = value.tensor.size
    return isinstance(size, int) and size <= MOST_ELEMENTS and not value.tensor.dtype.numpy.hasobject


@dataclass(frozen=True)
class _Program:
    """A program for some values, and what must hold for the sizes of its calls."""

    executable: Executable
    assumed: tuple[Constraint, ...]


class ByValueExecutor:
    """Compiles by `inner`; where inputs shape a graph, also copies in which their values are constants.

    `prepare` runs the passes on such a copy, and gives what must hold for the sizes of a call.
    """

    def __init__(self, inner: Executor, prepare: Callable[[Graph], Iterable[Constraint]]) -> None:
        self._inner = inner
        self._prepare = prepare

    def target(self) -> Target:
        """Where `inner` runs."""
        return self._inner.target()

    def compile(self, graph: Graph) -> Executable:
        """See `Executor.compile`."""
        general = self._inner.compile(graph)
        names = shaping_inputs(graph)
        return ByValueExecutable(graph, names, general, self._program) if names else general

    def _program(self, graph: Graph, values: Mapping[str, Array]) -> _Program | None:
        """The program for these values; None where they decide nothing, or the graph has none with them."""
        copy = graph.clone()
        first = copy.first
        assert first is not None  # a node is shaped
        for name, content in values.items():
            value = copy.value(name)
            made = copy.insert_before(first, native("constant"), (), {"value": Constant(content)})
            copy.replace_uses(value, made.output)
            copy.remove_input(value)
        try:
            known = frozenset(input_symbols(graph))
            every = tuple(self._prepare(copy))
            assumed = tuple(each for each in every if each.symbols <= known)
            if any(isinstance(each, Difference) and each not in assumed for each in every):
                return None  # no run tells that sizes are the same
            return _Program(self._inner.compile(copy), assumed) if _blocked(copy) < _blocked(graph) else None
        except MiscompiledError:
            raise
        except CapgraphError:
            return None  # whatever is wrong with the values, the general program says


def _blocked(graph: Graph) -> int:
    """How many nodes cannot be recorded, or only where more is known of what shapes them."""
    nodes = [node for node in all_nodes(graph) if not node.op.is_capturable]
    return sum(1 + sum(not _is_constant(value) for value in shaping_operands(node)) for node in nodes)


class ByValueExecutable:
    """The program of `graph`, and programs for the values of the inputs `names`.

    The first values that come have a program at once, others when they come again: inputs that differ in each call, a
    position say, must not cost a recording each.
    """

    def __init__(
        self,
        graph: Graph,
        names: tuple[str, ...],
        general: Executable,
        program: Callable[[Graph, Mapping[str, Array]], _Program | None],
    ) -> None:
        self._graph = graph
        self._types = {name: graph.value(name).tensor for name in names}
        self._defaults = {name: graph.defaults[name].array for name in names if name in graph.defaults}
        self._general = general
        self._program = program
        self._programs: dict[bytes, _Program | None] = {}
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._latest = general
        self._lock = threading.RLock()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        with self._lock:
            values = self._values(inputs)
            program = None if values is None else self._program_of(values)
            if program is not None and not self._holds(program.assumed, inputs):
                program = None
            self._latest = self._general if program is None else program.executable
            if program is not None:
                inputs = {name: given for name, given in inputs.items() if name not in self._types}
            return self._latest.run(inputs)

    def _values(self, inputs: Mapping[str, Any]) -> dict[str, Array] | None:
        """The contents of the shaping inputs; None where the call is refused for one of them."""
        found: dict[str, Array] = {}
        for name, ty in self._types.items():
            given = inputs.get(name, self._defaults.get(name))
            if not hasattr(given, "__array__"):
                return None
            array = np.asarray(given)
            if array.dtype != ty.dtype.numpy or array.shape != ty.shape:
                return None
            found[name] = array
        return found

    def _holds(self, assumed: tuple[Constraint, ...], inputs: Mapping[str, Any]) -> bool:
        """Whether the sizes of a call are such; where they are not told, running it tells."""
        sizes: dict[str, int] = {}
        for value in self._graph.inputs if assumed else ():
            shape = value.type.shape if isinstance(value.type, TensorType) else None
            given = getattr(inputs.get(value.name), "shape", ())
            sizes |= {str(dim): size for dim, size in zip(shape or (), given, strict=False) if isinstance(dim, SymDim)}
        return all(each.holds(sizes) for each in assumed if each.symbols <= sizes.keys())

    def _program_of(self, values: Mapping[str, Array]) -> _Program | None:
        key = b"".join(array.tobytes() for array in values.values())
        if key in self._programs or len(self._programs) >= KEPT:
            return self._programs.get(key)
        if self._programs and key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > MOST_SEEN:
                self._seen.popitem(last=False)
            return None
        self._programs[key] = self._program(self._graph, values)
        return self._programs[key]

    def _every(self) -> list[Executable]:
        own = (program.executable for program in self._programs.values() if program is not None)
        return [self._general, *own]

    # ---- reports

    def stats(self) -> Stats:
        """What all programs counted."""
        with self._lock:
            every = [each.stats() for each in self._every() if isinstance(each, Counting)]
        counters = reduce(_sum, (each.counters for each in every))
        return Stats(
            counters,
            max(each.arena_bytes for each in every),
            sum(each.recording_bytes for each in every),
            tuple(bucket for each in every for bucket in each.buckets),
            every[0].safety,
            tuple(line for each in every for line in each.refused),
        )

    def coverage(self) -> Coverage:
        """See `Covered.coverage`."""
        assert isinstance(self._latest, Covered)  # recorded programs are
        return self._latest.coverage()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines for `explain()`."""
        shaping = ", ".join(self._types)
        with self._lock:
            count = len(self._every()) - 1
        line = f"values: {count} sets of {shaping} have a program of their own, in which they are constants"
        return (*remarks_on(self.stats()), line)

    def close(self) -> None:
        """See `Executable.close`."""
        with self._lock:
            for each in self._every():
                each.close()


def _sum(a: Counters, b: Counters) -> Counters:
    totals: dict[str, Any] = {}
    for each in fields(Counters):
        one, other = getattr(a, each.name), getattr(b, each.name)
        totals[each.name] = Counter(one) + Counter(other) if isinstance(one, Counter) else one + other
    return Counters(**totals)
