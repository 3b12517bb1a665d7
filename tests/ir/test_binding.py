"""How symbols read where nodes are copied to."""

import pytest
from capgraph.ir.binding import bind_attr, inside, mentioned, own_sizes, plain_sizes
from capgraph.ir.dims import symbol
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.text.parser import parse_type
from capgraph.ir.types import Type

B, T = symbol("B"), symbol("T")


def types(*texts: str) -> list[Type]:
    return [parse_type(text) for text in texts]


def test_own_symbols_get_the_sizes_of_the_values() -> None:
    declared = types("f32[S, 2*N]", "f32[S, B]", "seq(f32[K])")
    given = types("f32[4, T]", "f32[T, B]", "seq(f32[2])")
    assert own_sizes(declared, given, frozenset("B")) == {"S": 4}
    assert own_sizes(declared, given, frozenset()) == {"S": 4, "B": B}
    with pytest.raises(TypeRuleError, match=r"f32\[3\] cannot be an input of type f32\[2\]"):
        own_sizes(types("f32[2]"), types("f32[3]"), frozenset())


def test_plain_sizes_are_symbols_that_stand_alone() -> None:
    (wanted, got) = types("f32[S, 2*N, 3, S + 1, T]", "f32[1, 2, 3, 4, B]")
    assert list(plain_sizes(wanted, got)) == [("S", 1), ("T", B)]
    assert list(plain_sizes(*types("f32[*]", "f32[2]"))) == []


def test_attributes_are_bound_at_any_depth() -> None:
    (ty,) = types("seq(f32[B])")
    (bound,) = types("seq(f32[4])")
    assert bind_attr((B + 1, (ty, "B", 1.5, None)), {"B": 4}) == (5, (bound, "B", 1.5, None))


def test_a_region_binds_its_own_symbols_anew() -> None:
    sizes = {"B": 4, "S": 5, "T": 6}
    assert inside(sizes, types("f32[B, S]"), types("f32[B]")) == {"B": 4, "T": 6}
    assert mentioned(types("f32[B, S]", "seq(f32[2*T])")) == {"B", "S", "T"}
