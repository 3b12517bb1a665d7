"""The builder: small graphs in Python, checked when finished."""

import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.errors import InvalidGraphError, TypeRuleError
from capgraph.ir.node import write
from capgraph.ir.text.printer import print_graph
from capgraph.ir.types import DType, TensorType


def test_a_graph_reads_as_its_text() -> None:
    b = Builder("main")
    x = b.input("x", "f32[B, 4]")
    y = b.input("y", TensorType(DType.F32, (4,)))
    total = b.op("add", x, b.op("mul", y, b.constant(2.0, "f32")))
    first, second = b.foreign("onnx.Foo", [total, None], ["f32[B]", TensorType(DType.I64, ())], {"k": 1})
    graph = b.finish({"total": total, "first": first, "second": second})
    assert (
        print_graph(graph)
        == """graph @main(%x: f32[B, 4], %y: f32[4]) {
  %0: f32[] = constant() {value = dense<f32[]: 2.0>}
  %1: f32[4] = mul(%y, %0)
  %2: f32[B, 4] = add(%x, %1)
  %3: f32[B], %4: i64[] = onnx.Foo(%2, _) {k = 1}
  return %2 as total, %3 as first, %4 as second
}
"""
    )


def test_a_region_shares_the_symbols_and_is_verified_with_its_owner() -> None:
    b = Builder()
    x = b.input("x", "f32[B]")
    inner = b.region("body")
    inner.input("x", "f32[S]")
    body = inner.finish([inner.foreign("onnx.Foo", [], ["f32[B]"])[0]])
    b.foreign("onnx.If", [x], [], {"body": body})
    assert body.symbols is b.graph.symbols
    b.finish([x])
    body.symbols = Builder().graph.symbols
    with pytest.raises(InvalidGraphError, match="does not share the symbol table"):
        b.finish([x])


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, None, TensorType(DType.I64, ())),
        (1, DType.F16, TensorType(DType.F16, ())),
        ([[1.5]], "bf16", TensorType(DType.BF16, (1, 1))),
        (np.zeros(3, np.uint8), None, TensorType(DType.U8, (3,))),
    ],
)
def test_constants_have_numpys_dtype_or_the_given_one(value: object, dtype: DType | None, expected: TensorType) -> None:
    assert Builder().constant(value, dtype).type == expected


def test_finish_verifies() -> None:
    b = Builder()
    x = b.input("x", "f32[4]")
    y = b.op("exp", x)
    write(y, "type", TensorType(DType.F16, (4,)))
    with pytest.raises(InvalidGraphError, match="infers"):
        b.finish([y])


def test_an_op_with_several_results_needs_ops() -> None:
    b = Builder()
    x = b.input("x", "f32[4]")
    assert len(b.ops("split", x, axis=0, sizes=(1, 3))) == 2
    with pytest.raises(InvalidGraphError, match="2 results"):
        b.op("split", x, axis=0, sizes=(1, 3))
    with pytest.raises(TypeRuleError, match="no native op"):
        b.op("nope", x)
