"""torch.cond, while_loop, scan and map become control flow of the IR; values from around a body are handed in."""

from collections.abc import Callable
from typing import Any

import capgraph
import pytest
import torch
from capgraph.ir.analysis import all_nodes
from capgraph.program import foreign_nodes
from torch import nn
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class Captures(nn.Module):
    """A weight and a size in each branch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return torch.cond(x.mean() > 0, lambda x: self.layer(x) * x.shape[0], lambda x: x.new_zeros(x.shape), (x,))


class Nested(nn.Module):
    def forward(self, x: Any) -> Any:
        def positive(x: Any) -> Any:
            return torch.cond(x.max() > 1, lambda x: x - 1, lambda x: x + 1, (x,))

        return torch.cond(x.sum() > 0, positive, lambda x: -x, (x,))


class SeveralResults(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch.cond((x > y).all(), lambda x, y: (x - 1, y + 1), lambda x, y: (y * 2, x.exp()), (x, y))


class Newton(nn.Module):
    """Square roots, as long as it takes."""

    def forward(self, x: Any) -> Any:
        def goes_on(steps: Any, root: Any) -> Any:
            return ((root * root - x).abs().max() > 1e-4) & (steps < 50)

        def improve(steps: Any, root: Any) -> Any:
            return steps + 1, (root + x / root) / 2

        return while_loop(goes_on, improve, (torch.zeros((), dtype=torch.int64), torch.ones_like(x)))


class Exponential(nn.Module):
    """An average that forgets, along time."""

    def forward(self, x: Any) -> Any:
        weight = x.abs().mean()
        last, seen = scan(lambda mean, row: (mean * 0.9 + row * weight, mean * 1.0), torch.zeros_like(x[0]), x)
        return last, seen


class ForEach(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch_map(lambda row, y: row * y + row.sum(), x, y)


CASES: dict[str, tuple[Callable[[], Any], list[tuple[Any, ...]], str]] = {
    "captures": (Captures, [(torch.ones(4, 3),), (-torch.ones(2, 3),)], "if"),
    "nested": (Nested, [(torch.ones(4),), (torch.full((2,), 3.0),), (-torch.ones(3),)], "if"),
    "several": (SeveralResults, [(torch.ones(4), torch.zeros(4)), (torch.zeros(2), torch.ones(2))], "if"),
    "newton": (Newton, [(torch.tensor([2.0, 9.0, 100.0]),), (torch.ones(2),)], "loop"),
    "exponential": (Exponential, [(torch.randn(4, 3),), (torch.randn(6, 3),)], "scan"),
    "for_each": (ForEach, [(torch.randn(4, 3), torch.randn(3)), (torch.randn(2, 3), torch.randn(3))], "scan"),
}


@pytest.mark.parametrize("name", CASES)
def test_control_flow(name: str) -> None:
    make, calls, op = CASES[name]
    module = make().eval().requires_grad_(False)
    first = calls[0]
    dynamic = tuple({0: "n"} if given.shape[0] == first[0].shape[0] else None for given in first)
    program = capgraph.optimize(module, args=first, dynamic_shapes=dynamic, executor="eager")
    assert op in {node.op.name for node in all_nodes(program.graph)}
    assert not foreign_nodes(program.graph)
    for given in calls:
        torch.testing.assert_close(program(*given), module(*given), rtol=1e-4, atol=1e-5)


def _bias(score: Any, _batch: Any, head: Any, query: Any, key: Any) -> Any:
    return torch.where(head > 0, score + (query - key) * 0.1, score)


def _causal(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
    return query >= key


class Flexible(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, **self.options)


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.filterwarnings("ignore")  # PyTorch warns that it is slow uncompiled
def test_attention_with_functions(heads: int, is_compiled: bool) -> None:
    """Of scores and of positions, over shared heads, with what the module captures."""
    mask = create_block_mask(_causal, None, None, 16, 16, device="cpu")
    module = Flexible(score_mod=_bias, block_mask=mask, enable_gqa=heads < 4, return_lse=True)
    q, k, v = torch.randn(2, 4, 16, 8), torch.randn(2, heads, 16, 8), torch.randn(2, heads, 16, 8)
    torch._dynamo.reset()
    with torch.no_grad():
        if is_compiled:
            found = torch.compile(module, backend="capgraph", fullgraph=True)(q, k, v)
        else:
            program = capgraph.optimize(module, args=(q, k, v), executor="eager")
            assert not foreign_nodes(program.graph)
            found = program(q, k, v)
        torch.testing.assert_close(found, module(q, k, v), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_attention_with_functions_of_any_size() -> None:
    sizes = {name: {0: "batch", 2: "length"} for name in "qkv"}
    module, x = Flexible(score_mod=_bias), torch.randn(2, 4, 16, 8)
    program = capgraph.optimize(module, args=(x, x, x), dynamic_shapes=sizes, executor="eager")
    for given in (x, x[:1, :, :7]):
        torch.testing.assert_close(program(given, given, given), module(given, given, given), rtol=1e-4, atol=1e-5)


def test_other_operators_that_take_functions_are_refused() -> None:
    class Hinted(nn.Module):
        def forward(self, x: Any) -> Any:
            return hints_wrapper(lambda x: x + 1, (x,), {}, hints={"depth": 1})

    with pytest.raises(capgraph.UnsupportedError, match=r"(?s)hints_wrapper cannot be imported.*torch\.cond"):
        capgraph.optimize(Hinted(), args=(torch.zeros(4, 3),), executor="eager")
