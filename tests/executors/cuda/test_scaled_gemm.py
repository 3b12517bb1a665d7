"""Matmuls of fp8 and i8 with scales: what the library is asked, what is done behind it, and what is done otherwise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, Chip, KernelLaunch, LibraryCall, Packed
from capgraph.executors.cuda.kernels.gemm.matmul import lower_matmul
from capgraph.executors.cuda.libraries.problems import MatmulProblem
from capgraph.executors.cuda.lower.lowering import Backend, LoweredStep, task_before
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array, Constant
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.plan import Step, StepKind
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.optimization import pipeline_for
from hypothesis import given
from hypothesis import strategies as st

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.fake import fake_device
from tests.executors.cuda.scaled_cases import E4M3, E5M2, HOPPER, I8, Matmul, allowed, codes, exact
from tests.executors.cuda.solving import Layout, Setting, constant, setting


def candidates(matmul: Matmul) -> tuple[Setting, list[Candidate]]:
    found = matmul.setting()
    return found, list(lower_matmul(found.task))


def call_of(candidate: Candidate) -> LibraryCall:
    (call,) = (launch for launch in candidate.launches if isinstance(launch, LibraryCall))
    assert isinstance(call.problem, MatmulProblem)
    return call


def kinds(candidate: Candidate) -> list[str]:
    return ["call" if isinstance(launch, LibraryCall) else "kernel" for launch in candidate.launches]


def error_of(setting: Setting, candidate: Candidate, folder: Path) -> float:
    """The greatest difference to the meaning, by the greatest element."""
    (found,), (expected,) = setting.found(candidate, folder), setting.expected
    expected = expected.astype(np.float64)
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())


TOLERANCES = {DType.F16: 2e-3, DType.BF16: 1.6e-2, DType.F32: 1e-5}
"""Two to four roundings of the result's dtype: operands, the sum, and what follows."""


# ---- fp8


@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)])
@pytest.mark.parametrize("to", [DType.F16, DType.BF16])
@pytest.mark.parametrize("epilogue", [(), ("bias",), ("bias", "relu"), ("residual",), ("bias", "gelu-tanh")])
def test_fp8_is_one_call_with_what_follows(
    dtypes: tuple[DType, DType], to: DType, epilogue: tuple[str, ...], tmp_path: Path
) -> None:
    setting, found = candidates(Matmul(dtypes=dtypes, to=to, epilogue=epilogue))
    first = found[0]
    assert first.name == "fp8"
    assert kinds(first) == ["call"]
    assert not first.remark
    assert call_of(first).problem.scaled
    assert error_of(setting, first, tmp_path) < TOLERANCES[to]


def test_scales_are_read_in_device_memory() -> None:
    _, found = candidates(Matmul())
    arguments = call_of(found[0]).arguments
    assert isinstance(arguments["a_scale"], BufferPlace)
    assert isinstance(arguments["b_scale"], BufferPlace)
    assert arguments["a_scale"] != arguments["b_scale"]
    weight = arguments["b"]
    assert isinstance(weight, Packed)
    assert weight.packing == "transposed"


def test_scales_that_are_constants_are_packed_in_f32(tmp_path: Path) -> None:
    setting, found = candidates(Matmul(has_constant_scales=True, scale_dtype=DType.F16))
    arguments = call_of(found[0]).arguments
    assert isinstance(arguments["a_scale"], Packed)
    assert kinds(found[0]) == ["call"]
    assert error_of(setting, found[0], tmp_path) < 2e-3


def test_scales_of_another_dtype_are_brought_to_f32_first(tmp_path: Path) -> None:
    setting, found = candidates(Matmul(scale_dtype=DType.BF16, to=DType.BF16))
    assert kinds(found[0]) == ["kernel", "kernel", "call"]
    assert error_of(setting, found[0], tmp_path) < 1.6e-2


@pytest.mark.parametrize("op", ["matmul", "gemm"])
def test_weights_that_are_turned_lie_as_tensor_cores_want_them(op: str, tmp_path: Path) -> None:
    setting, found = candidates(Matmul(op=op, is_turned=True, has_constant_weight=False))
    assert kinds(found[0]) == ["call"]
    assert error_of(setting, found[0], tmp_path) < 2e-3


def test_a_weight_that_changes_is_laid_out_first(tmp_path: Path) -> None:
    setting, found = candidates(Matmul(has_constant_weight=False))
    assert kinds(found[0]) == ["kernel", "call"]
    assert error_of(setting, found[0], tmp_path) < 2e-3


def every_other(array: Array) -> Array:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def off_by_four(array: Array) -> Array:
    """Rows that begin four elements into memory."""
    wide = np.zeros((*array.shape[:-1], array.shape[-1] + 16), array.dtype)
    wide[..., 4 : 4 + array.shape[-1]] = array
    return wide[..., 4 : 4 + array.shape[-1]]


@pytest.mark.parametrize("layout", [every_other, off_by_four])
def test_rows_that_tensor_cores_cannot_read_are_copied(layout: Layout, tmp_path: Path) -> None:
    setting, found = candidates(Matmul(rows=(2, 5), layouts=(("a", layout),)))
    assert kinds(found[0]) == ["kernel", "call"]
    assert error_of(setting, found[0], tmp_path) < 2e-3


@pytest.mark.parametrize("epilogue", [("gelu",), ("relu", "bias"), ("bias", "silu")])
def test_the_rest_is_a_kernel_behind_the_call(epilogue: tuple[str, ...], tmp_path: Path) -> None:
    setting, found = candidates(Matmul(epilogue=epilogue))
    assert kinds(found[0]) == ["call", "kernel"]
    for each in found:
        assert error_of(setting, each, tmp_path) < 3e-3, each.name


def test_epilogues_that_a_library_refuses_have_candidates_without() -> None:
    _, found = candidates(Matmul(epilogue=("bias", "relu")))
    fp8 = [each for each in found if each.name.startswith("fp8")]
    assert [each.name.partition("+")[0] for each in fp8] == ["fp8", "fp8-linear", "fp8-apart"]
    problems = [call_of(each).problem for each in fp8]
    assert [(p.bias, p.activation) for p in problems] == [(DType.F16, "relu"), (DType.F16, ""), (None, "")]
    assert len({each.name for each in found}) == len(found)


@pytest.mark.parametrize("op", ["matmul", "gemm"])
def test_a_bias_in_f32_is_left_to_a_kernel(op: str, tmp_path: Path) -> None:
    setting, found = candidates(Matmul(to=DType.F32, tf32=True, epilogue=() if op == "gemm" else ("bias",), op=op))
    assert found[0].name.startswith("fp8")
    assert call_of(found[0]).problem.bias is None
    assert kinds(found[0]) == ["call", "kernel"]
    assert error_of(setting, found[0], tmp_path) < 1e-5


@pytest.mark.parametrize(("op", "epilogue"), [("matmul", []), ("matmul", ["bias", "relu"]), ("gemm", [])])
def test_a_sum_in_f32_that_is_rounded_right_away_is_written_as_a_half(
    op: str, epilogue: list[str], tmp_path: Path
) -> None:
    graph = Matmul(to=DType.F32, op=op).graph()
    value = graph.append(native("cast"), [graph.outputs[0]], {"to": DType.BF16}).output
    if "bias" in epilogue:
        bias = constant(graph, np.linspace(-3, 3, 48).astype(DType.BF16.numpy))
        value = graph.append(native("relu"), [graph.append(native("add"), [value, bias]).output]).output
    graph.set_outputs([value])
    contents = Matmul(to=DType.F32, op=op).contents
    made = setting(graph, {each.name: contents[each.name] for each in graph.inputs})
    first = next(iter(lower_matmul(made.task)))
    assert kinds(first) == (["call"] if op == "matmul" else ["call", "kernel"])
    assert call_of(first).problem.d.dtype is (DType.BF16 if op == "matmul" else DType.F32)
    assert error_of(made, first, tmp_path) < 1.6e-2


_FITTING = st.sampled_from([16, 32, 80])


@given(st.data())
def test_any_matmul_of_fp8_means_what_its_nodes_mean(data: st.DataObject) -> None:
    epilogues = st.lists(st.sampled_from(["bias", "residual", "relu", "gelu-tanh"]), max_size=3, unique=True)
    matmul = Matmul(
        rows=tuple(data.draw(st.lists(st.integers(1, 4), max_size=2))),
        inner=data.draw(_FITTING),
        columns=data.draw(_FITTING),
        dtypes=data.draw(st.sampled_from([(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)])),
        to=data.draw(st.sampled_from([DType.F16, DType.BF16, DType.F32])),
        epilogue=tuple(data.draw(epilogues)),
        has_constant_scales=data.draw(st.booleans()),
        is_turned=data.draw(st.booleans()),
        tf32=True,
    )
    setting, found = candidates(matmul)
    assert any(each.name.startswith("fp8") for each in found)
    for each in found:
        if all(isinstance(launch, LibraryCall) for launch in each.launches):
            assert error_of(setting, each, Path()) < 2 * TOLERANCES[matmul.to], each.name


# ---- i8


@pytest.mark.parametrize("to", [DType.F16, DType.F32])
@pytest.mark.parametrize("epilogue", [(), ("bias", "relu"), ("residual", "silu")])
@pytest.mark.parametrize("op", ["matmul", "gemm"])
def test_bytes_are_summed_exactly_and_scaled_behind(
    to: DType, epilogue: tuple[str, ...], op: str, tmp_path: Path
) -> None:
    setting, found = candidates(Matmul(dtypes=(I8, I8), to=to, epilogue=epilogue, op=op))
    first = found[0]
    assert first.name.startswith("bytes")
    assert kinds(first) == ["call", "kernel"]
    assert call_of(first).problem.d.dtype is DType.I32
    assert error_of(setting, first, tmp_path) < TOLERANCES[to]


@pytest.mark.parametrize("dtypes", [(I8, I8), (E4M3, E5M2)])
@pytest.mark.parametrize("by", ["row", "column", "both"])
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("columns", [16, 48])
def test_scales_of_rows_and_columns_are_applied_behind_the_sum(
    dtypes: tuple[DType, DType], by: str, is_turned: bool, columns: int, tmp_path: Path
) -> None:
    matmul = Matmul(
        columns=columns,
        dtypes=dtypes,
        by_row=by != "column",
        by_column=by != "row",
        is_turned=is_turned,
        epilogue=("bias", "relu"),
        has_constant_scales=columns == 16,
    )
    setting, found = candidates(matmul)
    assert found[0].name.startswith("bytes" if dtypes[0] is I8 else "fp8-unscaled")
    assert kinds(found[0]) == ["call", "kernel"]
    for each in found:
        if each.name in (found[0].name, "dequantized+cublaslt"):
            assert error_of(setting, each, tmp_path) < 2e-3, each.name


def test_bytes_need_no_new_chip() -> None:
    _, found = candidates(Matmul(dtypes=(I8, I8), chip=Chip(80)))
    assert found[0].name.startswith("bytes")
    assert not found[0].remark


# ---- otherwise


@pytest.mark.parametrize(
    ("matmul", "words"),
    [
        (Matmul(chip=Chip(80)), "compute capability 8.9, this is 8.0"),
        (Matmul(dtypes=(E5M2, E5M2)), "two operands in f8e5m2"),
        (Matmul(to=DType.F32), "from level=3 on"),
        (Matmul(inner=24), "an inner axis of 24 and 48 columns"),
        (Matmul(columns=40), "an inner axis of 32 and 40 columns"),
        (Matmul(dtypes=(I8, I8), columns=40), "an inner axis of 32 and 40 columns"),
        (Matmul(is_turned=True, columns=7, epilogue=("bias", "relu")), "7 columns"),
    ],
)
def test_what_the_library_cannot_do_is_dequantized_first_and_says_why(
    matmul: Matmul, words: str, tmp_path: Path
) -> None:
    setting, found = candidates(matmul)
    assert found
    assert all(each.name.startswith("dequantized+") for each in found)
    assert all(words in each.remark for each in found)
    strided = [each for each in found if "cublaslt" in each.name]
    assert error_of(setting, strided[0], tmp_path) < TOLERANCES[matmul.to]


def test_without_scratch_memory_there_is_still_the_call_that_needs_none() -> None:
    found = Matmul(epilogue=("bias",)).setting()
    names = [each.name for each in lower_matmul(replace(found.task, scratch=None, scratch_bytes=0))]
    assert "fp8" in names
    assert not any(name.startswith(("dequantized", "fp8-apart")) for name in names)


def test_too_little_scratch_memory_for_the_librarys_sum_is_told() -> None:
    found = Matmul((64,), 16, 1024, (I8, I8)).setting()  # 256 KiB of sums, 34 KiB of operands
    made = list(lower_matmul(replace(found.task, scratch_bytes=100_000)))
    assert made
    assert all(each.name.startswith("dequantized+") for each in made)
    assert all("no scratch memory is left" in each.remark for each in made)


@pytest.mark.parametrize("chip", [Chip(80, 108, 163 << 10), Chip(90), Chip(100, 148)], ids=["sm_80", "sm_90", "sm_100"])
def test_kernels_around_the_matmuls_compile(chip: Chip) -> None:
    matmuls: list[Matmul] = [
        Matmul(dtypes=dtypes, to=to, epilogue=("bias", "silu"), has_constant_weight=False, chip=chip, scale_dtype=to)
        for dtypes in ((E4M3, E5M2), (I8, I8))
        for to in (DType.F16, DType.BF16, DType.F32)
    ]
    launches: list[Any] = [
        launch for each in matmuls for candidate in candidates(each)[1] for launch in candidate.launches
    ]
    kernels = [launch.kernel for launch in launches if isinstance(launch, KernelLaunch)]
    assert len(kernels) > 12
    assert compile_problems(kernels, [chip.arch]) == []


def test_one_factor_that_is_dequantized_in_a_region_alone_is_none_of_these() -> None:
    b = Builder("body")
    codes_, scale, x = (b.input(name, ty) for name, ty in (("a", "i8[16, 16]"), ("s", "f32[]"), ("x", "f32[16, 16]")))
    body = b.finish({"y": b.op("matmul", b.op("dequantize_linear", codes_, scale, None, to="f32"), x)})
    graph = Graph()
    node = graph.append(native("fused"), [graph.add_input(v.name, v.type) for v in body.inputs], {"body": body})
    assert list(lower_matmul(task_before(node, {}, HOPPER))) == []


# ---- whole graphs


LAYERS = """
    graph @main(%x: f16[B, 32], %s: f32[], %b: f16[64]) {
      %w: f8e4m3fn[64, 32] = constant() {value = dense<f8e4m3fn[64, 32], #ab>}
      %v: f8e4m3fn[64, 48] = constant() {value = dense<f8e4m3fn[64, 48], #cd>}
      %q: f8e4m3fn[B, 32] = quantize_linear(%x, %s, _) {to = f8e4m3fn}
      %dx: f16[B, 32] = dequantize_linear(%q, %s, _) {to = f16}
      %dw: f16[64, 32] = dequantize_linear(%w, %s, _) {to = f16}
      %t: f16[32, 64] = transpose(%dw) {perm = [1, 0]}
      %p: f16[B, 64] = matmul(%dx, %t)
      %y: f16[B, 64] = add(%p, %b)
      %h: f16[B, 64] = relu(%y)
      %r: f8e4m3fn[B, 64] = quantize_linear(%h, %s, _) {to = f8e4m3fn}
      %dh: f16[B, 64] = dequantize_linear(%r, %s, _) {to = f16}
      %dv: f16[64, 48] = dequantize_linear(%v, %s, _) {to = f16}
      %o: f16[B, 48] = matmul(%dh, %dv)
      return %o
    }
    """


def layers() -> Graph:
    weights = {"ab": Constant(codes((64, 32), E4M3, 1)), "cd": Constant(codes((64, 48), E4M3, 2))}
    graph = parse(LAYERS, constants=weights)
    pipeline_for(2, "cuda").run(graph)
    return graph


def lowered_layers(chip: Chip) -> list[Candidate]:
    """The first candidate of each step."""
    backend = Backend(chip, frozenset({"cublaslt"}))
    planner = cuda_planning(backend, ReplayOptions())
    steps = backend.lower(planner.of(layers())({"B": 3}, CaptureMode.FULL))
    return [each.candidates[0] for each in steps if each.candidates]


def test_layers_of_quantized_numbers_are_quantized_and_multiplied_and_nothing_else() -> None:
    assert [each.name for each in lowered_layers(HOPPER)] == ["pointwise", "fp8", "pointwise", "fp8"]


def test_an_older_chip_says_what_it_misses(tmp_path: Path) -> None:
    chosen = lowered_layers(Chip(80))
    missed = [each for each in chosen if each.remark]
    assert len(missed) == 2
    device = fake_device(tmp_path)
    step = Step(0, next(iter(layers().nodes)), StepKind.COMPUTE)
    device.choose([LoweredStep(step, (replace(each, launches=()),)) for each in missed])
    assert [line for line in device.remarks() if line.startswith("2 steps: dequantized before a matmul: fp8")]


# ---- what the tests on a GPU allow


@pytest.mark.parametrize(
    "matmul",
    [
        Matmul(epilogue=("bias", "gelu-tanh")),
        Matmul(dtypes=(E4M3, E5M2), to=DType.BF16, epilogue=("residual", "relu")),
        Matmul(to=DType.F32, tf32=True, epilogue=("bias", "silu")),
        Matmul(dtypes=(I8, I8), to=DType.F32, epilogue=("bias", "relu")),
        Matmul(dtypes=(I8, I8), to=DType.F16, op="gemm"),
        Matmul(inner=24, epilogue=("bias",)),
        Matmul(dtypes=(I8, I8), by_row=True, by_column=True, epilogue=("silu",)),
    ],
)
def test_every_candidate_is_as_close_to_f64_as_its_roundings_allow(matmul: Matmul, tmp_path: Path) -> None:
    setting, found = candidates(matmul)
    right = exact(matmul)
    for each in found:
        if "split" in each.name or "staged" in each.name or "columns" in each.name:
            continue  # their instructions are not emulated
        (result,) = setting.found(each, tmp_path)
        error = np.abs(result.astype(np.float64) - right.value) / allowed(matmul, right, each.name)
        assert error.max() <= 1, each.name


def test_what_is_allowed_shows_a_scale_that_is_missing() -> None:
    matmul = Matmul((16,), 256, 64)
    right = exact(matmul)
    assert (np.abs(right.value / 0.375 - right.value) > allowed(matmul, right, "fp8")).mean() > 0.9
