import math
from typing import Any

import capgraph
import pytest
import sympy
import torch
from capgraph.frontends.torch.sizes import Sizes, UnknownSizeError
from capgraph.ir.builder import Builder
from capgraph.ir.dims import dim_max, dim_min, evaluate, symbol, symbols
from capgraph.ir.errors import UnsupportedError
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions

B, T = symbol("batch"), symbol("s1")
SIZES = Sizes({"s0": "batch"})


def _symbols() -> tuple[Any, Any]:
    return tuple(sympy.symbols("s0 s1", integer=True, positive=True))


def _cases() -> list[tuple[Any, Any]]:
    b, t = _symbols()
    half = functions.IntTrueDiv(t, sympy.Integer(2))
    return [
        (sympy.Integer(7), 7),
        (b, B),
        (2 * b * t - 3, 2 * B * T - 3),
        (b**2, B * B),
        (functions.PowByNatural(t, sympy.Integer(3)), T * T * T),
        (functions.FloorDiv(t + 1, sympy.Integer(2)), (T + 1) // 2),
        (functions.CleanDiv(b * t, t), B),
        (sympy.Rational(1, 2) * b, B // 2),
        (functions.Mod(t, sympy.Integer(4)), T % 4),
        (functions.PythonMod(t, sympy.Integer(4)), T % 4),
        (functions.ModularIndexing(t, sympy.Integer(2), sympy.Integer(3)), (T // 2) % 3),
        (functions.CeilDiv(t, sympy.Integer(2)), (T + 1) // 2),
        (functions.Max(b, t), dim_max(B, T)),
        (functions.Min(b, t), dim_min(B, T)),
        (functions.TruncToInt(half), T // 2),
        (functions.FloorToInt(half), T // 2),
        (functions.CeilToInt(half), (T + 1) // 2),
        (functions.TruncToInt(sympy.Float(1.5) * functions.ToFloat(t)), (3 * T) // 2),
        (functions.Identity(b), B),
    ]


@pytest.mark.parametrize(("expr", "dim"), _cases(), ids=str)
def test_expressions(expr: Any, dim: Any) -> None:
    assert SIZES.dim_of(expr) == dim


@given(st.integers(1, 50), st.integers(1, 50), st.sampled_from(range(len(_cases()))))
def test_dims_have_the_value_of_their_expression(b: int, t: int, case: int) -> None:
    expr, dim = _cases()[case]
    s0, s1 = _symbols()
    if expr.has(functions.CleanDiv) or expr == sympy.Rational(1, 2) * s0:
        b *= 2  # both are exact where PyTorch makes them
    wanted = int(expr.subs({s0: b, s1: t}))
    found = dim if isinstance(dim, int) else dim.bind({"batch": b, "s1": t})
    assert found == wanted


def test_plain_integers() -> None:
    assert SIZES.dims((2, 3)) == (2, 3)


def test_what_no_dim_can_say() -> None:
    with pytest.raises(UnsupportedError, match="cannot be written as a dim"):
        SIZES.dim_of(sympy.sin(_symbols()[0]))


def test_rounding_takes_the_even_one_of_two() -> None:
    size, half = _symbols()[0], sympy.Rational(1, 2)
    for expr in (size * half, size * half * half + half, size * sympy.Rational(1, 3), size * 0.75):
        dim = SIZES.dim_of(functions.RoundToInt(expr, evaluate=False))
        for value in range(2, 40):
            assert evaluate(dim, dict.fromkeys(symbols(dim), value)) == round(float(expr.subs({size: value})))


@pytest.mark.parametrize("rounded", ["TruncToInt", "CeilToInt", "RoundToInt"])
@pytest.mark.parametrize("factor", [0.1, 0.6, 0.7, 1 / 3, 1.1, 0.35])
def test_what_floats_make_of_a_size_is_checked_for_where_it_may_differ(rounded: str, factor: float) -> None:
    sizes, size = Sizes({"s0": "batch"}), _symbols()[0]
    in_python = {"TruncToInt": int, "CeilToInt": math.ceil, "RoundToInt": round}[rounded]
    dim = sizes.dim_of(getattr(functions, rounded)(sympy.Float(factor) * functions.ToFloat(size), evaluate=False))
    (check,) = sizes.roundings.values()
    differ = [n for n in range(1, 400) if evaluate(dim, {"batch": n}) != in_python(factor * n)]
    assert len(differ) < 40
    assert differ == [n for n in range(1, 400) if not check.holds({"batch": n})]
    assert check.symbols == {"batch"}


def test_floats_of_few_digits_and_quotients_of_sizes_are_never_checked_for() -> None:
    sizes, (size, other) = Sizes(), _symbols()
    for number in (0.375 * functions.ToFloat(size) + 1.5, functions.IntTrueDiv(size, other)):
        sizes.dim_of(functions.CeilToInt(number, evaluate=False))
    assert not sizes.roundings


def test_sizes_that_running_tells_are_known_from_the_result_that_tells_them() -> None:
    sizes = Sizes()
    with torch.no_grad():
        program = torch.export.export(_Nonzero(), (torch.tensor([1.0, 0.0]),))
    (node,) = [node for node in program.graph.nodes if "nonzero" in str(node.target)]
    shape = node.meta["val"].shape
    with pytest.raises(UnknownSizeError):
        sizes.dims(shape)
    b = Builder()
    rows = b.op("transpose", b.op("non_zero", b.input("x", "f32[2]")), perm=(1, 0))
    sizes.bind_result(shape, rows)
    assert sizes.dims(shape) == rows.shape
    assert sizes.teller(rows.shape[0]) == (rows, 0)


class _Nonzero(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nonzero(x)


def test_sizes_of_a_tensor_that_never_changes_are_numbers() -> None:
    sizes = Sizes()
    shapes = ShapeEnv()
    length = shapes.create_unbacked_symint()
    expr = length.node.expr
    sizes.fix((4, length), (4, 12))
    assert sizes.dims((length, 2 * length + 1, 3)) == (12, 25, 3)
    assert sizes.dim_of(expr * sympy.Symbol("s1")) == 12 * symbol("s1")


class Broadcast(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        steps = x[-1, 1:-1:2]
        return steps - x, steps


@pytest.mark.parametrize("executor", ["ort", "eager"])
def test_sizes_that_are_found_to_be_one_broadcast(executor: str) -> None:
    torch._dynamo.reset()
    inputs = [torch.arange(4.0 * size).view(2, size, 2) for size in (3, 4)]
    compiled = torch.compile(Broadcast(), backend="capgraph", dynamic=True, options={"executor": executor})
    dims = ({1: torch.export.Dim.DYNAMIC},)
    program = capgraph.optimize(Broadcast(), args=(inputs[0],), dynamic_shapes=dims, executor=executor)
    for x in inputs:
        torch.testing.assert_close(compiled(x), Broadcast()(x))
        torch.testing.assert_close(program(x), Broadcast()(x))
    with pytest.raises(capgraph.InputError):
        program(torch.zeros(2, 5, 2))
