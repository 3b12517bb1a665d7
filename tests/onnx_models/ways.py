"""The ways in which capgraph runs a model: its executors, and the files that it writes in ONNX Runtime."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import capgraph
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.errors import CapgraphError, ShapeError
from capgraph.ir.graph import Graph
from capgraph.ir.types import type_symbols

from tests.onnx_models.peers import answers, session

Results: TypeAlias = list[Any]
EXECUTORS = ("eager", "graph", "ort")
TARGETS = ("file-standard", "file-ort")
WAYS = (*EXECUTORS, *TARGETS)
MOST_RANGES = 3
_NEVER_EQUAL = re.compile(r"broadcast sizes must be equal or 1: (.+) and (.+) differ")


def read(model: bytes) -> Graph:
    """The graph after the passes."""
    with capgraph.optimize(model, executor="eager", verify="structure") as program:
        return program.graph


def runner(graph: Graph, way: str, model: bytes) -> Callable[[Mapping[str, Any]], Results]:
    """What runs the graph in that way; `model` is what it was read from."""
    return _program(graph, way, model) if way in EXECUTORS else _file(graph, way)


def breaks_what_was_taken(model: bytes, inputs: Mapping[str, Any]) -> bool:
    """Whether sizes of a call are not what the model was read with: programs read it again, files stay as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = capgraph.optimize(model, executor="eager", verify="none")._exact
        try:
            return exact is not None and exact.run(inputs) is not None
        except CapgraphError:  # the model cannot have these sizes
            return True


def _program(graph: Graph, executor: str, model: bytes) -> Callable[[Mapping[str, Any]], Results]:
    options: dict[str, Any] = {}
    if executor == "graph":
        symbols = frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs))
        options = {"device": "host", **_recorded(sorted(symbols))} if symbols else {}
    if executor == "ort":
        options = {"threads": 1}
    values = (*graph.inputs, *(value for node in graph.nodes for value in node.outputs))
    source = model if any(type_symbols(value.type) for value in values) else graph  # which is optimized already
    program = capgraph.optimize(source, executor=executor, verify="none", **options)

    def run(inputs: Mapping[str, Any]) -> Results:
        given = {name: value for name, value in inputs.items() if name in program.inputs}
        found = list(program.run(given).values())
        return list(program.run(given).values()) if executor == "graph" else found

    return run


def _recorded(symbols: Sequence[str]) -> dict[str, Any]:
    """Ranges of a few symbols, for which calls are padded; many are recorded as they come."""
    if len(symbols) > MOST_RANGES:
        return {"capture": {"beyond": "exact"}}
    return {"dynamic": dict.fromkeys(symbols, (1, 8))}


def _file(graph: Graph, target: str) -> Callable[[Mapping[str, Any]], Results]:
    model = export_model(graph, keep_versions=True, dialect=Dialect(target.removeprefix("file-")))
    opened = session(model.SerializeToString())
    names = [each.name for each in opened.get_inputs()]

    def run(inputs: Mapping[str, Any]) -> Results:
        return answers(opened, {name: inputs[name] for name in names if name in inputs})

    return run


def is_a_limit(error: Any) -> bool:
    """Whether a model is refused for sizes that always differ, though one of them may be 1: docs/onnx.md says so."""
    told = _NEVER_EQUAL.search(str(error)) if isinstance(error, ShapeError) else None
    return told is not None and not all(each.isdigit() for each in told.groups())
