"""Reshapes and moves in and out of ONNX, over opset versions, static and dynamic, with symbolic sizes."""

from typing import Any

import capgraph
import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.builder import Builder
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.errors import CapgraphError
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType, TensorType

from tests.frontends.onnx.ops.operator_cases import Case, hold, ints, model_of, numbered
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, imported, op_names, runtime_of

B, T = symbol("B"), symbol("T")
X = numbered(2, 3, 4)
ONES = numbered(1, 3, 1)
IMAGE = numbered(2, 8, 4, 6)

CASES = [
    Case("Reshape", 7, (X, ints(0, -1)), ("reshape",), constants={1}),
    Case("Reshape", 13, (X, ints(4, -1, 2)), ("reshape",), constants={1}),
    Case("Reshape", 14, (X, ints(6, 4)), ("reshape",), {"allowzero": 1}, constants={1}),
    Case("Reshape", 13, (X, ints(0, -1)), ("dynamic_reshape",)),
    Case("Flatten", 7, (X,), ("reshape",), {"axis": 2}),
    Case("Flatten", 11, (X,), ("reshape",), {"axis": -1}),
    Case("Flatten", 13, (X,), ("reshape",), {"axis": 0}),
    Case("Squeeze", 7, (ONES,), ("squeeze",), {"axes": [0]}),
    Case("Squeeze", 11, (ONES,), ("squeeze",), {"axes": [-1, 0]}),
    Case("Squeeze", 13, (ONES, ints(2)), ("squeeze",), constants={1}),
    Case("Squeeze", 13, (ONES, ints(2)), ("dynamic_squeeze",)),
    Case("Unsqueeze", 7, (X,), ("unsqueeze",), {"axes": [0, 4]}),
    Case("Unsqueeze", 13, (X, ints(-1, 1)), ("unsqueeze",), constants={1}),
    Case("Unsqueeze", 13, (X, ints(-1, 1)), ("dynamic_unsqueeze",)),
    Case("Expand", 8, (ONES, ints(2, 1, 4)), ("expand",), constants={1}),
    Case("Expand", 13, (ONES, ints(2, 1, 3, 5)), ("dynamic_expand",)),
    Case("Tile", 7, (X, ints(2, 1, 3)), ("tile",), constants={1}),
    Case("Tile", 13, (X, ints(2, 1, 3)), ("dynamic_tile",)),
    Case("Transpose", 7, (X,), ("transpose",)),
    Case("Transpose", 13, (X,), ("transpose",), {"perm": [1, 2, 0]}),
    Case("DepthToSpace", 7, (IMAGE,), ("depth_to_space",), {"blocksize": 2}),
    Case("DepthToSpace", 11, (IMAGE,), ("depth_to_space",), {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", 7, (IMAGE,), ("space_to_depth",), {"blocksize": 2}),
    Case("ReverseSequence", 10, (numbered(4, 3), ints(1, 4, 2)), ("reverse_sequence",)),
    Case(
        "ReverseSequence", 10, (numbered(3, 4), ints(1, 4, 2)), ("reverse_sequence",), {"batch_axis": 0, "time_axis": 1}
    ),
    Case("Identity", 7, (X,), ()),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operators_with_plain_sizes(case: Case) -> None:
    hold(case)


STATIC = [case for case in CASES if case.operator not in ("Squeeze", "Expand") and "dynamic" not in str(case.gives)]


@pytest.mark.parametrize("case", STATIC, ids=str)
def test_operators_with_symbolic_sizes(case: Case) -> None:
    hold(case, symbols=True)


def test_squeeze_without_axes_takes_what_is_known_to_be_one() -> None:
    hold(Case("Squeeze", 11, (ONES,), ("squeeze",)))
    hold(Case("Squeeze", 13, (ONES,), ("squeeze",)))


def test_squeeze_without_axes_takes_what_must_be_one() -> None:
    """A state for one sample says that the batch is one; other open sizes stay, and a note says so."""
    text = """<ir_version: 8, opset_import: ["": 12]>
    net (float[steps, batch, 2] x, float[1, 9, 2] w, float[1, 9, 3] r, float[1, 1, 3] h) => (float[steps] y) {
        all, last = GRU <hidden_size = 3> (x, w, r, , , h)
        y = Squeeze(all)
    }"""
    model = onnx.parser.parse_model(text)
    found = import_model(model)
    assert found.graph.outputs[0].tensor.dims == (symbol("steps"), 3)
    assert [note for note in found.notes if "Squeeze" in note] == [
        "1 sizes are taken not to be 1 by Squeeze without axes: steps of y"
    ]
    shapes = {"x": (4, 1, 2), "w": (1, 9, 2), "r": (1, 9, 3), "h": (1, 1, 3)}
    feeds = {name: numbered(*shape) / 10 for name, shape in shapes.items()}
    compare(evaluated(found.graph, feeds), runtime_of(model, feeds))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "body",
    [
        "a = If (c) <then_branch = t () => (float[] d) { d = Squeeze (s) }, else_branch = e () => (float[] e) "
        "{ e = Neg (s) }> b = Shape (a) y = Size (b)",
        "r, y = Loop (n, c, s) <body = b (int64 i, bool k, float[K] u) => (bool l, float[J] v, int64 rank) { "
        "l = Identity (k) v = Slice (u, zero, one) a = Squeeze (u) b = Shape (a) rank = Size (b) }>",
    ],
    ids=["If", "Loop"],
)
def test_squeeze_without_axes_in_a_body_goes_by_sizes_that_running_makes(body: str, count: int) -> None:
    text = f"""net (float[3] x, bool[3] m, int64 n, bool c) => (int64[] y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{
        s = Compress <axis = 0> (x, m)
        {body}
    }}"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> {text}')
    chosen = np.arange(3) < count
    feeds = {"x": numbered(3), "m": chosen, "n": np.array(2), "c": np.array(True)}
    expected = runtime_of(model, feeds)
    assert np.ravel(expected[0])[0] == count - 1
    compare(evaluated(import_model(model).graph, feeds), expected)


@pytest.mark.parametrize(("repeats", "given"), [("int64[1] {2}", (1, 3)), ("int64[2] {2, 1}", (2, 3))])
def test_squeeze_without_axes_takes_what_must_be_one_behind_it(repeats: str, given: tuple[int, int]) -> None:
    """A vector of repeats says how many axes are left."""
    text = f"""<ir_version: 8, opset_import: ["": 13]>
    net (float[rows, columns] x) => (float y) {{
        left = Squeeze(x)
        repeats = Constant <value = {repeats}> ()
        tiled = Tile(left, repeats)
        y = ReduceSum <keepdims = 0> (tiled)
    }}"""
    model = onnx.parser.parse_model(text)
    found = import_model(model)
    assert any("sizes are 1 for Squeeze without axes" in note for note in found.notes) == (given[0] == 1)
    feeds = {"x": numbered(*given)}
    compare(evaluated(found.graph, feeds), runtime_of(model, feeds))


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (
            "(float[N, 2, M] x) => (float[?, ?] y) <float[2] k = {1, 2}> { s = Squeeze(x) y = Upsample(s, k) }",
            (1, 2, 3),
        ),
        ("(float[N, M, 3, M] x) => (float[?, ?] y) { s = Squeeze(x) y = EyeLike(s) }", (2, 1, 3, 1)),
        ("(float[N, M, 3, K] x) => (float[?, ?] y) { s = Squeeze(x) y = EyeLike(s) }", (1, 1, 3, 2)),
    ],
)
def test_squeeze_without_axes_gives_the_rank_that_is_needed_behind_it(text: str, given: tuple[int, ...]) -> None:
    """One axis, one size of two axes, two sizes of three."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 9]> net {text}')
    feeds = {"x": numbered(*given)}
    compare(evaluated(import_model(model).graph, feeds), runtime_of(model, feeds))


def test_a_reshape_that_cannot_be_is_an_error_at_its_node() -> None:
    with pytest.raises(CapgraphError, match=r"cannot be reshaped[\s\S]*Reshape"):
        imported(model_of(Case("Reshape", 13, (X, ints(7, -1)), (), constants={1})))


def shape_chain() -> onnx.ModelProto:
    """x: [B, T, 12] to [B, T, 3, 4] by shapes that are computed."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    heads (float[B, T, 12] x) => (float[B, T, 3, 4] y) {
      shape = Shape(x)
      zero = Constant<value_ints = [0]>()
      one = Constant<value_ints = [1]>()
      batch = Gather<axis = 0>(shape, zero)
      rows = Gather<axis = 0>(shape, one)
      heads = Constant<value_ints = [3, -1]>()
      target = Concat<axis = 0>(batch, rows, heads)
      y = Reshape(x, target)
    }
    """
    return onnx.parser.parse_model(text)


def test_computed_shapes_become_attributes() -> None:
    graph = imported(shape_chain())
    assert graph.last is not None
    assert graph.last.op.name == "reshape"
    assert graph.last.attrs["shape"] == (B, T, 3, 4)
    exported = export_model(graph)
    assert "Reshape" in [node.op_type for node in exported.graph.node]


def test_a_reshape_that_keeps_its_symbols_is_written_without_shapes() -> None:
    builder = Builder()
    x = builder.input("x", TensorType(DType.F32, (B, T, 12)))
    graph = builder.finish({"y": builder.op("reshape", x, shape=(B, T, 3, 4))})
    assert [node.op_type for node in export_model(graph).graph.node] == ["Reshape"]


SINGLE: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("reshape", {"shape": (T, B, 12)}, (2, 3, 12)),
    ("reshape", {"shape": (B * T, 12)}, (2, 3, 12)),
    ("reshape", {"shape": (4 * B, T, 3)}, (2, 3, 12)),
    ("expand", {"shape": (T, B, T, 12)}, (2, 3, 12)),
    ("tile", {"repeats": (T, 1, 2)}, (2, 3, 12)),
    ("reverse", {"axes": (0, -1)}, (2, 3, 12)),
    ("roll", {"axes": (0, 1, 2), "shifts": (1, -4, 5)}, (2, 3, 12)),
]


@pytest.mark.parametrize(("dtype", "operators"), [("float", ["Flatten"]), ("int64", ["Shape", "Gather", "Reshape"])])
def test_flatten_before_opset_9_is_of_floats(dtype: str, operators: list[str]) -> None:
    graph = f"net ({dtype}[2, A, B, 2] x) => ({dtype}[C, D] y) {{ y = Flatten <axis = 2> (x) }}"
    text = f'<ir_version: 8, opset_import: ["": 7]> {graph}'
    written = export_model(imported(onnx.parser.parse_model(text)), keep_versions=True, dialect=Dialect.STANDARD)
    assert {node.op_type for node in written.graph.node} >= set(operators)


@pytest.mark.parametrize(("name", "attrs", "shape"), SINGLE)
def test_ops_without_an_operator_of_their_own_are_written(
    name: str, attrs: dict[str, Any], shape: tuple[int, ...]
) -> None:
    builder = Builder()
    x = builder.input("x", TensorType(DType.F32, (B, T, 12)))
    graph = builder.finish({"y": builder.op(name, x, **attrs)})
    feeds = {"x": numbered(*shape)}
    wanted = evaluated(graph, feeds)
    exported = export_model(graph)
    compare(runtime_of(exported, feeds), wanted)
    compare(evaluated(imported(exported), feeds), wanted)


def test_reverse_sequence_of_later_axes_is_moved_there_and_back() -> None:
    builder = Builder()
    x = builder.input("x", TensorType(DType.F32, (2, 3, 4)))
    lengths = builder.input("lengths", TensorType(DType.I64, (4,)))
    graph = builder.finish({"y": builder.op("reverse_sequence", x, lengths, batch_axis=2, time_axis=1)})
    feeds = {"x": X, "lengths": ints(1, 2, 3, 2)}
    compare(runtime_of(export_model(graph), feeds), evaluated(graph, feeds))


def test_a_batch_of_nothing_is_reshaped() -> None:
    graph = imported(shape_chain())
    feeds = {"x": np.zeros((0, 3, 12), np.float32)}
    compare(runtime_of(export_model(graph), feeds), evaluated(graph, feeds))
    assert op_names(graph)[-1] == "reshape"


@pytest.mark.parametrize("shape", [(2, 3), (2, 0)])
def test_a_size_that_the_operand_does_not_tell_is_computed(shape: tuple[int, int]) -> None:
    text = """g (float[2, N] x, float[M, 4] y) => (float[?, ?] z) <int64[1] first = {0}, int64[1] second = {1}> {
        sx = Shape (x)  n = Gather (sx, second)  sy = Shape (y)  m = Gather (sy, first)
        s = Concat <axis = 0> (m, n)  z = Reshape <allowzero = 1> (x, s) }"""
    graph = imported(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}'))
    feeds = {"x": np.ones(shape, np.float32), "y": np.ones((2 if shape[1] else 5, 4), np.float32)}
    compare(runtime_of(export_model(graph), feeds), evaluated(graph, feeds))


@pytest.mark.parametrize("order", ["m, rest", "rest, m"])
@pytest.mark.parametrize("rows", [2, 0])
@pytest.mark.parametrize("opset", [7, 13, 14])
def test_what_other_sizes_leave_may_be_nothing(opset: int, rows: int, order: str) -> None:
    text = """g (float[3, N, 4] x, float[M] y) => (float[?, ?, ?] z) {
        m = Shape (y)  four = Constant <value = int64[1] {4}> ()  rest = Constant <value = int64[1] {-1}> ()
        s = Concat <axis = 0> (four, %s)  z = Reshape (x, s) }"""
    graph = imported(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text % order}'))
    written = export_model(graph, keep_versions=True)
    assert written.opset_import[0].version == opset
    feeds = {"x": np.ones((3, rows, 4), np.float32), "y": np.ones(2, np.float32)}
    compare(runtime_of(written, feeds), evaluated(graph, feeds))


@pytest.mark.parametrize("opset", [7, 9, 13, 14])
@pytest.mark.parametrize(
    ("given", "shape"), [("1, a*b", "a, 1, 1, b"), ("a*b, 12", "a, b, 12"), ("a, b", "b, a"), ("a, b, c", "c, a, b")]
)
def test_several_sizes_may_be_nothing(given: str, shape: str, opset: int) -> None:
    """Before opset 14 a 0 in the shape is the operand's size there, and -1 beside a 0 is an error."""
    inputs = ", ".join(f"%{name}: f32[{name}]" for name in "abc")
    node = f"%y: f32[{shape}] = reshape(%x) {{shape = [{shape}]}}"
    graph = parse(f"graph @g(%x: f32[{given}], {inputs}) {{ {node} return %y }}")
    written = export_model(graph, opset=opset)
    for sizes in ((2, 3, 1), (0, 3, 2), (2, 0, 2), (0, 0, 2), (0, 0, 0), (1, 1, 1)):
        named = dict(zip("abc", sizes, strict=True))
        feeds = {name: np.zeros(size, np.float32) for name, size in named.items()}
        (dims,) = (value.tensor.dims for value in graph.inputs if value.name == "x")
        feeds["x"] = numbered(*(evaluate(dim, named) for dim in dims))
        compare(runtime_of(written, feeds), evaluated(graph, feeds))


_CHAIN = """
    sizes = Shape (x)  first = Gather (sizes, zero)  second = Gather (sizes, one)  third = Gather (sizes, two)
    rest = Mul (second, third)  four = Shape (table)  s = Concat <axis = 0> (first, rest, four)  y = Reshape (x, s) """
_AS_COMPUTED = {
    7: ["Shape", *["Gather"] * 3, "Mul", "Concat", "Reshape"],
    20: [*["Shape"] * 3, "Mul", "Concat", "Reshape"],
}


@pytest.mark.parametrize(
    ("nodes", "opset", "operators"),
    [
        ("f = Flatten (x)  y = Unsqueeze <axes = [1]> (f)", 9, ["Flatten", "Unsqueeze"]),
        ("f = Flatten <axis = 2> (x)  y = Unsqueeze (f, one)", 20, ["Flatten", "Unsqueeze"]),
        (_CHAIN, 7, _AS_COMPUTED[7]),
        (_CHAIN, 20, _AS_COMPUTED[20]),
        ("y = Reshape (x, copied)", 20, ["Reshape"]),
    ],
)
def test_a_copied_size_may_be_nothing_unless_the_model_has_it_beside_what_is_left(
    nodes: str, opset: int, operators: list[str]
) -> None:
    """Runtimes refuse the shape [0, -1] of an operand without rows, as -1 could be anything."""
    text = f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[N, A, B, 4] x) => (float[?, ?, ?] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, float[4] table = {{1, 2, 3, 4}},
         int64[3] copied = {{0, -1, 4}}> {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    graph = capgraph.optimize(model, executor="eager").graph
    written = export_model(graph, keep_versions=True, dialect=Dialect.STANDARD)
    assert [node.op_type for node in written.graph.node] == operators
    for count in (2, 0) if len(operators) > 1 else (2,):
        feeds = {"x": numbered(count, 3, 2, 4)}
        compare(runtime_of(written, feeds), runtime_of(model, feeds))


@pytest.mark.parametrize("executor", ["eager", "ort", "graph"])
@pytest.mark.parametrize("level", [0, 2])
def test_expand_to_the_shape_of_another_where_a_size_is_one_only_at_run_time(executor: str, level: int) -> None:
    nodes = [onnx.helper.make_node("Shape", ["o"], ["s"]), onnx.helper.make_node("Expand", ["x", "s"], ["y"])]
    float_ = onnx.TensorProto.FLOAT
    inputs = [onnx.helper.make_tensor_value_info(name, float_, [dim, 2]) for name, dim in (("x", "A"), ("o", "B"))]
    outputs = [onnx.helper.make_tensor_value_info("y", float_, ["C", 2])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", inputs, outputs),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
        ir_version=10,
    )
    program = capgraph.optimize(model, executor=executor, level=level)
    for own, other in ((1, 4), (4, 1), (4, 4), (1, 0)):
        x, o = np.arange(own * 2, dtype=np.float32).reshape(own, 2), np.zeros((other, 2), np.float32)
        expected = np.broadcast_to(x, np.broadcast_shapes(x.shape, o.shape))
        np.testing.assert_array_equal(program.run({"x": x, "o": o})["y"], expected)


def test_the_first_rows_of_a_table_expand_to_the_length_that_they_were_cut_at() -> None:
    """Position ids of BERT: i64[1, min(512, L)] to the shape of the tokens, both of which are 1 or neither is."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (int64[B, L] tokens) => (int64[B, L] y)
        <int64[1, 8] table = {0, 1, 2, 3, 4, 5, 6, 7}, int64[1] zero = {0}, int64[1] one = {1}> {
          s = Shape (tokens)
          l = Shape <start: int = 1> (tokens)
          rows = Slice (table, zero, l, one)
          y = Expand (rows, s)
        }""")
    assert op_names(imported(model))[-1] == "expand"
    program = capgraph.optimize(model, executor="eager")
    for shape in ((3, 5), (2, 1), (1, 8), (2, 0)):
        expected = np.broadcast_to(np.arange(shape[1]), shape)
        np.testing.assert_array_equal(program.run({"tokens": np.zeros(shape, np.int64)})["y"], expected)


@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_a_part_of_at_most_one_row_expands(executor: str) -> None:
    """Without a row it expands to none."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[N, 2] x) => (float[3, 2] y, float[0, 2] z)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[2] some = {3, 2}, int64[2] none = {0, 2}> {
          part = Slice (x, zero, one)
          y = Expand (part, some)
          z = Expand (part, none)
        }""")
    options: dict[str, Any] = {"dynamic": {"N": (1, 8)}} if executor == "graph" else {}
    program = capgraph.optimize(model, executor=executor, **options)
    for count in (1, 3):
        x = numbered(count, 2)
        compare(list(program.run({"x": x}).values()), runtime_of(model, {"x": x}))
    with pytest.raises(CapgraphError):
        program.run({"x": numbered(0, 2)})


@pytest.mark.parametrize("shape", [(1, 0, 5, 1), (1, 2, 5, 1)])
def test_axes_of_open_sizes_that_have_to_be_1_are_squeezed_where_reshape_takes_0_for_a_copy(shape: tuple[int, ...]):
    graph = parse("graph @main(%x: f32[1, a, b, c]) { %y: f32[a, b] = reshape(%x) {shape = [a, b]} return %y }")
    model = export_model(graph, opset=9)
    assert [node.op_type for node in model.graph.node] == ["Squeeze"]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    compare(runtime_of(model, {"x": x}), [x.reshape(shape[1:3])])


def test_an_axis_of_a_known_size_is_not_squeezed():
    """Of no rows two are as many elements as one."""
    graph = parse("graph @main(%x: f32[2, a]) { %y: f32[a] = reshape(%x) {shape = [a]} return %y }")
    assert "Squeeze" not in [node.op_type for node in export_model(graph, opset=9).graph.node]
