"""A subgraph of a graph in a session over fixed memory: run, or recorded under a number and replayed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ....frontends.onnx.contrib.group import Operator
from ....frontends.onnx.tensors import element_number
from ....ir.errors import CapgraphError, ExecutionError, UnsupportedError
from ....ir.graph import Graph
from ..library import failures, onnxruntime
from ..session import Written, first_line, opened
from .graph_ids import EAGER, Bound, GraphIds, Signature
from .provider import Provider

ASSIGNMENT = "session.record_ep_graph_assignment_info"
_CPU = "CPUExecutionProvider"
_INSTALL_FOR_GPUS = "install onnxruntime-gpu alone, with the CUDA and cuDNN that it was built for"
_NOT_RECORDED = "cannot use the graph capture feature"


@dataclass(frozen=True)
class Binding:
    """Memory for every input and output of a session. The memory is its owner's, who keeps it."""

    native: Any
    signature: Signature


class SubgraphSession:
    """A graph in a session on `provider`, in graph mode where `is_recorded`.

    Operators of ONNX Runtime's own that the installed version lacks are replaced by standard ones, and are `lacking`.
    Raises `UnsupportedError` when it cannot be exported or is refused, or when the session got another provider.
    """

    def __init__(self, graph: Graph, provider: Provider, *, is_recorded: bool, written: Written) -> None:
        self.provider = provider.recording() if is_recorded else provider
        self.is_recorded = is_recorded
        self.lacking: frozenset[str] = frozenset()
        self.failure = ""
        """Why it is not used any more: it failed on inputs on which NumPy does not."""
        self._graph_name = graph.name
        self._names = [value.name for value in graph.inputs], list(graph.output_names)
        self._elements = [element_number(v.tensor.dtype) for v in (*graph.inputs, *graph.outputs)]
        self._ids = GraphIds()
        self._options: dict[int, Any] = {}
        self._session = self._opened(graph, written)

    def _opened(self, graph: Graph, written: Written) -> Any:
        operators = written.operators
        while True:
            try:
                return opened_on(self.provider, graph, Written(written.opset, operators))
            except UnsupportedError as error:
                lacking = _named(error.message, operators)
                if not lacking:
                    raise
                self.lacking |= {each.name for each in lacking}
                operators -= lacking

    def bind(
        self, inputs: Sequence[tuple[tuple[int, ...], int]], outputs: Sequence[tuple[tuple[int, ...], int]]
    ) -> Binding:
        """A binding to memory given as shapes and addresses, in the order of the graph's inputs and outputs."""
        native = self._session.io_binding()
        device, index = self.provider.device, self.provider.index
        names, elements = self._names, iter(self._elements)
        bound: list[Bound] = []
        for name, (shape, address) in zip(names[0], inputs, strict=True):
            native.bind_input(name, device, index, next(elements), list(shape), address)
            bound.append(Bound(name, shape, address))
        for name, (shape, address) in zip(names[1], outputs, strict=True):
            native.bind_output(name, device, index, next(elements), list(shape), address)
            bound.append(Bound(name, shape, address))
        return Binding(native, tuple(bound))

    def run(self, binding: Binding) -> None:
        """Runs without a recording; on a GPU it only enqueues. Raises `ExecutionError`."""
        self._run(binding, EAGER)

    def take(self, binding: Binding) -> int:
        """A number under which a binding is to be recorded, by the first `replay`."""
        return self._ids.take(binding.signature)

    def replay(self, binding: Binding, number: int) -> None:
        """Replays what was recorded under `number`; the first time it runs, records, and replays.

        Raises `CaptureError` when that number stands for other memory, `ExecutionError` when the session fails.
        """
        self._ids.check(number, binding.signature)
        self._run(binding, number)

    def release(self, number: int) -> None:
        """Gives a recording back."""
        self._ids.release(number)
        self._options.pop(number, None)
        release = getattr(self._session, "release_captured_graph", None)
        if release is not None and self.is_recorded:
            release(number)

    @property
    def recorded(self) -> int:
        """How many recordings there are."""
        return len(self._ids)

    def _run(self, binding: Binding, number: int) -> None:
        options = self._options.get(number)
        if options is None:
            options = self._options[number] = _run_options(number)
        try:
            self._session.run_with_iobinding(binding.native, options)
        except failures() as error:
            raise ExecutionError(
                f"ONNX Runtime failed: {first_line(error)}",
                where=f"graph {self._graph_name}",
                remedy='executor="graph" runs the model without ONNX Runtime',
            ) from error


def _run_options(number: int) -> Any:
    options = onnxruntime().RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(number))
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


def opened_on(provider: Provider, graph: Graph, written: Written) -> Any:
    """A session of `graph`; `off_device` tells which of its nodes left the provider.

    Raises `UnsupportedError` when it is refused, or when it silently got another provider.
    """
    _check_offered(provider)
    options = onnxruntime().SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(ASSIGNMENT, "1")
    for key, value in provider.entries.items():
        options.add_session_config_entry(key, value)
    session = opened(graph, options, [(provider.name, dict(provider.options))], written=written)
    _check_got(session, provider)
    return session


def _check_offered(provider: Provider) -> None:
    offered = onnxruntime().get_available_providers()
    if provider.name not in offered:
        raise UnsupportedError(
            f"the installed ONNX Runtime has no {provider.name}, only {', '.join(offered)}", remedy=_INSTALL_FOR_GPUS
        )


def _check_got(session: Any, provider: Provider) -> None:
    """ONNX Runtime may take another provider without an error: the session is asked, not the module."""
    got = list(session.get_providers())
    if provider.name not in got:
        raise UnsupportedError(
            f"ONNX Runtime gave a session on {', '.join(got)} instead of {provider.name}", remedy=_INSTALL_FOR_GPUS
        )


def off_device(session: Any, provider: Provider) -> list[tuple[str, str]]:
    """The nodes of a session that another provider runs: name and operator."""
    if provider.name == _CPU:
        return []
    return [
        (node.name, node.op_type)
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name != provider.name
        for node in part.get_nodes()
    ]


def is_refused_recording(error: CapgraphError) -> bool:
    """Whether a session was refused because it would have been recorded."""
    return _NOT_RECORDED in error.message


def _named(message: str, operators: Collection[Operator]) -> frozenset[Operator]:
    """The operators that a refusal says are not there."""
    if "implementation for" not in message and "registered" not in message:
        return frozenset()
    words = set(message.replace("(", " ").replace(":", " ").replace(".", " ").split())
    return frozenset(each for each in operators if each.name in words)
