"""Matmuls of fp8 and i8 with scales: graphs, inputs, and what they give in f64."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from capgraph.executors.cuda.kernel_ir.launch import Chip
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.ops.nn.activation import gelu
from capgraph.ir.types import DType, TensorType

from tests.executors.cuda.solving import Layout, Setting, constant, setting

E4M3, E5M2, I8 = DType.F8E4M3FN, DType.F8E5M2, DType.I8
HOPPER = Chip(90)


@dataclass(frozen=True)
class Matmul:
    """`epilogue` of (a_scale * a) @ (b_scale * b) in the dtype `to`, a [*rows, inner] and b [inner, columns].

    With `is_turned` b is stored as [columns, inner]. A gemm has the bias by itself. `by_row` and `by_column` give each
    row of a, of which there is one axis, and each column of b a scale.
    """

    rows: tuple[int, ...] = (5,)
    inner: int = 32
    columns: int = 48
    dtypes: tuple[DType, DType] = (E4M3, E4M3)
    to: DType = DType.F16
    epilogue: tuple[str, ...] = ()
    scale_dtype: DType = DType.F32
    has_constant_scales: bool = False
    has_constant_weight: bool = True
    is_turned: bool = False
    by_row: bool = False
    by_column: bool = False
    op: str = "matmul"
    chip: Chip = HOPPER
    tf32: bool = False
    layouts: tuple[tuple[str, Layout], ...] = ()

    @property
    def contents(self) -> dict[str, Array]:
        """Everything that it may be computed from, by name; equal matmuls have equal contents."""
        shapes = {"a": (*self.rows, self.inner), "b": (self.inner, self.columns)}
        found = {name: codes(shape, dtype, 0) for (name, shape), dtype in zip(shapes.items(), self.dtypes, strict=True)}
        random = np.random.default_rng(2)
        found["bias"] = random.standard_normal(self.columns).astype(self.to.numpy)
        found["r"] = random.standard_normal((*self.rows, self.columns)).astype(self.to.numpy)
        for name, number, is_vector, size in (
            ("a_scale", 0.375, self.by_row, self.rows[-1:]),
            ("b_scale", 0.0625, self.by_column, (self.columns,)),
        ):
            factors = 1 + np.arange(size[0]) % 3 if is_vector else np.ones(())
            found[name] = np.asarray(number * factors).astype(self.scale_dtype.numpy)
        return found

    def graph(self) -> Graph:
        """Its nodes; inputs are named as the contents."""
        return _Making(self).graph()

    def setting(self) -> Setting:
        """Its step with memory."""
        graph = self.graph()
        contents = self.contents
        stored = {**contents, "b": np.ascontiguousarray(contents["b"].T) if self.is_turned else contents["b"]}
        inputs = {value.name: stored[value.name] for value in graph.inputs}
        return setting(graph, inputs, dict(self.layouts), chip=self.chip, tf32=self.tf32)


def codes(shape: Sequence[int], dtype: DType, seed: int) -> Array:
    """Numbers of 8 bits: normal ones, or all but the lowest integer."""
    random = np.random.default_rng((seed, *shape))
    if dtype.is_integer:
        return random.integers(-127, 128, tuple(shape)).astype(np.int8)
    return random.standard_normal(tuple(shape)).astype(dtype.numpy)


class _Making:
    def __init__(self, matmul: Matmul) -> None:
        self.matmul = matmul
        self.contents = matmul.contents
        self.made = Graph()

    def graph(self) -> Graph:
        matmul = self.matmul
        x = self._scaled("a", self.contents["a"], is_constant=False)
        weight = np.ascontiguousarray(self.contents["b"].T) if matmul.is_turned else self.contents["b"]
        w = self._scaled("b", weight, is_constant=matmul.has_constant_weight)
        if matmul.op == "gemm":
            attrs = {"alpha": 1.0, "beta": 1.0, "trans_b": matmul.is_turned}
            value = self.made.append(native("gemm"), [x, w, self._constant("bias")], attrs).output
        else:
            turned = self.made.append(native("transpose"), [w], {"perm": (1, 0)}).output if matmul.is_turned else w
            value = self.made.append(native("matmul"), [x, turned]).output
        for name in matmul.epilogue:
            value = self._followed(value, name)
        self.made.set_outputs([value])
        return self.made

    def _scaled(self, name: str, content: Array, *, is_constant: bool) -> Value:
        value = constant(self.made, content) if is_constant else self._input(name, content)
        scale = f"{name}_scale"
        factor = self._constant(scale) if self.matmul.has_constant_scales else self._input(scale, self.contents[scale])
        axis = 1 if name == "b" and not self.matmul.is_turned else 0
        attrs = {"to": self.matmul.to, "axis": axis}
        return self.made.append(native("dequantize_linear"), [value, factor, None], attrs).output

    def _followed(self, value: Value, name: str) -> Value:
        if name == "bias":
            return self.made.append(native("add"), [value, self._constant("bias")]).output
        if name == "residual":
            return self.made.append(native("add"), [value, self._input("r", self.contents["r"])]).output
        attrs = {"approximate": "tanh"} if name == "gelu-tanh" else {}
        return self.made.append(native(name.partition("-")[0]), [value], attrs).output

    def _constant(self, name: str) -> Value:
        return constant(self.made, self.contents[name])

    def _input(self, name: str, content: Array) -> Value:
        return self.made.add_input(name, TensorType(DType.of(content.dtype), content.shape))


@dataclass(frozen=True)
class Exact:
    """A result in f64, and the sum of magnitudes of all that is added on the way to each element."""

    value: Array
    matmul_magnitude: Array
    magnitude: Array


def exact(matmul: Matmul) -> Exact:
    """What a matmul gives in f64, from the numbers of 8 bits."""
    contents = {name: content.astype(np.float64) for name, content in matmul.contents.items()}
    scale = contents["a_scale"].reshape(-1, *[1] * contents["a_scale"].ndim) * contents["b_scale"]
    value = scale * (contents["a"] @ contents["b"])
    matmul_magnitude = scale * (np.abs(contents["a"]) @ np.abs(contents["b"]))
    magnitude = np.abs(value)
    for name in (*(("bias",) if matmul.op == "gemm" else ()), *matmul.epilogue):
        if name in ("bias", "residual"):
            added = contents["bias" if name == "bias" else "r"]
            value, magnitude = value + added, magnitude + np.abs(added)
        else:
            value = _activated(name, value)
    return Exact(value, matmul_magnitude, magnitude)


def _activated(name: str, x: Array) -> Array:
    if name == "relu":
        return np.maximum(x, 0)
    if name == "silu":
        return np.asarray(x * (0.5 + 0.5 * np.tanh(0.5 * x)))
    return gelu(x, approximate="tanh" if name == "gelu-tanh" else "none")


_ROUNDING = {DType.F16: 2.0**-11, DType.BF16: 2.0**-8, DType.F32: 2.0**-24}
_TENSOR_CORES = 2.0**-9
_STEEPEST = 1.2
"""The steepest slope of an activation: 1.13 for GELU, 1.1 for SiLU."""


def allowed(matmul: Matmul, found: Exact, candidate: str) -> Array:
    """How far a candidate may be from the exact result.

    Tensor cores of Hopper add 32 products of fp8 to the sum so far with 13 bits behind the leading one of the largest
    of them, and go on in f32 after 128. That is an error of at most 132 * 2**-14 of the largest number on the way in
    each 128, which for numbers without a common sign is less than a quarter of the sum of magnitudes: 2**-9 of it in
    all. Factors that are dequantized first are rounded once each (f32: to TF32, where that is allowed), and added in
    f32. Behind the sum there are up to four roundings of what is there.
    """
    unit = _ROUNDING[matmul.to]
    if candidate.startswith("fp8"):
        relative = _TENSOR_CORES
    elif candidate.startswith("bytes"):
        relative = 4 * 2.0**-24
    else:
        operands = 2.0**-11 if matmul.to is DType.F32 and matmul.tf32 else unit
        relative = 2 * operands + matmul.inner * 2.0**-24
    behind = 4 * unit * found.magnitude + 2.0**-20 * found.magnitude
    return np.asarray(_STEEPEST * (relative * found.matmul_magnitude + behind))
