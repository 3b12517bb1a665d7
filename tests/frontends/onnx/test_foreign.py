"""Operators that stay foreign: how they come in, what they mean, and that they go out again."""

import numpy as np
import onnx
import onnxruntime
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.dims import symbol
from capgraph.ir.equality import assert_equal
from capgraph.ir.errors import ExecutionError, ModelError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Node
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.ir.types import DType, OptionalType, SequenceType, TensorType
from capgraph.ir.verify import verify

from tests.frontends.onnx.sample_models import parsed

F32 = np.float32


def graph_of(text: str) -> Graph:
    """The verified graph of a model, which comes back equal from an export and from its text form."""
    graph = import_model(parsed(text)).graph
    verify(graph)
    assert_equal(graph, import_model(export_model(graph)).graph)
    assert_equal(graph, parse(print_graph(graph, constants="full")))
    return graph


def only(graph: Graph, name: str) -> Node:
    (node,) = (node for node in graph.nodes if node.op.name == name)
    return node


def run(graph: Graph, *inputs: object) -> tuple[object, ...]:
    return evaluate_graph(graph, inputs)


def test_a_slice_backwards_by_bounds_of_unknown_number_begins_at_the_first_element() -> None:
    text = "net (float[3] x, int64[N] ends) => (float[K] y) <int64[1] b = {-7}, int64[1] s = {-1}>"
    graph = graph_of(text + " { y = Slice(x, b, ends, , s) }")
    assert only(graph, "onnx.Slice")
    (y,) = run(graph, np.arange(3, dtype=F32), np.array([-(2**31)]))
    assert y.tolist() == [0.0]


@pytest.mark.parametrize(
    ("opset", "operator"),
    [
        (10, "y = Softmax <axis = 1> (a)"),
        (12, "y = LogSoftmax <axis = -2> (a)"),
        (11, "y = Hardmax <axis = 1> (a)"),
        (17, "y, i, j, c = Unique <axis = 1, sorted = 0> (a)"),
        (17, "y = LpNormalization <axis = 1, p = 1> (a)"),
    ],
)
def test_an_operand_of_unknown_rank_is_as_one_of_the_rank_that_it_has(opset: int, operator: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
        net (float[2, 3, 4] x, int64[R] s) => (float[A, B, C] y) {{ a = Reshape (x, s) {operator} }}"""
    model = onnx.parser.parse_model(text)
    graph = import_model(model).graph
    assert any(node.op.is_foreign for node in graph.nodes)
    inputs = [np.random.default_rng(0).integers(-4, 5, (2, 3, 4)).astype(F32), np.array([4, 3, 2])]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (meant,) = session.run(None, dict(zip("xs", inputs, strict=True)))
    np.testing.assert_allclose(run(graph, *inputs)[0], meant, rtol=1e-5)


def test_what_onnx_lacks_runs_in_onnxruntime_beside_an_operand_without_elements() -> None:
    text = """<ir_version: 8, opset_import: ["": 11]>
        net (float[1, 1, 3, 4] x) => (float[1, 1, 6, 8] y) <float[0] none = {}, int64[4] sizes = {1, 1, 6, 8}> {
          y = Resize <mode = "cubic", coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, none, none, sizes)
        }"""
    graph = import_model(onnx.parser.parse_model(text)).graph
    assert only(graph, "onnx.Resize")
    (y,) = run(graph, np.ones((1, 1, 3, 4), F32))
    np.testing.assert_allclose(y, np.ones((1, 1, 6, 8)), rtol=1e-6)


# ---- kinds of values


def test_sequences_are_lists():
    graph = graph_of(
        """net (float[N] x, float[M] y) => (seq(float[K]) s, int64 n) {
          s = SequenceConstruct(x, y)
          n = SequenceLength(s)
        }"""
    )
    s, n = run(graph, np.ones(2, F32), np.zeros(3, F32))
    assert [item.tolist() for item in s] == [[1, 1], [0, 0, 0]]
    assert n == 2


def test_tensors_of_other_shapes_are_not_joined() -> None:
    """ONNX Runtime gives what lies in memory, where one of them is empty."""
    graph = graph_of(
        "net (float[N, M] x, float[K, L] y) => (float z) "
        "{ s = SequenceConstruct(x) t = SequenceInsert(s, y) z = ConcatFromSequence <axis = 0, new_axis = 1> (t) }"
    )
    assert run(graph, np.ones((2, 3), F32), np.zeros((2, 3), F32))[0].shape == (2, 2, 3)
    with pytest.raises(ExecutionError, match="same shape"):
        run(graph, np.zeros((0, 3), F32), np.ones((3, 2), F32))


@pytest.mark.parametrize("stated", ["seq(float)", "seq(float[1])", "seq(float[A, B])"])
def test_a_stated_shape_of_elements_is_passed_over(stated: str) -> None:
    graph = graph_of(f"net (float[3] x) => ({stated} y) {{ y = SequenceConstruct(x, x) }}")
    assert [each.shape for each in run(graph, np.ones(3, F32))[0]] == [(3,), (3,)]


@pytest.mark.parametrize("stated", ["seq(int64[3])", "float[3]", "optional(float[3])"])
def test_another_kind_or_element_type_is_not_passed_over(stated: str) -> None:
    with pytest.raises(ModelError, match="declared as"):
        graph_of(f"net (float[3] x) => ({stated} y) {{ y = SequenceConstruct(x, x) }}")


def test_the_sizes_of_a_sequence_s_elements_are_not_one_size():
    graph = graph_of(
        """net (float[N] x, float[M] y, int64 i, int64 j) => (float[A] a, float[B] b) {
          s = SequenceConstruct(x, y)
          a = SequenceAt(s, i)
          b = SequenceAt(s, j)
        }"""
    )
    a, b = run(graph, np.ones(2, F32), np.zeros(3, F32), np.array(0), np.array(1))
    assert (a.size, b.size) == (2, 3)


def test_optionals_are_their_element_or_none():
    graph = graph_of(
        """net (optional(float[N]) x, float[M] y) => (bool has, float[K] got) {
          has = OptionalHasElement(x)
          o = Optional(y)
          got = OptionalGetElement(o)
        }"""
    )
    has, got = run(graph, None, np.ones(2, F32))
    assert (bool(has), got.tolist()) == (False, [1, 1])
    has, _ = run(graph, np.zeros(1, F32), np.ones(2, F32))
    assert bool(has)


def test_an_empty_optional_has_no_element_to_give():
    graph = graph_of("net (optional(float[N]) x) => (float[K] y) { y = OptionalGetElement(x) }")
    with pytest.raises(ExecutionError, match="empty"):
        run(graph, None)


def test_text_is_an_array_of_objects():
    graph = graph_of("""net (string[N] a, string[N] b) => (string[N] c) { c = StringConcat(a, b) }""")
    (c,) = run(graph, np.array(["a", "é"], object), np.array(["b", ""], object))
    assert c.dtype == object
    assert c.tolist() == ["ab", "é"]


@pytest.mark.parametrize(
    ("attributes", "words", "expected"),
    [
        ('stopwords = ["a"]', ["a", "A", "the"], ["the"]),
        ('stopwords = ["A", "THE"], case_change_action = "LOWER"', ["the", "Ab", ""], ["ab", ""]),
        ('stopwords = ["a"], is_case_sensitive = 1', ["a", "A"], ["A"]),
        (
            'stopwords = ["a"], is_case_sensitive = 1, case_change_action = "UPPER"',
            ["a", "A", "\u00e9"],
            ["A", "\u00c9"],
        ),
        ('stopwords = ["a"]', ["A"], [""]),
        ('case_change_action = "UPPER"', ["stra\u00dfe"], ["STRA\u00dfE"]),
    ],
)
@pytest.mark.parametrize("shape", ["N", "1, N"])
def test_stopwords_are_dropped_and_letters_changed(
    attributes: str, words: list[str], expected: list[str], shape: str
) -> None:
    graph = graph_of(f"""<ir_version: 8, opset_import: ["": 17]>
    agraph (string[{shape}] x) => (string[{shape.replace("N", "M")}] y) {{ y = StringNormalizer<{attributes}>(x) }}""")
    given = np.array(words, object).reshape((1, -1) if shape != "N" else -1)
    (found,) = run(graph, given)
    assert found.tolist() == ([expected] if shape != "N" else expected)


def test_stopwords_of_a_matrix_are_refused() -> None:
    graph = graph_of("""<ir_version: 8, opset_import: ["": 17]>
    agraph (string[] x) => (string[] y) { y = StringNormalizer(x) }""")
    with pytest.raises(ExecutionError, match="StringNormalizer takes"):
        run(graph, np.array([["a"], ["b"]], object))


def test_text_in_constants():
    model = parsed("net (string[2] a) => (string[2] c) { c = StringConcat(a, end) }")
    model.graph.initializer.append(onnx.helper.make_tensor("end", onnx.TensorProto.STRING, [1], [b"!"]))
    (c,) = run(import_model(model).graph, np.array(["a", "b"], object))
    assert c.tolist() == ["a!", "b!"]


ZIP_MAP = """<ir_version: 8, opset_import: ["": 9, "ai.onnx.ml": 1]>
net (float[N, 2] x) => (seq(map(LABEL, float)) y) { y = ai.onnx.ml.ZipMap <LABELS> (x) }"""


@pytest.mark.parametrize(
    ("label", "labels", "names"),
    [("string", 'classlabels_strings = ["a", "é"]', ["a", "é"]), ("int64", "classlabels_int64s = [7, -1]", [7, -1])],
)
def test_maps_are_dicts(label, labels, names):
    text = ZIP_MAP.replace("LABELS", labels).replace("LABEL", label)
    graph = graph_of(text)
    x = np.array([[0.25, 0.5], [1, 2]], F32)
    (y,) = run(graph, x)
    assert y == [dict(zip(names, row, strict=True)) for row in x.tolist()]
    session = onnxruntime.InferenceSession(parsed(text).SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": x}) == [y]


def test_a_vector_of_scores_is_one_map():
    text = ZIP_MAP.replace("LABELS", "classlabels_int64s = [7, 8]").replace("LABEL", "int64").replace("[N, 2]", "[2]")
    assert run(graph_of(text), np.array([0.5, 1], F32)) == ([{7: 0.5, 8: 1.0}],)


def test_labels_and_scores_are_as_many():
    text = ZIP_MAP.replace("LABELS", "classlabels_int64s = [7]").replace("LABEL", "int64")
    with pytest.raises(ExecutionError, match="1 labels for 2 scores"):
        run(import_model(parsed(text)).graph, np.ones((1, 2), F32))


def test_a_type_attribute():
    graph = graph_of("net () => (optional(float[2]) x) { x = Optional <type = float[2]> () }")
    node = only(graph, "onnx.Optional")
    assert node.attrs["type"] == TensorType(DType.F32, (2,))
    assert isinstance(graph.outputs[0].type, OptionalType)
    assert run(graph) == (None,)


# ---- regions


CONDITIONAL = """net (bool c, float[N] x) => (seq(float[M]) y) {
  y = If (c) <
    then_branch = yes () => (seq(float[A]) a) { n = Neg(x) a = SequenceConstruct(n, x) },
    else_branch = no () => (seq(float[B]) b) { b = SequenceEmpty() }
  >
}"""


def test_a_conditional_over_sequences():
    graph = graph_of(CONDITIONAL)
    node = only(graph, "onnx.If")
    assert node.attrs["captured"] == (0, 1) or node.attrs["captured"] == (1, 0)
    assert isinstance(graph.outputs[0].type, SequenceType)
    x = np.ones(2, F32)
    assert [item.tolist() for item in run(graph, np.array(True), x)[0]] == [[-1, -1], [1, 1]]
    assert run(graph, np.array(False), x) == ([],)


LOOP = """net (int64 n, float[N] x) => (seq(float[M]) y, float[K, N] z) {
  go = Constant <value = bool {1}> ()
  start = SequenceEmpty()
  y, z = Loop (n, go, start) <
    body = step (int64 i, bool c, seq(float[A]) s) => (bool c2, seq(float[B]) t, float[N] scanned) {
      c2 = Identity(c)
      f = Cast <to = 1> (i)
      scanned = Add(x, f)
      t = SequenceInsert(s, scanned)
    }
  >
}"""


@pytest.mark.parametrize("trips", [0, 3])
def test_a_loop_over_sequences(trips):
    graph = graph_of(LOOP)
    y, z = run(graph, np.array(trips), np.zeros(2, F32))
    assert [item.tolist() for item in y] == [[i, i] for i in range(trips)]
    assert z.tolist() == [[i, i] for i in range(trips)]


@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("stated", ["", "[]", "[1]", "[M]", "[M, K]"])
def test_what_a_body_states_of_ranks_that_change_refuses_nothing(rounds: int, stated: str) -> None:
    graph = graph_of(
        f"""net (int64 n, float x, float[1] b) => (float y) {{
          y = Loop (n, , x) <
            body = step (int64 i, bool c, float{stated} v) => (bool c2, float{stated} w) {{
              c2 = Identity(c)
              u = Neg(v)
              w = Add(u, b)
            }}
          >
        }}"""
    )
    (y,) = run(graph, np.array(rounds), np.array(2, F32), np.ones(1, F32))
    expected = [np.array(2, F32), np.array([-1], F32), None, np.array([-1], F32)][rounds]
    np.testing.assert_array_equal(y, expected, strict=True)


def test_a_carried_sequence_takes_elements_of_other_ranks_than_the_body_states() -> None:
    graph = graph_of(
        """net (int64 n, float[2] x) => (float[?, ?] y) {
          go = Constant <value = bool {1}> ()
          start = SequenceConstruct(x)
          s = Loop (n, go, start) <
            body = step (int64 i, bool c, seq(float[K]) t) => (bool c2, seq(float[K]) more) {
              c2 = Identity(c)
              last = Constant <value = int64 {-1}> ()
              e = SequenceAt(t, last)
              zero = Constant <value = int64[1] {0}> ()
              f = Unsqueeze(e, zero)
              more = SequenceInsert(t, f)
            }
          >
          last = Constant <value = int64 {-1}> ()
          y = SequenceAt(s, last)
        }"""
    )
    assert run(graph, np.array(2), np.ones(2, F32))[0].shape == (1, 1, 2)


def test_a_scan_over_a_state_of_unknown_rank() -> None:
    """Along an axis that onnx's implementation does not take."""
    graph = graph_of(
        """net (float[] x, float[A, B] s) => (float[] y, float[C, D] z) {
          y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
            scan_output_directions = [1],
            body = step (float[] v, float[E] e) => (float[] w, float[E] r) { w = Add(v, e) r = Neg(e) }> (x, s)
        }"""
    )
    assert only(graph, "onnx.Scan").outputs[1].type == TensorType(DType.F32, (symbol("u0"), symbol("B")))
    s = np.arange(6, dtype=F32).reshape(2, 3)
    y, z = run(graph, np.ones(2, F32), s)
    assert y.tolist() == [4.0, 13.0]
    assert z.tolist() == [[-2.0, -1.0, 0.0], [-5.0, -4.0, -3.0]]


@pytest.mark.parametrize("head", ["", '<ir_version: 8, opset_import: ["": 8]> '])
def test_a_scan_takes_other_ranks_than_its_body_states(head: str) -> None:
    """What goes in is a vector, in opset 8 of each sample."""
    batch, lengths = ("1, ", "n, ") if head else ("", "")
    graph = graph_of(
        head
        + f"""net (int64[1] n, float[] x, float[{batch}T, 2] s) => (float[] w, float[N] y) {{
          w, y = Scan <num_scan_inputs = 1, body = step (float[] v, float e) => (float[] u, float r) {{
            u = Neg(v)
            r = Neg(e)
          }}> ({lengths}x, s)
        }}"""
    )
    x, s = np.ones((1, 2) if head else 2, F32), np.ones((1, 3, 2) if head else (3, 2), F32)
    w, y = run(graph, np.array([3]), x, s)
    assert w.tolist() == (-x).tolist()
    assert y.tolist() == (-s).tolist()


@pytest.mark.parametrize("dialect", list(Dialect))
def test_onnxruntime_runs_a_file_of_a_scan_over_a_state_of_unknown_rank(dialect: Dialect) -> None:
    """It has to know the rank of what the body gives, which only the body states."""
    graph = graph_of(
        """net (float[] x, float[N] s) => (float[] y, float[M, K] z) {
          y, z = Scan <num_scan_inputs = 1, body = step (float[] v, float e) => (float[A] w, float[B] r) {
            w = Add(v, e)
            r = Neg(v)
          }> (x, s)
        }"""
    )
    x, s = np.ones(2, F32), np.arange(2, dtype=F32)
    session = onnxruntime.InferenceSession(export_model(graph, dialect=dialect).SerializeToString())
    theirs = session.run(None, {"x": x, "s": s})
    assert [each.tolist() for each in theirs] == [[2, 2], [[-1, -1], [-1, -1]]]
    assert [each.tolist() for each in run(graph, x, s)] == [each.tolist() for each in theirs]


def test_a_scan_over_samples_of_other_lengths() -> None:
    """Opset 8 has a batch along the first axis; what lies behind a sample's length is zeros, as in ONNX Runtime."""
    graph = graph_of(
        """<ir_version: 8, opset_import: ["": 8]> net (int64[B] n, float[B] x, float[B, T, 1] s)
        => (float[B] y, float[B, T, 1, 1] z) {
          y, z = Scan <num_scan_inputs = 1, directions = [1], body = step (float v, float[1] e)
            => (float w, float[1, 1] r) {
            t = ReduceSum <axes = [0], keepdims = 0> (e)
            w = Sub(t, v)
            r = Unsqueeze <axes = [0]> (e)
          }> (n, x, s)
        }"""
    )
    assert only(graph, "onnx.Scan")
    s = np.arange(6, dtype=F32).reshape(2, 3, 1)
    y, z = run(graph, np.array([2, 1]), np.array([1, 7], F32), s)
    assert y.tolist() == [0.0, -4.0]
    assert z.reshape(2, 3).tolist() == [[1.0, 0.0, 0.0], [3.0, 0.0, 0.0]]
    with pytest.raises(ExecutionError, match="4 of 3 values"):
        run(graph, np.array([2, 4]), np.array([1, 7], F32), s)
    session = onnxruntime.InferenceSession(export_model(graph).SerializeToString())
    theirs = session.run(None, {"n": np.array([2, 1]), "x": np.array([1, 7], F32), "s": s})
    assert [each.tolist() for each in theirs] == [y.tolist(), z.tolist()]


def test_onnxruntime_runs_a_file_of_a_loop_with_results_that_nobody_reads() -> None:
    text = """net (int64 n, float x) => (float[N] rows) {
      go = Constant <value = bool {1}> ()
      seen, rows, last = Loop (n, go, x) <
        body = step (int64 i, bool c, float v) => (bool c2, float w, float seen, bool still) {
          c2 = Identity(c)
          zero = Constant <value = int64[1] {0}> ()
          w = Unsqueeze(v, zero)
          seen = ReduceSum <keepdims = 0> (v)
          still = Identity(c)
        }
      >
    }"""
    model = parsed(text)
    model.graph.node[-1].output[:] = ["", "rows"]
    graph = import_model(model).graph
    assert only(graph, "onnx.Loop").attrs["results"] == (1,)
    data = export_model(graph).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (rows,) = session.run(None, {"n": np.array(2), "x": np.array(3, F32)})
    assert rows.tolist() == [3, 3]


def test_a_file_tells_onnxruntime_the_rank_of_the_iteration() -> None:
    graph = graph_of(
        """net (int64 n, float[1] x, float[1, 1] y) => (float[?] p, float[?] q) {
          p, q = Loop (n, , x, y) <
            body = step (int64[] i, bool c, float[M] v, float[M, M] w) => (bool c, float[M] s, float[M] v) {
              flat = Constant <value = int64[1] {-1}> ()
              s = Reshape(w, flat)
            }
          >
        }"""
    )
    assert only(graph, "onnx.Loop")
    data = export_model(graph).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    results = session.run(None, {"n": np.array(2), "x": np.ones(1, F32), "y": np.ones((1, 1), F32)})
    assert [each.shape for each in results] == [(1,), (1,)]


def test_a_body_mentions_no_size_that_is_bound_only_around_it():
    graph = graph_of(
        """net (bool c, float[N, 1] x, float[N, 2] other) => (seq(float[M, 2]) y) {
          y = If (c) <
            then_branch = yes () => (seq(float[A, 2]) a) {
              s = Shape(other)
              r = Expand(x, s)
              a = SequenceConstruct(r)
            },
            else_branch = no () => (seq(float[B, 2]) b) { b = SequenceEmpty() }
          >
        }"""
    )
    (y,) = run(graph, np.array(True), np.ones((3, 1), F32), np.zeros((3, 2), F32))
    assert y[0].shape == (3, 2)


# ---- types


def test_result_types_come_from_onnx():
    graph = graph_of(
        """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]>
        net (float[N, 3] x) => (float[N, 3] y) { y = ai.onnx.ml.Scaler <offset = [0.0], scale = [2.0]> (x) }"""
    )
    assert graph.outputs[0].type == TensorType(DType.F32, (symbol("N"), 3))
    (y,) = run(graph, np.ones((2, 3), F32))
    assert y.tolist() == [[2, 2, 2]] * 2


UNKNOWN = """<ir_version: 10, opset_import: ["": 21, "com.example": 3]>
net (float[N] x) => (float[N, 2] y) <float[N] h> {
  h, _, k = com.example.Make <sizes = [1, 2], ratio = 0.5, name = "a"> (x, , x)
  y = com.example.Use(h, k)
}"""


def unknown() -> onnx.ModelProto:
    model = parsed(UNKNOWN)
    model.graph.node[0].output[1] = ""
    shape = onnx.helper.make_tensor_value_info("k", onnx.TensorProto.INT64, ["Q"])
    model.graph.value_info.append(shape)
    return model


def test_a_shape_that_the_model_states_for_a_result_of_trees_is_not_believed():
    """As CatBoost states a vector, at a version that onnx infers nothing of."""
    one = "nodes_treeids = [0], nodes_nodeids = [0], nodes_featureids = [0], nodes_values = [0.0], n_targets = 1"
    leaf = 'nodes_modes = ["LEAF"], nodes_truenodeids = [0], nodes_falsenodeids = [0]'
    target = "target_treeids = [0], target_nodeids = [0], target_ids = [0], target_weights = [2.0]"
    model = parsed(
        f"net (float[N, 3] x) => (float[N] y) {{ y = ai.onnx.ml.TreeEnsembleRegressor<{one}, {leaf}, {target}>(x) }}"
    )
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 1))
    graph = import_model(model).graph
    assert graph.outputs[0].type == TensorType(DType.F32, None)
    (y,) = run(graph, np.zeros((2, 3), F32))
    assert np.array_equal(y, [[2.0], [2.0]])


def test_an_unknown_operator_is_kept_with_the_types_that_the_model_states():
    graph = import_model(unknown()).graph
    make = only(graph, "com.example.Make")
    assert dict(make.attrs) == {
        "sizes": (1, 2), "ratio": 0.5, "name": "a", "opset_version": 3, "results": (0, 2),
    }  # fmt: skip
    assert make.inputs[1] is None
    assert [str(value.type) for value in make.outputs] == ["f32[N]", "i64[u0]"]
    verify(graph)
    model = export_model(graph)
    assert list(model.graph.node[0].output) == ["h", "", "k"]
    assert {entry.domain: entry.version for entry in model.opset_import}["com.example"] == 3
    assert_equal(graph, import_model(model).graph)


def test_an_unknown_operator_without_types_is_refused_with_the_way_out():
    model = unknown()
    del model.graph.value_info[:]
    with pytest.raises(UnsupportedError, match=r"(?s)com\.example.*result 'h'.*value_info"):
        import_model(model)


def test_an_unknown_operator_cannot_be_run():
    with pytest.raises(UnsupportedError, match=r"com\.example\.Make"):
        run(import_model(unknown()).graph, np.ones(2, F32))


def test_what_onnx_finds_wrong_is_an_error_in_the_model():
    text = "net (float[N] x, int64[M] y) => (seq(float[K]) s) { s = SequenceConstruct(x, y) }"
    with pytest.raises(ModelError, match=r"(?s)onnx finds.*SequenceConstruct"):
        import_model(parsed(text))


# ---- meaning


def test_an_operator_that_onnx_does_not_implement_is_refused_when_it_runs():
    model = parsed(
        """<ir_version: 10, opset_import: ["": 21, "ai.onnx.preview.training": 1]>
        net (float a, float b) => (float g) {
          c = Add(a, b)
          g = ai.onnx.preview.training.Gradient <xs = ["a"], y = "c"> (a)
        }"""
    )
    graph = import_model(model).graph
    with pytest.raises(UnsupportedError, match="no implementation"):
        run(graph, np.array(1, F32), np.array(2, F32))


def test_a_failure_names_the_node():
    model = parsed("net (seq(float[N]) s, int64 i) => (float[M] x) { x = SequenceAt(s, i) }")
    model.graph.node[0].name = "pick"
    with pytest.raises(ExecutionError, match=r"(?s)SequenceAt.*from pick"):
        run(import_model(model).graph, [np.ones(1, F32)], np.array(7))


def test_operands_are_not_written_to():
    graph = graph_of(
        """<ir_version: 10, opset_import: ["": 21, "ai.onnx.preview.training": 1]>
        net (float r, int64 t, float[2] x, float[2] g, float[2] v) => (float[2] x2, float[2] v2) {
          x2, v2 = ai.onnx.preview.training.Momentum
            <alpha = 0.9, beta = 0.5, mode = "standard", norm_coefficient = 0.1> (r, t, x, g, v)
        }"""
    )
    inputs = [np.array(0.1, F32), np.array(0), np.ones(2, F32), np.ones(2, F32), np.ones(2, F32)]
    kept = [array.copy() for array in inputs]
    first = run(graph, *inputs)
    second = run(graph, *inputs)
    for one, other in zip((*inputs, *first), (*kept, *second), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("place", [None, 2, 0, 1, -1, -2])
def test_an_element_is_inserted_where_the_standard_says(place: int | None) -> None:
    given, operand = ("", "") if place is None else (f"p = Constant <value = int64 {{{place}}}> ()", ", p")
    model = parsed(f"""<ir_version: 10, opset_import: ["" : 20]>
    main (float[1] a, float[1] b, float[1] c) => (float[N] y) {{
      s = SequenceConstruct(a, b)
      {given}
      t = SequenceInsert(s, c{operand})
      y = ConcatFromSequence<axis = 0>(t)
    }}""")
    expected = [1.0, 2.0]
    expected.insert(2 if place is None else place, 3.0)
    (found,) = run(import_model(model).graph, *(np.array([x], F32) for x in (1, 2, 3)))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (other,) = session.run(None, {name: np.array([x], F32) for name, x in zip("abc", (1, 2, 3), strict=True)})
    assert np.asarray(found).tolist() == other.tolist() == expected


def test_an_element_behind_the_end_is_refused() -> None:
    model = parsed("""<ir_version: 10, opset_import: ["" : 20]> main (float[1] a, int64 p) => (float[N] y) {
      s = SequenceConstruct(a, a)
      t = SequenceInsert(s, a, p)
      y = ConcatFromSequence<axis = 0>(t)
    }""")
    with pytest.raises(ExecutionError, match="place 3 to insert at is out of range for a sequence of 2"):
        run(import_model(model).graph, np.ones(1, F32), np.array(3))


def test_a_body_is_told_the_sizes_that_it_sees_a_product_of():
    """It runs with its operands alone: a value that says a and b is captured, though no node of the body reads it."""
    graph = graph_of(
        """<ir_version: 10, opset_import: ["" : 19]>
        net (float[a, 3, b] x) => (seq(float[1, N]) rows) {
            flat = Flatten <axis = 0> (x)
            parts = SequenceConstruct (x, x)
            rows = SequenceMap (parts) <body = each (float[p, 3, q] part) => (float[1, n] row) {
                sizes = Shape (flat)
                row = Expand (flat, sizes)
            }>
        }"""
    )
    (rows,) = run(graph, np.arange(12, dtype=F32).reshape(2, 3, 2))
    assert [row.tolist() for row in rows] == [[[*range(12)]]] * 2


def test_a_reduction_of_a_function_body_goes_out_beside_newer_operators() -> None:
    """The function is of opset 11, with a ReduceMin without axes that means the same in 18."""
    graph = import_model(
        parsed(
            """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
            net (float[6] x, int64[N] shape, string[1] t) => (float y, string[1] u) {
              a = Reshape (x, shape)
              y = local.least (a)
              u = StringConcat (t, t)
            }
            <domain: "local", opset_import: ["" : 11]>
            least (a) => (y) { y = ReduceMin <keepdims = 0> (a) }"""
        )
    ).graph
    assert {"onnx.StringConcat", "onnx.ReduceMin"} <= {node.op.name for node in graph.nodes}
    written = export_model(graph, keep_versions=True)
    assert written.opset_import[0].version == 21
    inputs = {"x": np.arange(6, dtype=F32), "shape": np.array([3, 2]), "t": np.array(["a"], object)}
    session = onnxruntime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, wanted in zip(session.run(None, inputs), run(graph, *inputs.values()), strict=True):
        assert np.array_equal(found, wanted)
