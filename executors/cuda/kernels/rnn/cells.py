"""What recurrent cells make of their matmuls, element by element, as CUDA code.

Statements name their operands alike in all cells: `x0` is the projected input of gate 0 with its bias, `h0` the matmul
of that gate's weights with the hidden values, with its bias; `old` and `hidden` are a hidden value before and after a
step, `cell` and `next` those of the cell's state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .....ir.attrs import Attrs
from ...kernel_ir.types import number

# ---- activations: x is the operand, A and B the parameters, f a suffix of functions for floats

_ACTIVATIONS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "relu": ("greatest(x, ({real})0)", ()),
    "tanh": ("tanh{f}(x)", ()),
    "sigmoid": ("sigmoid(x)", ()),
    "softsign": ("x / (({real})1 + magnitude(x))", ()),
    "softplus": ("softplus(x)", ()),
    "leakyrelu": ("x >= 0 ? x : {A} * x", (0.01,)),
    "thresholdedrelu": ("x >= {A} ? x : ({real})0", (1.0,)),
    "elu": ("x >= 0 ? x : {A} * expm1{f}(x)", (1.0,)),
    "affine": ("{A} * x + {B}", (1.0, 0.0)),
    "scaledtanh": ("{A} * tanh{f}({B} * x)", (1.0, 1.0)),
    "hardsigmoid": ("least(greatest({A} * x + {B}, ({real})0), ({real})1)", (0.2, 0.5)),
}
"""Expressions by lower-case ONNX name, and the defaults of alpha and beta where they have them."""

_DEFAULTS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}
_CLIPPED = {"lstm": (True, True, False), "gru": (True, True), "rnn": (True,)}
"""Whether `clip` bounds what goes into each of the activations."""


def activation_code(op: str, attrs: Attrs, directions: int, real: str) -> str:
    """Functions `NAME_a0(x, direction)`, `NAME_a1`, ... for the activations of a cell."""
    names = attrs["activations"] or _DEFAULTS[op] * directions
    expressions = list(_expressions(names, attrs, real))
    count = len(_DEFAULTS[op])
    return "\n".join(
        _function(index, expressions[index::count], attrs["clip"] if _CLIPPED[op][index] else None, real)
        for index in range(count)
    )


def _expressions(names: Sequence[str], attrs: Attrs, real: str) -> list[str]:
    """The activations in order; those that have an alpha or beta use up the given values in that order."""
    given = (iter(attrs["activation_alpha"]), iter(attrs["activation_beta"]))
    found: list[str] = []
    for name in names:
        text, defaults = _ACTIVATIONS[name.lower()]
        parameters = [next(values, default) for values, default in zip(given, defaults, strict=False)]
        literals = {key: f"({number(value, real)})" for key, value in zip("AB", parameters, strict=False)}
        found.append(text.format(f="f" if real == "float" else "", real=real, **literals))
    return found


def _function(index: int, expressions: Sequence[str], clip: float | None, real: str) -> str:
    bound = "" if clip is None else f"x = least(greatest(x, {number(-clip, real)}), {number(clip, real)});"
    same = len(set(expressions)) == 1
    chosen = expressions[0] if same else f"direction ? ({expressions[1]}) : ({expressions[0]})"
    return f"__device__ inline {real} NAME_a{index}({real} x, int direction) {{ {bound} return {chosen}; }}"


# ---- cells


@dataclass(frozen=True)
class Phase:
    """One matmul of a step: the weights of `gates` times what lies at `operand`, then `finish` for each element.

    `reads` are further numbers by name, with the expression that reads each at `at`. The last phase of a step leaves
    `hidden`, and `next` where there is a cell's state.
    """

    gates: tuple[int, ...]
    finish: tuple[str, ...]
    operand: str = "before"
    reads: Mapping[str, str] = field(default_factory=dict[str, str])
    is_last: bool = True


@dataclass(frozen=True)
class Cell:
    """A kind of cell: how many gates it has, the phases of a step, and the buffers of one number a state they need."""

    gates: int
    phases: tuple[Phase, ...]
    buffers: tuple[str, ...] = ()
    adds_biases: bool = True
    """Whether the two biases of a gate only occur as their sum."""


def cell_of(op: str, attrs: Attrs) -> Cell:
    """The cell of an `lstm`, `gru` or `rnn`."""
    if op == "lstm":
        return _lstm(is_coupled=attrs["input_forget"])
    if op == "gru":
        return _GRU_LINEAR_FIRST if attrs["linear_before_reset"] else _GRU
    return Cell(1, (Phase((0,), ("hidden = NAME_a0(x0 + h0, direction);",)),))


def _lstm(*, is_coupled: bool) -> Cell:
    """Gates: input, output, forget, cell; peepholes: input, output, forget, zeros where they are left out."""
    finish = (
        "const auto i = NAME_a0(x0 + h0 + peep0 * cell, direction);",
        f"const auto f = {'1 - i' if is_coupled else 'NAME_a0(x2 + h2 + peep2 * cell, direction)'};",
        "next = f * cell + i * NAME_a1(x3 + h3, direction);",
        "hidden = NAME_a0(x1 + h1 + peep1 * next, direction) * NAME_a2(next, direction);",
    )
    return Cell(4, (Phase((0, 1, 2, 3), finish, reads={"cell": "cells[at]"}),), ("cells",))


_MIXED = "hidden = (1 - update) * NAME_a1(candidate, direction) + update * old;"

_GRU_LINEAR_FIRST = Cell(
    3,
    (
        Phase(
            (0, 1, 2),
            (
                "const auto update = NAME_a0(x0 + h0, direction);",
                "const auto candidate = x2 + NAME_a0(x1 + h1, direction) * h2;",
                _MIXED,
            ),
        ),
    ),
    adds_biases=False,
)
_GRU = Cell(
    3,
    (
        Phase(
            (0, 1),
            ("updates[at] = NAME_a0(x0 + h0, direction);", "damped[at] = NAME_a0(x1 + h1, direction) * old;"),
            is_last=False,
        ),
        Phase(
            (2,),
            ("const auto candidate = x2 + h2;", _MIXED),
            operand="damped",
            reads={"update": "updates[at]"},
        ),
    ),
    ("updates", "damped"),
)
"""Gates: update, reset, hidden. The reset applies to the hidden values before the matmul, which takes two phases."""
