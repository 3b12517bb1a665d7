"""Matmuls of few rows with a weight, whose rows the kernel norms itself; run on the host."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, Chip, KernelLaunch
from capgraph.executors.cuda.kernels.gemm.few_rows.row_gemm import MOST_ROWS
from capgraph.executors.cuda.kernels.gemm.gemv import MAX_ROWS
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.executors.cuda.programs import NORMED_HALF_ROWS, NORMED_ROWS
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from tests.executors.cuda.coded_cases import CASES, CodedMatmul
from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.emulator import HAS_COMPILER, kernels_of
from tests.executors.cuda.matmul_cases import drawn
from tests.executors.cuda.solving import Setting, constant, setting

_LOAD = re.compile(r'asm volatile\("ld\.global\S*\.v4.*?: "l"\(at\)\);', re.DOTALL)
_SINGLE = re.compile(r'asm volatile\("ld\.global\.\w+ %0.*? : "=\w"\((\w)[.\w]*\) : "l"\(at\)\);')


def emulated(candidate: Candidate) -> Candidate:
    """The kernel with its loads as the host does them."""
    (launch,) = candidate.launches
    assert isinstance(launch, KernelLaunch)
    text, count = _LOAD.subn("memcpy(&p, at, 16);", launch.kernel.text)
    assert count == 1
    text = _SINGLE.sub(r"memcpy(&\1, at, sizeof *at);", text)
    text = text.replace(")\nNAME(", ") NAME(")
    return replace(candidate, launches=(replace(launch, kernel=replace(launch.kernel, body=text)),))


def normed(
    rows: int,
    inner: int,
    columns: int,
    dtype: DType,
    *,
    has_gain: bool = True,
    gated: bool = False,
    chip: Chip | None = None,
) -> Setting:
    """x and a gain to rms_norm(x) @ W, gated by another tensor."""
    graph, inputs = Graph(), {"x": 3 * drawn((1, rows, inner), dtype)}
    x = graph.add_input("x", TensorType(dtype, (1, rows, inner)))
    gain = constant(graph, drawn((inner,), dtype, 2)) if has_gain else None
    y = graph.append(native("rms_norm"), [x, gain], {"axis": -1, "epsilon": 0.25}).output
    weight = constant(graph, drawn((inner, columns), dtype, 1))
    value = graph.append(native("matmul"), [y, weight]).output
    if gated:
        inputs["gate"] = drawn((1, rows, columns), dtype, 3)
        value = graph.append(native("mul"), [graph.add_input("gate", value.type), value]).output
    graph.set_outputs([value])
    Pipeline(((Fuse(normed_rows=8, normed_half_rows=64),),)).run(graph, check="none")
    return setting(graph, inputs, chip=chip or Chip(multiprocessors=1))


def paired(
    rows: int, inner: int, columns: int, dtype: DType, *, norm: str = "rms_norm", chip: Chip | None = None
) -> Setting:
    """silu(norm(x) @ gate) * (norm(x) @ up), with a bias behind each matmul."""
    graph, inputs = Graph(), {"x": 3 * drawn((1, rows, inner), dtype)}
    x = graph.add_input("x", TensorType(dtype, (1, rows, inner)))
    affine = [constant(graph, drawn((inner,), dtype, seed)) for seed in ((2,) if norm == "rms_norm" else (2, 7))]
    y = graph.append(native(norm), [x, *affine], {"axis": -1, "epsilon": 0.25})
    gate, up = (
        graph.append(native("add"), [matmul.output, constant(graph, drawn((columns,), dtype, seed))]).output
        for seed in (3, 4)
        for matmul in [
            graph.append(native("matmul"), [y.output, constant(graph, drawn((inner, columns), dtype, seed))])
        ]
    )
    gate = graph.append(native("silu"), [gate]).output
    graph.set_outputs([graph.append(native("mul"), [gate, up]).output])
    Pipeline(((Fuse(normed_rows=8, normed_half_rows=64, paired_matmuls=True),),)).run(graph, check="none")
    return setting(graph, inputs, chip=chip or Chip(multiprocessors=1))


def test_fusion_norms_no_more_rows_than_the_kernel_has() -> None:
    assert min(MAX_ROWS.values()) >= NORMED_ROWS
    assert MOST_ROWS >= NORMED_HALF_ROWS


def only(made: Setting) -> Candidate:
    found, *others = lower_matmul(made.task)
    assert found.name.startswith("normed-columns")
    assert all(each.name.startswith(("normed-columns", "normed-rows")) for each in others)
    return found


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")
@pytest.mark.parametrize("has_gain", [False, True])
@pytest.mark.parametrize(("rows", "inner", "gated"), [(1, 512, False), (1, 520, True), (3, 4360, True)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_rows_are_normed_in_the_kernel(
    dtype: DType, rows: int, inner: int, gated: bool, has_gain: bool, tmp_path: Path
) -> None:
    made = normed(rows, inner, 32, dtype, has_gain=has_gain, gated=gated)
    (found,), (expected,) = made.found(emulated(only(made)), tmp_path), made.expected
    wide, told = found.astype(np.float64), expected.astype(np.float64)
    tolerance = {DType.F32: 1e-5, DType.F16: 3e-3, DType.BF16: 2e-2}[dtype]
    assert np.linalg.norm(wide - told) <= tolerance * np.linalg.norm(told)


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 512, 32), (2, 520, 13)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_two_matmuls_of_the_same_rows_run_as_one(
    dtype: DType, rows: int, inner: int, columns: int, norm: str, tmp_path: Path
) -> None:
    made = paired(rows, inner, columns, dtype, norm=norm)
    candidates = [each for each in lower_matmul(made.task) if each.name.startswith("paired")]
    assert candidates
    for candidate in candidates:
        (found,), (expected,) = made.found(emulated(candidate), tmp_path), made.expected
        wide, told = found.astype(np.float64), expected.astype(np.float64)
        tolerance = {DType.F32: 1e-5, DType.F16: 3e-3, DType.BF16: 2e-2}[dtype]
        assert np.linalg.norm(wide - told) <= tolerance * np.linalg.norm(told)


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")
def test_an_addend_times_0_is_not_read(tmp_path: Path) -> None:
    graph, x = Graph(), drawn((2, 512))
    weight, addend = constant(graph, drawn((512, 32), seed=1)), constant(graph, np.full(32, np.nan, np.float32))
    operands = [graph.add_input("x", TensorType(DType.F32, x.shape)), weight, addend]
    graph.set_outputs([graph.append(native("gemm"), operands, {"beta": 0.0}).output])
    made = setting(graph, {"x": x}, chip=Chip(multiprocessors=1))
    (candidate,) = (each for each in lower_matmul(made.task) if each.name.startswith("columns-8"))
    (found,), (expected,) = made.found(emulated(candidate), tmp_path), made.expected
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 264, 13), (2, 72, 37), (4, 2056, 9)])
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_sizes_that_end_within_a_piece_of_work(
    dtype: DType, rows: int, inner: int, columns: int, tmp_path: Path
) -> None:
    """The last column of the weight holds no numbers, and only its own results do not."""
    graph, x, weight = Graph(), drawn((rows, inner), dtype), drawn((inner, columns), dtype, 1)
    weight[:, -1] = np.nan
    operands = [graph.add_input("x", TensorType(dtype, x.shape)), constant(graph, weight)]
    graph.set_outputs([graph.append(native("matmul"), operands).output])
    made = setting(graph, {"x": x}, chip=Chip(multiprocessors=1))
    for candidate in (each for each in lower_matmul(made.task) if each.name.startswith("columns")):
        (found,), (expected,) = made.found(emulated(candidate), tmp_path), made.expected
        assert np.isnan(found[:, -1].astype(np.float32)).all()
        tolerance = 1e-4 if dtype is DType.F32 else 2e-2
        np.testing.assert_allclose(
            found[:, :-1].astype(np.float64), expected[:, :-1].astype(np.float64), rtol=tolerance, atol=20 * tolerance
        )


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")
@pytest.mark.parametrize("matmul", CASES, ids=str)
def test_weights_in_codes(matmul: CodedMatmul, tmp_path: Path) -> None:
    made, (value, allowed) = matmul.setting(), matmul.exact()
    candidates = list(lower_matmul(made.task))
    assert candidates
    for candidate in candidates:
        (found,) = made.found(emulated(candidate), tmp_path)
        assert (np.abs(found.astype(np.float64) - value) <= allowed).all(), candidate.name


def test_kernels_of_weights_in_codes_compile() -> None:
    candidates = (candidate for matmul in CASES for candidate in lower_matmul(matmul.setting().task))
    assert not compile_problems(kernels_of(candidates))


def test_kernels_compile() -> None:
    made = [
        normed(1, 512, 32, dtype, has_gain=has_gain)
        for dtype in (DType.F32, DType.F16, DType.BF16)
        for has_gain in (False, True)
    ]
    assert not compile_problems(kernels_of(map(only, made)))
