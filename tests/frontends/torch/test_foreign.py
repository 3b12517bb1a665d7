"""Operators that the IR does not know run in PyTorch, between native nodes."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.frontends.torch.exported import from_torch
from capgraph.ir.errors import ExecutionError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.parser import parse
from capgraph.ir.printer import print_graph
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


def test_several_results_and_arguments() -> None:
    x = torch.randn(4, 4)
    program = capgraph.optimize(Decomposition(), args=(x,), executor="eager")
    for found, wanted in zip(program(x), Decomposition()(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert set(foreign_nodes(program.graph)) == {"aten.linalg_qr.default", "aten.histc.default"}


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


class Spins(torch.nn.Module):
    """An operator that only PyTorch knows, twice, between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = torch.ops.capgraph_spins.spin(self.layer(x).relu(), 3)
        return self.layer(torch.ops.capgraph_spins.spin(self.layer(x).relu(), 2)).relu()


def test_custom_operators_through_torch_compile_run_between_recorded_pieces() -> None:
    from capgraph.torch_backend import live_programs

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
    assert counters.replays == 2 * 3, "a piece before, between and behind"
    told = program.explain()
    assert "foreign ops: 2 nodes run through their own ecosystem" in told
    line = Spins.forward.__code__.co_firstlineno + 1
    assert "capgraph_spins.spin.default x 2: spin (" in told
    assert f"test_foreign.py:{line} in forward" in told
    assert f"test_foreign.py:{line + 1} in forward" in told


def test_operators_that_write_to_their_arguments_are_refused() -> None:
    with torch.library._scoped_library("capgraph_writes", "DEF") as library:
        library.define("put(Tensor(a!) cache, Tensor x) -> ()")
        library.impl("put", lambda cache, x: cache.copy_(x), "CompositeExplicitAutograd")
        torch.library.register_fake("capgraph_writes::put", lambda _cache, _x: None, lib=library)

        class Writes(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                cache = torch.zeros_like(x)
                torch.ops.capgraph_writes.put(cache, x)
                return cache

        with pytest.raises(UnsupportedError, match=r"(?s)capgraph_writes\.put\S* writes to its arguments.*result"):
            from_torch(Writes(), (torch.ones(2),))
