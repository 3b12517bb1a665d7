"""Operators that the IR does not know run in PyTorch, between native nodes."""

from collections.abc import Iterator
from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.frontends.torch.exported import from_torch
from capgraph.ir.errors import ExecutionError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.program import foreign_nodes


class Special(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(x * 2) + 1


class Decomposition(torch.nn.Module):
    """Several results, keyword arguments, and a list of tensors."""

    def forward(self, x: Any) -> Any:
        q, r = torch.linalg.qr(x, mode="complete")
        return q @ r, torch.histc(x, bins=4, min=-1.0, max=1.0)


def test_a_foreign_node_between_native_ones() -> None:
    x = torch.linspace(0, 3, 7)
    program = capgraph.optimize(Special(), args=(x,), dynamic_shapes=({0: "n"},), executor="eager")
    assert list(foreign_nodes(program.graph)) == ["aten.special_bessel_j0.default"]
    torch.testing.assert_close(program(x), Special()(x))
    torch.testing.assert_close(program(x[:3]), Special()(x[:3]))
    assert "aten.special_bessel_j0.default x 1" in program.explain()
    assert "test_foreign.py" in program.explain(), "where in the module it stands"


def test_results_that_are_left_out() -> None:
    class Gradients(torch.nn.Module):
        def forward(self, grad: Any, x: Any, weight: Any) -> Any:
            settings = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, True])
            of_input, _, of_bias = torch.ops.aten.convolution_backward(grad, x, weight, [3], *settings)
            return of_input + 1, of_bias

    given = torch.randn(2, 3, 5, 5), torch.randn(2, 4, 5, 5), torch.randn(3, 4, 3, 3)
    program = capgraph.optimize(Gradients(), args=given, executor="eager")
    torch.testing.assert_close(program(*given), Gradients()(*given))


def test_several_results_and_arguments() -> None:
    x = torch.randn(4, 4)
    program = capgraph.optimize(Decomposition(), args=(x,), executor="eager")
    for found, wanted in zip(program(x), Decomposition()(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert set(foreign_nodes(program.graph)) == {"aten.linalg_qr.default"}


def test_its_text_reads_back_and_runs() -> None:
    graph = from_torch(Special(), (torch.ones(3),)).graph
    again = parse(print_graph(graph))
    assert print_graph(again) == print_graph(graph)
    x = np.array([0.0, 1.0, 2.0], np.float32)
    np.testing.assert_allclose(evaluate_graph(again, [x])[0], Special()(torch.from_numpy(x)).numpy(), rtol=1e-6)


def test_a_failure_names_the_operator_and_its_place() -> None:
    class Solve(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.cholesky_ex(x, check_errors=True)[0]

    program = capgraph.optimize(Solve(), args=(torch.eye(2),), executor="eager")
    with pytest.raises(
        ExecutionError, match=r"(?s)linalg_cholesky_ex.*not positive-definite.*test_foreign\.py"
    ) as caught:
        program(-torch.eye(2))
    assert isinstance(caught.value.__cause__, torch.linalg.LinAlgError), "PyTorch's own error is the cause"


def test_custom_operators() -> None:
    with torch.library._scoped_library("capgraph_tests", "DEF") as library:
        library.define("twice(Tensor x, SymInt times, str how) -> Tensor")
        library.impl("twice", lambda x, times, how: x * times if how == "times" else x, "CompositeExplicitAutograd")
        torch.library.register_fake("capgraph_tests::twice", lambda x, times, how: torch.empty_like(x), lib=library)

        class Custom(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return torch.ops.capgraph_tests.twice(x, x.shape[0], "times")

        x = torch.randn(3, 2)
        program = capgraph.optimize(Custom(), args=(x,), dynamic_shapes=({0: "n"},), executor="eager")
        for rows in (x, torch.randn(5, 2)):
            torch.testing.assert_close(program(rows), rows * rows.shape[0])


def test_numbers_in_floats_that_sizes_tell_are_handed_over_as_numbers() -> None:
    with torch.library._scoped_library("capgraph_floats", "DEF") as library:
        library.define("scaled(Tensor x, float by, float[] more) -> Tensor")
        library.impl("scaled", lambda x, by, more: x * by + sum(more), "CompositeExplicitAutograd")
        torch.library.register_fake("capgraph_floats::scaled", lambda x, by, more: torch.empty_like(x), lib=library)

        def function(x: Any) -> Any:
            by = x.shape[0] / 3
            return torch.ops.capgraph_floats.scaled(x, by, [by, 2.0]), torch.arange(0, 1, 1 / x.shape[0])

        torch._dynamo.reset()
        compiled = torch.compile(function, backend="capgraph", fullgraph=True, dynamic=True)
        for x in (torch.randn(4, 2), torch.randn(7, 2)):
            torch.testing.assert_close(compiled(x), function(x))


def test_a_custom_operator_that_must_be_told_its_device() -> None:
    with torch.library._scoped_library("capgraph_places", "DEF") as library:
        library.define("filled(int count, *, Device device) -> Tensor")
        library.define("shifted(Tensor x, *, Device device, bool pin_memory=False) -> Tensor")
        library.impl("filled", lambda count, *, device: torch.ones(count, device=device), "CompositeExplicitAutograd")

        def shifted(x: Any, *, device: Any, pin_memory: bool = False) -> Any:
            return x + torch.ones(x.shape, device=device, pin_memory=pin_memory)

        library.impl("shifted", shifted, "CompositeExplicitAutograd")
        torch.library.register_fake("capgraph_places::filled", torch.ones, lib=library)
        torch.library.register_fake("capgraph_places::shifted", shifted, lib=library)

        def function(x: Any) -> Any:
            made = torch.ops.capgraph_places.filled(3, device=x.device)
            return torch.ops.capgraph_places.shifted(x, device=x.device) + made

        torch._dynamo.reset()
        x = torch.ones(2, 3)
        torch.testing.assert_close(torch.compile(function, backend="capgraph", fullgraph=True)(x), x + 2)


def test_a_foreign_view_has_memory_of_its_own() -> None:
    def function(x: Any) -> Any:
        made = x.clone()
        bits = x.clone().view(torch.int16)
        return made, bits, x.t().contiguous().t().view(torch.float32)[1:]

    torch._dynamo.reset()
    x = torch.arange(12.0).view(3, 4)
    made, bits, part = torch.compile(function, backend="capgraph", options={"executor": "eager"})(x)
    wanted = function(x)
    made.zero_()
    x.zero_()
    torch.testing.assert_close((bits, part), wanted[1:])


@pytest.mark.parametrize("word", ["tensor", "number", "'tensor", "'", ""])
def test_strings_of_custom_operators_are_never_operands(word: str) -> None:
    with torch.library._scoped_library("capgraph_words", "DEF") as library:
        library.define("count(Tensor x, str how, Tensor y, str[] hows) -> Tensor")

        def count(x: Any, how: str, y: Any, hows: list[str]) -> Any:
            return x + y * (len(how) if [how] == hows else -1)

        library.impl("count", count, "CompositeExplicitAutograd")
        torch.library.register_fake("capgraph_words::count", lambda x, *_: torch.empty_like(x), lib=library)

        class Counts(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return torch.ops.capgraph_words.count(x, word, x * 2, [word])

        program = capgraph.optimize(Counts(), args=(torch.ones(3),), executor="eager")
        torch.testing.assert_close(program(torch.ones(3)), torch.full((3,), 1.0 + 2 * len(word)))


class Spins(torch.nn.Module):
    """An operator that only PyTorch knows, twice, between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = torch.ops.capgraph_spins.spin(self.layer(x).relu(), 3)
        return self.layer(torch.ops.capgraph_spins.spin(self.layer(x).relu(), 2)).relu()


def test_custom_operators_through_torch_compile_run_between_recorded_segments() -> None:
    from capgraph.pytorch.backend import live_programs

    torch._dynamo.reset()
    before = live_programs()
    module = Spins().requires_grad_(False)
    with torch.library._scoped_library("capgraph_spins", "DEF") as library:
        library.define("spin(Tensor x, int times) -> Tensor")
        library.impl("spin", lambda x, times: x.flip(0) * times, "CompositeExplicitAutograd")
        torch.library.register_fake("capgraph_spins::spin", lambda x, times: torch.empty_like(x), lib=library)
        compiled = torch.compile(module, backend="capgraph", options={"executor": "graph"}, fullgraph=True)
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(3, 4)
                torch.testing.assert_close(compiled(x), module(x))
    (program,) = [each for each in live_programs() if not any(each is other for other in before)]
    assert [len(nodes) for nodes in foreign_nodes(program.graph).values()] == [2]
    counters = program.stats().counters
    assert counters.replayed_calls == 2
    assert counters.replays == 2 * 3, "a segment before, between and behind"
    told = program.explain()
    assert "foreign ops: 2 nodes run through their own ecosystem" in told
    line = Spins.forward.__code__.co_firstlineno + 1
    assert "capgraph_spins.spin.default x 2: spin (" in told
    assert f"test_foreign.py:{line} in forward" in told
    assert f"test_foreign.py:{line + 1} in forward" in told


class Keeps(torch.nn.Module):
    """A buffer that an operator of the user writes to: whole, a row and some columns, with and without a result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, 4))

    def forward(self, x: Any) -> Any:
        torch.ops.capgraph_keeps.add(self.seen, x)
        first = torch.ops.capgraph_keeps.put(self.seen[1], x[0])
        second = torch.ops.capgraph_keeps.put(self.seen[:, 1:3], x[:, :2])
        return self.seen.sum(0), first, second


class Transposed(Keeps):
    """Its buffer lies in memory by columns."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(4, 3).T


@pytest.fixture
def keeps() -> Iterator[None]:
    """The operators that `Keeps` calls."""
    with torch.library._scoped_library("capgraph_keeps", "DEF") as library:
        library.define("add(Tensor(a!) cache, Tensor x) -> ()")
        library.define("put(Tensor(a!) cache, Tensor x, float scale=2.0) -> Tensor")
        library.impl("add", _add, "CompositeExplicitAutograd")
        library.impl("put", _put, "CompositeExplicitAutograd")
        torch.library.register_fake("capgraph_keeps::add", lambda _cache, _x: None, lib=library)
        torch.library.register_fake("capgraph_keeps::put", lambda cache, _x, scale=2.0: cache.new_empty(2), lib=library)
        yield


def _exported(module: Any, x: Any, executor: str) -> Any:
    return capgraph.optimize(module, args=(x,), executor=executor)


def _compiled(module: Any, _x: Any, executor: str) -> Any:
    torch._dynamo.reset()
    return torch.compile(module, backend="capgraph", fullgraph=True, options={"executor": executor})


@pytest.mark.usefixtures("keeps")
@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
@pytest.mark.parametrize("way", [_exported, _compiled])
def test_operators_that_write_to_their_arguments(way: Any, executor: str) -> None:
    module, twin = Keeps(), Keeps()
    call = way(module, torch.zeros(3, 4), executor)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(3, 4)
            torch.testing.assert_close(call(x), twin(x))
            torch.testing.assert_close(module.seen, twin.seen)


@pytest.mark.usefixtures("keeps")
def test_what_writes_reads_back_from_its_text() -> None:
    graph = from_torch(Keeps(), (torch.zeros(3, 4),)).graph
    assert print_graph(parse(print_graph(graph))) == print_graph(graph)
    assert graph.states, "the buffer is updated in place"


@pytest.mark.usefixtures("keeps")
def test_parts_of_tensors_that_are_not_contiguous_are_not_written_to() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)capgraph_keeps\.put\S* writes to a part.*contiguous\(\) first"):
        from_torch(Transposed(), (torch.zeros(3, 4),))


def _add(cache: Any, x: Any) -> None:
    cache.add_(x)


def _put(cache: Any, x: Any, scale: float = 2.0) -> Any:
    cache.copy_(x * scale)
    return torch.stack([cache.sum(), x.sum()])


@pytest.mark.parametrize("executor", ["eager", "ort"])
def test_wider_elements_are_read_from_nothing(executor: str) -> None:
    def function(x: Any) -> Any:
        none = x.narrow(1, 1, 0)
        halves = none.view(torch.int16)
        halves[-1] += 0
        return none, halves + 1

    compiled = torch.compile(function, backend="capgraph", fullgraph=True, options={"executor": executor})
    for found, expected in zip(compiled(torch.ones(1, 5)), function(torch.ones(1, 5)), strict=True):
        assert found.dtype is expected.dtype
        assert found.shape == expected.shape
