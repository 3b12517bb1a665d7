"""A transformer encoder in ONNX, written with onnx's own helpers, and the tokenizer that goes with it.

The shape of BERT (https://arxiv.org/abs/1810.04805): token and position embeddings, then blocks of multi-head
attention and a feed-forward network, each followed by layer normalization. Batch and length are symbolic, and head
splitting takes its sizes from the input while running (Shape, Gather, Concat, Reshape), as exporters write it. Weights
are random.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

PADDING = 0  # the token of positions that do not count
VOCABULARY = 257  # padding, then the 256 bytes


@dataclass(frozen=True)
class Size:
    """How large an encoder is."""

    layers: int = 4
    hidden: int = 256
    heads: int = 4
    inner: int = 1024
    longest: int = 128


def tokenize(texts: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """The UTF-8 bytes of the texts as tokens i64[batch, length], padded to the longest, and the mask of real ones."""
    encoded = [[byte + 1 for byte in text.encode()] for text in texts]
    length = max(map(len, encoded))
    tokens = np.array([row + [PADDING] * (length - len(row)) for row in encoded], dtype=np.int64)
    return {"input_ids": tokens, "attention_mask": (tokens != PADDING).astype(np.int64)}


def encoder(size: Size = Size(), seed: int = 0) -> onnx.ModelProto:
    """The model: `input_ids` and `attention_mask` i64[batch, length] to `embedding` f32[batch, hidden], of length 1."""
    writer = _Writer(np.random.default_rng(seed))
    bias = writer.attention_bias("attention_mask")
    x = writer.embedded("input_ids", size)
    for layer in range(size.layers):
        attended = writer.attention(f"layer{layer}.attention", x, bias, size)
        x = writer.normalized(f"layer{layer}.norm1", writer.op("Add", x, attended), size.hidden)
        inner = writer.gelu(writer.dense(f"layer{layer}.expand", x, size.hidden, size.inner))
        shrunk = writer.dense(f"layer{layer}.shrink", inner, size.inner, size.hidden)
        x = writer.normalized(f"layer{layer}.norm2", writer.op("Add", x, shrunk), size.hidden)
    writer.pooled(x, "attention_mask", "embedding")
    rows = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "length"]) for n in _INPUTS]
    result = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", size.hidden])
    graph = helper.make_graph(writer.nodes, "encoder", rows, [result], initializer=writer.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    return model


_INPUTS = ("input_ids", "attention_mask")


class _Writer:
    """Collects nodes and weights; methods give the name of the value that they make."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._generator = generator

    def op(self, kind: str, *inputs: str, output: str = "", name: str = "", **attributes: Any) -> str:
        number = len(self.nodes)
        made = output or f"{kind.lower()}_{number}"
        self.nodes.append(helper.make_node(kind, inputs, [made], name=name or f"{kind}_{number}", **attributes))
        return made

    def weight(self, name: str, content: Any, dtype: Any = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(content, dtype=dtype), name))
        return name

    def constant(self, content: Any, dtype: Any = np.int64) -> str:
        return self.weight(f"constant_{len(self.weights)}", content, dtype)

    def random(self, name: str, *shape: int, deviation: float) -> str:
        return self.weight(name, self._generator.standard_normal(shape) * deviation)

    def dense(self, name: str, x: str, fan_in: int, fan_out: int) -> str:
        weight = self.random(f"{name}.weight", fan_in, fan_out, deviation=1 / math.sqrt(fan_in))
        product = self.op("MatMul", x, weight, name=f"{name}.matmul")
        return self.op("Add", product, self.random(f"{name}.bias", fan_out, deviation=0.02), name=f"{name}.add")

    def normalized(self, name: str, x: str, hidden: int) -> str:
        scale, bias = self.weight(f"{name}.scale", np.ones(hidden)), self.weight(f"{name}.bias", np.zeros(hidden))
        return self.op("LayerNormalization", x, scale, bias, name=name, axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        """GELU as exporters write it: x / 2 * (1 + erf(x / sqrt(2)))."""
        scaled = self.op("Div", x, self.constant(math.sqrt(2), np.float32))
        doubled = self.op("Add", self.op("Erf", scaled), self.constant(1, np.float32))
        return self.op("Mul", self.op("Mul", x, doubled), self.constant(0.5, np.float32))

    def size_of(self, x: str, axis: int) -> str:
        """One size of `x` as i64[1]."""
        return self.op("Gather", self.op("Shape", x), self.constant([axis]), axis=0)

    def embedded(self, tokens: str, size: Size) -> str:
        words = self.random("embedding.words", VOCABULARY, size.hidden, deviation=1)
        places = self.random("embedding.places", size.longest, size.hidden, deviation=0.1)
        start, axis = self.constant([0]), self.constant([0])
        here = self.op("Slice", places, start, self.size_of(tokens, 1), axis)
        x = self.op("Add", self.op("Gather", words, tokens), here)
        return self.normalized("embedding.norm", x, size.hidden)

    def attention_bias(self, mask: str) -> str:
        """0 where the mask is 1, a large negative number elsewhere: f32[batch, 1, 1, length]."""
        real = self.op("Cast", self.op("Unsqueeze", mask, self.constant([1, 2])), to=TensorProto.FLOAT)
        missing = self.op("Sub", self.constant(1, np.float32), real)
        return self.op("Mul", missing, self.constant(-1e4, np.float32))

    def attention(self, name: str, x: str, bias: str, size: Size) -> str:
        depth = size.hidden // size.heads
        query, key, value = (self.dense(f"{name}.{role}", x, size.hidden, size.hidden) for role in ("q", "k", "v"))
        query, value = (self.heads(each, [0, 2, 1, 3], size.heads, depth) for each in (query, value))
        scores = self.op("MatMul", query, self.heads(key, [0, 2, 3, 1], size.heads, depth), name=f"{name}.scores")
        scaled = self.op("Div", scores, self.constant(math.sqrt(depth), np.float32))
        chances = self.op("Softmax", self.op("Add", scaled, bias), axis=-1, name=f"{name}.softmax")
        mixed = self.op("MatMul", chances, value, name=f"{name}.mix")
        joined = self.reshaped(self.op("Transpose", mixed, perm=[0, 2, 1, 3]), x, [size.hidden])
        return self.dense(f"{name}.out", joined, size.hidden, size.hidden)

    def heads(self, x: str, order: Sequence[int], heads: int, depth: int) -> str:
        """f32[batch, length, heads * depth] as four axes in the given order."""
        return self.op("Transpose", self.reshaped(x, x, [heads, depth]), perm=list(order))

    def reshaped(self, x: str, like: str, rest: Sequence[int]) -> str:
        """`x` with batch and length as `like` has them, then `rest`."""
        sizes = [self.size_of(like, 0), self.size_of(like, 1), self.constant(list(rest))]
        return self.op("Reshape", x, self.op("Concat", *sizes, axis=0))

    def pooled(self, x: str, mask: str, output: str) -> None:
        """The mean over the real positions, of length 1."""
        real = self.op("Cast", self.op("Unsqueeze", mask, self.constant([2])), to=TensorProto.FLOAT)
        axis = self.constant([1])
        total = self.op("ReduceSum", self.op("Mul", x, real), axis, keepdims=0)
        mean = self.op("Div", total, self.op("ReduceSum", real, axis, keepdims=0))
        length = self.op("ReduceL2", mean, self.constant([1]), keepdims=1)
        self.op("Div", mean, length, output=output)
