"""A plan that is damaged in any way is found to be wrong."""

from dataclasses import replace

import pytest
from capgraph.ir.errors import InternalError
from capgraph.ir.plan import Buffer, Place, Plan, Segment, StepKind, View
from capgraph.passes.planning.check_plan import check_plan
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.planning.planned import UNBOUNDED, planned, view

TEXT = """
    graph @main(%x: f32[8], %s: f32[8]) {
      %k: f32[8] = constant() {value = dense<f32[8]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>}
      %a: f32[8] = exp(%x)
      %b: f32[8] = add(%a, %k)
      %c: f32[8] = mul(%a, %b)
      %r: f32[4, 2] = reshape(%c) {shape = [4, 2]}
      %t: f32[2, 4] = transpose(%r) {perm = [1, 0]}
      %n: f32[8] = add(%s, %c)
      return %t, %n -> %s, %b
    }"""


def sound() -> Plan:
    return planned(TEXT)


def with_buffer(plan: Plan, index: int, **changes: object) -> Plan:
    buffers = list(plan.buffers)
    buffers[index] = replace(buffers[index], **changes)  # type: ignore[arg-type]
    return replace(plan, buffers=tuple(buffers))


def with_view(plan: Plan, name: str, **changes: object) -> Plan:
    moved = replace(view(plan, name), **changes)  # type: ignore[arg-type]
    return replace(plan, views={**plan.views, plan.graph.value(name): moved})


def buffer_of(plan: Plan, name: str) -> Buffer:
    return plan.buffers[view(plan, name).buffer]


def refuse(plan: Plan, reason: str) -> None:
    with pytest.raises(InternalError, match=reason):
        check_plan(plan)


def test_a_sound_plan_passes() -> None:
    check_plan(sound())


def test_live_values_may_not_share_bytes() -> None:
    plan = sound()
    refuse(with_buffer(plan, view(plan, "b").buffer, offset=buffer_of(plan, "a").offset), "overwrites|lie")


def test_a_buffer_is_kept_as_long_as_it_is_read() -> None:
    plan = sound()
    refuse(with_buffer(plan, view(plan, "a").buffer, last=1), "is needed up to step")
    refuse(with_buffer(plan, view(plan, "b").buffer, first=9), "is needed up to step")


def test_buffers_lie_in_the_arena_and_aligned() -> None:
    plan = sound()
    refuse(with_buffer(plan, view(plan, "a").buffer, offset=plan.arena_bytes), "beyond the arena")
    refuse(with_buffer(plan, view(plan, "a").buffer, offset=4), "misaligned")


def test_values_lie_in_their_buffers() -> None:
    plan = sound()
    refuse(with_view(plan, "a", offset=4), "reaches beyond its buffer")
    refuse(with_view(plan, "a", shape=(4,)), "but its place holds")
    refuse(replace(plan, views={v: at for v, at in plan.views.items() if v.name != "a"}), "has no place")


def test_a_view_lies_where_its_operand_is() -> None:
    plan = sound()
    refuse(with_view(plan, "t", buffer=view(plan, "b").buffer), "said to lie in its operands|kept for")


def test_constants_are_not_written() -> None:
    plan = sound()
    refuse(with_view(plan, "b", buffer=view(plan, "k").buffer), "is written into a constant|kept for")
    refuse(with_buffer(plan, view(plan, "b").buffer, place=Place.CONSTANT), "is written into a constant")


def test_states_are_written_by_their_next_content_only() -> None:
    plan = sound()
    refuse(with_view(plan, "c", buffer=view(plan, "s").buffer), "written into a state|overwrites|said to lie|kept for")
    refuse(with_buffer(plan, view(plan, "c").buffer, place=Place.STATE), "written into a state")


def test_the_next_content_of_a_state_arrives() -> None:
    plan = planned("""
        graph @main(%s: f32[4], %x: f32[4]) {
          %new: f32[4] = add(%s, %x)
          return %new -> %s, %s as old
        }""")
    refuse(replace(plan, copies={}), "neither in its place nor copied")


def test_steps_are_the_nodes_in_order() -> None:
    plan = sound()
    refuse(replace(plan, steps=plan.steps[:-1]), "not the nodes")
    refuse(replace(plan, steps=plan.steps[::-1]), "not the nodes")


def test_segments_cover_the_steps_and_give_reasons() -> None:
    plan = sound()
    count = len(plan.steps)
    refuse(replace(plan, segments=(Segment(0, count - 1, is_captured=True),)), "do not cover")
    refuse(replace(plan, segments=(Segment(0, count, is_captured=False),)), "for no reason")


def test_captured_segments_have_known_sizes() -> None:
    plan = planned(
        """
        graph @main(%x: f32[4]) {
          %n: i64[1, u0] = non_zero(%x)
          return %n
        }""",
        target=UNBOUNDED,
    )
    refuse(replace(plan, segments=(Segment(0, len(plan.steps), is_captured=True),)), "unknown size")


def test_an_op_may_not_overwrite_an_operand_in_another_order() -> None:
    plan = planned("""
        graph @main(%x: f32[3, 3]) {
          %a: f32[3, 3] = exp(%x)
          %b: f32[3, 3] = relu(%a)
          return %b
        }""")
    assert view(plan, "a").buffer == view(plan, "b").buffer
    refuse(with_view(plan, "b", strides=(4, 12)), "overwrites %a")


def test_work_may_not_be_left_out() -> None:
    plan = sound()
    steps = tuple(
        replace(step, kind=StepKind.ALIAS) if step.node.outputs[0].name == "b" else step for step in plan.steps
    )
    refuse(replace(plan, steps=steps), "said to lie in its operands")


@given(st.data())
def test_no_buffer_can_be_moved_onto_a_live_one(data: st.DataObject) -> None:
    plan = sound()
    arena = [b for b in plan.buffers if b.place is Place.ARENA and b.nbytes]
    one, other = data.draw(st.permutations(arena))[:2]
    if one.last < other.first or other.last < one.first or one.last <= other.first or other.last <= one.first:
        return  # they may share their bytes
    with pytest.raises(InternalError):
        check_plan(with_buffer(plan, one.id, offset=other.offset))


def test_views_tell_their_extent() -> None:
    backward = View(0, 36, view(sound(), "a").dtype, (4, 3), (-12, 4))
    assert backward.reach == (-36, 12)
