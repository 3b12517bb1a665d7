"""Plans on the host against the evaluator: random graphs, and each kernel that writes into its result."""

from typing import Any

import numpy as np
import pytest
from capgraph.executors.host.calls import ThroughMeaning
from capgraph.executors.host.kernels import KERNELS, call_of
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CapgraphError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference

from tests.executors.host.running import host_plan, run_plan
from tests.strategies.graphs import random_graph, random_inputs

F32 = np.float32
TERMS = 64


@pytest.mark.parametrize("block", range(6))
def test_random_graphs_give_what_they_mean(block: int) -> None:
    ran = 0
    for seed in range(block * 25, block * 25 + 25):
        graph = random_graph(seed)
        if any(node.op.has(Trait.IMPURE) for node in graph.nodes):
            continue
        sizes, arrays = random_inputs(graph, seed)
        try:
            expected = evaluate_graph(graph, arrays, sizes)
        except CapgraphError:
            continue
        given = run_plan(host_plan(graph, sizes), arrays)
        for name, old, new in zip(graph.output_names, expected, given, strict=True):
            assert difference(old, new, Exactness.ROUNDING, TERMS) == "", f"seed {seed}, output {name}"
        ran += 1
    assert ran > 10


def node_graph(name: str, *shapes: tuple[int, ...], dtype: str = "f32", **attrs: Any) -> Graph:
    b = Builder()
    operands = [b.input(f"x{i}", f"{dtype}[{', '.join(map(str, shape))}]") for i, shape in enumerate(shapes)]
    return b.finish({"y": b.op(name, *operands, **attrs)})


CASES: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    **{name: (((2, 3), (3,)), {}) for name in ("add", "sub", "mul", "div", "min", "max", "less", "equal")},
    **{name: (((2, 3),), {}) for name in ("exp", "relu", "sigmoid", "rsqrt", "reciprocal", "neg", "tanh", "is_nan")},
    "clip": (((2, 3), (), ()), {}),
    "matmul": (((2, 3, 4), (4, 5)), {}),
    "softmax": (((2, 3),), {}),
    "layer_norm": (((2, 3), (3,), (3,)), {"axis": -1}),
    "batch_norm": (((2, 3, 2), (3,), (3,), (3,), (3,)), {}),
    "reduce_sum": (((2, 3, 4),), {"axes": [0, 2], "keep_dims": False}),
    "reduce_mean": (((2, 3, 4),), {"axes": [-1], "keep_dims": True}),
    "concat": (((2, 3), (2, 1)), {"axis": 1}),
    "conv": (((2, 3, 5), (4, 3, 3), (4,)), {"strides": [1], "pads": [1, 1], "dilations": [1]}),
    "gemm": (
        ((3, 2), (4, 3), (2, 4)),
        {"trans_a": True, "trans_b": True, "alpha": 0.5, "beta": 2.0},
    ),
    "pad": (((2, 3), ()), {"pads": [1, 0, 0, 2], "mode": "constant"}),
}


def test_an_addend_times_0_is_not_read() -> None:
    bound = host_plan(node_graph("gemm", (2, 3), (3, 4), (4,), dtype="f32", beta=0.0))
    addend = np.full(4, np.nan, np.float32)
    (given,) = run_plan(bound, [np.ones((2, 3), np.float32), np.ones((3, 4), np.float32), addend])
    np.testing.assert_array_equal(given, np.full((2, 4), 3.0))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_kernels_compute_what_their_op_means(name: str, dtype: str) -> None:
    shapes, attrs = CASES[name]
    graph = node_graph(name, *shapes, dtype=dtype, **attrs)
    random = np.random.default_rng(0)
    inputs = [np.asarray(np.abs(random.standard_normal(shape)), dtype.replace("f", "float")) for shape in shapes]
    bound = host_plan(graph)
    (call,) = [call for step in bound.plan.steps for call in bound.calls_of(step)]
    assert isinstance(call.function, ThroughMeaning) == (dtype == "f16" and name not in ("concat", "pad"))
    (given,) = run_plan(bound, inputs)
    (expected,) = evaluate_graph(graph, inputs)
    assert difference(expected, given, Exactness.ROUNDING, TERMS) == ""


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_kernel_belongs_to_an_op(name: str) -> None:
    from capgraph.ir.ops import native

    assert native(name)


def test_a_result_of_another_shape_is_an_error() -> None:
    graph = node_graph("cos", (2, 3))
    (node,) = graph.nodes
    wrong = call_of(node, [np.zeros((2, 3), np.float16)], (np.zeros((3, 2), np.float16),))
    with pytest.raises(CapgraphError, match=r"gave float16\[2, 3\] instead of float16\[3, 2\]"):
        wrong.bound()()


def test_a_result_over_several_operands_is_not_half_read() -> None:
    b = Builder()
    x = b.op("exp", b.input("x", "f32[3]"))
    graph = b.finish({"y": b.op("layer_norm", x, x, x, axis=0)})
    inputs = [np.array([1, 2, 3], F32)]
    np.testing.assert_allclose(run_plan(host_plan(graph), inputs)[0], evaluate_graph(graph, inputs)[0], rtol=1e-6)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_unfold_into_planned_memory(groups: int) -> None:
    b, random = Builder(), np.random.default_rng(0)
    weight = b.constant(random.standard_normal((6, 4 // groups, 3, 3)).astype(np.float32))
    x = b.input("x", "f32[2, 4, 9, 8]")
    y = b.op("conv", x, weight, None, strides=(2, 1), pads=(1, 0, 1, 0), dilations=(1, 2), groups=groups)
    graph = b.finish([y])
    bound = host_plan(graph)
    (step,) = [step for step in bound.plan.steps if step.scratch is not None]
    assert step.node.op.name == "conv"
    given = random.standard_normal((2, 4, 9, 8)).astype(np.float32)
    (found,) = run_plan(bound, [given])
    np.testing.assert_allclose(found, evaluate_graph(graph, [given])[0], rtol=1e-5, atol=1e-5)
