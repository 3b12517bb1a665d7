"""`torch.compile(..., backend="capgraph")`: options, weights that change, errors, and the decorator."""

import copy
from typing import Any
from unittest.mock import patch

import capgraph
import pytest
import torch
from capgraph.pytorch.backend import CompiledFunction
from capgraph.pytorch.weights import HeldWeights
from torch import nn

torch.set_num_threads(1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[CompiledFunction]:
    """The functions that are compiled from now on."""
    torch._dynamo.reset()
    found: list[CompiledFunction] = []
    initialize = CompiledFunction.__init__

    def noted(self: CompiledFunction, *args: Any) -> None:
        found.append(self)
        initialize(self, *args)

    monkeypatch.setattr(CompiledFunction, "__init__", noted)
    return found


def test_the_backend_is_found_by_its_name() -> None:
    assert "capgraph" in torch._dynamo.list_backends(exclude_tags=None)


def test_options(made: list[CompiledFunction]) -> None:
    options = {"executor": "graph", "buckets": [2, 4, 8], "level": 1, "verify": "numeric", "mode": "full"}
    function = torch.compile(lambda x: torch.relu(x) * 2, backend="capgraph", options=options, dynamic=True)
    for rows in (2, 3, 3, 3, 8, 8):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(function(x), torch.relu(x) * 2)
    assert len(made) == 1
    program = made[0].program
    assert program.level == 1
    assert program.target.executor == "graph"
    counters = program.stats().counters
    assert counters.calls == 6
    assert counters.replayed_calls >= 2
    assert counters.padded_calls >= 1


@pytest.mark.parametrize("given", [{"options": {"speed": 11}}, {"mode": "max-autotune"}, {"options": {"level": 9}}])
def test_unknown_options(given: dict[str, Any]) -> None:
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="UnsupportedError"):
        torch.compile(lambda x: x + 1, backend="capgraph", **given)(torch.ones(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buckets": [1, 2]}, "buckets=\\[1, 2\\] is for programs that record"),
        ({"dynamic": (1, 2), "executor": "eager"}, "dynamic=\\(1, 2\\) is for programs that record"),
        ({"executor": "graph", "buckets": []}, "lists no sizes"),
        ({"executor": "graph", "buckets": "4"}, "lists no sizes"),
        ({"executor": "graph", "buckets": [2, "4"]}, "lists no sizes"),
        ({"executor": "graph", "dynamic": True}, "dynamic=True lists no sizes"),
        ({"executor": "graph", "dynamic": (1, 2, 3)}, "lists no sizes"),
    ],
)
def test_sizes_that_are_none(options: dict[str, Any], message: str) -> None:
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=f"UnsupportedError: .*{message}"):
        torch.compile(lambda x: x + 1, backend="capgraph", options=options, dynamic=True)(torch.ones(2))


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_numbers_read_from_tensors_are_numbers(made: list[CompiledFunction]) -> None:
    def function(x: Any) -> Any:
        return (x > 0).sum().item(), (x > 0).any().item(), x.sum().item(), x * 2

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, options={"executor": "eager"})
    for x in (torch.tensor([1.5, -1.0]), torch.tensor([-2.0, -1.0])):
        found, wanted = compiled(x), function(x)
        assert found[:3] == wanted[:3]
        assert [type(each) for each in found[:3]] == [int, bool, float]
    assert made


def test_gradients_are_refused() -> None:
    torch._dynamo.reset()
    layer = capgraph.compile(nn.Linear(2, 2))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="backend='capgraph' raised") as caught:
        layer(torch.ones(1, 2))
    assert isinstance(caught.value.inner_exception, capgraph.UnsupportedError)
    assert "capgraph is for inference" in str(caught.value)
    assert "torch.no_grad()" in str(caught.value)
    with torch.no_grad():
        assert layer(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_a_function_that_turns_gradients_off_itself_is_taken(without: Any) -> None:
    layer = nn.Linear(3, 2)

    @without()
    def scores(x: torch.Tensor) -> torch.Tensor:
        return layer(x).softmax(-1)

    def shifted(x: torch.Tensor) -> torch.Tensor:
        return scores(x) + 1

    x = torch.randn(4, 3)
    for function in (scores, shifted):
        torch._dynamo.reset()
        found = torch.compile(function, backend="capgraph", fullgraph=True)(x)
        assert not found.requires_grad
        torch.testing.assert_close(found, function(x).clone())


def test_what_is_recorded_beside_a_part_without_gradients_is_refused() -> None:
    layer, weight = nn.Linear(3, 2), torch.ones(2, requires_grad=True)

    def mixed(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scores = layer(x)
        return scores * weight

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="gradients would be recorded here"):
        torch.compile(mixed, backend="capgraph", fullgraph=True)(torch.randn(4, 3))


def test_a_tensor_that_is_cut_off_from_gradients_is_taken() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    found = torch.compile(lambda x: x.detach() * 2, backend="capgraph")(x)
    torch.testing.assert_close(found, x.detach() * 2)


RESULTS: dict[str, Any] = {
    "places": lambda scores: scores.argmax(-1),
    "cut off": lambda scores: scores.softmax(-1).detach(),
    "truth": lambda scores: scores > 0,
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_need_no_gradients_are_taken(name: str) -> None:
    torch._dynamo.reset()
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)

    def function(x: Any) -> Any:
        return RESULTS[name](layer(x))

    torch.testing.assert_close(torch.compile(function, backend="capgraph")(x), function(x))


def test_arguments_that_become_part_of_gradients_are_refused() -> None:
    weight = torch.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        x[0].add_(weight)
        return x.detach() + 1

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="gradients would be recorded here"):
        torch.compile(function, backend="capgraph")(torch.zeros(2, 3))


def test_an_argument_that_gets_other_memory_is_refused() -> None:
    def function(x: Any, y: Any) -> Any:
        x.data = y
        return x + 1

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"(?s)other memory.*x\.copy_\(y\)"):
        torch.compile(function, backend="capgraph")(torch.zeros(3), torch.ones(3))


def test_gradients_that_a_function_turns_on_are_refused() -> None:
    torch._dynamo.reset()
    layer, x = nn.Linear(2, 2), torch.ones(3, 2)

    def enables(x: Any) -> Any:
        with torch.enable_grad():
            return layer(x)

    with torch.no_grad():
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="the function turns gradients on"):
            torch.compile(enables, backend="capgraph")(x)
        layer.requires_grad_(False)
        torch.testing.assert_close(torch.compile(enables, backend="capgraph")(x), layer(x))


def test_inference_mode(made: list[CompiledFunction]) -> None:
    layer = nn.Linear(3, 2)
    compiled = torch.compile(layer, backend="capgraph")
    x = torch.randn(4, 3)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), layer(x))
    assert len(made) == 1


def test_weights_are_constants_over_their_memory(made: list[CompiledFunction]) -> None:
    layer = nn.Linear(3, 2, bias=False).requires_grad_(False)
    compiled = torch.compile(layer, backend="capgraph", options={"level": 0, "executor": "eager"})
    compiled(torch.ones(1, 3))
    graph = made[0].program.graph
    assert len(graph.inputs) == 1
    (weight,) = [node.attrs["value"] for node in graph.nodes if node.op.name == "constant"]
    assert weight.array.__array_interface__["data"][0] == layer.weight.data_ptr()


def test_weights_that_change_are_seen(made: list[CompiledFunction]) -> None:
    layer = nn.Linear(3, 2).requires_grad_(False)
    compiled = torch.compile(layer, backend="capgraph")
    x = torch.randn(4, 3)
    compiled(x)
    layer.weight.mul_(3)
    torch.testing.assert_close(compiled(x), layer(x))
    layer.weight.data = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_written_to_uncounted_are_seen(dtype: torch.dtype, made: list[CompiledFunction]) -> None:
    layer = nn.Linear(300, 2).to(dtype).requires_grad_(False)
    layer.weight.data = torch.randn(300, 2, dtype=dtype).t()
    compiled = torch.compile(layer, backend="capgraph")
    x = torch.randn(4, 300, dtype=dtype)
    compiled(x)
    for _ in range(2):
        layer.weight.data.mul_(2)
        torch.testing.assert_close(compiled(x), layer(x), rtol=2e-2, atol=1e-3)  # sums of 300, in another order
    compiled(x)
    assert len(made) == 1
    assert len(made[0].programs) == 1


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x))


@pytest.mark.parametrize("executor", ["eager", "graph"])
def test_layers_of_one_class_take_turns(executor: str, made: list[CompiledFunction]) -> None:
    layers, x = nn.ModuleList([_Layer() for _ in range(3)]), torch.randn(2, 3)
    for layer in layers:
        layer.compile(backend="capgraph", options={"executor": executor})
    programs: list[Any] = []
    for _ in range(3):
        with torch.no_grad():
            found, expected = x, x
            for layer in layers:
                found, expected = layer(found), layer.forward(expected)
        torch.testing.assert_close(found, expected)
        programs.append([program for each in made for program in each.programs])
    assert len(programs[0]) == 3
    assert [set(map(id, each)) for each in programs] == [set(map(id, programs[0]))] * 3
    with (
        torch.no_grad(),
        patch.object(HeldWeights, "are_unwritten", autospec=True, side_effect=HeldWeights.are_unwritten) as look,
    ):
        for layer in layers:
            layer(x)
    assert look.call_count == 3, "a layer's weights are looked at in its own turn alone"
    with torch.no_grad():
        layers[1].linear.bias.add_(1)
        torch.testing.assert_close(layers[1](x), layers[1].forward(x))
    assert len([program for each in made for program in each.programs]) == 3, "the one of that layer is replaced"


def test_without_guards_on_modules_weights_that_change_are_still_seen(made: list[CompiledFunction]) -> None:
    layer, x = _Layer().requires_grad_(False), torch.randn(2, 3)
    unguarded = {"executor": "graph", "guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
    compiled = torch.compile(layer, backend="capgraph", options=unguarded)

    def agrees() -> None:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), layer.forward(x))

    agrees()
    layer.linear.weight.mul_(2)
    agrees()
    layer.linear.weight.data = torch.randn(3, 3)
    agrees()
    layer.linear.bias = nn.Parameter(torch.randn(3), requires_grad=False)
    agrees()
    assert len(made) == 1, "Dynamo has traced it once"


def test_weights_that_are_gone_for_long_keep_no_program(
    made: list[CompiledFunction], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capgraph.pytorch.backend.MOST_WEIGHTS", 2)
    x = torch.randn(2, 3)
    layers = [_Layer() for _ in range(4)]
    for layer in layers:
        layer.compile(backend="capgraph", options={"executor": "eager"})
    with torch.no_grad(), pytest.warns(capgraph.CapgraphWarning, match="more than 2 sets of weights") as told:
        found = [layer(x) for layer in layers]
    for layer, each in zip(layers, found, strict=True):
        torch.testing.assert_close(each, layer.forward(x).detach())
    assert len(told) == 1
    assert sum(len(each.programs) for each in made) == 2


@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
def test_weights_made_in_inference_mode_that_change_are_seen(executor: str, made: list[CompiledFunction]) -> None:
    """PyTorch does not count what is written to them."""
    with torch.inference_mode():
        layers = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        twin = copy.deepcopy(layers)
        compiled = torch.compile(layers, backend="capgraph", options={"executor": executor})
        for _ in range(3):
            x = torch.randn(4, 3)
            torch.testing.assert_close(compiled(x), twin(x))
            torch.testing.assert_close(list(layers.buffers()), list(twin.buffers()))
            for each in (layers, twin):
                each[0].weight.mul_(2)
    assert len(made) == 1


def test_graph_breaks_leave_pieces(made: list[CompiledFunction]) -> None:
    def function(x: Any) -> Any:
        y = x * 2
        if y.sum() > 0:  # depends on data
            return y + 1
        return y - 1

    compiled = torch.compile(function, backend="capgraph")
    for sign in (1.0, -1.0):
        x = torch.full((3,), sign)
        torch.testing.assert_close(compiled(x), function(x))
    assert len(made) == 3


@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_are_one_program_where_dynamo_may_trace_them(layer: Any, made: list[CompiledFunction]) -> None:
    module = layer(5, 4).requires_grad_(False)
    compiled = torch.compile(module, backend="capgraph", options={"executor": "graph"})
    with torch._dynamo.config.patch(allow_rnn=True):
        for _ in range(2):
            x = torch.randn(3, 2, 5)
            torch.testing.assert_close(compiled(x), module(x))
    (one,) = made
    (bucket,) = one.program.stats().buckets
    assert (bucket.segments, bucket.eager_steps) == (1, 0)


def test_integers_as_arguments(made: list[CompiledFunction]) -> None:
    def function(x: Any, count: int, factor: float) -> Any:
        return x.repeat(count) * factor + count, count * 2

    compiled = torch.compile(function, backend="capgraph", dynamic=True)
    for count, factor in ((2, 0.5), (3, 0.5), (7, 2.0)):
        found, wanted = compiled(torch.ones(3), count, factor), function(torch.ones(3), count, factor)
        torch.testing.assert_close(found, wanted)
    assert made


@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
def test_integers_below_zero(executor: str, made: list[CompiledFunction]) -> None:
    compiled = torch.compile(lambda x, n: (x + n, -n, n - 5), backend="capgraph", options={"executor": executor})
    for number in (2, 3, -4, 4, 5, -6, 0):
        found = compiled(torch.ones(2), number)
        torch.testing.assert_close(found[0], torch.full((2,), 1.0 + number))
        assert found[1:] == (-number, number - 5)
    assert len(made) <= 5  # for 2, for those from 0 on, for each below


@pytest.mark.parametrize("function", [lambda x, n: x[:n], lambda x, n: x.view(n, -1), lambda x, n: (x[n:], x * n, n)])
def test_views_of_a_size_that_is_an_argument(function: Any, made: list[CompiledFunction]) -> None:
    compiled = torch.compile(function, backend="capgraph", options={"executor": "eager"})
    x = torch.arange(6.0)
    for size in (2, 3, 6, 1):
        torch.testing.assert_close(compiled(x, size), function(x, size))
    assert made


@pytest.mark.parametrize(
    "function",
    [
        lambda z: (torch.view_as_real(z),),
        lambda z: (z.abs(), z.real, z.imag, z.conj()),
        lambda z: (z.abs(), torch.view_as_real(z).view(torch.int32)),
        lambda z: (torch.view_as_real(z) + 1, torch.view_as_real(z).view(torch.int16)),
    ],
)
def test_views_that_read_an_argument_otherwise(function: Any, made: list[CompiledFunction]) -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    found, wanted = torch.compile(function, backend="capgraph", options={"executor": "eager"})(z), function(z)
    torch.testing.assert_close([each.resolve_conj() for each in found], [each.resolve_conj() for each in wanted])
    assert made


def test_nothing_to_compute(made: list[CompiledFunction]) -> None:
    compiled = torch.compile(lambda x: (x, x.T, None, 3), backend="capgraph")
    x = torch.randn(2, 3)
    found = compiled(x)
    assert found[0] is x
    assert found[1].data_ptr() == x.data_ptr()
    assert found[2:] == (None, 3)


def test_the_decorator_on_functions() -> None:
    torch._dynamo.reset()

    @capgraph.compile
    def plain(x: Any) -> Any:
        return torch.sin(x)

    @capgraph.compile(executor="graph", buckets=[1, 2, 4], dynamic_shapes=True, fullgraph=True)
    def recorded(x: Any) -> Any:
        return torch.cos(x)

    for rows in (1, 2, 3):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(plain(x), torch.sin(x))
        torch.testing.assert_close(recorded(x), torch.cos(x))


def test_classes_that_derive_from_a_compiled_one_are_compiled(made: list[CompiledFunction]) -> None:
    @capgraph.compile
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1

    class Doubled(Net):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 2

        def forward(self, x: Any) -> Any:
            return super().forward(x) * self.factor

    torch.testing.assert_close(Doubled()(torch.ones(3)), torch.full((3,), 4.0))
    assert len(made) == 1


def test_the_decorator_checks_its_options_at_once() -> None:
    with pytest.raises(capgraph.UnsupportedError, match="no option 'speed'"):
        capgraph.compile(speed=11)
    with pytest.raises(capgraph.UnsupportedError, match="no option 'speed'"):
        capgraph.compile(nn.Linear(2, 2), speed=11)


def test_the_decorator_on_classes_and_modules(made: list[CompiledFunction]) -> None:
    @capgraph.compile(level=1)
    class Net(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.layer = nn.Linear(size, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    x = torch.randn(2, 3)
    with torch.no_grad():
        net = Net(3)
        assert isinstance(net, nn.Module)
        torch.testing.assert_close(net(x), net.layer(x))
        assert len(made) == 1
        torch.testing.assert_close(capgraph.compile(net.layer)(x), net.layer(x))
    with pytest.raises(capgraph.UnsupportedError, match="no class of modules"):
        capgraph.compile(int)
    with pytest.raises(capgraph.UnsupportedError, match="takes a function or a module, not a str"):
        capgraph.compile("model.onnx")
