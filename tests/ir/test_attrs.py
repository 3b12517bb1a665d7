"""Attributes: one normal form per kind, and equality that tells 1 from 1.0 and 0.0 from -0.0."""

import math

import numpy as np
import pytest
from capgraph.ir.attrs import NO_ATTRS, REQUIRED, Attribute, AttrKind, Attrs, is_tuple
from capgraph.ir.constant import Constant
from capgraph.ir.dims import symbol
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType, OpaqueType, TensorType
from hypothesis import given
from hypothesis import strategies as st

B = symbol("B")
GRAPH, CONSTANT, TYPE = Graph(), Constant(1), TensorType(DType.F32, (B,))

NORMAL = [
    (AttrKind.INT, np.int32(3), 3),
    (AttrKind.FLOAT, 3, 3.0),
    (AttrKind.FLOAT, np.float32(0.5), 0.5),
    (AttrKind.BOOL, np.bool_(True), True),
    (AttrKind.STRING, "a", "a"),
    (AttrKind.DIM, np.int64(3), 3),
    (AttrKind.DIM, B, B),
    (AttrKind.DTYPE, "bf16", DType.BF16),
    (AttrKind.DTYPE, np.float32, DType.F32),
    (AttrKind.CONSTANT, CONSTANT, CONSTANT),
    (AttrKind.GRAPH, GRAPH, GRAPH),
    (AttrKind.TYPE, TYPE, TYPE),
    (AttrKind.TYPE, OpaqueType("map"), OpaqueType("map")),
    (AttrKind.INTS, [1, np.int8(2)], (1, 2)),
    (AttrKind.INTS, np.array([1, 2]), (1, 2)),
    (AttrKind.INTS, [], ()),
    (AttrKind.ANY, np.array([[1], [2]]), ((1,), (2,))),
    (AttrKind.FLOATS, [1, 2.5], (1.0, 2.5)),
    (AttrKind.STRINGS, ["a", ""], ("a", "")),
    (AttrKind.DIMS, [1, B, 2 * B], (1, B, 2 * B)),
    (AttrKind.ANY, [np.float32(0.5), [None, "a", B]], (0.5, (None, "a", B))),
]


@pytest.mark.parametrize(("kind", "given_value", "expected"), NORMAL)
def test_values_get_their_normal_form(kind: AttrKind, given_value: object, expected: object) -> None:
    attribute = Attribute("a", kind)
    found = attribute.normalize(given_value)
    assert found == expected
    assert type(found) is type(expected)
    assert attribute.normalize(found) == expected


WRONG = [
    (AttrKind.INT, True),
    (AttrKind.INT, 1.0),
    (AttrKind.INT, B),
    (AttrKind.INT, None),
    (AttrKind.FLOAT, "1"),
    (AttrKind.FLOAT, False),
    (AttrKind.FLOAT, np.complex64(1)),
    (AttrKind.BOOL, 1),
    (AttrKind.STRING, b"a"),
    (AttrKind.DIM, 1.0),
    (AttrKind.DTYPE, 3),
    (AttrKind.DTYPE, "f99"),
    (AttrKind.CONSTANT, np.zeros(1)),
    (AttrKind.GRAPH, "body"),
    (AttrKind.TYPE, DType.F32),
    (AttrKind.INTS, 3),
    (AttrKind.INTS, np.array(3)),
    (AttrKind.INTS, [1, None]),
    (AttrKind.INTS, np.zeros((1, 1), int)),
    (AttrKind.STRINGS, "ab"),
    (AttrKind.DIMS, [1.5]),
]


@pytest.mark.parametrize(("kind", "given_value"), WRONG)
def test_values_of_another_kind_are_refused(kind: AttrKind, given_value: object) -> None:
    with pytest.raises(TypeRuleError):
        Attribute("a", kind).normalize(given_value)


def test_none_stands_for_an_optional_attribute_only() -> None:
    optional = Attribute("a", AttrKind.INT, None)
    assert not optional.is_required
    assert optional.normalize(None) is None
    assert Attribute("a", AttrKind.INT).is_required
    assert repr(REQUIRED) == "REQUIRED"


def test_choices() -> None:
    attribute = Attribute("mode", AttrKind.STRING, "a", choices=("a", "b"))
    assert attribute.normalize("b") == "b"
    with pytest.raises(TypeRuleError, match="mode is 'c', not one of a, b"):
        attribute.normalize("c")


scalars = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, -0.0, 1.0, math.nan]))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=3)


def same(a: object, b: object) -> bool:
    """Equality as attributes mean it, written plainly."""
    if is_tuple(a) and is_tuple(b):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and repr(a) == repr(b)


@given(values, values)
def test_equality_is_exact(a: object, b: object) -> None:
    assert (Attrs({"k": a}) == Attrs({"k": b})) == same(a, b)
    if same(a, b):
        assert hash(Attrs({"k": a})) == hash(Attrs({"k": b}))


def test_a_mapping_that_does_not_change() -> None:
    given_values = {"a": 1, "b": (2,)}
    attrs = Attrs(given_values)
    given_values["a"] = 5
    assert dict(attrs) == {"a": 1, "b": (2,)}
    assert list(attrs) == ["a", "b"]
    assert len(attrs) == 2
    changed = attrs.replaced(a=3)
    assert (attrs["a"], changed["a"]) == (1, 3)
    assert attrs != changed
    assert Attrs({"b": (2,), "a": 1}) == attrs
    assert not NO_ATTRS
    assert repr(attrs) == "Attrs({'a': 1, 'b': (2,)})"
