"""Matmuls as steps with memory: layouts, constant weights, what follows; and whether a candidate of one is right."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Chip
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.solving import Layout, Setting, constant, setting


def drawn(shape: Sequence[int], dtype: DType = DType.F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(dtype.numpy)


def swapped(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def heads_inside(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)


def rows_outside(array: Array) -> Array:
    """[B, M, K] stored as [M, B, K]."""
    return np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)


def with_gap(array: Array) -> Array:
    """Rows that begin eight elements behind the end of the row before, the first four elements in."""
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + 8), array.dtype)
    wide[..., 4 : 4 + array.shape[-1]] = array
    return wide[..., 4 : 4 + array.shape[-1]]


def every_other(array: Array) -> Array:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def matmul(a: Array, b: Array, /, **layouts: Layout) -> Setting:
    graph = Graph()
    values = [graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in (("a", a), ("b", b))]
    graph.set_outputs([graph.append(native("matmul"), values, names=["y"]).output])
    return setting(graph, {"a": a, "b": b}, layouts)


def linear(
    rows: int,
    inner: int,
    columns: int,
    *epilogue: str,
    dtype: DType = DType.F32,
    chip: Chip | None = None,
    tf32: bool = False,
) -> Setting:
    """A matmul with a constant weight, and what follows it."""
    graph, inputs = Graph(), {"x": drawn((1, rows, inner), dtype)}
    x = graph.add_input("x", TensorType(dtype, (1, rows, inner)))
    value = graph.append(native("matmul"), [x, constant(graph, drawn((inner, columns), dtype, 1))]).output
    for index, name in enumerate(epilogue):
        value = _followed(graph, value, name, index, inputs)
    graph.set_outputs([value])
    return setting(graph, inputs, chip=chip, tf32=tf32)


def _followed(graph: Graph, value: Value, name: str, index: int, inputs: dict[str, Array]) -> Value:
    shape, dtype = tuple(int(dim) for dim in value.shape), value.tensor.dtype
    if name == "bias":
        return graph.append(native("add"), [value, constant(graph, drawn(shape[-1:], dtype, 2))]).output
    if name in ("residual", "gate"):
        inputs[f"r{index}"] = drawn(shape, dtype, 3)
        other = graph.add_input(f"r{index}", value.type)
        return graph.append(native("add" if name == "residual" else "mul"), [other, value]).output
    attrs: dict[str, Any] = {"approximate": "tanh"} if name == "gelu-tanh" else {}
    return graph.append(native(name.split("-", maxsplit=1)[0]), [value], attrs).output


def by_cublaslt(made: Setting) -> Candidate:
    found = [each for each in lower_matmul(made.task) if each.name.startswith("cublaslt")]
    assert len(found) >= 1
    return found[0]


def is_right(made: Setting, candidate: Candidate, tolerance: float = 1e-5) -> bool:
    found = made.found(candidate)
    scale = max((float(np.abs(x.astype(np.float64)).max(initial=1)) for x in made.expected), default=1)
    return all(
        np.allclose(x.astype(np.float64), y.astype(np.float64), rtol=0, atol=tolerance * scale)
        for x, y in zip(found, made.expected, strict=True)
    )
