"""Programs of PyTorch modules draw by PyTorch's seed: anew in each call, and again what was drawn after that seed."""

from typing import Any

import capgraph
import pytest
import torch


def draw(x: Any) -> Any:
    dropped = torch.nn.functional.dropout(x, 0.3, training=True)
    chosen = torch.bernoulli(torch.full((50,), 0.25))
    classes = torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 20, True)
    return dropped, torch.randn(4, 3), torch.randint(5, 9, (100,)), torch.randperm(10), chosen, classes


@pytest.mark.filterwarnings("ignore::capgraph.CapgraphWarning")
@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
def test_a_seed_of_torch_repeats_what_is_drawn(executor: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(draw, backend="capgraph", options={"executor": executor})
    x = torch.ones(64, 8)
    with torch.no_grad():
        runs = []
        for _ in range(2):
            torch.manual_seed(0)
            runs.append([compiled(x) for _ in range(3)])
    for first, again in zip(*runs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(runs[0][0], runs[0][1], strict=True))
    dropped, _, integers, order, *_ = runs[0][2]
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert set(integers.tolist()) == {5, 6, 7, 8}
    assert sorted(order.tolist()) == list(range(10))


def test_distributions_are_those_of_torch() -> None:
    """By what lies below some numbers, of 40,000 draws: 0.01 is four deviations."""

    def drawn(x: Any) -> Any:
        normal, cauchy = x.clone().log_normal_(0.5, 0.25), x.clone().cauchy_(1.0, 2.0)
        return normal, cauchy, x.clone().geometric_(0.3), torch.empty(9, dtype=torch.int32).geometric_(0.5)

    x = torch.empty(40_000)
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        normal, cauchy, trials, counts = torch.compile(drawn, backend="capgraph", fullgraph=True)(x)
    assert float((normal.log() < 0.75).float().mean()) == pytest.approx(0.8413, abs=0.01)
    assert float((cauchy < 3.0).float().mean()) == pytest.approx(0.75, abs=0.01)
    assert [float((trials == n).float().mean()) for n in (1, 2)] == pytest.approx([0.3, 0.21], abs=0.01)
    assert int(counts.min()) >= 1


def test_other_draws_of_torch_move_a_program_on() -> None:
    class Noise(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.randn_like(x)

    program = capgraph.optimize(Noise(), args=(torch.zeros(6),), executor="eager")
    torch.manual_seed(1)
    first = program(torch.zeros(6))
    torch.manual_seed(1)
    torch.rand(1)
    assert not torch.equal(first, program(torch.zeros(6)))


def test_a_module_without_chance_leaves_the_generator_alone() -> None:
    program = capgraph.optimize(torch.nn.ReLU(), args=(torch.zeros(6),), executor="eager")
    before = torch.get_rng_state()
    program(torch.zeros(6))
    assert torch.equal(before, torch.get_rng_state())
