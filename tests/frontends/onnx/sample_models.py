"""Small models in ONNX's text form, each with something particular in it."""

import numpy as np
import onnx
from onnx import ModelProto

_HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'


def parsed(text: str) -> ModelProto:
    """The model that a text describes; a head with opset 21 is added when it has none."""
    has_head = text.lstrip().startswith("<")
    return onnx.parser.parse_model(text if has_head else _HEAD + text)


def convolutions() -> ModelProto:
    """Weights, a normalization, pooling, a dense layer."""
    model = parsed("""net (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w, float[4] b, float[5, 64] dense)
    => (float[N, 5] y) {
      c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
      r = Relu(c)
      p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
      f = Flatten(p)
      y = Gemm <transB = 1> (f, dense)
    }""")
    return with_weights(model, "w", "b", "dense")


def shapes() -> ModelProto:
    """Shape arithmetic over two symbols, as exporters write it."""
    return parsed("""net (float[B, T, 12] x) => (float[B, H, T, 4] y) {
      shape = Shape(x)
      zero = Constant <value = int64 {0}> ()
      one = Constant <value = int64 {1}> ()
      batch = Gather(shape, zero)
      length = Gather(shape, one)
      axes = Constant <value = int64[1] {0}> ()
      b = Unsqueeze(batch, axes)
      t = Unsqueeze(length, axes)
      heads = Constant <value = int64[2] {3, 4}> ()
      target = Concat <axis = 0> (b, t, heads)
      r = Reshape(x, target)
      y = Transpose <perm = [0, 2, 1, 3]> (r)
    }""")


def functions() -> ModelProto:
    """Local functions that call each other, with an attribute handed on."""
    return parsed("""
    <ir_version: 10, opset_import: ["": 21, "local": 1]>
    net (float[N, 4] x) => (float[N, 4] y) {
      h = local.twice <slope: float = 0.5> (x)
      y = local.leak <alpha: float = 0.25> (h)
    }
    <domain: "local", opset_import: ["": 21]>
    leak <alpha> (a) => (b) {
      b = LeakyRelu <alpha: float = @alpha> (a)
    }
    <domain: "local", opset_import: ["": 21, "local": 1]>
    twice <slope> (a) => (b) {
      once = local.leak <alpha: float = @slope> (a)
      b = local.leak <alpha: float = @slope> (once)
    }
    """)


def branches() -> ModelProto:
    """A conditional and a loop that read values around them."""
    return parsed("""net (float[N] x, bool go, int64 trips) => (float[N] y, float[M] z) {
      picked = If (go) <
        then_branch = yes () => (float[N] a) { a = Neg(x) },
        else_branch = no () => (float[N] b) { b = Exp(x) }
      >
      y, z = Loop (trips, go, picked) <
        body = step (int64 i, bool c, float[N] state) => (bool c_out, float[N] next, float s) {
          c_out = Identity(c)
          next = Add(state, x)
          zero = Constant <value = int64[1] {0}> ()
          s = ReduceSum <keepdims = 0> (next, zero)
        }
      >
    }""")


def sequences() -> ModelProto:
    """Values that are no tensors, and text."""
    return parsed("""net (float[N] x, string[K] words) => (float[M] y, string[L] shorter) {
      s = SequenceConstruct(x, x)
      y = ConcatFromSequence <axis = 0> (s)
      shorter = StringNormalizer <case_change_action = "LOWER", stopwords = ["a"]> (words)
    }""")


def sparse() -> ModelProto:
    """A sparse initializer."""
    model = parsed("net (float[3, 4] x) => (float[3, 4] y) { y = Add(x, weight) }")
    values = onnx.numpy_helper.from_array(np.array([1.5, -2.0], np.float32), "weight")
    indices = onnx.numpy_helper.from_array(np.array([1, 7], np.int64), "places")
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [3, 4]))
    return model


def with_weights(model: ModelProto, *names: str) -> ModelProto:
    """Makes inputs of static shape initializers with drawn content."""
    generator = np.random.default_rng(0)
    infos = {info.name: info for info in model.graph.input}
    for name in names:
        shape = [dim.dim_value for dim in infos[name].type.tensor_type.shape.dim]
        content = generator.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
        model.graph.input.remove(infos[name])
    return model


ALL = (convolutions, shapes, functions, branches, sequences, sparse)
