"""What a model gives in f64, where that is cheap."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..ir.analysis import flops, parameter_bytes
from ..ir.analysis.extract import widened, widened_array
from ..ir.dims import evaluate, symbols
from ..ir.errors import CapgraphError
from ..ir.graph import Graph
from .closeness import WORSE, OutputError, distance
from .fitting_inputs import evaluator, sizes_of

_CHEAP_FLOPS = 5_000_000_000
_CHEAP_BYTES = 1 << 28


class ExactResults:
    """The results of a graph in f64 for inputs by name; None where there is no such form of it, or it takes long."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __call__(self, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        graph = self._wide
        if graph is None:
            return None
        wide = {name: widened_array(value) for name, value in inputs.items()}
        sizes = sizes_of(graph, [wide])
        work = flops(graph)
        if not symbols(work) <= sizes.keys() or evaluate(work, sizes) > _CHEAP_FLOPS:
            return None
        try:
            return evaluator(graph)(wide)
        except CapgraphError:
            return None

    @cached_property
    def _wide(self) -> Graph | None:
        if parameter_bytes(self._graph) > _CHEAP_BYTES:
            return None
        try:
            return widened(self._graph)
        except CapgraphError:  # an op without a form in f64
            return None


def held_to_exact(error: OutputError, exact: Any, old: Any, new: Any) -> OutputError:
    """`error` of `new` beside `old` by how far either is from the exact result."""
    allowed, relative = max(error.allowed, WORSE * distance(exact, old)), distance(exact, new)
    is_close = relative <= allowed
    return replace(error, relative=relative, is_close=is_close, allowed=allowed, held_to="the model in f64")
