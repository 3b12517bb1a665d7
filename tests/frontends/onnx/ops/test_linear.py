"""Matrix products in and out of ONNX."""

import numpy as np
import onnx
import pytest

from tests.frontends.onnx.ops.operator_cases import Case, hold, model_of
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, feeds_of, imported, op_names
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
def test_products_there_and_back(case: Case, symbols: bool) -> None:
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
