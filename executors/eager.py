"""Eager execution on the host: one node after another, through the NumPy meanings of the ops."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.constant import Array
from ..ir.errors import ExecutionError
from ..ir.graph import Graph
from ..ir.target import Target
from .signature import Signature
from .steps import Steps


class EagerExecutor:
    """Runs any graph on any machine; it is the reference for every other executor."""

    def target(self) -> Target:
        """The host, always available."""
        return Target(executor="eager", device="host")

    def compile(self, graph: Graph) -> "EagerExecutable":
        """`graph` as steps. Nodes that depend on nothing are computed here, so their errors are raised here."""
        return EagerExecutable(graph)


class EagerExecutable:
    """A graph as NumPy steps. It may be called from several threads at once.

    Inputs are only read, and outputs are the caller's: they share memory with no input, weight or other output.
    """

    def __init__(self, graph: Graph) -> None:
        self._signature = Signature(graph)
        self._steps: Steps | None = Steps(graph)
        self._names = graph.output_names

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        steps = self._steps
        if steps is None:
            raise ExecutionError("the program is closed", remedy="call capgraph.optimize again")
        values, sizes = self._signature.bind(inputs)
        with np.errstate(all="ignore"):  # infinities and NaN are results like any other
            results = steps.run(values, sizes)
        return dict(zip(self._names, _owned(results, values), strict=True))

    def close(self) -> None:
        """Lets go of the weights."""
        self._steps = None


def _owned(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results, copied where writing to one would change an input, a weight or another result."""
    roots = [_root(value) for value in inputs if isinstance(value, np.ndarray)]
    taken = {id(root) for root in roots}
    owned: list[Any] = []
    for result in results:
        if isinstance(result, np.ndarray):
            root = _root(result)
            if id(root) in taken or not result.flags.writeable:
                result = result.copy()  # noqa: PLW2901
            taken.add(id(root))
        owned.append(result)
    return owned


def _root(array: Array) -> Array:
    """The array that owns the memory, as far as NumPy knows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
