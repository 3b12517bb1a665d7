"""Lowering: which candidates a step has, what planning is told, and when the host is all that is left."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import (
    BufferPlace,
    Candidate,
    Chip,
    HostCall,
    Kernel,
    KernelLaunch,
    LibraryCall,
    Lowering,
    Task,
)
from capgraph.executors.cuda.lower import lowering
from capgraph.executors.cuda.lower.lowering import Backend, families, families_of, is_within_limits
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse
from capgraph.passes.planning import lowering as planning
from capgraph.passes.planning.planner import PlanPolicy, make_plan

EMPTY = Kernel("kernel", (1, 1, 1), (1, 1, 1))


def one_candidate(task: Task) -> Iterator[Candidate]:
    places = [BufferPlace(view.buffer, view.offset) for view in (*task.results, *task.operands) if view is not None]
    yield Candidate("one", (KernelLaunch(EMPTY, tuple(places), 0),))


def by_library(task: Task) -> Iterator[Candidate]:
    yield Candidate("library", (LibraryCall("missing", None, {}, 0),))
    yield from one_candidate(task)


def over_scratch(task: Task) -> Iterator[Candidate]:
    yield Candidate("much", (KernelLaunch(EMPTY, (), 0),), scratch_bytes=5000)
    yield Candidate("little", (KernelLaunch(EMPTY, (), 0),), scratch_bytes=1000)


WIDE = Kernel("wide", (1, 1, 65536), (1, 1, 1))


def too_wide(task: Task) -> Iterator[Candidate]:
    yield Candidate("wide", (KernelLaunch(WIDE, (), 0),))


def chain() -> Graph:
    b = Builder()
    x = b.input("x", "f32[4, 4]")
    return b.finish({"y": b.op("softmax", b.op("matmul", b.op("exp", x), x))})


def planned(graph: Graph, backend: Backend) -> Plan:
    planner = cuda_planning(backend, ReplayOptions(), fuses=False)
    return planner.of(graph)({}, CaptureMode.FULL)


def test_the_first_candidate_is_the_first_familys_and_the_last_is_the_host() -> None:
    backend = Backend()
    with patch.object(lowering, "families_of", lambda _op: (one_candidate, over_scratch)):
        plan = planned(chain(), backend)
        steps = backend.lower(plan)
    names = [[candidate.name for candidate in each.candidates] for each in steps]
    assert names == [["one", "much", "little", "host"]] * 3
    assert len(plan.segments) == 1
    assert plan.segments[0].is_captured


def test_what_has_no_family_is_cut_out_and_says_why() -> None:
    with patch.object(lowering, "families_of", lambda op: () if op == "softmax" else (one_candidate,)):
        backend = Backend()
        plan = planned(chain(), backend)
        (last,) = backend.lower(plan)[-1].candidates
    assert last.launches == (HostCall("there is no kernel for this op"),)
    assert [segment.is_captured for segment in plan.segments] == [True, False]


def test_candidates_of_libraries_that_are_not_installed_are_left_out() -> None:
    with patch.object(lowering, "families_of", lambda _op: (by_library,)):
        without, having = Backend(), Backend(libraries=frozenset({"missing"}))
        plan = planned(chain(), without)
        assert [each.name for each in without.lower(plan)[0].candidates] == ["one", "host"]
        assert [each.name for each in having.lower(plan)[0].candidates] == ["library", "one", "host"]


def test_candidates_beyond_what_cuda_launches_are_left_out() -> None:
    with patch.object(lowering, "families_of", lambda _op: (too_wide, one_candidate)):
        backend = Backend()
        steps = backend.lower(planned(chain(), backend))
    assert [[candidate.name for candidate in each.candidates] for each in steps] == [["one", "host"]] * 3


def test_a_step_whose_kernels_are_all_too_wide_is_planned_for_the_host() -> None:
    with patch.object(lowering, "families_of", lambda op: (too_wide,) if op == "softmax" else (one_candidate,)):
        backend = Backend()
        plan = planned(chain(), backend)
        (last,) = backend.lower(plan)[-1].candidates
    assert last.launches == (HostCall("no kernel fits its dtypes, layouts or sizes"),)
    assert [segment.is_captured for segment in plan.segments] == [True, False]


@pytest.mark.parametrize(
    ("change", "is_within"),
    [
        ({}, True),
        ({"grid": (2**31 - 1, 65535, 65535)}, True),
        ({"grid": (2**31, 1, 1)}, False),
        ({"grid": (1, 65536, 1)}, False),
        ({"grid": (0, 1, 1)}, False),
        ({"block": (32, 4, 8)}, True),
        ({"block": (32, 4, 9)}, False),
        ({"block": (1, 1, 65)}, False),
        ({"cluster": (8, 1, 1)}, True),
        ({"cluster": (8, 2, 1)}, False),
        ({"shared_bytes": 1024}, True),
        ({"shared_bytes": 1025}, False),
    ],
)
def test_the_limits_of_a_launch(change: dict[str, Any], is_within: bool) -> None:
    assert is_within_limits(replace(EMPTY, **change), Chip(shared_bytes=1024)) is is_within


def test_the_most_scratch_that_a_candidate_takes_is_planned() -> None:
    backend = Backend()
    with patch.object(lowering, "families_of", lambda _op: (over_scratch,)):
        plan = planned(chain(), backend)
        tasks = [lowering.task_of(plan, step, backend.chip) for step in plan.steps]
    assert [task.scratch_bytes for task in tasks] == [5000] * 3
    assert all(task.scratch is not None for task in tasks)


def test_a_step_without_elements_needs_nothing() -> None:
    b = Builder()
    x = b.input("x", "f32[0, 4]")
    graph = b.finish({"y": b.op("exp", x)})
    with patch.object(lowering, "families_of", lambda _op: (one_candidate,)):
        backend = Backend()
        (step,) = backend.lower(planned(graph, backend))
    assert step.candidates == ()


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("argmin", ["f32[0, 4]"], {"axis": 0}),
        ("gather", ["f32[0, 4]", "i64[3]"], {"axis": 0}),
        ("gemm", ["f16[3, 0]", "f16[0, 8]", "f16[8]"], {}),
        ("pad", ["f32[0, 4]", None], {"pads": [1, 0, 1, 0], "mode": "reflect"}),
        ("pad", ["f32[3, 1]", None], {"pads": [0, -1, 0, 2], "mode": "wrap"}),
        # what makes nothing may fail all the same
        ("argmin", ["f32[0, 4, 0]"], {"axis": 0}),
        ("gather", ["f32[0, 0]", "i64[3]"], {"axis": 0}),
        ("keyed_multinomial", ["f32[0, 0]", "u64[2]"], {"dtype": DType.I64, "sample_size": 3, "stream": 1}),
        ("scatter_nd", ["f32[0, 4]", "i64[2, 1]", "f32[2, 4]"], {}),
    ],
)
def test_what_is_made_of_nothing_is_for_the_meaning_to_say(
    op: str, shapes: list[str | None], attrs: dict[str, Any]
) -> None:
    b = Builder()
    operands = [shape and b.input(f"x{index}", shape) for index, shape in enumerate(shapes)]
    y = b.op(op, *operands, **attrs)
    plan = make_plan(
        b.finish({"y": y}), {}, CUDA, PlanPolicy(lowering=planning.Lowering(scratch=Backend().scratch_bytes))
    )
    assert not Backend().captures(plan.steps[-1].node)
    (candidate,) = Backend().lower_step(plan, plan.steps[-1]).candidates
    assert candidate.launches == (HostCall("an operand has no elements"),)


def test_a_region_is_for_the_meaning_to_say_where_a_node_in_it_is() -> None:
    b = Builder()
    x = b.op("gather", b.input("x", "f32[0, 0]"), b.input("i", "i64[3]"))
    graph = b.finish({"y": b.op("exp", x)})
    Pipeline(((Fuse(lookups=True),),)).run(graph)
    (node,) = graph.nodes
    assert node.op.name == "fused"
    assert not Backend().captures(node)


def test_a_region_of_unknown_size_has_no_kernel() -> None:
    graph = parse("""
        graph @main(%x: i64[3], %y: f32[1, 4]) {
          %a: f32[u0, u1, u2] = dynamic_full(%x) {value = dense<f32[]: 1.0>}
          %b: f32[u0, u1, u2] = exp(%a)
          %c: f32[u0, u1, u2] = sin(%b)
          return %c
        }""")
    Pipeline(((Fuse(),),)).run(graph)
    (fused,) = (node for node in graph.nodes if node.op.name == "fused")
    assert not Backend().captures(fused)


def test_caches_may_be_empty() -> None:
    b = Builder()
    cache, row = b.input("cache", "f32[0, 4]"), b.input("row", "f32[1, 4]")
    y = b.op("concat", cache, row, axis=0)
    plan = make_plan(
        b.finish({"y": y}), {}, CUDA, PlanPolicy(lowering=planning.Lowering(scratch=Backend().scratch_bytes))
    )
    assert Backend().captures(plan.steps[-1].node)


def test_sizes_that_depend_on_values_stay_on_the_host() -> None:
    b = Builder()
    x = b.input("x", "f32[4]")
    graph = b.finish({"y": b.op("non_zero", x)})
    with patch.object(lowering, "families_of", lambda _op: (one_candidate,)):
        backend = Backend()
        (step,) = backend.lower(make_plan(graph, {}, replace(CUDA, bounded=frozenset())))
    assert [candidate.name for candidate in step.candidates] == ["host"]


def test_places_of_a_scalar_are_counted_though_none_has_a_number() -> None:
    b = Builder()
    places = b.op("non_zero", b.input("x", "f32[]"))  # i64[0, u0]
    node = list(b.finish({"y": places}).nodes)[-1]
    assert not Backend().captures(node)


def test_constants_are_handed_to_families() -> None:
    seen: list[dict[int, float]] = []

    def note(task: Task) -> Iterator[Candidate]:
        seen.append({index: float(content.array.max()) for index, content in task.constants.items()})
        yield from one_candidate(task)

    b = Builder()
    x = b.input("x", "f32[20]")
    graph = b.finish({"y": b.op("sub", b.constant(np.arange(20, dtype=np.float32)), x)})
    with patch.object(lowering, "families_of", lambda _op: (note,)):
        backend = Backend()
        backend.lower(planned(graph, backend))
    assert seen[-1] == {0: 19.0}


@pytest.mark.parametrize("table", families())
def test_every_family_is_asked_without_a_gpu(table: Mapping[str, Lowering]) -> None:
    assert all(lowering_of in families_of(op) for op, lowering_of in table.items())
