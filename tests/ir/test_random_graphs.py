"""What every graph must keep to, held by random graphs over all native ops."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from capgraph.ir.analysis import all_nodes, node_bytes, node_flops
from capgraph.ir.analysis.shape_values import ShapeValues
from capgraph.ir.constant import Array
from capgraph.ir.dims import SymDim, Truth, evaluate, lower_bound, symbols
from capgraph.ir.equality import first_difference
from capgraph.ir.errors import CapgraphError
from capgraph.ir.evaluate import bind_inputs, bound_attrs, evaluate_graph, evaluate_node, run_meaning
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.op import Trait
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import constants_of, print_graph
from capgraph.ir.types import DType, Kind, bind_type, compatible
from capgraph.ir.verify import verify
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.coverage import covering_graphs
from tests.strategies.graphs import graphs, inputs_for, random_inputs
from tests.strategies.sizes import HOME, node_types_with_sizes

VOLUME = 3_100
SAMPLE = 1_500

MISUSE = re.compile(
    "out of range|out of bounds for axis|empty sequence|can't extend empty axis|do not split axis|of nothing|no classes"
    "|axis of size 0|beside a size of 0|cannot reshape array of size 0 into"
    "|operands could not be broadcast together with shapes .*,0|cannot convert float (infinity|NaN)"
)
"""Faults of the data: an index into an axis that is empty for once, an extremum of nothing, an infinite region, a size
left open beside one that is 0 for once."""


@pytest.fixture(scope="module")
def volume() -> list[Graph]:
    """Graphs that go through every op with every dtype of every operand."""
    return list(covering_graphs(VOLUME))


# ---- structure and text


def test_graphs_are_valid(volume: list[Graph]) -> None:
    for graph in volume:
        verify(graph)


def test_text_reads_back_as_the_same_graph(volume: list[Graph]) -> None:
    for graph in volume:
        text = print_graph(graph, origins=True)
        again = parse(text, constants=constants_of(graph))
        assert first_difference(graph, again) is None
        assert print_graph(again, origins=True) == text


def test_a_clone_is_the_same_graph_and_shares_no_edge(volume: list[Graph]) -> None:
    for graph in volume[:SAMPLE]:
        text, clone = print_graph(graph), graph.clone()
        assert first_difference(graph, clone) is None
        for node in list(clone.reversed_nodes):
            clone.set_outputs([])
            clone.erase(node)
        assert print_graph(graph) == text
        verify(graph)


@given(graphs())
def test_drawn_graphs_are_valid_and_read_back(graph: Graph) -> None:
    verify(graph)
    assert first_difference(graph, parse(print_graph(graph), constants=constants_of(graph))) is None


# ---- rules


def test_rules_say_the_same_of_symbols_as_of_the_sizes_that_they_stand_for(volume: list[Graph]) -> None:
    for graph in volume:
        for node in graph.nodes:
            for value, inferred in zip(node.outputs, node_types_with_sizes(node, HOME), strict=True):
                assert compatible(bind_type(value.type, HOME), inferred) is not Truth.NO, node


def test_costs_are_sizes(volume: list[Graph]) -> None:
    for graph in volume:
        for node in all_nodes(graph):
            for cost in (node_flops(node), node_bytes(node)):
                least = lower_bound(cost)
                assert least is None or least >= 0 or isinstance(cost, SymDim), node


# ---- meanings


def test_results_have_the_declared_types(volume: list[Graph]) -> None:
    """`evaluate_node` checks them. No meaning may write to an operand: all arrays are read-only."""
    faults: Counter[str] = Counter()
    for seed, graph in enumerate(volume):
        sizes, arrays = random_inputs(graph, seed)
        for _ in _runs(graph, arrays, sizes, faults):
            pass
    assert faults.total() < VOLUME * 0.05, faults


@given(st.data())
def test_drawn_graphs_run(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    sizes, arrays = data.draw(inputs_for(graph))
    try:
        outputs = evaluate_graph(graph, arrays, sizes)
    except CapgraphError as error:
        require_misuse(error)
        return
    for once, again in zip(outputs, evaluate_graph(graph.clone(), arrays, sizes), strict=True):
        assert_same(once, again)


def test_what_is_known_of_contents_before_running_is_what_runs(volume: list[Graph]) -> None:
    known = 0
    for seed, graph in enumerate(volume[:SAMPLE]):
        sizes, arrays = random_inputs(graph, seed)
        contents = ShapeValues()
        for node, _, results, env in _runs(graph, arrays, sizes, Counter()):
            for value, result in zip(node.outputs, results, strict=True):
                said = contents.of(value)
                if said is not None and all(symbols(dim) <= env.keys() for dim in said.reshape(-1)):
                    known += said.size > 0
                    expected = [int(evaluate(dim, env)) for dim in said.reshape(-1)]
                    assert result.astype(object).reshape(-1).tolist() == expected, node
    assert known > SAMPLE


def test_operands_of_commutative_ops_may_be_swapped(volume: list[Graph]) -> None:
    seen: Counter[str] = Counter()
    for seed, graph in enumerate(volume[:SAMPLE]):
        sizes, arrays = random_inputs(graph, seed)
        for node, operands, results, env in _runs(graph, arrays, sizes, Counter()):
            if node.op.has(Trait.COMMUTATIVE) and len(operands) == 2:
                seen[node.op.name] += 1
                assert_close(results[0], np.asarray(_meaning(node, operands[::-1], env)), node)
    assert len(seen) >= 8, seen


def test_results_of_elementwise_ops_depend_on_elements_at_their_place_alone(volume: list[Graph]) -> None:
    """Operands broadcast, laid flat and turned round give the results laid flat and turned round."""
    seen: Counter[str] = Counter()
    for seed, graph in enumerate(volume[:SAMPLE]):
        sizes, arrays = random_inputs(graph, seed)
        for node, operands, results, env in _runs(graph, arrays, sizes, Counter()):
            if not node.op.has(Trait.ELEMENTWISE) or not results[0].size:
                continue
            seen[node.op.name] += 1
            shape = results[0].shape
            flat = [x if x is None else np.broadcast_to(x, shape).reshape(-1)[::-1] for x in operands]
            assert_close(results[0].reshape(-1)[::-1], np.asarray(_meaning(node, flat, env)), node)
    assert len(seen) >= 60, seen


def _meaning(node: Node, operands: Any, env: dict[str, int]) -> Any:
    with np.errstate(all="ignore"):
        return node.op.meaning(*operands, **bound_attrs(node, env))


def test_pure_ops_give_the_same_again(volume: list[Graph]) -> None:
    for seed, graph in enumerate(volume[:SAMPLE]):
        sizes, arrays = random_inputs(graph, seed)
        for node, operands, results, env in _runs(graph, arrays, sizes, Counter()):
            with np.errstate(all="ignore"):
                again = run_meaning(node, operands, dict(env))
            for once, twice in zip(results, again, strict=True):
                assert_same(once, np.asarray(twice, dtype=once.dtype))


# ---- running


Step = tuple[Node, list[Any], tuple[Array, ...], dict[str, int]]


def _runs(graph: Graph, arrays: list[Array], sizes: dict[str, int], faults: Counter[str]) -> Iterator[Step]:
    """Each node with its operands, results and the sizes known after it, until one meets data that it cannot take."""
    env = dict(sizes)
    bind_inputs(graph, arrays, env)
    values: dict[Value, Array] = dict(zip(graph.inputs, map(_frozen, arrays), strict=True))
    for node in graph.nodes:
        operands = [values[value] if value is not None else None for value in node.inputs]
        try:
            with np.errstate(all="ignore"):
                results = evaluate_node(node, operands, env)
        except CapgraphError as error:
            require_misuse(error)
            faults[f"{node.op.name}: {error.message}"] += 1
            return
        values.update(zip(node.outputs, map(_frozen, results), strict=True))
        yield node, operands, results, env


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def require_misuse(error: CapgraphError) -> None:
    """Raises the error again unless the run failed by the values in it and not by a fault of an op."""
    if not MISUSE.search(error.message):
        raise error


def assert_same(a: Array, b: Array) -> None:
    """Equal to the bit, but for what stands in a NaN."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(_comparable(a), _comparable(b))


def assert_close(a: Array, b: Array, node: Node) -> None:
    """Equal up to the last bits of a float: vector instructions round differently at the end of an array."""
    assert a.shape == b.shape, node
    kind = DType.of(a.dtype).kind
    if kind not in (Kind.FLOAT, Kind.COMPLEX):
        np.testing.assert_array_equal(_comparable(a), _comparable(b), str(node))
        return
    tolerance = 2.0 ** -(12 if a.dtype.itemsize > 2 else 2 if a.dtype.itemsize < 2 else 6)
    np.testing.assert_allclose(_comparable(a), _comparable(b), rtol=tolerance, err_msg=str(node))


def _comparable(array: Array) -> Array:
    """In a dtype that NumPy's assertions know."""
    dtype = DType.of(array.dtype)
    if dtype.is_small_float:
        return array.astype(np.float32)
    return array.astype(np.int32) if dtype.is_integer and dtype.bits < 8 else array
