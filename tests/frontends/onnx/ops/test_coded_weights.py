"""MatMulNBits beside ONNX Runtime, which has the operator: every width, zero points, blocks that end early, a bias."""

import numpy as np
import onnx
import pytest
from capgraph.ir.constant import Array
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.ops.there_and_back import compare, evaluated, imported, op_names, runtime_of


def model(
    inner: int,
    columns: int,
    block: int,
    *,
    bits: int = 4,
    has_zero: bool = False,
    has_bias: bool = False,
    order: Array | None = None,
    known: bool = True,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A product of three rows, and what it is fed."""
    random, blocks = np.random.default_rng(0), -(-inner // block)
    contents = {
        "B": random.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "scales": random.random(columns * blocks).astype(np.float32),
        "zero": random.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8) if has_zero else None,
        "g_idx": order,
        "bias": random.standard_normal(columns).astype(np.float32) if has_bias else None,
    }
    names = ["A", *(name if content is not None else "" for name, content in contents.items())]
    attrs = {"K": inner, "N": columns, "bits": bits, "block_size": block}
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attrs)
    inputs = [helper.make_tensor_value_info("A", TensorProto.FLOAT, [3, inner])]
    feeds: dict[str, Array] = {"A": random.standard_normal((3, inner)).astype(np.float32)}
    if not known:
        codes = contents.pop("B")
        assert codes is not None
        inputs.append(helper.make_tensor_value_info("B", TensorProto.UINT8, codes.shape))
        feeds["B"] = codes
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, columns])],
        [numpy_helper.from_array(content, name) for name, content in contents.items() if content is not None],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize(("inner", "block", "bits"), [(64, 32, 4), (80, 32, 4), (48, 16, 4), (64, 32, 8)])
def test_as_onnx_runtime_runs_it(inner: int, block: int, bits: int, has_zero: bool, has_bias: bool) -> None:
    made, feeds = model(inner, 5, block, bits=bits, has_zero=has_zero, has_bias=has_bias)
    graph = imported(made)
    assert op_names(graph) == ["dequantize_linear", "matmul", *(["add"] if has_bias else [])]
    compare(evaluated(graph, feeds), runtime_of(made, feeds))


def test_weights_that_are_not_known_stay_an_operator() -> None:
    made, _ = model(64, 5, 32, known=False)
    assert op_names(imported(made, native=False)) == ["com.microsoft.MatMulNBits"]


def test_columns_in_another_order_stay_an_operator() -> None:
    made, _ = model(64, 5, 32, order=np.arange(64, dtype=np.int32)[::-1] // 32)
    assert op_names(imported(made, native=False)) == ["com.microsoft.MatMulNBits"]
