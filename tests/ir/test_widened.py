import numpy as np
import pytest
from capgraph.ir.analysis.extract import widened, widened_array
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.ir.verify import verify

TEXT = """graph @net(%c: bool[], %x: f16[B, 2], %n: i64[2]) {
  %k: f32[2] = constant() {value = dense<f32[2]: [0.5, 3.0]>}
  %w: f32[B, 2] = cast(%x) {to = f32}
  %y: f32[B, 2] = if(%c, %w, %k) {then_body = @then, else_body = @else}
  return %y, %n
}

graph @then(%a: f32[B, 2], %b: f32[2]) {
  %0: f32[B, 2] = div(%a, %b)
  return %0
}

graph @else(%a: f32[B, 2], %b: f32[2]) {
  return %a
}
"""


def test_a_wide_graph_rounds_nothing() -> None:
    graph = parse(TEXT)
    wide = widened(graph)
    verify(wide)
    assert [value.tensor.dtype for value in wide.outputs] == [DType.F64, DType.I64]
    x = np.array([[1, 1]], np.float16)
    found, _ = evaluate_graph(wide, [np.array(True), widened_array(x), np.zeros(2, np.int64)])
    assert found.tolist() == [[2.0, 1 / 3]]
    assert graph.inputs[1].tensor.dtype is DType.F16


def test_what_is_no_float_stays() -> None:
    numbers = np.zeros(2, np.int64)
    assert widened_array(numbers) is numbers
    assert widened_array([1]) == [1]


def test_foreign_ops_have_no_wide_form() -> None:
    graph = parse("graph @net(%x: f32[2]) { %y: f32[2] = aten.foo.default(%x)  return %y }")
    with pytest.raises(UnsupportedError, match=r"aten\.foo"):
        widened(graph)
