"""Kernels draw the very bits that NumPy draws; regions draw where they need a number; classes are drawn in parts."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.philox import fresh_state

from tests.executors.cuda.codegen.cases import Case, fused
from tests.executors.cuda.codegen.emulated import emulated_problems
from tests.executors.cuda.codegen.running import all_prepared
from tests.executors.cuda.emulator import HAS_COMPILER, Emulator, compiled

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")

STATE = np.array([2**63 + 12345678901, 2**32 - 3], np.uint64)


def filled() -> Iterator[Case]:
    """Each distribution in each dtype, in vectors and one by one."""
    attrs = {"keyed_random_uniform": {"low": -1.5, "high": 2.25}, "keyed_random_normal": {"mean": 0.3, "scale": 1.7}}
    for op, rest in attrs.items():
        for dtype in ("f16", "bf16", "f32", "f64"):
            for shape in ((1600,), (37, 11), (3, 1, 5), ()):
                b = Builder()
                state = b.input("s", "u64[2]")
                made = b.op(op, state, shape=shape, dtype=dtype, stream=9, **rest)
                yield Case(f"{op} {dtype} {shape}", b.finish({"y": made}), {}, [STATE])


def test_kernels_draw_the_bits_of_the_meaning(tmp_path: Path) -> None:
    every = all_prepared(filled())
    library = compiled((kernel for made in every for kernel in made.kernels()), tmp_path)
    for made in every:
        emulator = Emulator(made.plan, library)
        emulator.placement.array(made.plan.graph.inputs[0])[...] = STATE
        for step in made.plan.steps:
            emulator.run(made.lowered[step.index].candidates[0])
        (expected,) = evaluate_graph(made.case.graph, [STATE])
        found = emulator.placement.array(made.plan.graph.outputs[0])
        assert found.tobytes() == np.asarray(expected).tobytes(), made.case.name


def dropout(dtype: str, shape: tuple[int, ...]) -> Case:
    b = Builder()
    x, state = b.input("x", f"{dtype}[{', '.join(map(str, shape))}]"), b.input("s", "u64[2]")
    drawn = b.op("keyed_random_uniform", state, shape=shape, dtype="f32", stream=3)
    kept = b.op("less", drawn, b.constant(0.7, "f32"))
    scaled = b.op("mul", x, b.constant(1 / 0.7, dtype))
    return case_of(f"dropout {dtype} {shape}", b, {"y": b.op("where", kept, scaled, b.constant(0, dtype)), "k": kept})


def noisy_softmax(dtype: str, shape: tuple[int, ...]) -> Case:
    b = Builder()
    x, state = b.input("x", f"{dtype}[{', '.join(map(str, shape))}]"), b.input("s", "u64[2]")
    noise = b.op("keyed_random_normal", state, shape=shape, dtype=dtype, stream=2**40 + 3)
    return case_of(f"softmax {dtype} {shape}", b, {"y": b.op("softmax", b.op("add", x, noise), axis=-1)})


def case_of(name: str, b: Builder, outputs: dict) -> Case:
    graph = b.finish(outputs)
    shape = tuple(map(int, graph.inputs[0].shape))
    content = np.random.default_rng(0).standard_normal(shape).astype(graph.inputs[0].tensor.dtype.numpy)
    return fused(Case(name, graph, {}, [content, fresh_state(5)]))


def test_regions_draw(tmp_path: Path) -> None:
    cases = [dropout(dtype, shape) for dtype in ("f32", "f16") for shape in ((4, 8), (3, 5), (2, 3, 64))]
    cases += [noisy_softmax("f32", shape) for shape in ((4, 8), (3, 5), (1, 3000))]
    assert [node.op.name for case in cases for node in case.graph.nodes] == ["fused"] * len(cases)
    assert not emulated_problems(cases, tmp_path)


def test_a_state_that_is_computed_is_not_drawn_from_within_the_region() -> None:
    b = Builder()
    x, state = b.input("x", "u64[2]"), b.input("s", "u64[2]")
    drawn = b.op("keyed_bernoulli", b.op("cast", x, to="f32"), b.op("add", state, x), dtype="f32")
    graph = fused(Case("computed", b.finish({"y": b.op("neg", drawn)}), {}, [])).graph
    bodies = [{inner.op.name for inner in node.attrs["body"].nodes} for node in graph.nodes if node.op.name == "fused"]
    assert not any({"add", "keyed_bernoulli"} <= body for body in bodies)


def classes(dtype: str, shape: tuple[int, int], samples: int, to: str) -> Case:
    b = Builder()
    x, state = b.input("x", f"{dtype}[{shape[0]}, {shape[1]}]"), b.input("s", "u64[2]")
    graph = b.finish({"y": b.op("keyed_multinomial", x, state, dtype=to, sample_size=samples, stream=2)})
    content = (3 * np.random.default_rng(0).standard_normal(shape)).astype(graph.inputs[0].tensor.dtype.numpy)
    if shape[0] > 2:
        content[1], content[2, -1] = -np.inf, -np.inf
    if shape[0] > 3:
        content[3] = np.nan
    return Case(f"{dtype} {shape}", graph, {}, [content, fresh_state(3)])


def test_classes_are_drawn_in_parts(tmp_path: Path) -> None:
    sizes = (
        ((4, 7), 5, "i64"),
        ((1, 5000), 300, "i32"),
        ((2, 2048), 40, "i64"),
        ((2, 2049), 1, "i64"),
        ((3, 1), 0, "i64"),
    )
    cases = [classes(dtype, shape, samples, to) for dtype in ("f32", "f16") for shape, samples, to in sizes]
    assert not emulated_problems([*cases, classes("f64", (4, 7), 5, "i64")], tmp_path)
