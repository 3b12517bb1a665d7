"""Predictions against small plans worked out by hand, and what must hold of any: more work never takes less time."""

from dataclasses import replace

import pytest
from capgraph.ir.builder import Builder
from capgraph.ir.errors import ShapeError
from capgraph.ir.graph import Graph
from capgraph.ir.target import CUDA
from capgraph.passes.planning.partition import CapturePolicy
from capgraph.passes.planning.planner import PlanPolicy, make_plan
from capgraph.passes.planning.simulation import H200, Costs, crossover, simulate
from hypothesis import given
from hypothesis import strategies as st

ROUND = Costs(
    launch_us=4.0,
    node_us=1.0,
    graph_launch_us=6.0,
    wait_us=2.0,
    barrier_us=3.0,
    bandwidth=1e9,
    flops=1e12,
    half_flops=2e12,
    chain_flops=1e6,
)
"""Costs that make a byte a nanosecond."""


def chain(length: int, shape: str = "f32[1]") -> Graph:
    b = Builder()
    x, y = b.input("x", shape), b.input("y", shape)
    for _ in range(length):
        x = b.op("add", x, y)
    return b.finish([x])


def mlp(width: int = 256, layers: int = 4) -> Graph:
    b = Builder()
    x = b.input("x", f"f16[B, {width}]")
    for layer in range(layers):
        w = b.input(f"w{layer}", f"f16[{width}, {width}]")
        x = b.op("add", x, b.op("gelu", b.op("matmul", b.op("layer_norm", x, None, None), w)))
    return b.finish([x])


def with_outside(count: int) -> Graph:
    """Two kernels, then `count` times a softmax and two kernels."""
    b = Builder()
    x, y = b.input("x", "f32[1]"), b.input("y", "f32[1]")
    x = b.op("add", b.op("add", x, y), y)
    for _ in range(count):
        x = b.op("add", b.op("add", b.op("softmax", x), y), y)
    return b.finish([x])


def test_a_chain_of_short_kernels_is_bound_by_the_host_when_eager():
    found = simulate(make_plan(chain(10), {}, CUDA), ROUND)
    kernel = 1.0 + 0.012  # the floor; two operands and a result of four bytes each
    assert found.none_us == pytest.approx(10 * 4.0 + kernel + 2.0)
    assert found.full_us == pytest.approx(6.0 - 1.0 + 10 * kernel)
    assert found.piecewise_us == found.full_us
    assert (found.host_us, found.segments) == (40.0, 1)


def test_a_chain_of_long_kernels_is_bound_by_the_device():
    found = simulate(make_plan(chain(10, "f32[1000]"), {}, CUDA), ROUND)
    kernel = 1.0 + 12.0
    assert found.none_us == pytest.approx(4.0 + 10 * kernel + 2.0)
    assert found.full_us == pytest.approx(3.0 + 10 * kernel + 2.0)


def test_steps_kept_outside_cut_the_graph_into_segments():
    policy = CapturePolicy(keep_outside=frozenset({"softmax"}))
    found = simulate(make_plan(with_outside(1), {}, CUDA, PlanPolicy(policy)), ROUND)
    add, softmax = 1.0 + 0.012, 1.0 + 3.0 + 5.0  # a chain of five operations for one element takes 5 us
    first = 3.0 + 2 * add
    second = max(3.0 + 4.0, first) + softmax
    third = max(3.0 + 4.0 + 3.0, second) + 2 * add
    assert found.segments == 2
    assert found.piecewise_us == pytest.approx(third + 2.0)
    assert found.full_us == pytest.approx(3.0 + 4 * add + softmax + 2.0)


def test_matmuls_take_their_bytes_or_one_element_and_their_arithmetic():
    b = Builder()
    x = b.op("matmul", b.input("x", "f32[8, 16]"), b.input("y", "f32[16, 4]"))
    plan = make_plan(b.finish([x]), {}, CUDA)
    (bytes_bound,) = simulate(plan, ROUND, chain_flops=1e12).kernels
    assert bytes_bound.device_us == pytest.approx(4.0 + 4 * (8 * 16 + 16 * 4 + 8 * 4) * 1e-3)
    (flops_bound,) = simulate(plan, ROUND, chain_flops=1e12, bandwidth=1e15, flops=1e6).kernels
    assert flops_bound.device_us == pytest.approx(4.0 + 2 * 8 * 16 * 4)
    (chain_bound,) = simulate(plan, ROUND, flops=1e12).kernels
    assert chain_bound.device_us == pytest.approx(4.0 + 2 * 16 + 2 * 8 * 16 * 4 * 1e-6)


def test_a_gather_is_charged_for_the_rows_that_it_reads():
    b = Builder()
    x = b.op("gather", b.input("table", "f32[1000, 8]"), b.input("rows", "i64[2]"), axis=0)
    (kernel,) = simulate(make_plan(b.finish([x]), {}, CUDA), ROUND).kernels
    assert kernel.nbytes == 64 + 64 + 16


def test_aliases_cost_nothing():
    b = Builder()
    x = b.op("reshape", b.input("x", "f32[4, 8]"), shape=(8, 4))
    found = simulate(make_plan(b.finish([x]), {}, CUDA), ROUND)
    assert (found.kernels, found.none_us) == ((), 0.0)


def test_what_the_host_has_to_know_rules_out_one_graph_and_empties_the_queue():
    b = Builder()
    x = b.input("x", "f32[4]")
    found = b.op("non_zero", b.op("add", b.op("add", x, x), x))
    predicted = simulate(make_plan(b.finish([found]), {}, replace(CUDA, bounded=frozenset())), ROUND)
    assert predicted.full_us is None
    assert "full" not in predicted.times
    assert "cannot be captured" in predicted.text()


def test_the_text_names_modes_and_the_bound():
    text = simulate(make_plan(chain(10), {}, CUDA), ROUND).text()
    assert "bound by the host" in text
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["mode", "none", "piecewise", "full"]


def test_an_unknown_cost_is_an_error():
    with pytest.raises(TypeError, match="lauch_us"):
        simulate(make_plan(chain(1), {}, CUDA), lauch_us=3.0)


@given(st.integers(1, 12), st.sampled_from(["launch_us", "graph_launch_us"]), st.floats(0.1, 50))
def test_times_grow_with_costs_of_the_host(length: int, name: str, more: float):
    plan = make_plan(with_outside(length), {}, CUDA, PlanPolicy(CapturePolicy(keep_outside=frozenset({"softmax"}))))
    cheap, dear = simulate(plan), simulate(plan, **{name: getattr(H200, name) + more})
    assert all(dear.times[mode] >= time - 1e-9 for mode, time in cheap.times.items())


@given(st.integers(2, 40), st.sampled_from(["node_us", "barrier_us"]), st.floats(0.1, 50))
def test_whole_graphs_take_longer_with_a_higher_floor(length: int, name: str, more: float):
    plan = make_plan(with_outside(length), {}, CUDA)
    cheap, dear = simulate(plan), simulate(plan, **{name: getattr(H200, name) + more})
    assert cheap.full_us is not None
    assert dear.full_us is not None
    assert dear.full_us > cheap.full_us
    assert dear.none_us >= cheap.none_us


@given(st.integers(1, 40))
def test_times_grow_with_the_graph(length: int):
    shorter, longer = (simulate(make_plan(chain(count), {}, CUDA)) for count in (length, length + 1))
    assert all(longer.times[mode] > time for mode, time in shorter.times.items())
    assert longer.full_us is not None
    assert longer.full_us <= longer.none_us or length < 2


def test_eager_catches_up_with_the_graph_of_an_mlp_at_the_crossover():
    graph = mlp()
    found = crossover(graph, "B", within=0.1)
    assert found is not None
    assert 64 < found < 65536
    for size, is_behind in ((found - 1, True), (found, False)):
        times = simulate(make_plan(graph, {"B": size}, CUDA))
        assert times.full_us is not None
        assert (times.none_us > 1.1 * times.full_us) is is_behind


def test_the_crossover_comes_earlier_when_launches_are_cheap_and_more_is_allowed():
    graph = mlp()
    usual = crossover(graph, "B")
    cheap, lax = crossover(graph, "B", launch_us=2.0), crossover(graph, "B", within=0.5)
    assert usual is not None
    assert cheap is not None
    assert lax is not None
    assert cheap < usual
    assert lax < usual


def test_there_is_no_crossover_below_the_largest_size():
    assert crossover(mlp(), "B", largest=8) is None
    with pytest.raises(ShapeError, match="largest"):
        crossover(mlp(), "B", largest=0)
