import numpy as np
import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.errors import ExecutionError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

from tests.causes import causes
from tests.executors.host.running import UNBOUNDED, host_plan, run_plan

F32 = np.float32

BLOCK = """
graph @block(%x: f32[B, 4], %w: f32[4, 4]) {
  %h: f32[B, 4] = matmul(%x, %w)
  %r: f32[B, 4] = relu(%h)
  %s: f32[B, 4] = add(%r, %x)
  %p: f32[B, 4] = softmax(%s)
  return %p
}
"""


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(F32) for shape in shapes]


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_plan_gives_what_the_graph_means(batch: int) -> None:
    graph, inputs = parse(BLOCK), drawn((batch, 4), (4, 4))
    bound = host_plan(graph, {"B": batch})
    for _ in range(2):  # the second run starts from what the first left in the arena
        (given,) = run_plan(bound, inputs)
        assert np.array_equal(given, evaluate_graph(graph, inputs)[0])


def test_a_resident_input_stays_what_was_loaded_last() -> None:
    graph, (x, w) = parse(BLOCK), drawn((3, 4), (4, 4))
    bound = host_plan(graph, {"B": 3}, resident=["w"])
    expected = evaluate_graph(graph, [x, w])[0]
    assert np.array_equal(run_plan(bound, [x, w])[0], expected)
    for _ in range(2):
        bound.poison()  # the whole arena
        bound.start()
        bound.load(0, x)
        for segment in bound.plan.segments:
            bound.run(segment)
        assert np.array_equal(bound.result(0), expected)
        bound.finish()


def test_a_resident_input_comes_back_to_its_own_memory() -> None:
    graph, (x, w) = parse(BLOCK), drawn((3, 4), (4, 4))
    bound = host_plan(graph, {"B": 3}, resident=["w"])
    assert bound.place(1, w)
    assert bound.placed_address(1) == bound.address_of(w)
    bound.unplace(1)
    assert np.array_equal(run_plan(bound, [x, 2 * w])[0], evaluate_graph(graph, [x, 2 * w])[0])


def test_values_of_unknown_size_live_outside_the_arena() -> None:
    b = Builder()
    x = b.input("x", "f32[N]")
    found = b.op("non_zero", b.op("relu", x))
    graph = b.finish({"where": found, "double": b.op("add", x, x)})
    bound = host_plan(graph, {"N": 4}, target=UNBOUNDED)
    for content in ([1, -1, 2, 0], [0, 0, 0, 0], [1, 1, 1, 1]):
        given = run_plan(bound, [np.array(content, F32)])
        expected = evaluate_graph(graph, [np.array(content, F32)])
        assert all(np.array_equal(a, b) for a, b in zip(given, expected, strict=True))


def failing() -> Graph:
    return parse("""
    graph @pick(%x: f32[3], %i: i64[2]) {
      %d: f32[3] = add(%x, %x)
      %y: f32[2] = gather(%d, %i) {axis = 0}
      %z: f32[2] = neg(%y)
      return %z
    }
    """)


def test_a_kernel_that_fails_is_named_and_the_next_run_works() -> None:
    bound = host_plan(failing())
    x = np.arange(3, dtype=F32)
    with pytest.raises(ExecutionError, match="index 7 is out of range") as caught:
        run_plan(bound, [x, np.array([0, 7])])
    assert "gather" in str(caught.value)
    causes(caught.value)
    assert run_plan(bound, [x, np.array([0, 2])])[0].tolist() == [-0.0, -4.0]
