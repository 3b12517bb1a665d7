"""Subgraphs as steps of a plan on a GPU: how each is lowered, and how its session is called.

A subgraph becomes a call of the library "onnxruntime", whose problem names the session and the shapes. So eager runs,
memory, host steps and our own kernels between the subgraphs are those of the CUDA executor.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....ir.graph import Node, Value
from ....ir.ops.known import FUSED
from ....ir.plan import Plan, Step, StepKind, View
from ...cuda.kernel_ir.launch import BufferPlace, Candidate, HostCall, LibraryCall
from ...cuda.lower.lowering import Backend, LoweredStep
from .session import Binding, SubgraphSession

LIBRARY = "onnxruntime"
_ALIGNED = 16
"""Bytes to which ONNX Runtime's kernels expect memory to be aligned at least."""


@dataclass(frozen=True)
class SubgraphCall:
    """One subgraph at concrete shapes: the name of its session, and the shapes of its inputs and outputs."""

    session: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class SubgraphBackend(Backend):
    """Lowers subgraphs to calls of their sessions, and all else as the CUDA executor does."""

    sessions: Mapping[str, SubgraphSession] = field(default_factory=dict[str, SubgraphSession])

    def captures(self, node: Node) -> bool:
        """Whether a node is part of ONNX Runtime's graphs: it is a subgraph whose session runs, or constant."""
        name = self._session_of(node)
        return not node.inputs if name is None else not self.sessions[name].failure

    def scratch_bytes(self, node: Node, views: Mapping[Value, View]) -> int:
        """See `Backend.scratch_bytes`; sessions have memory of their own."""
        return 0 if self._session_of(node) is not None else super().scratch_bytes(node, views)

    def lower_step(self, plan: Plan, step: Step) -> LoweredStep:
        """See `Backend.lower_step`."""
        name = self._session_of(step.node)
        if name is None or step.kind is StepKind.ALIAS:
            return super().lower_step(plan, step)
        operands = [plan.views[value] for value in step.node.operands]
        results = [plan.views[value] for value in step.node.outputs]
        if all(0 in view.shape for view in results):
            return LoweredStep(step)
        why = self.sessions[name].failure or _problem((*operands, *results))
        if why:
            return LoweredStep(step, (Candidate("host", (HostCall(why),)),))
        arguments = {f"i{at}": BufferPlace(view.buffer, view.offset) for at, view in enumerate(operands)}
        arguments |= {f"o{at}": BufferPlace(view.buffer, view.offset) for at, view in enumerate(results)}
        problem = SubgraphCall(name, tuple(view.shape for view in operands), tuple(view.shape for view in results))
        nbytes = sum(view.extent for view in (*operands, *results))
        return LoweredStep(step, (Candidate(LIBRARY, (LibraryCall(LIBRARY, problem, arguments, nbytes),)),))

    def _session_of(self, node: Node) -> str | None:
        if node.op is not FUSED:
            return None
        name: str = node.attrs["body"].name
        return name if name in self.sessions else None


def _problem(views: Sequence[View]) -> str:
    """Why views cannot be bound to a session as they lie, empty when they can."""
    if not all(view.is_contiguous and view.offset % _ALIGNED == 0 for view in views):
        return "ONNX Runtime cannot read its operands where they lie"
    return "it has an operand without elements" if any(0 in view.shape for view in views) else ""


class SubgraphLibrary:
    """Calls sessions: a `Library`. `enter` and `leave` order the stream of the sessions behind and before another."""

    failures: tuple[type[BaseException], ...] = ()

    def __init__(self, sessions: Mapping[str, SubgraphSession], order: Callable[[int, int], None], stream: int) -> None:
        self._sessions = sessions
        self._order = order
        self._stream = stream

    def prepare(self, call: LibraryCall) -> Callable[[int, Mapping[str, int], int], None]:
        """See `Library.prepare`: runs the session without a recording."""
        session = self.session_of(call)
        bindings: dict[tuple[int, ...], Binding] = {}

        def enqueue(stream: int, addresses: Mapping[str, int], _workspace: int) -> None:
            key = tuple(addresses.values())
            binding = bindings.get(key)
            if binding is None:
                bindings.clear()  # a plan that has moved does not come back
                binding = bindings[key] = self.bound(call, addresses)
            self.enter(stream)
            session.run(binding)
            self.leave(stream)

        return enqueue

    def algorithms(self, _call: LibraryCall) -> Sequence[Any]:
        """See `Library.algorithms`: there is no choice."""
        return ()

    def session_of(self, call: LibraryCall) -> SubgraphSession:
        """The session that a call is of."""
        return self._sessions[call.problem.session]

    def bound(self, call: LibraryCall, addresses: Mapping[str, int]) -> Binding:
        """A call's memory, bound to its session."""
        problem: SubgraphCall = call.problem
        places = list(addresses.values())
        inputs = list(zip(problem.inputs, places, strict=False))
        outputs = list(zip(problem.outputs, places[len(inputs) :], strict=True))
        return self.session_of(call).bind(inputs, outputs)

    def enter(self, stream: int) -> None:
        """Lets sessions work behind all that is under way on `stream`."""
        if stream != self._stream:
            self._order(stream, self._stream)

    def leave(self, stream: int) -> None:
        """Lets `stream` go on behind the sessions."""
        if stream != self._stream:
            self._order(self._stream, stream)
