"""Operators that left ONNX before opset 10, each held to ONNX Runtime, which still runs them."""

from typing import Any

import numpy as np
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.ops.experimental import IMPORTS
from capgraph.ir.errors import ModelError, UnsupportedError

from tests.frontends.onnx.ops.there_and_back import (
    check_in_runtime,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import one_node, random, runtime

X = random(1, 2, 3, 5, 6) * 4
BIASES = [1.0, -2.0, 0.5]

CASES = [
    ("ImageScaler", {"bias": BIASES}, ["mul", "add"]),
    ("ImageScaler", {"bias": BIASES, "scale": 2.0}, ["mul", "add"]),
    ("Affine", {}, ["mul", "add"]),
    ("Affine", {"alpha": 2.0}, ["mul", "add"]),
    ("Affine", {"beta": 0.5}, ["mul", "add"]),
    ("Affine", {"alpha": 2.0, "beta": 0.5}, ["mul", "add"]),
    ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}, ["mul", "tanh", "mul"]),
    ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}, ["mul", "softplus", "mul"]),
    ("ParametricSoftplus", {"alpha": 0.5, "beta": 100.0}, ["mul", "softplus", "mul"]),
    ("Scale", {}, ["mul"]),
    ("Scale", {"scale": 3.0}, ["mul"]),
    ("Crop", {"border": [0, 0, 0, 0]}, ["slice"]),
    ("Crop", {"border": [1, 0, 3, 2]}, ["slice"]),
    ("Crop", {"border": [3, 2, 3, 3]}, ["slice"]),
    ("Crop", {"border": [1, 2, 0, 0], "scale": [3, 5]}, ["slice"]),
    ("Crop", {"border": [2, 1, 6, 6], "scale": [3, 1]}, ["slice"]),
]


def test_every_operator_has_cases() -> None:
    assert {operator for operator, _, _ in CASES} == IMPORTS.keys()


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize(("operator", "attrs", "ops"), CASES)
def test_operators(operator: str, attrs: dict[str, Any], ops: list[str], opset: int) -> None:
    assert op_names(check_in_runtime(operator, X, opset=opset, attrs=attrs)) == ops
    check_in_runtime(operator, X, opset=opset, attrs=attrs, symbols=["x0"])


@pytest.mark.parametrize(("operator", "attrs"), [(operator, attrs) for operator, attrs, _ in CASES])
def test_half_precision(operator: str, attrs: dict[str, Any]) -> None:
    x = X.astype(np.float16)
    (found,) = evaluated(imported(one_node(operator, [x], 1, 9, attrs)), feeds_of(x))
    (wanted,) = runtime(operator, x, opset=9, **attrs)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=5e-3, atol=5e-3)


WRONG = [
    ("ImageScaler", {}, r"lacks the attribute bias"),
    ("ImageScaler", {"bias": [1.0, 2.0]}, "2 biases for 3 channels"),
    ("ImageScaler", {"bias": BIASES, "scale": "large"}, "attribute scale that is no FLOAT"),
    ("ScaledTanh", {"alpha": 1.0}, "lacks the attribute beta"),
    ("ParametricSoftplus", {"beta": 1.0}, "lacks the attribute alpha"),
    ("Crop", {}, "lacks the attribute border"),
    ("Crop", {"border": [1, 2, 3]}, "four borders"),
    ("Crop", {"border": [-1, 0, 0, 0]}, "none negative"),
    ("Crop", {"border": [0, 0, 0, 0], "scale": [2]}, "no or two sizes"),
    ("Crop", {"border": [0, 0, 0, 0], "scale": [-2, 2]}, "none negative"),
    ("Crop", {"border": [0, 3, 0, 3]}, "at least 6, not 5"),
    ("Crop", {"border": [2, 0, 0, 0], "scale": [5, 5]}, "at least 7, not 6"),
]


@pytest.mark.parametrize(("operator", "attrs", "words"), WRONG)
def test_what_onnx_runtime_refuses_is_an_error_in_the_model(operator: str, attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        runtime(operator, X, opset=9, **attrs)
    with pytest.raises(ModelError, match=words):
        import_model(one_node(operator, [X], 1, 9, attrs))


@pytest.mark.parametrize("size", [2, 4, 5])
def test_borders_that_meet_leave_nothing(size: int) -> None:
    x = random(1, 1, 1, size, 7)
    graph = imported(with_symbols(one_node("Crop", [x], 1, 9, {"border": [0, 1, 1, 5]})))
    (found,) = evaluated(graph, feeds_of(x))
    assert found.shape == (1, 1, 0, 6)
    (exported,) = runtime_of(export_model(graph, dialect=Dialect.STANDARD), feeds_of(x))
    assert exported.shape == (1, 1, 0, 6)


@pytest.mark.parametrize(("operator", "attrs"), [("ImageScaler", {"bias": BIASES}), ("Crop", {"border": [0] * 4})])
def test_pictures_have_rank_four(operator: str, attrs: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="rank 4"):
        import_model(one_node(operator, [X[0]], 1, 9, attrs))


@pytest.mark.parametrize("operator", IMPORTS)
def test_from_opset_10_on_they_do_not_exist(operator: str) -> None:
    attrs = next(attrs for name, attrs, _ in CASES if name == operator)
    with pytest.raises(UnsupportedError, match="nothing is known"):
        import_model(one_node(operator, [X], 1, 10, attrs))
