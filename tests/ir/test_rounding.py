from capgraph.ir.analysis.contents import ROUNDS_ALL, ROUNDS_NOTHING, Tf32
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph


def graph_of(dtype: str) -> Graph:
    """A convolution, a matmul and a cell."""
    b = Builder()
    square, image = b.input("a", f"{dtype}[8, 8]"), b.input("x", f"{dtype}[1, 3, 8, 8]")
    pads = (1, 1, 1, 1)
    kernel = b.input("w", f"{dtype}[4, 3, 3, 3]")
    convolved = b.op("conv", image, kernel, None, strides=(1, 1), pads=pads, dilations=(1, 1))
    steps, weight = b.input("s", f"{dtype}[5, 2, 8]"), b.input("r", f"{dtype}[1, 8, 8]")
    y, _last = b.ops("rnn", steps, weight, weight, None, None, None)
    return b.finish({"y": y, "p": b.op("matmul", square, square), "c": convolved})


def test_each_kind_of_work_has_its_own_word() -> None:
    named = {node.op.name: node for node in graph_of("f32").nodes}
    cell, matmul, convolution = named["rnn"], named["matmul"], named["conv"]
    rounded = Tf32(convolutions=True)
    assert [rounded.allows(node) for node in (cell, matmul, convolution)] == [False, False, True]
    assert str(rounded) == "convolutions"
    assert [Tf32(cells=True).allows(node) for node in (cell, matmul, convolution)] == [True, False, False]
    assert [Tf32(matmuls=True).allows(node) for node in (cell, matmul, convolution)] == [False, True, False]
    assert str(ROUNDS_ALL) == "matmuls, convolutions, recurrent cells"


def test_a_region_rounds_as_its_heavy_node() -> None:
    b = Builder()
    inner = b.region("body")
    a = inner.input("a", "f32[8, 8]")
    body = inner.finish({"y": inner.op("relu", inner.op("matmul", a, a))})
    b.finish({"y": b.op("fused", b.input("x", "f32[8, 8]"), body=body)})
    (node,) = b.graph.nodes
    assert Tf32(matmuls=True).allows(node)
    assert not Tf32(convolutions=True, cells=True).allows(node)


def test_what_a_graph_does_not_have_in_f32_is_not_rounded() -> None:
    assert ROUNDS_ALL.within(graph_of("f32")) == ROUNDS_ALL
    assert Tf32(matmuls=True).within(graph_of("f32")) == Tf32(matmuls=True)
    assert ROUNDS_ALL.within(graph_of("f16")) == ROUNDS_NOTHING
