"""Matmuls of few rows with weights in codes: graphs, inputs, and what they give in f64."""

from dataclasses import dataclass

import numpy as np
from capgraph.executors.cuda.kernel_ir.launch import Chip
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from tests.executors.cuda.matmul_cases import drawn
from tests.executors.cuda.solving import Setting, constant, setting

EPSILON, ONE = 0.25, Chip(multiprocessors=1)


@dataclass(frozen=True)
class CodedMatmul:
    """x [1, rows, inner] times a weight in `codes`, x + r behind it; with a norm before it, or as a gated pair.

    A scale is of the whole weight (`block` -1), of each column (0), or of so many numbers of a column. `is_turned`: it
    is stored as [columns, inner]. The norm is a `layer_norm` where it `is_centered`.
    """

    codes: DType
    inner: int = 512
    columns: int = 32
    block: int = 0
    rows: int = 1
    dtype: DType = DType.BF16
    scales: DType = DType.F32
    kind: str = "plain"
    has_zero: bool = False
    is_turned: bool = False
    is_centered: bool = False
    chip: Chip = ONE

    def weight(self, seed: int) -> tuple[Array, Array, Array | None]:
        """Codes [K, N], scales and zero points."""
        shape = () if self.block == -1 else (self.columns,)
        shape = (self.inner // self.block, self.columns) if self.block > 0 else shape
        scales = 0.01 * (1 + np.random.default_rng((seed, 1)).random(shape))
        zero = drawn_codes(shape, self.codes, seed + 2) if self.has_zero else None
        return drawn_codes((self.inner, self.columns), self.codes, seed), scales.astype(self.scales.numpy), zero

    @property
    def x(self) -> Array:
        return drawn((1, self.rows, self.inner), self.dtype)

    @property
    def gain(self) -> Array:
        return drawn((self.inner,), self.dtype, 2)

    @property
    def bias(self) -> Array:
        return drawn((self.inner,), self.dtype, 4)

    @property
    def residual(self) -> Array:
        return drawn((1, self.rows, self.columns), self.dtype, 3)

    def graph(self) -> Graph:
        """As it comes to fusion."""
        graph = Graph()
        x = graph.add_input("x", TensorType(self.dtype, self.x.shape))
        if self.kind != "plain":
            attrs = {"axis": -1, "epsilon": EPSILON}
            norm, given = ("layer_norm", [self.gain, self.bias]) if self.is_centered else ("rms_norm", [self.gain])
            x = graph.append(native(norm), [x, *(constant(graph, each) for each in given)], attrs).output
        value = graph.append(native("matmul"), [x, self._weight(graph, 1)]).output
        if self.kind == "paired":
            up = graph.append(native("matmul"), [x, self._weight(graph, 5)]).output
            value = graph.append(native("mul"), [graph.append(native("silu"), [value]).output, up]).output
        if self.kind == "plain":
            value = graph.append(native("add"), [graph.add_input("r", value.type), value]).output
        graph.set_outputs([value])
        return graph

    def _weight(self, graph: Graph, seed: int) -> Value:
        codes, scales, zero = self.weight(seed)
        axis, order = (0 if self.block > 0 else 1), (1, 0)
        parameters = [each for each in (scales, zero) if each is not None]
        if self.is_turned:
            axis, codes = 1 - axis, np.ascontiguousarray(codes.T)
            parameters = [np.ascontiguousarray(each.T) for each in parameters]
        attrs = {"to": self.dtype, "axis": axis, "block_size": max(self.block, 0)}
        operands = [constant(graph, each) for each in (codes, *parameters)]
        back = graph.append(native("dequantize_linear"), [*operands, *[None] * (3 - len(operands))], attrs).output
        return graph.append(native("transpose"), [back], {"perm": order}).output if self.is_turned else back

    def setting(self) -> Setting:
        """Its step with memory."""
        graph = self.graph()
        fuse = Fuse(normed_rows=4, paired_matmuls=True, scaled_operands=True)
        Pipeline(((fuse,),)).run(graph, check="none")
        inputs = {"x": self.x, **({"r": self.residual} if self.kind == "plain" else {})}
        return setting(graph, inputs, chip=self.chip)

    def exact(self) -> tuple[Array, Array]:
        """The result in f64, and how far from it one may be.

        The result is rounded, sums are of f32, and what a norm gives may be rounded before it is multiplied.
        """
        x = self.x.astype(np.float64)
        if self.kind != "plain":
            gain, bias = (each.astype(np.float64) for each in (self.gain, self.bias))
            x = x - x.mean(-1, keepdims=True) if self.is_centered else x
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * gain
            x = x + bias if self.is_centered else x
        first, size = self._matmul(x, 1)
        unit = float({DType.F16: 2.0**-11, DType.BF16: 2.0**-8, DType.F32: 2.0**-23}[self.dtype])
        relative = 2.0**-18 + (unit / 2 if self.kind != "plain" and self.dtype is not DType.F32 else 0)
        if self.kind == "paired":
            second, other = self._matmul(x, 5)
            silu = first / (1 + np.exp(-first))
            value = silu * second
            sums = relative * (1.2 * size * np.abs(second) + other * np.abs(silu))
        else:
            value = first + self.residual.astype(np.float64) if self.kind == "plain" else first
            sums = relative * size
        return value, np.asarray(unit * np.abs(value) + sums + 1e-6)

    def _matmul(self, x: Array, seed: int) -> tuple[Array, Array]:
        codes, scales, zero = (each if each is None else each.astype(np.float64) for each in self.weight(seed))
        assert codes is not None
        assert scales is not None
        if self.block > 0:
            scales = scales.repeat(self.block, 0)
            zero = zero if zero is None else zero.repeat(self.block, 0)
        weight = (codes - (0 if zero is None else zero)) * scales
        return x @ weight, np.abs(x) @ np.abs(weight)


def drawn_codes(shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    """Any codes of integers; floats as numbers are normally."""
    random = np.random.default_rng((seed, *shape))
    if not dtype.is_integer:
        return random.standard_normal(shape).astype(np.float32).astype(dtype.numpy)
    low = 0 if dtype in (DType.U4, DType.U8) else -(1 << (dtype.bits - 1))
    return np.asarray(random.integers(low, low + (1 << dtype.bits), shape).astype(np.int16).astype(dtype.numpy))


I4, U4, I8, U8, E4M3, E5M2 = DType.I4, DType.U4, DType.I8, DType.U8, DType.F8E4M3FN, DType.F8E5M2

CASES = (
    CodedMatmul(I8),
    CodedMatmul(I8, 1040, 13, -1, dtype=DType.F32),
    CodedMatmul(U8, 544, block=32, dtype=DType.F32, has_zero=True),
    CodedMatmul(I8, 4096, 9, 128, scales=DType.BF16),
    CodedMatmul(I8, kind="paired", is_turned=True, scales=DType.F16),
    CodedMatmul(E4M3),
    CodedMatmul(E4M3, 2064, kind="normed", rows=4, dtype=DType.F16),
    CodedMatmul(E5M2, block=-1, dtype=DType.F16),
    CodedMatmul(I4, block=128),
    CodedMatmul(I4, 96, 9, rows=4),
    CodedMatmul(I4, 1024, 33, 128, rows=3, kind="normed", is_turned=True, scales=DType.BF16),
    CodedMatmul(I4, 1024, 33, 128, kind="paired", is_turned=True),
    CodedMatmul(U4, 1024, 30, 64, rows=2, kind="paired", is_turned=True, has_zero=True, scales=DType.F16),
    CodedMatmul(U4, block=32, has_zero=True, dtype=DType.F32),
    CodedMatmul(U4, has_zero=True),
    CodedMatmul(I4, 1152, 37, 128, rows=2, kind="normed", dtype=DType.F16),
    CodedMatmul(I8, 4160, 21, kind="paired", is_turned=True, rows=3),
    CodedMatmul(U8, 512, 24, 256, has_zero=True, rows=2, kind="normed"),
    CodedMatmul(I8, 1040, 13, kind="normed", is_centered=True, rows=2),
    CodedMatmul(I4, 1024, 33, 128, kind="paired", is_centered=True),
    CodedMatmul(U8, block=32, kind="normed", is_centered=True, has_zero=True, dtype=DType.F32),
)
"""Every kind of codes with every granularity and prologue, sizes that end within a piece of work."""
