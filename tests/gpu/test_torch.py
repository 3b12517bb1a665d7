"""PyTorch modules on a GPU: weights are read where they lie, caches updated there, results those of PyTorch."""

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the modules are PyTorch's")

import capgraph

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compiled(module: Any, **options: Any) -> Any:
    from capgraph.pytorch.backend import backend

    return torch.compile(module, backend=backend, fullgraph=True, options=options)


def newest() -> Any:
    from capgraph.pytorch.backend import live_programs

    return live_programs()[-1]


def relative_error(found: Any, told: Any) -> float:
    return float((found.double() - told.double()).norm() / told.double().norm().clamp(min=1e-30))


def test_a_decoder_is_recorded_once_and_its_caches_are_updated_where_they_lie() -> None:
    from benchmarks.gpu.decode_model import decoder

    module = decoder("decode-tiny", device="cuda")
    expected, addresses = copy.deepcopy(module), [cache.data_ptr() for cache in module.caches]
    step = compiled(module)
    tokens = torch.tensor([3], device="cuda")
    copy.deepcopy(module)(tokens, torch.tensor([0], device="cuda"))  # takes the workspace that torch gives its cuBLAS
    before = torch.cuda.memory_allocated()
    for index in range(16):
        position = torch.tensor([index], device="cuda")
        found, told = step(tokens, position), expected(tokens, position)
        assert found.shape == told.shape
        tokens = told[0]
    assert addresses == [cache.data_ptr() for cache in module.caches]
    for cache, other in zip(module.caches, expected.caches, strict=True):
        assert relative_error(cache, other) < 2e-2
    counters = newest().stats().counters
    assert (counters.captures, counters.replayed_calls, counters.refused_buckets) == (1, 15, 0)
    weights = sum(each.numel() * each.element_size() for each in module.parameters())
    assert torch.cuda.memory_allocated() - before < weights / 10, "torch holds no second copy of the weights"
    assert "runs on the host" not in newest().explain()


@pytest.mark.parametrize("weights", ["int8", "fp8", "int4"])
def test_weights_in_codes_are_read_as_they_are(weights: str) -> None:
    from benchmarks.gpu.decode_model import decoder

    module = decoder("decode-tiny", device="cuda", weights=weights)
    exact, step = copy.deepcopy(module).double(), compiled(module)
    for index in range(4):
        tokens, position = torch.tensor([3 + index], device="cuda"), torch.tensor([index], device="cuda")
        step(tokens, position), exact(tokens, position)
    for cache, other in zip(module.caches, exact.caches, strict=True):
        assert relative_error(cache[:, :, :4], other[:, :, :4]) < 2e-2
    assert "runs on the host" not in newest().explain()


@pytest.mark.parametrize(("rows", "dtype"), [(1, "float16"), (4, "bfloat16"), (64, "float16"), (1, "float32")])
def test_weights_of_torch_are_read_in_place(rows: int, dtype: str) -> None:
    kind = getattr(torch, dtype)
    module = torch.nn.Sequential(
        torch.nn.RMSNorm(1024), torch.nn.Linear(1024, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 1024, bias=False)
    ).to("cuda", kind)
    torch.nn.init.uniform_(module[0].weight, 0.5, 1.5)
    run = compiled(module)
    for _ in range(4):
        x = torch.randn(rows, 1024, device="cuda", dtype=kind)
        assert relative_error(run(x), copy.deepcopy(module).double()(x.double())) < (
            1e-5 if kind is torch.float32 else 2e-2
        )


def test_weights_that_change_are_seen() -> None:
    module = torch.nn.Linear(1024, 1024).cuda()
    run, x = compiled(module), torch.randn(2, 1024, device="cuda")
    for _ in range(3):
        assert relative_error(run(x), module(x)) < 1e-5
        module.weight.mul_(0.5)


def test_weights_that_are_written_to_uncounted_are_seen_in_the_end() -> None:
    layer = torch.nn.Linear(64, 64, device="cuda")
    run, x = compiled(layer), torch.randn(4, 64, device="cuda")
    for _ in range(6):
        assert relative_error(run(x), layer(x)) < 1e-5
    layer.weight.data.mul_(2)
    run(x)
    with pytest.warns(capgraph.CapgraphWarning, match=r"through \.data"):
        run(x)  # the eighth call
    assert relative_error(run(x), layer(x)) < 1e-5


def test_what_is_made_of_numbers_alone_lies_on_the_gpu() -> None:
    def positions(count: int) -> torch.Tensor:
        return torch.arange(count, device="cuda") * 2

    run = torch.compile(positions, backend="capgraph", dynamic=True)
    for count in (5, 5, 7, 7, 7):
        found = run(count)
        assert found.is_cuda
        assert found.tolist() == list(range(0, 2 * count, 2))


def test_layers_of_one_class_are_recorded_once_each() -> None:
    from capgraph.pytorch.backend import live_programs

    class Layer(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(super().forward(x))

    layers = torch.nn.ModuleList([Layer(64, 64) for _ in range(3)]).cuda()
    for layer in layers:
        layer.compile(backend="capgraph")
    before = live_programs()
    x = torch.randn(8, 64, device="cuda")
    for _ in range(4):
        found, expected = x, x
        for layer in layers:
            found, expected = layer(found), layer.forward(expected)
        assert relative_error(found, expected) < 1e-5
    made = [each for each in live_programs() if not any(each is other for other in before)]
    assert len(made) == 3
    assert all(each.stats().counters.replayed_calls >= 2 for each in made)


def test_an_exported_module_on_the_gpu() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda()
    x = torch.randn(8, 64, device="cuda")
    program = capgraph.optimize(module, args=(x,), executor="graph", device="cuda", capture={"beyond": "exact"})
    for _ in range(3):
        assert relative_error(program(x), module(x)) < 1e-5


def test_what_a_recorded_graph_checks_is_raised() -> None:
    """An assert of PyTorch's own on a GPU ends its use by the process; here the call raises, and the next one runs."""

    def checked(x: Any, factor: Any) -> Any:
        number = factor.item()
        torch._check(number > 0.5, lambda: "too small")
        torch._assert_async((x > 0).all(), "not positive")
        return x * number + 1

    run = compiled(checked, executor="graph")
    good, bad = (torch.tensor(number, device="cuda") for number in (2.0, 0.1))
    x = torch.ones(4, 3, device="cuda")
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        for _ in range(3):
            torch.testing.assert_close(run(x, good), x * 2 + 1)
            with pytest.raises(capgraph.CheckError, match=r"too small|0\.5 <"):  # torch 2.11 has words of its own
                run(x, bad)
            with pytest.raises(capgraph.CheckError, match="not positive"):
                run(x - 1, good)
