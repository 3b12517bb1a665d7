"""The executor "graph": plans, records and replays, on whatever device it is given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...ir.errors import CaptureError, InputError, UnsupportedError
from ...ir.graph import Graph
from ...ir.notices import Notices
from ...ir.philox import fresh_state
from ...ir.plan import CutReason
from ...ir.random_state import Keyed, keyed
from ...ir.target import Target
from ..base import Executor
from .by_value import shaping_inputs
from .dispatcher import Dispatcher, Planner
from .executable import ReplayExecutable
from .modes import CaptureMode, InputPolicy
from .options import ReplayOptions
from .recorder import Device
from .routing import Router, checked_ranges, dims_between, input_symbols, make_buckets
from .safety import Analysis, PaddedGraph, padded_graph
from .states import StoredStates, checked_store


class ReplayExecutor:
    """Records on `device` what `plan` says; calls that no recording serves go to `fallback`."""

    def __init__(
        self,
        device: Device,
        target: Target,
        plan: Callable[[Graph], Planner],
        fallback: Executor,
        options: ReplayOptions,
        analysis: Analysis,
    ) -> None:
        self._device = device
        self._target = target
        self._plan = plan
        self._fallback = fallback
        self._options = options
        self._analysis = analysis

    def target(self) -> Target:
        """The device."""
        return self._target

    def compile(self, graph: Graph) -> ReplayExecutable:
        """A program of recordings; with `up_front` all are made here.

        Raises `InputError` for unfit options, and in a strict program `CaptureError` for a node that is never recorded.
        """
        _refuse_foreign(graph, self._options)
        drawn = keyed(graph) if self._device.keeps_states else Keyed(graph)
        own = {drawn.state: self._device.state(fresh_state())} if drawn.state else {}
        graph = drawn.graph
        symbols = input_symbols(graph)
        ranges = checked_ranges(self._options.dynamic, symbols)
        notices = Notices(graph.name)
        buckets = make_buckets(ranges, self._options.buckets)
        _tell_of_missing_ranges(graph, [name for name in symbols if name not in ranges], self._options, notices)
        least = min((lowest for lowest, _ in ranges.values()), default=0)
        padded = padded_graph(graph, dims_between(buckets, ranges), self._analysis, buckets.largest(), least)
        _check_names(self._options.inputs, graph)
        options = replace(self._options, inputs={**self._options.inputs, **_copied(padded)})
        router = Router(padded, symbols, options)
        states = StoredStates(graph, checked_store(graph, options.states), own)
        dispatcher = Dispatcher(self._device, self._plan(padded.graph), router, options, padded.fills, states, notices)
        fallback = self._fallback.compile(graph)
        made = ReplayExecutable(graph, padded, fallback, router, dispatcher, options, states, drawn.draws)
        if options.up_front:
            made.capture_all()
        return made


def _refuse_foreign(graph: Graph, options: ReplayOptions) -> None:
    """Raises `CaptureError` where a strict program can never be recorded as a whole.

    A foreign node may become a native one with the values of inputs that shape the graph.
    """
    if not options.strict or options.mode in (CaptureMode.NONE, CaptureMode.PIECEWISE) or shaping_inputs(graph):
        return
    node = next((node for node in graph.nodes if node.op.is_foreign), None)
    if node is not None:
        raise CaptureError(
            f"not everything is recorded: {node.op.name}: {CutReason.FOREIGN.value}",
            where=node.where(),
            remedy="strict=False runs it eagerly",
        )


def _tell_of_missing_ranges(graph: Graph, missing: Sequence[str], options: ReplayOptions, notices: Notices) -> None:
    """Warns where no call can ever be recorded; a strict program raises `UnsupportedError` instead."""
    if not missing or options.beyond == "exact" or options.mode is CaptureMode.NONE:
        return
    message = f"no call of {graph.name} is recorded, as no range is given for {', '.join(missing)}"
    ranges = ", ".join(f"{name!r}: (1, 64)" for name in missing)
    remedy = f'dynamic={{{ranges}}}, or capture={{"beyond": "exact"}} for a recording of each size that comes'
    if options.strict:
        raise UnsupportedError(message, remedy=remedy)
    notices.say("beyond", message, remedy)


def _check_names(policies: Mapping[str, str], graph: Graph) -> None:
    names = [value.name for value in graph.inputs]
    unknown = [name for name in policies if name and name not in names]
    if unknown:
        raise InputError(
            f"capture gives a policy for the input {unknown[0]!r}, which there is not",
            where=f"graph {graph.name}",
            remedy=f'the inputs are: {", ".join(names) or "none"}; "" stands for all others',
        )


def _copied(padded: PaddedGraph) -> dict[str, InputPolicy]:
    """Real sizes come in an array of their own with each call."""
    added = padded.graph.inputs[len(padded.graph.inputs) - len(padded.real_sizes) :]
    return {value.name: InputPolicy.COPY for value in added}
