"""Which matmuls have operands of 8 bits, and that fusion takes in what dequantizes them, where a backend wants it."""

from collections.abc import Sequence

import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse
from capgraph.passes.fuse.scaled_operands import scaled_operands


def scaled_matmul(a: str, b: str, scales: tuple[str, str] = ("f32[]", "f32[1]"), zero: str = "") -> Graph:
    b_ = Builder()
    factors = []
    for name, dtype, scale in (("a", a, scales[0]), ("b", b, scales[1])):
        operands = [b_.input(name, f"{dtype}[4, 4]"), b_.input(f"{name}_scale", scale), None]
        if zero:
            operands[2] = b_.input(f"{name}_zero", f"{dtype}{zero}")
        factors.append(b_.op("dequantize_linear", *operands, to="f16"))
    return b_.finish({"y": b_.op("matmul", *factors)})


def fused(graph: Graph) -> list[list[str]]:
    Pipeline(((Fuse(scaled_operands=True),),)).run(graph, check="structure")
    bodies: Sequence[Graph] = [node.attrs["body"] for node in graph.nodes if node.op.name == "fused"]
    return [[node.op.name for node in body.nodes if node.inputs] for body in bodies]


@pytest.mark.parametrize(("a", "b"), [("f8e4m3fn", "f8e4m3fn"), ("f8e5m2", "f8e4m3fn"), ("i8", "i8")])
def test_a_matmul_takes_in_what_dequantizes_its_operands(a: str, b: str) -> None:
    graph = scaled_matmul(a, b)
    (matmul,) = (node for node in graph.nodes if node.op.name == "matmul")
    assert [node.op.name for node in scaled_operands(matmul)] == ["dequantize_linear"] * 2
    assert fused(graph) == [["dequantize_linear", "dequantize_linear", "matmul"]]


@pytest.mark.parametrize(
    "graph",
    [
        scaled_matmul("f8e4m3fn", "i8"),
        scaled_matmul("u8", "u8"),
        scaled_matmul("f8e4m3fnuz", "f8e4m3fnuz"),
        scaled_matmul("i8", "i8", ("f32[4]", "f32[]")),
        scaled_matmul("i8", "i8", ("f32[]", "f32[]"), "[]"),
    ],
    ids=["mixed", "unsigned", "other-floats", "along-the-sum", "zero-points"],
)
def test_other_factors_stay_outside(graph: Graph) -> None:
    assert fused(graph) == []


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("axes", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_scales_may_lie_along_rows_and_columns_but_not_along_the_sum(
    trans_a: bool, trans_b: bool, axes: tuple[int, int]
) -> None:
    b = Builder()
    a8, a_scale, b8, b_scale = (b.input(name, ty) for name, ty in zip("aubv", ("i8[4, 4]", "f32[4]") * 2, strict=True))
    x = b.op("dequantize_linear", a8, a_scale, None, to="f32", axis=axes[0])
    w = b.op("dequantize_linear", b8, b_scale, None, to="f32", axis=axes[1])
    graph = b.finish({"y": b.op("gemm", x, w, None, trans_a=trans_a, trans_b=trans_b)})
    assert bool(fused(graph)) == (axes == (int(trans_a), 1 - int(trans_b)))


def test_scales_along_columns_of_a_weight_that_is_turned() -> None:
    for axis, is_taken in ((0, True), (1, False)):
        b = Builder()
        x = b.op("dequantize_linear", b.input("a", "i8[4, 4]"), b.input("s", "f32[]"), None, to="f32")
        w = b.op("dequantize_linear", b.input("b", "i8[4, 4]"), b.input("t", "f32[4]"), None, to="f32", axis=axis)
        graph = b.finish({"y": b.op("matmul", x, b.op("transpose", w, perm=(1, 0)))})
        assert bool(fused(graph)) == is_taken


def test_nothing_is_taken_in_unless_a_backend_asks() -> None:
    graph = scaled_matmul("i8", "i8")
    Pipeline(((Fuse(),),)).run(graph)
    assert "fused" not in {node.op.name for node in graph.nodes}


TURNED = """
    graph @main(%a: f8e4m3fn[B, 16], %b: f8e4m3fn[8, 16], %s: f32[], %c: f16[8]) {
      %z: f8e4m3fn[] = constant() {value = dense<f8e4m3fn[]: 0.0>}
      %x: f16[B, 16] = dequantize_linear(%a, %s, %z) {to = f16}
      %w: f16[8, 16] = dequantize_linear(%b, %s, _) {to = f16}
      %t: f16[16, 8] = transpose(%w) {perm = [1, 0]}
      %p: f16[B, 8] = matmul(%x, %t)
      %q: f16[B, 8] = add(%p, %c)
      %y: f16[B, 8] = relu(%q)
      return %y
    }
    """


def test_a_transpose_and_zero_points_of_zero_are_taken_in_with_what_follows() -> None:
    graph = parse(TURNED)
    Pipeline(((Fuse(scaled_operands=True),),)).run(graph, check="numeric")
    assert [node.op.name for node in graph.nodes if node.inputs] == ["fused"]


SHARED = """
    graph @main(%a: i8[B, 16], %b: i8[16, 8], %c: i8[16, 4], %s: f32[]) {
      %x: f32[B, 16] = dequantize_linear(%a, %s, _) {to = f32}
      %w: f32[16, 8] = dequantize_linear(%b, %s, _) {to = f32}
      %v: f32[16, 4] = dequantize_linear(%c, %s, _) {to = f32}
      %p: f32[B, 8] = matmul(%x, %w)
      %q: f32[B, 4] = matmul(%x, %v)
      return %p, %q
    }
    """


def test_matmuls_that_share_an_operand_dequantize_it_each() -> None:
    graph = parse(SHARED)
    Pipeline(((Fuse(scaled_operands=True),),)).run(graph, check="numeric")
    assert [node.op.name for node in graph.nodes] == ["fused", "fused"]
    assert fused(graph) == [["dequantize_linear", "dequantize_linear", "matmul"]] * 2


@pytest.mark.parametrize("output", ["%x", "%e"])
def test_a_factor_that_something_else_reads_stays_outside(output: str) -> None:
    text = SHARED.replace("return %p, %q", f"%e: f32[B, 16] = exp(%x)\n return %p, %q, {output}")
    graph = parse(text)
    assert not any("dequantize_linear" in body for body in fused(graph))


def test_a_matrix_times_itself_is_dequantized_once() -> None:
    b = Builder()
    x = b.op("dequantize_linear", b.input("a", "i8[4, 4]"), b.input("s", "f32[]"), None, to="f32")
    assert fused(b.finish({"y": b.op("matmul", x, x)})) == [["dequantize_linear", "matmul"]]


def coded(rows: int, matmuls: int = 1) -> Graph:
    """Matmuls of one value with one weight in codes."""
    b = Builder()
    x = b.input("x", f"f16[{rows}, 4]")
    codes, scale = b.constant(np.ones((4, 4), np.int8)), b.constant(np.ones(4, np.float16))
    weight = b.op("dequantize_linear", codes, scale, None, to="f16")
    return b.finish({f"y{i}": b.op("matmul", x, weight) for i in range(matmuls)})


@pytest.mark.parametrize(("rows", "matmuls", "expected"), [(1, 1, 1), (4, 2, 2), (5, 1, 0), (5, 2, 0)])
def test_few_rows_take_in_what_dequantizes_their_weight(rows: int, matmuls: int, expected: int) -> None:
    graph = coded(rows, matmuls)
    Pipeline(((Fuse(scaled_operands=True, normed_rows=4),),)).run(graph, check="structure")
    bodies: Sequence[Graph] = [node.attrs["body"] for node in graph.nodes if node.op.name == "fused"]
    names = [[node.op.name for node in body.nodes if node.inputs] for body in bodies]
    assert names == [["dequantize_linear", "matmul"]] * expected
    alone = [node for node in graph.nodes if node.op.name == "dequantize_linear"]
    assert len(alone) == (0 if expected else 1)
