"""Recurrent cells over a sequence: lstm, gru, rnn, with the operands and attributes of the ONNX operators.

Sequences are [T, B, I] (`layout` 0) or [B, T, I] (`layout` 1). The weights have a leading axis of D directions, 2 when
`direction` is bidirectional, else 1. All steps of the sequence are projected by one matmul before the recurrence runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind, Attrs
from ...constant import Array
from ...dims import Dim, product
from ...dims.constraints import require_equal
from ...errors import TypeRuleError
from ...op import FLOATS, INDICES, Infer, Meaning, Op, Trait, op
from ...types import TensorType, Type
from ..elementwise import is_small_float
from ..rules import require_rank

Activation = Callable[[Array], Array]
States = tuple[Array, ...]
Step = Callable[[Array, States], States]

# ---- activations


def _sigmoid(x: Array) -> Array:
    tail = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, x.dtype.type(1), tail) / (1 + tail))


def _softsign(x: Array) -> Array:
    return np.asarray(x / (1 + np.abs(x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


def _leaky_relu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, alpha * x)


def _thresholded_relu(x: Array, alpha: float) -> Array:
    return np.where(x >= alpha, x, np.zeros_like(x))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _affine(x: Array, alpha: float, beta: float) -> Array:
    return alpha * x + beta


def _scaled_tanh(x: Array, alpha: float, beta: float) -> Array:
    return alpha * np.tanh(beta * x)


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    return np.clip(alpha * x + beta, 0, 1)


_ACTIVATIONS: dict[str, tuple[Callable[..., Array], tuple[float, ...]]] = {
    "relu": (partial(np.maximum, 0), ()),
    "tanh": (np.tanh, ()),
    "sigmoid": (_sigmoid, ()),
    "softsign": (_softsign, ()),
    "softplus": (_softplus, ()),
    "leakyrelu": (_leaky_relu, (0.01,)),
    "thresholdedrelu": (_thresholded_relu, (1.0,)),
    "elu": (_elu, (1.0,)),
    "affine": (_affine, (1.0, 0.0)),
    "scaledtanh": (_scaled_tanh, (1.0, 1.0)),
    "hardsigmoid": (_hard_sigmoid, (0.2, 0.5)),
}
"""The functions by lower-case ONNX name, and the defaults of alpha and beta where they have them."""


def _activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Activation]:
    """The functions in order; those that have an alpha or beta use up the given values in that order."""
    chosen: list[Activation] = []
    given = (iter(alphas), iter(betas))
    for name in names:
        function, defaults = _ACTIVATIONS[name.lower()]
        parameters = [next(values, default) for values, default in zip(given, defaults, strict=False)]
        chosen.append(partial(_parametrized, function, parameters))
    return chosen


def _clipped(function: Activation, clip: float, x: Array) -> Array:
    return function(np.clip(x, -clip, clip))


def _parametrized(function: Callable[..., Array], parameters: Sequence[float], x: Array) -> Array:
    return function(x, *parameters)


# ---- type rules


@dataclass(frozen=True)
class _Settings:
    """The attributes that all cells have."""

    direction: str
    activations: tuple[str, ...]
    activation_alpha: tuple[float, ...]
    activation_beta: tuple[float, ...]
    clip: float | None
    layout: int

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def functions(self, cell: "_Cell") -> list[Activation]:
        """The activations of all directions; those of gates clip what they get."""
        names = self.activations or cell.default * self.directions
        chosen = _activations(names, self.activation_alpha, self.activation_beta)
        if self.clip is None:
            return chosen
        clips = cell.clips * self.directions
        return [partial(_clipped, f, self.clip) if c else f for f, c in zip(chosen, clips, strict=True)]


@dataclass(frozen=True)
class _Cell:
    """What the type rules know of a kind of cell."""

    name: str
    gates: int
    states: int
    default: tuple[str, ...]
    clips: tuple[bool, ...]  # whether `clip` bounds what goes into each of the activations

    def types(
        self,
        x: TensorType,
        w: TensorType,
        r: TensorType,
        b: TensorType | None,
        lengths: TensorType | None,
        *states: TensorType | None,
        **settings: Any,
    ) -> tuple[TensorType, ...]:
        """The types of the hidden values of all steps and of the last states."""
        given = _Settings(**settings)
        for operand, name in ((x, "x"), (w, "w"), (r, "r")):
            require_rank(operand, 3, f"{name} of {self.name}")
        self._check_activations(given)
        steps, batch = (x.dims[1], x.dims[0]) if given.layout else (x.dims[0], x.dims[1])
        count, hidden = given.directions, r.dims[2]
        rows = hidden * self.gates
        self.check(w, (count, rows, x.dims[2]), "w")
        self.check(r, (count, rows, hidden), "r")
        self.check(b, (count, rows * 2), "b")
        self.check(lengths, (batch,), "lengths")
        state = (batch, count, hidden) if given.layout else (count, batch, hidden)
        for ty, name in zip(states, ("initial_h", "initial_c"), strict=False):
            self.check(ty, state, name)
        every = (batch, steps, count, hidden) if given.layout else (steps, count, batch, hidden)
        return (x.with_shape(every), *(x.with_shape(state),) * self.states)

    def check(self, ty: TensorType | None, shape: Sequence[Dim], name: str) -> None:
        """Raises unless an operand, if it is present, has this shape."""
        if ty is None:
            return
        require_rank(ty, len(shape), f"{name} of {self.name}")
        for found, wanted in zip(ty.dims, shape, strict=True):
            require_equal(wanted, found, f"{name} of {self.name} must have shape [{', '.join(map(str, shape))}]")

    def _check_activations(self, given: _Settings) -> None:
        for name in given.activations:
            if name.lower() not in _ACTIVATIONS:
                raise TypeRuleError(f"{self.name}: there is no activation {name}", remedy=", ".join(_ACTIVATIONS))
        wanted = len(self.default) * given.directions
        if len(given.activations) not in {0, wanted}:
            raise TypeRuleError(f"{self.name} takes {wanted} activations, not {len(given.activations)}")

    def flops(self, inputs: Sequence[Type | None], outputs: Sequence[Type], _attrs: Attrs) -> Dim:
        """Two operations for each weight and step of each sample; the gates themselves are small beside it."""
        w, every = inputs[1], outputs[0]
        if not (isinstance(w, TensorType) and isinstance(every, TensorType)):
            return 0
        hidden = every.dims[3]
        return product((2 * self.gates, every.size, w.dims[2] + hidden))


_LSTM = _Cell("lstm", gates=4, states=2, default=("Sigmoid", "Tanh", "Tanh"), clips=(True, True, False))
_GRU = _Cell("gru", gates=3, states=1, default=("Sigmoid", "Tanh"), clips=(True, True))
_RNN = _Cell("rnn", gates=1, states=1, default=("Tanh",), clips=(True,))


def lstm_type(*operands: TensorType | None, input_forget: bool, **settings: Any) -> tuple[TensorType, ...]:
    """All hidden values [T, D, B, H], the last hidden and cell state [D, B, H]; [B, T, D, H], [B, D, H] in layout 1."""
    *common, peepholes = operands
    types = _LSTM.types(*common, **settings)  # type: ignore[arg-type]  # the signature says which may be absent
    if peepholes is not None:
        every = types[0]
        _LSTM.check(peepholes, (_Settings(**settings).directions, every.dims[3] * 3), "peepholes")
    return types


def gru_type(*operands: TensorType | None, linear_before_reset: bool, **settings: Any) -> tuple[TensorType, ...]:
    """All hidden values [T, D, B, H] and the last [D, B, H]; [B, T, D, H] and [B, D, H] in layout 1."""
    return _GRU.types(*operands, **settings)  # type: ignore[arg-type]  # as above


def rnn_type(*operands: TensorType | None, **settings: Any) -> tuple[TensorType, ...]:
    """All hidden values [T, D, B, H] and the last [D, B, H]; [B, T, D, H] and [B, D, H] in layout 1."""
    return _RNN.types(*operands, **settings)  # type: ignore[arg-type]  # as above


# ---- meanings


@dataclass(frozen=True)
class _Sequence:
    """The operands that every cell has, time first, in the dtype to compute in."""

    x: Array
    lengths: Array | None
    is_reversed: tuple[bool, ...]
    layout: int
    result_dtype: np.dtype[np.floating]

    @classmethod
    def of(cls, x: Array, lengths: Array | None, given: _Settings) -> "_Sequence":
        wide = np.dtype(np.float32) if is_small_float(x) else x.dtype
        reverse = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[given.direction]
        return cls(_time_first(x, given.layout).astype(wide, copy=False), lengths, reverse, given.layout, x.dtype)

    def widened(self, operand: Array | None, index: int, shape: Sequence[int]) -> Array:
        """Entry `index` of an operand that has one for each direction, zeros of `shape` when it is absent."""
        if operand is None:
            return np.zeros(shape, self.x.dtype)
        return np.asarray(operand[index], dtype=self.x.dtype)

    def state(self, initial: Array | None, index: int, hidden: int) -> Array:
        """The initial state of a direction, [B, H]."""
        fronted = None if initial is None else _time_first(initial, self.layout)
        return self.widened(fronted, index, (self.x.shape[1], hidden))

    def run(self, index: int, w: Array, bias: Array, states: States, step: Step) -> tuple[Array, States]:
        """Steps through the sequence in one direction: the hidden value of each step [T, B, H], the last states.

        `step` gets the projected input of a step, `x @ wᵀ + bias`, and the states, and gives the next states, the
        hidden one first. Beyond the end of a sample the values are zero and its states stay.
        """
        steps, batch, features = self.x.shape
        order = self._order(self.is_reversed[index])
        x = self.x if order is None else self.x[order]
        projected = (x.reshape(steps * batch, features) @ w.T + bias).reshape(steps, batch, len(w))
        every = np.zeros((steps, *states[0].shape), self.x.dtype)
        for position in range(steps):
            following = step(projected[position], states)
            if self.lengths is not None:
                lives = (position < self.lengths)[:, np.newaxis]
                states = tuple(np.where(lives, new, old) for new, old in zip(following, states, strict=True))
                every[position] = np.where(lives, states[0], 0)
            else:
                states = following
                every[position] = states[0]
        return (every if order is None else every[order]), states

    def _order(self, is_reversed: bool) -> tuple[Array, Array] | slice | None:
        """What puts the steps into the order of the direction, and back; a sample is reversed within its own length."""
        if not is_reversed:
            return None
        if self.lengths is None:
            return slice(None, None, -1)
        position = np.arange(self.x.shape[0], dtype=np.int64).reshape(-1, 1)
        order = np.where(position < self.lengths, self.lengths - 1 - position, position)
        return order, np.arange(self.x.shape[1], dtype=np.int64)

    def joined(self, runs: Sequence[tuple[Array, States]]) -> tuple[Array, ...]:
        """The results of all directions in the layout and dtype of the op."""
        every = np.stack([hidden for hidden, _ in runs], axis=1)
        states = [np.stack(parts) for parts in zip(*(last for _, last in runs), strict=True)]
        if self.layout:
            every, states = every.transpose(2, 0, 1, 3), [state.swapaxes(0, 1) for state in states]
        return tuple(array.astype(self.result_dtype, copy=False) for array in (every, *states))


def _time_first(x: Array, layout: int) -> Array:
    return x.swapaxes(0, 1) if layout else x


def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    initial_h: Array | None,
    initial_c: Array | None,
    peepholes: Array | None,
    *,
    input_forget: bool,
    **settings: Any,
) -> tuple[Array, ...]:
    """Long short-term memory (ONNX LSTM). Gates: input, output, forget, cell; peepholes: input, output, forget.

    `lengths` [B] are the steps of each sample that count. `clip` bounds what goes into the activations of the gates,
    not the cell state that goes into the last one (so does ONNX Runtime; the operator's text leaves it open). With
    `input_forget` the forget gate is 1 - input gate.
    """
    given, hidden = _Settings(**settings), r.shape[2]
    sequence, functions = _Sequence.of(x, lengths, given), given.functions(_LSTM)
    runs: list[tuple[Array, States]] = []
    for index in range(given.directions):
        weights, recurrence = sequence.widened(w, index, ()), sequence.widened(r, index, ())
        bias = sequence.widened(b, index, (8 * hidden,))
        peeps = np.split(sequence.widened(peepholes, index, (3 * hidden,)), 3)
        step = _lstm_step(recurrence, peeps, functions[3 * index : 3 * index + 3], input_forget=input_forget)
        start = (sequence.state(initial_h, index, hidden), sequence.state(initial_c, index, hidden))
        runs.append(sequence.run(index, weights, bias[: 4 * hidden] + bias[4 * hidden :], start, step))
    return sequence.joined(runs)


def _lstm_step(r: Array, peepholes: Sequence[Array], functions: Sequence[Activation], *, input_forget: bool) -> Step:
    act, act_cell, act_out = functions
    peep_i, peep_o, peep_f = peepholes

    def step(projected: Array, states: States) -> States:
        h, c = states
        i, o, f, g = np.split(projected + h @ r.T, 4, axis=1)
        i = act(i + peep_i * c)
        f = 1 - i if input_forget else act(f + peep_f * c)
        c = f * c + i * act_cell(g)
        return act(o + peep_o * c) * act_out(c), c

    return step


def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    initial_h: Array | None,
    *,
    linear_before_reset: bool,
    **settings: Any,
) -> tuple[Array, ...]:
    """Gated recurrent unit (ONNX GRU): gates in the order update, reset, hidden.

    `lengths` [B] are the steps of each sample that count. `clip` bounds what goes into every activation. With
    `linear_before_reset` the reset gate applies after the hidden gate's matmul instead of before.
    """
    given, hidden = _Settings(**settings), r.shape[2]
    sequence, functions = _Sequence.of(x, lengths, given), given.functions(_GRU)
    runs: list[tuple[Array, States]] = []
    for index in range(given.directions):
        weights, recurrence = sequence.widened(w, index, ()), sequence.widened(r, index, ())
        bias_w, bias_r = np.split(sequence.widened(b, index, (6 * hidden,)), 2)
        make = _gru_step_linear_first if linear_before_reset else _gru_step
        step = make(recurrence, bias_r, functions[2 * index : 2 * index + 2])
        runs.append(sequence.run(index, weights, bias_w, (sequence.state(initial_h, index, hidden),), step))
    return sequence.joined(runs)


def _gru_step(r: Array, bias: Array, functions: Sequence[Activation]) -> Step:
    act, act_hidden = functions
    size = 2 * r.shape[1]

    def step(projected: Array, states: States) -> States:
        (h,) = states
        update, reset = np.split(act(projected[:, :size] + h @ r[:size].T + bias[:size]), 2, axis=1)
        candidate = act_hidden(projected[:, size:] + (reset * h) @ r[size:].T + bias[size:])
        return ((1 - update) * candidate + update * h,)

    return step


def _gru_step_linear_first(r: Array, bias: Array, functions: Sequence[Activation]) -> Step:
    act, act_hidden = functions
    size = 2 * r.shape[1]

    def step(projected: Array, states: States) -> States:
        (h,) = states
        h_gates = h @ r.T + bias
        update, reset = np.split(act(projected[:, :size] + h_gates[:, :size]), 2, axis=1)
        candidate = act_hidden(projected[:, size:] + reset * h_gates[:, size:])
        return ((1 - update) * candidate + update * h,)

    return step


def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    initial_h: Array | None,
    **settings: Any,
) -> tuple[Array, ...]:
    """The plain recurrent cell (ONNX RNN): h = f(x @ wᵀ + h @ rᵀ + biases).

    `lengths` [B] are the steps of each sample that count. `clip` bounds what goes into the activation.
    """
    given, hidden = _Settings(**settings), r.shape[2]
    sequence, functions = _Sequence.of(x, lengths, given), given.functions(_RNN)
    runs: list[tuple[Array, States]] = []
    for index in range(given.directions):
        weights, recurrence = sequence.widened(w, index, ()), sequence.widened(r, index, ())
        bias = sequence.widened(b, index, (2 * hidden,))
        start = (sequence.state(initial_h, index, hidden),)
        step = _rnn_step(recurrence, functions[index])
        runs.append(sequence.run(index, weights, bias[:hidden] + bias[hidden:], start, step))
    return sequence.joined(runs)


def _rnn_step(r: Array, function: Activation) -> Step:
    return lambda projected, states: (function(projected + states[0] @ r.T),)


_COMMON = (
    Attribute("direction", AttrKind.STRING, "forward", ("forward", "reverse", "bidirectional")),
    Attribute("activations", AttrKind.STRINGS, ()),
    Attribute("activation_alpha", AttrKind.FLOATS, ()),
    Attribute("activation_beta", AttrKind.FLOATS, ()),
    Attribute("clip", AttrKind.FLOAT, None),
    Attribute("layout", AttrKind.INT, 0),
)
_OPERANDS = "x: T, w: T, r: T, b: T?, lengths: N?, initial_h: T?"


def _row(cell: _Cell, operands: str, infer: Infer, meaning: Meaning, *attrs: Attribute) -> Op:
    return op(
        cell.name,
        operands,
        T=FLOATS,
        N=INDICES,
        attrs=(*_COMMON, *attrs),
        infer=infer,
        meaning=meaning,
        traits=Trait.SEQUENTIAL | Trait.RECURRENT,
        flops=cell.flops,
    )


OPS: tuple[Op, ...] = (
    _row(
        _LSTM,
        f"{_OPERANDS}, initial_c: T?, peepholes: T?",
        lstm_type,
        lstm,
        Attribute("input_forget", AttrKind.BOOL, False),
    ),
    _row(_GRU, _OPERANDS, gru_type, gru, Attribute("linear_before_reset", AttrKind.BOOL, False)),
    _row(_RNN, _OPERANDS, rnn_type, rnn),
)
