"""Channels-last values: what convolutions make and what is made of it; the rest stays row-major."""

import pytest
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA, HOST, Target
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.layouts import channels_last_strides, channels_last_values, strides_in_order
from capgraph.passes.planning.planner import make_plan

NETWORK = """
graph @main(%x: f32[2, 3, 8, 8], %w: f32[4, 3, 3, 3], %v: f32[4, 4, 1, 1]) {
  %a: f32[2, 4, 8, 8] = conv(%x, %w, _) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]}
  %b: f32[2, 4, 8, 8] = relu(%a)
  %c: f32[2, 4, 4, 4] = max_pool(%b) {kernel = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %d: f32[2, 4, 4, 4] = conv(%c, %v, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %e: f32[2, 4, 4, 4] = add(%c, %d)
  %f: f32[2, 64] = reshape(%e) {shape = [2, 64]}
  %g: f32[2, 4, 4, 4] = conv(%d, %v, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  return %f, %g
}
"""


def _graph() -> Graph:
    return parse(NETWORK)


def _names(graph: Graph, target: Target = CUDA) -> set[str]:
    return {value.name for value in channels_last_values(graph, target)}


def test_what_convolutions_make_and_what_is_made_of_it_lies_channels_last() -> None:
    assert _names(_graph()) == {"a", "b", "c", "d", "e"}


def test_a_target_that_does_not_want_it_gets_row_major_values() -> None:
    assert _names(_graph(), HOST) == set()


def test_strides_count_bytes_of_an_image_in_the_order_of_its_places() -> None:
    assert channels_last_strides((2, 3, 4, 5), 4) == (240, 4, 60, 12)
    assert channels_last_strides((2, 3, 7), 2) == (42, 2, 6)


GATED = """
graph @main(%x: f32[1, 4, 8], %w: f32[8, 4, 1], %v: f32[4, 4, 1]) {
  %a: f32[1, 8, 8] = conv(%x, %w, _) {strides = [1], pads = [0, 0], dilations = [1]}
  %b: f32[1, 4, 8], %c: f32[1, 4, 8] = split(%a) {axis = 1, sizes = [4, 4]}
  %d: f32[1, 4, 8] = sigmoid(%c)
  %e: f32[1, 4, 8] = mul(%b, %d)
  %f: f32[1, 4, 8] = conv(%e, %v, _) {strides = [1], pads = [0, 0], dilations = [1]}
  %g: f32[1, 4, 7] = slice(%f) {axes = [2], starts = [0], ends = [7], steps = [1]}
  %h: f32[1, 4, 7] = relu(%g)
  %i: f32[28] = reshape(%h) {shape = [28]}
  return %i
}
"""


def test_parts_of_images_are_views_and_what_is_made_of_them_lies_as_they_do() -> None:
    graph = parse(GATED)
    assert {"d", "e", "h"} <= _names(graph)
    plan = make_plan(graph, {}, CUDA)
    check_plan(plan)
    kinds = {step.node.outputs[0].name: step.kind.value for step in plan.steps}
    assert kinds["b"] == kinds["g"] == "alias"
    views = {value.name: view for value, view in plan.views.items()}
    assert views["e"].strides == channels_last_strides((1, 4, 8), 4)


def _plan() -> Plan:
    return make_plan(_graph(), {}, CUDA)


def test_plans_lay_images_out_and_inputs_and_outputs_stay_row_major() -> None:
    plan = _plan()
    check_plan(plan)
    views = {value.name: view for value, view in plan.views.items()}
    assert views["c"].strides == channels_last_strides((2, 4, 4, 4), 4)
    assert all(views[name].is_contiguous for name in ("x", "w", "f", "g"))


def test_pointwise_work_on_images_is_done_in_place() -> None:
    plan = _plan()
    views = {value.name: view for value, view in plan.views.items()}
    assert views["a"] == views["b"]


def test_a_reshape_of_an_image_is_no_view() -> None:
    plan = _plan()
    steps = {step.node.outputs[0].name: step.kind.value for step in plan.steps}
    assert steps["f"] == "compute"


DIVIDED = """
graph @main(%x: f32[2, 4, 5, 5], %w: f32[6, 4, 1, 1], %g: f32[2, 2, 3, 1, 1]) {
  %c: f32[2, 6, 5, 5] = conv(%x, %w, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %d: f32[2, 2, 3, 5, 5] = reshape(%c) {shape = [2, 2, 3, 5, 5]}
  %m: f32[2, 2, 3, 5, 5] = mul(%d, %g)
  %s: f32[2, 1, 3, 5, 5] = reduce_sum(%d) {axes = [1], keep_dims = true}
  %r: f32[2, 3, 5, 5] = reshape(%s) {shape = [2, 3, 5, 5]}
  %y: f32[2, 3, 5, 5] = relu(%r)
  %f: f32[2, 75] = reshape(%y) {shape = [2, 75]}
  return %f, %m
}
"""


def test_a_part_of_the_channels_that_is_reduced_leaves_an_image() -> None:
    plan = make_plan(parse(DIVIDED), {}, CUDA)
    check_plan(plan)
    kinds = {step.node.outputs[0].name: step.kind.value for step in plan.steps}
    assert kinds["d"] == kinds["r"] == "alias"
    views = {value.name: view for value, view in plan.views.items()}
    assert views["s"].strides == channels_last_strides((2, 1, 3, 5, 5), 4, 2)
    assert views["y"].strides == channels_last_strides((2, 3, 5, 5), 4)
    assert views["m"].is_contiguous, "a result of the graph"


TURNED = """
graph @main(%x: f32[2, 3, 4], %y: f32[2, 3, 4], %b: f32[3]) {
  %t: f32[4, 2, 3] = transpose(%x) {perm = [2, 0, 1]}
  %u: f32[4, 2, 3] = transpose(%y) {perm = [2, 0, 1]}
  %a: f32[4, 2, 3] = add(%t, %u)
  %c: f32[4, 2, 3] = mul(%a, %b)
  %s: f32[4, 2, 3] = softmax(%c) {axis = 1}
  %h: f64[4, 2, 3] = cast(%s) {to = "f64"}
  %m: f32[2, 3, 4] = transpose(%s) {perm = [1, 2, 0]}
  %r: f32[24] = reshape(%a) {shape = [24]}
  %n: f32[4, 2, 3] = reshape(%r) {shape = [4, 2, 3]}
  %d: f32[4, 2, 3] = sub(%a, %n)
  return %a, %h, %m, %d, %c
}
"""


def _turned(target: Target) -> dict[str, tuple[int, ...]]:
    plan = make_plan(parse(TURNED), {}, target)
    check_plan(plan)
    return {value.name: view.strides for value, view in plan.views.items()}


def test_what_is_made_element_by_element_keeps_the_order_of_its_operands() -> None:
    strides = _turned(HOST)
    assert strides["a"] == strides["t"] == (4, 48, 16)
    assert strides["c"] == strides["s"] == (4, 48, 16), "what is broadcast does not count"
    assert strides["h"] == (8, 96, 32), "elements of another size"
    assert strides["m"] == (48, 16, 4), "turned back it is row-major"


def test_operands_in_unlike_orders_and_copies_give_row_major_results() -> None:
    strides = _turned(HOST)
    assert strides["n"] == (24, 12, 4)
    assert strides["d"] == (24, 12, 4)


def test_a_target_that_does_not_keep_orders_gets_row_major_results() -> None:
    assert _turned(CUDA)["a"] == (24, 12, 4)


ATTENDED = """
graph @main(%q: f16[2, 3, 5, 4], %k: f16[2, 3, 7, 4]) {{
  %a: f16[2, 3, 5, 4] = attention(%q, %k, %k, _, _)
  %t: f16[{sizes}] = transpose(%a) {{perm = {perm}}}
  %r: f16[2, 60] = reshape(%t) {{shape = [2, 60]}}
  return {results}
}}
"""


@pytest.mark.parametrize(
    ("sizes", "perm", "results", "target", "is_view"),
    [
        ("2, 5, 3, 4", "[0, 2, 1, 3]", "%r", CUDA, True),
        ("2, 5, 3, 4", "[0, 2, 1, 3]", "%r", HOST, False),
        ("2, 5, 3, 4", "[0, 2, 1, 3]", "%r, %a", CUDA, False),
        ("2, 5, 4, 3", "[0, 2, 3, 1]", "%r", CUDA, False),
    ],
)
def test_attention_lays_heads_out_as_they_are_joined(
    sizes: str, perm: str, results: str, target: Target, is_view: bool
) -> None:
    plan = make_plan(parse(ATTENDED.format(sizes=sizes, perm=perm, results=results)), {}, target)
    check_plan(plan)
    views = {value.name: view for value, view in plan.views.items()}
    assert views["a"].strides == ((120, 8, 24, 2) if is_view else (120, 40, 8, 2))
    kinds = {step.node.outputs[0].name: step.kind.value for step in plan.steps}
    assert (kinds["r"] == "alias") is is_view


JOINED = """
graph @main(%p: f16[{heads}, 5, 7], %v: f16[{heads}, 7, 4]) {{
  %a: f16[{heads}, 5, 4] = matmul(%p, %v)
  %t: f16[{steps}, 4] = transpose(%a) {{perm = {perm}}}
  %r: f16[{joined}] = reshape(%t) {{shape = [{joined}]}}
  return %r
}}
"""


@pytest.mark.parametrize(
    ("heads", "steps", "perm", "joined", "is_view"),
    [
        ("3", "5, 3", "[1, 0, 2]", "5, 12", True),
        ("1, 3", "1, 5, 3", "[0, 2, 1, 3]", "1, 60", True),
        ("2, 3", "2, 5, 3", "[0, 2, 1, 3]", "2, 60", False),
    ],
)
def test_matmuls_of_one_batch_lay_heads_out_as_they_are_joined(
    heads: str, steps: str, perm: str, joined: str, is_view: bool
) -> None:
    plan = make_plan(parse(JOINED.format(heads=heads, steps=steps, perm=perm, joined=joined)), {}, CUDA)
    check_plan(plan)
    kinds = {step.node.outputs[0].name: step.kind.value for step in plan.steps}
    assert (kinds["r"] == "alias") is is_view


def test_strides_follow_the_order_of_axes() -> None:
    assert strides_in_order((4, 2, 3), 4, (1, 2, 0)) == (4, 48, 16)
    assert strides_in_order((2, 3), 8, (0, 1)) == (24, 8)
