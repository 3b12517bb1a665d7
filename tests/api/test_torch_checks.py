"""What PyTorch checks at run time: a condition that does not hold is raised, in each executor."""

from collections.abc import Callable, Iterator
from typing import Any

import capgraph
import pytest
import torch

SIX = torch.arange(6.0)


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    """Sizes and numbers that only running tells are in the graph."""
    torch._dynamo.reset()
    config = torch._dynamo.config
    with torch.no_grad(), config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


class Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def _rows(x: torch.Tensor) -> torch.Tensor:
    found = x.nonzero()
    torch._check(found.shape[0] > 3, lambda: "too few")
    return found + 1


def _number(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    number = factor.item()
    torch._check(number > 0.5, lambda: "too small")
    return x * number


def _sum(x: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """PyTorch takes the sum for 6 in the whole graph, once it is checked."""
    first, second = sizes.tolist()
    torch._check(first + second == 6, lambda: "no split")
    return x * (first + second)


def _every(x: torch.Tensor) -> torch.Tensor:
    torch._check_tensor_all(x > 0, lambda: "not positive")
    return x * 2


def _later(x: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x > 0).all(), "not positive")
    return x * 2


def _solved(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(x)


CASES = [
    pytest.param(_rows, (torch.ones(6),), (torch.zeros(6),), "too few", id="rows"),
    pytest.param(_number, (SIX, torch.tensor(1.5)), (SIX, torch.tensor(0.1)), "too small", id="number"),
    pytest.param(_sum, (SIX, torch.tensor([2, 4])), (SIX, torch.tensor([2, 3])), "no split", id="sum"),
    pytest.param(_every, (SIX + 1,), (SIX - 1,), "not positive", id="every"),
    pytest.param(_later, (SIX + 1,), (SIX - 1,), "not positive", id="later"),
    pytest.param(_solved, (torch.eye(2).expand(3, 2, 2),), (torch.zeros(3, 2, 2),), "linalg.inv", id="singular"),
]


@pytest.mark.filterwarnings("ignore::capgraph.CapgraphWarning")
@pytest.mark.parametrize(
    ("function", "good", "bad", "message", "executor"),
    [
        *(pytest.param(*case.values, "eager", id=str(case.id)) for case in CASES),
        *(pytest.param(*CASES[0].values, executor, id=executor) for executor in ("ort", "graph")),
        *(pytest.param(*CASES[4].values, executor, id=f"later-{executor}") for executor in ("ort", "graph")),
    ],
)
def test_what_does_not_hold_is_raised(
    function: Callable[..., Any], good: tuple[Any, ...], bad: tuple[Any, ...], message: str, executor: str
) -> None:
    compiled = torch.compile(function, backend="capgraph", options={"executor": executor})
    torch.testing.assert_close(compiled(*good), function(*good))
    with pytest.raises(RuntimeError, match=rf"(?s){message}.*(test_torch_checks|linalg)") as caught:
        compiled(*bad)
    assert isinstance(caught.value, capgraph.CheckError)
    torch.testing.assert_close(compiled(*good), function(*good))


@pytest.mark.filterwarnings("ignore::capgraph.CapgraphWarning")
@pytest.mark.parametrize(("function", "good", "bad", "message"), CASES)
def test_programs_raise_it_too(
    function: Callable[..., Any], good: tuple[Any, ...], bad: tuple[Any, ...], message: str
) -> None:
    """Of most torch.export keeps PyTorch's words alone."""
    program = capgraph.optimize(Module(function), args=good, executor="eager")
    torch.testing.assert_close(program(*good), function(*good))
    with pytest.raises(capgraph.CheckError, match=f"{message}|Runtime assertion failed"):
        program(*bad)


def test_nothing_is_written_where_a_check_fails() -> None:
    def function(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        x.mul_(_number(x, factor))
        return x + 1

    compiled = torch.compile(function, backend="capgraph", options={"executor": "eager"})
    x = torch.ones(3)
    with pytest.raises(capgraph.CheckError, match="too small"):
        compiled(x, torch.tensor(0.1))
    assert torch.equal(x, torch.ones(3))


def test_what_holds_of_all_sizes_is_no_output() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        torch._check(found.shape[0] >= 0)
        torch._check(found.shape[0] + 1 > 0)
        return found + 1

    program = capgraph.optimize(Module(rows), args=(SIX,), executor="eager")
    assert len(program.graph.outputs) <= 2, str(program.graph)
    assert torch.equal(program(SIX), rows(SIX))


def test_what_torch_export_asserts_of_found_sizes_is_proven() -> None:
    """As many are found as there are elements, whatever is found among those."""

    def found(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        some = torch.cat([x[x > 1], x[x < 1]])
        return torch.unique(x.long()), some.nonzero() + 1, torch.unique(x.long().view(3, 2), dim=0)

    program = capgraph.optimize(Module(found), args=(SIX,), executor="eager")
    assert len(program.graph.outputs) == 3, str(program.graph)
    for each, wanted in zip(program(SIX), found(SIX), strict=True):
        assert torch.equal(each, wanted)


def test_checks_are_no_outputs_of_the_program() -> None:
    program = capgraph.optimize(Module(_rows), args=(torch.ones(6),), executor="eager")
    assert list(program.outputs) == list(program.run({next(iter(program.inputs)): torch.ones(6)}))
    assert len(program.graph.outputs) == 2
    assert "checks" not in program.explain()


def test_sizes_of_inputs_of_which_nothing_is_taken_for_granted() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] > 1, lambda: "too few")
        return x * 2 + x.shape[0]

    x = torch.ones(3, 2)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    compiled = torch.compile(doubled, backend="capgraph", fullgraph=True, options={"executor": "eager"})
    for rows in (3, 5, 2):
        given = x if rows == 3 else torch.ones(rows, 2)
        torch.testing.assert_close(compiled(given), doubled(given))
    with pytest.raises(RuntimeError, match=r"too few|Runtime assertion failed"):
        compiled(torch.ones(1, 2))


def _in_rows(x: torch.Tensor) -> torch.Tensor:
    def body(row: torch.Tensor) -> torch.Tensor:
        torch._assert_async((row > 0).all(), "not positive")
        return row * 2

    return torch._higher_order_ops.map(body, x)


def _in_branches(x: torch.Tensor) -> torch.Tensor:
    def low(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > -1).all(), "far too low")
        torch._assert_async((x < 5).all(), "too high here")
        return x * 2

    def high(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x < 9).all(), "far too high")
        return x + 1

    return torch.cond(x.sum() < 0, low, high, (x,))


def _in_a_loop(x: torch.Tensor) -> torch.Tensor:
    """Without the check it would not end where an element is negative."""

    def body(steps: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch._assert_async((x > 0).all(), "not positive")
        return steps + 1, x * 2

    goes_on = lambda _steps, x: (x < 100).any()  # noqa: E731
    return torch._higher_order_ops.while_loop(goes_on, body, (torch.zeros((), dtype=torch.int64), x))[1]


def _nested(x: torch.Tensor) -> torch.Tensor:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return _in_rows(x) + 1

    return torch.cond(x.sum() < 100, rows, lambda x: x - 1, (x,))


BODIES = [
    pytest.param(_in_rows, SIX.view(3, 2) + 1, SIX.view(3, 2), "not positive", id="map"),
    pytest.param(_in_branches, -SIX / 9, torch.tensor([-3.0, 1]), "far too low", id="then"),
    pytest.param(_in_branches, -SIX / 9, torch.tensor([6.0, -6.5]), "far too low", id="first"),
    pytest.param(_in_branches, SIX, SIX + 5, "far too high", id="else"),
    pytest.param(_in_a_loop, SIX + 1, torch.tensor([2.0, -3.0]), "not positive", id="loop"),
    pytest.param(_nested, SIX.view(3, 2) + 1, SIX.view(3, 2), "not positive", id="nested"),
]


@pytest.mark.parametrize(
    ("function", "good", "bad", "message", "executor"),
    [
        *(pytest.param(*case.values, "eager", id=str(case.id)) for case in BODIES),
        *(pytest.param(*BODIES[4].values, executor, id=executor) for executor in ("ort", "graph")),
    ],
)
def test_bodies_of_control_flow_check(
    function: Callable[..., Any], good: torch.Tensor, bad: torch.Tensor, message: str, executor: str
) -> None:
    program = capgraph.optimize(
        Module(function), args=(good,), executor=executor, dynamic_shapes=[{0: "n"}] if bad.dim() == 1 else None
    )
    for _ in range(2):
        torch.testing.assert_close(program(good), function(good))
        with pytest.raises(capgraph.CheckError, match=f"{message}|Runtime assertion failed"):
            program(bad)


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_parts_whose_sizes_only_running_tells() -> None:
    def function(sizes: Any, x: Any) -> Any:
        first, second = sizes.tolist()
        return torch.ops.aten.split_with_sizes.default(x, [first, second])[1].sort()[0]

    torch._dynamo.reset()
    given = torch.tensor([3, 4]), torch.randn(7)
    found = torch.compile(function, backend="capgraph", fullgraph=True)(*given)
    torch.testing.assert_close(found, function(*given))
