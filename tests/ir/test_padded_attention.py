import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.padded_attention import padded_attention
from capgraph.ir.verify import verify
from hypothesis import given
from hypothesis import strategies as st

Array = np.ndarray


def ragged(longest: str | int = "T", *, causal: bool = True, heads: int = 4, scale: float | None = None) -> Graph:
    b = Builder("ragged")
    q, k = b.input("q", f"f32[N, {heads}, 8]"), b.input("k", "f32[R, S, 2, 8]")
    v, counts, lengths = b.input("v", "f32[R, S, 2, 6]"), b.input("counts", "i64[R]"), b.input("lengths", "i64[R]")
    limit = b.input("limit", f"bool[{longest}]").shape[0]
    y = b.op("varlen_attention", q, k, v, counts, lengths, longest=limit, causal=causal, scale=scale, softcap=2.0)
    return b.finish({"y": y})


def padded(graph: Graph) -> Graph:
    """The graph with the node's body in its place."""
    made = graph.clone()
    (node,) = made.nodes
    (found,) = made.inline(padded_attention(node), node.operands, node)
    made.replace_uses(node.output, found)
    made.erase(node)
    verify(made)
    return made


def drawn(counts: list[int], lengths: list[int], spare: int, keys: int, longest: int) -> list[Array]:
    random = np.random.default_rng(sum(counts) + 7 * keys)
    shapes = ((sum(counts) + spare, 4, 8), (len(counts), keys, 2, 8), (len(counts), keys, 2, 6))
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [*arrays, np.array(counts, np.int64), np.array(lengths, np.int64), np.zeros(longest, bool)]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=5),
    st.integers(0, 3),
    st.integers(4, 6),
    st.booleans(),
)
def test_it_gives_what_variable_length_attention_means(
    sequences: list[tuple[int, int]], spare: int, longest: int, causal: bool
) -> None:
    graph = ragged(causal=causal)
    inputs = drawn([count for count, _ in sequences], [length for _, length in sequences], spare, 6, longest)
    (expected,), (found,) = evaluate_graph(graph, inputs), evaluate_graph(padded(graph), inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("counts", [[1, 1, 1], [1, 0, 1], [0, 0], []])
def test_with_one_query_a_sequence_no_mask_is_made(counts: list[int]) -> None:
    graph = ragged(1)
    inputs = drawn(counts, [3, 5, 1][: len(counts)], 1, 6, 1)
    made = padded(graph)
    (attention,) = [node for node in made.nodes if node.op.name == "attention"]
    assert attention.inputs[3] is None
    np.testing.assert_allclose(evaluate_graph(made, inputs)[0], evaluate_graph(graph, inputs)[0], rtol=1e-5, atol=1e-6)
