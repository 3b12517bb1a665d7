from dataclasses import replace

import pytest
from capgraph.ir.errors import InternalError
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Place, Plan
from capgraph.ir.target import CUDA
from capgraph.passes.planning.check_plan import check_plan

from tests.passes.planning.planned import UNBOUNDED, planned

BODY = """
    graph @body(%i: i64[], %c: bool[], %h: f32[B, 8], %v: f32[8, 8]) {
      %p: f32[B, 8] = matmul(%h, %v)
      %q: f32[B, 8] = add(%p, %h)
      %r: f32[B, 8] = tanh(%q)
      return %c, %r
    }"""

LOOP = f"""
    graph @main(%n: i64[], %x: f32[B, 8], %w: f32[8, 8]) {{
      %a: f32[B, 8] = exp(%x)
      %y: f32[B, 8] = loop(%n, _, %a, %w) {{body = @body, carried = 1}}
      return %y
    }}
    {BODY}"""

BRANCHES = """
    graph @main(%c: bool[], %x: f32[64]) {
      %y: f32[64] = if(%c, %x) {then_body = @large, else_body = @small}
      return %y
    }

    graph @large(%t: f32[64]) {
      %a: f32[64] = exp(%t)
      %b: f32[64] = sin(%t)
      %d: f32[64] = add(%a, %b)
      return %d
    }

    graph @small(%e: f32[64]) {
      %f: f32[64] = neg(%e)
      return %f
    }"""


def bodies(plan: Plan) -> dict[str, Plan]:
    return {body.name: inner for body, inner in plan.bodies.items()}


def test_a_body_has_a_plan_and_its_arena_is_the_scratch_of_the_loop() -> None:
    plan = planned(LOOP, {"B": 3})
    (body,) = plan.bodies.values()
    (step,) = [step for step in plan.steps if step.node.op.name == "loop"]
    assert body.graph is step.node.regions["body"]
    assert step.scratch is not None
    scratch = plan.buffers[step.scratch]
    assert (scratch.place, scratch.nbytes, scratch.first, scratch.last) == (
        Place.ARENA,
        body.arena_bytes,
        step.index,
        step.index,
    )
    assert 0 < body.arena_bytes == body.lower_bound
    assert [body.buffer_of(value).place for value in body.graph.inputs] == [Place.INPUT] * 4


def test_bodies_of_one_node_take_turns_in_the_same_bytes() -> None:
    plan = planned(BRANCHES)
    sizes = {name: inner.arena_bytes for name, inner in bodies(plan).items()}
    (step,) = [step for step in plan.steps if step.scratch is not None]
    assert step.scratch is not None
    assert sizes["large"] > sizes["small"] > 0
    assert plan.buffers[step.scratch].nbytes == sizes["large"]


def test_a_body_within_a_body_has_a_plan_in_it() -> None:
    nested = f"""
    graph @main(%n: i64[], %x: f32[3, 8], %w: f32[8, 8]) {{
      %y: f32[3, 8] = loop(%n, _, %x, %w, %n) {{body = @outer, carried = 1}}
      return %y
    }}

    graph @outer(%j: i64[], %d: bool[], %g: f32[3, 8], %u: f32[8, 8], %m: i64[]) {{
      %z: f32[3, 8] = loop(%m, _, %g, %u) {{body = @body, carried = 1}}
      return %d, %z
    }}
    {BODY.replace("B, 8", "3, 8")}"""
    plan = planned(nested)
    outer = bodies(plan)["outer"]
    assert bodies(outer).keys() == {"body"}
    assert outer.arena_bytes >= bodies(outer)["body"].arena_bytes > 0


def test_a_body_with_a_size_that_running_tells_has_none() -> None:
    text = """
    graph @main(%c: bool[], %x: f32[4]) {
      %k: i64[1, u0] = non_zero(%x)
      %y: f32[1, u1] = if(%c, %k) {then_body = @then, else_body = @else}
      return %y
    }

    graph @then(%a: i64[1, u0]) {
      %b: f32[1, u0] = cast(%a) {to = f32}
      return %b
    }

    graph @else(%d: i64[1, u0]) {
      %e: f32[1, u0] = cast(%d) {to = f32}
      return %e
    }"""
    assert planned(text, target=UNBOUNDED).bodies == {}


def test_other_targets_plan_no_bodies() -> None:
    assert planned(LOOP, {"B": 3}, target=CUDA).bodies == {}


def broken(plan: Plan, reason: str) -> None:
    with pytest.raises(InternalError, match=reason):
        check_plan(plan)


def test_damaged_plans_of_bodies_are_found() -> None:
    plan = planned(LOOP, {"B": 3})
    ((body, inner),) = plan.bodies.items()
    broken(replace(plan, bodies={body: replace(inner, arena_bytes=1 << 20)}), "no room for its")
    broken(replace(plan, bodies={Graph("other"): inner}), "belongs to no step")
    lost = tuple(replace(b, place=Place.ARENA) if b.place is Place.INPUT else b for b in inner.buffers)
    broken(replace(plan, bodies={body: replace(inner, buffers=lost)}), "lies in the arena, where it would be lost")
