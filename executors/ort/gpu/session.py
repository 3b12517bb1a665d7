"""A subgraph in a session over fixed memory: run, or recorded under a number and replayed.

ONNX Runtime replays whatever it has recorded under a number, whatever is bound: with another shape or other memory it
would read and write the old one in silence. So a number is taken once, and checked on every replay.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ....frontends.onnx.contrib.group import Operator
from ....frontends.onnx.tensors import element_number
from ....ir.errors import CapgraphError, CaptureError, ExecutionError, UnsupportedError
from ....ir.graph import Graph
from ....ir.op import Op, Trait
from ....ir.ops.known import ATTENTION, CONV, EINSUM
from ....ir.types import DType
from ..library import failures, onnxruntime
from ..session import Written, first_line, opened

TF32_LEVEL = 3
"""From this level of optimization on operands of f32 matmuls may be rounded to TF32."""

FLASH_OR_EFFICIENT = "3"
"""ONNX Runtime's kernels for attention, as a set of bits: FlashAttention and CUTLASS's."""

CHANNELS_LAST = "prefer_nhwc"
_HALF = (DType.F16, DType.BF16)


@dataclass(frozen=True)
class Provider:
    """A provider by ONNX Runtime's `name`; its memory is that of `device` number `index`.

    `graph_option` is the option that switches graph mode on, empty for a provider without. `entries` are configuration
    entries of sessions. `allows_tf32` lets operands of f32 matmuls be rounded to TF32.
    """

    name: str
    device: str
    index: int = 0
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    entries: Mapping[str, str] = field(default_factory=dict[str, str])
    graph_option: str = ""
    allows_tf32: bool = True

    def recording(self) -> "Provider":
        """The same in graph mode."""
        return replace(self, options={**self.options, self.graph_option: "1"}) if self.graph_option else self

    def suited_to(self, graph: Graph) -> "Provider":
        """With the options that suit a graph.

        Convolutions in half precision lie channels-last. Without TF32 cuDNN finds no kernel for those, so that it is
        switched off only where there is a matmul in f32.
        """
        if self.name != CUDA:
            return self
        options = dict(self.options)
        if not _dtypes_of(graph, lambda op: op is CONV).isdisjoint(_HALF):
            options[CHANNELS_LAST] = "1"
        if not self.allows_tf32 and DType.F32 in _dtypes_of(graph, _multiplies):
            options["use_tf32"] = "0"
        return replace(self, options=options)


CUDA = "CUDAExecutionProvider"


def cuda_provider(index: int, stream: int, level: int = 2) -> Provider:
    """The CUDA provider on a GPU, working on the stream of that address.

    Measured on an H200 in f16 at batch 1: channels-last ResNet-50 takes 0.67 of the time, FlashAttention makes BERT
    1.04 times as fast as what is chosen by default.
    """
    options = {
        **({"device_id": str(index)} if index else {}),  # naming the first one is met with a warning on the terminal
        "user_compute_stream": str(stream),
        "arena_extend_strategy": "kSameAsRequested",
        "sdpa_kernel": FLASH_OR_EFFICIENT,
    }
    return Provider(CUDA, "cuda", index, options, {}, "enable_cuda_graph", level >= TF32_LEVEL)


def _multiplies(op: Op) -> bool:
    return op.has(Trait.ANCHOR) or op in (ATTENTION, EINSUM)


def _dtypes_of(graph: Graph, asked: Callable[[Op], bool]) -> set[DType]:
    return {node.output.tensor.dtype for node in graph.nodes if asked(node.op)}


EAGER = -1
"""The number that records and replays nothing."""


class Bound(NamedTuple):
    """One input or output of a session: its shape, and the address of its memory."""

    name: str
    shape: tuple[int, ...]
    address: int


Signature = tuple[Bound, ...]


class GraphIds:
    """Hands out the numbers of one session, each for one signature. Numbers are never used again."""

    def __init__(self) -> None:
        self._taken: dict[int, Signature] = {}
        self._next = 1

    def take(self, signature: Signature) -> int:
        """A new number for graphs with these shapes and addresses."""
        number, self._next = self._next, self._next + 1
        self._taken[number] = signature
        return number

    def check(self, number: int, signature: Signature) -> None:
        """Raises `CaptureError` when `number` stands for other shapes or addresses, or for none any more."""
        known = self._taken.get(number)
        if known is signature:
            return
        if known is None:
            raise CaptureError(f"graph {number} of the session was given back", remedy="record it again")
        for old, new in zip(known, signature, strict=True):
            if old != new:
                raise CaptureError(f"graph {number} was recorded with {_text(old)}, not {_text(new)}")

    def release(self, number: int) -> None:
        """Gives a number back."""
        self._taken.pop(number, None)

    def __len__(self) -> int:
        return len(self._taken)


def _text(bound: Bound) -> str:
    return f"{bound.name} {list(bound.shape)} at {bound.address:#x}"


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
