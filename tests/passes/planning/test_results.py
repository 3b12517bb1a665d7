"""Results outside of the arena: which are worth memory of their own."""

from dataclasses import replace

import pytest
from capgraph.ir.errors import InternalError
from capgraph.ir.plan import Place
from capgraph.passes.planning.check_plan import check_plan

from tests.passes.planning.planned import place, planned, shares, view

LEAST = 64
"""Bytes for each step that touches a result."""

CHAIN = """
graph @main(%x: f32[64]) {
  %a: f32[64] = exp(%x)
  %b: f32[64] = neg(%a)
  %y: f32[64] = relu(%b)
  return %y
}"""


def test_a_large_result_lies_outside_of_the_arena() -> None:
    inside, apart = planned(CHAIN), planned(CHAIN, fresh_bytes=LEAST)
    assert place(inside, "y") is Place.ARENA
    assert place(apart, "y") is Place.OUTPUT
    assert shares(apart, "a", "b", "y"), "what is computed in place is made there"
    assert apart.arena_bytes == inside.arena_bytes - 256


def test_a_result_that_many_steps_touch_is_copied() -> None:
    assert place(planned(CHAIN, fresh_bytes=85), "y") is Place.OUTPUT
    assert place(planned(CHAIN, fresh_bytes=86), "y") is Place.ARENA


def test_views_of_inputs_and_constants_stay() -> None:
    plan = planned(
        """
        graph @main(%x: f32[64]) {
          %v: f32[8, 8] = reshape(%x) {shape = [8, 8]}
          %k: f32[2] = constant() {value = dense<f32[2]: [1.0, 2.0]>}
          return %v, %k
        }""",
        fresh_bytes=1,
    )
    assert (place(plan, "v"), plan.buffer_of(plan.graph.outputs[1]).place) == (Place.ARENA, Place.CONSTANT)


def test_the_next_content_of_a_state_stays() -> None:
    plan = planned(
        """
        graph @main(%old: f32[64], %x: f32[64]) {
          %new: f32[64] = add(%old, %x)
          %next: f32[64] = exp(%x)
          %y: f32[64] = sub(%old, %next)
          return %next -> %old, %new, %y
        }""",
        fresh_bytes=1,
    )
    assert place(plan, "next") is not Place.OUTPUT
    assert place(plan, "new") is place(plan, "y") is Place.OUTPUT


def test_a_small_part_does_not_hold_the_whole() -> None:
    text = """
        graph @main(%x: f32[64]) {{
          %a: f32[64] = exp(%x)
          %y: f32[{0}] = slice(%a) {{starts = [0], ends = [{0}], axes = [0], steps = [1]}}
          return %y
        }}"""
    assert place(planned(text.format(31), fresh_bytes=1), "y") is Place.ARENA
    assert place(planned(text.format(32), fresh_bytes=1), "y") is Place.OUTPUT


def test_the_checker_refuses_inputs_that_are_handed_out() -> None:
    plan = planned(CHAIN, fresh_bytes=LEAST)
    index = view(plan, "x").buffer
    buffers = tuple(replace(each, place=Place.OUTPUT) if each.id == index else each for each in plan.buffers)
    with pytest.raises(InternalError, match="handed out"):
        check_plan(replace(plan, buffers=buffers))
