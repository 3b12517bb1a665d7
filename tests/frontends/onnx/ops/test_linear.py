"""Matmuls in and out of ONNX."""

import numpy as np
import onnx
import pytest
from capgraph.ir.constant import Array
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.onnx.ops.operator_cases import Case, hold, model_of
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, feeds_of, imported, op_names, runtime_of
from tests.ir.ops.onnx_oracle import random

A, B = random(1, 2, 3, 4), random(2, 4, 5)
LEFT, RIGHT, ADDEND = random(3, 4, 3), random(4, 5, 4), random(5, 5)
BYTES, MORE = random(6, 3, 4, dtype=np.uint8), random(7, 4, 5, dtype=np.uint8)
ZERO, SCALE, SMALL = np.array(120, np.uint8), np.array(0.3, np.float32), np.array(40.0, np.float32)

CASES = [
    Case("MatMul", 7, (A, B), ("matmul",)),
    Case("MatMul", 9, (A, A.swapaxes(1, 2).copy()), ("matmul",)),
    Case("MatMul", 13, (A.astype(np.int64), B.astype(np.int64)), ("matmul",)),
    Case("Gemm", 7, (LEFT, RIGHT, ADDEND), ("gemm",), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", 9, (LEFT.T.copy(), RIGHT.T.copy(), random(8, 3, 1)), ("gemm",)),
    Case("Gemm", 11, (LEFT, RIGHT), ("gemm",), {"transA": 1, "transB": 1, "beta": 3.0}),
    Case("Gemm", 13, (LEFT.T.copy(), RIGHT.T.copy(), np.full(5, np.nan, np.float32)), ("gemm",), {"beta": 0.0}),
    Case("Einsum", 12, (A, B), ("einsum",), {"equation": "bij, jk -> bik"}),
    Case("Einsum", 12, (A,), ("einsum",), {"equation": "...i->..."}),
    Case("MatMulInteger", 10, (BYTES, MORE, ZERO, ZERO), ("matmul_integer",)),
    Case("MatMulInteger", 10, (BYTES, MORE), ("matmul_integer",)),
    Case("QLinearMatMul", 10, (BYTES, SCALE, ZERO, MORE, SCALE, ZERO, SMALL, ZERO), ("qlinear_matmul",)),
    Case("QLinearMatMul", 21, (BYTES, SCALE, ZERO, MORE, SCALE, ZERO, SMALL, ZERO), ("qlinear_matmul",)),
    Case("Det", 11, (random(9, 2, 3, 3),), ("det",)),
]


@pytest.mark.parametrize("symbols", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_matmuls_there_and_back(case: Case, symbols: bool) -> None:
    hold(case, symbols=symbols)


def test_a_vector_of_zero_points_for_the_columns() -> None:
    zeros = np.arange(5, dtype=np.uint8)
    hold(Case("MatMulInteger", 10, (BYTES, MORE, None, zeros), ("matmul_integer",)))


def test_the_newest_einsum_of_integers_of_8_bits() -> None:
    model = model_of(Case("Einsum", 28, (BYTES, MORE), (), {"equation": "ij,jk->ik"}))
    model.ir_version = onnx.IR_VERSION
    found = np.einsum("ij,jk->ik", BYTES, MORE)
    graph = imported(model)
    compare(evaluated(graph, feeds_of(BYTES, MORE)), [found])
    assert op_names(graph) == ["einsum"]


# ---- MatMulNBits


def coded(
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
    """A matmul of three rows, and what it is fed."""
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
    made, feeds = coded(inner, 5, block, bits=bits, has_zero=has_zero, has_bias=has_bias)
    graph = imported(made)
    assert op_names(graph) == ["dequantize_linear", "matmul", *(["add"] if has_bias else [])]
    compare(evaluated(graph, feeds), runtime_of(made, feeds))


def test_weights_that_are_not_known_stay_an_operator() -> None:
    made, _ = coded(64, 5, 32, known=False)
    assert op_names(imported(made, native=False)) == ["com.microsoft.MatMulNBits"]


def test_columns_in_another_order_stay_an_operator() -> None:
    made, _ = coded(64, 5, 32, order=np.arange(64, dtype=np.int32)[::-1] // 32)
    assert op_names(imported(made, native=False)) == ["com.microsoft.MatMulNBits"]
