"""Resampling in and out of ONNX: every version of Resize and Upsample, static and dynamic, with symbolic sizes."""

from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.ops.resize import scaled_size
from capgraph.ir.builder import Builder
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import UnsupportedError
from hypothesis import given
from hypothesis import strategies as st

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, model_of
from tests.frontends.onnx.ops.there_and_back import (
    compare,
    evaluated,
    feeds_of,
    imported,
    op_names,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import Array, random

X = random(1, 1, 2, 5, 7)


def scales(*values: float) -> Array:
    return np.array(values, np.float32)


NONE = np.zeros(0, np.float32)
UP, DOWN, BOTH = scales(1, 1, 2, 3), scales(1, 1, 0.6, 0.45), scales(1, 1, 0.6, 2)
REGION = scales(0, 0, 0.2, 0.3, 1, 1, 0.7, 1.2)
LINEAR: dict[str, Any] = {"mode": "linear"}
CUBIC: dict[str, Any] = {"mode": "cubic", "cubic_coeff_a": -0.5}
CROP = {**LINEAR, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}


def ratio(policy: str) -> dict[str, Any]:
    return {**LINEAR, "axes": [2, 3], "keep_aspect_ratio_policy": policy}


def coordinates(mode: str, **more: Any) -> dict[str, Any]:
    return {"coordinate_transformation_mode": mode, **more}


CASES = [
    Case("Upsample", 7, (X,), ("resize",), {"scales": [1.0, 1.0, 2.0, 3.0]}),
    Case("Upsample", 9, (X, UP), ("resize",), constants={1}),
    Case("Upsample", 9, (X, UP), ("resize",), LINEAR, constants={1}),
    Case("Upsample", 9, (X, UP), ("dynamic_resize",), LINEAR),
    Case("Resize", 10, (X, UP), ("resize",), constants={1}),
    Case("Resize", 10, (X, DOWN), ("resize",), LINEAR, constants={1}),
    Case("Resize", 10, (X, DOWN), ("resize",), constants={1}),
    Case("Resize", 10, (X, BOTH), ("resize", "resize"), constants={1}),
    Case("Resize", 10, (X, scales(1, 1, 1, 1)), (), constants={1}),
    Case("Resize", 11, (X, NONE, UP), ("resize",), LINEAR, constants={1, 2}),
    Case("Resize", 11, (X, NONE, NONE, ints(1, 2, 3, 11)), ("resize",), {"mode": "cubic"}, constants={1, 2, 3}),
    Case("Resize", 11, (X, NONE, UP), ("dynamic_resize",), LINEAR, constants={1}),
    Case("Resize", 11, (X, NONE, UP), ("resize",), coordinates("tf_half_pixel_for_nn", nearest_mode="floor"), {1, 2}),
    Case("Resize", 13, (X, None, None, ints(1, 2, 3, 11)), ("dynamic_resize",), LINEAR),
    Case("Resize", 13, (X, None, None, ints(1, 2, 10, 7)), ("resize",), coordinates("asymmetric"), {3}),
    Case("Resize", 13, (X, REGION, None, ints(1, 2, 4, 5)), ("resize",), CROP, {3}),
    Case("Resize", 18, (X, None, scales(0.6, 0.45)), ("resize",), {**LINEAR, "antialias": 1, "axes": [2, 3]}, {2}),
    Case("Resize", 18, (X, None, scales(0.6, 0.45)), ("resize",), {**CUBIC, "antialias": 1, "axes": [-2, -1]}, {2}),
    Case("Resize", 18, (X, None, scales(1.7)), ("resize",), {**CUBIC, "exclude_outside": 1, "axes": [3]}, {2}),
    Case("Resize", 18, (X, None, None, ints(8, 9)), ("resize",), ratio("not_larger"), {3}),
    Case("Resize", 19, (X, None, None, ints(8, 9)), ("resize",), ratio("not_smaller"), {3}),
    Case("Resize", 19, (X, None, scales(1.3)), ("resize",), coordinates("half_pixel_symmetric", axes=[3]), {2}),
]  # fmt: skip


def feeds_for(case: Case) -> dict[str, Array]:
    return {name: x for name, x in feeds_of(*case.inputs).items() if int(name[1:]) not in case.constants}


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_resampling_there_and_back(case: Case, symbols: bool) -> None:
    hold(case, symbols=symbols)


def test_an_unchanged_axis_is_not_resampled() -> None:
    case = Case("Resize", 19, (X, None, UP), ("resize",), constants={2})
    (node,) = [node for node in imported(model_of(case)).nodes if node.op.name == "resize"]
    assert node.attrs["axes"] == (2, 3)


@given(st.integers(1, 200), st.sampled_from([0.1, 0.25, 0.3, 1 / 3, 0.7, 1.1, 1.5, 2.0, 3.7]))
def test_a_scaled_size_is_the_same_with_a_symbol(size: int, scale: float) -> None:
    exact = float(np.float32(scale))
    assert evaluate(scaled_size(symbol("H"), exact), {"H": size}) == scaled_size(size, exact)


MODES = [("bilinear", "linear"), ("nearest", "nearest"), ("bicubic", "cubic")]


@pytest.mark.parametrize(("older", "newer"), MODES)
@pytest.mark.parametrize("padding", ["zeros", "reflection"])
def test_grid_sample_there_and_back(older: str, newer: str, padding: str) -> None:
    grid = random(2, 1, 3, 4, 2)
    for opset, mode in ((16, older), (20, newer)):
        case = Case("GridSample", opset, (X, grid), ("grid_sample",), {"mode": mode, "padding_mode": padding})
        model, feeds = model_of(case), feeds_for(case)
        wanted = runtime_of(model, feeds)
        graph = imported(with_symbols(model))
        compare(evaluated(graph, feeds), wanted)
        compare(runtime_of(export_model(graph, opset=16 if opset == 16 else 20), feeds), wanted)
        compare(evaluated(imported(export_model(graph)), feeds), wanted)


def test_affine_grid_there_and_back() -> None:
    theta = random(3, 2, 2, 3)
    case = Case("AffineGrid", 20, (theta, ints(2, 1, 4, 5)), ("affine_grid",), {"align_corners": 1}, constants={1})
    model, feeds = model_of(case), feeds_for(case)
    wanted = runtime_of(model, feeds)
    graph = imported(model)
    assert op_names(graph) == ["affine_grid"]
    compare(evaluated(graph, feeds), wanted)
    compare(runtime_of(export_model(graph), feeds), wanted)
    exported = export_model(imported(with_symbols(model, ["x0"])))
    assert any(node.op_type == "Shape" for node in exported.graph.node)
    compare(runtime_of(exported, feeds), wanted)


@pytest.mark.parametrize("opset", [11, 12, 13])
@pytest.mark.parametrize("given", ["scales", "sizes"])
def test_what_is_left_out_is_written_empty_where_it_is_not_optional(opset: int, given: str) -> None:
    builder = Builder()
    x = builder.input("x", "f32[1, 2, 3, 5]")
    scales = (2.0, 2.0) if given == "scales" else None
    graph = builder.finish({"y": builder.op("resize", x, None, axes=(2, 3), sizes=(6, 10), scales=scales)})
    feeds = {"x": random(1, 1, 2, 3, 5)}
    written = export_model(graph, opset=opset)
    compare(runtime_of(written, feeds), evaluated(graph, feeds))
    compare(evaluated(imported(written), feeds), evaluated(graph, feeds))


@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_computed_scales_stay_in_their_opset(operator: str, opset: int) -> None:
    case = Case(operator, opset, (X, UP), ("dynamic_resize",), LINEAR)
    feeds = feeds_for(case)
    written = export_model(imported(model_of(case)), opset=opset)
    compare(runtime_of(written, feeds), runtime_of(model_of(case), feeds))


@pytest.mark.parametrize(("opset", "given"), [(10, "scales"), (14, "scales"), (14, "sizes"), (18, "sizes")])
def test_how_many_are_given_need_not_be_declared(opset: int, given: str) -> None:
    """ONNX Runtime takes sizes of which it does not know how many they are for none, and refuses the model."""
    element, values = ("float", UP) if given == "scales" else ("int64", ints(1, 2, 10, 21))
    absent = {(10, "scales"): "", (14, "scales"): '"", '}.get((opset, given), '"", "", ')
    text = f"""f (float[a, b, c, d] x, {element}[n] g) => (float[?, ?, ?, ?] y) {{
        y = Resize <mode = "linear"> (x, {absent}g)
    }}"""
    graph = imported(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}'))
    feeds = {"x": X, "g": values}
    compare(runtime_of(export_model(graph, opset=opset), feeds), evaluated(graph, feeds))


def test_computed_sizes_need_the_opset_that_has_them() -> None:
    case = Case("Resize", 13, (X, None, None, ints(1, 2, 3, 11)), ("dynamic_resize",), LINEAR)
    with pytest.raises(UnsupportedError, match="Resize by what is computed in opset 10"):
        export_model(imported(model_of(case)), opset=10)


def test_sizes_that_follow_the_shape_of_another_tensor() -> None:
    """The usual decoder: a map is resized to the size of an earlier one, and nothing is left to run time."""
    nodes = [
        onnx.helper.make_node("Shape", ["big"], ["size"], start=2),
        onnx.helper.make_node("Resize", ["x", "", "", "size"], ["y"], axes=[2, 3], mode="linear"),
    ]
    inputs = [onnx.helper.make_tensor_value_info(name, 1, ["B", 2, f"{name}_h", f"{name}_w"]) for name in ("x", "big")]
    graph_proto = onnx.helper.make_graph(nodes, "decoder", inputs, [onnx.helper.make_tensor_value_info("y", 1, None)])
    model = onnx.helper.make_model(graph_proto, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=10)
    graph = imported(model)
    assert "resize" in op_names(graph)
    feeds = {"x": X, "big": random(2, 1, 2, 9, 11)}
    compare(evaluated(graph, feeds), runtime_of(model, feeds))
    compare(runtime_of(export_model(graph), feeds), runtime_of(model, feeds))


def test_a_grid_of_one_axis_has_no_operator() -> None:
    builder = Builder()
    grid = builder.op("affine_grid", builder.input("theta", "f32[N, 1, 2]"), size=[5])
    with pytest.raises(UnsupportedError, match="two or three"):
        export_model(builder.finish({"grid": grid}))


def test_a_part_of_what_the_scales_make_is_no_resize_of_onnx() -> None:
    builder = Builder()
    x = builder.input("x", "f32[1, 1, 10, 20]")
    graph = builder.finish({"y": builder.op("resize", x, None, axes=[2, 3], sizes=[3, 3], scales=[1.7, 0.9])})
    with pytest.raises(UnsupportedError, match="makes the sizes from the scales"):
        export_model(graph)
