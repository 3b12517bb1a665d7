"""Matmuls of up to 16 rows on tensor cores, held against f64; run on the host."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Chip, KernelLaunch
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.emulator import HAS_COMPILER, kernels_of
from tests.executors.cuda.matmul_cases import drawn
from tests.executors.cuda.solving import Setting, constant, setting
from tests.executors.cuda.test_gemv import emulated

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")

F16, BF16, EPSILON = DType.F16, DType.BF16, 0.25
SMALL = 32 << 10
"""Shared memory in which some rows find no room."""


@dataclass(frozen=True)
class Matmul:
    """x [rows, inner] times a weight, r + that; with a norm in front ("normed"), or as a gated pair of both."""

    dtype: DType
    rows: int
    inner: int
    columns: int
    kind: str = "plain"
    has_gain: bool = True
    blocks: int = 2
    shared: int = 227 << 10
    scale: float = 1.0

    @property
    def x(self) -> Array:
        return (self.scale * drawn((self.rows, self.inner)) * (1 + np.arange(self.rows)[:, np.newaxis])).astype(
            self.dtype.numpy
        )

    def graph(self) -> Graph:
        """As it comes to fusion."""
        graph, y = Graph(), self._weight(2)[:, 0]
        x = graph.add_input("x", TensorType(self.dtype, (self.rows, self.inner)))
        if self.kind != "plain":
            gain = constant(graph, np.ascontiguousarray(y)) if self.has_gain else None
            x = graph.append(native("rms_norm"), [x, gain], {"axis": -1, "epsilon": EPSILON}).output
        value = graph.append(native("matmul"), [x, constant(graph, self._weight(1))]).output
        if self.kind == "paired":
            up = graph.append(native("matmul"), [x, constant(graph, self._weight(5))]).output
            value = graph.append(native("mul"), [graph.append(native("silu"), [value]).output, up]).output
        else:
            value = graph.append(native("add"), [graph.add_input("r", value.type), value]).output
        graph.set_outputs([value])
        return graph

    def _weight(self, seed: int) -> Array:
        return drawn((self.inner, self.columns), self.dtype, seed)

    @property
    def inputs(self) -> dict[str, Array]:
        residual = {"r": drawn((self.rows, self.columns), self.dtype, 3)} if self.kind != "paired" else {}
        return {"x": self.x, **residual}

    def setting(self) -> Setting:
        """Its step with memory."""
        graph = self.graph()
        fuse = Fuse(normed_rows=4, normed_half_rows=16, paired_matmuls=True)
        Pipeline(((fuse,),)).run(graph, check="none")
        chip = Chip(multiprocessors=self.blocks, shared_bytes=self.shared)
        return setting(graph, self.inputs, chip=chip)

    def candidates(self, made: Setting) -> list[Candidate]:
        """Those of this kernel."""
        return [each for each in lower_matmul(made.task) if "rows-" in each.name]

    def exact(self) -> tuple[Array, Array]:
        """The result in f64, and how far from it one may be: rounded where it is written, and behind the norm."""
        x = self.x.astype(np.float64)
        if self.kind != "plain":
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
            x = x * self._weight(2)[:, 0].astype(np.float64) if self.has_gain else x
        unit = {F16: 2.0**-11, BF16: 2.0**-8}[self.dtype]
        relative = 2.0**-18 + (unit / 2 if self.kind != "plain" else 0)
        first, size = self._sums(x, 1)
        if self.kind == "paired":
            second, other = self._sums(x, 5)
            silu = first / (1 + np.exp(-first))
            value, error = silu * second, relative * (1.2 * size * np.abs(second) + other * np.abs(silu))
        else:
            value, error = first + self.inputs["r"].astype(np.float64), relative * size
        return value, np.asarray(unit * np.abs(value) + error + 1e-6)

    def _sums(self, x: Array, seed: int) -> tuple[Array, Array]:
        weight = self._weight(seed).astype(np.float64)
        return x @ weight, np.abs(x) @ np.abs(weight)


CASES = (
    Matmul(BF16, 5, 512, 40),
    Matmul(BF16, 8, 256, 16, blocks=8),
    Matmul(F16, 16, 1096, 37),
    Matmul(BF16, 16, 4360, 24, blocks=4),
    Matmul(F16, 2, 72, 9),
    Matmul(BF16, 15, 8, 3),
    Matmul(BF16, 8, 512, 48, "normed"),
    Matmul(BF16, 11, 520, 33, "normed", has_gain=False),
    Matmul(F16, 9, 2056, 21, "normed", blocks=4),
    Matmul(F16, 14, 1024, 16, "normed", scale=600),
    Matmul(F16, 6, 512, 16, "normed", scale=1e-6),
    Matmul(BF16, 8, 520, 21, "paired"),
    Matmul(F16, 16, 1024, 40, "paired", blocks=4),
    Matmul(BF16, 12, 1032, 24, shared=SMALL),
    Matmul(BF16, 12, 1032, 24, "normed", shared=SMALL),
    Matmul(F16, 12, 2048, 24, "paired", shared=SMALL),
)
"""All prologues, row counts beside multiples of 8, sizes that end within a piece of work, rows out of f16's range."""


@needs_compiler
@pytest.mark.parametrize("matmul", CASES, ids=str)
def test_results_are_those_of_f64(matmul: Matmul, tmp_path: Path) -> None:
    made, (value, allowed) = matmul.setting(), matmul.exact()
    found = matmul.candidates(made)
    assert found
    assert all(each.name.endswith("-again") == (matmul.shared == SMALL) for each in found)
    for candidate in found:
        (result,) = made.found(emulated(candidate), tmp_path)
        assert (np.abs(result.astype(np.float64) - value) <= allowed).all(), candidate.name


def test_blocks_share_the_inner_axis_where_they_form_clusters() -> None:
    matmul = Matmul(BF16, 16, 8192, 2048, blocks=132)
    made = matmul.setting()
    clusters = {each.launches[0].kernel.cluster[0] for each in matmul.candidates(made)}  # type: ignore[union-attr]
    assert clusters >= {4, 8}
    older = replace(made.task, chip=Chip(80, 108, 163 << 10))
    (again,) = (each for each in lower_matmul(older) if "rows-" in each.name)
    assert again.name.endswith("-again")


@needs_compiler
@pytest.mark.parametrize("kind", ["plain", "normed"])
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_numbers_that_are_none_stay_in_their_rows_and_columns(poison: float, kind: str, tmp_path: Path) -> None:
    """Beside a ragged end nothing of a weight or a row is multiplied by a zero that is not there."""
    rows, inner, columns = 9, 520, 13
    graph, x = Graph(), drawn((rows, inner), BF16)
    weight = drawn((inner, columns), BF16, 1)
    weight[-1, -1] = poison
    x[:, -1] = np.abs(x[:, -1]) + 1
    x[-1, 0] = poison
    value = graph.add_input("x", TensorType(BF16, x.shape))
    if kind == "normed":
        value = graph.append(native("rms_norm"), [value, None], {"axis": -1, "epsilon": EPSILON}).output
    graph.set_outputs([graph.append(native("matmul"), [value, constant(graph, weight)]).output])
    Pipeline(((Fuse(normed_rows=4, normed_half_rows=16),),)).run(graph, check="none")
    made = setting(graph, {"x": x}, chip=Chip(multiprocessors=4))
    found = [each for each in lower_matmul(made.task) if "rows-" in each.name]
    assert len(found) > 1
    for candidate in found:
        ((result,), (expected,)) = made.found(emulated(candidate), tmp_path), made.expected
        wide, told = result.astype(np.float64), expected.astype(np.float64)
        assert np.array_equal(np.isfinite(wide), np.isfinite(told)), candidate.name
        is_one = np.isinf(told)
        assert np.array_equal(wide[is_one], told[is_one])
        np.testing.assert_allclose(wide[:-1, :-1], told[:-1, :-1], rtol=2e-2, atol=0.4)


def test_kernels_compile() -> None:
    found = [candidate for matmul in CASES for candidate in matmul.candidates(matmul.setting())]
    assert not compile_problems(kernels_of(found))
    older = [matmul for matmul in CASES if matmul.dtype is BF16]
    tasks = [replace(matmul.setting().task, chip=Chip(80, 108, 163 << 10)) for matmul in older]
    candidates = [each for task in tasks for each in lower_matmul(task) if "rows-" in each.name]
    kernels = kernels_of(candidates)
    assert all(kernel.cluster == (1, 1, 1) for kernel in kernels)
    assert not compile_problems(kernels, [80])


def test_a_launch_reads_every_weight_once() -> None:
    matmul = Matmul(BF16, 8, 512, 64, "paired")
    (launch,) = matmul.candidates(matmul.setting())[0].launches
    assert isinstance(launch, KernelLaunch)
    assert launch.nbytes == 2 * (8 * 512 + 512 + 2 * 512 * 64 + 8 * 64)
