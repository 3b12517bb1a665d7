"""Attention reads rows of caches before it waits where a plan writes but one of each, and its first kernel waits."""

import pytest
from capgraph.executors.cuda.kernel_ir.launch import Candidate, KernelLaunch
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.executors.cuda.lower.old_rows import with_old_rows
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.graph import Graph
from capgraph.optimization import pipeline_for

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.emulator import kernels_of
from tests.executors.cuda.test_launch_counts import Net
from tests.executors.cuda.test_machine_code import problems

HEADS, KEY_HEADS, SIZE, SLOTS = 8, 2, 64, 1024


def attending(
    *, rows: int = 1, mode: str = "linear", states: bool = True, writes: int = 1, causal: bool = False
) -> Graph:
    """Attention over caches that get `rows` rows before it, `writes` times."""
    b = Net("bf16")
    q, position = b.input("q", f"bf16[1, {HEADS}, 1, {SIZE}]"), b.input("position", "i64[1]")
    new = [b.input(name, f"bf16[1, {KEY_HEADS}, {rows}, {SIZE}]") for name in ("k", "v")]
    caches = [b.input(name, f"bf16[1, {KEY_HEADS}, {SLOTS}, {SIZE}]") for name in ("keys", "values")]
    for _ in range(writes):
        caches = [
            b.op("tensor_scatter", cache, each, position, axis=2, mode=mode)
            for cache, each in zip(caches, new, strict=True)
        ]
        position = b.op("neg", position)
    y = b.op("attention", b.op("neg", q), *caches, None, None, causal=causal)
    graph = b.finish({"y": y, "keys_next": caches[0], "values_next": caches[1]})
    if states:
        graph.set_states([(4, 1), (5, 2)])
    return graph


def changed(graph: Graph) -> list[tuple[Candidate, Candidate]]:
    """The ways before and after, of steps where they differ."""
    pipeline_for(2, "cuda").run(graph, check="none")
    backend = Backend()
    plan = cuda_planning(backend, ReplayOptions()).of(graph)({}, CaptureMode.FULL)
    ways = backend.lower(plan)
    chosen = [each.candidates[0] if each.candidates else None for each in ways]
    pairs = zip(chosen, with_old_rows(plan, ways, chosen), strict=True)
    return [(one, other) for one, other in pairs if one is not None and other is not None and one is not other]


def test_old_rows_are_read_early_and_the_first_kernel_of_the_plan_waits_for_all_before() -> None:
    first, attention = changed(attending())
    one, other = (each.launches[0] for each in first)
    assert isinstance(one, KernelLaunch)
    assert isinstance(other, KernelLaunch)
    assert (one.may_overlap, other.may_overlap, one.kernel) == (True, False, other.kernel)
    assert attention[0].name == attention[1].name
    kernels = kernels_of(attention[1:])
    assert [kernel.early_loads for kernel in kernels] == [16]
    assert not problems(kernels)
    assert not compile_problems(kernels)


@pytest.mark.parametrize(
    "graph",
    [
        attending(states=False),
        attending(rows=2),
        attending(mode="circular"),
        attending(writes=2),
        attending(causal=True),
    ],
    ids=["no states", "two rows", "circular", "written twice", "causal"],
)
def test_what_may_be_new_is_not_read_early(graph: Graph) -> None:
    assert not changed(graph)
