"""Executor ort resizes as the standard says, by ONNX Runtime or around it."""

from contextlib import nullcontext

import capgraph
import numpy as np
import onnx
import pytest
from capgraph.executors.ort.faults import known_fault
from capgraph.executors.ort.resizes import resize_fault
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph, Node
from capgraph.ir.text.parser import parse
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

COORDINATES = ("align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def model(before: int | str, after: int, scale: float | None, **attrs: str) -> onnx.ModelProto:
    """One Resize of [1, 1, before], by scale or by size."""
    number = np.array([1, 1, after], np.int64) if scale is None else np.array([1, 1, scale], np.float32)
    node = helper.make_node("Resize", ["x", "", "", "s"] if scale is None else ["x", "", "s"], ["y"], **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, before])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "resize", [x], [y], [numpy_helper.from_array(number, "s")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@settings(max_examples=60)
@given(
    before=st.integers(1, 24),
    after=st.integers(1, 30),
    scale=st.none() | st.floats(0.25, 3, width=32),
    mode=st.sampled_from(["nearest", "nearest", "linear", "cubic"]),
    coordinates=st.sampled_from(COORDINATES),
    nearest=st.sampled_from(NEAREST),
    is_open=st.booleans(),
)
@example(11, 1, 0.5, "nearest", "half_pixel_symmetric", "floor", False)
@example(7, 1, 0.5, "nearest", "half_pixel_symmetric", "ceil", False)
@example(3, 1, 0.6, "linear", "pytorch_half_pixel", "floor", True)
@example(3, 1, 0.5, "cubic", "pytorch_half_pixel", "floor", True)
def test_numbers_are_those_of_the_standard(before, after, scale, mode, coordinates, nearest, is_open):
    if scale is not None and int(np.float32(before) * np.float32(scale)) < 1:
        return
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
    made = model("N" if is_open else before, after, scale, **attrs)
    x = np.arange(before, dtype=np.float32)[None, None]
    ours, meant = (capgraph.optimize(made, executor=each).run({"x": x})["y"] for each in ("ort", "eager"))
    np.testing.assert_allclose(ours, meant, atol=1e-3)


@settings(max_examples=40)
@given(
    sizes=st.tuples(st.integers(2, 9), st.integers(2, 9)),
    number=st.tuples(*[st.sampled_from([0.5, 0.6, 1.0, 1.1, 1.5, 2.0])] * 2) | st.tuples(*[st.integers(1, 12)] * 2),
    region=st.sampled_from([(0, 0, 1, 1), (0.13, 0, 0.67, 1), (0, 0.21, 1, 0.77), (0.2, 0.3, 0.9, 1.2)]),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    coordinates=st.sampled_from(["tf_crop_and_resize", "align_corners", "pytorch_half_pixel"]),
    policy=st.sampled_from(["stretch", "not_larger", "not_smaller"]),
)
def test_regions_and_policies_are_those_of_the_standard(sizes, number, region, mode, coordinates, policy):
    is_scale = isinstance(number[0], float)
    if is_scale and min(int(size * scale) for size, scale in zip(sizes, number, strict=True)) < 1:
        return
    more = {} if is_scale else {"keep_aspect_ratio_policy": policy}
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates, "axes": [2, 3], **more}
    node = helper.make_node("Resize", ["x", "r", "n"] if is_scale else ["x", "r", "", "n"], ["y"], **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, *sizes])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    numbers = numpy_helper.from_array(np.array(number, np.float32 if is_scale else np.int64), "n")
    roi = numpy_helper.from_array(np.array(region, np.float32), "r")
    graph = helper.make_graph([node], "resize", [x], [y], [numbers, roi])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    picture = np.arange(sizes[0] * sizes[1], dtype=np.float32).reshape(1, 1, *sizes)
    ours, meant = (capgraph.optimize(made, executor=each).run({"x": picture})["y"] for each in ("ort", "eager"))
    np.testing.assert_allclose(ours, meant, atol=1e-3)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_axes_that_count_from_the_last(policy: str) -> None:
    b = Builder()
    attrs = {"axes": [-1], "sizes": [3], "mode": "linear", "policy": policy}
    graph = b.finish({"y": b.op("resize", b.input("x", "f32[1, 1, 2, 4]"), None, **attrs)})
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    ours, meant = (capgraph.optimize(graph, executor=each).run({"x": x})["y"] for each in ("ort", "eager"))
    np.testing.assert_allclose(ours, meant, atol=1e-6)


@pytest.mark.parametrize(
    ("before", "scale", "attrs"),
    [
        (7, 1 / 7, {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}),
        (7, 1.009, {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"}),
        (7, 0.277, {"coordinate_transformation_mode": "pytorch_half_pixel", "nearest_mode": "round_prefer_ceil"}),
    ],
)
def test_what_onnxruntime_gets_wrong_is_as_in_the_reference(before, scale, attrs):
    made = model(before, 0, scale, mode="nearest", **attrs)
    x = np.arange(before, dtype=np.float32)[None, None]
    found = capgraph.optimize(made, executor="ort").run({"x": x})["y"]
    np.testing.assert_array_equal(found, ReferenceEvaluator(made).run(None, {"x": x})[0])


def resized(before: str, after: str, scale: float | None, coordinates: str) -> Node:
    b = Builder()
    dims = Graph.named_dims(b.graph, b.input("like", f"f32[{after}]").type).shape
    x = b.input("x", f"f32[1, 1, {before}]")
    scales = None if scale is None else [scale]
    y = b.op("resize", x, None, axes=[2], sizes=dims, scales=scales, mode="nearest", coordinate_mode=coordinates)
    assert y.producer is not None
    return y.producer


@pytest.mark.parametrize(
    ("after", "scale", "coordinates", "is_right"),
    [
        ("2*H", None, "half_pixel", True),
        ("2*H", 2.0, "half_pixel_symmetric", True),
        ("H//2", 0.5, "half_pixel", True),
        ("H//3", 1 / 3, "asymmetric", False),
        ("W", None, "asymmetric", True),
        ("W", None, "half_pixel", False),
    ],
)
def test_open_sizes(after, scale, coordinates, is_right):
    assert (resize_fault(resized("H", after, scale, coordinates)) == "") is is_right


ATTRS = 'axes = [2], sizes = [W], mode = "nearest", coordinate_mode = "asymmetric", nearest_mode = "floor"'
LIKE = parse(f"""graph @main(%x: f32[1, 1, H], %like: f32[W]) {{
  %y: f32[1, 1, W] = resize(%x, _) {{{ATTRS}}}
  return %y
}}""")


def test_the_first_call_between_elements_takes_a_resize_out_of_the_session() -> None:
    program = capgraph.optimize(LIKE, executor="ort")
    for before, after, is_right in ((20, 40, True), (13, 25, True), (20, 48, False), (20, 40, False)):
        x = np.arange(before, dtype=np.float32).reshape(1, 1, before)
        with nullcontext() if is_right or after == 40 else pytest.warns(UserWarning, match="between two elements"):
            (y,) = program.run({"x": x, "like": np.zeros(after, np.float32)}).values()
        assert y.ravel().tolist() == [index * before // after for index in range(after)]
        assert ("one session of ONNX Runtime runs the whole graph" in program.explain()) is is_right


def test_a_strict_program_refuses_a_call_between_elements() -> None:
    program = capgraph.optimize(LIKE, executor="ort", strict=True)
    with pytest.raises(capgraph.UnsupportedError, match="between two elements"):
        program.run({"x": np.zeros((1, 1, 20), np.float32), "like": np.zeros(48, np.float32)})


# ---- scales that a call tells

TOLD = """graph @main(%x: f32[1, 1, H, W], %s: f32[2]) {{
  %y: f32[1, 1, h, w] = dynamic_resize(%x, _, %s, _) {{axes = [2, 3], {attrs}}}
  return %y
}}"""


def told(mode: str, coordinates: str, antialias: bool = False) -> Graph:
    attrs = f'mode = "{mode}", coordinate_mode = "{coordinates}", antialias = {str(antialias).lower()}'
    return parse(TOLD.format(attrs=attrs))


@settings(max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    scales=st.lists(st.tuples(*[st.sampled_from([0.6, 0.9, 1.0, 1.0001, 1.1, 1.5, 2.0])] * 2), min_size=2, max_size=4),
    mode=st.sampled_from(["nearest", "linear", "linear", "cubic"]),
    coordinates=st.sampled_from(COORDINATES),
    antialias=st.booleans(),
)
def test_told_scales_are_those_of_the_standard(sizes, scales, mode, coordinates, antialias):
    graph = told(mode, coordinates, antialias and mode != "nearest")
    x = np.random.default_rng(0).standard_normal((1, 1, *sizes)).astype(np.float32)
    programs = [capgraph.optimize(graph, executor=each) for each in ("ort", "eager")]
    for pair in scales:
        if min(int(np.float32(size) * np.float32(scale)) for size, scale in zip(sizes, pair, strict=True)) < 1:
            continue
        ours, meant = (program.run({"x": x, "s": np.array(pair, np.float32)})["y"] for program in programs)
        np.testing.assert_allclose(ours, meant, atol=1e-3)


def test_the_first_call_that_keeps_sizes_by_other_scales_takes_a_resize_out_of_the_session() -> None:
    program, x = (
        capgraph.optimize(told("linear", "asymmetric"), executor="ort"),
        np.eye(6, dtype=np.float32)[None, None],
    )
    meant = capgraph.optimize(told("linear", "asymmetric"), executor="eager")
    for scales, is_whole in (((1.0, 1.0), True), ((2.0, 1.1), True), ((1.1, 1.0), False), ((2.0, 2.0), False)):
        call = {"x": x, "s": np.array(scales, np.float32)}
        np.testing.assert_allclose(program.run(call)["y"], meant.run(call)["y"], atol=1e-6)
        assert ("one session of ONNX Runtime runs the whole graph" in program.explain()) is is_whole


def test_a_strict_program_refuses_a_call_that_keeps_sizes_by_other_scales() -> None:
    program = capgraph.optimize(told("linear", "half_pixel"), executor="ort", strict=True)
    with pytest.raises(capgraph.CapgraphError, match="rounded size"):
        program.run({"x": np.ones((1, 1, 6, 6), np.float32), "s": np.array([1.1, 1.0], np.float32)})


def test_a_resize_by_told_scales_in_a_body_has_no_place_in_a_session() -> None:
    b = Builder()
    x, s, is_wanted = b.input("x", "f32[1, 1, 6]"), b.input("s", "f32[1]"), b.input("c", "bool[]")
    bodies = {}
    for name, mode in (("then_body", "linear"), ("else_body", "cubic")):
        body = b.region(name)
        z, t = body.input("z", "f32[1, 1, 6]"), body.input("t", "f32[1]")
        bodies[name] = body.finish([body.op("dynamic_resize", z, None, t, None, axes=[2], mode=mode)])
    node = b.op("if", is_wanted, x, s, **bodies).producer
    assert node is not None
    assert "rounded size" in known_fault(node)
