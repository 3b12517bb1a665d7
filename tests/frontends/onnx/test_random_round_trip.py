"""Random graphs written to ONNX and read again: the same graph after the second time, and the same numbers.

Not every graph can be written: ONNX's operators take fewer dtypes. What cannot is an `UnsupportedError`, and not more
than a quarter of the graphs.
"""

import numpy as np
import pytest
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.constant import Array
from capgraph.ir.equality import first_difference
from capgraph.ir.errors import CapgraphError, ExecutionError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.ops import OPS
from capgraph.ir.ops.keyed import PREFIX
from capgraph.ir.types import DType, Kind
from capgraph.ir.verify import verify
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.graphs import graphs, inputs_for, random_graph, random_inputs, subjects

COUNT = 3_100
"""About one for each dtype of each operand of each op; `make fuzz` draws others."""

WRITTEN = [name for name in OPS if not name.startswith(PREFIX)]
"""All ops but those that draw from a state, of which ONNX has none."""


@pytest.fixture(scope="module")
def exported() -> list[tuple[int, Graph, Graph]]:
    """A seed, a graph, and what came back from ONNX, for each graph that can be written."""
    every = list(subjects(WRITTEN))
    found = []
    for seed in range(COUNT):
        graph = random_graph(seed, ops=WRITTEN, subject=every[seed % len(every)], max_nodes=4)
        if has_six_bits(graph):
            continue
        try:
            found.append((seed, graph, there_and_back(graph)))
        except UnsupportedError:
            continue
    assert len(found) > COUNT * 0.75
    return found


def has_six_bits(graph: Graph) -> bool:
    """Whether there is a float of 6 bits: ONNX's Shape, from which symbolic sizes come, does not take them."""
    return any(value.tensor.dtype in (DType.F6E2M3, DType.F6E3M2) for value in graph.values)


def there_and_back(graph: Graph) -> Graph:
    return import_model(export_model(graph)).graph


def test_what_came_back_is_valid(exported: list[tuple[int, Graph, Graph]]) -> None:
    for _, _, again in exported:
        verify(again)


def test_what_came_back_comes_back_the_same(exported: list[tuple[int, Graph, Graph]]) -> None:
    assert len(exported) > 0.75 * COUNT
    for seed, _, again in exported:
        assert first_difference(again, there_and_back(again)) is None, seed


def test_many_graphs_come_back_the_same_at_once(exported: list[tuple[int, Graph, Graph]]) -> None:
    """Others have ops that are several of ONNX's operators, results that nothing reads, or what an import tells."""
    same = [seed for seed, graph, again in exported if first_difference(graph, again) is None]
    assert len(same) > len(exported) * 0.4


def test_what_came_back_gives_the_same_numbers(exported: list[tuple[int, Graph, Graph]]) -> None:
    for seed, graph, again in exported:
        sizes, arrays = random_inputs(graph, seed)
        try:
            wanted = evaluate_graph(graph, arrays, sizes)
        except CapgraphError:
            continue  # data that an op cannot take
        for found, expected in zip(evaluate_graph(again, arrays, sizes), wanted, strict=True):
            assert_close(found, expected, seed)


@given(st.data())
def test_drawn_graphs_give_the_same_numbers(data: st.DataObject) -> None:
    graph = data.draw(graphs(max_nodes=6))
    sizes, arrays = data.draw(inputs_for(graph))
    if may_copy_sizes(graph, sizes):
        return
    try:
        again = there_and_back(graph)
        wanted = evaluate_graph(graph, arrays, sizes)
    except CapgraphError:
        return
    for found, expected in zip(evaluate_graph(again, arrays, sizes), wanted, strict=True):
        assert_close(found, expected, 0)


@given(st.data(), st.integers(7, 26), st.sampled_from([Dialect.STANDARD, Dialect.FAITHFUL]))
def test_drawn_graphs_give_the_same_numbers_at_any_opset_that_takes_them(
    data: st.DataObject, opset: int, dialect: Dialect
) -> None:
    graph = data.draw(graphs(max_nodes=4))
    sizes, arrays = data.draw(inputs_for(graph))
    if (
        not graph.outputs or 0 in sizes.values() or has_six_bits(graph)
    ):  # a computed size of 0 copies one before opset 14
        return
    try:
        written = export_model(graph, opset=opset, dialect=dialect)
        wanted = evaluate_graph(graph, arrays, sizes)
    except (UnsupportedError, ExecutionError):
        return
    again = evaluate_graph(import_model(written).graph, arrays, sizes)
    for found, expected in zip(again, wanted, strict=True):
        if expected.dtype.kind != "f" or np.isfinite(expected).all():  # infinity times 0 comes in parts alone
            assert_close(found, expected, 0)


def may_copy_sizes(graph: Graph, sizes: dict[str, int]) -> bool:
    """Whether a shape that is computed may ask for a size of 0, which then copies one.

    An import takes it for the size that it is: symbols are not 0 there (`resolve_reshape`).
    """
    reshapes = [node for node in graph.nodes if node.op.name == "dynamic_reshape"]
    return 0 in sizes.values() and not all(node.attrs["allow_zero"] for node in reshapes)


def assert_close(found: Array, expected: Array, seed: int) -> None:
    """Equal, but for what other operators in another order round otherwise."""
    dtype = DType.of(expected.dtype)
    assert DType.of(found.dtype) is dtype, seed
    assert found.shape == expected.shape, seed
    if dtype.kind in (Kind.STRING, Kind.BOOL):
        assert found.tolist() == expected.tolist(), seed
        return
    tolerance = 2.0 ** -(1 if dtype.bits <= 8 else 5 if dtype.bits < 32 else 11)
    wide = np.complex128 if dtype.kind is Kind.COMPLEX else np.float64
    with np.errstate(all="ignore"):
        pair = found.astype(wide), expected.astype(wide)
    np.testing.assert_allclose(*pair, rtol=tolerance if dtype.is_float else 1e-9, atol=tolerance, err_msg=str(seed))
