"""Channels-last values: what convolutions make and what is made of it; the rest stays row-major."""

from capgraph.ir.graph import Graph
from capgraph.ir.parser import parse
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA, HOST, Target
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.layouts import channels_last_strides, channels_last_values
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
