"""How many launches layers of models take on a GPU: one kernel does what it can, and nothing is on the host."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import HostCall
from capgraph.executors.cuda.lower.lowering import Backend, LoweredStep
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Constant
from capgraph.ir.graph import Graph, Value
from capgraph.ir.types import DType
from capgraph.optimization import pipeline_for

from tests.models.model_texts import model_graph, sizes_of

LIBRARIES = frozenset({"cublaslt", "cudnn"})
LAYERS = 2


class Net(Builder):
    """Layers with random weights in one dtype."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype = dtype
        self._rng = np.random.default_rng(1)

    def weight(self, *shape: int) -> Value:
        return self.constant(self._rng.standard_normal(shape).astype(DType.of(self.dtype).numpy), self.dtype)

    def linear(self, x: Value, size: int, *, has_bias: bool = True) -> Value:
        matmul = self.op("matmul", x, self.weight(int(x.shape[-1]), size))
        return self.op("add", matmul, self.weight(size)) if has_bias else matmul

    def layer_norm(self, x: Value) -> Value:
        size = int(x.shape[-1])
        return self.op("layer_norm", x, self.weight(size), self.weight(size), epsilon=1e-5)

    def rms_norm(self, x: Value) -> Value:
        return self.op("rms_norm", x, self.weight(int(x.shape[-1])), epsilon=1e-5)

    def attention(self, x: Value, heads: int) -> Value:
        q, k, v = (self.linear(x, int(x.shape[-1])) for _ in range(3))
        return self.op("attention", q, k, v, None, None, heads=heads, kv_heads=heads)

    def conv(self, x: Value, channels: int, size: int, stride: int = 1) -> Value:
        weight = self.weight(channels, int(x.shape[1]), size, size)
        steps = {"strides": (stride,) * 2, "pads": (size // 2,) * 4, "dilations": (1, 1)}
        return self.op("conv", x, weight, self.weight(channels), **steps)


def encoder(dtype: str, layers: int) -> Graph:
    """BERT: the norm follows each residual."""
    b = Net(dtype)
    x = b.input("x", f"{dtype}[1, 128, 256]")
    for _ in range(layers):
        x = b.layer_norm(b.op("add", x, b.linear(b.attention(x, 4), 256)))
        x = b.layer_norm(b.op("add", x, b.linear(b.op("gelu", b.linear(x, 1024)), 256)))
    return b.finish({"y": x})


def vision(dtype: str, layers: int) -> Graph:
    """ViT, GPT-2: the norm precedes, and the number of tokens is a multiple of nothing."""
    b = Net(dtype)
    x = b.input("x", f"{dtype}[1, 197, 256]")
    for _ in range(layers):
        x = b.op("add", x, b.linear(b.attention(b.layer_norm(x), 4), 256))
        x = b.op("add", x, b.linear(b.op("gelu", b.linear(b.layer_norm(x), 1024), approximate="tanh"), 256))
    return b.finish({"y": x})


def gated(dtype: str, layers: int) -> Graph:
    """Llama: shared keys, rotary embedding, a gated network, no biases."""
    b = Net(dtype)
    x = b.input("x", f"{dtype}[1, 128, 256]")
    cosines, sines = (b.input(name, f"{dtype}[1, 128, 32]") for name in ("cosines", "sines"))
    for _ in range(layers):
        y = b.rms_norm(x)
        q, k, v = (b.linear(y, size, has_bias=False) for size in (256, 128, 128))
        q, k = (b.op("rotary_embedding", each, cosines, sines, None, heads=heads) for each, heads in ((q, 4), (k, 2)))
        mixed = b.op("attention", q, k, v, None, None, heads=4, kv_heads=2, causal=True)
        x = b.op("add", x, b.linear(mixed, 256, has_bias=False))
        y = b.rms_norm(x)
        gate = b.op("silu", b.linear(y, 512, has_bias=False))
        x = b.op("add", x, b.linear(b.op("mul", gate, b.linear(y, 512, has_bias=False)), 256, has_bias=False))
    return b.finish({"y": x})


def decoding(dtype: str, layers: int, batch: int = 1) -> Graph:
    """Llama, one token: caches that are states, written at a position that lies on the device."""
    b = Net(dtype)
    x, position = b.input("x", f"{dtype}[{batch}, 1, 256]"), b.input("position", f"i64[{batch}]")
    cosines, sines = (b.input(name, f"{dtype}[{batch}, 1, 32]") for name in ("cosines", "sines"))
    mask, written = b.input("mask", "bool[1, 1, 1, 64]"), {}
    for layer in range(layers):
        y = b.rms_norm(x)
        q, k, v = (
            b.op("reshape", b.linear(y, 64 * heads, has_bias=False), shape=(batch, heads, 1, 64)) for heads in (4, 2, 2)
        )
        q, k = (b.op("rotary_embedding", each, cosines, sines, None) for each in (q, k))
        caches = [b.input(f"{name}{layer}", f"{dtype}[{batch}, 2, 64, 64]") for name in ("keys", "values")]
        keys, values = (
            b.op("tensor_scatter", cache, new, position, axis=2) for cache, new in zip(caches, (k, v), strict=True)
        )
        written |= {f"keys{layer}": keys, f"values{layer}": values}
        mixed = b.op("reshape", b.op("attention", q, keys, values, mask, None), shape=(batch, 1, 256))
        x = b.op("add", x, b.linear(mixed, 256, has_bias=False))
        y = b.rms_norm(x)
        gate = b.op("silu", b.linear(y, 512, has_bias=False))
        x = b.op("add", x, b.linear(b.op("mul", gate, b.linear(y, 512, has_bias=False)), 256, has_bias=False))
    graph = b.finish({"y": x, **{f"{name}_next": value for name, value in written.items()}})
    names = [value.name for value in graph.inputs]
    graph.set_states([(names.index(name), 1 + index) for index, name in enumerate(written)])
    return graph


def residual(dtype: str, layers: int) -> Graph:
    """The MLP: one row."""
    b = Net(dtype)
    x = b.input("x", f"{dtype}[1, 256]")
    for _ in range(layers):
        x = b.op("add", x, b.op("gelu", b.linear(b.layer_norm(x), 256)))
    return b.finish({"y": x})


def bottlenecks(dtype: str, layers: int) -> Graph:
    """ResNet-50: a stem, and three convolutions between residuals, of which the first has one in its shortcut."""
    b = Net(dtype)
    x = b.op("relu", b.conv(b.input("x", f"{dtype}[1, 3, 14, 14]"), 64, 7, stride=2))
    for layer in range(layers):
        y = b.op("relu", b.conv(x, 64, 1))
        y = b.op("relu", b.conv(y, 64, 3))
        shortcut = b.conv(x, 256, 1) if layer == 0 else x
        x = b.op("relu", b.op("add", b.conv(y, 256, 1), shortcut))
    x = b.op("reshape", b.op("reduce_mean", x, axes=(2, 3), keep_dims=True), shape=(1, 256))
    return b.finish({"y": b.linear(x, 100)})


def points(dtype: str, layers: int) -> Graph:
    """PointNet: each convolution has a batch norm behind it and is called twice."""
    b = Net(dtype)
    x = b.input("x", f"{dtype}[1, 64, 128]")
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,)}
    for _ in range(layers):
        weight, numbers = b.weight(64, 64, 1), [b.weight(64), b.weight(64), b.weight(64), b.op("abs", b.weight(64))]
        for _ in range(2):
            x = b.op("relu", b.op("batch_norm", b.op("conv", x, weight, None, **attrs), *numbers))
    return b.finish({"y": x})


def neighbors(dtype: str, layers: int) -> Graph:
    """GIN: each node adds what its neighbors are, along the same edges in each layer."""
    b = Net(dtype)
    x, edges = b.input("x", f"{dtype}[3000, 128]"), b.input("edges", "i64[2, 24000]")
    source, target = (
        b.op("slice", edges, axes=(0,), starts=(start,), ends=(start + 1,), steps=(1,)) for start in range(2)
    )
    source, target = b.op("reshape", source, shape=(24000,)), b.op("reshape", target, shape=(24000, 1))
    places = b.op("expand", target, shape=(24000, 128))
    zeros = b.op("full", shape=(3000, 128), value=Constant(np.zeros((), DType(dtype).numpy), DType(dtype)))
    for _ in range(layers):
        found = b.op("scatter_elements", zeros, places, b.op("gather", x, source), axis=0, reduction="add")
        x = b.op("relu", b.linear(b.op("add", x, found), 128))
    return b.finish({"y": x})


def lowered(graph: Graph) -> tuple[LoweredStep, ...]:
    """The candidates of a model's steps, without a GPU; all in one recording."""
    sizes = sizes_of(graph)
    pipeline_for(2, "cuda").run(graph, check="none")
    backend = Backend(libraries=LIBRARIES)
    planner = cuda_planning(backend, ReplayOptions())
    plan = planner.of(graph)(sizes, CaptureMode.FULL)
    assert [segment.is_captured for segment in plan.segments] == [True]
    return backend.lower(plan)


def launches_of(graph: Graph) -> Counter[str]:
    """The launches of each kind of step."""
    counts: Counter[str] = Counter()
    for step in lowered(graph):
        if not step.candidates:
            continue
        launches = step.candidates[0].launches
        assert not any(isinstance(launch, HostCall) for launch in launches), step.step.node
        node = step.step.node
        ops = [each.op.name for each in node.attrs["body"].nodes if each.inputs] if node.op.name == "fused" else []
        counts[" ".join(ops) or node.op.name] += len(launches)
    return counts


@pytest.mark.parametrize(
    ("made", "dtype", "once", "a_layer"),
    [
        (encoder, "f16", 0, 7),
        (encoder, "bf16", 0, 7),
        (encoder, "f32", 0, 7),
        (vision, "f16", 0, 7),
        (vision, "f32", 0, 7),
        (gated, "f16", 0, 9),
        (decoding, "bf16", 0, 8),  # two of them write the caches; gate and up are one
        (residual, "f16", 0, 1),  # the norm is its matmul's
        (residual, "f32", 0, 1),
        (partial(decoding, batch=16), "bf16", 0, 8),
    ],
)
def test_launches_a_layer(made: Callable[[str, int], Graph], dtype: str, once: int, a_layer: int) -> None:
    counts = launches_of(made(dtype, LAYERS))
    assert counts.total() == once + LAYERS * a_layer, counts


def test_a_convolution_is_one_launch_with_all_that_follows() -> None:
    counts = launches_of(bottlenecks("f16", LAYERS))
    assert counts == {
        "conv relu": 2 * LAYERS + 2,  # of which one brings the image into its layout
        "conv": 1,
        "conv add relu": LAYERS,
        "reduce_mean": 1,
        "gemm": 1,
    }


@pytest.mark.parametrize(("dtype", "casts"), [("f16", 1), ("f32", 0)])
def test_a_batch_norm_is_part_of_its_convolution_wherever_weights_are_shared(dtype: str, casts: int) -> None:
    counts = launches_of(points(dtype, LAYERS))
    region = " ".join(["conv", *["cast"] * casts, "mul", "add", *["cast"] * casts, "relu"])
    assert set(counts) == {region}


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_edges_are_listed_once_and_their_messages_are_never_written(dtype: str) -> None:
    counts = launches_of(neighbors(dtype, LAYERS))
    assert counts == {"segment_slots": 5, "gather segment_reduce": LAYERS, "gemm relu": LAYERS}


@pytest.mark.parametrize(
    ("name", "once", "layers", "a_layer"),
    [
        ("bert", 1, 6, 7),  # embedding and its norm
        ("gpt2", 2, 6, 7),  # embedding; the head
        ("llama", 2, 6, 9),  # embedding; the head
        ("vit", 5, 12, 7),  # patches, the class token, positions; its row, the head
        ("lstm", 0, 2, 1),
        ("whisper-encoder", 3, 6, 7),  # two convolutions, positions
    ],
)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_steps_of_models(name: str, dtype: str, once: int, layers: int, a_layer: int) -> None:
    steps = [step for step in lowered(model_graph(name, dtype)) if step.candidates]
    assert len(steps) == once + layers * a_layer
