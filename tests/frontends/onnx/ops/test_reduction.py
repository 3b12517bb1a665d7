"""Reductions in and out of ONNX: axes as attribute or operand, absent, empty, or known only at run time."""

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.ops.reduction import EXPORTS, IMPORTS
from capgraph.ir.ops.reduction import OPS

from tests.frontends.onnx.ops.every_version import every_version
from tests.frontends.onnx.ops.reference_only import check_in_reference
from tests.frontends.onnx.ops.there_and_back import (
    check,
    check_in_runtime,
    compare,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import assert_close, one_node, reference, runtime

REDUCTIONS = [operator for operator in IMPORTS if operator.startswith("Reduce")]
X = np.linspace(0.5, 3, 24, dtype=np.float32).reshape(2, 3, 4)


def has_operand(operator, opset):
    return opset >= (13 if operator == "ReduceSum" else 18)


def with_constant(model, name, content):
    """The model with an input made a constant."""
    kept = [info for info in model.graph.input if info.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    return model


def reducing(operator, opset, axes, x=X, **attrs):
    """A model that reduces `x` over constant `axes` (None: not given)."""
    if axes is None:
        return one_node(operator, [x], 1, opset, attrs)
    if not has_operand(operator, opset):
        return one_node(operator, [x], 1, opset, {"axes": axes, **attrs})
    content = np.array(axes, np.int64)
    return with_constant(one_node(operator, [x, content], 1, opset, attrs), "x1", content)


def test_every_op_goes_out():
    assert EXPORTS.keys() == {op.name for op in OPS}


@pytest.mark.parametrize(("axes", "keepdims"), [(None, 1), ((1,), 1), ((-1, 0), 0)])
@every_version(REDUCTIONS)
def test_every_version(operator, opset, axes, keepdims):
    if opset < 11 and axes is not None:
        axes = tuple(axis % 3 for axis in axes)  # negative axes came with opset 11
    model = with_symbols(reducing(operator, opset, axes, keepdims=keepdims), ["x0"])
    operands = [X] if axes is None else [X, np.array(axes)]
    attrs = {"keepdims": keepdims}
    if axes is not None and not has_operand(operator, opset):
        operands, attrs = [X], {"axes": axes, "keepdims": keepdims}
    graph = check(model, feeds_of(X), runtime(operator, *operands, opset=opset, **attrs))
    assert all(name.startswith("reduce_") for name in op_names(graph))


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("axes", [None, ()])
@pytest.mark.parametrize("operator", REDUCTIONS)
def test_empty_axes_mean_all_or_none(operator, axes, noop):
    model = reducing(operator, 18, axes, noop_with_empty_axes=noop)
    expected = reference(operator, X, opset=18, noop_with_empty_axes=noop)[0]
    graph = check(model, feeds_of(X), [expected])
    assert graph.last is not None
    assert graph.last.attrs["axes"] == (() if noop else (0, 1, 2))


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceL1", "ReduceLogSum", "ReduceSumSquare"])
def test_a_reduction_over_nothing_is_done_element_by_element_before_opset_18(operator):
    graph = imported(reducing(operator, 18, (), noop_with_empty_axes=1))
    x = np.abs(X) + 1
    compare(runtime_of(export_model(graph, opset=17), feeds_of(x)), evaluated(graph, feeds_of(x)))


@pytest.mark.parametrize("opset", [11, 13, 17, 18])
@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMax"])
def test_axes_go_out_as_the_opset_has_them(operator, opset):
    graph = imported(reducing(operator, 18, (1,)))
    exported = export_model(graph, opset=opset)
    (node,) = exported.graph.node
    assert len(node.input) == (2 if has_operand(operator, opset) else 1)
    assert_close(evaluated(imported(exported), feeds_of(X))[0], evaluated(graph, feeds_of(X))[0])


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("operator", REDUCTIONS)
def test_axes_known_only_at_run_time(operator, keepdims):
    graph = check_in_runtime(operator, X, np.array([2, 0]), opset=18, attrs={"keepdims": keepdims})
    assert op_names(graph) == ["dynamic_reduce"]


@pytest.mark.parametrize("operator", REDUCTIONS)
def test_axes_from_the_end_of_nothing_are_reduced(operator):
    """ONNX Runtime keeps them."""
    x, axes = np.ones((4, 2, 0), np.float32), np.array([-2, -1], np.int64)
    model = with_symbols(one_node(operator, [x, axes], 1, 18, {"keepdims": 0}), ["x0"])
    assert runtime_of(model, feeds_of(x, axes))[0].shape == (4, 2, 0)
    assert runtime_of(export_model(imported(model), dialect=Dialect.ORT), feeds_of(x, axes))[0].shape == (4,)


def test_extrema_of_bools():
    x = np.array([[True, False], [True, True]])
    for operator in ("ReduceMax", "ReduceMin"):
        check(reducing(operator, 20, (1,), x), feeds_of(x))


@pytest.mark.parametrize("attrs", [{}, {"axis": -1, "keepdims": 0}, {"axis": 1, "select_last_index": 1}])
@every_version(["ArgMax", "ArgMin"])
def test_indices_of_extrema(operator, opset, attrs):
    x = np.array([[1, 3, 3], [2, 1, 1]], np.float32)
    if opset < 12:
        attrs = {name: value % 2 for name, value in attrs.items() if name != "select_last_index"}
    check_in_runtime(operator, x, opset=opset, attrs=attrs, symbols=["x0"])


@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize(("operator", "opset"), [("CumSum", 11), ("CumSum", 14), ("CumProd", 26)])
def test_cumulative(operator, opset, attrs):
    axis = np.array(-2, np.int32)
    model = one_node(operator, [X, axis], 1, opset, attrs)
    checked = check if operator == "CumSum" else check_in_reference
    assert op_names(checked(model, feeds_of(X, axis))) == [f"dynamic_{operator.lower()}"]
    static = checked(with_symbols(with_constant(model, "x1", axis), ["x0"]), feeds_of(X))
    assert op_names(static) == [operator.lower()]


def test_the_greatest_of_pictures_without_finite_numbers():
    """ONNX Runtime's GlobalMaxPool has the lowest finite number there, so the file has a ReduceMax."""
    graph = imported(one_node("ReduceMax", [X[None]], 1, 13, {"axes": (2, 3)}))
    assert [node.op_type for node in export_model(graph).graph.node] == ["ReduceMax"]


@pytest.mark.parametrize("shape", ["N, 3, 4, 5", "N, 3, H, 5", "N, C, 4, 5"])
def test_means_of_what_may_have_no_elements_are_no_pools(shape):
    """ONNX Runtime refuses GlobalAveragePool of 0 channels or positions, and reduces them."""
    head = '<ir_version: 8, opset_import: ["": 17]>'
    text = f"{head} g (float[{shape}] x) => (float[a, b, c, d] y) {{ y = ReduceMean<axes=[2, 3]>(x) }}"
    model = export_model(imported(onnx.parser.parse_model(text)))
    x = np.ones((2, 0 if "C" in shape else 3, 0 if "H" in shape else 4, 5), np.float32)
    assert ("GlobalAveragePool" in {node.op_type for node in model.graph.node}) == (x.size > 0)
    assert runtime_of(model, {"x": x})[0].shape == (*x.shape[:2], 1, 1)
