"""Eager execution on the host: one node after another, through the NumPy meanings of the ops."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir.constant import Array
from ..ir.errors import ExecutionError
from ..ir.graph import Graph
from ..ir.random_state import RandomState, keyed
from ..ir.target import Target
from .ownership import owned
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
        drawn = keyed(graph)
        self.draws = drawn.draws
        self._random = RandomState()
        self._signature = Signature(graph)
        self._steps: Steps | None = Steps(drawn.graph)
        self._names = graph.output_names

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`."""
        steps = self._steps
        if steps is None:
            raise ExecutionError("the program is closed", remedy="call capgraph.optimize again")
        values, sizes = self._signature.bind(inputs)
        if self.draws:
            values = [*values, self._random.take(self.draws)]
        with np.errstate(all="ignore"):  # infinities and NaN are results like any other
            results = steps.run(values, sizes)
        return dict(zip(self._names, owned(results, values), strict=not self.draws))

    def set_random_state(self, state: Array) -> None:
        """See `Drawing.set_random_state`."""
        self._random.set(state)

    def close(self) -> None:
        """Lets go of the weights."""
        self._steps = None
