"""Calls whose sizes break what a model was read with: it is read again for just these sizes.

Where two symbolic sizes meet in a broadcast they are taken to be one size, which shapes all over the graph then have. A
call may have 1 on one side all the same; shapes that were settled at import are wrong for it. Where only running tells
the sizes, a call that failed runs again by a program in which the result of each such broadcast has a size of its own.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from typing import Any

import numpy as np

from .executors.replay.counters import Stats
from .ir.dims import SymDim, evaluate, symbol, symbols
from .ir.dims.constraints import Constraint, Difference, untied_sizes
from .ir.errors import ModelError, ShapeError, TypeRuleError
from .ir.graph import Graph
from .ir.notices import Notices
from .ir.types import TensorType

Shapes = dict[str, tuple[int, ...]]
_Key = tuple[bool, tuple[tuple[str, tuple[int, ...]], ...]]
MOST_PROGRAMS = 8
"""Programs for sizes that are kept; one that was not used for longest goes first."""


class ExactSizes:
    """Runs calls that break one of `assumed`, one at a time; `make` gives the program for shapes by input."""

    def __init__(self, graph: Graph, assumed: tuple[Constraint, ...], make: Callable[[Shapes], Any]) -> None:
        self._make = make
        self._notices = Notices(graph.name)
        self._tensors = [value.name for value in graph.inputs if isinstance(value.type, TensorType)]
        self._places = _places(graph)
        known = {name for name, _, _ in self._places}
        told = (each for each in assumed if each.symbols <= known)
        self._assumed = sorted(told, key=lambda each: not isinstance(each, Difference))
        self._untold = [each for each in assumed if not each.symbols <= known]
        self._programs: OrderedDict[_Key, Any] = OrderedDict()
        self._lock = Lock()  # a program that goes may be running in another thread
        self._seed_given: int | None = None
        self._made = Counter[_Key]()
        self._calls = 0

    @property
    def is_needed(self) -> bool:
        """Whether any call can break what was assumed."""
        return bool(self._assumed or self._untold)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs of a call that breaks what was assumed; None for any other, and where its sizes are refused.

        Raises what making the program raises, unless it is that the model cannot have these sizes and running the call
        tells it, and what running it raises.
        """
        broken = self._broken(inputs) if isinstance(inputs, Mapping) else None
        return None if broken is None else self._run(inputs, broken)

    def run_failed(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs of a call that failed, as it may have broken what only running tells; None where it cannot have.

        Raises as `run` does.
        """
        if not self._untold:
            return None
        broken = self._broken(inputs)
        with self._lock:
            is_refused = broken is None or self._programs.get(self._key(self._shapes(inputs), broken)) is None
        return self._run(inputs, self._untold[0]) if is_refused else None

    def _shapes(self, inputs: Mapping[str, Any]) -> Shapes:
        return {name: _shape_of(inputs[name]) for name in self._tensors if name in inputs}

    def _key(self, shapes: Shapes, broken: Constraint) -> _Key:
        return (broken in self._untold, tuple(shapes.items()))

    def _run(self, inputs: Mapping[str, Any], broken: Constraint) -> dict[str, Any] | None:
        shapes = self._shapes(inputs)
        with self._lock:
            program = self._kept(shapes, broken)
            if program is None:
                return None
            self._calls += 1
            with self._sizes_of(broken):
                found: dict[str, Any] = program.run(inputs)
        return found

    def _sizes_of(self, broken: Constraint) -> AbstractContextManager[None]:
        """Sizes that the inputs do not tell are not taken to be equal, where it may be that which a call broke."""
        return untied_sizes() if broken in self._untold else nullcontext()

    def seed(self, seed: int) -> None:
        """Has the programs draw from now on what follows from `seed`, each numbers of its own. Raises as they do."""
        with self._lock:
            self._seed_given = seed
            self._made.clear()
            for key, program in self._programs.items():
                self._seed(key, program)

    def _seed(self, key: _Key, program: Any | None) -> None:
        """Has a program draw other numbers than any other one: by its sizes, and how many there were of them."""
        if program is not None and self._seed_given is not None:
            self._made[key] += 1
            text = repr((self._seed_given, self._made[key], key))
            program.seed(int.from_bytes(blake2b(text.encode(), digest_size=8).digest()))

    @property
    def remarks(self) -> tuple[str, ...]:
        """A line for `explain()` on the calls that ran here."""
        with self._lock:
            kept = sum(program is not None for program in self._programs.values())
            said = (
                f"{self._calls} calls broke sizes that the model was read with: {kept} programs for their sizes alone"
            )
            return (said,) if self._calls else ()

    def counted(self, stats: Stats) -> Stats:
        """`stats` with the calls that ran here, the programs' memory and their buckets."""
        with self._lock:
            own = [program.stats() for program in self._programs.values() if program is not None]
            calls = self._calls
        counters = replace(stats.counters, calls=stats.counters.calls + calls, exact_calls=calls)
        return replace(
            stats,
            counters=counters,
            recording_bytes=stats.recording_bytes + sum(each.recording_bytes for each in own),
            buckets=(*stats.buckets, *(bucket for each in own for bucket in each.buckets)),
        )

    def _broken(self, inputs: Mapping[str, Any]) -> Constraint | None:
        sizes: dict[str, int] = {}
        for name, source, axis in self._places:
            shape = _shape_of(inputs.get(source))
            if axis >= len(shape) or sizes.setdefault(name, shape[axis]) != shape[axis]:
                return None  # the call is wrong in another way, which running it tells
        return next((each for each in self._assumed if not each.holds(sizes)), None)

    def _kept(self, shapes: Shapes, broken: Constraint) -> Any | None:
        key = self._key(shapes, broken)
        if key in self._programs:
            self._programs.move_to_end(key)
            return self._programs[key]
        try:
            with self._sizes_of(broken):
                made = self._made_for(shapes, broken)
        except (ModelError, ShapeError, TypeRuleError):
            if isinstance(broken, Difference):  # another rank, which running the call does not tell
                raise
            made = None  # maybe of a body that does not run: running the call tells
        else:
            self._notices.say(
                "sizes",
                f"a call breaks {broken}: the model is read again for its sizes",
                "name sizes that are always equal alike, or fix a size of 1 in the model",
            )
            self._seed(key, made)
        self._programs[key] = made
        if len(self._programs) > MOST_PROGRAMS:
            _close(self._programs.popitem(last=False)[1])
        return made

    def _made_for(self, shapes: Shapes, broken: Constraint) -> Any:
        """The program for shapes, or where a branch not taken may refuse them: for those where a 1 met another size.

        Where it refuses these too, it is for those alone that `broken` tells of, or all that only running tells, or for
        as many as it takes together.
        """
        places = [(name, source, axis) for name, source, axis in self._places if axis < len(shapes.get(source, ()))]
        sizes = {name: shapes[source][axis] for name, source, axis in places}

        def told_by(group: Iterable[Constraint]) -> Shapes:
            wanted = frozenset[str]().union(*(each.symbols for each in group))
            return {source: shapes[source] for name, source, _ in places if name in wanted}

        met = [each for each in self._assumed if _is_met_by_1(each, sizes)]
        last = self._untold if broken in self._untold else [broken]
        chosen = [shapes]
        for group in ([*met, *self._untold] if met else [], met, last):
            if group and told_by(group) not in chosen:
                chosen.append(told_by(group))
        for fewer in chosen:
            try:
                return self._make(fewer)
            except (ModelError, ShapeError, TypeRuleError) as error:
                refused = error
        made, taken = None, Shapes()
        for each in self._assumed:
            fewer = taken | told_by([each])
            if fewer not in (taken, *chosen) and not each.holds(sizes):
                with suppress(ModelError, ShapeError, TypeRuleError):
                    more = self._make(fewer)
                    _close(made)
                    made, taken = more, fewer
        if made is None:
            raise refused
        return made

    def close(self) -> None:
        """Gives back what the programs hold; no call is run here afterwards."""
        with self._lock:
            self._assumed.clear()
            self._untold.clear()
            while self._programs:
                _close(self._programs.popitem()[1])


def _is_met_by_1(assumed: Constraint, sizes: Mapping[str, int]) -> bool:
    """Whether two sizes that had to be equal are not, and one of them is 1: not where one is made of the other."""
    if symbols(assumed.left) & symbols(assumed.right):
        return False
    if not assumed.symbols <= sizes.keys() or assumed.holds(sizes):
        return False
    with suppress(ShapeError):  # a size divided by 0 is none
        return any(isinstance(each, SymDim) and evaluate(each, sizes) == 1 for each in (assumed.left, assumed.right))
    return False


def _close(program: Any | None) -> None:
    if program is not None:
        program.close()


def _shape_of(given: Any) -> tuple[int, ...]:
    """The shape of an array or of nested lists; () of what is neither."""
    found = getattr(given, "shape", None)
    try:
        return tuple(np.shape(given) if found is None else found)
    except ValueError:  # rows of several lengths
        return ()


def _places(graph: Graph) -> list[tuple[str, str, int]]:
    """Where inputs tell the size of each symbol: symbol, input and axis."""
    found = []
    for value in graph.inputs:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        for axis, dim in enumerate(shape or ()):
            if isinstance(dim, SymDim) and len(dim.symbols) == 1 and dim == symbol(next(iter(dim.symbols))):
                found.append((next(iter(dim.symbols)), value.name, axis))
    return found
