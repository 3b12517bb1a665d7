"""torch.compile of functions that torch.func has transformed: gradients of what is otherwise kept whole."""

from collections.abc import Callable, Iterator
from typing import Any

import capgraph
import pytest
import torch
from torch.nn import functional as F

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "matmul": lambda x, w: (x @ w).square().sum(),
    "linear": lambda x, w: F.linear(x, w.T).square().sum(),
    "layer_norm": lambda x, w: (F.layer_norm(x, (5,)) @ w).square().sum(),
    "softmax": lambda x, w: torch.softmax(x @ w, -1).square().sum(),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], x[None], x[None]).square().sum() + w.sum(),
    "max_pool2d": lambda x, w: F.max_pool2d(x[None, None], 2).square().sum() + w.sum(),
    "cross_entropy": lambda x, w: F.cross_entropy(x @ w, torch.tensor([0, 1, 2])),
    "gelu": lambda x, w: F.gelu(x @ w).sum(),
}


def _vjp(function: Function) -> Callable[..., Any]:
    return lambda x, w: torch.func.vjp(function, x, w)[1](torch.ones(()))


def _jvp(function: Function) -> Callable[..., Any]:
    return lambda x, w: torch.func.jvp(lambda v: function(v, w), (x,), (torch.ones_like(x),))


def _batched(function: Function) -> Callable[..., Any]:
    gradient = torch.func.vmap(torch.func.grad(function), (0, None))
    return lambda x, w: gradient(torch.stack([x, 2 * x]), w)


TRANSFORMS: dict[str, Callable[[Function], Callable[..., Any]]] = {
    "grad": torch.func.grad,
    "vjp": _vjp,
    "jacrev": torch.func.jacrev,
    "vmap of grad": _batched,
    "jvp": _jvp,
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


CASES = [("grad", name) for name in FUNCTIONS] + [
    (transform, name) for transform in TRANSFORMS if transform != "grad" for name in ("softmax", "attention")
]


@pytest.mark.parametrize(("transform", "name"), CASES)
@pytest.mark.filterwarnings("ignore")  # PyTorch warns of what it deprecates itself
def test_derivatives_are_those_of_eager(transform: str, name: str) -> None:
    generator = torch.Generator().manual_seed(7)
    x, w = torch.randn(3, 5, generator=generator), torch.randn(5, 4, generator=generator)
    function = TRANSFORMS[transform](FUNCTIONS[name])
    expected = function(x, w)
    with torch.no_grad():
        found = torch.compile(function, backend="capgraph")(x, w)
    torch.testing.assert_close(found, expected)


def test_gradients_of_each_sample_by_parameters_that_need_gradients() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    parameters = dict(module.named_parameters())

    def loss(given: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, given, (x,)).sum()

    def each(x: torch.Tensor) -> Any:
        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)

    x = torch.randn(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(each, backend="capgraph")(x), each(x))


@pytest.mark.filterwarnings("ignore")
def test_what_has_no_forward_derivative_leaves_others_usable() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([4]), torch.tensor([2])
        return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2]]), *lengths)

    x = torch.randn(4, 1, 5)
    with torch.no_grad(), pytest.raises(NotImplementedError, match="forward AD"):
        torch.compile(lambda v: torch.func.jvp(loss, (v,), (v,))[1], backend="capgraph")(x)
    value, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, x.cos())
    torch.testing.assert_close(value, x.sin())


def test_a_tangent_is_not_lost_in_silence() -> None:
    compiled = torch.compile(torch.sin, backend="capgraph")
    x = torch.ones(3)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
        with pytest.raises(capgraph.UnsupportedError, match="tangent of forward mode"):
            compiled(dual)
        torch.testing.assert_close(compiled(x), x.sin())


@pytest.mark.parametrize("transform", [torch.func.vmap, lambda f: torch.func.grad(lambda x: f(x).sum())])
def test_a_program_inside_a_transform_says_what_to_do(transform: Any) -> None:
    program = capgraph.optimize(torch.nn.ReLU(), args=(torch.ones(3),))
    x = torch.ones(2, 3) if transform is torch.func.vmap else torch.ones(3)
    with pytest.raises(capgraph.UnsupportedError, match=r"(?s)inside vmap, grad.*compile the transformed function"):
        transform(program)(x)
