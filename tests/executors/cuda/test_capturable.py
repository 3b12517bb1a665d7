"""Which ops can be recorded on a GPU: those with a kernel, and no others (`tests/gpu/test_capturable.py` does it)."""

import pytest
from capgraph.executors.cuda.kernel_ir.launch import HostCall
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph
from capgraph.ir.op import Trait
from capgraph.ir.ops import OPS
from capgraph.ir.target import CUDA
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from tests.executors.cuda.op_cases import NEVER_RECORDED, op_cases
from tests.strategies.draw import Subject
from tests.strategies.graphs import random_graph, random_inputs, subjects

BACKEND = Backend()
TRIES = 10
FOUND = frozenset({"compress", "non_max_suppression", "non_zero", "unique"})
"""What they find has kernels where planning has a bound for it."""


def is_recordable(graph: Graph, seed: int) -> bool:
    """Whether every step of a graph has a candidate without the host."""
    sizes, _ = random_inputs(graph, seed)
    plan = make_plan(graph, sizes, CUDA, PlanPolicy(lowering=Lowering(scratch=BACKEND.scratch_bytes)))
    first = [each.candidates[0] for each in BACKEND.lower(plan) if each.candidates]
    return not any(isinstance(launch, HostCall) for each in first for launch in each.launches)


@pytest.mark.parametrize("op", sorted(OPS.keys() - {"fused"}))
def test_what_has_a_kernel_is_marked_as_capturable(op: str) -> None:
    marks = {is_recordable(graph, seed) for graph, _, seed in op_cases(op)}
    assert marks
    assert (True in marks) == (op not in NEVER_RECORDED)


def has_kernel(op: str, subject: Subject) -> bool:
    """Whether some node with a dtype as an operand has a kernel, or none can be drawn."""
    drawn = 0
    for seed in range(TRIES):
        try:
            graph = random_graph(seed, ops=[op], max_nodes=1, symbols=False, subject=subject)
        except CapgraphError:
            continue
        for node in graph.nodes:
            if node.op.name == op:
                drawn += 1
                if BACKEND.captures(node):
                    return True
    return not drawn


def test_every_dtype_that_an_op_admits_has_a_kernel() -> None:
    """Of any size known beforehand; `docs/codegen.md` says why others have none."""
    ops = OPS.keys() - NEVER_RECORDED - FOUND - {"fused"}
    missing = [
        f"{op}, {subject.operand}: {subject.dtype}"
        for op in sorted(ops)
        for subject in subjects([op])
        if subject.dtype is not DType.STRING and not has_kernel(op, subject)
    ]
    assert not missing


def test_planning_is_told_what_lowering_can_do() -> None:
    known = {name for name, op in OPS.items() if not op.has(Trait.DATA_DEPENDENT)}
    for op in sorted(known - NEVER_RECORDED - {"fused"}):
        for graph, node, seed in op_cases(op):
            assert BACKEND.captures(node) == is_recordable(graph, seed), graph


def test_sorting_resizing_pooling_and_cumulative_sums_are_recorded() -> None:
    named = {"top_k", "resize", "max_pool", "average_pool", "cumsum", "gather", "scatter_elements", "conv_transpose"}
    assert named <= OPS.keys() - NEVER_RECORDED


@pytest.mark.parametrize("handed_on", ["f32[4, 5]", "f32[2, 4, 5]"])
def test_regions_that_hand_on_an_operand_of_another_shape(handed_on: str) -> None:
    graph = parse(f"""
        graph @main(%x: {handed_on}, %y: f32[4, 3]) {{
          %a: f32[4], %b: {handed_on} = fused(%x, %y) {{body = @kernel}}
          return %a, %b
        }}
        graph @kernel(%p: {handed_on}, %q: f32[4, 3]) {{
          %r: f32[4] = reduce_max(%q) {{axes = [1], keep_dims = false}}
          return %r, %p
        }}""")
    (step,) = BACKEND.lower(make_plan(graph, {}, CUDA, PlanPolicy(lowering=Lowering(scratch=BACKEND.scratch_bytes))))
    assert step.candidates[0].name == "stepwise"  # one kernel runs over the rows of one shape


def test_elementwise_regions_whose_results_differ_in_shape() -> None:
    graph = parse("""
        graph @main(%x: u8[4, 2, 3], %y: u8[3], %z: u8[]) {
          %a: u8[3], %b: u8[4, 2, 3] = fused(%x, %y, %z) {body = @kernel}
          return %a, %b
        }
        graph @kernel(%p: u8[4, 2, 3], %q: u8[3], %r: u8[]) {
          %s: u8[4, 2, 3] = sub(%p, %p)
          %t: u8[3] = clip(%q, %r, %r)
          return %t, %s
        }""")
    (step,) = BACKEND.lower(make_plan(graph, {}, CUDA, PlanPolicy(lowering=Lowering(scratch=BACKEND.scratch_bytes))))
    assert step.candidates[0].name == "stepwise"
