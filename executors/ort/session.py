"""One graph in one ONNX Runtime session; which nodes it can run, asked of one small model for each kind of node."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from ...frontends.onnx.context.dialect import Dialect
from ...frontends.onnx.contrib import ON_HOST
from ...frontends.onnx.contrib.group import Operator
from ...frontends.onnx.exporting.exporter import export_model
from ...frontends.onnx.exporting.saturation import saturated, without_saturation
from ...frontends.onnx.exporting.saving import save_model
from ...frontends.onnx.files.writing import MAX_INLINE_BYTES
from ...ir.analysis import parameter_bytes
from ...ir.analysis.extract import part_of
from ...ir.builder import Builder
from ...ir.constant import Constant
from ...ir.errors import CapgraphError, ExecutionError, ResourceError, UnsupportedError
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.types import DType, TensorType, Type
from ..memory import size_text
from .faults import known_fault, lost_signs, wrong_optimizers
from .library import failures, onnxruntime
from .resizes import BY_SIZE, keeps_sizes, with_sizes_told
from .wrong_numbers import size_givers, with_choices

_CPU_PROVIDER = "CPUExecutionProvider"

DISABLED_OPTIMIZERS = ("SkipLayerNormFusion",)
"""Slower on the CPU than the addition and the normalization by themselves: without it BERT takes 0.84 of the time,
GPT-2 0.93, ViT 0.98 (one thread, paired medians). Of the options in benchmarks/ort_options.py no other is worth more
than the noise."""

SPINNING = "session.intra_op.allow_spinning"

_DTYPES = frozenset(
    {DType.BOOL, DType.U8, DType.U16, DType.U32, DType.U64, DType.I8, DType.I16, DType.I32, DType.I64}
    | {DType.F16, DType.F32, DType.F64, DType.STRING}
)
_FAILED_NODE = re.compile(r"while running \S+ node\. Name:'(.*?)' Status Message: ", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """How a graph is written to ONNX: at which opset (None: the dialect's), with which of ONNX Runtime's operators."""

    opset: int | None = None
    operators: frozenset[Operator] = frozenset()

    @property
    def dialect(self) -> Dialect:
        return Dialect.ORT if self.operators else Dialect.STANDARD


STANDARD = Written()


class RunFailure(ExecutionError):
    """A session that failed. `node_name` is that of the ONNX node where ONNX Runtime says so, else empty."""

    node_name = ""


class Session:
    """A graph that ONNX Runtime runs on the CPU. Raises `UnsupportedError` when it cannot be exported or is refused.

    `spins`: its threads wait for work by looking for it all the time. That is quickest for a session alone, and takes
    the cores from others where sessions take turns.
    """

    def __init__(self, graph: Graph, *, threads: int | None = None, spins: bool = True) -> None:
        _check_interface(graph)
        self._graph_name = graph.name
        self._inputs = [value.name for value in graph.inputs]
        graph, self._resizes = with_sizes_told(graph)
        self._read = list(graph.output_names)
        if saturated(graph) and saturates():
            graph = without_saturation(graph)
        self._session = opened(
            with_choices(graph),
            _options(threads, spins=spins),
            [_CPU_PROVIDER],
            written=Written(operators=ON_HOST),
            disabled=DISABLED_OPTIMIZERS,
        )

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for inputs in the graph's order, as arrays that belong to the caller. Raises `RunFailure`."""
        try:
            results: list[Any] = self._session.run(self._read, dict(zip(self._inputs, values, strict=True)))
        except failures() as error:
            raise self._failure(error) from error
        for node in reversed(self._resizes):
            *results, scales, before, after = results
            if keeps_sizes(scales, before, after):
                raise _failure(BY_SIZE, node.where(), (node.origin.name if node.origin else "") or node.output.name)
        return results

    def _failure(self, error: Exception) -> RunFailure:
        place = _FAILED_NODE.search(str(error))
        where = f"{place[1]} in graph {self._graph_name}" if place else f"graph {self._graph_name}"
        return _failure(f"ONNX Runtime failed: {first_line(error)}", where, place[1] if place else "")


def _failure(message: str, where: str, node_name: str) -> RunFailure:
    failure = RunFailure(message, where=where, remedy='use executor="eager", or leave strict out')
    failure.node_name = node_name
    return failure


@cache
def saturates() -> bool:
    """Whether ONNX Runtime's products of u8 by i8 saturate on this machine's processor, tried once."""
    b = Builder()
    b.finish([b.op("matmul_integer", b.input("x", "u8[4, 8]"), b.input("w", "i8[8, 4]"), None, None)])
    session = opened(b.graph, _options(1), [_CPU_PROVIDER])
    (product,) = session.run(None, {"x": np.full((4, 8), 255, np.uint8), "w": np.full((8, 4), 127, np.int8)})
    return bool((product != 255 * 127 * 8).any())


def interface_problem(ty: Type) -> str:
    """Why values of a type cannot go in or out of a session; empty when they can."""
    if not isinstance(ty, TensorType):
        return f"is {ty}: only tensors go in and out of ONNX Runtime's sessions"
    return "" if ty.dtype in _DTYPES else f"is {ty.dtype}, which ONNX Runtime's Python interface does not take"


def _check_interface(graph: Graph) -> None:
    for value in (*graph.inputs, *graph.outputs):
        if interface_problem(value.type):
            raise UnsupportedError(f"%{value.name} {interface_problem(value.type)}")


def _options(threads: int | None, *, spins: bool = True) -> Any:
    options = onnxruntime().SessionOptions()
    options.log_severity_level = 4  # what fails is raised; warnings are of use only to ONNX Runtime's own developers
    if threads is not None:
        options.intra_op_num_threads = threads
    if not spins:
        options.add_session_config_entry(SPINNING, "0")
    return options


def opened(
    graph: Graph,
    options: Any,
    providers: Sequence[Any],
    *,
    written: Written = STANDARD,
    disabled: Collection[str] = (),
) -> Any:
    """ONNX Runtime's session of `graph`, without its own optimizers called `disabled` and those that would be wrong.

    Raises `UnsupportedError` when it refuses; it never takes another provider instead. Raises `ResourceError` for a
    large model when there is no place for its files.
    """
    disabled = (*disabled, *wrong_optimizers(graph))
    if parameter_bytes(graph) >= MAX_INLINE_BYTES:
        return _large(graph, options, providers, written, disabled)
    model = export_model(
        graph, check=False, value_info=False, opset=written.opset, dialect=written.dialect, operators=written.operators
    )
    return _made(_serialized(model), options, providers, disabled)


def _serialized(model: Any) -> bytes:
    try:
        data: bytes = model.SerializeToString()
    except EncodeError as error:
        raise ResourceError(
            f"the model cannot be handed to ONNX Runtime, as one of over 2 GB beside its weights: {error}",
            remedy='executor="eager" or "graph" runs it',
        ) from error
    return data


def _large(graph: Graph, options: Any, providers: Sequence[Any], written: Written, disabled: Collection[str]) -> Any:
    """Over 2 GB, through files: the weights are read from there and the files are gone afterwards."""
    with _temporary_folder(parameter_bytes(graph)) as folder:
        path = Path(folder) / "model.onnx"
        save_model(graph, path, opset=written.opset, dialect=written.dialect, operators=written.operators)
        return _made(str(path), options, providers, disabled)


def _temporary_folder(needed: int) -> TemporaryDirectory[str]:
    try:
        return TemporaryDirectory(prefix="capgraph-")
    except OSError as error:
        raise ResourceError(
            f"a model over 2 GB goes to ONNX Runtime through files, for which there is no temporary folder: {error}",
            remedy=f"set TMPDIR to a folder that can be written to, with {size_text(needed)} free",
        ) from error


def _made(model: bytes | str, options: Any, providers: Sequence[Any], disabled: Collection[str]) -> Any:
    try:
        return onnxruntime().InferenceSession(
            model, options, providers=list(providers), disabled_optimizers=set(disabled), enable_fallback=0
        )
    except failures() as error:
        raise UnsupportedError(f"ONNX Runtime refuses the model: {first_line(error)}") from error


_ERROR_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE_LINE = re.compile(r"\S+\.(?:cc|h):\d+ [^()]*\([^()]*\)(?: const)?(?: \[with [^\]]*\])? ")


def first_line(error: BaseException) -> str:
    """The first line of what ONNX Runtime says, without its error code, the line of its source and the node's name."""
    lines = _FAILED_NODE.sub("", _ERROR_CODE.sub("", str(error).strip())).splitlines()
    text = _SOURCE_LINE.sub("", lines[0]) if lines else type(error).__name__
    return text.removeprefix("Non-zero status code returned ")


_SMALL_BYTES = 1 << 16


Ask = Callable[[Graph], str]
"""Why a graph of one node cannot run, empty when it can."""


def runs_alone(graph: Graph) -> str:
    """Asks a session on the CPU."""
    try:
        Session(graph, threads=1)  # a pool of threads takes longer to start than all else
    except CapgraphError as error:
        return error.message
    return ""


class Support:
    """Remembers the answer for each op, attributes and operand types, so that each is asked once."""

    def __init__(
        self,
        graph: Graph,
        refused: Mapping[Node, str],
        ask: Ask = runs_alone,
        takes: Callable[[Type], str] = interface_problem,
    ) -> None:
        self.graph = graph
        self._refused = refused
        self._signs = lost_signs(graph)
        self._ask = ask
        self._takes = takes
        self._answers: dict[Any, str] = {}

    def problem(self, node: Node) -> str:
        """Why ONNX Runtime cannot run `node`, empty when it can."""
        found = self._refused.get(node) or self._signs.get(node) or known_fault(node)
        if found:
            return found
        for value in (*node.operands, *node.outputs):
            problem = self._takes(value.type)
            if problem:
                return f"%{value.name} {problem}"
        key = (node.op, node.attrs, tuple((value.type, _is_small(value)) for value in node.operands))
        if key not in self._answers:
            self._answers[key] = self._ask(self._alone(node))
        return self._answers[key]

    def _alone(self, node: Node) -> Graph:
        """A graph of `node` and the small constants that it reads."""
        operands = tuple(dict.fromkeys(node.operands))
        constants = tuple(dict.fromkeys(v.producer for v in operands if v.producer is not None and _is_small(v)))
        taken = tuple(value for value in operands if not _is_small(value))
        nodes = (*constants, node)
        givers = tuple(value for value in size_givers(self.graph, nodes, taken) if value not in taken)
        return part_of(self.graph, nodes, (*taken, *givers), node.outputs)


def _is_small(value: Value) -> bool:
    """Whether a value depends on nothing and may stand in a model that is made only to ask."""
    node = value.producer
    if node is None or not is_free(node):
        return False
    contents = (attr for attr in node.attrs.values() if isinstance(attr, Constant))
    return all(content.nbytes <= _SMALL_BYTES for content in contents)


def is_free(node: Node) -> bool:
    """Whether a node depends on nothing, so that every segment that reads its results can have its own."""
    return not node.inputs and not node.op.has(Trait.IMPURE | Trait.FOREIGN)
