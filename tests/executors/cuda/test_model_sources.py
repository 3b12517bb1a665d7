"""Every benchmark model is lowered without a step on the host, and every kernel that it may use compiles."""

from collections.abc import Iterator
from functools import cache

import pytest
from capgraph.executors.cuda.kernel_ir.launch import Chip, HostCall, Kernel, KernelLaunch
from capgraph.executors.cuda.lower.lowering import Backend, LoweredStep
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.graph import Graph
from capgraph.optimization import pipeline_for

from tests.executors.cuda.compiling import compile_problems
from tests.models.model_texts import NAMES, model_graph, sizes_of

LIBRARIES = frozenset({"cublaslt", "cudnn"})


@cache
def optimized(name: str, dtype: str) -> Graph:
    graph = model_graph(name, dtype)
    pipeline_for(2, "cuda").run(graph, check="none")
    return graph


@cache
def lowered(name: str, dtype: str, arch: int, libraries: frozenset[str] = LIBRARIES) -> tuple[LoweredStep, ...]:
    """The candidates of a model's steps; all of them in one recording."""
    backend = Backend(Chip(arch), libraries)
    graph = optimized(name, dtype).clone()
    planner = cuda_planning(backend, ReplayOptions())
    plan = planner.of(graph)(sizes_of(graph), CaptureMode.FULL)
    assert [segment.is_captured for segment in plan.segments] == [True]
    return backend.lower(plan)


def kernels_of(steps: tuple[LoweredStep, ...]) -> Iterator[Kernel]:
    for each in steps:
        for candidate in each.candidates:
            for launch in candidate.launches:
                if isinstance(launch, KernelLaunch):
                    yield launch.kernel


def test_there_are_eleven_models() -> None:
    assert len(NAMES) == 11


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", NAMES)
def test_no_step_needs_the_host(name: str, dtype: str) -> None:
    on_host = {
        each.step.node.op.name
        for each in lowered(name, dtype, 90)
        if each.candidates and isinstance(each.candidates[0].launches[0], HostCall)
    }
    assert not on_host


@pytest.mark.parametrize("name", NAMES)
def test_nor_where_no_library_is_installed(name: str) -> None:
    for each in lowered(name, "f16", 90, frozenset()):
        assert not each.candidates or each.candidates[0].name != "host", each.step.node.where()


def test_every_kernel_of_every_candidate_compiles() -> None:
    for arch, dtypes in ((80, ("f32", "f16")), (90, ("f32", "f16")), (100, ("f16",))):
        kernels = [kernel for name in NAMES for dtype in dtypes for kernel in kernels_of(lowered(name, dtype, arch))]
        assert len({kernel.text for kernel in kernels}) > 300
        problems = compile_problems(kernels, [arch])
        assert not problems, problems[0]


def test_the_kernels_of_a_model_are_assembled_as_in_programs() -> None:
    assert not compile_problems(kernels_of(lowered("bert", "f16", 90)), [90], as_in_programs=True)
