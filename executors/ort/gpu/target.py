"""The executor "ort" on a GPU as planners and reports know it. Imports neither onnx nor onnxruntime."""

from dataclasses import replace

from ....ir.target import Target
from ...cuda.executor import cuda_problem
from ..library import problem_here

ORT_ON_CUDA = Target("ort", "cuda", captures=True, alignment=256, strided_views=False)


def ort_on_cuda_target() -> Target:
    """The target, with what is in the way here."""
    problem, remedy = problem_here()
    if not problem:
        problem, remedy = cuda_problem()
    return replace(ORT_ON_CUDA, problem=problem, remedy=remedy)
