"""Random numbers on a GPU: NumPy's bits, anew in each replay, and by PyTorch's seed."""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the generators are PyTorch's")

import capgraph
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]


def graph_of_all() -> Graph:
    b = Builder()
    x = b.input("x", "f32[B, 33]")
    made: dict[str, Any] = {}
    for dtype in ("f16", "bf16", "f32", "f64"):
        made[f"uniform_{dtype}"] = b.op("random_uniform", shape=(1000, 37), dtype=dtype, low=-1.0, high=2.5)
        made[f"normal_{dtype}"] = b.op("random_normal", shape=(999, 37), dtype=dtype, mean=1.0, scale=3.0)
    made["fixed"] = b.op("random_normal", shape=(100,), dtype="f32", seed=3)
    made["chosen"] = b.op("bernoulli", b.op("sigmoid", x), dtype="bool")
    made["classes"] = b.op("multinomial", x, dtype="i64", sample_size=50)
    made["noisy"] = b.op("add", x, b.op("random_normal", shape=x.shape, dtype="f32"))
    return b.finish(made)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_every_replay_draws_what_the_host_draws(framework: str) -> None:
    graph = graph_of_all()
    dynamic = {"dynamic": {"B": (1, 64)}, "buckets": {"B": [16, 64]}}
    oracle = capgraph.optimize(graph, executor="eager")
    with capgraph.optimize(graph, executor="graph", device="cuda", **dynamic) as program:
        program.seed(11)
        oracle.seed(11)
        drawn = []
        for call, rows in enumerate((16, 9, 16, 16, 64, 16)):
            x = np.random.default_rng(call).standard_normal((rows, 33)).astype(np.float32)
            given = program.run({"x": torch.from_numpy(x).cuda() if framework == "torch" else x})
            found = {
                name: each.cpu().float().numpy() if framework == "torch" else each.astype(np.float32)
                for name, each in given.items()
            }
            for name, expected in oracle.run({"x": x}).items():
                if name in ("chosen", "noisy", "classes"):  # what it is made of is not
                    same = np.mean(np.isclose(found[name], expected.astype(np.float32), rtol=1e-6))
                    assert same > 0.999, f"call {call}, {name}: {same}"
                else:
                    np.testing.assert_array_equal(found[name], expected.astype(np.float32), err_msg=f"{call} {name}")
            drawn.append(found["uniform_f32"].tobytes())
        assert len(set(drawn)) == len(drawn)
        stats = program.stats()
        assert stats.refused == ()
        assert [bucket.refusals for bucket in stats.buckets if bucket.refusals] == []
        assert all(bucket.verified and bucket.eager_segments == 0 for bucket in stats.buckets), program.explain()
        assert stats.counters.replayed_calls >= 3, program.explain()
        assert not [line for line in program.remarks if "runs on the host" in line], program.explain()


def test_one_seed_starts_again() -> None:
    b = Builder()
    graph = b.finish({"y": b.op("random_normal", shape=(4096,), dtype="f32")})
    with capgraph.optimize(graph, executor="graph", device="cuda") as program:
        runs = []
        for _ in range(2):
            program.seed(5)
            runs.append([program.run()["y"].tobytes() for _ in range(40)])
        assert runs[0] == runs[1]
        assert len(set(runs[0])) == 40
        program.seed(6)
        assert program.run()["y"].tobytes() not in runs[0]


def draw(x: Any) -> Any:
    dropped = torch.nn.functional.dropout(x, 0.25, training=True)
    return (
        dropped,
        torch.randn_like(x),
        torch.randint(3, 9, (64,), device=x.device),
        torch.randperm(50, device=x.device),
    )


def test_torch_seeds_what_it_compiles() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(draw, backend="capgraph")
    x = torch.ones(256, 64, device="cuda")
    with torch.no_grad():
        compiled(x)
        runs = []
        for _ in range(2):
            torch.manual_seed(7)
            runs.append([[each.cpu() for each in compiled(x)] for _ in range(30)])
            runs[-1].append([torch.rand(3, device="cuda").cpu()])
        for first, second in zip(*runs, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(runs[0][3], runs[0][4], strict=True))
        between = compiled(x)[1]
        torch.rand(1, device="cuda")  # moves the generator on
        assert not torch.equal(between, compiled(x)[1])
    dropped, normal, integers, order = runs[0][5]
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert 0.7 < (dropped > 0).float().mean() < 0.8
    assert abs(normal.mean()) < 0.05
    assert 0.95 < normal.std() < 1.05
    assert set(integers.tolist()) <= set(range(3, 9))
    assert sorted(order.tolist()) == list(range(50))
