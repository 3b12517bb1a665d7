import numpy as np
import onnxruntime
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.exporting.graph_writer import GraphWriter
from capgraph.frontends.onnx.exporting.model_writer import ModelWriter
from capgraph.frontends.onnx.files.writing import Inline
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.dims import Dim, dim_max, dim_min, evaluate, symbol
from capgraph.ir.equality import assert_equal
from capgraph.ir.errors import ShapeError
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

NAMES = ("B", "T", "S")
_LEAVES = st.one_of(st.integers(-9, 9), st.sampled_from([symbol(name) for name in NAMES]))


def _combined(pair: tuple[str, Dim, Dim]) -> Dim:
    operation, left, right = pair
    try:
        match operation:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "//":
                return left // (right if isinstance(right, int) and right > 0 else 3)
            case "max":
                return dim_max(left, right)
            case _:
                return dim_min(left, right)
    except ShapeError:
        return left


DIMS = st.recursive(
    _LEAVES,
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//", "max", "min"]), inner, inner).map(_combined),
    max_leaves=6,
)


def graph_with(dims: list[Dim]) -> Graph:
    graph = Graph("net")
    for name in NAMES:
        graph.add_input(name.lower(), TensorType(DType.F32, (symbol(name), 2)))
    vector = graph.append(native("dims"), (), {"values": dims}).output
    scalar = graph.append(native("dim"), (), {"value": dims[0]}).output
    graph.set_outputs([vector, scalar], ["vector", "scalar"])
    return graph


@given(st.lists(DIMS, min_size=1, max_size=4), st.tuples(*[st.integers(0, 9)] * 3))
def test_the_chains_compute_the_sizes(dims, sizes):
    env = dict(zip(NAMES, sizes, strict=True))
    wanted = [evaluate(dim, env) for dim in dims]
    assume(all(abs(size) < 2**40 for size in wanted))
    feeds = {name.lower(): np.zeros((size, 2), np.float32) for name, size in env.items()}
    model = export_model(graph_with(dims))
    vector, scalar = ReferenceEvaluator(model).run(None, feeds)
    assert vector.tolist() == wanted
    assert scalar.tolist() == wanted[0]


def test_a_reciprocal_times_a_size_is_not_their_quotient():
    """ONNX Runtime takes `1 / n * m` for `m / n`, of integers as well."""
    b, t = dim_max(symbol("B"), 1), symbol("T")
    dims = [1 // b * t, 3 * (1 // b), 1 // b * b + 1]
    graph = graph_with(dims)
    model = export_model(graph)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (1, 2, 3):
        feeds = {name.lower(): np.zeros((size, 2), np.float32) for name in NAMES}
        vector, scalar = session.run(None, feeds)
        wanted = [evaluate(dim, dict.fromkeys(NAMES, size)) for dim in dims]
        assert (vector.tolist(), scalar.tolist()) == (wanted, wanted[0])
    assert_equal(import_model(model).graph, graph)


@given(st.lists(DIMS, min_size=1, max_size=4))
def test_the_chains_read_back_as_the_same_sizes(dims):
    assume(any(not isinstance(dim, int) for dim in dims))
    graph = import_model(export_model(graph_with(dims))).graph
    vector, scalar = graph.outputs
    assert vector.producer is not None
    assert scalar.producer is not None
    assert vector.producer.attrs["values"] == tuple(dims)
    if not isinstance(dims[0], int):
        assert scalar.producer.attrs["value"] == dims[0]


def test_a_size_is_computed_once():
    b, t = symbol("B"), symbol("T")
    model = export_model(graph_with([b * t, b * t + 1, b, b * t]))
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("Shape") == 2
    assert kinds.count("Mul") == 1


def test_consecutive_sizes_of_an_operand_are_read_at_once():
    graph = Graph("net")
    x = graph.add_input("x", TensorType(DType.F32, (symbol("B"), symbol("T"), 4)))
    y = graph.add_input("y", TensorType(DType.F32, (symbol("B"),)))
    graph.set_outputs([x, y])
    writer = GraphWriter(ModelWriter(26, Inline(), value_info=False))
    writer.write_body(graph, ["x", "y"], ["x", "y"])
    whole, part, single = (writer.dims.vector(dims, [y, x]) for dims in (x.shape, x.shape[1:], x.shape[:1]))
    nodes = {node.output[0]: node for node in writer.proto(graph, ["x", "y"], ["x", "y"]).node}
    assert [nodes[name].op_type for name in (whole, part, single)] == ["Shape"] * 3
    assert [nodes[name].input[0] for name in (whole, part, single)] == ["x", "x", "y"]
    assert [len(nodes[name].attribute) for name in (whole, part, single)] == [0, 2, 0]


def test_a_size_that_some_value_has_is_not_computed_again():
    graph = Graph("net")
    x = graph.add_input("x", TensorType(DType.F32, (symbol("T"),)))
    y = graph.append(native("slice"), (x,), {"axes": (0,), "starts": (1,), "ends": (2**31,), "steps": (3,)}).output
    size = graph.append(native("dim"), (), {"value": y.shape[0]}).output
    graph.set_outputs([y, graph.append(native("neg"), (size,)).output], ["y", "size"])
    model = export_model(graph, opset=11, dialect=Dialect.STANDARD)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds[kinds.index("Slice") :] == ["Slice", "Shape", "Gather", "Reshape", "Neg"]
    found = ReferenceEvaluator(model).run(["size"], {"x": np.zeros(9, np.float32)})
    assert found[0].item() == -3


def test_sizes_of_one_value_in_another_order_are_read_at_once():
    graph = Graph("net")
    graph.add_input("x", TensorType(DType.F32, (symbol("B"), 3, symbol("T"))))
    order = graph.append(native("dims"), (), {"values": (symbol("T"), 3, symbol("B"))}).output
    size = graph.append(native("dim"), (), {"value": symbol("T")}).output
    read = [graph.append(native("neg"), (value,)).output for value in (order, size)]
    graph.set_outputs(read, ["order", "size"])
    model = export_model(graph, opset=11, dialect=Dialect.STANDARD)
    assert [node.op_type for node in model.graph.node] == ["Shape", "Gather", "Gather", "Neg", "Neg"]
    found = ReferenceEvaluator(model).run(None, {"x": np.zeros((2, 3, 5), np.float32)})
    assert [each.tolist() for each in found] == [[-5, -3, -2], -5]
