"""Random networks: chains of layers with constant weights, as folding passes want them, and not quite as they do.

`network(seed)` starts from one input of 2 to 4 axes and adds layers: convolutions, matmuls, batch norms, scales,
biases, paddings, pools, activations, reshapes, transposes, residual branches.
"""

from collections.abc import Callable

import numpy as np
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph, Value
from capgraph.ir.types import DType, TensorType

from tests.strategies.chooser import RandomChooser
from tests.strategies.draw import GraphDraw

MAX_LAYERS = 8
ATTEMPTS = 5
_DTYPES = (DType.F32, DType.F32, DType.F32, DType.F64, DType.F16)

Layer = Callable[["_Network", Value], Value]


def network(seed: int) -> Graph:
    """The network number `seed`."""
    made = _Network(RandomChooser(seed))
    for _ in range(made.choose.integer(2, MAX_LAYERS)):
        made.add_layer()
    made.finish()
    return made.draw.graph


class _Network:
    def __init__(self, choose: RandomChooser) -> None:
        self.choose = choose
        self.draw = GraphDraw(choose, lambda _: None)
        self.dtype = choose.pick(_DTYPES)
        batch: Dim = symbol("B") if choose.chance(50) else choose.integer(1, 3)
        spatial: list[Dim] = [choose.integer(3, 6) for _ in range(choose.integer(0, 2))]
        if spatial and choose.chance(20):
            spatial[-1] = symbol("T")
        self.last = self.draw.input(TensorType(self.dtype, (batch, choose.integer(1, 4), *spatial)))
        self.history = [self.last]

    def add_layer(self) -> None:
        """One more layer, read mostly from the last one; none where rules refuse everything that is tried."""
        source = self.last if self.choose.chance(90) else self.choose.pick(self.history)
        for _ in range(ATTEMPTS):
            mark = self.draw.mark()
            try:
                self.last = self.choose.pick(LAYERS)(self, source)
            except CapgraphError:
                self.draw.roll_back(mark)
                continue
            self.history.append(self.last)
            return

    def finish(self) -> None:
        graph = self.draw.graph
        ends = [value for node in graph.nodes for value in node.outputs if not value.has_uses]
        if self.choose.chance(15):
            ends.append(self.choose.pick(self.history))
        graph.set_outputs(ends or [self.last])

    def weight(self, *shape: int, positive: bool = False) -> Value:
        """A constant; now and then an input instead, or with a zero or an infinity in it."""
        if self.choose.chance(6):
            return self.draw.input(TensorType(self.dtype, shape))
        content = self.choose.generator().normal(0, 1, shape)
        if self.choose.chance(5) and content.size:
            content.reshape(-1)[0] = self.choose.pick((0.0, -0.0, np.inf, 1e30))
        content = np.abs(content) + 0.1 if positive else content
        with np.errstate(all="ignore"):
            return self.draw.emit("constant", value=Constant(content.astype(self.dtype.numpy), self.dtype))

    def channels(self, x: Value, axis: int = 1) -> int:
        """The size of an axis that weights depend on. Raises what a rule would where it is symbolic."""
        size = x.shape[axis] if -len(x.shape) <= axis < len(x.shape) else None
        if not isinstance(size, int):
            raise CapgraphError("a weight needs a plain size")
        return size


def _conv(net: _Network, x: Value) -> Value:
    spatial, channels = len(x.shape) - 2, net.channels(x)
    groups = net.choose.pick((1, 1, channels))
    out = groups * net.choose.integer(1, 3)
    kernel = [net.choose.integer(1, 3) for _ in range(spatial)]
    weight = net.weight(out, channels // groups, *kernel)
    bias = net.weight(out) if net.choose.chance(50) else None
    return net.draw.emit(
        "conv",
        x,
        weight,
        bias,
        strides=net.draw.ints(spatial, 1, 2),
        pads=net.draw.ints(2 * spatial, 0, 1),
        dilations=(1,) * spatial,
        groups=groups,
    )


def _conv_transpose(net: _Network, x: Value) -> Value:
    spatial, channels = len(x.shape) - 2, net.channels(x)
    out = net.choose.integer(1, 3)
    weight = net.weight(channels, out, *(net.choose.integer(1, 3) for _ in range(spatial)))
    return net.draw.emit(
        "conv_transpose",
        x,
        weight,
        net.weight(out) if net.choose.chance(50) else None,
        strides=(1,) * spatial,
        pads=(0,) * (2 * spatial),
        output_padding=(0,) * spatial,
        dilations=(1,) * spatial,
        groups=1,
    )


def _matmul(net: _Network, x: Value) -> Value:
    weight = net.weight(net.channels(x, -1), net.choose.integer(1, 4))
    return net.draw.emit("matmul", x, weight)


def _gemm(net: _Network, x: Value) -> Value:
    size, out, turned = net.channels(x, -1), net.choose.integer(1, 4), net.choose.chance(50)
    weight = net.weight(*((out, size) if turned else (size, out)))
    bias = net.weight(*net.choose.pick(((out,), (1, out), (1, 1), ()))) if net.choose.chance(60) else None
    options = {"alpha": net.choose.pick((1.0, 1.0, 0.5)), "beta": net.choose.pick((1.0, 1.0, 2.0))}
    return net.draw.emit("gemm", x, weight, bias, trans_a=False, trans_b=turned, **options)


def _batch_norm(net: _Network, x: Value) -> Value:
    count = net.channels(x)
    rest = [net.weight(count), net.weight(count), net.weight(count), net.weight(count, positive=True)]
    return net.draw.emit("batch_norm", x, *rest, epsilon=1e-5)


def _constant_operand(net: _Network, x: Value) -> Value:
    op = net.choose.pick(("mul", "add", "sub", "div", "mul", "add"))
    shape = [dim if isinstance(dim, int) and net.choose.chance(50) else 1 for dim in x.shape]
    other = net.weight(*shape[net.choose.integer(0, len(shape)) :])
    return net.draw.emit(op, *((x, other) if net.choose.chance(70) else (other, x)))


def _pad(net: _Network, x: Value) -> Value:
    spatial = len(x.shape) - 2
    begins, ends = net.draw.ints(spatial, 0, 2), net.draw.ints(spatial, 0, 1)
    value = net.draw.scalar(net.dtype, net.choose.pick((0.0, 0.0, -np.inf, 1.0))) if net.choose.chance(40) else None
    return net.draw.emit("pad", x, value, pads=(0, 0, *begins, 0, 0, *ends), mode="constant")


def _pool(net: _Network, x: Value) -> Value:
    spatial = len(x.shape) - 2
    ones = (1,) * spatial
    options = {"kernel": (2,) * spatial, "strides": ones, "pads": (0,) * (2 * spatial), "dilations": ones}
    if net.choose.chance(50):
        return net.draw.emit("max_pool", x, **options)
    return net.draw.emit("average_pool", x, count_include_pad=net.choose.chance(50), **options)


def _activation(net: _Network, x: Value) -> Value:
    return net.draw.emit(net.choose.pick(("relu", "sigmoid", "tanh", "neg", "abs", "silu", "softplus")), x)


def _transpose(net: _Network, x: Value) -> Value:
    perm = [axis % len(x.shape) for axis in net.draw.axes(len(x.shape), len(x.shape))]
    return net.draw.emit("transpose", x, perm=tuple(perm))


def _flatten(net: _Network, x: Value) -> Value:
    size: Dim = 1
    for dim in x.shape[1:]:
        size = size * dim
    return net.draw.emit("reshape", x, shape=(*x.shape[:1], size))


def _add_axis(net: _Network, x: Value) -> Value:
    return net.draw.emit("unsqueeze", x, axes=(net.choose.integer(0, len(x.shape)),))


def _reduce(net: _Network, x: Value) -> Value:
    op = net.choose.pick(("reduce_mean", "reduce_sum", "reduce_max"))
    return net.draw.emit(op, x, axes=(-1,), keep_dims=net.choose.chance(50))


def _norm(net: _Network, x: Value) -> Value:
    size = net.channels(x, -1)
    scale = net.weight(size) if net.choose.chance(50) else None
    return net.draw.emit("layer_norm", x, scale, net.weight(size) if scale else None, axis=-1, epsilon=1e-5)


def _softmax(net: _Network, x: Value) -> Value:
    return net.draw.emit("softmax", x, axis=-1)


def _residual(net: _Network, x: Value) -> Value:
    alike = [value for value in net.history if value.type == x.type]
    return net.draw.emit("add", x, net.choose.pick(alike or [x]))


def _two_matmuls(net: _Network, x: Value) -> Value:
    """Matmuls that share an input, added or joined."""
    size, out = net.channels(x, -1), net.choose.integer(1, 3)
    first, second = (net.draw.emit("matmul", x, net.weight(size, out)) for _ in range(2))
    if net.choose.chance(50):
        return net.draw.emit("concat", first, second, axis=-1)
    return net.draw.emit("mul", net.draw.emit("silu", first), second)


LAYERS: tuple[Layer, ...] = (
    _conv,
    _conv,
    _batch_norm,
    _batch_norm,
    _constant_operand,
    _constant_operand,
    _matmul,
    _gemm,
    _conv_transpose,
    _pad,
    _pool,
    _activation,
    _transpose,
    _flatten,
    _add_axis,
    _reduce,
    _norm,
    _softmax,
    _residual,
    _two_matmuls,
)
