"""Recurrent layers: one native node for each layer, both directions together.

PyTorch and the native ops order gates differently; the weights are put in order by nodes, which folding does away with.
"""

from collections.abc import Sequence
from typing import Any

from ....ir.graph import Value
from ....ir.types import DType
from ..call import Call, Lowering, NoLowering

_LSTM_GATES = (0, 3, 1, 2)  # PyTorch: input, forget, cell, output; native: input, output, forget, cell
_GRU_GATES = (1, 0, 2)  # PyTorch: reset, update, new; native: update, reset, hidden


def _in_order(c: Call, weight: Value, gates: Sequence[int]) -> Value:
    """The blocks of rows of a weight [gates * H, ...] in another order."""
    if len(gates) == 1:
        return weight
    rows = weight.shape[0] // len(gates)
    blocks = c.ops("split", weight, axis=0, sizes=(rows,) * len(gates))
    return c.op("concat", *(blocks[gate] for gate in gates), axis=0)


def _joined(c: Call, parts: Sequence[Value]) -> Value:
    """Directions along a new first axis."""
    return c.op("concat", *(c.unsqueeze(part, 0) for part in parts), axis=0)


def _layer_weights(
    c: Call, params: Sequence[Value], has_biases: bool, gates: Sequence[int]
) -> tuple[Value, Value, Value | None]:
    """The weights [D, G * H, ...] of a layer of D directions, from those of PyTorch one direction behind another."""
    count = 4 if has_biases else 2
    directions = [params[start : start + count] for start in range(0, len(params), count)]
    ordered = [[_in_order(c, weight, gates) for weight in direction] for direction in directions]
    inputs, hidden = (_joined(c, [weights[place] for weights in ordered]) for place in (0, 1))
    if not has_biases:
        return inputs, hidden, None
    return inputs, hidden, _joined(c, [c.op("concat", weights[2], weights[3], axis=0) for weights in ordered])


def _layers(
    c: Call,
    native: str,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    settings: Sequence[Any],
    gates: Sequence[int],
    **attrs: Any,
) -> list[Value]:
    """All layers of a network: the output, and the last content of each state [layers * D, B, H]."""
    has_biases, layers, dropout, train, bidirectional, batch_first = settings
    if (dropout and train) or len(params) % layers:
        raise NoLowering("dropout between layers")
    directions = 2 if bidirectional else 1
    each = len(params) // layers
    if each != directions * (4 if has_biases else 2):
        raise NoLowering("projections")
    x = c.swap(x, 0, 1) if batch_first else x
    kept: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        weights = _layer_weights(c, params[layer * each : (layer + 1) * each], has_biases, gates)
        first = layer * directions
        starts = [c.slice(state, 0, first, first + directions) for state in states]
        direction = "bidirectional" if bidirectional else "forward"
        y, *last = c.ops(native, x, *weights, None, *starts, *_no_peepholes(native), direction=direction, **attrs)
        steps, _, batch, hidden = y.shape
        x = c.reshape(c.swap(y, 1, 2), (steps, batch, directions * hidden))
        for states_of, content in zip(kept, last, strict=True):
            states_of.append(content)
    output = c.swap(x, 0, 1) if batch_first else x
    return [output, *(part[0] if layers == 1 else c.op("concat", *part, axis=0) for part in kept)]


def _no_peepholes(native: str) -> tuple[None, ...]:
    return (None,) if native == "lstm" else ()


def _lstm(c: Call, x: Value, states: Sequence[Value], params: Sequence[Value], *settings: Any) -> list[Value]:
    return _layers(c, "lstm", x, states, params, settings, _LSTM_GATES)


def _gru(c: Call, x: Value, state: Value, params: Sequence[Value], *settings: Any) -> list[Value]:
    return _layers(c, "gru", x, [state], params, settings, _GRU_GATES, linear_before_reset=True)


def _rnn(activation: str) -> Lowering:
    def lower(c: Call, x: Value, state: Value, params: Sequence[Value], *settings: Any) -> list[Value]:
        directions = 2 if settings[4] else 1
        return _layers(c, "rnn", x, [state], params, settings, (0,), activations=(activation,) * directions)

    return lower


# ---- single cells, of which PyTorch makes one operator on CUDA


def _gates(c: Call, count: int, given: Value, bias: Value | None) -> tuple[Value, ...]:
    """One half of the gates' sums, [B, count * H], in f32 for small floats, as `count` parts."""
    wide = _wide(c, given)
    total = wide if bias is None else c.op("add", wide, _wide(c, bias))
    return c.ops("split", total, axis=1, sizes=(given.shape[1] // count,) * count)


def _wide(c: Call, x: Value) -> Value:
    return c.cast(x, DType.F32) if x.tensor.dtype.is_small_float else x


def _lstm_cell(
    c: Call, inputs: Value, hidden: Value, cell: Value, bias: Value | None = None, other: Value | None = None
) -> tuple[Value, Value, None]:
    if c.wants(2):
        raise NoLowering("the gates of an LSTM cell")
    pairs = zip(_gates(c, 4, inputs, bias), _gates(c, 4, hidden, other), strict=True)
    opening, forgetting, new, output = (c.op("add", *pair) for pair in pairs)
    kept = c.op("mul", c.op("sigmoid", forgetting), _wide(c, cell))
    content = c.op("add", kept, c.op("mul", c.op("sigmoid", opening), c.op("tanh", new)))
    result = c.op("mul", c.op("sigmoid", output), c.op("tanh", content))
    return c.cast(result, c.dtype), c.cast(content, c.dtype), None


def _gru_cell(
    c: Call, inputs: Value, hidden: Value, state: Value, bias: Value | None = None, other: Value | None = None
) -> tuple[Value, None]:
    if c.wants(1):
        raise NoLowering("the gates of a GRU cell")
    left, right = _gates(c, 3, inputs, bias), _gates(c, 3, hidden, other)
    reset, update = (c.op("sigmoid", c.op("add", left[gate], right[gate])) for gate in (0, 1))
    new = c.op("tanh", c.op("add", left[2], c.op("mul", reset, right[2])))
    moved = c.op("mul", update, c.op("sub", _wide(c, state), new))
    return c.cast(c.op("add", new, moved), c.dtype), None


TABLE: dict[str, Lowering] = {
    "aten._thnn_fused_lstm_cell": _lstm_cell,
    "aten._thnn_fused_gru_cell": _gru_cell,
    "aten.lstm.input": _lstm,
    "aten.gru.input": _gru,
    "aten.rnn_tanh.input": _rnn("Tanh"),
    "aten.rnn_relu.input": _rnn("Relu"),
}
