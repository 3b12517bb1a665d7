"""Arenas of the benchmark models are about as small as they can be, as imported and as optimized."""

import pytest
from capgraph.executors.host.kernels import scratch_bytes
from capgraph.executors.host.memory import FRESH_BYTES
from capgraph.ir.graph import Graph
from capgraph.ir.target import HOST
from capgraph.passes.catalog import level_pipeline
from capgraph.passes.planning import planner
from capgraph.passes.planning.check_plan import check_plan
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from tests.models.model_texts import NAMES, model_graph

BEYOND_THE_BOUND = 1.05
SIZES = ({"batch": 1, "length": 16}, {"batch": 5, "length": 57})


def sized(graph: Graph, sizes: dict[str, int]) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if name in graph.symbols.names}


def test_all_models_are_here() -> None:
    assert len(NAMES) == 11


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_an_arena_is_about_as_small_as_its_lower_bound(name: str, level: int) -> None:
    assert planner.checks_plans
    graph = model_graph(name)
    level_pipeline(level).run(graph, check="none")
    for sizes in SIZES:
        plan = make_plan(graph, sized(graph, sizes), HOST)
        assert 0 < plan.arena_bytes <= BEYOND_THE_BOUND * plan.lower_bound, sizes


@pytest.mark.parametrize("name", ["gpt2", "mobilenet-v2"])
def test_so_are_those_that_programs_use(name: str) -> None:
    graph = model_graph(name)
    plan = make_plan(
        graph,
        sized(graph, SIZES[0]),
        HOST,
        PlanPolicy(lowering=Lowering(scratch=scratch_bytes), fresh_bytes=FRESH_BYTES),
    )
    check_plan(plan)
    assert 0 < plan.arena_bytes <= BEYOND_THE_BOUND * plan.lower_bound
