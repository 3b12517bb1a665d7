"""Rows: which thread group works on one, what lies in registers, when rows are split."""

from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, KernelLaunch
from capgraph.executors.cuda.kernel_ir.row_kernel import share_of
from capgraph.executors.cuda.kernels import rows
from capgraph.ir.builder import Builder
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from hypothesis import given
from hypothesis import strategies as st

from tests.executors.cuda.codegen.cases import Case, Drawn, fused, made
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import generated, prepared
from tests.executors.cuda.emulator import HAS_COMPILER


def candidates(op: str, shape: tuple[int, ...], dtype: str = "f16", **attrs) -> list[Candidate]:
    x = np.zeros(shape, DType(dtype).numpy)
    case = prepared(made(op, lambda b, x: b.op(op, x, **attrs), x))
    assert case is not None
    return generated(case.lowered[-1])


def names(op: str, shape: tuple[int, ...], dtype: str = "f16", **attrs) -> list[str]:
    return [candidate.name for candidate in candidates(op, shape, dtype, **attrs)]


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((65536, 8), "lanes1"),
        ((65536, 64), "lanes8"),
        ((65536, 256), "lanes32"),
        ((128, 768), "block96"),
        ((8192, 4096), "block256"),
    ],
)
def test_groups_grow_with_the_row(shape, first):
    assert names("softmax", shape, axis=-1)[0] == first


def test_rows_beyond_registers_are_read_once_for_each_pass():
    (candidate, *_) = candidates("softmax", (1000, 200_000), axis=-1)
    assert candidate.name == "block1024-passes"
    (launch,) = candidate.launches
    assert isinstance(launch, KernelLaunch)
    assert launch.kernel.text.count("for (int first = t;") == 3


def test_few_long_rows_are_split_over_the_chip():
    (candidate, *_) = candidates("softmax", (2, 200_000), axis=-1)
    assert candidate.name.startswith("split")
    assert len(candidate.launches) == 3
    assert candidate.scratch_bytes > 0


def test_rows_across_memory_are_columns_of_threads():
    assert names("reduce_sum", (64, 50, 4096), axes=(1,))[0].startswith("columns")
    assert names("reduce_sum", (64, 50, 4096), axes=(1, 2))[0].endswith("block512")


def test_a_norm_of_a_sum_is_one_kernel_with_both_results():
    d = Drawn()

    def block(b: Builder, x, y, s, c):
        total = b.op("add", x, y)
        return [total, b.op("layer_norm", total, s, c, axis=-1)]

    rows = [d.array("f16", 128, 768), d.array("f16", 128, 768), d.array("f16", 768), d.array("f16", 768)]
    case = prepared(fused(made("block", block, *rows)))
    assert case is not None
    (lowered,) = [lowered for lowered in case.lowered if lowered.step.node.op.name == "fused"]
    (launch,) = generated(lowered)[0].launches
    assert isinstance(launch, KernelLaunch)
    assert launch.nbytes == 2 * (4 * 128 * 768 + 2 * 768)
    assert launch.kernel.text.count("block_reduce<sum") == 2
    assert "pack<f16, 8>" in launch.kernel.text


def test_work_that_folds_other_axes_runs_node_by_node():
    d = Drawn()

    def two_ways(b: Builder, x):
        return b.op("add", b.op("softmax", x, axis=1), b.op("reduce_sum", x, axes=(1, 2)))

    case = prepared(fused(made("two ways", two_ways, d.array("f32", 3, 4, 5))))
    assert case is not None
    assert [candidate.name for each in case.lowered for candidate in generated(each)] == ["stepwise"]


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_a_value_may_be_several_results_of_a_region(tmp_path):
    graph = parse("""
        graph @main(%x: i8[2, 7]) {
          %a: i8[2, 7], %b: i8[2, 7] = fused(%x) {body = @kernel}
          return %a, %b
        }

        graph @kernel(%x: i8[2, 7]) {
          %y: i8[2, 7] = trilu(%x) {upper = false, diagonal = 0}
          return %y, %y as y_1
        }""")
    case = Case("twice", graph, {}, [np.arange(14, dtype=np.int8).reshape(2, 7)])
    assert emulated_problems([case], tmp_path) == []


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernel")
@pytest.mark.parametrize("p", [1, 2])
def test_lp_norm_of_what_has_norm_zero_is_a_positive_zero(p, tmp_path):
    x = np.array([[-0.0, 0.0, -0.0], [-3, 0, 4]], np.float32)
    case = made("inverses", lambda b, x: b.op("reciprocal", b.op("lp_norm", x, axis=1, p=p)), x)
    assert emulated_problems([case], tmp_path) == []


def test_a_sum_of_zero_elements_is_folded():
    assert candidates("reduce_sum", (3, 0), axes=(1,)) == []


def test_columns_are_read_in_vectors_where_they_lie_side_by_side():
    (first, *_) = candidates("reduce_sum", (8192, 4096), "f32", axes=(0,))
    assert "columns16x2" in first.name
    launch = first.launches[0]
    assert isinstance(launch, KernelLaunch)
    assert "*(const pack<float, 2>*)" in launch.kernel.text
    assert "x4of16" in names("reduce_sum", (65536, 64), axes=(0,))[0]
    assert "x" not in names("reduce_sum", (8192, 4095), "f32", axes=(0,))[0].removesuffix("-passes")


@given(vectors=st.integers(1, 10**6), count=st.integers(1, 600), step=st.integers(1, 4096))
def test_shares_are_whole_steps_where_they_are_longer_than_one(vectors, count, step):
    share = share_of(vectors, count, step)
    assert share >= 1
    assert share <= step or share % step == 0


@pytest.mark.parametrize("shape", [(300, 24), (77, 40), (3, 130, 16)])
def test_split_columns_and_rows_miss_nothing(shape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Small blocks and shares, so that parts end within, at and behind whole steps."""
    monkeypatch.setattr(rows, "SMALL_SHARE", 256)
    monkeypatch.setattr(rows, "LONG_COLUMN", 16)
    monkeypatch.setattr(rows, "MOST_ROUNDS", 0)
    axis = len(shape) - 2
    cases = []
    for dtype in ("f32", "f16"):
        x = Drawn().array(dtype, *shape)
        cases.append(made(f"sum {dtype}", lambda b, x: b.op("reduce_sum", x, axes=(axis,)), x))
        cases.append(made(f"lse {dtype}", lambda b, x: b.op("reduce_log_sum_exp", x, axes=(axis,)), x))
        cases.append(made(f"softmax {dtype}", lambda b, x: b.op("softmax", x, axis=axis), x))
        cases.append(made(f"argmax {dtype}", lambda b, x: b.op("argmax", x, axis=axis), x))
        cases.append(made(f"all {dtype}", lambda b, x: b.op("reduce_max", x, axes=tuple(range(len(shape)))), x))
    splits = [
        candidate.name
        for case in cases
        if (made_case := prepared(case))
        for candidate in generated(made_case.lowered[-1])
    ]
    assert any(name.startswith("split") for name in splits)
    assert not emulated_problems(cases, tmp_path)


def test_shares_that_were_rounded_down_still_reach_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """1046 rows for each of three blocks are 1024, which takes a fourth one: of 784 anew, 768 would leave 64 out."""
    monkeypatch.setattr(rows, "MOST_PARTS", 3)
    x = np.ones((3136, 8), np.float32)
    case = made("sum", lambda b, x: b.op("reduce_sum", x, axes=(0,)), x)
    ready = prepared(case)
    assert ready is not None
    assert generated(ready.lowered[-1])[0].name.startswith("split4-")
    assert not emulated_problems([case], tmp_path)
