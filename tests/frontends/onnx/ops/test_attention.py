"""Attention and rotary embedding in and out of ONNX: both forms, caches, masks."""

from typing import Any

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.builder import Builder
from capgraph.ir.errors import ModelError
from capgraph.ir.evaluate import evaluate_graph

from tests.frontends.onnx.ops.there_and_back import (
    check,
    compare,
    evaluated,
    feeds_of,
    imported,
    op_names,
    reference,
    runtime_of,
    with_symbols,
)
from tests.ir.ops.onnx_oracle import Array, assert_close, one_node, random


def operands(*, flat: bool, past: int = 0, heads: int = 4, groups: int = 2) -> list[Array | None]:
    """Queries, keys, values, no mask, and past keys and values: 2 samples, 3 new positions, head sizes 4 and 5."""
    if flat:
        q, k, v = (random(seed, 2, 3, size) for seed, size in enumerate((heads * 4, groups * 4, groups * 5)))
    else:
        shapes = ((heads, 4), (groups, 4), (groups, 5))
        q, k, v = (random(seed, 2, count, 3, size) for seed, (count, size) in enumerate(shapes))
    cache = [random(7, 2, groups, past, 4), random(8, 2, groups, past, 5)] if past else []
    return [q, k, v, None, *cache]


def attrs_of(flat: bool, **more: Any) -> dict[str, Any]:
    return ({"q_num_heads": 4, "kv_num_heads": 2} if flat else {}) | more


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [0, 2])
def test_attention_with_and_without_a_cache(flat, causal, past, opset):
    inputs = operands(flat=flat, past=past)
    attrs = attrs_of(flat, is_causal=causal, softcap=3.0)
    model = one_node("Attention", inputs, 3 if past else 1, opset, attrs)
    graph = check(model, feeds_of(*inputs))
    assert op_names(graph).count("attention") == 1


def test_symbolic_sizes_stay_exact():
    inputs = operands(flat=True, past=2)
    model = one_node("Attention", inputs, 3, 24, attrs_of(True, is_causal=1))
    for index, axes in {0: "bt", 1: "bt", 2: "bt", 4: "b_p", 5: "b_p"}.items():
        value = next(value for value in model.graph.input if value.name == f"x{index}")
        for axis, name in enumerate(axes):
            if name != "_":
                value.type.tensor_type.shape.dim[axis].dim_param = name
    graph = check(model, feeds_of(*inputs))
    assert [str(value.type) for value in graph.outputs] == [
        "f32[b, t, 20]",
        "f32[b, 2, p + t, 4]",
        "f32[b, 2, p + t, 5]",
    ]


@pytest.mark.parametrize("kind", ["bool", "float", "int64"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 1, 3, 5), (1, 5), (3, 4), (2, 4, 3, 2)])
def test_masks_even_those_that_end_early(kind, shape):
    inputs = operands(flat=False, past=2)
    chosen = np.random.default_rng(1).random(shape) < 0.7
    inputs[3] = chosen if kind == "bool" else random(3, *shape) if kind == "float" else chosen.astype(np.int64)
    model = one_node("Attention", inputs, 3, 24, {})
    if kind == "int64":
        imported(model)  # the reference takes no integers
    else:
        check(model, feeds_of(*inputs))


@pytest.mark.parametrize("causal", [0, 1])
def test_a_cache_kept_outside(causal):
    inputs = [*operands(flat=False), None, None, np.array([3, 1])]
    inputs[0] = random(0, 2, 4, 1, 4)
    model = one_node("Attention", inputs, 1, 24, {"is_causal": causal})
    assert op_names(check(model, feeds_of(*inputs))) == ["attention"]


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(("batch", "lengths"), [("2", [1]), ("2", [3, 1]), ("B", [3, 1])])
def test_as_many_lengths_as_come_are_written_without_a_reshape(batch: str, lengths: list[int], causal: int) -> None:
    """The shape of as many as samples failed for one length for all of them, which ONNX Runtime takes of doubles."""
    operands = ", ".join(f"double[{batch},4,3,4] {name}" for name in "qkv")
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 24]>
        g ({operands}, int64[L] lengths) => (double[?,?,?,?] y)
        {{ y = Attention <is_causal = {causal}> (q, k, v, "", "", "", lengths) }}""")
    feeds = {name: random(seed, 2, 4, 3, 4).astype(np.float64) for seed, name in enumerate("qkv")}
    feeds["lengths"] = np.array(lengths)
    graph = imported(model)
    written = export_model(graph, dialect=Dialect.STANDARD)
    assert "Reshape" not in [node.op_type for node in written.graph.node]
    compare(runtime_of(written, feeds), evaluated(graph, feeds))


@pytest.mark.parametrize(
    ("attrs", "outputs"),
    [({"qk_matmul_output_mode": 1}, 4), ({"softmax_precision": 10}, 1), ({"left_window_size": 2}, 1)],
)
def test_what_the_native_op_has_not_is_left_to_the_function_body(attrs, outputs):
    inputs = operands(flat=False)
    opset = 25 if "left_window_size" in attrs else 24
    names = op_names(imported(one_node("Attention", inputs, outputs, opset, attrs), native=False))
    assert "attention" not in names
    assert "onnx.Attention" not in names


@pytest.mark.parametrize("scale", [-0.5, 0.0, 1e-50])
@pytest.mark.parametrize(("dtype", "dialect"), [("f32", Dialect.STANDARD), ("f64", Dialect.FAITHFUL)])
def test_a_scale_whose_root_onnx_cannot_take_is_written_as_a_product(
    scale: float, dtype: str, dialect: Dialect
) -> None:
    b = Builder()
    x = b.input("x", f"{dtype}[2, 2, 3, 4]")
    graph = b.finish({"y": b.op("attention", x, x, x, None, None, scale=scale)})
    model = export_model(graph, dialect=dialect)
    assert [node.op_type for node in model.graph.node] == ["Mul", "Attention"]
    given = {"x": random(1, 2, 2, 3, 4).astype(x.tensor.dtype.numpy)}
    compare(runtime_of(model, given), evaluated(graph, given))
    compare(evaluated(import_model(model).graph, given), evaluated(graph, given))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("has_positions", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotary", [0, 2])
def test_rotary_embedding(flat, has_positions, interleaved, rotary):
    x = random(1, 2, 3, 8) if flat else random(1, 2, 2, 3, 4)
    table = (7, (rotary or 4) // 2) if has_positions else (2, 3, (rotary or 4) // 2)
    positions = np.random.default_rng(1).integers(0, 7, (2, 3)) if has_positions else None
    inputs = [x, random(2, *table), random(3, *table), positions]
    attrs = {"interleaved": interleaved, "num_heads": 2, "rotary_embedding_dim": rotary}
    model = one_node("RotaryEmbedding", inputs, 1, 23, attrs)
    graph = check(model, feeds_of(*inputs))
    assert op_names(graph) == ["rotary_embedding"]


def test_rotary_embedding_with_symbolic_batch_and_length():
    inputs = [random(1, 2, 2, 3, 4), random(2, 7, 2), random(3, 7, 2), np.array([[0, 1, 2], [4, 5, 6]])]
    model = with_symbols(one_node("RotaryEmbedding", inputs, 1, 23, {}), ["x0"])
    assert np.shape(reference(model, feeds_of(*inputs))[0]) == (2, 2, 3, 4)
    check(model, feeds_of(*inputs))


@pytest.mark.parametrize("causal", [False, True])
def test_variable_length_attention_is_written_as_attention_of_padded_queries(causal: bool) -> None:
    b = Builder()
    q, k, v = b.input("q", "f32[N, 4, 8]"), b.input("k", "f32[R, S, 2, 8]"), b.input("v", "f32[R, S, 2, 6]")
    counts, lengths, limit = b.input("counts", "i64[R]"), b.input("lengths", "i64[R]"), b.input("limit", "bool[T]")
    y = b.op("varlen_attention", q, k, v, counts, lengths, longest=limit.shape[0], causal=causal)
    graph = b.finish({"y": y})
    again = import_model(export_model(graph)).graph
    assert "attention" in op_names(again)
    assert "varlen_attention" not in op_names(again)
    inputs = [
        random(1, 6, 4, 8),
        random(2, 3, 5, 2, 8),
        random(3, 3, 5, 2, 6),
        np.array([3, 0, 2]),
        np.array([4, 0, 5]),
    ]
    inputs.append(np.zeros(3, bool))
    assert_close(evaluate_graph(again, inputs)[0], evaluate_graph(graph, inputs)[0])


@pytest.mark.parametrize("index", [1, 2])
def test_operands_of_different_ranks_are_refused(index: int) -> None:
    given = operands(flat=True)
    given[index] = random(index, 24)
    with pytest.raises(ModelError, match="rank"):
        import_model(one_node("Attention", given, 1, 23, attrs_of(True)))
