"""What calls of cuBLASLt may round."""

from dataclasses import replace

from capgraph.executors.cuda.kernel_ir.launch import Candidate, LibraryCall
from capgraph.executors.cuda.libraries.problems import MatmulProblem
from capgraph.ir.types import DType

from tests.executors.cuda.matmul_cases import by_cublaslt, linear


def _problem(candidate: Candidate) -> MatmulProblem:
    (call,) = candidate.launches
    assert isinstance(call, LibraryCall)
    assert isinstance(call.problem, MatmulProblem)
    return call.problem


def test_tf32_is_used_only_where_the_task_says_so() -> None:
    made = linear(20, 8, 16)
    assert not _problem(by_cublaslt(made)).tf32
    made.task = replace(made.task, tf32=True)
    assert _problem(by_cublaslt(made)).tf32
    halves = linear(20, 8, 16, dtype=DType.F16)
    halves.task = replace(halves.task, tf32=True)
    assert not _problem(by_cublaslt(halves)).tf32
