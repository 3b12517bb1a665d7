import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.files import writing as storage
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.constant import Constant
from capgraph.ir.equality import assert_equal
from capgraph.ir.errors import ResourceError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Origin
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType, TensorType
from onnx.backend.test.loader import load_model_tests

from tests.causes import causes
from tests.frontends.onnx import sample_models
from tests.frontends.onnx.ops.there_and_back import compare, runtime_of
from tests.frontends.onnx.sample_models import parsed

F32 = np.float32


def again(graph: Graph, **options: object) -> Graph:
    """What comes back of a graph that was exported."""
    return import_model(export_model(graph, **options), freeze_initializers=False).graph  # type: ignore[arg-type]


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


# ---- there and back


@pytest.mark.parametrize("make", sample_models.ALL)
def test_a_model_comes_back_equal(make):
    graph = import_model(make()).graph
    assert_equal(graph, again(graph))


def suite_models() -> list[onnx.ModelProto]:
    """The models of onnx's own suite that are stored in files: whole networks, and what PyTorch once exported."""
    root = Path(onnx.__file__).parents[1]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("simple", "pytorch-converted", "pytorch-operator"):
            for case in load_model_tests(kind=kind):
                path = Path(case.model_dir, "model.onnx") if case.model_dir else root / case.url
                found.append(onnx.load(path))
    return found


def test_the_models_of_the_suite_come_back_equal():
    models = suite_models()
    assert len(models) > 100
    for model in models:
        if not operators(model)[-1].startswith("Gradient"):
            graph = import_model(model).graph
            assert_equal(graph, again(graph))


def test_symbolic_sizes_come_back_from_chains_of_shape_arithmetic():
    graph = parse(
        """graph @net(%x: f32[B, T, 12], %y: f32[S]) {
          %a: f32[B, 12*T] = reshape(%x) {shape = [B, 12*T]}
          %b: i64[6] = dims() {values = [B, 7, (T - 3)//2, max(B, T), S*T, S - T]}
          %c: i64[] = dim() {value = min(B*T, S)}
          return %a, %b, %c
        }"""
    )
    model = export_model(graph)
    assert "Shape" in operators(model)
    assert_equal(graph, import_model(model).graph)


def test_a_symbol_that_no_size_states_alone_is_solved_for():
    graph = parse("graph @net(%x: f32[3*S + 1]) { %s: i64[1] = dims() {values = [S]}  return %s }")
    (found,) = onnx.reference.ReferenceEvaluator(export_model(graph)).run(None, {"x": np.zeros(13, F32)})
    assert found.tolist() == [4]


def test_a_size_that_only_running_tells_comes_back():
    graph = import_model(
        parsed(
            """net (float[N] x) => (float[K, 2] y) {
              i = NonZero(x)
              s = Shape <start = 1> (i)
              two = Constant <value = int64[1] {2}> ()
              shape = Concat <axis = 0> (s, two)
              v = Expand(x, shape)
              t = Transpose(i)
              f = Cast <to = 1> (t)
              y = Concat <axis = 1> (f, f)
            }"""
        )
    ).graph
    assert_equal(graph, again(graph))


# ---- names


def test_inputs_and_outputs_keep_their_names():
    graph = import_model(sample_models.branches()).graph
    model = export_model(graph)
    assert [info.name for info in model.graph.input] == ["x", "go", "trips"]
    assert [info.name for info in model.graph.output] == ["y", "z"]


def test_an_output_that_is_no_result_of_its_own_is_copied():
    graph = parse(
        """graph @net(%x: f32[2]) {
          %n: f32[2] = neg(%x)
          %k: f32[1] = constant() {value = dense<f32[1]: [3.0]>}
          return %x as a, %n as b, %n as c, %k as d
        }"""
    )
    model = export_model(graph)
    assert operators(model) == ["Neg", "Identity", "Identity", "Identity"]
    assert_equal(graph, import_model(model).graph)


def test_a_constant_that_is_returned_is_an_initializer_in_a_file_for_runtimes():
    graph = parse(
        """graph @net(%x: f32[1], %go: bool[]) {
          %k: f32[1] = constant() {value = dense<f32[1]: [3.0]>}
          %y: f32[1] = if(%go, %x) {then_body = @one, else_body = @x}
          return %k as a, %k as b, %y as c
        }
        graph @one(%x: f32[1]) {
          %one: f32[1] = constant() {value = dense<f32[1]: [1.0]>}
          return %one
        }
        graph @x(%x: f32[1]) { return %x }"""
    )
    model = export_model(graph, opset=11, dialect=Dialect.STANDARD)
    assert operators(model) == ["If", "Identity"]
    for choice in (True, False):
        found = runtime_of(model, {"x": np.full(1, 2, np.float32), "go": np.array(choice)})
        assert [each.tolist() for each in found] == [[3.0], [3.0], [1.0 if choice else 2.0]]


def test_an_input_that_is_returned_under_its_own_name_needs_no_copy():
    graph = parse("graph @net(%x: f32[2]) { return %x }")
    assert operators(export_model(graph)) == []


def test_an_output_called_like_another_input_is_refused():
    graph = parse("graph @net(%x: f32[2]) { %y: f32[2] = neg(%x)  return %y as x }")
    with pytest.raises(UnsupportedError, match="called like an input"):
        export_model(graph)


def test_names_are_unique_over_all_subgraphs():
    model = export_model(import_model(sample_models.branches()).graph)
    seen: list[str] = []

    def collect(graph: onnx.GraphProto) -> None:
        seen.extend(info.name for info in graph.input)
        seen.extend(tensor.name for tensor in graph.initializer)
        for node in graph.node:
            seen.extend(node.output)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    collect(attribute.g)

    collect(model.graph)
    assert len(seen) == len(set(seen))


def test_nodes_keep_name_documentation_and_metadata():
    graph = Graph("net")
    x = graph.add_input("x", TensorType(DType.F32, (2,)))
    origin = Origin(name="layer", doc="why", metadata=(("key", "value"),))
    node = graph.append(native("neg"), (x,), origin=origin)
    other = graph.append(native("neg"), (node.output,), origin=origin)
    graph.set_outputs([other.output])
    first, second = export_model(graph).graph.node
    assert (first.name, second.name) == ("layer", "layer_1")
    assert first.doc_string == "why"
    assert [(entry.key, entry.value) for entry in first.metadata_props] == [("key", "value")]


def test_sizes_that_are_taken_to_be_equal_are_not_stated():
    """ONNX Runtime would write the sum of one row and two into the memory of the one."""
    graph = parse("""
graph @main(%x: f32[N, 3], %m: bool[M]) {
  %c: f32[u0, 3] = compress(%x, %m) {axis = 0}
  %s: f32[N, 3] = add(%c, %x)
  %t: f32[N, 3] = add(%s, %x)
  return %t
}""")
    model = export_model(graph)
    stated = {info.name: [dim.dim_param for dim in info.type.tensor_type.shape.dim] for info in model.graph.value_info}
    assert stated == {"c": ["", ""], "s": ["", ""]}
    feeds = {"x": np.ones((2, 3), np.float32), "m": np.array([True, False])}
    compare(runtime_of(model, feeds), [np.full((2, 3), 3, np.float32)])


def test_value_info_states_what_lies_between():
    graph = import_model(parsed("net (float[N] x) => (float[N] y) { h = Neg(x) y = Exp(h) }")).graph
    assert [info.name for info in export_model(graph).graph.value_info] == ["h"]
    assert not export_model(graph, value_info=False).graph.value_info


# ---- constants and defaults


def test_constants_become_initializers():
    graph = import_model(sample_models.convolutions()).graph
    model = export_model(graph)
    assert "Constant" not in operators(model)
    assert {"w", "b", "dense"} <= {tensor.name for tensor in model.graph.initializer}


def test_defaults_are_initializers_that_are_also_inputs():
    graph = parse("graph @net(%x: f32[2], %w: f32[600]) { %y: f32[2] = neg(%x)  return %y, %w as v }")
    graph.set_default(graph.inputs[0], Constant(np.array([1, 2], F32)))
    graph.set_default(graph.inputs[1], Constant(np.zeros(600, F32)))
    model = export_model(graph)
    assert sorted(tensor.name for tensor in model.graph.initializer) == ["w", "x"]
    assert [info.name for info in model.graph.input] == ["x", "w"]
    assert_equal(graph, import_model(model).graph)


def test_too_much_for_one_message_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(storage, "MAX_INLINE_BYTES", 5_000)
    graph = parse(
        "graph @net(%x: f32[2]) { %k: f32[2000] = full() {shape = [2000], value = dense<f32[]: 1.0>}  return %k }"
    )
    graph.set_default(graph.inputs[0], Constant(np.zeros(2, F32)))
    export_model(graph)
    big = Graph("big")
    big.set_outputs([big.append(native("constant"), (), {"value": Constant(np.zeros(2_000, F32))}).output])
    with pytest.raises(ResourceError, match="save_model"):
        export_model(big)


# ---- versions


def test_the_default_is_opset_26_and_ir_13():
    model = export_model(parse("graph @net(%x: f32[2]) { %y: f32[2] = neg(%x)  return %y }"))
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 26)]
    assert model.ir_version == 13


def test_the_versions_can_be_chosen():
    graph = parse("graph @net(%x: f32[2]) { %y: f32[2] = neg(%x)  return %y }")
    model = export_model(graph, opset=13, ir_version=8)
    assert (model.opset_import[0].version, model.ir_version) == (13, 8)


def test_a_newer_opset_is_taken_where_an_operator_needs_it_and_the_reason_kept():
    graph = parse(
        "graph @net(%x: f32[2]) { %y: u2[2] = cast(%x) {to = u2}  %z: f32[2] = cast(%y) {to = f32}  return %z }"
    )
    assert export_model(graph, opset=26).opset_import[0].version == 26
    newer = Graph("net")
    x = newer.add_input("x", TensorType(DType.BF16, (2, 3)))
    newer.set_outputs([newer.append(native("reduce_log_sum_exp"), (x,), {"axes": (1,)}).output])
    model = export_model(newer)
    if model.opset_import[0].version > 26:
        assert "opset" in {entry.key: entry.value for entry in model.metadata_props}["capgraph.opset_reason"]


def test_an_opset_that_is_too_old_is_refused_with_the_one_that_is_needed():
    graph = parse("graph @net(%x: bf16[2]) { %y: bf16[2] = neg(%x)  return %y }")
    with pytest.raises(UnsupportedError, match=r"(?s)Neg.*bfloat16.*opset=13") as caught:
        export_model(graph, opset=12)
    (cause,) = causes(caught.value)
    assert "Neg takes no tensor(bfloat16) as X" in str(cause)


def test_attributes_that_an_older_version_lacks_are_left_out_where_they_say_nothing():
    graph = parse("graph @net(%x: f32[2, 3]) { %y: f32[6] = reshape(%x) {shape = [6]}  return %y }")
    assert not export_model(graph, opset=13).graph.node[0].attribute


def test_an_attribute_is_kept_where_an_older_version_without_it_means_something_else():
    graph = parse(
        """graph @net(%x: f32[1, 1, 4, 4], %r: f32[2, 4], %b: i64[2]) {
          %y: f32[2, 1, 2, 2] = roi_align(%x, %r, %b) {output_size = [2, 2]}
          return %y
        }"""
    )
    with pytest.raises(UnsupportedError, match="RoiAlign has no attribute coordinate_transformation_mode"):
        export_model(graph, opset=15)


def test_a_step_in_between_is_held_to_the_element_types_of_its_operator():
    graph = parse("graph @net(%x: bf16[2]) { %y: bf16[2] = silu(%x) {alpha = 0.5}  return %y }")
    with pytest.raises(UnsupportedError, match=r"(?s)bfloat16.*opset=13"):
        export_model(graph, opset=12, dialect=Dialect.STANDARD)


def test_a_foreign_operator_keeps_the_opsets_in_which_it_means_the_same():
    graph = import_model(
        parsed(
            """<ir_version: 8, opset_import: ["": 17]>
            net (optional(float[N]) x) => (bool y) { y = OptionalHasElement(x) }"""
        )
    ).graph
    assert 15 <= export_model(graph).opset_import[0].version <= 17
    with pytest.raises(UnsupportedError, match="means something else"):
        export_model(graph, opset=20)


def test_a_foreign_op_of_another_ecosystem_is_refused():
    graph = parse("graph @net(%x: f32[2]) { %y: f32[2] = aten.foo.default(%x)  return %y }")
    with pytest.raises(UnsupportedError, match="no ONNX operator"):
        export_model(graph)


# ---- regions


def test_fused_regions_are_written_in_place():
    graph = parse(
        """graph @net(%x: f32[B, 4]) {
          %y: f32[B, 4] = fused(%x) {body = @chain}
          return %y
        }
        graph @chain(%a: f32[B, 4]) {
          %b: f32[B, 4] = exp(%a)
          %c: f32[B, 4] = neg(%b)
          return %c
        }"""
    )
    model = export_model(graph)
    assert operators(model) == ["Exp", "Neg"]
    assert model.graph.node[1].output[0] == "y"


def test_a_fused_region_may_return_what_it_was_given():
    graph = parse(
        """graph @net(%x: f32[4]) {
          %y: f32[4], %z: f32[4], %w: f32[4] = fused(%x) {body = @chain}
          return %y, %z, %w
        }
        graph @chain(%a: f32[4]) {
          %b: f32[4] = exp(%a)
          return %a, %b, %b
        }"""
    )
    model = export_model(graph)
    x = np.array([1, 2, 3, 4], F32)
    for one, other in zip(
        onnx.reference.ReferenceEvaluator(model).run(None, {"x": x}), evaluate_graph(graph, [x]), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_an_output_that_a_matmul_reads_transposed_is_a_copy():
    """ONNX Runtime's fusion of the two forgets that the transposition is an output."""
    graph = parse(
        """graph @net(%a: f32[3, 2], %b: f32[4, 2], %c: f32[2, 5]) {
          %at: f32[2, 3] = transpose(%a) {perm = [1, 0]}
          %bt: f32[2, 4] = transpose(%b) {perm = [1, 0]}
          %x: f32[3, 4] = gemm(%at, %bt, _) {trans_a = true}
          %y: f32[4, 5] = gemm(%bt, %c, _) {trans_a = true}
          return %x, %at, %y
        }"""
    )
    model = export_model(graph, dialect=Dialect.STANDARD)
    assert [node.op_type for node in model.graph.node].count("Identity") == 1
    feeds = {value.name: np.ones([int(dim) for dim in value.tensor.dims], np.float32) for value in graph.inputs}
    for found, wanted in zip(runtime_of(model, feeds), evaluate_graph(graph, list(feeds.values())), strict=True):
        np.testing.assert_array_equal(found, wanted)
