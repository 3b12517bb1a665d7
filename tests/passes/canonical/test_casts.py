"""Two casts in a row, over every three dtypes."""

from itertools import product

import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CapgraphError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType, TensorType
from capgraph.passes.cleanup.canonical.neutral import holds_every
from capgraph.passes.cleanup.canonicalize import Canonicalize
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference
from capgraph.passes.framework.pipeline import Pipeline

from tests.passes.checking import check_pass
from tests.strategies.chooser import RandomChooser
from tests.strategies.values import contents


def two_casts(source: DType, middle: DType, target: DType) -> Graph:
    b = Builder()
    x = b.input("x", TensorType(source, (16,)))
    return b.finish({"y": b.op("cast", b.op("cast", x, to=middle), to=target)})


@pytest.mark.parametrize("source", [dtype for dtype in DType if dtype is not DType.STRING])
def test_casts_that_are_joined_give_the_same(source: DType) -> None:
    choose = RandomChooser(0)
    inputs = [[contents(choose, source, (16,))] for _ in range(2)]
    canonicalize = Pipeline(((Canonicalize(),),))
    for middle, target in product(DType, repeat=2):
        try:
            graph = two_casts(source, middle, target)
        except CapgraphError:
            continue  # there is no such cast
        after, report = canonicalize.applied(graph, check="none")
        if not report.changed:
            continue
        for given in inputs:
            old, new = evaluate_graph(graph, given)[0], evaluate_graph(after, given)[0]
            assert difference(old, new, Exactness.EXACT) == "", f"{source} to {middle} to {target}"


def test_a_wider_dtype_in_between_loses_nothing() -> None:
    check_pass(
        Canonicalize(),
        """
        graph @main(%x: f16[B]) {
          %a = cast(%x) {to = f32}
          %y = cast(%a) {to = bf16}
          %z = cast(%a) {to = f16}
          return %y, %z
        }""",
        """
        graph @main(%x: f16[B]) {
          %y = cast(%x) {to = bf16}
          return %y, %x as z
        }""",
    )


@pytest.mark.parametrize(
    ("source", "middle", "target"),
    [
        ("f32", "f16", "f32"),  # rounds
        ("i64", "i32", "i64"),  # wraps
        ("i64", "f64", "i64"),  # rounds
        ("f32", "bool", "f32"),
        ("u32", "f64", "i8"),  # out of range a float is not wrapped
        ("f32", "f64", "string"),  # written with more digits
        ("bool", "i64", "string"),
        ("bool", "f8e8m0fnu", "f32"),  # has no zero
    ],
)
def test_casts_that_lose_something_stay(source: str, middle: str, target: str) -> None:
    casts = f"%a = cast(%x) {{to = {middle}}}\n %y = cast(%a) {{to = {target}}}"
    check_pass(Canonicalize(), f"graph @main(%x: {source}[4]) {{ {casts}\n return %y }}", None)


def test_every_value_is_held() -> None:
    assert holds_every(DType.F64, DType.I32)
    assert not holds_every(DType.F32, DType.I32)
    assert not holds_every(DType.F16, DType.BF16)
    assert not holds_every(DType.BF16, DType.F16)
    assert holds_every(DType.I16, DType.U8)
    assert not holds_every(DType.U16, DType.I8)
