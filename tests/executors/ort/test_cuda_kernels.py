import onnx
import pytest
from capgraph.executors.ort.cuda_kernels import _ROWS, has_kernels
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import IN_FILES
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.text.parser import parse

BIAS_GELU = """graph @g(%x: f32[2, 4], %b: f32[4]) {
  %a: f32[2, 4] = add(%x, %b)
  %y: f32[2, 4] = gelu(%a)
  return %y
}"""
CONV = """graph @g(%x: f32[1, 3, 8, 8], %w: f32[4, 3, 3, 3], %b: f32[4]) {
  %c: f32[1, 4, 6, 6] = conv(%x, %w, %b) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %y: f32[1, 4, 6, 6] = relu(%c)
  return %y
}"""
WHERE = "graph @g(%c: bool[4], %x: i64[4], %z: i64[4]) { %y: i64[4] = where(%c, %x, %z) return %y }"
POW = "graph @g(%x: f32[4], %n: i32[4]) { %y: f32[4] = pow(%x, %n) return %y }"


def written(text: str, dialect: Dialect = Dialect.STANDARD, opset: int | None = None) -> onnx.ModelProto:
    return export_model(parse(text), dialect=dialect, operators=IN_FILES, opset=opset)


@pytest.mark.parametrize("text", [BIAS_GELU, CONV, WHERE, POW])
@pytest.mark.parametrize("dialect", [Dialect.STANDARD, Dialect.ORT])
def test_operators_with_a_kernel(text: str, dialect: Dialect) -> None:
    assert has_kernels(written(text, dialect))


@pytest.mark.parametrize(
    "text",
    [
        "graph @g(%x: f32[4, 2]) { %y: f32[2, 4] = transpose(%x) {perm = [1, 0]} return %y }",  # none at opset 24
        "graph @g(%x: f32[4]) { %y: i64[4] = cast(%x) {to = i64} return %y }",
        "graph @g(%x: f32[4]) { %y: f32[4] = sin(%x) return %y }",
        "graph @g(%x: i64[4], %z: i64[4]) { %y: bool[4] = equal(%x, %z) return %y }",
        WHERE.replace("i64", "bool"),
        BIAS_GELU.replace("f32", "bf16").replace("gelu", "ceil"),
        POW.replace("i32", "u8"),
    ],
)
def test_operators_without_one(text: str) -> None:
    assert not has_kernels(written(text))


def test_what_a_kernel_lacks_of_an_operator() -> None:
    assert not has_kernels(written(CONV.replace("relu", "sigmoid"), Dialect.ORT))  # an activation
    assert has_kernels(written(CONV.replace("relu", "sigmoid")))


def test_a_kernel_without_an_end_is_for_the_version_that_it_begins_with() -> None:
    assert has_kernels(written(CONV, opset=22))
    assert not has_kernels(written(CONV, opset=20))  # Conv of opset 11


def test_what_the_model_does_not_say_the_type_of_is_not_known_to_have_one() -> None:
    model = written("graph @g(%x: f32[4]) { %a: f32[4] = exp(%x) %y: f32[4] = neg(%a) return %y }")
    assert has_kernels(model)
    del model.graph.value_info[:]
    assert not has_kernels(model)


def test_the_table_names_versions_of_the_standard() -> None:
    found = [(name, version) for version, _, names in _ROWS for name in names]
    assert len(found) == len(dict(found))
    for name, version in found:
        assert onnx.defs.get_schema(name, 24, "").since_version == version
