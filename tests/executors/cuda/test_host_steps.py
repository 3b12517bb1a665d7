"""Steps on the host: what the device finds for them, what is computed from copies, and what neither leaves behind."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from capgraph.executors.steps import EagerExecutor
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph

from tests.executors.cuda.fake import FakeDriver, GpuArray, fake_device, gpu_arrays, meanings
from tests.executors.cuda.test_executable import recorded

SEARCHED = (
    "runs on the host: non_zero: its size depends on values: the device finds them, the host reads what was found"
)
COMPUTED = "runs on the host: non_zero: its sizes, regions or launches depend on values"


def found(type_: str, *, turned: bool = False) -> Graph:
    b = Builder()
    x = b.input("x", type_)
    given = b.op("transpose", x, perm=[1, 0]) if turned else b.op("relu", x)
    return b.finish({"y": b.op("neg", b.op("non_zero", given))})


@pytest.mark.parametrize(
    ("type_", "turned", "searches"),
    [
        ("f32[6, 5]", False, 1),
        ("f32[6, 5]", True, 1),
        ("f16[30]", False, 1),
        ("i8[2, 3, 4]", False, 1),
        ("i64[7]", False, 1),
        ("f64[3, 3]", True, 1),
        ("bf16[30]", False, 0),
        ("f32[0, 5]", False, 0),
        ("f32[]", False, 0),
    ],
)
def test_elements_are_searched_for_where_they_lie(type_: str, turned: bool, searches: int, tmp_path: Path) -> None:
    graph = found(type_, turned=turned)
    with meanings(), gpu_arrays():
        gpu = fake_device(tmp_path)
        assert isinstance(gpu.driver, FakeDriver)
        program = recorded(graph, gpu, keep_outside=["non_zero"])
        oracle = EagerExecutor().compile(graph)
        for seed in range(3):
            (value,) = graph.inputs
            shape = tuple(int(dim) for dim in value.shape)
            drawn = np.random.default_rng(seed).integers(-2, 3, shape).astype(value.tensor.dtype.numpy)
            before = gpu.driver.searches
            given = program.run({"x": GpuArray(drawn)})["y"]
            np.testing.assert_array_equal(getattr(given, "content", given), oracle.run({"x": drawn})["y"])
            assert not seed or gpu.driver.searches - before == searches  # the first call is checked, and runs again
        assert (SEARCHED if searches else COMPUTED) in program.remarks


def test_nan_is_found_and_zeros_of_either_sign_are_not(tmp_path: Path) -> None:
    b = Builder()
    graph = b.finish({"y": b.op("non_zero", b.op("neg", b.input("x", "f32[6]")))})
    with meanings(), gpu_arrays():
        program = recorded(graph, fake_device(tmp_path))
        x = np.array([0.0, -0.0, np.nan, 1e-45, -np.inf, 0.0], np.float32)
        given = program.run({"x": GpuArray(x)})["y"]
        np.testing.assert_array_equal(getattr(given, "content", given), [[2, 3, 4]])


def test_a_foreign_op_runs_its_own_bodies(tmp_path: Path) -> None:
    def branch(name: str, text: str) -> onnx.GraphProto:
        made = onnx.helper.make_tensor_sequence_value_info(name, onnx.TensorProto.FLOAT, None)
        return onnx.helper.make_graph([onnx.parser.parse_node(text)], name, [], [made])

    cases = {"then_branch": branch("t", "t = SequenceConstruct(x)"), "else_branch": branch("e", "e = SequenceEmpty()")}
    nodes = [onnx.helper.make_node("If", ["c"], ["s"], **cases), onnx.parser.parse_node("y = SequenceLength(s)")]
    inputs = [
        onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2]),
    ]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [])]
    graph = import_model(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, outputs))).graph
    with meanings():
        program = recorded(graph, fake_device(tmp_path))
        for chosen in (True, False):
            assert program.run({"c": np.array(chosen), "x": np.ones(2, np.float32)})["y"] == int(chosen)


def test_strings_of_rank_0_stay_arrays_of_objects(tmp_path: Path) -> None:
    b = Builder()
    graph = b.finish(
        {"y": b.op("squeeze", b.input("x", "string[1]"), axes=[0]), "z": b.op("exp", b.input("a", "f32[]"))}
    )
    with meanings():
        program = recorded(graph, fake_device(tmp_path))
        for _ in range(2):
            given = program.run({"x": np.array(["ab"], dtype=object), "a": np.float32(0)})["y"]
            assert (given.dtype, given.shape, given[()]) == (np.dtype(object), (), "ab")
        assert program.stats().refused == ()
