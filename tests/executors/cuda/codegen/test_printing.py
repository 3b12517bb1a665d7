"""Kernel programs and launches as text."""

from capgraph.executors.cuda.kernel_ir.launch import BufferPlace
from capgraph.executors.cuda.kernel_ir.layouts import dense
from capgraph.executors.cuda.kernel_ir.printing import launch_lines, print_program
from capgraph.executors.cuda.kernel_ir.program import KernelProgram
from capgraph.executors.cuda.kernel_ir.reduction_schedule import ReductionSchedule
from capgraph.executors.cuda.kernel_ir.regions import region_of
from capgraph.executors.cuda.kernel_ir.types import Name
from capgraph.executors.cuda.kernels.reductions import reduction_program
from capgraph.executors.cuda.lower.lowering import Backend, LoweredStep
from capgraph.ir.target import CUDA
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from tests.executors.cuda.test_model_sources import LIBRARIES

REGION = """graph @main(%x: f16[4, 32], %i: i32[2]) {
  %y: f16[2, 1] = fused(%x, %i) {body = @body}
  return %y
}
graph @body(%a: f16[4, 32], %j: i32[2]) {
  %r: f16[2, 32] = gather(%a, %j) {axis = 0}
  %e: f16[2, 32] = exp(%r)
  %m: f16[2, 1] = reduce_sum(%e) {axes = [1], keep_dims = true}
  return %m
}
"""
PROGRAM = """program over [2, 32], reduced along [1]
  ld0 = load #0 f16[2, 32] strides [0, 1] at #1 i32[2, 32] strides [1, 0] of 4, 32 apart
  v0: float = expf(ld0)
  fd1: float = sum of v0 from 0
  store fd1 to #2 f16[2, 32] strides [1, 0]
"""


def lowered(text: str, libraries: frozenset[str] = frozenset()) -> LoweredStep:
    backend = Backend(libraries=libraries)
    policy = PlanPolicy(lowering=Lowering(captures=backend.captures, scratch=backend.scratch_bytes))
    return backend.lower(make_plan(parse(text), {}, CUDA, policy))[-1]


def lines(step: LoweredStep) -> dict[str, list[str]]:
    return {each.name: list(launch_lines(each)) for each in step.candidates}


def test_a_program_is_a_text() -> None:
    task = lowered(REGION).task
    assert task is not None
    assert print_program(reduction_program(region_of(task))) == PROGRAM


def test_uses_are_operands_and_not_what_a_text_looks_like() -> None:
    program = KernelProgram((4,), (0,))
    x, literal = program.load(dense(DType.F32, (4,), BufferPlace(0))), Name("1.0f", DType.F32)
    first = program.define(DType.F32, "$0 + $1", x, literal)
    last = program.define(
        DType.F32, "v0 + $1 * $1", literal, program.reduce("sum", "float", "0", DType.F32, "$0", first)
    )
    assert [value.uses for value in program.values] == [[], [x], [first], [program.reductions[0]]]
    assert (first.expression, last.expression) == ("ld0 + 1.0f", "v0 + fd1 * fd1")
    schedule = ReductionSchedule(program)
    assert [schedule.stages[value] for value in program.values] == [0, 0, 1, 1]
    assert schedule.row_values == {program.reductions[0], last}


def test_launches_are_lines() -> None:
    assert lines(lowered(REGION)) == {
        "lanes4": ["kernel(#2, #0, #1): 1 blocks of 32 threads, may overlap"],
        "host": ["host: none of its kernels runs here"],
    }
    rows = lines(lowered("graph @f(%x: f32[2, 200000]) { %y: f32[2, 200000] = softmax(%x) return %y }"))
    assert rows["split195-block256"][0] == "kernel(#1, #0, #2, #2+1792): 2 x 195 blocks of 256 threads, may overlap"
    matmul = lowered("graph @f(%a: f32[64, 64]) { %y: f32[64, 64] = matmul(%a, %a) return %y }", LIBRARIES)
    assert lines(matmul)["cublaslt"] == ["cublaslt(a #0, b #0, d #1)"]
