"""Calls whose sizes break what a model was read with: it is read again for just these sizes.

Where two symbolic sizes meet in a broadcast they are taken to be one size, which shapes all over the graph then have. A
call may have 1 on one side all the same; shapes that were settled at import are wrong for it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from .ir.constraints import Constraint
from .ir.dims import SymDim, symbol, symbols
from .ir.errors import CapgraphError, ShapeError
from .ir.graph import Graph
from .ir.notices import Notices
from .ir.types import TensorType

Shapes = dict[str, tuple[int, ...]]
MOST_PROGRAMS = 8
"""Programs for sizes that are kept; one that was not used for longest goes first."""


class ExactSizes:
    """Programs for calls that break one of `assumed`; `make` gives the one for shapes by input."""

    def __init__(
        self, graph: Graph, assumed: tuple[Constraint, ...], make: Callable[[Mapping[str, tuple[int, ...]]], Any]
    ) -> None:
        self._make = make
        self._notices = Notices(graph.name)
        self._inputs = [value.name for value in graph.inputs]
        self._places = _places(graph)
        known = {name for name, _, _ in self._places}
        self._assumed = [each for each in assumed if symbols(each.left) | symbols(each.right) <= known]
        self._programs: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()

    @property
    def is_needed(self) -> bool:
        """Whether any call can break what was assumed."""
        return bool(self._assumed)

    def program(self, inputs: Mapping[str, Any]) -> Any | None:
        """The program for a call that breaks what was assumed; None for any other, and where none can be made."""
        sizes: dict[str, int] = {}
        for name, source, axis in self._places:
            shape = getattr(inputs.get(source), "shape", ())
            if axis >= len(shape) or sizes.setdefault(name, shape[axis]) != shape[axis]:
                return None  # the call is wrong in another way, which running it tells
        broken = next((each for each in self._assumed if _is_broken(each, sizes)), None)
        if broken is None or any(not hasattr(inputs.get(name), "shape") for name in self._inputs):
            return None
        shapes = {name: tuple(inputs[name].shape) for name in self._inputs}
        return self._kept(shapes, broken)

    def _kept(self, shapes: Shapes, broken: Constraint) -> Any | None:
        key = tuple(shapes.values())
        if key in self._programs:
            self._programs.move_to_end(key)
            return self._programs[key]
        try:
            made = self._make(shapes)
        except CapgraphError:  # a body that does not run may be wrong for these sizes: running the call tells
            made = None
        else:
            self._notices.say(
                "sizes",
                f"a call breaks {broken}: the model is read again for its sizes",
                "name sizes that are always equal alike, or fix a size of 1 in the model",
            )
        self._programs[key] = made
        if len(self._programs) > MOST_PROGRAMS:
            _close(self._programs.popitem(last=False)[1])
        return made

    def close(self) -> None:
        """Gives back what the programs hold."""
        while self._programs:
            _close(self._programs.popitem()[1])


def _close(program: Any | None) -> None:
    if program is not None:
        program.close()


def _places(graph: Graph) -> list[tuple[str, str, int]]:
    """Where inputs tell the size of each symbol: symbol, input and axis."""
    found = []
    for value in graph.inputs:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        for axis, dim in enumerate(shape or ()):
            if isinstance(dim, SymDim) and len(dim.symbols) == 1 and dim == symbol(next(iter(dim.symbols))):
                found.append((next(iter(dim.symbols)), value.name, axis))
    return found


def _is_broken(constraint: Constraint, sizes: Mapping[str, int]) -> bool:
    try:
        constraint.check(sizes)
    except ShapeError:
        return True
    return False
