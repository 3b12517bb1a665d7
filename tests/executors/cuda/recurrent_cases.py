"""Recurrent nodes with their operands, for the emulator here and a GPU in tests/gpu."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.solving import Layout, Setting, constant, setting

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
PER_DIRECTION = {"lstm": 3, "gru": 2, "rnn": 1}
TOLERANCES = {"f64": 1e-10, "f32": 2e-5, "f16": 2e-3, "bf16": 2e-2}
OPTIONAL = ("b", "lengths", "initial_h", "initial_c", "peepholes")
BOTH = (("direction", "bidirectional"),)


@dataclass(frozen=True)
class Case:
    """A recurrent node: `operands` names the optional ones that are there."""

    op: str
    dtype: str = "f32"
    steps: int = 3
    batch: int = 2
    features: int = 3
    hidden: int = 4
    operands: frozenset[str] = frozenset()
    attrs: tuple[tuple[str, Any], ...] = ()
    weights_are_constants: bool = False
    length_dtype: str = "i64"
    seed: int = 0
    weight_scale: float = 1.0

    @property
    def options(self) -> Mapping[str, Any]:
        return dict(self.attrs)

    def arrays(self) -> dict[str, Array]:
        """The operands by name."""
        rng = np.random.default_rng(self.seed)
        gates, directions = GATES[self.op], 2 if self.options.get("direction") == "bidirectional" else 1
        is_sample_first = bool(self.options.get("layout"))
        state = (self.batch, directions, self.hidden) if is_sample_first else (directions, self.batch, self.hidden)
        shapes = {
            "x": (self.batch, self.steps, self.features)
            if is_sample_first
            else (self.steps, self.batch, self.features),
            "w": (directions, gates * self.hidden, self.features),
            "r": (directions, gates * self.hidden, self.hidden),
            "b": (directions, 2 * gates * self.hidden),
            "initial_h": state,
            "initial_c": state,
            "peepholes": (directions, 3 * self.hidden),
        }
        kind = DType(self.dtype).numpy
        scales = {"w": self.weight_scale, "r": self.weight_scale}
        found = {
            name: (scales.get(name, 1.0) * rng.standard_normal(shape)).astype(kind) for name, shape in shapes.items()
        }
        found["lengths"] = rng.integers(0, self.steps + 1, self.batch).astype(DType(self.length_dtype).numpy)
        return found

    def graph(self) -> Graph:
        """The node alone, with inputs that are named like its operands."""
        arrays, graph = self.arrays(), Graph()
        optional = ("b", "lengths", "initial_h", *(("initial_c", "peepholes") if self.op == "lstm" else ()))
        values: list[Value | None] = []
        for name in ("x", "w", "r", *optional):
            array = arrays[name]
            if name in optional and name not in self.operands:
                values.append(None)
            elif self.weights_are_constants and name in ("w", "r", "b", "peepholes"):
                values.append(constant(graph, array))
            else:
                values.append(graph.add_input(name, TensorType(DType.of(array.dtype), array.shape)))
        graph.set_outputs(list(graph.append(native(self.op), values, self.options).outputs))
        return graph

    def setting(self, layouts: Mapping[str, Layout] | None = None) -> Setting:
        """The node with its memory."""
        graph, arrays = self.graph(), self.arrays()
        return setting(graph, {value.name: arrays[value.name] for value in graph.inputs}, layouts)
