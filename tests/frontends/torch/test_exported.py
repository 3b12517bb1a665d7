import sys
from collections.abc import Callable
from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.frontends.torch.exported import from_exported, from_torch
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.text.printer import print_graph
from torch import nn


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Any, mask: Any = None, scale: float = 2.0) -> Any:
        y = self.layer(x).relu() * scale
        return {"scores": y if mask is None else y.masked_fill(mask[..., None], 0.0)}


def test_the_graph_of_a_module() -> None:
    module = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    model = from_torch(module, (torch.zeros(3, 4),), dynamic_shapes=({0: "batch"},))
    lines = print_graph(model.graph).splitlines()
    assert lines[0] == "graph @Sequential(%input: f32[batch, 4]) {"
    assert [line.split(" = ")[1].split("(")[0].strip() for line in lines[1:-2]] == [
        *("constant", "constant", "transpose", "matmul", "add", "relu")
    ]


def test_weights_are_named_and_shared() -> None:
    module = Scores()
    model = from_torch(module, (torch.zeros(3, 4),))
    weight = model.graph.value("layer_weight").producer
    assert weight is not None
    assert weight.attrs["value"].array.__array_interface__["data"][0] == module.layer.weight.data_ptr()


def test_nodes_know_where_they_come_from() -> None:
    model = from_torch(nn.Sequential(nn.Linear(4, 2), nn.ReLU()), (torch.zeros(3, 4),))
    origins = [str(node.origin) for node in model.graph.nodes if node.op.name == "matmul"]
    assert len(origins) == 1
    assert "linear (0, " in origins[0]
    assert "linear.py" in origins[0]
    assert "in forward" in origins[0]


def test_one_name_for_sizes_that_are_equal() -> None:
    dynamic = {"x": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
    examples = {"x": torch.zeros(3, 5, 4), "mask": torch.zeros(3, 5, dtype=torch.bool)}
    model = from_torch(Scores(), (), examples, dynamic_shapes=dynamic)
    assert [str(value.type) for value in model.graph.inputs] == ["f32[batch, length, 4]", "bool[batch, length]"]


def test_dims_of_torch_keep_names_and_ranges() -> None:
    batch = torch.export.Dim("rows", min=3, max=64)
    model = from_torch(Scores(), (torch.zeros(4, 4),), dynamic_shapes={"x": {0: batch}})
    assert str(model.graph.inputs[0].type) == "f32[rows, 4]"
    assert model.ranges == {"rows": (3, 64)}


def test_an_exported_program() -> None:
    module = Scores()
    exported = torch.export.export(module, (torch.zeros(3, 4),))
    program = capgraph.optimize(exported, executor="eager")
    x = torch.randn(3, 4)
    torch.testing.assert_close(program(x)["scores"], module(x)["scores"])


def test_an_fx_graph() -> None:
    module = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    traced = torch.fx.symbolic_trace(module)
    program = capgraph.optimize(traced, args=(torch.zeros(3, 4),), dynamic_shapes=({0: "n"},), executor="eager")
    x = torch.randn(5, 4)
    torch.testing.assert_close(program(x), module(x))


def test_numbers_as_arguments_vary_where_they_are_dynamic() -> None:
    class Repeat(nn.Module):
        def forward(self, x: Any, count: int) -> Any:
            return x.unsqueeze(0).expand(count, -1) * count

    program = capgraph.optimize(
        Repeat(), args=(torch.ones(3), 4), dynamic_shapes=(None, torch.export.Dim.DYNAMIC), executor="eager"
    )
    for count in (2, 7):
        torch.testing.assert_close(program(torch.ones(3), count), Repeat()(torch.ones(3), count))


def test_a_branch_on_data_keeps_torchs_error_as_cause() -> None:
    class Branch(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(UnsupportedError, match=r"(?s)torch\.export refuses Branch.*torch\.cond") as caught:
        from_torch(Branch(), (torch.ones(2),))
    assert caught.value.__cause__ is not None
    assert "torch" in type(caught.value.__cause__).__module__


def test_what_cannot_be_decomposed() -> None:
    class Aliases(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,))

    with pytest.raises(UnsupportedError, match=r"(?s)torch\.export refuses Aliases.*aliasing"):
        from_torch(Aliases(), (torch.ones(2),))


def test_sizes_that_the_module_fixes() -> None:
    class Fixed(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.ones(3)

    with pytest.raises(UnsupportedError, match=r"torch\.export refuses Fixed"):
        from_torch(Fixed(), (torch.ones(3),), dynamic_shapes=({0: "n"},))


def test_wrong_arguments() -> None:
    with pytest.raises(UnsupportedError, match="refuses Scores"):
        from_torch(Scores(), (torch.ones(3, 5),))
    with pytest.raises(UnsupportedError, match="refuses Scores"):
        from_torch(Scores(), (), {"nothing": torch.ones(3, 4)})


def test_other_devices_than_the_module() -> None:
    with pytest.raises(UnsupportedError, match="refuses Scores"):
        from_torch(Scores(), (torch.ones(3, 4, device="meta"),))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(3).to_sparse(), "example input 1 has the layout"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "1 is nested"),
        (lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8), "1 is quantized"),
    ],
    ids=["sparse", "nested", "quantized"],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_inputs_that_no_array_is(make: Callable[[], Any], words: str) -> None:
    class Dense(nn.Module):
        def forward(self, pair: Any) -> Any:
            return pair[0] + pair[1].to_dense()

    with pytest.raises(UnsupportedError, match=words):
        from_torch(Dense(), ([torch.ones(3), make()],))


def test_weights_that_have_no_content_yet() -> None:
    with torch.device("meta"):
        module = Scores()
        given = torch.zeros(3, 4)
    model = from_exported(torch.export.export(module, (given,)))
    with pytest.raises(UnsupportedError, match="has no content"):
        capgraph.ir.evaluate.evaluate_graph(model.graph, [np.zeros((3, 4), np.float32)])


def test_one_tensor_for_two_arguments_is_only_an_example() -> None:
    class Difference(nn.Module):
        def forward(self, x: Any, others: Any) -> Any:
            return x - 2 * others[0]

    x = torch.zeros(3)
    program = capgraph.optimize(Difference(), args=(x, [x]), executor="eager")
    assert program(torch.ones(3), [torch.full((3,), 4.0)]).tolist() == [-7.0] * 3


def test_numbers_read_from_tensors_are_numbers() -> None:
    class Numbers(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sum().item(), (x > 0).sum().item(), (x > 0).any().item(), x + 1

    x = torch.tensor([1.5, -1.0, 2.0])
    found = capgraph.optimize(Numbers(), args=(x,), executor="eager")(x)
    assert found[:3] == (2.5, 2, True)
    assert [type(each) for each in found[:3]] == [float, int, bool]


def test_gradients_that_a_module_turns_on() -> None:
    class Enables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            with torch.enable_grad():
                return self.layer(x)

    module, x = Enables(), torch.ones(3, 4)
    with pytest.raises(UnsupportedError, match=r"(?s)Enables turns gradients on.*requires_grad_\(False\)"):
        from_torch(module, (x,))
    module.requires_grad_(False)
    torch.testing.assert_close(capgraph.optimize(module, args=(x,), executor="eager")(x), module(x))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_dtypes_that_there_are_not() -> None:
    class Twice(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    with pytest.raises(UnsupportedError, match=r"(?s)complex32 cannot be imported\n  at input x\n  try: use complex64"):
        from_torch(Twice(), (torch.zeros(2, dtype=torch.complex32),))


def test_what_keeps_operators_in_order_is_no_result() -> None:
    """torch.linalg.inv checks its operand, an effect, whose token the graph gives beside the results."""

    class Solves(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a.inverse(), {"solved": torch.linalg.solve(a, b)}, torch.linalg.cholesky(a @ a.mT)

    torch.manual_seed(0)
    a, b = torch.randn(2, 3, 3) + 3 * torch.eye(3), torch.randn(2, 3, 1)
    found, wanted = capgraph.optimize(Solves(), args=(a, b), executor="eager")(a, b), Solves()(a, b)
    torch.testing.assert_close(found, wanted)


class TurnsGradientsOff(nn.Module):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            y = x.cos()
        with torch.enable_grad(), torch.no_grad():
            assert not torch.is_grad_enabled()
        return y


def test_gradients_are_turned_off_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.export notes each time, and takes the graph apart for it."""
    module, turns, turn = TurnsGradientsOff(), [], torch.set_grad_enabled

    def turned(mode: bool) -> Any:
        caller = sys._getframe(2).f_code
        if caller is TurnsGradientsOff.forward.__code__:
            turns.append(mode)
        return turn(mode)

    monkeypatch.setattr(torch, "set_grad_enabled", turned)
    from_torch(module, (torch.ones(3),))
    assert turns == [False, True], "only where they were on"
    turns.clear()
    module(torch.ones(3))
    assert len(turns) == 4, "elsewhere it is what it was"
