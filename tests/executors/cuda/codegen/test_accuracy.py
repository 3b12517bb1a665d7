"""Sums in f32: every candidate of a step errs little more than NumPy, which adds rows up in pairs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Value

from tests.executors.cuda.codegen.cases import made
from tests.executors.cuda.codegen.emulated import results_of_candidates
from tests.executors.cuda.emulator import HAS_COMPILER

MOST = 2.0
"""How many times NumPy's own error; a rounding of the result is allowed beside it."""

ROUNDING = 2.0**-24


def drawn(*shape: int) -> Array:
    """Positive numbers: added one after another, the sum outgrows them, and each addition rounds what is added."""
    return np.random.default_rng(7).random(shape, np.float32)


def _scattered(b: Builder, x: Value, y: Value) -> Value:
    rows = b.constant(np.zeros((3000, 1), np.int64))
    return b.op("scatter_nd", x, rows, y, reduction="add")


SUMS: dict[str, tuple[Callable[..., Value], list[Array]]] = {
    "rows": (lambda b, x: b.op("reduce_sum", x, axes=(-1,)), [drawn(3, 9000)]),
    "many rows": (lambda b, x: b.op("reduce_sum", x, axes=(-1,)), [drawn(200, 700)]),
    "columns": (lambda b, x: b.op("reduce_mean", x, axes=(0,)), [drawn(9000, 4)]),
    "inner columns": (lambda b, x: b.op("reduce_mean", x, axes=(1,)), [drawn(2, 700, 40)]),
    "images": (lambda b, x: b.op("reduce_mean", x, axes=(2, 3)), [drawn(2, 8, 56, 56)]),
    "softmax": (lambda b, x: b.op("softmax", x, axis=-1), [drawn(3, 9000)]),
    "layer norm": (lambda b, x: b.op("layer_norm", x, None, None, axis=-1), [10 + drawn(5, 3000)]),
    "rms norm": (lambda b, x: b.op("rms_norm", x, None, axis=-1), [drawn(5, 3000)]),
    "group norm": (
        lambda b, x, *v: b.op("group_norm", x, *v, groups=2),
        [drawn(1, 4, 60, 60), drawn(4), drawn(4)],
    ),
    "running sums": (lambda b, x: b.op("cumsum", x, axis=-1), [drawn(2, 9000)]),
    "running sums of columns": (lambda b, x: b.op("cumsum", x, axis=0), [drawn(9000, 4)]),
    "averages": (
        lambda b, x: b.op("average_pool", x, kernel=(7, 7), strides=(7, 7), pads=(0, 0, 0, 0), dilations=(1, 1)),
        [drawn(1, 4, 56, 56)],
    ),
    "scattered": (_scattered, [drawn(4, 16), drawn(3000, 16)]),
}


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
def test_sums_err_little_more_than_numpys(tmp_path: Path) -> None:
    wrong: list[str] = []
    for case, candidate, (found,) in results_of_candidates(
        [made(name, make, *inputs) for name, (make, inputs) in SUMS.items()], tmp_path
    ):
        make, inputs = SUMS[case.name]
        wide = [each.astype(np.float64) for each in inputs]
        (exact,) = evaluate_graph(made(case.name, make, *wide).graph, wide)
        (usual,) = evaluate_graph(case.graph, inputs)
        error, own = (float(np.linalg.norm(each - exact) / np.linalg.norm(exact)) for each in (found, usual))
        if error > MOST * own + ROUNDING:
            wrong.append(f"{case.name} by {candidate}: {error:.1e} beside {own:.1e}")
    assert not wrong
