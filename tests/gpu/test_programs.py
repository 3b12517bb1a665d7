"""Every benchmark model on a GPU, in f32 and f16, equals PyTorch: recorded or not, over poisoned memory."""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    cupy = pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the results are compared with PyTorch")
    pytest.importorskip("onnxscript", reason="modules are exported through torch.onnx")
    pytest.importorskip("transformers", reason="the models are made from their configurations")

import capgraph
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.program import Program

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]

MODELS = (
    "resnet50",
    "bert",
    "gpt2",
    "llama",
    "vit",
    "mobilenet-v2",
    "efficientnet-b0",
    "swin",
    "convnext",
    "whisper-encoder",
    "lstm",
)
MODES = ("full", "piecewise", "none")
TOLERANCES = {"float32": 2e-5, "float16": 1e-2}
WORSE_THAN_TORCH = 3.0
CALLS = 4

_SUBJECTS: dict[tuple[str, str], Any] = {}


def subject_of(name: str, dtype: str) -> Any:
    from benchmarks.gpu.subjects import Subject

    if (name, dtype) not in _SUBJECTS:
        _SUBJECTS.clear()
        _SUBJECTS[name, dtype] = Subject(name, dtype)
    return _SUBJECTS[name, dtype]


def poison(program: Program) -> None:
    """Fills the whole arena with what is NaN in every float, and waits."""
    device = program._executable._device
    shared = device.arenas._largest() if device.arenas._largest is not None else None
    if shared is not None:
        device.driver.fill(shared.address, 0xFF, shared.nbytes, device.stream)
        device.driver.synchronize(device.stream)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", MODELS)
def test_models_equal_torch(name: str, dtype: str, mode: str) -> None:
    subject = subject_of(name, dtype)
    with capgraph.optimize(subject.graph, executor="graph", device="cuda", mode=mode) as program:
        for call in range(CALLS):
            inputs = subject.inputs(100 + call)
            poison(program)
            (given,) = program.run(inputs).values()
            error = subject.error(given, inputs)
            allowed = max(TOLERANCES[dtype], WORSE_THAN_TORCH * subject.torch_error(inputs))
            assert error <= allowed, f"call {call}: {error:.2e}\n{program.explain()}"
        stats = program.stats()
        assert stats.refused == ()
        assert [bucket.refusals for bucket in stats.buckets if bucket.refusals] == []
        if mode != "none":
            assert stats.counters.replayed_calls == CALLS - 1, program.explain()
        assert not [line for line in program.remarks if "runs on the host" in line]
        assert mode != "full" or [bucket.segments for bucket in stats.buckets] == [1]


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_arrays_of_frameworks_come_back_as_such(framework: str) -> None:
    subject = subject_of("bert", "float16")
    inputs = subject.inputs(7)
    on_device = {
        name: torch.from_numpy(array).cuda() if framework == "torch" else cupy.asarray(array)
        for name, array in inputs.items()
    }
    with capgraph.optimize(subject.graph, executor="graph", device="cuda") as program:
        for _ in range(4):
            (given,) = program.run(on_device).values()
            assert type(given).__module__.startswith(framework)
        host = given.cpu().numpy() if framework == "torch" else given.get()
        assert subject.error(host, inputs) <= TOLERANCES["float16"]


def test_torch_reads_results_on_its_own_stream() -> None:
    subject = subject_of("bert", "float16")
    stream = torch.cuda.Stream()
    with capgraph.optimize(subject.graph, executor="graph", device="cuda") as program:
        for seed in range(12):
            inputs = subject.inputs(seed)
            tensors = {name: torch.from_numpy(array).cuda() for name, array in inputs.items()}
            torch.cuda.synchronize()
            with torch.cuda.stream(stream if seed % 2 else torch.cuda.default_stream()):
                (given,) = program.run(tensors).values()
                doubled = given * 2
            torch.cuda.synchronize()
            assert subject.error(doubled.cpu().numpy() / 2, inputs) <= TOLERANCES["float16"]


class Handed:
    """A tensor of which only DLPack is known."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **named: Any) -> Any:
        return self._tensor.__dlpack__(**named)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def test_what_dlpack_hands_over_is_read_and_results_are_handed_on() -> None:
    subject = subject_of("bert", "float16")
    with capgraph.optimize(subject.graph, executor="graph", device="cuda") as program:
        for seed in range(4):
            inputs = subject.inputs(seed)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                tensors = {name: torch.from_numpy(array).cuda(non_blocking=True) for name, array in inputs.items()}
                (given,) = program.run({name: Handed(each) for name, each in tensors.items()}).values()
            assert type(given).__module__.startswith("cupy")
            taken = torch.from_dlpack(given)
            assert taken.data_ptr() == given.data.ptr
            assert subject.error(given.get(), inputs) <= TOLERANCES["float16"]
            torch.cuda.synchronize()


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_copies_within_the_graph_follow_arrays_and_results_stay(framework: str) -> None:
    subject = subject_of("bert", "float16")
    drawn = [subject.inputs(seed) for seed in range(3)]
    with capgraph.optimize(subject.graph, executor="graph", device="cuda", capture={"inputs": {"": "copy"}}) as program:
        kept: list[Any] = []
        for call in range(40):
            given = {
                name: torch.from_numpy(array).cuda() if framework == "torch" else cupy.asarray(array)
                for name, array in drawn[call % 3].items()
            }
            kept.extend(program.run(given).values())
        path = program._executable._fast_path
        assert path._with_copies is not None, program.explain()
        assert not [line for line in program.remarks if "copies within" in line]
        hosts = [each.cpu().numpy() if framework == "torch" else each.get() for each in kept]
    for call, each in enumerate(hosts):
        assert subject.error(each, drawn[call % 3]) <= TOLERANCES["float16"], call
        assert np.array_equal(each, hosts[call % 3 + 3])


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_large_results_are_computed_where_they_are_handed_out_and_stay(framework: str) -> None:
    b = Builder()
    h = b.op("matmul", b.input("x", "f32[64, 8]"), b.input("y", "f32[8, 8192]"))
    graph, random = (
        b.finish({"h": h, "s": b.op("softmax", h), "m": b.op("reduce_sum", h, axes=[1])}),
        np.random.default_rng(1),
    )
    to_device, to_host = (
        (lambda x: torch.from_numpy(x).cuda(), lambda x: x.cpu().numpy())
        if framework == "torch"
        else (cupy.asarray, lambda x: x.get())
    )
    kept: list[tuple[Any, Any]] = []
    with capgraph.optimize(graph, executor="graph", device="cuda", capture={"inputs": {"": "copy"}}) as program:
        for call in range(60):
            drawn = {"x": random.standard_normal((64, 8)), "y": random.standard_normal((8, 8192))}
            given = program.run({name: to_device(each.astype(np.float32)) for name, each in drawn.items()})
            kept.append((drawn, given))
            del kept[: -1 - call % 3]  # some results are held longer than others
            for held, results in kept:
                expected = held["x"] @ held["y"]
                np.testing.assert_allclose(to_host(results["h"]), expected, atol=0.1)
                np.testing.assert_allclose(to_host(results["m"]), expected.sum(1, keepdims=True), atol=1, rtol=1e-2)
        copying = program._executable._fast_path._with_copies
        assert copying is not None, program.explain()
        assert copying._placed, program.explain()
        assert not [line for line in program.remarks if "copies within" in line]


def twice() -> Graph:
    """f32[64, 64] of two such: the result may lie where an input was."""
    b = Builder()
    x, y = b.input("x", "f32[64, 64]"), b.input("y", "f32[64, 64]")
    h = b.op("softmax", b.op("matmul", x, y))
    return b.finish({"h": b.op("softmax", b.op("matmul", h, h))})


@pytest.mark.parametrize("fed", ["x", "y"])
@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_a_result_in_place_may_be_an_input_of_the_next_call(framework: str, fed: str) -> None:
    to_device, to_host = (
        (lambda x: torch.from_numpy(x).cuda(), lambda x: x.cpu().numpy())
        if framework == "torch"
        else (cupy.asarray, lambda x: x.get())
    )
    graph, random = twice(), np.random.default_rng(1)
    (other,) = {"x", "y"} - {fed}
    in_place = {"inputs": {"": "copy"}, "copy_outputs": False}
    with capgraph.optimize(graph, executor="graph", device="cuda", mode="full", capture=in_place) as program:
        back = to_device(random.standard_normal((64, 64)).astype(np.float32))
        for call in range(24):
            drawn = random.standard_normal((64, 64)).astype(np.float32)
            inputs = {fed: to_host(back).copy(), other: drawn}
            (expected,) = evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])
            (back,) = program.run({fed: back, other: to_device(drawn)}).values()
            assert np.abs(to_host(back) - expected).max() <= 1e-5, call
        assert not [line for line in program.remarks if "copies within" in line]


class Adding(torch.nn.Module):
    """A convolution over channels that lie last, and what is added to it."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.inner = torch.nn.Conv2d(channels, 24, size, padding=size // 2)

    def forward(self, x: Any, *added: Any) -> Any:
        """f16[2, 64, 64, 24] of f16[2, 64, 64, channels] and one such result, if any."""
        y = self.inner(x.permute(0, 3, 1, 2))
        for each in added:
            y = y + each.permute(0, 3, 1, 2)
        return y.permute(0, 2, 3, 1)


@pytest.mark.parametrize("mode", ["full", "none"])
def test_a_plan_that_begins_with_a_convolution_waits_for_the_plan_before_it(mode: str) -> None:
    torch.manual_seed(0)
    modules = [Adding(128, 3).cuda().half().eval(), Adding(40, 1).cuda().half().eval()]
    x, z, y = (torch.randn(2, 64, 64, channels, device="cuda").half() for channels in (128, 40, 24))
    options = {"inputs": {"": "repoint"}, "copy_outputs": False, "beyond": "exact"}
    first, second = (
        capgraph.optimize(module, args=args, executor="graph", device="cuda", mode=mode, tune=False, capture=options)
        for module, args in zip(modules, [(x,), (z, y)], strict=True)
    )
    with torch.no_grad(), first, second:
        for call in range(40):
            x.copy_(torch.randn_like(x))
            expected = modules[1](z, modules[0](x))
            torch.cuda.synchronize()
            (made,) = first.run(dict(zip(first._model.inputs, (x,), strict=True))).values()
            (found,) = second.run(dict(zip(second._model.inputs, (z, made), strict=True))).values()
            assert (found - expected).abs().max() <= 2e-2, call


def test_views_that_torch_negates_or_conjugates_late_are_read_as_what_they_mean() -> None:
    b = Builder()
    graph = b.finish({"y": b.op("neg", b.input("x", "f32[8]"))})
    given = torch.randn(8, device="cuda")
    lazy = torch.complex(torch.zeros_like(given), given).conj().imag
    assert lazy.is_neg()
    with capgraph.optimize(graph, executor="graph", device="cuda") as program:
        for each in (given, given, given, lazy, given, lazy.resolve_neg(), lazy):
            assert torch.equal(program.run({"x": each})["y"], -each.resolve_neg())


@pytest.mark.parametrize("keep", [[], ["non_zero"]])
@pytest.mark.parametrize("type_", ["f32[1000, 3000]", "f16[3000000]", "i8[100, 100, 100]", "i64[7, 1]", "f64[64, 65]"])
def test_what_is_not_zero_is_searched_for_on_the_device(type_: str, keep: list[str]) -> None:
    b = Builder()
    x = b.input("x", type_)
    rank = x.tensor.rank
    turned = b.op("transpose", x, perm=[*range(rank)][::-1])
    graph = b.finish({"y": b.op("non_zero", turned), "z": b.op("non_zero", b.op("neg", x))})
    shape = tuple(int(dim) for dim in x.shape)
    capture = {"keep_outside": keep}
    with capgraph.optimize(graph, executor="graph", device="cuda", level=0, capture=capture) as program:
        for seed in range(3):
            drawn = np.random.default_rng(seed).integers(-1, 2, shape).astype(x.tensor.dtype.numpy)
            results = program.run({"x": torch.from_numpy(drawn).cuda()})
            for name, given in (("y", drawn.T), ("z", drawn)):
                assert np.array_equal(results[name].cpu().numpy(), np.array(np.nonzero(given))), (name, seed)
        assert any("the device finds them" in line for line in program.remarks)  # in the first call, which runs eagerly
        (bucket,) = program.stats().buckets
        assert bool(bucket.bounded) == (not keep)


@pytest.mark.parametrize("type_", ["f32[5]", "f16[5]", "f64[5]"])
def test_subnormal_numbers_are_not_zero(type_: str) -> None:
    b = Builder()
    x = b.input("x", type_)
    graph = b.finish({"y": b.op("non_zero", x)})
    least = np.finfo(x.tensor.dtype.numpy).smallest_subnormal
    drawn = np.array([0.0, least, -0.0, -least, np.nan]).astype(x.tensor.dtype.numpy)
    with capgraph.optimize(graph, executor="graph", device="cuda") as program:
        for _ in range(2):
            assert np.array_equal(program.run({"x": torch.from_numpy(drawn).cuda()})["y"].cpu().numpy(), [[1, 3, 4]])


def test_a_launch_profile_names_every_step() -> None:
    subject = subject_of("bert", "float16")
    with capgraph.optimize(subject.graph, executor="graph", device="cuda") as program:
        found = program.profile(subject.inputs(1))
        assert len(found.launches) >= 40
        assert all(each.seconds is not None and 0 < each.seconds < 1e-3 for each in found.launches)
        assert found.call_seconds <= 2 * found.launch_seconds
        assert any("attention" in each.op for each in found.launches)
        assert str(found).count("\n") == len(found.launches) + 2


def test_results_do_not_depend_on_what_the_arena_held() -> None:
    subject = subject_of("bert", "float16")
    inputs = subject.inputs(3)
    with capgraph.optimize(subject.graph, executor="graph", device="cuda") as program:
        results = []
        for _ in range(5):
            poison(program)
            results.append(next(iter(program.run(inputs).values())))
        assert all(np.array_equal(results[1], each) for each in results[2:])


@pytest.mark.alone
@pytest.mark.parametrize("name", ["bert", "resnet50", "gpt2", "mlp"])
def test_a_replay_costs_the_host_little(name: str) -> None:
    from benchmarks.gpu.host_time import subject_times

    found = subject_times(name, "float16")
    assert found["in place"]["busy_us"] < 10, found
    assert found["copied"]["busy_us"] < 25, found
