"""Models through the importer and the exporter, each step held to an independent meaning."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.verify import verify
from onnx.reference import ReferenceEvaluator

from tests.ir.ops.onnx_oracle import Array, assert_close, one_node, runtime
from tests.onnx_suite.importing import foreign_operators

TOLERANCE = 1e-4


def imported(model: onnx.ModelProto, *, native: bool = True) -> Graph:
    """The graph of a model, verified; by default every node of it must be native."""
    graph = import_model(model).graph
    verify(graph)
    if native:
        assert foreign_operators(graph) == ()
    return graph


def check(
    model: onnx.ModelProto, feeds: Mapping[str, Array], expected: Sequence[Array] | None = None, *, native: bool = True
) -> Graph:
    """Holds import, export and second import to `expected` (by default what the reference gives); gives the graph."""
    wanted = expected if expected is not None else reference(model, feeds)
    graph = imported(model, native=native)
    compare(evaluated(graph, feeds), wanted)
    exported = export_model(graph, dialect=Dialect.STANDARD)
    compare(reference(exported, feeds), wanted)
    compare(runtime_of(exported, feeds), wanted)
    compare(evaluated(imported(exported, native=native), feeds), wanted)
    return graph


def check_in_runtime(
    operator: str,
    *inputs: Array,
    opset: int,
    attrs: Mapping[str, Any] = MappingProxyType({}),
    outputs: int = 1,
    symbols: Collection[str] = (),
) -> Graph:
    """Holds one operator, there and back, to ONNX Runtime; each size of the inputs in `symbols` is a symbol."""
    model = one_node(operator, inputs, outputs, opset, dict(attrs))
    expected = runtime(operator, *inputs, outputs=outputs, opset=opset, **attrs)
    return check(with_symbols(model, symbols) if symbols else model, feeds_of(*inputs), expected)


def evaluated(graph: Graph, feeds: Mapping[str, Array]) -> tuple[Any, ...]:
    """The outputs of a graph."""
    return evaluate_graph(graph, [feeds[value.name] for value in graph.inputs])


def reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a model in onnx's reference evaluator."""
    with np.errstate(all="ignore"):
        return [np.asarray(result) for result in ReferenceEvaluator(model).run(None, dict(feeds))]


def runtime_of(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a model in ONNX Runtime on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, dict(feeds))]


def compare(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """All results agree."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert_close(np.asarray(one), np.asarray(other), rtol=TOLERANCE, atol=TOLERANCE)


def with_symbols(model: onnx.ModelProto, inputs: Collection[str] = ()) -> onnx.ModelProto:
    """The model with a symbol for every size of the named inputs (all, if none is named)."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value in changed.graph.input:
        if not inputs or value.name in inputs:
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.dim_param = f"{value.name}_{axis}"
    return changed


def feeds_of(*inputs: Array | None) -> dict[str, Array]:
    """Inputs under the names that `one_node` gives them."""
    return {f"x{index}": array for index, array in enumerate(inputs) if array is not None}


def op_names(graph: Graph) -> list[str]:
    """The names of a graph's ops in order, constants left out."""
    return [node.op.name for node in graph.nodes if node.op.name != "constant"]
