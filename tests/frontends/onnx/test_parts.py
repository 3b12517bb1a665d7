"""Ops that are newer than the opset being written, as their parts: the same numbers in ONNX Runtime and here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.exporting.parts import PARTS
from capgraph.frontends.onnx.files.metadata import written_as_parts
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph

from tests.frontends.onnx.ops.there_and_back import compare, runtime_of

FORMS: dict[str, list[tuple[list[str], Mapping[str, Any]]]] = {
    "attention": [
        (["f32[B, 4, T, 8]", "f32[B, 4, S, 8]", "f32[B, 4, S, 6]"], {}),
        (
            ["f32[2, T, 32]", "f32[2, S, 16]", "f32[2, S, 12]"],
            {"heads": 4, "kv_heads": 2, "scale": 0.3, "causal": True},
        ),
        (["f32[B, 4, T, 8]", "f32[B, 2, S, 8]", "f32[B, 2, S, 8]", "bool[T, S]"], {"softcap": 2.0}),
        (["f32[2, 4, 3, 8]", "f32[2, 4, 5, 8]", "f32[2, 4, 5, 8]", "f32[2, 1, 3, 5]"], {"causal": True, "scale": 1.0}),
        (["f32[B, 4, T, 8]", "f32[B, 4, S, 8]", "f32[B, 4, S, 8]", "f32[S]", "i64[B]"], {}),
        (["f32[B, 4, T, 8]", "f32[B, 4, S, 8]", "f32[B, 4, S, 8]", "", "i64[B]"], {"causal": True}),
        (["f32[B, T, 8]", "f32[B, S, 8]", "f32[B, S, 6]", "f32[T, S]"], {"heads": 1, "kv_heads": 1}),
        (["f32[B, T, 8]", "f32[B, S, 8]", "f32[B, S, 6]", "f32[B, 1, T, S]"], {"heads": 1, "kv_heads": 1}),
    ],
    "celu": [(["f32[B, 3]"], {}), (["f32[3]"], {"alpha": 2.5})],
    "gelu": [(["f32[B, 3]"], {}), (["f32[3]"], {"approximate": "tanh"})],
    "greater_equal": [(["i32[B, 3]", "i32[3]"], {})],
    "group_norm": [(["f32[B, 4, H]", "f32[4]", "f32[4]"], {"groups": 2})],
    "hard_swish": [(["f32[B, 3]"], {})],
    "layer_norm": [
        (["f32[B, T, 6]", "f32[6]", "f32[6]"], {}),
        (["f32[B, 3, 6]"], {"axis": 1, "epsilon": 0.1}),
        (["f16[2, 6]", "f16[6]"], {}),
        (["f32[B, 6]"], {"epsilon": 0.0}),
    ],
    "less_equal": [(["i64[B, 3]", "i64[3]"], {})],
    "mish": [(["f32[B, 3]"], {})],
    "rms_norm": [(["f32[B, T, 6]", "f32[6]"], {}), (["f16[B, 3, 6]"], {"axis": 1})],
    "rotary_embedding": [
        (["f32[B, 4, T, 8]", "f32[B, T, 4]", "f32[B, T, 4]"], {}),
        (["f32[B, T, 32]", "f32[7, 4]", "f32[7, 4]", "i64[B, T]"], {"heads": 4, "interleaved": True}),
        (["f32[2, 4, 3, 8]", "f32[2, 3, 2]", "f32[2, 3, 2]"], {"rotary_dim": 4}),
        (["f16[2, 4, 3, 8]", "f32[2, 3, 4]", "f32[2, 3, 4]"], {}),
    ],
    "trilu": [
        (["f32[B, T, S]"], {}),
        (["i64[3, 4]"], {"upper": False, "diagonal": 1}),
        (["f32[T, S]"], {"upper": False, "diagonal": -1}),
    ],
}
SIZES = {"B": 2, "T": 3, "S": 5, "H": 6}


def of_one_node(op: str, types: list[str], attrs: Mapping[str, Any]) -> Graph:
    b = Builder()
    operands = [b.input(f"x{index}", ty) if ty else None for index, ty in enumerate(types)]
    operands += [None] * 5
    count = {"attention": 5, "layer_norm": 3, "rms_norm": 2, "rotary_embedding": 4}.get(op, len(types))
    return b.finish({"y": b.op(op, *operands[:count], **attrs)})


def drawn(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    found = []
    for value in graph.inputs:
        shape = [SIZES.get(str(dim), dim) for dim in value.shape]
        kind = value.tensor.dtype.numpy.kind
        array = rng.standard_normal(shape) * 2 if kind == "f" else rng.integers(0, 2 if kind == "b" else 4, shape)
        found.append(array.astype(value.tensor.dtype.numpy))
    return found


CASES = [(op, *form) for op, forms in FORMS.items() for form in forms]


def test_every_op_with_parts_is_tried() -> None:
    assert FORMS.keys() == PARTS.keys()


@pytest.mark.parametrize("dialect", [Dialect.STANDARD, Dialect.FAITHFUL])
@pytest.mark.parametrize(("op", "types", "attrs"), CASES, ids=[f"{op}-{index}" for index, (op, *_) in enumerate(CASES)])
def test_parts_give_the_numbers_of_the_op(
    op: str, types: list[str], attrs: Mapping[str, Any], dialect: Dialect
) -> None:
    graph = of_one_node(op, types, attrs)
    arrays = drawn(graph)
    wanted = evaluate_graph(graph, arrays)
    oldest = 11 if op in ("attention", "rotary_embedding", "trilu") else 9  # Range, and Slice with steps
    for opset in (oldest, PARTS[op].since - 1):
        model = export_model(graph, opset=opset, dialect=dialect)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
        assert written_as_parts(model)[op] == 1
        feeds = dict(zip((value.name for value in graph.inputs), arrays, strict=True))
        tolerance = 1e-2 if "f16" in types[0] else 1e-4
        for found in (runtime_of(model, feeds), evaluate_graph(import_model(model).graph, arrays)):
            np.testing.assert_allclose(found[0], wanted[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", PARTS)
def test_where_the_operator_is_there_it_is_written(op: str) -> None:
    types, attrs = FORMS[op][0]
    model = export_model(of_one_node(op, types, attrs), opset=PARTS[op].since)
    assert len(model.graph.node) <= 2  # an expanded scale
    assert written_as_parts(model) == {}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("ty", ["bool[T, S]", "f32[T, S]"])
def test_a_query_that_sees_no_key_gives_zeros_in_parts_too(ty: str, causal: bool) -> None:
    types = ["f32[1, 1, T, 4]", "f32[1, 1, S, 4]", "f32[1, 1, S, 4]", ty]
    graph = of_one_node("attention", types, {"causal": causal})
    q, k, v, mask = drawn(graph)
    mask = np.ones(mask.shape, np.bool_) if "bool" in ty else np.zeros_like(mask)
    mask[1, : 2 if causal else None] = False if "bool" in ty else -np.inf  # causal hides those behind from it
    model = export_model(graph, opset=17)
    (found,) = runtime_of(model, {"x0": q, "x1": k, "x2": v, "x3": mask})
    compare([found], evaluate_graph(graph, [q, k, v, mask]))
    assert not found[0, 0, 1].any()


@pytest.mark.parametrize("dialect", [Dialect.STANDARD, Dialect.ORT])
@pytest.mark.parametrize(
    ("dtype", "mask", "is_in_parts"),
    [
        ("f64", "", True),
        ("f64", "bool", True),
        ("f32", "f64", True),
        ("f16", "f32", True),
        ("f32", "f32", False),
        ("f32", "bool", False),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_a_kernel_is_written_in_parts(
    dialect: Dialect, dtype: str, mask: str, is_in_parts: bool, causal: bool
) -> None:
    """ONNX Runtime would run a body that starts at the first key and knows no zeros of who sees nothing."""
    types = [f"{dtype}[2, 1, 3, 4]", *[f"{dtype}[2, 1, 5, 4]"] * 2, mask and f"{mask}[3, 5]", "i64[2]"]
    graph = of_one_node("attention", types, {"causal": causal})
    feeds = dict(zip((value.name for value in graph.inputs), drawn(graph), strict=True))
    feeds["x4"] = np.array([2, 4])
    if mask:
        feeds["x3"][1] = False if mask == "bool" else -np.inf
    model = export_model(graph, dialect=dialect)
    assert ("Attention" not in [node.op_type for node in model.graph.node]) is is_in_parts
    tolerance = 1e-2 if dtype == "f16" else 1e-4
    (found,), (wanted,) = runtime_of(model, feeds), evaluate_graph(graph, list(feeds.values()))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    assert "Attention" in [node.op_type for node in export_model(graph).graph.node]


def test_what_causal_shows_is_written_once_for_all_layers() -> None:
    b = Builder()
    x = b.input("x", "f32[2, 2, T, 8]")
    once = b.op("attention", x, x, x, None, None, causal=True)
    y = b.op("attention", once, x, x, None, None, causal=True)
    nodes = [node.op_type for node in export_model(b.finish({"y": y}), opset=17).graph.node]
    assert nodes.count("Range") == 2
    assert nodes.count("LessOrEqual") == 1
    assert nodes.count("Softmax") == 2


def test_parts_share_their_constants() -> None:
    b = Builder()
    x = b.input("x", "f32[3]")
    model = export_model(b.finish({"y": b.op("gelu", b.op("gelu", x))}), opset=17)
    assert len(model.graph.initializer) == 3


@pytest.mark.parametrize(
    ("op", "attrs", "count"),
    [
        ("gelu", {"approximate": "tanh"}, 8),  # as exporters write it
        ("layer_norm", {"epsilon": 1e-5}, 7),
        ("layer_norm", {"epsilon": 0.0}, 6),
    ],
)
def test_parts_are_no_more_nodes_than_they_need(op, attrs, count):
    model = export_model(of_one_node(op, ["f32[B, 6]"], attrs), opset=11, dialect=Dialect.STANDARD)
    assert len(model.graph.node) == count


def test_attention_with_one_head_has_no_heads_to_part():
    types = ["f32[B, T, 8]", "f32[B, S, 8]", "f32[B, S, 8]"]
    graph = of_one_node("attention", types, {"heads": 1, "kv_heads": 1})
    kinds = [node.op_type for node in export_model(graph, opset=14, dialect=Dialect.STANDARD).graph.node]
    assert sorted(kinds) == ["MatMul", "MatMul", "Mul", "Softmax", "Transpose"]
