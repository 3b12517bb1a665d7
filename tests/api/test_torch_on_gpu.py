"""torch.compile on a GPU that the host plays: tensors of the CPU count as tensors on the device."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import capgraph
import pytest
import torch
from capgraph.executors.base import Request
from capgraph.executors.cuda import programs as cuda_programs
from capgraph.executors.cuda.arrays import frameworks
from capgraph.executors.cuda.arrays.protocol import DeviceArray
from capgraph.executors.cuda.arrays.torch import TorchArrays
from capgraph.executors.cuda.programs import graphs_on
from capgraph.executors.cuda.run import states
from capgraph.executors.cuda.run.executable import CudaExecutable
from capgraph.frontends.torch import tensors
from capgraph.frontends.torch.tensors import array_of, type_of
from capgraph.ir.constant import Constant, Residence
from capgraph.ir.errors import UnsupportedError
from capgraph.pytorch import backend as torch_backend
from capgraph.pytorch.decoding_step import OPTIONS, DecodingStep

from benchmarks.gpu.decode_model import Decoder, decoder
from tests.counted_work import calls_in
from tests.executors.cuda.fake import FakeDriver, array_over, fake_device, meanings
from tests.frontends.torch.generation import compiled_text, small_llama, text

torch.set_num_threads(1)


run_carefully = CudaExecutable._run_carefully

STREAM = 1 << 20
"""PyTorch's present one: none that the fake driver makes."""


class CpuTensors(TorchArrays):
    """Tensors of the CPU as a `Framework` on the fake GPU."""

    def __init__(self, index: int, download: Any) -> None:
        super().__init__(index, download)
        self.has_device = True
        self._device = torch.device("cpu")
        self.stream = lambda: STREAM

    def wrap(self, given: Any) -> DeviceArray:
        like = array_of(given)
        return DeviceArray(given.data_ptr(), like.dtype, like.shape, like.strides, given, self._download)

    def address_like(self, given: Any, like: DeviceArray) -> int:
        fits = given.dtype is like.native.dtype and given.shape == like.shape and given.is_contiguous()
        return int(given.data_ptr()) if fits else 0

    def over(self, address: int, shape: Any, strides: Any, dtype: Any) -> Any:
        return tensors.tensor_of(array_over(address, shape, strides, dtype))


def resident(tensor: Any) -> Constant:
    """A matrix is on the device, and nobody may read a weight on the host."""

    def load() -> Any:
        if isinstance(tensor, torch.nn.Parameter):
            raise UnsupportedError("a weight was read on the host")
        return array_of(tensor)

    if tensor.dim() < 2:
        return Constant(array_of(tensor))
    strides = tuple(stride * tensor.element_size() for stride in tensor.stride())
    return Constant.elsewhere(type_of(tensor), load, Residence("cuda:0", tensor.data_ptr(), strides, tensor))


@pytest.fixture
def gpu(tmp_path: Path) -> Iterator[FakeDriver]:
    driver = FakeDriver()

    def executor(request: Request) -> Any:
        return graphs_on(fake_device(tmp_path, driver), request)

    with (
        patch.object(frameworks, "_FRAMEWORKS", {"torch": CpuTensors}),
        patch.object(states, "TorchArrays", CpuTensors),
        patch.object(states, "is_state", lambda tensor: tensor.is_contiguous()),
        patch.object(states, "waited", no_wait),
        patch.object(cuda_programs, "graphs", executor),
        patch.object(torch_backend, "_device_of", lambda _forward: "cuda"),
        patch.dict(OPTIONS, device="cuda"),
        patch.object(torch_backend._FixedFunction, "_placed", lambda _self, _name, tensor: tensor),
        patch.object(tensors, "_constant", resident),
        meanings(),
    ):
        torch._dynamo.reset()
        yield driver


@contextmanager
def no_wait(_tensor: Any) -> Iterator[None]:
    yield


def spread(module: Decoder) -> Decoder:
    """With larger weights, so that tokens are not those that went in."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "embedding" not in name and parameter.dim() > 1:
                parameter.mul_(6)
    return module


def test_what_pytorch_asks_for_of_tf32_is_part_of_what_is_compiled(gpu: FakeDriver) -> None:
    compiled = torch.compile(torch.nn.Conv2d(2, 3, 3), backend=torch_backend.backend)
    note = "note: operands in f32 are rounded to TF32 in: convolutions"
    with torch.no_grad():
        told = []
        for allowed in (True, False, False, True):
            torch._C._set_cudnn_allow_tf32(allowed)  # by its public name not once PyTorch's own tests are imported
            compiled(torch.ones(1, 2, 5, 5))
            told.append(torch_backend.live_programs()[-1])
    assert [note in program.explain() for program in told] == [True, False, False, True]
    assert told[1] is told[2]


class Pieces(torch.nn.Module):
    """Five pieces: their arguments lie in other orders, some results are known, some are views, a fit is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.table = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.randn(5, 6))

    def forward(self, x: Any) -> Any:
        q, shift = self.inner(x).transpose(1, 2), self.table.exp()
        torch._dynamo.graph_break()
        indices = torch.arange(6).remainder(4)
        torch._dynamo.graph_break()
        turned, weights = q.softmax(1).transpose(0, 2), shift.t() * 2
        torch._dynamo.graph_break()
        known, seen = torch.ones(4) * 2, turned[1:]
        torch._dynamo.graph_break()
        return turned + 1, weights, seen, known + indices[:4], q @ shift[:, :4]


def test_pieces_between_graph_breaks_take_the_short_way(gpu: FakeDriver) -> None:
    module = Pieces()
    compiled = torch.compile(module, backend=torch_backend.backend, dynamic=False)
    with torch.no_grad():
        for call in range(24):
            x = torch.randn(3, 5, 6)
            with patch.object(CudaExecutable, "_run_carefully", autospec=True, side_effect=run_carefully) as carefully:
                given = compiled(x)
            assert call < 3 or not carefully.call_count, call
            for each, expected in zip(given, module(x), strict=True):
                torch.testing.assert_close(each, expected)
                assert each.stride() == expected.stride()
            given[3].fill_(7)  # no later call sees it


def test_a_decoder_is_recorded_once_over_the_weights_and_caches_of_torch(gpu: FakeDriver) -> None:
    module = spread(decoder("decode-toy").float())
    expected = copy.deepcopy(module)
    others = torch_backend.live_programs()  # of tests before this one
    compiled = torch.compile(module, backend=torch_backend.backend, fullgraph=True)
    tokens = told = torch.tensor([3])
    seen = set()
    with torch.no_grad():
        for index in range(12):
            position = torch.tensor([index])
            tokens, told = compiled(tokens, position)[0], expected(told, position)[0]
            assert tokens.tolist() == told.tolist()
            seen.add(int(tokens))
            for cache, other in zip(module.caches, expected.caches, strict=True):
                torch.testing.assert_close(cache, other, rtol=1e-4, atol=1e-5)
    assert len(seen) > 3
    (program,) = [each for each in torch_backend.live_programs() if not any(each is other for other in others)]
    counters = program.stats().counters
    assert (counters.captures, counters.replayed_calls, counters.refused_buckets) == (1, 11, 0)
    assert all(bucket.segments == 1 for bucket in program.stats().buckets)
    assert "runs on the host" not in program.explain()


class Layers(torch.nn.Module):
    """Weights, and a buffer that counts calls."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in range(count))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        x = x + self.calls
        self.calls.add_(1)
        for layer in self.inner:
            x = layer(x)
        return x


def work_of_a_call(gpu: FakeDriver, count: int) -> int:
    """How many functions ours enters in a call of so many layers."""
    function, x = torch.compile(Layers(count), backend=torch_backend.backend), torch.ones(2, 4)
    with torch.no_grad():
        for _ in range(24):
            function(x)
        copies, called = gpu.copies, torch_backend.CompiledFunction.__call__
        with patch.object(torch_backend.CompiledFunction, "__call__", autospec=True, side_effect=called) as noted:
            function(x)
        assert gpu.copies == copies, "they are part of the graph"
        ours, arguments = noted.call_args.args
        with patch.object(FakeDriver, "submit", lambda _self, _stream, _call: None):  # the host plays each kernel
            return calls_in(lambda: ours(arguments))


def test_a_call_like_the_one_before_does_little_on_the_host(gpu: FakeDriver) -> None:
    with patch.object(CudaExecutable, "_run_carefully", autospec=True, side_effect=run_carefully) as carefully:
        few = work_of_a_call(gpu, 2)
        several = work_of_a_call(gpu, 22)
    assert few <= 55
    assert several - few == 20 * 3, (
        "where a weight lies, a few of its elements in main memory, the kernel that is played"
    )
    assert carefully.call_count == 2 * 2, "the first call, and the one that is replayed"


def test_a_weight_that_changes_is_seen(gpu: FakeDriver) -> None:
    module = torch.nn.Linear(4, 3)
    compiled = torch.compile(module, backend=torch_backend.backend, fullgraph=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
        module.weight.mul_(2)
        torch.testing.assert_close(compiled(x), module(x))
        module.weight.data = torch.randn(3, 4)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), module(x))


def test_a_token_of_transformers_costs_one_launch_and_no_copy_of_a_cache(gpu: FakeDriver) -> None:
    model, before = small_llama(), set(map(id, torch_backend.live_programs()))
    for count in (20, 12):
        assert compiled_text(model, count, torch_backend.backend) == text(model, count)
    (program,) = [each for each in torch_backend.live_programs() if id(each) not in before]
    counters = program.stats().counters
    assert (counters.captures, counters.state_moves, counters.eager_calls) == (1, 1, 1)
    assert all(bucket.segments == 1 for bucket in program.stats().buckets)
    assert len(program.states) == 3 * 2, "keys, values and length of two layers"
    launches, copies, waits = gpu.launches, gpu.copies, gpu.waits
    compiled_text(model, 12, torch_backend.backend)
    long = gpu.launches - launches, gpu.copies - copies, gpu.waits - waits
    launches, copies, waits = gpu.launches, gpu.copies, gpu.waits
    compiled_text(model, 7, torch_backend.backend)
    short = gpu.launches - launches, gpu.copies - copies, gpu.waits - waits
    tokens = 12 - 7
    assert long[0] - short[0] == tokens, "launches"
    assert long[1] - short[1] == 3 * tokens, "copies in: token, mask, position"
    assert long[2] == short[2], "the host waits for no token"
    assert "runs on the host" not in program.explain()


def test_a_token_of_the_recorded_loop_is_one_launch_and_the_host_waits_for_none(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, step = [], DecodingStep.__call__

    def counted(*arguments: Any) -> None:
        step(*arguments)
        seen.append((gpu.launches, gpu.waits))  # memory of the host is aligned too little to be read in place

    monkeypatch.setattr(DecodingStep, "__call__", counted)
    model = small_llama()
    found = text(model, 20, cache_implementation="static", custom_generate=capgraph.decoding_loop)
    assert found == text(model, 20)
    costs = [tuple(now - then for then, now in zip(*each, strict=True)) for each in pairwise(seen[1:])]
    assert costs == [(1, 0)] * 17
