"""Imports of what PyTorch traces for a GPU, whose metadata is not that of the CPU."""

import operator as operator_module
from typing import Any

import capgraph
import pytest
import torch
from capgraph.frontends.torch import from_torch
from capgraph.frontends.torch.dynamo.aot import from_aot
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.types import DType, TensorType
from capgraph.program import foreign_nodes
from torch import nn

from tests.frontends.torch.fake_cuda import NotTraced, fake_cuda, imported_on_cuda, module_on_cuda, on_cuda
from tests.frontends.torch.zoo import CASES

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}


def _results(function: Any, *tensors: Any) -> list[str]:
    return [str(each.type) for each in imported_on_cuda(function, tensors).model.graph.outputs]


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "f32"), *HALVES.items()])
def test_batch_norm_in_inference_saves_statistics(dtype: Any, name: str) -> None:
    def norm(x: Any, mean: Any, variance: Any) -> Any:
        return torch.ops.aten._native_batch_norm_legit_no_training(x, None, None, mean, variance, 0.1, 1e-5)

    x = torch.zeros(2, 3, 4, 4, dtype=dtype)
    assert _results(norm, x, torch.zeros(3), torch.ones(3)) == [f"{name}[2, 3, 4, 4]", "f32[3]", "f32[3]"]


@pytest.mark.parametrize(("dtype", "name"), HALVES.items())
def test_norms_of_small_floats_save_in_f32(dtype: Any, name: str) -> None:
    x, weight = torch.zeros(2, 4, 5, dtype=dtype), torch.ones(5, dtype=dtype)
    layer = _results(lambda x, w: torch.ops.aten.native_layer_norm(x, [5], w, None, 1e-5), x, weight)
    assert layer == [f"{name}[2, 4, 5]", "f32[2, 4, 1]", "f32[2, 4, 1]"]
    batch = _results(lambda x: torch.ops.aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5), x)
    assert batch == [f"{name}[2, 4, 5]", "f32[4]", "f32[4]"]


def test_log_sigmoid_keeps_no_buffer() -> None:
    assert _results(torch.ops.aten.log_sigmoid_forward, torch.zeros(3, 4)) == ["f32[3, 4]", "f32[0]"]


# ---- modules


class _Block(nn.Module):
    """Inverted bottleneck with squeeze and excitation, and dense joins: what convolutional nets are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.wide = nn.Sequential(nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU())
        self.depth = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 16, 1), nn.Hardsigmoid())
        self.narrow = nn.Sequential(nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8, track_running_stats=False))
        self.drop, self.end = nn.Dropout(0.2), nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        wide = self.depth(self.wide(x))
        x = torch.cat([x, self.narrow(wide * self.gate(wide)) + x], 1)
        return self.end(self.drop(torch.nn.functional.max_pool2d(x, 2).mean((2, 3))))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.cell = nn.LSTM(6, 8, 2), nn.GRU(8, 4, bidirectional=True), nn.LSTMCell(8, 8)

    def forward(self, x: Any) -> Any:
        x, (hidden, cell) = self.lstm(x)
        return self.gru(x)[0], self.cell(x[0], (hidden[-1], cell[-1]))


MODULES = {
    "convolutions": (_Block, (2, 3, 16, 16)),
    "recurrent": (_Recurrent, (5, 3, 6)),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_modules_are_native(name: str, dtype: Any) -> None:
    make, shape = MODULES[name]
    module, x = make().eval().to(dtype), torch.zeros(shape, dtype=dtype)
    with fake_cuda() as mode:
        graph = from_torch(module_on_cuda(mode, module), (on_cuda(mode, x),)).graph
    assert not foreign_nodes(graph)


@pytest.mark.parametrize("name", CASES)
def test_models_of_transformers(name: str) -> None:
    case = CASES[name]
    dtype = torch.bfloat16 if name == "llama" else torch.float16
    given = {key: x.to(dtype) if x.is_floating_point() else x for key, x in case.inputs(*case.sizes[0]).items()}
    module = case.make(1).to(dtype)
    with fake_cuda() as mode:
        kwargs = {key: on_cuda(mode, tensor) for key, tensor in given.items()}
        graph = from_torch(module_on_cuda(mode, module), (), {**kwargs, **case.fixed}).graph
    assert not foreign_nodes(graph)


def test_tensors_that_a_module_makes_of_numbers_are_constants() -> None:
    class Table(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[torch.tensor([3, 1])]  # a real tensor among fake ones

    with fake_cuda() as mode:
        graph = from_torch(Table(), (on_cuda(mode, torch.zeros(4, 3)),)).graph
    held = [node.attrs["value"] for node in graph.nodes if node.op.name == "constant"]
    assert [3, 1] in [content.array.tolist() for content in held if content.type == TensorType(DType.I64, (2,))]
    assert not foreign_nodes(graph)


# ---- LSTMs and cells


def test_states_of_an_lstm_are_typed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch._decomp.decompositions.one_layer_lstm

    def with_an_axis_too_many(x: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        output, last = layer(x, states, *args, **kwargs)
        return output, tuple(each.unsqueeze(0) for each in last)

    monkeypatch.setattr(torch._decomp.decompositions, "one_layer_lstm", with_an_axis_too_many)
    module, x = nn.LSTM(6, 8, 2).eval().half(), torch.randn(5, 3, 6).half()  # half: typed as on CUDA
    program = capgraph.optimize(module, args=(x,), executor="eager")
    with torch.no_grad():
        torch.testing.assert_close(program(x), module(x), rtol=2e-3, atol=2e-3)


def _cell_graph(operator: Any, tensors: list[Any], results: int) -> Any:
    """A graph of one call whose results but the first `results` are not read, typed as CUDA's operator types them."""
    graph = torch.fx.Graph()
    with fake_cuda() as mode:
        fakes = [on_cuda(mode, tensor) for tensor in tensors]
        made = [torch.empty_like(fakes[2]) for _ in range(results)]
    nodes = [graph.placeholder(f"x{index}") for index in range(len(tensors))]
    for node, fake in zip(nodes, fakes, strict=True):
        node.meta["val"] = fake
    call = graph.call_function(operator, tuple(nodes))
    call.meta["val"] = (*made, fakes[0])
    reads = [graph.call_function(operator_module.getitem, (call, index)) for index in range(results)]
    for read, fake in zip(reads, made, strict=True):
        read.meta["val"] = fake
    graph.output(tuple(reads))
    return from_aot(torch.fx.GraphModule(nn.Module(), graph), {}).model.graph


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_fused_cells_of_cuda_are_native(kind: str) -> None:
    torch.manual_seed(0)
    module = (nn.LSTMCell if kind == "lstm" else nn.GRUCell)(5, 4).requires_grad_(False)
    x, state, cell = torch.randn(3, 5), torch.randn(3, 4), torch.randn(3, 4)
    halves = [x @ module.weight_ih.T, state @ module.weight_hh.T]
    given = [*halves, cell if kind == "lstm" else state, module.bias_ih, module.bias_hh]
    operator = getattr(torch.ops.aten, f"_thnn_fused_{kind}_cell").default
    graph = _cell_graph(operator, given, 2 if kind == "lstm" else 1)
    assert not foreign_nodes(graph)
    found = evaluate_graph(graph, [each.numpy() for each in given], {})
    expected = module(x, (state, cell)) if kind == "lstm" else [module(x, state)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other)


# ---- the tests' own device


def test_what_the_device_refuses_is_no_fault_of_the_import() -> None:
    with pytest.raises(NotTraced, match="DataDependent"):
        imported_on_cuda(lambda x: torch.equal(x, x), [torch.zeros(3)])


def test_a_lowering_with_the_types_of_the_cpu_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from capgraph.frontends.torch.importer import LOWERINGS

    monkeypatch.setitem(
        LOWERINGS, "aten.log_sigmoid_forward", lambda c, x: (LOWERINGS["aten.log_sigmoid"](c, x), c.op("exp", x))
    )
    with pytest.raises(capgraph.InternalError, match="PyTorch gives f32"):
        imported_on_cuda(torch.nn.functional.logsigmoid, [torch.zeros(3)])
