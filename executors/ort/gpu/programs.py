"""Programs on a GPU through ONNX Runtime: sessions as subgraphs, planned and recorded like all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ....ir.errors import UnsupportedError
from ....ir.graph import Graph
from ....ir.plan import Plan
from ....ir.target import Target
from ....passes.planning.lowering import Lowering
from ....passes.planning.partition import CapturePolicy
from ....passes.planning.planner import PlanPolicy, make_plan
from ...base import Executor, Request
from ...cuda.executor import CudaEagerExecutor, CudaExecutor, checked_index, open_device
from ...cuda.run.eager import SizedPlanner
from ...replay.dispatcher import Planner
from ...replay.modes import CaptureMode, InputPolicy
from ...replay.options import ReplayOptions
from ...replay.planning import capture_policy, replayed
from ..library import required
from .device import OrtDevice
from .executable import OneThreadExecutor
from .session import Provider, cuda_provider
from .sessions import in_sessions
from .target import ORT_ON_CUDA

KEPT_OUTSIDE = "the policy keeps it outside of recorded graphs"
"""The remark on nodes that the user wants outside."""


class SessionPlanner:
    """Plans graphs whose subgraphs are sessions on `provider`.

    A graph is cut once for each set of ops that is kept outside, whatever its sizes; each cut has sessions of its own.
    """

    def __init__(self, device: OrtDevice, provider: Provider, options: ReplayOptions) -> None:
        self.remarks: list[str] = []
        self._device = device
        self._provider = provider
        self._options = options
        self._cuts: dict[tuple[Graph, frozenset[str]], Graph] = {}

    def of(self, graph: Graph) -> Planner:
        """The planner of one graph."""
        return partial(self._plan, graph)

    def eagerly_of(self, graph: Graph) -> SizedPlanner:
        """The planner of one graph with nothing recorded, in the same subgraphs as with recordings at these sizes."""
        return partial(self._plan, graph, mode=CaptureMode.NONE)

    def _plan(self, graph: Graph, sizes: Mapping[str, int], mode: CaptureMode) -> Plan:
        backend = self._device.backend
        policy = capture_policy(self._options, self._options.mode, sizes)
        return make_plan(
            self._in_subgraphs(graph, policy.keep_outside),
            sizes,
            ORT_ON_CUDA,
            PlanPolicy(
                CapturePolicy(captures=mode is not CaptureMode.NONE, min_kernels=0),
                Lowering(captures=backend.captures, scratch=backend.scratch_bytes),
                resident=[value.name for value in graph.inputs if self._options.policy_of(value.name).is_in_place],
            ),
        )

    def _in_subgraphs(self, graph: Graph, outside: frozenset[str]) -> Graph:
        kept = {node: KEPT_OUTSIDE for node in graph.nodes if node.op.name in outside}
        names = frozenset(node.op.name for node in kept)
        found = self._cuts.get((graph, names))
        if found is None:
            program = in_sessions(graph, self._provider, kept)
            self._device.sessions.update(program.sessions)
            self._note(program.remarks, names)
            found = self._cuts[graph, names] = program.graph
        return found

    def _note(self, remarks: Sequence[str], outside: frozenset[str]) -> None:
        head, *lines = remarks
        head = f"with {', '.join(sorted(outside))} kept outside: {head}" if outside else head
        self.remarks += [line for line in (head, *lines) if line not in self.remarks]


def graphs(request: Request) -> Executor:
    """The executor "ort" on a GPU. Raises `UnsupportedError` where that cannot be used."""
    if request.recording.states is not None:
        raise UnsupportedError("a store of states lives on the host yet", remedy='use device="host"')
    required()
    gpu = OrtDevice(open_device(checked_index(request.device), False))
    return sessions_on(gpu, cuda_provider(gpu.driver.index, gpu.own_stream, request.level), request)


def sessions_on(gpu: OrtDevice, provider: Provider, request: Request) -> Executor:
    """The executor "ort" on an opened GPU."""
    options = replace(request.recording, inputs=_policies(request.recording))
    gpu.is_strict = options.strict
    planner = SessionPlanner(gpu, provider, options)
    fallback = CudaEagerExecutor(gpu, Target("eager", request.device), planner.eagerly_of)
    recorded = replayed(gpu, replace(ORT_ON_CUDA, device=request.device), planner.of, fallback, options)
    return OneThreadExecutor(CudaExecutor(recorded, fallback, gpu), planner.remarks, is_bound_at_once=options.up_front)


def _policies(options: ReplayOptions) -> dict[str, InputPolicy]:
    """The policies of inputs, where nothing is measured: to record a session again costs more than any copy."""
    given = {"": InputPolicy.AUTO, **options.policies}
    if InputPolicy.REPOINT in given.values():
        raise UnsupportedError(
            "ONNX Runtime cannot give a recording other addresses",
            remedy='use the policy "copy", "rerecord" or "refuse"',
        )
    return {name: InputPolicy.COPY if policy is InputPolicy.AUTO else policy for name, policy in given.items()}
