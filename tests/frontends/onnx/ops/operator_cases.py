"""One operator as a table of cases; which inputs are constants says whether its static or dynamic form is wanted."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model

from tests.frontends.onnx.ops.there_and_back import (
    compare,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import Array, one_node


@dataclass(frozen=True)
class Case:
    """An operator of `opset` on `inputs`; with those numbered in `constants` known it becomes the ops `gives`."""

    operator: str
    opset: int
    inputs: tuple[Array | None, ...]
    gives: tuple[str, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: Collection[int] = ()
    outputs: int = 1

    def __str__(self) -> str:
        known = "".join(f"-known{index}" for index in self.constants)
        return f"{self.operator}-{self.opset}{known}-{'-'.join(map(str, self.attrs.values()))}".replace(" ", "")


def model_of(case: Case) -> onnx.ModelProto:
    """The case as a model of one node."""
    model = one_node(case.operator, case.inputs, case.outputs, case.opset, case.attrs)
    for index in case.constants:
        array = case.inputs[index]
        assert array is not None
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, f"x{index}"))
    kept = [info for info in model.graph.input if int(info.name[1:]) not in case.constants]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def hold(case: Case, *, symbols: bool = False) -> None:
    """Import, export and second import agree with ONNX Runtime, and the ops are those that the case names.

    The reference evaluator is no oracle here: it fails on negative indices, negative pads and operands left out.
    """
    model = model_of(case)
    feeds = {name: x for name, x in feeds_of(*case.inputs).items() if int(name[1:]) not in case.constants}
    wanted = runtime_of(model, feeds)
    graph = imported(with_symbols(model, ["x0"]) if symbols else model)
    compare(evaluated(graph, feeds), wanted)
    assert tuple(op_names(graph)) == case.gives
    exported = export_model(graph, dialect=Dialect.STANDARD)
    compare(runtime_of(exported, feeds), wanted)
    compare(evaluated(imported(exported), feeds), wanted)


def ints(*values: int) -> Array:
    """A vector i64."""
    return np.array(values, dtype=np.int64)


def number(value: Any, dtype: Any = np.int64) -> Array:
    """A scalar."""
    return np.array(value, dtype=dtype)


def numbered(*shape: int, dtype: Any = np.float32) -> Array:
    """0, 1, 2, ... in a shape."""
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
