"""The executor: one session for the whole graph, or segments where ONNX Runtime cannot run all of it."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.constant import Array
from ...ir.dims import evaluate
from ...ir.errors import ExecutionError, UnsupportedError
from ...ir.evaluate import Sizes
from ...ir.graph import Graph, Node, Value
from ...ir.notices import Notices
from ...ir.random_state import Keyed, RandomState, keyed
from ...ir.target import Target
from ..base import Coverage, Executor, Request
from ..signature import Signature, owned, whole_number
from ..steps import Steps
from .faults import dims_to_watch
from .library import onnxruntime, problem_here
from .resizes import resizes_to_watch, wrong_ones
from .wrong_numbers import REASON, long_ones, sums_to_watch

if TYPE_CHECKING:
    from .segments import GraphSegment, OrtPartition

_KEPT_SIZES = 1024

WHOLE = "one session of ONNX Runtime runs the whole graph"
"""The remark on a graph that needs no segments."""


class OrtExecutor:
    """Runs graphs through ONNX Runtime on the CPU.

    `strict` refuses a graph or a call that ONNX Runtime cannot run as a whole; otherwise such nodes run eagerly between
    sessions and such calls by NumPy, counted and named in the executable's `remarks`. `threads` bounds the threads
    within one operator (None: all cores). With `seeded` random numbers follow from a state (`Drawing`) and are drawn by
    NumPy: those that ONNX Runtime draws follow from nothing.
    """

    def __init__(self, *, strict: bool = False, threads: int | None = None, seeded: bool = False) -> None:
        self.strict = strict
        self.threads = threads
        self.seeded = seeded

    def target(self) -> Target:
        """The host, if the package is installed."""
        problem, remedy = problem_here()
        return Target(executor="ort", device="host", problem=problem, remedy=remedy)

    def compile(self, graph: Graph) -> "OrtExecutable":
        """`graph` in a session or in segments.

        Raises `MissingPackageError` without onnxruntime or onnx, `UnsupportedError` when two builds of it are
        installed, or when `strict` and not all of the graph can run, `ResourceError` when there is no place for the
        files through which a model over 2 GB goes.
        """
        onnxruntime()
        from .segments import OrtPartition  # imports onnx, which asking for the target must not

        drawn = keyed(graph) if self.seeded else Keyed(graph)
        partition = OrtPartition(drawn.graph, threads=self.threads, strict=self.strict)
        return OrtExecutable(graph, drawn, partition)


def sessions(request: Request) -> Executor:
    """The executor "ort" on the host."""
    return OrtExecutor(strict=request.strict, threads=whole_number(request.threads), seeded=request.seeded)


class OrtExecutable:
    """A graph in ONNX Runtime. It may be called from several threads at once; outputs are the caller's."""

    def __init__(self, graph: Graph, drawn: Keyed, partition: "OrtPartition") -> None:
        self.draws = drawn.draws
        self._random = RandomState()
        self._graph = drawn.graph
        self._signature = Signature(graph)
        self._partition: OrtPartition | None = partition
        self._names = graph.output_names
        self._watched = dims_to_watch(self._graph)
        self._sums = sums_to_watch(self._graph)
        self._resizes = resizes_to_watch(self._graph)
        self._right: set[tuple[int, ...]] = set()
        self._troubled: dict[tuple[int, ...], Node | None] = {}
        self._by_numpy = Counter[Node]()
        self._lock = threading.Lock()
        self._eager: Steps | None = None
        self._notices = Notices(graph.name)
        self._tell_of_segments(partition)

    def _tell_of_segments(self, partition: "OrtPartition") -> None:
        if partition.why:
            message = f"ONNX Runtime does not run the graph as a whole, and the rest runs eagerly: {partition.why}"
            self._notices.say("segments", message, "program.explain() names the nodes; strict=True raises instead")

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many sessions and eager segments there are now, and each node that runs eagerly, with the reason.

        Then how many calls ran by NumPy altogether.
        """
        if self._partition is None:
            return ("the program is closed",)
        with self._lock:
            calls = tuple(_call_remark(node, count) for node, count in self._by_numpy.items())
        return (*_remarks(self._partition.segments, self._partition.why), *calls)

    def coverage(self) -> Coverage:
        """See `Covered.coverage`: sessions, and nodes between them."""
        segments = () if self._partition is None else self._partition.segments
        outside = [segment for segment in segments if segment.session is None]
        return Coverage(len(segments) - len(outside), sum(len(segment.reasons) for segment in outside))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See `Executable.run`.

        A node at which a session fails runs eagerly from then on; where NumPy fails as well, it is the fault of the
        inputs, and its error is raised. Raises `UnsupportedError` under `strict` for sizes of 0, long sums and resizes
        that ONNX Runtime gets wrong.
        """
        partition = self._partition
        if partition is None:
            raise ExecutionError("the program is closed", remedy="call capgraph.optimize again")
        values, sizes = self._signature.bind(inputs)
        if self.draws:
            values = [*values, self._random.take(self.draws)]
        troubled = self._troubled_node(sizes) if self._watched else None
        if troubled is None:
            if self._sums or self._resizes:
                self._keep_wrong_out(partition, sizes)
            results = self._in_segments(partition, values, sizes)
            self._tell_of_segments(partition)
        else:
            self._keep_out(troubled, is_strict=partition.is_strict)
            results = owned(self._all_eagerly(values, sizes), values)
        return dict(zip(self._names, results, strict=not self.draws))

    def set_random_state(self, state: Array) -> None:
        """See `Drawing.set_random_state`."""
        self._random.set(state)

    def close(self) -> None:
        """Gives back the sessions and their memory."""
        self._partition, self._eager = None, None

    def _troubled_node(self, sizes: Sizes) -> Node | None:
        """A node of which one of the watched sizes is 0. The answer is remembered: there are more of them than time."""
        key = tuple(sizes.values())
        if key in self._troubled:
            return self._troubled[key]
        found = next((node for dim, node in self._watched.items() if evaluate(dim, sizes) <= 0), None)
        if len(self._troubled) < _KEPT_SIZES:
            self._troubled[key] = found
        return found

    def _keep_wrong_out(self, partition: "OrtPartition", sizes: Sizes) -> None:
        """From the first call on at which a sum is long, or a resize places elements otherwise, it is NumPy's."""
        key = tuple(sizes.values())
        if key in self._right:
            return
        for found, why in ((long_ones(self._sums, sizes), REASON), *wrong_ones(self._resizes, sizes)):
            if found:
                partition.keep_out(found, why)
                self._sums = {node: count for node, count in self._sums.items() if node not in found}
                self._resizes = {node: pairs for node, pairs in self._resizes.items() if node not in found}
        if len(self._right) < _KEPT_SIZES:
            self._right.add(key)

    def _keep_out(self, node: Node, *, is_strict: bool) -> None:
        """Counts a call that is kept out of ONNX Runtime because of a node."""
        if is_strict:
            raise UnsupportedError(
                "ONNX Runtime gets operands without elements wrong, and NumPy would run this call",
                where=node.where(),
                remedy="leave strict out",
            )
        with self._lock:
            self._by_numpy[node] += 1
        message = f"NumPy runs calls without elements, which ONNX Runtime gets wrong at {node.where()}"
        self._notices.say("calls", message, "program.explain() counts them; strict=True raises instead")

    def _in_segments(self, partition: "OrtPartition", values: list[Any], sizes: Sizes) -> Sequence[Any]:
        segments = partition.segments
        if len(segments) == 1 and segments[0].graph is self._graph:
            results, is_owned = _outputs(partition, segments[0], values, sizes)
            return results if is_owned else owned(results, values)
        known: dict[Value, Any] = dict(zip(self._graph.inputs, values, strict=True))
        for segment in segments:
            results, _ = _outputs(partition, segment, [known[value] for value in segment.inputs], sizes)
            known.update(zip(segment.outputs, results, strict=True))
        return owned([known[value] for value in self._graph.outputs], values)

    def _all_eagerly(self, values: list[Any], sizes: Sizes) -> Sequence[Any]:
        if self._eager is None:
            self._eager = Steps(self._graph)
        with np.errstate(all="ignore"):
            return self._eager.run(values, sizes)


def _outputs(
    partition: "OrtPartition", segment: "GraphSegment", values: list[Any], sizes: Sizes
) -> tuple[Sequence[Any], bool]:
    """The outputs of a segment, and whether they share memory with nothing.

    Where its session fails and NumPy does not, the fault is not in the inputs: the node is kept out from now on.
    """
    from .session import RunFailure

    try:
        return segment.run(values, sizes), segment.session is not None
    except RunFailure as failure:
        if partition.is_strict:
            raise
        results = segment.eagerly(values, sizes)
        partition.refuse(segment, failure)
        return results, False


def _remarks(segments: "tuple[GraphSegment, ...]", why: str) -> tuple[str, ...]:
    if not why:
        return (WHOLE,)
    eager = [segment for segment in segments if segment.session is None]
    count = sum(len(segment.reasons) for segment in eager)
    lines = [
        f"ONNX Runtime does not run the graph as a whole ({why})",
        f"{_counted(len(segments) - len(eager), 'session')} and {_counted(len(eager), 'eager segment')}; "
        f"{_counted(count, 'node')} of {sum(len(segment.nodes) for segment in segments):,} run eagerly:",
    ]
    return (*lines, *(f"  {reason}" for segment in eager for reason in segment.reasons))


def _call_remark(node: Node, count: int) -> str:
    return f"{_counted(count, 'call')} by NumPy: an operand is without elements, which goes wrong at {node.where()}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
