"""Random nodes become twins that read a state, which the graph advances."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.philox import fresh_state
from capgraph.ir.random_state import RandomState, keyed
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify

TEXT = """
graph @main(%x: f32[S, 4]) {
  %n: f32[S, 4] = random_normal() {shape = [S, 4], dtype = f32, mean = 1.0}
  %f: f32[S] = random_uniform() {shape = [S], dtype = f32, seed = 7}
  %k: f32[S, 4] = bernoulli(%n) {dtype = f32}
  return %n, %f, %k
}"""


def test_random_nodes_read_a_state_that_is_advanced() -> None:
    graph = parse(TEXT)
    made = keyed(graph)
    verify(made.graph)
    assert (made.state, made.draws) == ("random_state", 2)
    assert [node.op.name for node in graph.nodes] == ["random_normal", "random_uniform", "bernoulli"]
    assert [tuple(state) for state in made.graph.states] == [(1, 3)]
    assert made.graph.output_names == (*graph.output_names, "random_state_after")
    x, state = np.zeros((3, 4), np.float32), np.array([5, 10], np.uint64)
    first = evaluate_graph(made.graph, [x, state])
    assert first[-1].tolist() == [5, 12]
    second = evaluate_graph(made.graph, [x, first[-1]])
    np.testing.assert_array_equal(first[1], second[1])  # it has a seed
    assert not np.array_equal(first[0], second[0])
    (fixed,) = evaluate_graph(parse(TEXT.replace("return %n, %f, %k", "return %f")), [x])
    np.testing.assert_array_equal(first[1], fixed)


def test_two_draws_are_not_alike() -> None:
    graph = parse("""
        graph @main() {
          %a: f32[9] = random_uniform() {shape = [9], dtype = f32}
          %b: f32[9] = random_uniform() {shape = [9], dtype = f32}
          return %a, %b
        }""")
    first, second, _ = evaluate_graph(keyed(graph).graph, [fresh_state(1)])
    assert not set(first.tolist()) & set(second.tolist())


def test_a_graph_without_chance_is_itself() -> None:
    graph = parse("graph @main(%x: f32[4]) { %y: f32[4] = neg(%x) return %y }")
    assert keyed(graph) == (graph, "", 0)


def test_states_of_the_graph_stay() -> None:
    graph = parse("""
        graph @main(%random_state: f32[4]) {
          %n: f32[4] = random_normal() {shape = [4], dtype = f32}
          %y: f32[4] = add(%random_state, %n)
          return %y
        }""")
    graph.set_states([(0, 0)])
    made = keyed(graph)
    assert made.state != "random_state"
    assert [tuple(state) for state in made.graph.states] == [(0, 0), (1, 1)]


def test_calls_of_several_threads_take_states_of_their_own() -> None:
    state = RandomState()
    state.set(fresh_state(3))
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: state.take(5).tolist(), range(400)))
    assert sorted(taken) == [[3, 5 * call] for call in range(400)]
