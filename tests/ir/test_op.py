"""Ops: signatures, attributes, the facts derived from traits, and foreign ops."""

import numpy as np
import pytest
from capgraph.ir.attrs import NO_ATTRS, Attribute, AttrKind, Attrs
from capgraph.ir.dims import symbol
from capgraph.ir.errors import TypeRuleError
from capgraph.ir.graph import Graph
from capgraph.ir.op import FLOATS, I64, Op, Trait, flops_per_element, foreign, op, symbolic_by
from capgraph.ir.types import DType, OpaqueType, TensorType, Type

F32 = TensorType(DType.F32, (symbol("B"), 4))
F16 = TensorType(DType.F16, (4,))
INDEX = TensorType(DType.I64, ())


def first(x: TensorType, *_others: TensorType | None, **_attrs: object) -> TensorType:
    """The type of the first operand."""
    return x


def make(signature: str, **more: object) -> Op:
    return op("made", signature, infer=first, meaning=first, T=FLOATS, I=I64, _A=FLOATS | I64, **more)  # type: ignore[arg-type]


def check(made: Op, *types: Type | None) -> None:
    made.check_operands(types)


def test_a_signature_is_read_from_its_text() -> None:
    made = make("x: T, index: I!?, *rest: _A")
    x, index, rest = made.operands
    assert (x.name, x.var, x.dtypes, x.is_optional, x.is_variadic) == ("x", "T", FLOATS, False, False)
    assert (index.name, index.is_optional, index.is_shaping, x.is_shaping) == ("index", True, True, False)
    assert (rest.name, rest.var, rest.is_variadic) == ("rest", "", True)
    assert made.operand_at(7) is rest
    assert make("").operands == ()
    assert made.doc == "The type of the first operand."
    assert repr(made) == "Op(made)"


def test_operands_that_fit() -> None:
    check(make("x: T, y: T"), F32, F32)
    check(make("x: T, index: I?"), F32, None)
    check(make("x: T, *rest: _A"), F32)
    check(make("x: T, *rest: _A"), F32, F16, INDEX, F32)


@pytest.mark.parametrize(
    ("signature", "types", "problem"),
    [
        ("x: T", (), "takes 1 operands (absent ones included), not 0"),
        ("x: T", (F32, F32), "takes 1 operands"),
        ("x: T, *rest: _A", (), "takes at least 1 operands"),
        ("x: T, index: I?", (F32,), "takes 2 operands"),
        ("x: T", (None,), "operand x is required"),
        ("*rest: _A", (F32, None), "operand rest is required"),
        ("x: T", (INDEX,), "operand x cannot be i64"),
        ("x: T, y: T", (F32, F16), "operand y is f16, but must be f32 like the others"),
        ("x: T", (OpaqueType("map"),), "operand x must be a tensor"),
        ("x: T", (TensorType(DType.F32, None),), "the rank of operand x must be known"),
    ],
)
def test_operands_that_do_not_fit(signature: str, types: tuple[Type | None, ...], problem: str) -> None:
    with pytest.raises(TypeRuleError) as caught:
        check(make(signature), *types)
    assert problem in caught.value.message


def test_attributes_are_completed_in_the_order_of_the_schema() -> None:
    made = make("x: T", attrs=(Attribute("axis", AttrKind.INT), Attribute("bias", AttrKind.FLOAT, 0.5)))
    attrs = made.complete_attrs({"bias": 2, "axis": np.int32(1)})
    assert list(attrs.items()) == [("axis", 1), ("bias", 2.0)]
    assert made.complete_attrs({"axis": 0}) == Attrs({"axis": 0, "bias": 0.5})
    with pytest.raises(TypeRuleError, match="needs attribute axis"):
        made.complete_attrs({})
    with pytest.raises(TypeRuleError, match="no attribute k"):
        made.complete_attrs({"axis": 0, "k": 1})


def test_result_types_are_a_tuple_whatever_the_rule_gives() -> None:
    assert make("x: T").result_types([F32], NO_ATTRS) == (F32,)
    several = op("several", "x: T", T=FLOATS, infer=lambda x: [x, INDEX], meaning=first)
    assert several.result_types([F32], NO_ATTRS) == (F32, INDEX)


def test_what_traits_mean() -> None:
    assert make("x: T").is_pure
    assert make("x: T").is_capturable
    assert not make("x: T", traits=Trait.IMPURE).is_pure
    for trait in (Trait.DATA_DEPENDENT, Trait.READS_HOST, Trait.CONTROL_FLOW):
        assert make("x: T", traits=trait | Trait.VIEW).has(trait)
        assert make("x: T", traits=trait | Trait.VIEW).is_pure
        assert not make("x: T", traits=trait).is_capturable


def test_costs() -> None:
    size = 4 * symbol("B")
    assert make("x: T").flops([F32], [F32], NO_ATTRS) == 0
    assert make("x: T", traits=Trait.ELEMENTWISE).flops([F32], [F32], NO_ATTRS) == size
    assert make("x: T", flops=flops_per_element(3)).flops([F32], [F32], NO_ATTRS) == 3 * size
    assert flops_per_element()([], [OpaqueType("map")], NO_ATTRS) == 0


def test_a_symbolic_meaning_needs_every_operand() -> None:
    rule = symbolic_by(np.add)
    known = np.array([symbol("B"), 2], object)
    assert rule([INDEX, INDEX], [known, known], NO_ATTRS).tolist() == [2 * symbol("B"), 4]
    assert rule([INDEX, INDEX], [known, None], NO_ATTRS) is None


def test_attributes_that_a_run_binds() -> None:
    kinds = {"d": AttrKind.DIM, "ds": AttrKind.DIMS, "g": AttrKind.GRAPH, "i": AttrKind.INT, "c": AttrKind.CONSTANT}
    made = make("x: T", attrs=tuple(Attribute(name, kind) for name, kind in kinds.items()))
    assert made.bound_attrs == ("d", "ds", "g")


def test_foreign_ops() -> None:
    made = foreign("com.microsoft.Gelu")
    assert made is foreign("com.microsoft.Gelu")
    assert made.is_foreign
    assert not made.is_pure
    assert not made.is_capturable
    assert (made.domain, make("x: T").domain) == ("com", "")
    body = Graph()
    assert made.complete_attrs({"z": [1, None], "a": body}) == Attrs({"z": (1, None), "a": body})
    with pytest.raises(TypeRuleError, match="result types must be given"):
        made.result_types([], NO_ATTRS)
    for direct in (made.infer, made.meaning):
        with pytest.raises(TypeRuleError, match="foreign"):
            direct()
