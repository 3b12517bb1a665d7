"""Matmuls, attention and convolutions of the benchmark models, and odd ones: what `heavy.py` measures one by one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from capgraph.ir.constant import Constant
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType

from .torch_peer import LAUNCHES, on_device, peer_time


@dataclass
class Case:
    """A step to be lowered: how to build its graph, its inputs by name, which is the weight, and PyTorch's work."""

    name: str
    build: Callable[[Graph], Any]
    peer: Callable[..., Any] | None = None
    tolerance: float = 0.01
    views: dict[str, Callable[[np.ndarray], np.ndarray]] = field(default_factory=dict)
    """Inputs by name that lie otherwise than row-major: a function from the array to a view of the same shape."""
    are_images: bool = False
    """Whether tensors of rank 4 and 5 that are no constants lie channels-last, the input `raw` excepted."""

    def lays_out(self, value: Value) -> bool:
        """Whether a value lies channels-last."""
        is_constant = value.producer is not None and not value.producer.inputs
        return self.are_images and len(value.shape) > 3 and value.name != "raw" and not is_constant


def drawn(shape: Sequence[int], dtype: DType, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(7).standard_normal(tuple(shape)) * scale).astype(dtype.numpy)


# ---- matmuls


def linear_case(rows: int, inner: int, columns: int, dtype: DType, *epilogue: str, time_peer: bool = True) -> Case:
    x, w = drawn((1, rows, inner), dtype), drawn((inner, columns), dtype, inner**-0.5)
    b, r = drawn((columns,), dtype), drawn((1, rows, columns), dtype)

    def build_graph(graph: Graph) -> dict[str, np.ndarray]:
        value = graph.append(native("matmul"), [graph.add_input("x", TensorType(dtype, x.shape)), constant(graph, w)])
        inputs = {"x": x}
        for name in epilogue:
            if name == "bias":
                value = graph.append(native("add"), [value.output, constant(graph, b)])
            elif name in ("residual", "gate"):
                other = graph.add_input("r", TensorType(dtype, r.shape))
                value = graph.append(native("add" if name == "residual" else "mul"), [value.output, other])
                inputs["r"] = r
            else:
                value = graph.append(native(name.split("-")[0]), [value.output], gelu_attrs(name))
        graph.set_outputs([value.output])
        return inputs

    def peer() -> float:
        tx, tb = on_device(x[0], dtype), on_device(b, dtype) if "bias" in epilogue else None
        weights = [on_device(np.ascontiguousarray(w.T), dtype) for _ in range(LAUNCHES)]
        return peer_time(lambda i: torch.nn.functional.linear(tx, weights[i], tb))

    name = f"{dtype} {rows}x{inner}x{columns} {'+'.join(epilogue)}"
    return Case(name, build_graph, peer if time_peer else None, 0.03 if dtype is DType.BF16 else 0.005)


def gelu_attrs(name: str) -> dict[str, Any]:
    if not name.startswith("gelu"):
        return {}
    return {"approximate": "tanh" if name.endswith("tanh") else "none"}


def constant(graph: Graph, content: np.ndarray) -> Any:
    return graph.append(native("constant"), [], {"value": Constant(content)}).output


def gemm_case(**attrs: Any) -> Case:
    a, b, c = drawn((40, 72), DType.F32), drawn((72, 56), DType.F32), drawn((40, 1), DType.F32)
    a = np.ascontiguousarray(a.T) if attrs.get("trans_a") else a
    b = np.ascontiguousarray(b.T) if attrs.get("trans_b") else b

    def build_graph(graph: Graph) -> dict[str, np.ndarray]:
        arrays = {"a": a, "b": b, "c": c}
        values = [graph.add_input(name, TensorType(DType.F32, array.shape)) for name, array in arrays.items()]
        graph.set_outputs([graph.append(native("gemm"), values, attrs).output])
        return arrays

    return Case(f"gemm {attrs}", build_graph, None, 1e-4)


def matmul_case(a_shape: Sequence[int], b_shape: Sequence[int], dtype: DType, **views: Any) -> Case:
    a, b = drawn(a_shape, dtype), drawn(b_shape, dtype)
    if dtype.is_integer:
        a, b = (np.arange(x.size).reshape(x.shape).astype(dtype.numpy) for x in (a, b))

    def build_graph(graph: Graph) -> dict[str, np.ndarray]:
        arrays = {"a": a, "b": b}
        values = [graph.add_input(name, TensorType(dtype, array.shape)) for name, array in arrays.items()]
        graph.set_outputs([graph.append(native("matmul"), values).output])
        return arrays

    return Case(f"matmul {dtype} {list(a_shape)} {list(b_shape)} {list(views)}", build_graph, None, 0.01, views)


def swapped(array: np.ndarray) -> np.ndarray:
    """The same elements, stored with the last two axes exchanged."""
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def heads_inside(array: np.ndarray) -> np.ndarray:
    """[B, H, T, D] stored as [B, T, H, D]."""
    return np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)


def matmul_cases() -> list[Case]:
    half, brain, single = DType.F16, DType.BF16, DType.F32
    return [
        linear_case(128, 768, 768, half, "bias", "residual"),
        linear_case(128, 768, 2304, half, "bias"),
        linear_case(128, 768, 3072, half, "bias", "gelu"),
        linear_case(128, 3072, 768, half, "bias", "residual"),
        linear_case(128, 768, 3072, half, "bias", "gelu-tanh", time_peer=False),
        linear_case(1, 2048, 3072, brain),
        linear_case(1, 2048, 2048, brain, "residual"),
        linear_case(1, 2048, 16384, brain),
        linear_case(1, 8192, 2048, brain, "residual"),
        linear_case(1, 2048, 32768, brain),
        linear_case(8, 2048, 3072, brain),
        linear_case(16, 768, 3072, half, "bias", "relu"),
        linear_case(32, 768, 768, half, "bias"),
        linear_case(256, 768, 768, half, "bias"),
        linear_case(1, 2048, 1000, single, "bias"),
        linear_case(3, 768, 3000, single, "silu", "gate"),
        linear_case(128, 768, 768, single, "bias"),
        linear_case(4096, 768, 3072, half, "bias", "gelu"),
        linear_case(5, 72, 44, half, "bias", "silu", "gate", time_peer=False),
        gemm_case(alpha=0.5, beta=2.0, trans_a=True),
        gemm_case(trans_b=True),
        matmul_case((2, 12, 64, 32), (2, 12, 32, 48), half, a=heads_inside, b=swapped),
        matmul_case((12, 128, 64), (12, 64, 128), half, b=swapped),
        matmul_case((3, 1, 17, 19), (5, 19, 23), single),
        matmul_case((7, 9), (9, 11), DType.I64),
        matmul_case((33,), (33, 65), DType.F64),
        matmul_case((4, 33), (33,), single),
    ]


# ---- attention


def attention_case(  # noqa: PLR0913  # a case has what attention has
    batch: int,
    heads: int,
    steps: int,
    depth: int,
    dtype: DType,
    *,
    keys: int | None = None,
    kv_heads: int | None = None,
    mask: DType | None = None,
    lengths: Sequence[int] | None = None,
    flat: bool = False,
    time_peer: bool = True,
    **attrs: Any,
) -> Case:
    keys, kv_heads = keys or steps, kv_heads or heads
    q, k, v = (drawn((batch, n, t, depth), dtype) for n, t in ((heads, steps), (kv_heads, keys), (kv_heads, keys)))
    arrays = {"q": q, "k": k[:, :, ::-1], "v": v[..., ::-1]}
    if flat:
        arrays = {name: x.swapaxes(1, 2).reshape(batch, x.shape[2], -1) for name, x in arrays.items()}
        attrs |= {"heads": heads, "kv_heads": kv_heads}
    arrays = {name: np.ascontiguousarray(x) for name, x in arrays.items()}
    if mask is DType.BOOL:
        arrays["mask"] = np.random.default_rng(3).random((batch, 1, steps, keys)) < 0.7
    elif mask is not None:
        arrays["mask"] = drawn((1, heads, steps, keys), mask)
        arrays["mask"][..., 1::3] = -np.inf
    if lengths is not None:
        arrays["lengths"] = np.array(lengths, np.int64)

    def build_graph(graph: Graph) -> dict[str, np.ndarray]:
        types = {name: TensorType(DType.of(array.dtype), array.shape) for name, array in arrays.items()}
        names = ("q", "k", "v", "mask", "lengths")
        values = [graph.add_input(name, types[name]) if name in types else None for name in names]
        graph.set_outputs([graph.append(native("attention"), values, attrs).output])
        return arrays

    def peer() -> float:
        tensors = [[on_device(x, dtype) for x in (q, k, v)] for _ in range(LAUNCHES)]
        options = {"is_causal": bool(attrs.get("causal")) and lengths is None, "enable_gqa": heads != kv_heads}
        return peer_time(lambda i: torch.nn.functional.scaled_dot_product_attention(*tensors[i], **options))

    extra = " ".join(str(x) for x in (mask or "", "lengths" if lengths else "", "flat" if flat else "", attrs or ""))
    name = f"{dtype} B{batch} H{heads}/{kv_heads} T{steps} S{keys} D{depth} {extra}"[:44]
    return Case(name, build_graph, peer if time_peer else None, 0.02 if dtype is DType.BF16 else 0.004)


def attention_cases() -> list[Case]:
    half, brain, single = DType.F16, DType.BF16, DType.F32
    return [
        attention_case(1, 12, 128, 64, half, flat=True),
        attention_case(32, 12, 128, 64, half, flat=True),
        attention_case(1, 12, 128, 64, single, flat=True),
        attention_case(1, 32, 1, 64, brain, keys=512, kv_heads=8, lengths=[500], causal=True),
        attention_case(1, 32, 1, 64, brain, keys=2048, kv_heads=8, lengths=[513], causal=True),
        attention_case(1, 32, 1, 64, brain, keys=8192, kv_heads=8, lengths=[8192], causal=True),
        attention_case(1, 16, 1, 128, brain, keys=2048, kv_heads=8, lengths=[2048], causal=True),
        attention_case(
            8, 32, 1, 64, brain, keys=1024, kv_heads=8, lengths=[1, 5, 77, 1024, 300, 512, 511, 0], causal=True
        ),
        attention_case(1, 32, 512, 64, half, kv_heads=8, causal=True),
        attention_case(1, 16, 2048, 128, half, causal=True),
        attention_case(1, 12, 197, 64, half, flat=True),
        attention_case(2, 4, 33, 80, half, mask=half, softcap=20.0, time_peer=False),
        attention_case(2, 4, 33, 40, half, keys=70, mask=DType.BOOL, time_peer=False),
        attention_case(2, 4, 33, 40, single, keys=70, mask=DType.BOOL, causal=True, time_peer=False),
        attention_case(2, 6, 20, 24, half, kv_heads=2, keys=40, lengths=[40, 21], causal=True, time_peer=False),
        attention_case(1, 2, 5, 12, DType.F64, mask=DType.F64, time_peer=False),
        attention_case(1, 2, 5, 20, half, time_peer=False),
    ]


# ---- convolutions


def conv_case(  # noqa: PLR0913  # a case has what a convolution has
    channels: int,
    size: int,
    made: int,
    kernel: int,
    dtype: DType,
    *epilogue: str,
    groups: int = 1,
    stride: int = 1,
    is_transposed: bool = False,
    raw: bool = False,
    axes: int = 2,
    batch: int = 1,
) -> Case:
    x = drawn((batch, channels, *[size] * axes), dtype)
    shape = (channels, made // groups) if is_transposed else (made, channels // groups)
    w = drawn((*shape, *[kernel] * axes), dtype, (channels // groups * kernel**axes) ** -0.5)
    b = drawn((made,), dtype)
    attrs = {"strides": [stride] * axes, "pads": [kernel // 2] * 2 * axes, "dilations": [1] * axes, "groups": groups}
    if is_transposed:
        attrs["output_padding"] = [0] * axes

    def build_graph(graph: Graph) -> dict[str, np.ndarray]:
        inputs = {"raw" if raw else "x": x}
        image = graph.add_input(next(iter(inputs)), TensorType(dtype, x.shape))
        bias = constant(graph, b) if "bias" in epilogue else None
        node = graph.append(
            native("conv_transpose" if is_transposed else "conv"), [image, constant(graph, w), bias], attrs
        )
        for name in epilogue:
            if name == "residual":
                inputs["r"] = drawn(tuple(int(dim) for dim in node.output.shape), dtype)
                other = graph.add_input("r", node.output.type)
                node = graph.append(native("add"), [node.output, other])
            elif name == "clip6":
                bounds = [constant(graph, np.array(bound, dtype.numpy)) for bound in (0, 6)]
                node = graph.append(native("clip"), [node.output, *bounds])
            elif name != "bias":
                node = graph.append(native(name), [node.output])
        graph.set_outputs([node.output])
        return inputs

    def peer() -> float:
        functional = torch.nn.functional
        work = (functional.conv_transpose2d if is_transposed else functional.conv2d) if axes == 2 else functional.conv3d
        memory = torch.channels_last if axes == 2 else torch.channels_last_3d
        tx = on_device(x, dtype).contiguous(memory_format=memory)
        tb = on_device(b, dtype) if "bias" in epilogue else None
        weights = [on_device(w, dtype).contiguous(memory_format=memory) for _ in range(LAUNCHES)]
        options = {"stride": stride, "padding": kernel // 2, "groups": groups}
        return peer_time(lambda i: work(tx, weights[i], tb, **options))

    kind = "transposed " if is_transposed else "raw " if raw else ""
    name = f"{kind}{dtype} {batch}x{channels}x{size}^{axes}->{made} k{kernel} s{stride} g{groups} {'+'.join(epilogue)}"[
        :44
    ]
    tolerance = 0.02 if dtype is DType.BF16 else 0.004 if dtype is DType.F16 else 1e-5
    return Case(name, build_graph, peer, tolerance, are_images=True)


def convolution_cases() -> list[Case]:
    half, single = DType.F16, DType.F32
    return [
        conv_case(3, 224, 64, 7, half, "bias", "relu", stride=2, raw=True),
        conv_case(64, 56, 64, 1, half, "bias", "relu"),
        conv_case(64, 56, 64, 3, half, "bias", "relu"),
        conv_case(64, 56, 256, 1, half, "bias", "residual", "relu"),
        conv_case(256, 14, 256, 3, half, "bias", "relu"),
        conv_case(1024, 14, 256, 1, half, "bias", "relu"),
        conv_case(512, 7, 512, 3, half, "bias", "relu"),
        conv_case(1024, 14, 2048, 1, half, "bias", stride=2),
        conv_case(32, 56, 32, 3, DType.BF16, "bias", "silu"),
        conv_case(96, 56, 96, 3, half, "bias", "clip6", groups=96),
        conv_case(240, 28, 240, 5, half, "bias", "silu", groups=240, stride=2),
        conv_case(96, 56, 24, 1, half, "bias", "clip6"),
        conv_case(128, 28, 128, 3, half, "bias", "relu", groups=32),
        conv_case(64, 28, 32, 4, half, "bias", stride=2, is_transposed=True),
        conv_case(32, 12, 64, 3, half, "bias", "relu", axes=3),
        conv_case(30, 19, 50, 3, half, "bias", "hard_swish"),
        conv_case(3, 224, 64, 7, single, "bias", "relu", stride=2, raw=True),
        conv_case(64, 56, 64, 3, single, "bias", "relu"),
        conv_case(256, 14, 256, 3, single, "bias", "residual", "relu"),
        conv_case(96, 56, 96, 3, single, "bias", "clip6", groups=96),
        conv_case(16, 9, 12, 3, single, "bias", stride=2, is_transposed=True, groups=2),
        conv_case(64, 56, 64, 3, half, "bias", "relu", batch=32),
    ]


# ---- quantized tensors, einsums


def op_case(op: str, arrays: dict[str, np.ndarray], views: Any = None, **attrs: Any) -> Case:
    def build_graph(graph: Graph) -> dict[str, np.ndarray]:
        values = [graph.add_input(name, TensorType(DType.of(x.dtype), x.shape)) for name, x in arrays.items()]
        missing = 0 if op == "einsum" else len(native(op).operands) - len(values)
        graph.set_outputs([graph.append(native(op), [*values, *[None] * missing], attrs).output])
        return arrays

    name = f"{op} {[list(x.shape) for x in arrays.values()]}"[:44]
    return Case(name, build_graph, None, 1e-3, views or {}, are_images="conv" in op)


def other_cases() -> list[Case]:
    rng = np.random.default_rng(1)

    def whole(shape: Sequence[int], dtype: Any = np.int8) -> np.ndarray:
        return rng.integers(0, 90, tuple(shape)).astype(dtype)

    def scale(value: float) -> np.ndarray:
        return np.array(value, np.float32)

    zero = np.array(5, np.int8)
    bytes_ = {"a": whole((64, 128)), "b": whole((128, 96))}
    heads = {"a": drawn((2, 8, 64, 32), DType.F16), "b": drawn((2, 8, 48, 32), DType.F16)}
    quantized = {"a": whole((64, 128)), "sa": scale(0.1), "za": zero, "b": whole((128, 96)), "sb": scale(0.02)}
    image = {"x": whole((1, 32, 28, 28)), "sx": scale(0.1), "zx": zero, "w": whole((64, 32, 3, 3)), "sw": scale(0.02)}
    window = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "groups": 1}
    return [
        op_case("matmul_integer", bytes_, {"b": swapped}),
        op_case("matmul_integer", {"a": whole((64, 128), np.uint8), "b": whole((128, 96)), "z": np.array(3, np.uint8)}),
        op_case("qlinear_matmul", quantized | {"zb": zero, "sy": scale(3.0), "zy": zero}),
        op_case("qlinear_conv", image | {"zw": zero, "sy": scale(3.0), "zy": zero}, **window),
        op_case("einsum", heads, equation="bhtd,bhsd->bhts"),
        op_case("einsum", {"a": drawn((40, 50), DType.F32)}, equation="ij->j"),
    ]


FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "matmuls": matmul_cases,
    "attention": attention_cases,
    "convolutions": convolution_cases,
    "others": other_cases,
}
