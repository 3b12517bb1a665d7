"""The ONNX backend interface (`onnx.backend.base`), so that onnx's own test suite runs on graphs.

    prepared = backend.prepare(model)
    outputs = prepared.run([x, y])

Models run in the reference evaluator, node by node in NumPy: this shows what a graph means, not how fast it can be.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from ...ir.errors import InputError
from ...ir.evaluate import evaluate_graph
from .importing.importer import ImportedModel, import_model


class CapgraphBackendRep(BackendRep):
    """An imported model that is ready to run."""

    def __init__(self, imported: ImportedModel) -> None:
        self.imported = imported

    def run(self, inputs: Any, **_options: Any) -> tuple[Any, ...]:
        """The outputs, by position or name.

        `inputs` come by name or in order; those with a default may be left out, at the end if they come in order.
        Raises `InputError` when an input is missing.
        """
        graph = self.imported.graph
        given = dict(inputs) if isinstance(inputs, Mapping) else self._by_name(inputs)
        defaults = graph.defaults
        missing = [v.name for v in graph.inputs if v.name not in given and v.name not in defaults]
        if missing:
            raise InputError(f"input {missing[0]} is missing", remedy="give a value for every input without a default")
        values = [given[v.name] if v.name in given else defaults[v.name].array for v in graph.inputs]
        results = self.evaluate([_operand(value) for value in values])
        outputs: tuple[Any, ...] = namedtupledict("Outputs", graph.output_names)(*results)
        return outputs

    def evaluate(self, values: list[Any]) -> Sequence[Any]:
        """The outputs for a value of every input, in order; the part that another way of running replaces."""
        return evaluate_graph(self.imported.graph, values)

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        graph = self.imported.graph
        required = [v.name for v in graph.inputs if v.name not in graph.defaults]
        optional = [v.name for v in graph.inputs if v.name in graph.defaults]
        listed = list(inputs) if isinstance(inputs, Sequence) else [inputs]
        if len(listed) > len(graph.inputs):
            raise InputError(f"the model takes {len(graph.inputs)} inputs, not {len(listed)}")
        order = [v.name for v in graph.inputs] if len(listed) == len(graph.inputs) else required + optional
        return dict(zip(order, listed, strict=False))


def _operand(value: Any) -> Any:
    """Python scalars as arrays, NumPy's own strings as arrays of objects; sequences element by element."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return [_operand(item) for item in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


class CapgraphBackend(Backend):
    """Imports a model into a graph and evaluates it on the CPU."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_options: Any) -> CapgraphBackendRep:
        """The imported model. Raises what `import_model` raises."""
        if not cls.supports_device(device):
            raise InputError(f"the reference evaluator does not run on {device}", remedy="use device='CPU'")
        return CapgraphBackendRep(import_model(model))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """`prepare` and `run` at once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is the CPU."""
        return bool(Device(device).type == DeviceType.CPU)


prepare = CapgraphBackend.prepare
run_model = CapgraphBackend.run_model
supports_device = CapgraphBackend.supports_device
