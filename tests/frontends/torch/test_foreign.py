"""Operators that the IR does not know run in PyTorch, between native nodes."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.frontends.torch.exported import from_torch
from capgraph.ir.errors import ExecutionError
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
    with pytest.raises(ExecutionError, match=r"(?s)linalg_cholesky_ex.*not positive-definite.*test_foreign\.py"):
        program(-torch.eye(2))


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
