"""`unique` with a bound means what the sort and the rest in its place mean; with them it is recorded on a GPU."""

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import HostCall
from capgraph.executors.cuda.lower.lowering import Backend
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.target import CUDA, HOST
from capgraph.ir.verify import verify
from capgraph.passes.framework.rewriter import Rewriter
from capgraph.passes.planning.distinct import SortForUnique, is_sortable
from capgraph.passes.planning.lowering import Lowering
from capgraph.passes.planning.planner import make_plan
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

NAMES = ("distinct", "first", "inverse", "counts", "count")
DTYPES = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


def bounded(dtype: str, shape: tuple[int, ...], results: tuple[str, ...] = NAMES, axis: int | None = None) -> Graph:
    b = Builder()
    x = b.input("x", f"{dtype}[{', '.join(map(str, shape))}]")
    size = int(np.prod(shape)) if axis is None else shape[axis]
    found = dict(zip(NAMES, b.ops("bounded_unique", x, axis=axis, sorted=True, size=size), strict=True))
    return b.finish({name: found[name] for name in results})


@given(st.sampled_from(sorted(DTYPES)), hnp.array_shapes(max_dims=3, max_side=4), st.data())
def test_sorts_find_what_unique_finds(dtype: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    kinds = [0, 1, 2, 3] if dtype not in ("f32", "f16") else [0.0, -0.0, 1.5, -2.0, np.nan, np.inf]
    size = int(np.prod(shape))
    drawn = data.draw(st.lists(st.sampled_from(kinds), min_size=size, max_size=size))
    x = np.array(drawn).astype(DTYPES[dtype]).reshape(shape)
    graph = bounded(dtype, shape)
    expected = evaluate_graph(graph, [x])
    SortForUnique().run(graph, Rewriter(graph))
    verify(graph)
    assert not any(node.op.name == "bounded_unique" for node in graph.nodes)
    for old, new in zip(expected, evaluate_graph(graph, [x]), strict=True):
        np.testing.assert_array_equal(new, old, strict=True)


def test_only_what_is_read_is_made() -> None:
    graph = bounded("i64", (3, 4), ("distinct", "count"))
    SortForUnique().run(graph, Rewriter(graph))
    assert not {"scatter_elements", "cumsum", "sub"} & {node.op.name for node in graph.nodes}


def test_slices_stay_what_they_are() -> None:
    graph = bounded("f32", (3, 4), axis=0)
    assert not any(map(is_sortable, graph.nodes))
    SortForUnique().run(graph, Rewriter(graph))
    assert [node.op.name for node in graph.nodes] == ["bounded_unique"]
    assert any(map(is_sortable, bounded("f32", (5,), axis=0).nodes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_distinct_elements_are_one_recording_on_a_gpu(dtype: str) -> None:
    b = Builder()
    found = b.ops("unique", b.input("x", f"{dtype}[6, 500]"), axis=None, sorted=True)
    graph = b.finish(dict(zip(NAMES, found, strict=False)))
    backend = Backend()
    plan = make_plan(graph, {}, CUDA, scratch=backend.scratch_bytes, lowering=Lowering(captures=backend.captures))
    assert [segment.is_captured for segment in plan.segments] == [True]
    launches = [each for way in backend.lower(plan) for each in (way.candidates[0].launches if way.candidates else ())]
    assert launches
    assert not any(isinstance(launch, HostCall) for launch in launches)
    assert any(step.node.op.name == "bounded_unique" for step in make_plan(graph, {}, HOST).steps)
