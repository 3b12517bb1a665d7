"""There and back for what ONNX Runtime cannot run on the CPU: element types and operators that it has no kernel for."""

from collections.abc import Mapping

import onnx
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.graph import Graph

from tests.frontends.onnx.ops.there_and_back import evaluated, imported, reference
from tests.ir.ops.drawn_arrays import assert_same
from tests.ir.ops.onnx_oracle import Array


def check_in_reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Graph:
    """Holds import, export and second import to what the reference gives, exactly; gives the graph."""
    wanted = reference(model, feeds)
    graph = imported(model)
    exported = export_model(graph)
    for results in (evaluated(graph, feeds), reference(exported, feeds), evaluated(imported(exported), feeds)):
        assert len(results) == len(wanted)
        for found, expected in zip(results, wanted, strict=True):
            assert_same(found, expected)
    return graph
