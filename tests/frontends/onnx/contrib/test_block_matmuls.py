"""Matmuls with weights in blocks: one operator that computes with floats, and as it came where it came so."""

from dataclasses import dataclass

import capgraph
import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import IN_FILES, ON_CUDA, OPERATORS
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph
from capgraph.ir.types import DType
from onnx import helper, numpy_helper

from tests.frontends.onnx.contrib.written import operators
from tests.frontends.onnx.ops.there_and_back import runtime_of

SIZES = [(64, 5, 32), (70, 7, 16), (300, 65, 128), (40, 3, 256)]
"""Of the inner axis, the columns and a block: whole blocks, part of one behind others, and part of one alone."""

ERRORS = {DType.F32: 2e-6, DType.F16: 2e-3}
"""Of the greatest number; with operands of 8 bits it is 1e-2."""


@dataclass(frozen=True)
class Case:
    """A matmul of three rows, what it is fed and what exact numbers make of it."""

    graph: Graph
    feeds: dict[str, Array]
    exact: Array

    def error(self, found: Array) -> float:
        """The greatest error, as a part of the greatest number."""
        return float(np.abs(found.astype(np.float64) - self.exact).max() / np.abs(self.exact).max())


def case(
    sizes: tuple[int, int, int] = SIZES[0],
    *,
    codes: DType = DType.U4,
    has_zero: bool = False,
    form: str = "matmul",
    dtype: DType = DType.F32,
    scale_dtype: DType | None = None,
) -> Case:
    """`form`: a matmul, one with a bias that is added ("add") or taken by a gemm, or one whose result is halved.

    A block of 0 is a scale for each column, and one of -1 a scale for all.
    """
    (inner, columns, block), random, b = sizes, np.random.default_rng(0), Builder("g")
    low = 0 if codes in (DType.U4, DType.U8) else -(1 << codes.bits - 1)
    numbers = [
        random.integers(low, low + (1 << codes.bits), shape)
        for shape in ((inner, columns), (-(-inner // block), columns) if block > 0 else (columns,) * (1 + block))
    ]
    scales = (random.random(numbers[1].shape) * 0.1 + 0.01).astype((scale_dtype or dtype).numpy)
    rows = random.standard_normal((3, inner)).astype(dtype.numpy)
    bias = random.standard_normal(columns).astype(dtype.numpy)
    weight = b.op(
        "dequantize_linear",
        b.constant(numbers[0].astype(codes.numpy), codes),
        b.constant(scales),
        b.constant(numbers[1].astype(codes.numpy), codes) if has_zero else None,
        to=dtype, axis=int(not block), block_size=max(block, 0),
    )  # fmt: skip
    x, (low_of, scale_of) = (
        b.input("x", f"{dtype}[3, {inner}]"),
        (np.repeat(each, block, 0)[:inner] if block > 0 else each for each in (numbers[1] * has_zero, scales)),
    )
    exact = rows.astype(np.float64) @ ((numbers[0] - low_of) * scale_of.astype(np.float64))
    if form == "gemm":
        y = b.op("gemm", x, weight, b.constant(bias), alpha=1.0, beta=1.0, trans_a=False, trans_b=False)
    else:
        y = b.op("matmul", x, weight)
    if form == "add":
        y = b.op("add", b.constant(bias), y)
    if form == "halved":
        y = b.op("mul", y, b.constant(0.5, dtype))
    wanted = {"matmul": exact, "halved": exact / 2}.get(form, exact + bias.astype(np.float64))
    return Case(b.finish({"y": y}), {"x": rows}, wanted)


def for_ort(graph: Graph, **options: object) -> onnx.ModelProto:
    return export_model(graph, dialect=Dialect.ORT, **options)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
@pytest.mark.parametrize(
    ("codes", "has_zero"), [(DType.U4, False), (DType.U4, True), (DType.I4, False), (DType.I4, True)]
)
@pytest.mark.parametrize("form", ["matmul", "add", "gemm"])
@pytest.mark.parametrize("sizes", [*SIZES, (70, 7, 0), (3, 2, -1), (64, 5, -1)])
def test_one_operator_that_computes_with_floats(sizes, form, codes, has_zero, dtype):
    made = case(sizes, codes=codes, has_zero=has_zero, form=form, dtype=dtype)
    model = for_ort(made.graph)
    assert operators(model) == [".MatMulNBits"]
    assert made.error(runtime_of(model, made.feeds)[0]) < ERRORS[dtype]


@pytest.mark.parametrize("block", [32, 0, -1])
@pytest.mark.parametrize("form", ["matmul", "add", "gemm"])
def test_executor_ort_computes_with_floats(form, block):
    made = case((64, 5, block), form=form, has_zero=True)
    found = capgraph.optimize(made.graph, executor="ort").run(made.feeds)["y"]
    assert made.error(found) < ERRORS[DType.F32]


def test_symmetric_codes_need_no_zero_points():
    assert len(for_ort(case(codes=DType.I4).graph).graph.node[0].input) == 3
    assert len(for_ort(case(codes=DType.U4).graph).graph.node[0].input) == 4


@pytest.mark.parametrize("form", ["add", "gemm"])
def test_a_bias_is_added_by_itself_where_the_operator_may_have_none(form):
    made = case(form=form)
    model = for_ort(made.graph, opset=21)
    assert operators(model) == [".MatMulNBits", "Add"]
    assert made.error(runtime_of(model, made.feeds)[0]) < ERRORS[DType.F32]


def test_a_scale_behind_it_stays_apart():
    made = case(form="halved")
    model = for_ort(made.graph, operators=OPERATORS)
    assert operators(model) == [".MatMulNBits", "Mul"]
    assert made.error(runtime_of(model, made.feeds)[0]) < ERRORS[DType.F32]


def test_what_the_operator_has_not_stays():
    plain = ["DequantizeLinear", "MatMul"]
    assert operators(for_ort(case((64, 5, 8)).graph)) == plain
    assert operators(for_ort(case((96, 5, 48)).graph)) == plain
    assert operators(for_ort(case(codes=DType.U8).graph)) == plain
    assert operators(for_ort(case(dtype=DType.F16, scale_dtype=DType.F32).graph)) == plain
    assert operators(export_model(case().graph, dialect=Dialect.STANDARD)) == plain
    assert operators(for_ort(case().graph, operators=ON_CUDA)) == plain


def test_a_weight_that_others_read_stays():
    made = case()
    weight = made.graph.outputs[0].producer.operands[1]
    made.graph.set_outputs([*made.graph.outputs, weight], ["y", "w"])
    assert operators(for_ort(made.graph)) == ["DequantizeLinear", "MatMul"]


# ---- models that come with it


def coming(bits: int, level: int, *, has_bias: bool, zero: Array | None) -> onnx.ModelProto:
    """A model of opset 17 whose one node is the operator."""
    random, names = np.random.default_rng(0), ["A", "B", "scales", "zero" if zero is not None else ""]
    contents = {
        "B": random.integers(0, 256, (5, 3, 32 * bits // 8)).astype(np.uint8),
        "scales": random.random(15).astype(np.float32),
        **({} if zero is None else {"zero": zero}),
        **({"bias": random.random(5).astype(np.float32)} if has_bias else {}),
    }
    names += ["", "bias"] if has_bias else []
    node = helper.make_node(
        "MatMulNBits", names if zero is not None or has_bias else names[:3], ["y"], domain="com.microsoft",
        K=96, N=5, bits=bits, block_size=32, accuracy_level=level,
    )  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, 1, ["R", size]) for name, size in (("A", 96), ("y", 5)))
    graph = helper.make_graph(
        [node], "g", [x], [y], [numpy_helper.from_array(*pair[::-1]) for pair in contents.items()]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def contents(model: onnx.ModelProto) -> list[Array | None]:
    """The operands of the one node behind the first."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return [found.get(name) for name in model.graph.node[0].input[1:]]


ZEROS = {4: [0x21, 0x03] * 5, 8: range(15)}


@pytest.mark.parametrize("target", ["ort", "standard"])
@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bits", [4, 8])
def test_it_goes_out_as_it_came(tmp_path, bits, level, has_bias, has_zero, target):
    zero = np.array(ZEROS[bits], np.uint8) if has_zero else None
    model = coming(bits, level, has_bias=has_bias, zero=zero)
    program = capgraph.optimize(model, executor="ort")
    program.save_onnx(tmp_path / "first.onnx", target=target)
    again = capgraph.optimize(tmp_path / "first.onnx", executor="ort")
    again.save_onnx(tmp_path / "again.onnx", target="ort")
    back = onnx.load(tmp_path / "again.onnx")
    assert operators(back) == [".MatMulNBits"]
    attributes = {attribute.name: attribute.i for attribute in back.graph.node[0].attribute}
    assert attributes.pop("accuracy_level", 0) == level
    assert attributes == {"K": 96, "N": 5, "bits": bits, "block_size": 32}
    for one, other in zip(contents(back), contents(model), strict=True):
        np.testing.assert_array_equal(one, other)
    if target == "ort":
        assert {entry.domain: entry.version for entry in back.opset_import} == {"": 17, "com.microsoft": 1}
    rows = np.random.default_rng(1).standard_normal((3, 96)).astype(np.float32)
    wanted = runtime_of(model, {"A": rows})[0]
    np.testing.assert_allclose(runtime_of(back, {"A": rows})[0], wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(program.run({"A": rows})["y"], wanted, rtol=1e-6, atol=1e-6)


def test_files_get_it():
    model = import_model(coming(4, 0, has_bias=False, zero=None)).graph
    assert operators(for_ort(model, operators=IN_FILES)) == [".MatMulNBits"]
