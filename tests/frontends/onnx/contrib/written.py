"""Graphs written with ONNX Runtime's own operators: which were written, and that they mean what the graph means."""

from collections.abc import Collection

import numpy as np
import onnx
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import OPERATORS
from capgraph.frontends.onnx.contrib.group import Operator
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify

from tests.frontends.onnx.ops.there_and_back import compare, evaluated, runtime_of

SIZES = {"B": 2, "T": 5}


def graph_of(text: str) -> Graph:
    graph = parse(text)
    verify(graph)
    return graph


def operators(model: onnx.ModelProto) -> list[str]:
    """The operators in order, those of ONNX Runtime's own domain with a dot before them."""
    return [f".{node.op_type}" if node.domain else node.op_type for node in model.graph.node]


def feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers of the inputs' types."""
    random = np.random.default_rng(seed)
    found = {}
    for value in graph.inputs:
        shape = [dim if isinstance(dim, int) else dim.bind(SIZES) for dim in value.shape]
        found[value.name] = np.asarray(random.standard_normal(shape)).astype(value.tensor.dtype.numpy)
    return found


def written(text: str, available: Collection[Operator] = OPERATORS, *, runs: bool = True) -> list[str]:
    """The operators of a graph for ONNX Runtime, which there gives what the graph means (where it has the kernels)."""
    graph = graph_of(text)
    model = export_model(graph, dialect=Dialect.ORT, operators=available)
    if runs:
        given = feeds(graph)
        compare(runtime_of(model, given), evaluated(graph, given))
    return operators(model)


def without(*names: str) -> frozenset[Operator]:
    """All operators but these."""
    return frozenset(each for each in OPERATORS if each.name not in names)
