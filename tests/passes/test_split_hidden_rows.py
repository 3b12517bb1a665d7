"""Attention whose hidden rows are NaN becomes one whose are zeros, and NaN behind it."""

import numpy as np
import pytest
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.split_hidden_rows import SplitHiddenRows

from tests.passes.checking import check_pass

APART = "%q: f32[B, 2, T, 4], %k: f32[B, 2, S, 4], %v: f32[B, 2, S, 3]"


def test_rows_that_see_no_key_are_read_off_the_mask():
    before = """graph @main(%q: f32[B, 2, T, 4], %k: f32[B, 2, S, 4], %v: f32[B, 2, S, 3], %m: f32[T, S]) {
      %y: f32[B, 2, T, 3] = attention(%q, %k, %v, %m, _) {nan_rows = true}
      return %y
    }"""
    after = """graph @main(%q: f32[B, 2, T, 4], %k: f32[B, 2, S, 4], %v: f32[B, 2, S, 3], %m: f32[T, S]) {
      %a: f32[B, 2, T, 3] = attention(%q, %k, %v, %m, _)
      %h: f32[T, 1] = reduce_max(%m) {axes = [-1]}
      %low: f32[] = constant() {value = dense<f32[]: -inf>}
      %i: bool[T, 1] = equal(%h, %low)
      %nan: f32[] = constant() {value = dense<f32[]: nan>}
      %y: f32[B, 2, T, 3] = where(%i, %nan, %a)
      return %y
    }"""
    check_pass(SplitHiddenRows(), before, after)


@pytest.mark.parametrize("causal", ["true", "false"])
@pytest.mark.parametrize("mask", ["bool[T, S]", "f32[B, 1, T, S]", "f16[1, 2, 1, S]", "bool[S]", "f32[B, 2, T, S]"])
@pytest.mark.parametrize("is_flat", [False, True])
def test_what_comes_out_stays_the_same(mask: str, causal: str, is_flat: bool):
    shapes = (
        ("B, T, 8", "B, S, 8", "B, S, 6", "B, T, 6")
        if is_flat
        else ("B, 2, T, 4", "B, 2, S, 4", "B, 2, S, 3", "B, 2, T, 3")
    )
    q, k, v, y = (f"f32[{shape}]" for shape in shapes)
    attrs = f"causal = {causal}, nan_rows = true" + (", heads = 2, kv_heads = 2" if is_flat else "")
    text = f"""graph @main(%q: {q}, %k: {k}, %v: {v}, %m: {mask}) {{
      %y: {y} = attention(%q, %k, %v, %m, _) {{{attrs}}}
      return %y
    }}"""
    draw = np.random.default_rng(0)
    sizes = {"B": 3, "T": 5, "S": 4}

    def shape(ty: str) -> list[int]:
        return [sizes.get(each) or int(each) for each in ty.partition("[")[2][:-1].split(", ")]

    given = [draw.standard_normal(shape(ty)).astype(np.float32) for ty in (q, k, v)]
    shown = (draw.random(shape(mask)) < 0.4) & (mask != "bool[S]")
    dtype = mask.partition("[")[0].replace("f", "float")
    given.append(shown if dtype == "bool" else np.where(shown, 0.5, -np.inf).astype(dtype))
    graph = parse(text)
    wanted = evaluate_graph(graph, given)[0]
    assert np.isnan(wanted).any()
    Pipeline(((SplitHiddenRows(),),)).run(graph)
    assert not any(node.attrs["nan_rows"] for node in graph.nodes if node.op.name == "attention")
    np.testing.assert_array_equal(evaluate_graph(graph, given)[0], wanted)
