"""The executor "ort" on a GPU: subgraphs in graph mode, buckets, threads, and what plain sessions refuse."""

import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):
    torch = pytest.importorskip("torch", reason="inputs on a GPU are PyTorch's")
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    ort = pytest.importorskip("onnxruntime", reason="the executor is ONNX Runtime")

import capgraph
from capgraph.executors.steps import EagerExecutor
from capgraph.frontends.onnx.exporting.saving import save_model
from capgraph.ir import foreign
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.program import Program

from tests.executors.ort.gpu.on_host import inputs
from tests.executors.ort.gpu.texts import LACKING, LOOPED, SPARSE, UNKNOWN, WHOLE

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(
        not torch.cuda.is_available() or "CUDAExecutionProvider" not in ort.get_available_providers(),
        reason="no NVIDIA GPU answers here, or ONNX Runtime is not built for one",
    ),
]


@pytest.fixture(autouse=True)
def _twist() -> Iterator[None]:
    """What com.example.Twist means."""
    foreign.register_meaning("com.example", lambda _node, values: (np.sin(values[0]) * 2,))
    yield
    foreign._meanings.pop("com.example")


def optimized(graph: Graph, **options: Any) -> Program:
    return capgraph.optimize(graph, executor="ort", device="cuda", **options)


def on_gpu(given: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: torch.from_numpy(array).cuda() for name, array in given.items()}


def holds(program: Program, graph: Graph, sizes: list[int], *, tensors: bool = True) -> None:
    """Every call gives what the host gives."""
    oracle = EagerExecutor().compile(graph)
    for call, rows in enumerate(sizes):
        given = inputs(graph, rows, call)
        expected = oracle.run(given)
        found = program.run(on_gpu(given) if tensors else given)
        for name, value in expected.items():
            array = found[name].cpu().numpy() if tensors else found[name]
            np.testing.assert_allclose(array, value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tensors", [True, False])
def test_a_graph_that_is_taken_whole_is_one_recording(tensors: bool):
    graph = parse(WHOLE)
    program = optimized(graph, dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
    holds(program, graph, [4, 4, 3, 8, 5, 1, 4], tensors=tensors)
    stats = program.stats()
    print(program.explain())
    assert stats.refused == ()
    assert [(bucket.segments, bucket.eager_segments, bucket.refusals) for bucket in stats.buckets] == [(1, 0, ())] * 2
    assert stats.counters.replayed_calls == 5


@pytest.mark.parametrize(
    ("text", "culprit"),
    [(SPARSE, "non_zero"), (LOOPED, "loop"), (UNKNOWN, "Twist")],
    ids=["non_zero", "loop", "unknown"],
)
def test_what_plain_sessions_refuse_runs_in_recorded_subgraphs(text: str, culprit: str, tmp_path: Path):
    graph = parse(text)
    assert plain_graph_mode_fails(graph, tmp_path)
    program = optimized(graph, dynamic={"B": (1, 8)}, buckets={"B": [4, 8]})
    holds(program, graph, [4, 4, 8, 8, 4, 8])
    print(program.explain())
    stats = program.stats()
    assert stats.refused == ()
    assert all(bucket.segments == 2 and bucket.refusals == () for bucket in stats.buckets)
    assert stats.counters.replayed_calls == 4
    assert any(line.startswith("  outside: ") and culprit in line for line in program.remarks)


PLAIN = """
import sys
import torch
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.log_severity_level = 4
session = ort.InferenceSession(
    sys.argv[1], options, providers=[("CUDAExecutionProvider", {"enable_cuda_graph": "1"})], enable_fallback=0
)
binding = session.io_binding()
for name, array in np.load(sys.argv[2]).items():
    binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
for each in session.get_outputs():
    binding.bind_output(each.name, "cuda")
for _ in range(3):
    session.run_with_iobinding(binding)
torch.cuda.synchronize()
"""


def plain_graph_mode_fails(graph: Graph, folder: Path) -> bool:
    """Whether a plain session in graph mode refuses the graph, fails on it, or ends its process."""
    save_model(graph, folder / "model.onnx", check=False)
    np.savez(folder / "inputs.npz", **inputs(graph, 4, 0))  # type: ignore[arg-type]
    command = [sys.executable, "-c", PLAIN, str(folder / "model.onnx"), str(folder / "inputs.npz")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    print(ended.stderr.strip().splitlines()[-1:] if ended.returncode else "it ran")
    return ended.returncode != 0


def test_what_has_no_kernel_there_is_done_by_ours():
    graph = parse(LACKING)
    program = optimized(graph, dynamic={"B": (1, 8)}, buckets={"B": [4]})
    holds(program, graph, [4, 4, 2])
    print(program.explain())
    assert any("Tan" in line for line in program.remarks)
    assert program.stats().buckets[0].segments == 2


MLP = """
graph @mlp(%x: f16[B, 256], %w: f16[256, 256], %b: f16[256], %scale: f16[256], %shift: f16[256]) {
  %n: f16[B, 256] = layer_norm(%x, %scale, %shift)
  %m: f16[B, 256] = gemm(%n, %w, %b)
  %g: f16[B, 256] = gelu(%m)
  %r: f16[B, 256] = add(%g, %x)
  %o: f16[B, 256] = layer_norm(%r, %scale, %shift)
  %p: f16[B, 256] = gemm(%o, %w, %b)
  %y: f16[B, 256] = gelu(%p)
  return %y
}
"""


@pytest.mark.alone
def test_32_buckets_at_random_are_right_recorded_once_and_take_no_more_memory():
    graph = parse(MLP)
    random = np.random.default_rng(0)
    shapes = {"w": (256, 256), "b": (256,), "scale": (256,), "shift": (256,)}
    fixed = {name: (random.standard_normal(shape) / 16).astype(np.float16) for name, shape in shapes.items()}
    tensors = on_gpu(fixed)
    program = optimized(graph, dynamic={"B": (1, 128)}, buckets={"B": list(range(4, 129, 4))})
    oracle = EagerExecutor().compile(graph)
    samples = []
    for rows in range(1, 129):
        x = random.standard_normal((rows, 256)).astype(np.float16)
        expected = oracle.run({"x": x, **fixed})["y"].astype(np.float32)
        samples.append((torch.from_numpy(x).cuda(), torch.from_numpy(expected).cuda()))
    worst = torch.zeros((), device="cuda")

    def call(rows: int) -> None:
        x, expected = samples[rows - 1]
        found = program.run({"x": x, **tensors})["y"]
        torch.maximum(worst, (found.float() - expected).abs().max(), out=worst)  # there, without waiting for it

    for rows in (*range(4, 129, 4), *range(128, 0, -1)):  # every bucket is recorded, then every size is seen
        call(rows)
    torch.cuda.synchronize()
    before, counters = torch.cuda.mem_get_info()[0], program.stats().counters
    assert counters.captures == 32
    for _ in range(2000):
        call(int(random.integers(1, 129)))
    torch.cuda.synchronize()
    grown = before - torch.cuda.mem_get_info()[0]
    stats = program.stats()
    print(f"worst error {float(worst):.3g}, {grown} bytes more, {stats.counters.captures} captures")
    assert float(worst) < 2e-2
    assert stats.counters.captures == 32
    assert stats.counters.replayed_calls - counters.replayed_calls == 2000
    assert stats.refused == ()
    assert all(bucket.segments == 1 and bucket.refusals == () for bucket in stats.buckets)
    assert grown <= 4 << 20


def test_another_thread_is_refused_and_the_first_goes_on():
    graph = parse(WHOLE)
    program = optimized(graph, dynamic={"B": (4, 4)})
    given = inputs(graph, 4, 0)
    first = program.run(given)["y"]
    told: list[BaseException] = []

    def call() -> None:
        try:
            program.run(given)
        except capgraph.ExecutionError as error:
            told.append(error)

    other = threading.Thread(target=call, name="the other")
    other.start()
    other.join()
    assert "the other" in str(told[0])
    np.testing.assert_array_equal(program.run(given)["y"], first)


INDEXED = """
graph @indexed(%cache: f32[4, 8], %x: f32[4, 8], %at: i64[4]) {
  %s: f32[4, 8] = add(%cache, %x)
  %p: f32[4, 8] = gather(%s, %at) {axis = 0}
  return %s, %p
}
"""


def test_recordings_are_made_from_indices_that_are_there():
    """A session runs when it is recorded: with other indices than a call's it would read beyond its operands."""
    graph = parse(INDEXED)
    program = optimized(graph)
    random = np.random.default_rng(1)
    oracle = EagerExecutor().compile(graph)
    for _ in range(4):
        given = {
            "cache": random.standard_normal((4, 8)).astype(np.float32),
            "x": random.standard_normal((4, 8)).astype(np.float32),
            "at": random.integers(0, 4, 4),
        }
        for name, value in oracle.run(given).items():
            np.testing.assert_allclose(program.run(on_gpu(given))[name].cpu().numpy(), value, rtol=1e-5)
