"""Types come back from their text."""

import pytest
from capgraph.ir.dims import dim_min, symbol
from capgraph.ir.errors import ParseError
from capgraph.ir.text.parser import parse_type
from capgraph.ir.types import DType, OpaqueType, OptionalType, SequenceType, TensorType, Type
from hypothesis import given
from hypothesis import strategies as st

B, ODD = symbol("B"), symbol("batch, [size] 1`")
dims = st.one_of(
    st.integers(0, 9),
    st.sampled_from([B, ODD, B * 2 + 1, B // 2, dim_min(B, ODD // 3, 4) * ODD, (B + ODD) // (B + 1) - 3]),
)
tensors = st.builds(
    TensorType, st.sampled_from(list(DType)), st.one_of(st.none(), st.lists(dims, max_size=4).map(tuple))
)
types: st.SearchStrategy[Type] = st.recursive(
    tensors | st.builds(OpaqueType, st.text()),
    lambda inner: st.builds(SequenceType, inner) | st.builds(OptionalType, inner),
    max_leaves=3,
)


@given(types)
def test_a_type_comes_back(ty: Type) -> None:
    assert parse_type(str(ty)) == ty


@pytest.mark.parametrize(
    "text", ["", "f32", "f32[2", "f32[2]]", "f32[,]", "f32[2, *]", "seq(f32[2]", "seq()", "x32[2]", "f32[a b]"]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="line 1"):
        parse_type(text)


def test_blanks_do_not_count() -> None:
    assert parse_type(" f32[ B ,4 ] ") == TensorType(DType.F32, (B, 4))
