from textwrap import dedent
from typing import Any

import pytest
from capgraph.ir.equality import first_difference
from capgraph.ir.errors import InputError, ShapeError
from capgraph.ir.target import CUDA, HOST
from capgraph.ir.text.parser import parse
from capgraph.passes.planning import planner
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import PlanPolicy, make_plan
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.planning.planned import CONTIGUOUS, planned
from tests.strategies.graphs import graphs, inputs_for, random_graph, random_inputs


def test_shape_arithmetic_is_gone_once_sizes_are_known() -> None:
    plan = planned(
        """
        graph @main(%x: f32[B, 4]) {
          %n: i64[2] = shape(%x)
          %b: i64[1] = slice(%n) {axes = [0], starts = [0], ends = [1], steps = [1]}
          %c: i64[1] = constant() {value = dense<i64[1]: [4]>}
          %s: i64[1] = mul(%b, %c)
          %r: f32[u0] = dynamic_reshape(%x, %s)
          %y: f32[u0] = exp(%r)
          return %y
        }""",
        {"B": 3},
    )
    assert [step.node.op.name for step in plan.steps if step.node.inputs][-1] == "exp"
    assert str(plan.graph.outputs[0].type) in {"f32[12]", "f32[u0]"}


def test_the_graph_is_not_changed() -> None:
    graph = parse(
        dedent("""
        graph @main(%x: f32[B]) {
          %a: f32[B] = exp(%x)
          return %a
        }""")
    )
    before = graph.clone()
    make_plan(graph, {"B": 3}, HOST)
    assert first_difference(graph, before) is None


def test_only_inputs_can_be_donated() -> None:
    with pytest.raises(InputError, match="no input z to donate"):
        planned(
            """
            graph @main(%x: f32[2]) {
              %z: f32[2] = exp(%x)
              return %z
            }""",
            donated=["z"],
        )


def test_a_chain_needs_one_buffer_beside_its_input() -> None:
    nodes = "\n".join(f"          %v{i + 1}: f32[1000] = exp(%v{i})" for i in range(20))
    plan = planned(f"""
        graph @main(%v0: f32[1000]) {{
{nodes}
          return %v20
        }}""")
    assert plan.arena_bytes == plan.lower_bound == 2 * 4032


def test_buffers_are_aligned_for_the_target() -> None:
    plan = planned(
        """
        graph @main(%x: f32[3], %y: f32[3]) {
          %a: f32[3] = add(%x, %y)
          return %a
        }""",
        target=CUDA,
    )
    assert {buffer.offset % 256 for buffer in plan.buffers} == {0}


def test_scratch_lies_in_the_arena_for_the_time_of_its_step() -> None:
    graph = parse(
        """
        graph @main(%x: f32[64], %y: f32[64]) {
          %a: f32[64] = exp(%x)
          %b: f32[64] = add(%a, %y)
          %c: f32[64] = exp(%b)
          return %c
        }"""
    )
    plan = make_plan(
        graph,
        {},
        HOST,
        PlanPolicy(lowering=Lowering(scratch=lambda node, _views: 1000 if node.op.name == "add" else 0)),
    )
    without = make_plan(graph, {}, HOST)
    (step,) = [step for step in plan.steps if step.scratch is not None]
    buffer = plan.buffers[step.scratch]
    assert (step.node.op.name, buffer.nbytes, buffer.first, buffer.last) == ("add", 1000, step.index, step.index)
    assert without.arena_bytes < plan.arena_bytes == plan.lower_bound
    check_plan(plan)


ONE = """
    graph @main(%x: f32[2]) {
      %z: f32[2] = exp(%x)
      return %z
    }"""


def test_only_inputs_can_be_resident_and_those_that_are_not_donated() -> None:
    with pytest.raises(InputError, match="no input z to keep outside of the arena"):
        planned(ONE, resident=["z"])
    with pytest.raises(InputError, match="donated and to be resident"):
        planned(ONE, resident=["x"], donated=["x"])


def test_every_plan_is_checked_in_tests() -> None:
    assert planner.checks_plans


@given(st.data())
def test_plans_of_random_graphs_are_sound_and_small(data: Any) -> None:
    graph = data.draw(graphs())
    sizes, _ = data.draw(inputs_for(graph))
    uses = {value.name: data.draw(st.sampled_from(["", "donated", "resident"])) for value in graph.inputs}
    donated, resident = ([name for name in uses if uses[name] == use] for use in ("donated", "resident"))
    target = data.draw(st.sampled_from([HOST, CUDA, CONTIGUOUS]))
    try:
        plan = make_plan(graph, sizes, target, PlanPolicy(donated=donated, resident=resident))
    except ShapeError:
        return  # sizes that the graph does not admit
    check_plan(plan)
    assert plan.arena_bytes <= 1.05 * plan.lower_bound


def test_plans_of_many_seeded_graphs() -> None:
    for seed in range(400):
        graph = random_graph(seed, max_nodes=14)
        sizes, _ = random_inputs(graph, seed)
        plan = make_plan(
            graph, sizes, (HOST, CUDA, CONTIGUOUS)[seed % 3], PlanPolicy(donated=[v.name for v in graph.inputs[::2]])
        )
        check_plan(plan)
        assert plan.arena_bytes <= 1.05 * plan.lower_bound, seed
