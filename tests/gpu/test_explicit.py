"""Explicit graphs on a GPU: an input that moves and another number need no new recording."""

import warnings

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

import capgraph
from capgraph.executors.cuda.driver.protocol import KernelCall
from capgraph.executors.cuda.executor import cuda_problem, open_device
from capgraph.executors.cuda.kernel_ir.launch import Kernel, KernelLaunch, ScalarArgument
from capgraph.ir.builder import Builder

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

ADD = """extern "C" __global__ void NAME(float* r, const float* x, float c) {
  begin();
  r[threadIdx.x] = x[threadIdx.x] + c;
}"""


def test_a_graph_takes_other_addresses_and_numbers() -> None:
    device = open_device(0)
    launch = KernelLaunch(Kernel(ADD, (1, 1, 1), (256, 1, 1)), (), 0)
    compiled = device.compiled(launch)
    x, y = cupy.arange(256, dtype=cupy.float32), cupy.arange(256, dtype=cupy.float32) * 10
    between, result = cupy.zeros(256, cupy.float32), cupy.zeros(256, cupy.float32)
    cupy.cuda.Device().synchronize()
    calls = [
        KernelCall(launch, compiled, (between.data.ptr, x.data.ptr, ScalarArgument("float", 1.0))),
        KernelCall(launch, compiled, (result.data.ptr, between.data.ptr, ScalarArgument("float", 2.0))),
    ]
    graph = device.driver.chain(calls)
    graph.launch(device.own_stream)
    device.driver.synchronize(device.own_stream)
    assert (result == x + 3).all()
    graph.update(0, (between.data.ptr, y.data.ptr, ScalarArgument("float", 5.0)))
    graph.update(1, (result.data.ptr, between.data.ptr, ScalarArgument("float", 7.0)))
    graph.launch(device.own_stream)
    device.driver.synchronize(device.own_stream)
    assert (result == y + 12).all()


def test_a_program_follows_inputs_that_move() -> None:
    b = Builder()
    x = b.input("x", "f32[64, 32]")
    weight = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    h = b.op("softmax", b.op("add", x, b.constant(weight[:1])))
    graph = b.finish({"y": b.op("reduce_max", h, axes=[1], keep_dims=True)})
    with capgraph.optimize(graph, executor="graph", device="cuda", capture={"inputs": {"": "repoint"}}) as program:
        kept = []
        for call in range(6):
            content = np.random.default_rng(call).standard_normal((64, 32)).astype(np.float32)
            kept.append(cupy.asarray(content))
            given = program.run({"x": kept[-1]})["y"].get()
            shifted = np.exp(content + weight[:1] - (content + weight[:1]).max(1, keepdims=True))
            np.testing.assert_allclose(given[:, 0], (shifted / shifted.sum(1, keepdims=True)).max(1), rtol=1e-5)
        counters = program.stats().counters
        assert counters.input_repoints >= 4
        assert counters.input_rerecords == 0
