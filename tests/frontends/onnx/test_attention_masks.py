"""Masks that hide keys with the lowest number: ONNX Runtime gives what the graph means, also where no key is left."""

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import OPERATORS
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph, Value
from capgraph.ir.types import DType

from tests.frontends.onnx.ops.there_and_back import compare, evaluated, reference, runtime_of
from tests.ir.ops.onnx_oracle import random

LOWEST = float(np.finfo(np.float32).min)
HIDDEN = np.array([[0, 1, 1], [1, 1, 1], [1, 1, 0]], bool)  # the second query sees nothing


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    """Random operands, and in place of a mask which keys are hidden: as bool, or as numbers to add."""
    found = {}
    for value in graph.inputs:
        dtype = value.tensor.dtype
        if value.name == "mask":
            hidden = HIDDEN.reshape(value.shape)
            found["mask"] = hidden if dtype is DType.BOOL else np.where(hidden, LOWEST, 0).astype(np.float32)
        else:
            found[value.name] = random(0, *value.shape).astype(dtype.numpy)
    return found


def attention(b: Builder, mask: Value, *, causal: bool = False) -> Value:
    """Attention of 2 samples with 2 heads side by side."""
    x = b.input(f"x{len(b.graph.inputs)}", "f32[2, 3, 8]")
    return b.op("attention", x, x, x, mask, None, heads=2, kv_heads=2, causal=causal)


def written(graph: Graph, dialect: Dialect = Dialect.STANDARD) -> list[str]:
    """The operators of the graph, which mean the same in ONNX Runtime, and to onnx and the importer."""
    model, given = export_model(graph, dialect=dialect, operators=OPERATORS), feeds(graph)
    wanted = evaluated(graph, given)
    compare(runtime_of(model, given), wanted)
    if dialect is Dialect.STANDARD:  # ONNX Runtime's own operators have no meaning elsewhere
        compare(evaluated(import_model(model).graph, given), wanted)
        compare(reference(model, given), wanted)
    return [node.op_type for node in model.graph.node]


def smallest(model: onnx.ModelProto) -> float:
    return min(float(onnx.numpy_helper.to_array(each).min()) for each in model.graph.initializer)


@pytest.mark.parametrize("causal", [False, True])
def test_a_constant_mask_is_written_with_higher_numbers(causal):
    b = Builder()
    mask = b.constant(np.where(HIDDEN, LOWEST, 0), DType.F32)
    graph = b.finish({"y": attention(b, mask, causal=causal)})
    assert written(graph) == ["Attention"]
    assert LOWEST < smallest(export_model(graph, dialect=Dialect.STANDARD)) < -1e38
    assert smallest(export_model(graph)) == LOWEST


def test_a_mask_chosen_from_constants_costs_no_node():
    b = Builder()
    chosen = b.op("where", b.input("mask", "bool[3, 3]"), b.constant(LOWEST, DType.F32), b.constant(0.0, DType.F32))
    mask = b.op("expand", b.op("unsqueeze", chosen, axes=(0, 1)), shape=(2, 1, 3, 3))
    assert written(b.finish({"y": attention(b, mask), "z": attention(b, mask)})).count("Attention") == 2
    assert written(b.graph)[:-2] == ["Where", "Unsqueeze", "Expand"]


def test_constants_that_are_read_elsewhere_stay_and_the_mask_is_raised_once():
    b = Builder()
    lowest = b.constant(LOWEST, DType.F32)
    mask = b.op("where", b.input("mask", "bool[3, 3]"), lowest, b.constant(0.0, DType.F32))
    results = {"y": attention(b, mask), "z": attention(b, mask), "least": b.op("neg", lowest)}
    names = written(b.finish(results))
    assert (names.count("Max"), names.count("Attention"), "Equal" in names) == (1, 2, False)


@pytest.mark.parametrize("hides_for_good", [False, True])
def test_of_an_unknown_mask_the_lowest_numbers_alone_are_changed(hides_for_good):
    b = Builder()
    mask = b.input("mask", "f32[3, 3]")
    if hides_for_good:  # one of the keys that the last query does not see; the others are averaged where none is seen
        mask = b.op("add", mask, b.constant(np.array([-np.inf, 0, 0]), DType.F32))
    names = written(b.finish({"y": attention(b, mask), "z": attention(b, mask)}))
    assert (names.count("Equal"), names.count("Where"), names.count("Attention")) == (1, 1, 2)


def test_what_was_written_needs_nothing_more_when_it_comes_back():
    b = Builder()
    once = export_model(b.finish({"y": attention(b, b.input("mask", "f32[3, 3]"))}), dialect=Dialect.STANDARD)
    again = export_model(import_model(once).graph, dialect=Dialect.STANDARD)
    assert [node.op_type for node in again.graph.node] == [node.op_type for node in once.graph.node]


@pytest.mark.parametrize(("causal", "operators"), [(False, []), (True, ["Max"])])
def test_onnx_runtime_s_own_attention_needs_it_where_it_is_causal(causal, operators):
    b = Builder()
    lowest = b.constant(LOWEST, DType.F32)
    chosen = b.op("where", b.input("mask", "bool[1, 1, 3, 3]"), lowest, b.constant(0.0, DType.F32))
    graph = b.finish({"y": attention(b, chosen, causal=causal), "least": b.op("neg", lowest)})
    assert [name for name in written(graph, Dialect.ORT) if name != "Neg"] == [
        "Where",
        *operators,
        "MultiHeadAttention",
    ]


@pytest.mark.parametrize("is_known", [False, True])
def test_it_gives_nan_where_only_infinities_are_added(is_known):
    b = Builder()
    mask = b.input("mask", "bool[1, 1, 3, 3]" if is_known else "f32[1, 1, 3, 3]")
    if is_known:
        mask = b.op("where", mask, b.constant(-np.inf, DType.F32), b.constant(0.0, DType.F32))
    assert written(b.finish({"y": attention(b, mask)}), Dialect.ORT)[-1] == "Attention"


def test_sums_of_small_numbers_and_infinities_are_written_as_they_are():
    b = Builder()
    chosen = b.op("where", b.input("mask", "bool[3, 3]"), b.constant(-np.inf, DType.F32), b.constant(0.0, DType.F32))
    table = b.constant(random(1, 3, 3) - 100, DType.F32)
    graph = b.finish({"y": attention(b, b.op("add", table, b.op("add", chosen, table)))})
    assert written(graph) == ["Where", "Add", "Add", "Attention"]


def test_other_masks_are_written_as_they_are():
    b = Builder()
    some = b.constant(np.where(HIDDEN, -1e9, 0), DType.F32)
    chosen = b.op("where", b.input("mask", "bool[3, 3]"), b.constant(-np.inf, DType.F32), b.constant(0.0, DType.F32))
    graph = b.finish({"y": attention(b, some), "z": attention(b, chosen)})
    assert written(graph) == ["Attention", "Where", "Attention"] or written(graph) == [
        "Where",
        "Attention",
        "Attention",
    ]


def test_half_precision_leaves_room_for_the_scores():
    b = Builder()
    x = b.input("x", "f16[2, 3, 8]")
    mask = b.constant(np.where(HIDDEN, -65504.0, 0), DType.F16)
    graph = b.finish({"y": b.op("attention", x, x, x, mask, None, heads=2, kv_heads=2)})
    model = export_model(graph, dialect=Dialect.STANDARD)
    assert smallest(model) == -61408
    (found,) = runtime_of(model, {"x": np.full((2, 3, 8), 8, np.float16)})
    assert np.array_equal(found, np.full((2, 3, 8), 8))
