"""Relations of sizes that PyTorch took for granted: known from the trace, and kept by every call."""

import io
import math
from typing import Any

import capgraph
import pytest
import torch
from capgraph.frontends.torch.exported import from_torch
from capgraph.frontends.torch.guards import Guard
from capgraph.ir.dims import symbol
from capgraph.ir.errors import InputError

B, C = symbol("b"), symbol("c")


class Even(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if x.shape[0] % 2 == 0 else x * 3


class Longer(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum() if x.shape[0] > y.shape[0] else y.sum()


class Apart(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x.sum() - y.sum() if x.shape[0] != y.shape[0] else x - y


class Checked(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        torch._check(x.shape[0] % 3 == 0)
        return x + 1


CASES: dict[str, tuple[Any, tuple[int, ...], str, list[tuple[int, ...]], list[tuple[int, ...]]]] = {
    "even": (Even(), (4,), r"b - 2\*\(b//2\) == 0", [(2,), (8,)], [(1,), (5,)]),
    "odd": (Even(), (5,), r"b - 2\*\(b//2\) != 0", [(1,), (3,)], [(4,)]),
    "longer": (Longer(), (5, 3), "b > c", [(6, 2), (4, 3)], [(3, 3), (4, 6)]),
    "not longer": (Longer(), (3, 5), "b <= c", [(2, 6), (3, 3)], [(6, 2)]),
    "apart": (Apart(), (3, 5), "b != c", [(5, 3)], [(4, 4)]),
    "checked": (Checked(), (6,), r"b - 3\*\(b//3\) == 0", [(3,)], [(4,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_would_take_another_branch_is_refused(name: str) -> None:
    module, traced, words, good, bad = CASES[name]
    args = tuple(torch.randn(size, 2) for size in traced)
    dynamic = tuple({0: each} for each, _ in zip("bc", args, strict=False))
    program = capgraph.optimize(module, args=args, dynamic_shapes=dynamic, executor="eager")
    for sizes in good:
        given = tuple(torch.randn(size, 2) for size in sizes)
        torch.testing.assert_close(program(*given), module(*given))
    for sizes in bad:
        with pytest.raises(InputError, match=rf"(?s)for sizes with {words}, but b = {sizes[0]}.*try: export it"):
            program(*(torch.randn(size, 2) for size in sizes))


def test_what_a_guard_says() -> None:
    guard = Guard(B * C, ">", 20)
    assert str(guard) == "b*c > 20"
    assert guard.symbols == {"b", "c"}
    assert guard.holds({"b": 3, "c": 7})
    assert not guard.holds({"b": 4, "c": 5})


def test_sizes_of_0_and_1_are_no_guards() -> None:
    class Rest(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x[1:].contiguous().view(-1) + 1

    model = from_torch(Rest(), (torch.zeros(4, 2),), dynamic_shapes=({0: "b"},))
    assert model.guards == []
    program = capgraph.optimize(Rest(), args=(torch.zeros(4, 2),), dynamic_shapes=({0: "b"},), executor="eager")
    assert program(torch.ones(2, 2)).shape == (2,)


def test_a_program_from_a_file_keeps_its_guards() -> None:
    exported = torch.export.export(Even(), (torch.zeros(4, 2),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    program = capgraph.optimize(torch.export.load(file), executor="eager")
    assert program(torch.ones(2, 2)).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    with pytest.raises(InputError, match="== 0"):
        program(torch.ones(3, 2))


class Ratio(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x * 2 if x.shape[0] / y.shape[0] > 1.5 else x - y.sum()


def test_guards_that_no_dim_can_say_are_computed() -> None:
    args = (torch.zeros(4, 2), torch.zeros(2, 2))
    program = capgraph.optimize(Ratio(), args=args, dynamic_shapes=({0: "b"}, {0: "c"}), executor="eager")
    given = torch.ones(8, 2), torch.ones(5, 2)
    torch.testing.assert_close(program(*given), Ratio()(*given))
    with pytest.raises(InputError, match=r"\(IntTrueDiv\(b, c\)\) > 1.5, but b = 6, c = 4"):
        program(torch.ones(6, 2), torch.ones(4, 2))


def _cut(x: Any) -> Any:
    return x[: math.floor(x.shape[0] * 0.7)] * 2


def _rooted(x: Any) -> Any:
    return x[: int(math.sqrt(x.shape[0]))] + torch.arange(0, x.shape[0] * 0.1, 0.1)[-1]


@pytest.mark.parametrize("function", [_cut, _rooted])
def test_torch_compile_compiles_again_where_floats_round_otherwise(function: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
    for size in (8, 10, 29, 90):  # int(90 * 0.7) is 62
        x = torch.randn(size, 2)
        torch.testing.assert_close(compiled(x), function(x))


def test_calls_for_which_floats_round_otherwise_are_refused() -> None:
    class Cut(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return _cut(x)

    program = capgraph.optimize(Cut(), args=(torch.ones(8, 2),), dynamic_shapes=({0: "b"},), executor="eager")
    for size in (9, 10, 30):
        assert program(torch.ones(size, 2)).shape == _cut(torch.ones(size, 2)).shape
    with pytest.raises(InputError, match=r"FloorToInt\(0.7\*ToFloat\(b\)\) == \(7\*b\)//10, but b = 90"):
        program(torch.ones(90, 2))


def test_inputs_of_another_rank_are_refused_as_such() -> None:
    program = capgraph.optimize(Even(), args=(torch.zeros(4, 2),), dynamic_shapes=({0: "b"},), executor="eager")
    with pytest.raises(InputError, match="input 'x'"):
        program(torch.tensor(1.0))


class Eighths(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 100 if x.shape[0] // 8 == 0 else x * 1


class Fours(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 100 if (x.shape[0] + 1) // 4 == 1 else x * 1


class Second(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 100 if x.shape[0] - 1 == 1 else x * 1


@pytest.mark.parametrize(
    ("module", "words", "good", "bad"),
    [
        (Eighths(), "b//8 != 0", (8, 9), (3, 7)),
        (Fours(), ".*//4 != 1", (2, 7), (3, 6)),
        (Second(), "b - 1 != 1", (3,), (2,)),
    ],
)
def test_branches_on_what_is_made_of_a_size(module: Any, words: str, good: Any, bad: Any) -> None:
    program = capgraph.optimize(module, args=(torch.ones(16),), dynamic_shapes=({0: "b"},), executor="eager")
    for size in good:
        torch.testing.assert_close(program(torch.ones(size)), module(torch.ones(size)))
    for size in bad:
        with pytest.raises(InputError, match=f"for sizes with {words}, but b = {size}"):
            program(torch.ones(size))


class Between(torch.nn.Module):
    def forward(self, x: Any, count: int) -> Any:
        return x[:count] * 2


def test_relations_that_hold_together_are_checked_each() -> None:
    model = from_torch(Between(), (torch.zeros(6), 3), dynamic_shapes=({0: "b"}, torch.export.Dim.DYNAMIC))
    assert model.notes == []
    assert any(guard.relation == "<=" and "b" in guard.symbols for guard in model.guards)
