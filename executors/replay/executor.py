"""The executor "graph": plans, records and replays, on whatever device it is given."""

from collections.abc import Callable

from ...ir.graph import Graph
from ...ir.target import Target
from ..base import Executor
from .dispatcher import Dispatcher, Planner
from .executable import ReplayExecutable
from .options import ReplayOptions
from .recorder import Device
from .routing import Router, checked_ranges, input_symbols
from .safety import Analysis, padded_graph


class ReplayExecutor:
    """Records on `device` what `plan` says; calls that no recording serves go to `fallback`."""

    def __init__(
        self,
        device: Device,
        target: Target,
        plan: Callable[[Graph], Planner],
        fallback: Executor,
        options: ReplayOptions,
        analysis: Analysis | None = None,
    ) -> None:
        self._device = device
        self._target = target
        self._plan = plan
        self._fallback = fallback
        self._options = options
        self._analysis = analysis or Analysis()

    def target(self) -> Target:
        """The device."""
        return self._target

    def compile(self, graph: Graph) -> ReplayExecutable:
        """A program of recordings; with `up_front` all are made here. Raises `InputError` for unfit options."""
        options = self._options
        symbols = input_symbols(graph)
        padded = padded_graph(graph, list(checked_ranges(options.dynamic, symbols)), self._analysis)
        router = Router(padded, symbols, options)
        dispatcher = Dispatcher(self._device, self._plan(padded.graph), router, options, padded.fills)
        made = ReplayExecutable(graph, padded, self._fallback.compile(graph), router, dispatcher, options)
        if options.up_front:
            made.capture_all()
        return made
