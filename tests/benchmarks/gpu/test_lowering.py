"""Launches of small plans, run as they are on the host by the emulator, against the reference evaluator."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.target import CUDA
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.planner import make_plan

from benchmarks.gpu.lowering import lower
from tests.benchmarks.gpu.emulator import EmulatedPlan, relative_error
from tests.executors.cuda.emulator import HAS_COMPILER

needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")


def drawn(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(7)
    made: list[Array] = []
    for value in graph.inputs:
        shape, dtype = tuple(int(str(dim)) for dim in value.shape), value.tensor.dtype.numpy
        whole = rng.integers(-3, 3, shape) if dtype.kind in "ib" else rng.standard_normal(shape)
        made.append(np.asarray(whole).astype(dtype))
    return made


def check(graph: Graph, folder: Path, tolerance: float = 1e-6) -> EmulatedPlan:
    plan = make_plan(graph, {}, CUDA)
    check_plan(plan)
    emulated = EmulatedPlan(plan, folder)
    given = drawn(plan.graph)
    found: Sequence[Array] = emulated.run(given)
    for mine, expected in zip(found, evaluate_graph(plan.graph, given), strict=True):
        assert relative_error(mine, expected) <= tolerance
    return emulated


@needs_compiler
@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-6), ("f16", 1e-3)])
def test_an_mlp_layer(dtype: str, tolerance: float, tmp_path: Path):
    b = Builder()
    x, scale, bias = b.input("x", f"{dtype}[5, 40]"), b.input("s", f"{dtype}[40]"), b.input("b", f"{dtype}[40]")
    w, c = b.input("w", f"{dtype}[40, 40]"), b.input("c", f"{dtype}[40]")
    normed = b.op("layer_norm", x, scale, bias, axis=-1)
    y = b.op("add", x, b.op("gelu", b.op("gemm", normed, w, c, trans_b=True, alpha=0.5, beta=2.0)))
    assert len(check(b.finish([y]), tmp_path, tolerance).launches) == 4


@needs_compiler
def test_heads_of_attention_through_strided_views(tmp_path: Path):
    b = Builder()
    q, k, v = (b.input(name, "f32[2, 6, 12]") for name in "qkv")
    heads = [b.op("transpose", b.op("reshape", x, shape=(2, 6, 3, 4)), perm=(0, 2, 1, 3)) for x in (q, k, v)]
    weights = b.op("softmax", b.op("matmul", heads[0], b.op("transpose", heads[1], perm=(0, 1, 3, 2))), axis=-1)
    mixed = b.op("transpose", b.op("matmul", weights, heads[2]), perm=(0, 2, 1, 3))
    emulated = check(b.finish([b.op("reshape", mixed, shape=(2, 6, 12))]), tmp_path)
    assert [launch.op for launch in emulated.launches] == ["matmul", "softmax", "matmul", "reshape"]


@needs_compiler
@pytest.mark.parametrize("mask", [None, "f32[6, 7]", "bool[2, 1, 6, 7]"])
def test_attention_with_shared_heads_and_masks(mask: str | None, tmp_path: Path):
    b = Builder()
    q, k, v = b.input("q", "f32[2, 4, 6, 8]"), b.input("k", "f32[2, 2, 7, 8]"), b.input("v", "f32[2, 2, 7, 5]")
    seen = None if mask is None else b.input("mask", mask)
    check(b.finish([b.op("attention", q, k, v, seen, None, causal=mask is None)]), tmp_path)


@needs_compiler
def test_attention_with_heads_side_by_side(tmp_path: Path):
    b = Builder()
    q, k, v = (b.input(name, "f32[2, 6, 12]") for name in "qkv")
    check(b.finish([b.op("attention", q, k, v, None, None, heads=3, kv_heads=3)]), tmp_path)


@needs_compiler
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gathers_along_each_axis_with_indices_from_the_end(axis: int, tmp_path: Path):
    b = Builder()
    x = b.op("transpose", b.input("x", "f32[4, 5, 3]"), perm=(1, 2, 0))
    check(b.finish([b.op("gather", x, b.input("rows", "i64[2, 3]"), axis=axis)]), tmp_path)


@needs_compiler
def test_parts_of_a_concat_go_to_their_places(tmp_path: Path):
    b = Builder()
    x, y = b.input("x", "f32[3, 4]"), b.input("y", "f32[3, 2]")
    check(b.finish([b.op("concat", b.op("relu", x), y, axis=1)]), tmp_path)


@needs_compiler
@pytest.mark.parametrize("op", ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("axes", [(1,), (0, 2)])
def test_reductions(op: str, axes: tuple[int, ...], tmp_path: Path):
    b = Builder()
    x = b.op("transpose", b.input("x", "f32[4, 300, 3]"), perm=(1, 0, 2))
    check(b.finish([b.op(op, x, axes=axes, keep_dims=False)]), tmp_path, 1e-5)


@needs_compiler
def test_conditions_and_broadcasts(tmp_path: Path):
    b = Builder()
    x, y = b.input("x", "f32[3, 1, 4]"), b.input("y", "f32[5, 1]")
    larger = b.op("greater", x, y)
    check(b.finish([b.op("where", larger, b.op("sub", x, y), b.op("neg", y))]), tmp_path)


def test_an_op_without_a_kernel_is_named():
    b = Builder()
    x = b.op("cumsum", b.input("x", "f32[4]"), axis=0)
    with pytest.raises(UnsupportedError, match="cumsum"):
        lower(make_plan(b.finish([x]), {}, CUDA))
