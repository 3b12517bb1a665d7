"""Attention reads rows of caches before it waits where a plan writes but one of each, and writes that one itself."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, KernelLaunch
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.executors.cuda.lower.old_rows import with_old_rows
from capgraph.executors.cuda.programs import cuda_planning
from capgraph.executors.replay.modes import CaptureMode
from capgraph.executors.replay.options import ReplayOptions
from capgraph.ir.constant import Array
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.plan import Plan
from capgraph.optimization import pipeline_for

from tests.executors.cuda.compiling import compile_problems
from tests.executors.cuda.emulator import HAS_COMPILER, Emulator, compiled, kernels_of
from tests.executors.cuda.matmul_cases import drawn
from tests.executors.cuda.test_launch_counts import Net
from tests.executors.cuda.test_machine_code import problems

HEADS, KEY_HEADS = 8, 2
Chosen = Sequence[Candidate | None]


def attending(  # what a step may be like
    *,
    batch: int = 1,
    slots: int = 1024,
    size: int = 64,
    rows: int = 1,
    mode: str = "linear",
    states: bool = True,
    writes: int = 1,
    causal: bool = False,
    turned: bool = True,
    interleaved: bool = False,
    tables: str = "bf16",
    reads: str = "",
) -> Graph:
    """Attention over caches that get `rows` rows before it, `writes` times. `reads` names what else is a result."""
    b = Net("bf16")
    q, position = b.input("q", f"bf16[{batch}, {HEADS}, 1, {size}]"), b.input("position", f"i64[{batch}]")
    new = [b.input(name, f"bf16[{batch}, {KEY_HEADS}, {rows}, {size}]") for name in ("k", "v")]
    caches = [b.input(name, f"bf16[{batch}, {KEY_HEADS}, {slots}, {size}]") for name in ("keys", "values")]
    mask = b.input("mask", f"bool[1, 1, 1, {slots}]")
    angles = [b.input(name, f"{tables}[1, 1, {size // 2}]") for name in ("cosines", "sines")]
    x = q = b.op("neg", q)
    if turned:
        q, new[0] = (b.op("rotary_embedding", each, *angles, None, interleaved=interleaved) for each in (q, new[0]))
    for _ in range(writes):
        caches = [
            b.op("tensor_scatter", cache, each, position, axis=2, mode=mode)
            for cache, each in zip(caches, new, strict=True)
        ]
        position = b.op("neg", position)
    y = b.op("attention", q, *caches, mask, None, causal=causal)
    also = {f"{name}_seen": b.op("abs", {"x": x, "q": q, "k": new[0]}[name]) for name in reads}
    graph = b.finish({"y": y, "keys_next": caches[0], "values_next": caches[1], **also})
    if states:
        graph.set_states([(4, 1), (5, 2)])
    return graph


def planned(graph: Graph, shape: str = "") -> tuple[Plan, Chosen, Chosen]:
    """The plan, and the candidates before and after; attention is done in a shape, where one is named."""
    made = graph.clone()
    pipeline_for(2, "cuda").run(made, check="none")
    backend = Backend()
    plan = cuda_planning(backend, ReplayOptions()).of(made)({}, CaptureMode.FULL)
    steps = backend.lower(plan)
    chosen = [each.candidates[0] if each.candidates else None for each in steps]
    named = [
        replace(each, name=f"tensor-cores-{shape}")
        if each is not None and "tensor-cores" in each.name and shape
        else each
        for each in chosen
    ]
    return plan, named, with_old_rows(plan, steps, named)


def changed(graph: Graph, shape: str = "") -> list[tuple[Candidate, Candidate]]:
    """The candidates before and after, of steps where they differ."""
    _, chosen, found = planned(graph, shape)
    pairs = zip(chosen, found, strict=True)
    return [(one, other) for one, other in pairs if one is not None and other is not None and one is not other]


def launches(chosen: Chosen) -> int:
    return sum(len(each.launches) for each in chosen if each is not None)


def results(plan: Plan, chosen: Chosen, inputs: dict[str, Array], folder: Path) -> list[Array]:
    """What the launches of a plan give, emulated."""
    known = [each for each in chosen if each is not None]
    emulator = Emulator(plan, compiled(kernels_of(known), folder))
    emulator.arena.bytes[...] = 0xFF
    for value in plan.graph.inputs:
        emulator.placement.array(value)[...] = inputs[value.name]
    for each in known:
        emulator.run(each)
    return [emulator.placement.array(value).copy() for value in plan.graph.outputs]


CASES = [
    ({"slots": 64}, "1x1x2", [[5]]),
    ({"slots": 256}, "1x2x4", [[200]]),
    ({"slots": 40, "batch": 3, "tables": "f32"}, "1x2x1", [[39, 38, 0]]),
    ({"slots": 224}, "1x1x1", [[5], [223]]),
    ({"slots": 64, "batch": 2, "interleaved": True}, "2x1x2", [[63, 2]]),
    ({"slots": 96, "interleaved": True, "size": 32}, "1x1x1", [[70]]),
    ({"slots": 600, "turned": False, "size": 128, "batch": 2}, "1x1x1", [[570, 570]]),
    ({"slots": 64, "reads": "q"}, "1x2x1", [[5]]),
]


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernels")
@pytest.mark.parametrize(("options", "shape", "positions"), CASES)
def test_rows_are_rotated_written_and_seen(
    options: dict[str, object], shape: str, positions: list[list[int]], tmp_path: Path
) -> None:
    graph = attending(**options)  # type: ignore[arg-type]
    plan, _, found = planned(graph, shape)
    for at in positions:
        inputs = {
            value.name: drawn(tuple(map(int, value.shape)), value.tensor.dtype, seed)
            for seed, value in enumerate(graph.inputs)
            if value.tensor.dtype.is_float
        }
        slots = int(options["slots"])  # type: ignore[call-overload]
        inputs |= {"position": np.array(at), "mask": (np.arange(slots) <= max(at)).reshape(1, 1, 1, -1)}
        expected = evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])
        for one, other in zip(results(plan, found, inputs, tmp_path), expected, strict=True):
            wide, told = one.astype(np.float64), np.asarray(other).astype(np.float64)
            assert np.allclose(wide, told, atol=2e-2, rtol=2e-2)


@pytest.mark.skipif(not HAS_COMPILER, reason="g++ runs the kernels")
def test_keys_that_are_hidden_are_not_read_where_a_warp_takes_several_tiles(tmp_path: Path) -> None:
    graph = attending(slots=672, turned=False)
    plan, _, found = planned(graph, "1x1x1")
    for shown in ([5], [40, 41, 600, 90]):
        inputs = {
            value.name: drawn(tuple(map(int, value.shape)), value.tensor.dtype, seed)
            for seed, value in enumerate(graph.inputs)
            if value.tensor.dtype.is_float
        }
        inputs |= {"position": np.array(shown[-1:]), "mask": np.isin(np.arange(672), shown).reshape(1, 1, 1, -1)}
        expected = evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])
        tiles = {0, *(each // 32 for each in shown)}
        for name in ("keys", "values"):
            inputs[name][:, :, [slot for slot in range(672) if slot // 32 not in tiles]] = np.nan
        y, *_ = results(plan, found, inputs, tmp_path)
        assert np.allclose(y.astype(np.float64), np.asarray(expected[0]).astype(np.float64), atol=2e-2, rtol=2e-2)


def test_old_rows_are_read_early_and_the_first_kernel_of_the_plan_waits_for_all_before() -> None:
    _, chosen, found = planned(attending())
    assert (launches(chosen), launches(found)) == (6, 2)
    first, attention = (each for each in found if each is not None and each.launches)
    assert [each.launches[0].may_overlap for each in (first, attention)] == [False, True]  # type: ignore[union-attr]
    kernels = kernels_of([attention])
    assert [kernel.early_loads for kernel in kernels] == [16]
    assert not problems(kernels)


@pytest.mark.parametrize(
    "options",
    [
        {"slots": 32768},
        {"slots": 8192, "size": 128, "tables": "f32"},
        {"interleaved": True},
        {"turned": False, "batch": 4, "slots": 96},
    ],
)
def test_kernels_compile(options: dict[str, object]) -> None:
    kernels = kernels_of(other for _, other in changed(attending(**options)))  # type: ignore[arg-type]
    assert not compile_problems(kernels, [80, 90, 100])


def test_rotated_heads_that_others_read_are_written() -> None:
    for reads, saved in (("q", 3), ("k", 3), ("x", 4)):
        _, chosen, found = planned(attending(reads=reads))
        assert launches(chosen) - launches(found) == saved


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


def test_the_matmul_in_front_brings_old_rows_into_the_cache() -> None:
    b = Net("bf16")
    x, position = b.input("x", "bf16[1, 1, 512]"), b.input("position", "i64[1]")
    caches = [b.input(name, "bf16[1, 2, 96, 64]") for name in ("keys", "values")]
    q, k, v = (b.op("reshape", b.linear(x, 64 * heads, has_bias=False), shape=(1, heads, 1, 64)) for heads in (4, 2, 2))
    caches = [b.op("tensor_scatter", cache, new, position, axis=2) for cache, new in zip(caches, (k, v), strict=True)]
    graph = b.finish({"y": b.op("attention", q, *caches, None, None), "k": caches[0], "v": caches[1]})
    graph.set_states([(2, 1), (3, 2)])
    plan, _, found = planned(graph)
    matmul, attention = (each.launches[0] for each in found if each is not None and each.launches)
    assert isinstance(matmul, KernelLaunch)
    assert isinstance(attention, KernelLaunch)
    places = [BufferPlace(plan.views[value].buffer, 0) for value in plan.graph.inputs[2:]]
    assert list(matmul.arguments[-2:]) == places
    assert "< 6; i += gridDim.x" in matmul.kernel.body, "two heads of 12,288 bytes are three pieces each"
    assert not problems([matmul.kernel])
    assert not compile_problems([matmul.kernel])
