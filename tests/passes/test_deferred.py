"""Weights that are not at hand: no pass reads them, and they are laid out anew by name."""

import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array, Constant
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType, TensorType
from capgraph.optimization import pipeline_for
from capgraph.passes.framework.deferred import concatenated, deferred, transposed


def absent() -> Array:
    raise UnsupportedError("a weight was read")


def elsewhere(*shape: int) -> Constant:
    return Constant.elsewhere(TensorType(DType.F32, shape), absent)


def lazily(content: Array) -> Constant:
    return Constant.elsewhere(TensorType(DType.of(content.dtype), content.shape), lambda: content)


def test_derived_content_is_computed_when_it_is_read() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(4.0).reshape(2, 2)
    joined = concatenated([lazily(a), lazily(b)], 1)
    assert joined.shape == (2, 5)
    np.testing.assert_array_equal(joined.array, np.concatenate([a, b], 1))
    np.testing.assert_array_equal(transposed(lazily(a), (1, 0)).array, a.T)


def test_derived_alike_is_equal_and_otherwise_not() -> None:
    weight = elsewhere(2, 3)
    assert transposed(weight, (1, 0)) == transposed(weight, (1, 0))
    assert transposed(weight, (1, 0)) != transposed(elsewhere(2, 3), (1, 0))
    assert deferred("reshape", [weight], {"shape": (3, 2)}) != transposed(weight, (1, 0))


def network() -> Graph:
    """Matmuls of weights [N, K] with a norm before, a gated part, and a scale behind."""
    b = Builder()
    x = b.input("x", "f32[1, 4, 8]")

    def linear(value: object, inner: int, outer: int) -> object:
        weight = b.op("constant", value=elsewhere(outer, inner))
        return b.op("matmul", value, b.op("transpose", weight, perm=(1, 0)))  # type: ignore[arg-type]

    y = b.op("rms_norm", x, b.op("constant", value=elsewhere(8)), epsilon=1e-5)
    q, k = linear(y, 8, 8), linear(y, 8, 8)
    gate, up = linear(y, 8, 16), linear(y, 8, 16)
    gated = b.op("mul", b.op("silu", gate), up)  # type: ignore[arg-type]
    out = b.op("mul", linear(gated, 16, 8), b.op("constant", value=elsewhere(8)))  # type: ignore[arg-type]
    return b.finish({"q": q, "k": k, "out": out})  # type: ignore[dict-item]


@pytest.mark.parametrize("device", ["host", "cuda"])
def test_no_level_reads_them(device: str) -> None:
    for level in range(4):
        graph = network()
        pipeline_for(level, device).run(graph, check="structure")
        names = [node.op.name for node in graph.nodes]
        if level:
            assert "transpose" not in names
        if level >= 2 and device == "cuda":
            assert names.count("matmul") == 4, "q and k are one matmul"
