"""The benchmark models on a GPU in f32 and f16: modules, their graphs through ONNX, inputs, and references in f64."""

import copy
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.sources import load_model

from benchmarks import models

HALF = {"float32": torch.float32, "float16": torch.float16}


@dataclass
class Subject:
    """One model in one dtype, of fixed sizes. `error` compares outputs with the module in f64."""

    name: str
    dtype: str
    batch: int = 1
    module: Any = field(init=False)
    graph: Graph = field(init=False)
    _wide: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.module = models.build(self.name).to(HALF[self.dtype])
        self.graph = load_model(exported(self.module, self.inputs(models.SEED))).graph

    def inputs(self, seed: int) -> dict[str, Array]:
        """Fresh random inputs by name."""
        drawn = models.MODELS[self.name].draw(np.random.default_rng(seed), self.batch, models.FIXED_SIZE[1])
        return {name: self._cast(array) for name, array in drawn.items()}

    def error(self, given: Array, inputs: Mapping[str, Array]) -> float:
        """The norm of the error over the norm of what the module gives in f64; infinite where one is not finite."""
        return relative_error(given, self.expected(inputs))

    def torch_error(self, inputs: Mapping[str, Array]) -> float:
        """How far PyTorch itself is in this dtype."""
        with torch.no_grad():
            found = self.module.cuda()(*(torch.from_numpy(array).cuda() for array in inputs.values()))
        return relative_error(found.cpu().numpy(), self.expected(inputs))

    def expected(self, inputs: Mapping[str, Array]) -> Array:
        """What the module gives in f64."""
        if self._wide is None:
            self._wide = copy.deepcopy(self.module).double().cuda()
        tensors = [torch.from_numpy(array).cuda() for array in inputs.values()]
        with torch.no_grad():
            found: Array = self._wide(*(t.double() if t.is_floating_point() else t for t in tensors)).cpu().numpy()
        return found

    def _cast(self, array: Array) -> Array:
        return array.astype(self.dtype) if array.dtype.kind == "f" else array


def relative_error(given: Array, expected: Array) -> float:
    """The norm of the difference over the norm of what was expected; infinite where something is not finite."""
    wide = expected.astype(np.float64)
    error = float(np.linalg.norm(given.astype(np.float64) - wide) / np.linalg.norm(wide))
    return error if np.isfinite(error) else float("inf")


def exported(module: Any, example: Mapping[str, Array], axes: Any = None) -> bytes:
    """A module through torch.onnx as the bytes of an ONNX file; `axes` names symbolic ones of its inputs."""
    with warnings.catch_warnings(action="ignore"):  # the exporter's own
        program = torch.onnx.export(
            module.cpu(),
            tuple(torch.from_numpy(array) for array in example.values()),
            dynamo=True,
            optimize=False,
            verbose=False,
            input_names=list(example),
            output_names=["output"],
            dynamic_shapes=None if axes is None else (axes,),
        )
    assert program is not None  # with dynamo there is one
    content = io.BytesIO()
    program.save(content)
    return content.getvalue()
