from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing import model_reader
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.frontends.onnx.importing.value_scope import MAX_DEPTH, ValueScope
from capgraph.ir.dims import SymDim, symbol
from capgraph.ir.errors import CapgraphError, ModelError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.text.printer import print_graph
from capgraph.ir.types import DType, TensorType
from capgraph.ir.verify import verify

from tests.causes import causes
from tests.frontends.onnx import sample_models
from tests.frontends.onnx.ops.there_and_back import runtime_of
from tests.frontends.onnx.sample_models import parsed

F32 = np.float32


def graph_of(text: str) -> Graph:
    graph = import_model(parsed(text)).graph
    verify(graph)
    return graph


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (sample_models.convolutions, {"x": np.linspace(-1, 1, 384, dtype=F32).reshape(2, 3, 8, 8)}),
        (sample_models.shapes, {"x": np.arange(120, dtype=F32).reshape(2, 5, 12)}),
        (sample_models.functions, {"x": np.linspace(-1, 1, 8, dtype=F32).reshape(2, 4)}),
        (sample_models.branches, {"x": np.ones(3, F32), "go": np.array(True), "trips": np.array(4)}),
        (sample_models.sparse, {"x": np.zeros((3, 4), F32)}),
    ],
)
def test_a_model_means_what_onnx_runtime_says(make, inputs):
    graph = import_model(make()).graph
    found = evaluate_graph(graph, [inputs[value.name] for value in graph.inputs])
    for one, other in zip(found, runtime_of(make(), inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_sequences_and_text():
    graph = import_model(sample_models.sequences()).graph
    joined, words = evaluate_graph(graph, [np.ones(2, F32), np.array(["A", "Bc", "a"], dtype=object)])
    assert joined.tolist() == [1, 1, 1, 1]
    assert words.tolist() == ["bc"]


# ---- names, types, sizes


def test_shape_arithmetic_becomes_attributes_and_leaves_nothing_behind():
    graph = import_model(sample_models.shapes()).graph
    assert ops(graph) == ["reshape", "transpose"]
    reshape = graph.first
    assert reshape is not None
    assert reshape.attrs["shape"] == (symbol("B"), symbol("T"), 3, 4)


def test_a_shape_that_is_an_output_is_stated():
    graph = graph_of("net (float[B, T] x) => (int64[2] s, int64 n) { s = Shape(x) n = Size(x) }")
    assert ops(graph) == ["dims", "dim"]
    assert [a.tolist() for a in evaluate_graph(graph, [np.zeros((2, 3), F32)])] == [[2, 3], 6]


def test_a_size_that_depends_on_data_keeps_its_node():
    graph = graph_of("net (float[N] x) => (int64[2] s) { i = NonZero(x) s = Shape(i) }")
    assert ops(graph) == ["non_zero", "shape"]


def test_an_expression_is_read_over_symbols_that_inputs_have():
    graph = graph_of('net (float[T] x, float["2*T"] y, float["U + 1"] z) => (float[N] r) { r = Neg(y) }')
    t = symbol("T")
    assert [value.shape[0] for value in graph.inputs] == [t, 2 * t, symbol("U + 1")]


def test_sizes_that_the_model_does_not_name_are_all_different():
    graph = graph_of("net (float[?, ?] x, float[?] y) => (float[?, ?] z) { z = Neg(x) }")
    sizes = {dim for value in graph.inputs for dim in value.shape}
    assert len(sizes) == 3


def test_identity_is_an_alias():
    graph = graph_of("net (float[N] x) => (float[N] a, float[N] b) { h = Identity(x) a = Identity(h) b = Neg(h) }")
    assert ops(graph) == ["neg"]
    assert graph.outputs[0] is graph.inputs[0]
    assert graph.output_names == ("a", "b")


def test_results_keep_their_names_and_nodes_their_origin():
    model = parsed("net (float[N] x) => (float[N] y) { h = Neg(x) y = Exp(h) }")
    model.graph.node[0].name = "first"
    model.graph.node[0].doc_string = "why"
    trace = 'File "a.py", line 1\nFile "b.py", line 2'
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    node = import_model(model).graph.first
    assert node is not None
    assert node.output.name == "h"
    assert node.origin is not None
    assert (node.origin.name, node.origin.doc, node.origin.source) == ("first", "why", '"b.py", line 2')


def test_what_nobody_reads_is_left_out():
    assert ops(graph_of("net (float[N] x) => (float[N] y) { a = Exp(x) b = Neg(a) y = Abs(x) }")) == ["abs"]


def test_a_result_that_nobody_reads_does_not_keep_a_node_from_being_native():
    graph = graph_of(
        """<ir_version: 4, opset_import: ["": 9]>
        net (float[N] x) => (float[N] y) { h, mask = Dropout(x) y = Neg(h) }"""
    )
    assert ops(graph) == ["neg"]


def test_constants_stand_where_they_are_first_read():
    graph = graph_of(
        """net (float[2] x) => (float[2] z) {
          late = Constant <value = float[2] {1, 2}> ()
          y = Neg(x)
          z = Add(y, late)
        }"""
    )
    assert ops(graph) == ["neg", "constant", "add"]


# ---- initializers


def overridable(ir_version: int) -> onnx.ModelProto:
    head = f'<ir_version: {ir_version}, opset_import: ["": 9]>'
    model = parsed(head + "net (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 2], F32), "w"))
    return model


def test_initializers_that_are_inputs_have_defaults():
    imported = import_model(overridable(4))
    assert [value.name for value in imported.graph.inputs] == ["x", "w"]
    assert imported.graph.defaults["w"].array.tolist() == [1, 2]


def test_initializers_that_had_to_be_inputs_are_frozen_with_a_note():
    imported = import_model(overridable(3))
    assert [value.name for value in imported.graph.inputs] == ["x"]
    assert "frozen" in imported.notes[0]


def test_freezing_can_be_chosen():
    assert len(import_model(overridable(3), freeze_initializers=False).graph.inputs) == 2
    assert len(import_model(overridable(4), freeze_initializers=True).graph.inputs) == 1


def test_a_default_of_another_type_is_refused():
    model = overridable(4)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([1.0]), "w"))
    with pytest.raises(ModelError, match="default"):
        import_model(model)


# ---- functions


def test_functions_are_inlined():
    assert ops(import_model(sample_models.functions()).graph) == ["leaky_relu"] * 3


def test_attributes_of_a_function_have_their_defaults():
    graph = graph_of(
        """<ir_version: 10, opset_import: ["": 21, "l": 1]> net (float[N] x) => (float[N] y) { y = l.f(x) }
        <domain: "l", opset_import: ["": 21]>
        f <alpha: float = 0.125> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }"""
    )
    assert graph.first is not None
    assert graph.first.attrs["alpha"] == 0.125


def test_an_operand_that_a_call_leaves_out_is_absent_inside():
    graph = graph_of(
        """<ir_version: 10, opset_import: ["": 21, "l": 1]> net (float[N] x) => (float[N] y) { y = l.f(x) }
        <domain: "l", opset_import: ["": 21]> f (a, low, high) => (b) { c = Clip(a, low, high) b = Neg(c) }"""
    )
    assert ops(graph) == ["neg"]  # Clip without bounds does nothing


def test_recursive_functions_are_refused():
    text = """<ir_version: 10, opset_import: ["": 21, "l": 1]> net (float[N] x) => (float[N] y) { y = l.f(x) }
    <domain: "l", opset_import: ["": 21, "l": 1]> f (a) => (b) { c = l.f(a) b = l.f(c) }"""
    with pytest.raises(ModelError, match=f"deeper than {MAX_DEPTH}"):
        import_model(parsed(text))


def test_functions_that_double_at_every_level_are_refused(monkeypatch):
    monkeypatch.setattr(model_reader, "MAX_INLINED_NODES", 1_000)
    levels = "".join(
        f'<domain: "l", opset_import: ["": 21, "l": 1]> f{i} (a) => (b) {{ c = l.f{i + 1}(a) b = l.f{i + 1}(c) }}\n'
        for i in range(40)
    )
    text = f"""<ir_version: 10, opset_import: ["": 21, "l": 1]> net (float[N] x) => (float[N] y) {{ y = l.f0(x) }}
    {levels}<domain: "l", opset_import: ["": 21]> f40 (a) => (b) {{ b = Neg(a) }}"""
    with pytest.raises(ModelError, match="expand to more than 1000 nodes"):
        import_model(parsed(text))


def _nested_maps(depth: int) -> onnx.GraphProto:
    given, result = (onnx.helper.make_tensor_value_info(f"{name}{depth}", 1, [2]) for name in "xy")
    if depth == 0:
        nodes = [onnx.helper.make_node("Add", ["x0", "missing"], ["y0"])]
    else:
        nodes = [
            onnx.helper.make_node("SequenceConstruct", [f"x{depth}"], [f"s{depth}"]),
            onnx.helper.make_node("SequenceMap", [f"s{depth}"], [f"m{depth}"], body=_nested_maps(depth - 1)),
            onnx.helper.make_node("Constant", [], [f"i{depth}"], value_int=0),
            onnx.helper.make_node("SequenceAt", [f"m{depth}", f"i{depth}"], [f"y{depth}"]),
        ]
    return onnx.helper.make_graph(nodes, "body", [given], [result])


def test_what_is_wrong_deep_in_functions_is_not_read_twice_at_each_level(monkeypatch):
    monkeypatch.setattr(model_reader, "MAX_GIVEN_UP", 8)
    reads: list[Any] = []
    read = ValueScope._import_node
    monkeypatch.setattr(ValueScope, "_import_node", lambda self, node, at: (reads.append(at), read(self, node, at))[1])
    model = onnx.helper.make_model(_nested_maps(16), opset_imports=[onnx.helper.make_opsetid("", 17)])
    with pytest.raises(ModelError, match="'missing' of Add is not defined"):
        import_model(model)
    assert 0 < len(reads) < 1_000


# ---- regions


def test_outer_values_become_inputs_of_a_region_and_constants_are_repeated():
    graph = graph_of(
        """net (float[N] x, bool c) => (float[N] y) {
          two = Constant <value = float {2}> ()
          y = If (c) <
            then_branch = yes () => (float[N] a) { a = Mul(x, two) },
            else_branch = no () => (float[N] b) { b = Neg(x) }
          >
        }"""
    )
    node = graph.last
    assert node is not None
    assert [value.name for value in node.operands] == ["c", "x"]
    assert ops(node.attrs["then_body"]) == ["constant", "mul"]


def test_a_value_that_a_region_only_asks_for_its_size_is_not_captured():
    graph = graph_of(
        """net (float[N] x, float[M] z, bool c) => (int64[1] y) {
          y = If (c) <
            then_branch = yes () => (int64[1] a) { a = Shape(x) },
            else_branch = no () => (int64[1] b) { b = Shape(z) }
          >
        }"""
    )
    node = graph.last
    assert node is not None
    assert [value.name for value in node.operands] == ["c"]
    assert ops(node.attrs["then_body"]) == ["dims"]


# ---- broken models


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("net (float[N] x) => (float[N] y) { y = Neg(nothing) }", "not defined"),
        ("net (float[N] x) => (float[N] y) { a = Neg(b) b = Neg(a) y = Neg(b) }", "'a', of 'b' form a cycle"),
        ("net (float[N] x) => (float[N] nothing) { y = Neg(x) }", "output 'nothing' is not defined"),
        ("net (float[N] x) => (float[N] y) { y = Neg(x) y = Exp(x) }", "defined twice"),
        ("net (float[N] x) => (float[N] x) { x = Neg(x) }", "defined twice"),
        ("net (float[N] x, float[M] x) => (float[N] y) { y = Neg(x) }", "two inputs 'x'"),
        ("net (float[N] x) => (int64[N] y) { y = Neg(x) }", "declared as"),
        ("net (float[N] x) => (float[N] y) { y = Elu <alpha = 1> (x) }", "no FLOAT"),
        ("net (float[N] x) => (float[N] y) { y = Cast(x) }", "lacks the attribute to"),
        ("net (float[N] x) => (float[N] y) { y = Neg(x, x) }", "has 2 inputs"),
        ('<ir_version: 10, opset_import: ["ai.onnx.ml": 3]> n (float[N] x) => (float[N] y) { y = Neg(x) }', "no opset"),
    ],
)
def test_a_broken_model_gives_one_clear_error(text, message):
    with pytest.raises(ModelError, match=message):
        import_model(parsed(text))


def test_errors_name_the_node():
    model = parsed("net (float[N] x) => (float[N] y) { y = Cast(x) }")
    model.graph.node[0].name = "the_cast"
    with pytest.raises(ModelError, match=r"at node the_cast \(Cast\)"):
        import_model(model)


def test_an_input_without_a_type_is_refused():
    model = parsed("net (float[N] x) => (float[N] y) { y = Neg(x) }")
    model.graph.input[0].ClearField("type")
    with pytest.raises(ModelError, match="'x' has no type"):
        import_model(model)


@pytest.mark.parametrize("size", [-1, -7])
def test_a_negative_size_of_an_input_is_any_size(size: int):
    model = parsed("net (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = size
    imported = import_model(model)
    rows, columns = imported.graph.inputs[0].tensor.dims
    assert rows == 2
    assert isinstance(columns, SymDim)


@pytest.mark.parametrize("name", ["?", "-1", "None"])
def test_names_that_say_nothing_are_sizes_of_their_own(name: str):
    model = parsed("net (float[N, M] x) => (float[N, M] y) { y = Neg(x) }")
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = name
    rows, columns = import_model(model).graph.inputs[0].tensor.dims
    assert isinstance(rows, SymDim)
    assert isinstance(columns, SymDim)
    assert rows != columns


@pytest.mark.parametrize("declared", ["float[3]", "float[2, 4]", "float[2, 3, 1]"])
def test_an_inferred_shape_wins_over_the_one_of_an_output(declared: str):
    imported = import_model(parsed(f"net (float[2, 3] x) => ({declared} y) {{ y = Neg(x) }}"))
    assert imported.graph.outputs[0].type == TensorType(DType.F32, (2, 3))
    [note] = imported.notes
    assert note.startswith("1 declared output shapes were passed over for inferred ones: 'y' is f32[2, 3], not f32[")


def test_an_output_that_is_listed_twice_is_given_once():
    imported = import_model(
        parsed("net (float[N] x) => (float[N] y, float[N] z, float[N] y) { y = Neg(x) z = Exp(x) }")
    )
    assert imported.graph.output_names == ("y", "z")
    assert imported.notes == ["1 outputs that are listed several times are given once: 'y'"]


def test_the_last_of_constants_with_one_name_is_taken():
    nodes = "c = Constant<value_float = 1.0>() y = Add(x, c) c = Constant<value_float = 2.0>()"
    imported = import_model(parsed(f"net (float[2] x) => (float[2] y) {{ {nodes} }}"))
    np.testing.assert_array_equal(evaluate_graph(imported.graph, [np.zeros(2, np.float32)])[0], [2, 2])
    assert imported.notes == ["1 constants are defined again, and the last is taken: 'c'"]


def test_a_body_that_gives_one_value_twice_gives_two_results():
    graph = import_model(
        parsed(
            """net (float[2] x, bool c) => (float[2] y, float[2] z) {
                y, z = If (c) <then_branch = then () => (float[2] t, float[2] t) { t = Neg(x) },
                               else_branch = otherwise () => (float[2] e, float[2] f) { e = Exp(x) f = Abs(x) }>
            }"""
        )
    ).graph
    x = np.array([-1.0, 2.0], np.float32)
    for value in evaluate_graph(graph, [x, np.array(True)]):
        np.testing.assert_array_equal(value, -x)


def test_branches_of_different_rank_give_an_output_of_any_rank():
    model = parsed(
        """net (float[N, M] x, bool c) => (float[N, M] y) {
            axes = Constant<value_ints = [1]>()
            y = If (c) <then_branch = then () => (float[R] t) { t = Squeeze(x, axes) },
                        else_branch = otherwise () => (float[N, M] e) { e = Neg(x) }>
        }"""
    )
    for shape in (["N", "M"], ["N"], None):
        model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, shape))
        graph = import_model(model).graph
        verify(graph)
        assert graph.outputs[0].tensor.shape is None
        x = np.ones((2, 1), np.float32)
        again = import_model(export_model(graph)).graph
        np.testing.assert_array_equal(evaluate_graph(again, [x, np.array(False)])[0], -x)


def test_attributes_that_an_operator_does_not_have_are_ignored_with_a_note():
    model = parsed(
        """net (float16[2, 3] x, float[3] scale) => (float[2, 3] y) {
            y = LayerNormalization <epsion = 0.5> (x, scale)
        }"""
    )
    imported = import_model(model)
    assert [node.op.name for node in imported.graph.nodes] == ["cast", "layer_norm"]
    assert imported.notes == [
        "1 attributes that their operators do not have were ignored: epsion of LayerNormalization"
    ]
    model = parsed(
        "net (seq(float[N]) x) => (float[N] y) { i = Constant<value_int=0>() y = SequenceAt <speed = 3> (x, i) }"
    )
    imported = import_model(model)
    assert imported.notes == ["1 attributes that their operators do not have were ignored: speed of SequenceAt"]
    assert "speed" not in next(node for node in imported.graph.nodes if node.op.is_foreign).attrs


def test_a_result_of_unknown_rank_takes_what_the_model_says_of_it():
    model = parsed(
        """<ir_version: 10, opset_import: ["": 21, "my": 1]>
        net (float[N] x) => (float[N, 2] y) { y = my.Op(x) }"""
    )
    graph = import_model(model).graph
    assert graph.outputs[0].type == TensorType(DType.F32, (symbol("N"), 2))


def test_unsupported_is_said_where_the_model_is_valid():
    model = parsed("net (float[N] x) => (float[N] y) { y = Neg(x) }")
    model.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(UnsupportedError, match="element type 99"):
        import_model(model)


@pytest.mark.parametrize(
    ("nodes", "place"),
    [
        ("y = Relu(missing)", "node of 'y' (Relu) of model net"),
        ("a = Add(x, b) b = Relu(a) y = Relu(b)", "node of 'a' (Add) of model net"),
        ("[first] a = Relu(x) [second] y = MatMul(a, a)", "matmul(%a, %a) from second of model net"),
    ],
)
def test_errors_name_the_node_the_model_and_what_to_do(nodes: str, place: str):
    with pytest.raises(CapgraphError) as caught:
        import_model(parsed(f"net (float[3, 4] x) => (float[3, 4] y) {{ {nodes} }}"))
    assert caught.value.where == place
    assert caught.value.remedy
    causes(caught.value)


def test_the_text_form_of_an_imported_model():
    graph = graph_of("net (float[B, 4] x) => (float[B, 4] y) { h = Relu(x) y = Softmax(h) }")
    assert print_graph(graph) == (
        "graph @net(%x: f32[B, 4]) {\n  %h: f32[B, 4] = relu(%x)\n  %y: f32[B, 4] = softmax(%h)\n  return %y\n}\n"
    )
