"""Expressions of elementwise ops are read off their meanings, and mean the same."""

import numpy as np
import pytest
from capgraph.ir.ops import native
from capgraph.ir.ops.interfaces import composed_ops
from capgraph.ir.scalar import OPS, Scalar, expression_of


@pytest.mark.parametrize("function", OPS, ids=lambda function: function.__name__)
def test_functions_are_the_ops_that_they_are_called(function: np.ufunc) -> None:
    operands = [np.array([0.5, 2.0], np.float32), np.array([0.25, 4.0], np.float32)][: function.nin]
    assert np.allclose(native(OPS[function]).meaning(*operands), function(*operands))


@pytest.mark.parametrize("name", composed_ops())
def test_an_expression_means_what_the_row_says(name: str) -> None:
    x = np.linspace(-4, 4, 17, dtype=np.float32)
    found = composed_ops()[name].written(x, np.float32, lambda op, parts: native(op).meaning(*parts))
    assert np.array_equal(found, native(name).meaning(x))
    assert native(name).scalar is composed_ops()[name]


def test_an_expression_is_written_from_its_parts() -> None:
    def texts(op: str, parts: list[str]) -> str:
        return f"{op}({', '.join(parts)})"

    scalar = expression_of(lambda x: x / (1 + np.abs(x)))
    assert scalar.written("x", str, texts) == "div(x, add(1.0, abs(x)))"
    assert scalar.cost == 3
    assert Scalar().written("x", str, texts) == "x"


def test_other_functions_are_refused() -> None:
    with pytest.raises(TypeError):
        expression_of(np.arctan)
    with pytest.raises(TypeError, match="gives no expression"):
        expression_of(lambda _x: 1.0)
