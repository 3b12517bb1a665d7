"""One graph in one ONNX Runtime session."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...frontends.onnx.exporter import MAX_INLINE_BYTES, export_model
from ...frontends.onnx.saving import save_model
from ...ir.analysis import parameter_bytes
from ...ir.errors import ExecutionError, UnsupportedError
from ...ir.graph import Graph
from .library import failures, onnxruntime

_CPU_PROVIDER = "CPUExecutionProvider"


class Session:
    """A graph that ONNX Runtime runs on the CPU. Raises `UnsupportedError` when it cannot be exported or is refused."""

    def __init__(self, graph: Graph, *, threads: int | None = None) -> None:
        self.graph = graph
        self._names = [value.name for value in graph.inputs]
        self._outputs = list(graph.output_names)
        self._session = _session(graph, _options(threads))

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for inputs in the graph's order, as arrays that belong to the caller."""
        feeds = dict(zip(self._names, values, strict=True))
        try:
            results: list[Any] = self._session.run(self._outputs, feeds)
        except failures() as error:
            raise ExecutionError(
                f"ONNX Runtime failed: {first_line(error)}",
                where=f"graph {self.graph.name}",
                remedy='use executor="eager" to see which node it is',
            ) from error
        return results


def _options(threads: int | None) -> Any:
    options = onnxruntime().SessionOptions()
    options.log_severity_level = 4  # what fails is raised; warnings are of use only to ONNX Runtime's own developers
    if threads is not None:
        options.intra_op_num_threads = threads
    return options


def _session(graph: Graph, options: Any) -> Any:
    if parameter_bytes(graph) >= MAX_INLINE_BYTES:
        return _large_session(graph, options)
    return _opened(export_model(graph, check=False, value_info=False).SerializeToString(), options)


def _large_session(graph: Graph, options: Any) -> Any:
    """Over 2 GB, through files: the weights are read from there and the files are gone afterwards."""
    with TemporaryDirectory(prefix="capgraph-") as folder:
        path = Path(folder) / "model.onnx"
        save_model(graph, path)
        return _opened(str(path), options)


def _opened(model: bytes | str, options: Any) -> Any:
    try:
        return onnxruntime().InferenceSession(model, options, providers=[_CPU_PROVIDER])
    except failures() as error:
        raise UnsupportedError(f"ONNX Runtime refuses the model: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of what ONNX Runtime says, without its error code."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text.split(" : ", 2)[-1]
