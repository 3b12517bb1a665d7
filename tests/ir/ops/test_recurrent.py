"""Recurrent cells beside ONNX Runtime, which has all of their attributes (onnx's reference evaluator has not)."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.ops.onnx_oracle import Array, assert_close, random, run, runtime

CELLS = {"lstm": (4, 3), "gru": (3, 2), "rnn": (1, 1)}
"""Gates and activations of each kind of cell."""
PLAIN = ["Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "Elu", "HardSigmoid"]


def operands_of(
    cell: str, directions: int, sizes: tuple[int, int, int, int], absent: set[str], seed: int = 0
) -> list[Array | None]:
    """Operands in ONNX's order, layout 0; `sizes` are steps, batch, features, hidden units."""
    steps, batch, features, hidden = sizes
    rows = CELLS[cell][0] * hidden
    generator = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "x": (steps, batch, features),
        "w": (directions, rows, features),
        "r": (directions, rows, hidden),
        "b": (directions, 2 * rows),
        "lengths": (batch,),
        "h": (directions, batch, hidden),
    }
    if cell == "lstm":
        shapes |= {"c": (directions, batch, hidden), "p": (directions, 3 * hidden)}
    made: list[Array | None] = []
    for index, (name, shape) in enumerate(shapes.items()):
        if name in absent:
            made.append(None)
        elif name == "lengths":
            made.append(generator.integers(1, steps + 1, shape).astype(np.int32))
        else:
            made.append(random(seed + index, *shape) / 2)  # small enough that unbounded activations do not run away
    return made


def expected_of(cell: str, operands: list[Array | None], **attrs: Any) -> list[Array]:
    """What ONNX Runtime gives. Flags become integers; what is empty or None is left out."""
    given_attrs = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in attrs.items()
        if value not in ((), None)
    }
    r = operands[2]
    assert r is not None
    outputs = 3 if cell == "lstm" else 2
    return runtime(cell.upper(), *operands, outputs=outputs, hidden_size=r.shape[2], **given_attrs)


def check(cell: str, operands: list[Array | None], **attrs: Any) -> None:
    """Where ONNX Runtime gives no finite number nothing is compared: its softplus overflows from 89 on."""
    for found, expected in zip(run(cell, *operands, **attrs), expected_of(cell, operands, **attrs), strict=True):
        assert_close(np.where(np.isfinite(expected), found, expected), expected)


OPTIONAL = st.sets(st.sampled_from(["b", "lengths", "h", "c", "p"]))
SIZES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
DIRECTIONS = st.sampled_from(["forward", "reverse", "bidirectional"])


@given(st.sampled_from(list(CELLS)), DIRECTIONS, SIZES, OPTIONAL, st.none() | st.floats(0.1, 1), st.booleans())
def test_cells(cell, direction, sizes, absent, clip, flag):
    operands = operands_of(cell, 2 if direction == "bidirectional" else 1, sizes, absent)
    attrs: dict[str, Any] = {"direction": direction}
    if cell == "gru":
        attrs["linear_before_reset"] = flag
    if cell == "lstm" and flag:
        attrs["input_forget"] = True
    if clip is not None:
        attrs["clip"] = clip
    check(cell, operands, **attrs)


@given(st.sampled_from(list(CELLS)), st.booleans(), st.data())
def test_activations(cell, is_both_ways, data):
    directions = 1 + is_both_ways
    names = data.draw(st.lists(st.sampled_from(PLAIN), min_size=CELLS[cell][1], max_size=CELLS[cell][1]))
    operands = operands_of(cell, directions, (3, 2, 2, 2), {"lengths"})
    direction = "bidirectional" if is_both_ways else "forward"
    check(cell, operands, direction=direction, activations=tuple(names) * directions)


@pytest.mark.parametrize("names", [("ThresholdedRelu", "Elu"), ("LeakyRelu", "ThresholdedRelu")])
def test_activations_with_an_alpha(names):
    check("gru", operands_of("gru", 1, (3, 2, 2, 2), set()), activations=names, activation_alpha=(0.3, 0.6))


def test_activations_use_up_alphas_and_betas_in_order():
    operands = operands_of("lstm", 1, (3, 2, 2, 2), set())
    check(
        "lstm",
        operands,
        activations=("HardSigmoid", "Tanh", "Affine"),
        activation_alpha=(0.3, 0.7),
        activation_beta=(0.4, 0.1),
    )
    check("gru", operands_of("gru", 1, (3, 2, 2, 2), set()), activations=("Sigmoid", "ScaledTanh"),
          activation_alpha=(0.5,), activation_beta=(0.3,))  # fmt: skip


@pytest.mark.parametrize("cell", list(CELLS))
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_batch_first_layout_is_a_transposition(cell, direction):
    operands = operands_of(cell, 2 if direction == "bidirectional" else 1, (4, 3, 2, 2), set())
    swapped = [x.swapaxes(0, 1) if index in {0, 5, 6} and x is not None else x for index, x in enumerate(operands)]
    every, *states = run(cell, *operands, direction=direction)
    every_1, *states_1 = run(cell, *swapped, direction=direction, layout=1)
    assert np.array_equal(every_1, every.transpose(2, 0, 1, 3))
    for state, state_1 in zip(states, states_1, strict=True):
        assert np.array_equal(state_1, state.swapaxes(0, 1))


@pytest.mark.parametrize("cell", list(CELLS))
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_sample_does_not_feel_the_steps_beyond_its_length(cell, direction):
    operands = operands_of(cell, 1, (5, 2, 3, 2), {"lengths"})
    x = operands[0]
    assert x is not None
    lengths = np.array([2, 0], np.int32)
    every, *states = run(
        cell, *[lengths if index == 4 else item for index, item in enumerate(operands)], direction=direction
    )
    cut = [x[:2] if index == 0 else item for index, item in enumerate(operands)]
    every_cut, *states_cut = run(cell, *cut, direction=direction)
    assert_close(every[:2, :, 0], every_cut[:, :, 0])
    assert not every[2:].any()
    assert not every[:, :, 1].any()
    for state, state_cut, initial in zip(states, states_cut, operands[5:], strict=False):
        assert initial is not None
        assert_close(state[:, 0], state_cut[:, 0])
        assert np.array_equal(state[:, 1], initial[:, 1])


@pytest.mark.parametrize("cell", list(CELLS))
@pytest.mark.parametrize("sizes", [(0, 2, 3, 2), (2, 0, 3, 2)])
def test_cells_without_steps_or_samples(cell, sizes):
    every, state, *_ = run(cell, *operands_of(cell, 1, sizes, {"h", "lengths"}))
    assert every.shape == (sizes[0], 1, sizes[1], 2)
    assert not state.any()


@pytest.mark.parametrize("cell", list(CELLS))
def test_cells_of_a_smaller_float_are_rounded_once(cell):
    half = [None if x is None else x.astype(np.float16) for x in operands_of(cell, 1, (3, 2, 2, 2), {"lengths"})]
    wide = [None if x is None else x.astype(np.float32) for x in half]
    for found, exact in zip(run(cell, *half), run(cell, *wide), strict=True):
        assert found.tobytes() == exact.astype(np.float16).tobytes()


@pytest.mark.parametrize(
    ("cell", "changes", "attrs", "message"),
    [
        ("lstm", {1: (1, 7, 3)}, {}, r"w of lstm must have shape \[1, 8, 3\]"),
        ("lstm", {7: (1, 5)}, {}, r"peepholes of lstm must have shape \[1, 6\]"),
        ("gru", {3: (1, 6)}, {}, r"b of gru must have shape \[1, 12\]"),
        ("rnn", {5: (1, 3, 2)}, {}, r"initial_h of rnn must have shape \[1, 4, 2\]"),
        ("rnn", {}, {"direction": "bidirectional"}, r"w of rnn must have shape \[2, 2, 3\]"),
        ("rnn", {0: (5, 3)}, {}, "x of rnn must have rank 3"),
        ("rnn", {}, {"activations": ("Cos",)}, "there is no activation Cos"),
        ("gru", {}, {"activations": ("Tanh",)}, "gru takes 2 activations, not 1"),
    ],
)
def test_rules_refuse_what_does_not_fit(cell, changes, attrs, message):
    op = native(cell)
    shapes = [None if x is None else x.shape for x in operands_of(cell, 1, (5, 4, 3, 2), {"lengths"})]
    types = [None if shape is None else TensorType(DType.F32, changes.get(i, shape)) for i, shape in enumerate(shapes)]
    with pytest.raises(CapgraphError, match=message):
        op.result_types(types, op.complete_attrs(attrs))


def test_the_cost_of_a_cell_counts_its_matmuls():
    op = native("lstm")
    shapes = [(symbol("T"), symbol("B"), 3), (1, 8, 3), (1, 8, 2), *[None] * 5]
    types = [None if shape is None else TensorType(DType.F32, shape) for shape in shapes]
    attrs = op.complete_attrs({})
    assert evaluate(op.flops(types, op.result_types(types, attrs), attrs), {"T": 5, "B": 7}) == 2 * 5 * 7 * 8 * (3 + 2)
