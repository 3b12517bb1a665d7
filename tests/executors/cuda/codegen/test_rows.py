"""Folds: which team works on a row, what lies in registers, when rows are split."""

import numpy as np
import pytest
from capgraph.executors.cuda.launch import Candidate, KernelLaunch
from capgraph.ir.builder import Builder
from capgraph.ir.types import DType

from tests.executors.cuda.codegen.cases import Drawn, fused, made
from tests.executors.cuda.codegen.running import generated, prepared


def ways(op: str, shape: tuple[int, ...], dtype: str = "f16", **attrs) -> list[Candidate]:
    x = np.zeros(shape, DType(dtype).numpy)
    case = prepared(made(op, lambda b, x: b.op(op, x, **attrs), x))
    assert case is not None
    return generated(case.ways[-1])


def names(op: str, shape: tuple[int, ...], dtype: str = "f16", **attrs) -> list[str]:
    return [way.name for way in ways(op, shape, dtype, **attrs)]


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
def test_teams_grow_with_the_row(shape, first):
    assert names("softmax", shape, axis=-1)[0] == first


def test_rows_beyond_registers_are_read_once_for_each_pass():
    (way, *_) = ways("softmax", (1000, 200_000), axis=-1)
    assert way.name == "block1024-passes"
    (launch,) = way.launches
    assert isinstance(launch, KernelLaunch)
    assert launch.kernel.text.count("for (int first = t;") == 3


def test_few_long_rows_are_split_over_the_chip():
    (way, *_) = ways("softmax", (2, 200_000), axis=-1)
    assert way.name.startswith("split")
    assert len(way.launches) == 3
    assert way.scratch_bytes > 0


def test_rows_across_memory_are_columns_of_threads():
    assert names("reduce_sum", (64, 50, 4096), axes=(1,))[0].startswith("columns")
    assert names("reduce_sum", (64, 50, 4096), axes=(1, 2))[0].endswith("block256")


def test_a_norm_of_a_sum_is_one_kernel_with_both_results():
    d = Drawn()

    def block(b: Builder, x, y, s, c):
        total = b.op("add", x, y)
        return [total, b.op("layer_norm", total, s, c, axis=-1)]

    rows = [d.array("f16", 128, 768), d.array("f16", 128, 768), d.array("f16", 768), d.array("f16", 768)]
    case = prepared(fused(made("block", block, *rows)))
    assert case is not None
    (way,) = [way for way in case.ways if way.step.node.op.name == "fused"]
    (launch,) = generated(way)[0].launches
    assert isinstance(launch, KernelLaunch)
    assert launch.nbytes == 2 * (4 * 128 * 768 + 2 * 768)
    assert launch.kernel.text.count("block_fold<sum") == 2
    assert "pack<f16, 8>" in launch.kernel.text


def test_work_that_folds_other_axes_runs_node_by_node():
    d = Drawn()

    def two_ways(b: Builder, x):
        return b.op("add", b.op("softmax", x, axis=1), b.op("reduce_sum", x, axes=(1, 2)))

    case = prepared(fused(made("two ways", two_ways, d.array("f32", 3, 4, 5))))
    assert case is not None
    assert [way.name for each in case.ways for way in generated(each)] == ["stepwise"]


def test_zero_elements_still_have_a_sum():
    (way, *_) = ways("reduce_sum", (3, 0), axes=(1,))
    assert len(way.launches) == 1
