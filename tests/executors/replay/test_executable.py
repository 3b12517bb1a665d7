"""Recorded programs on the host against eager execution: buckets, padding, counters, threads, memory."""

import gc
import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from capgraph.executors.replay.executable import ReplayExecutable
from capgraph.executors.steps import EagerExecutor
from capgraph.ir.builder import Builder
from capgraph.ir.errors import ExecutionError, InputError
from capgraph.ir.graph import Graph

from tests.executors.replay.programs import F32, block, column_sums, compiled, picks, rows

RANGE = {"B": (1, 16)}
LADDER = (1, 2, 4, 8, 16)


def eager(graph: Graph, **inputs: np.ndarray) -> np.ndarray:
    (result,) = EagerExecutor().compile(graph).run(inputs).values()
    return result


def check(program: ReplayExecutable, graph: Graph, count: int, seed: int = 0) -> None:
    x = rows(count, seed)
    given = program.run({"x": x})["y"]
    np.testing.assert_allclose(given, eager(graph, x=x), rtol=1e-5, atol=1e-6)


def test_counters_and_waste_are_those_of_the_calls() -> None:
    graph = block()
    program = compiled(graph, dynamic=RANGE)
    random, seen = np.random.default_rng(1), set()
    replayed = padded = added = real = 0
    for call in range(200):
        count = int(random.integers(1, 17))
        check(program, graph, count, call)
        bucket = min(size for size in LADDER if size >= count)
        if bucket in seen:
            replayed += 1
            padded += bucket > count
            added += bucket - count
            real += count
        seen.add(bucket)
    stats = program.stats()
    counters = stats.counters
    assert (counters.calls, counters.replayed_calls, counters.eager_calls) == (200, replayed, len(seen))
    assert (counters.replays, counters.captures) == (replayed, len(seen))
    assert (counters.padded_calls, counters.padded_rows, counters.rows) == (padded, added, real)
    assert counters.waste == added / (added + real)
    assert [bucket.segments for bucket in stats.buckets] == [1] * len(seen)
    assert all(bucket.verified for bucket in stats.buckets)
    text = "\n".join(program.remarks)
    assert f"{100 * counters.waste:.1f}% waste" in text
    assert "B may be padded as it is" in text


@pytest.mark.parametrize("mode", ["none", "full", "piecewise", "full_and_piecewise"])
def test_every_mode_gives_the_numbers_of_eager(mode: str) -> None:
    graph = block()
    program = compiled(graph, dynamic=RANGE, mode=mode)
    for call in range(6):
        check(program, graph, 5, call)
    assert program.stats().counters.replayed_calls == (0 if mode == "none" else 5)


@pytest.mark.parametrize(("count", "reason"), [(0, "outside of its range"), (17, "outside of its range")])
def test_sizes_out_of_range_run_eagerly_and_are_counted(count: int, reason: str) -> None:
    graph = block()
    program = compiled(graph, dynamic=RANGE)
    check(program, graph, count)
    counters = program.stats().counters
    assert counters.eager_calls == 1
    assert any(reason in why for why in counters.eager_reasons)
    check(program, graph, 3)


def test_sizes_out_of_range_are_captured_exactly_on_request() -> None:
    graph = block()
    program = compiled(graph, dynamic=RANGE, beyond="exact")
    for call in range(3):
        check(program, graph, 40, call)
    assert program.stats().counters.replayed_calls == 2


def test_a_zero_size_batch_may_be_a_bucket() -> None:
    graph = block()
    program = compiled(graph, dynamic={"B": (0, 4)}, buckets={"B": [0, 4]})
    for call in range(3):
        check(program, graph, 0, call)
    assert program.stats().counters.replayed_calls == 2


def test_a_dim_that_is_not_safe_is_masked_by_its_real_size() -> None:
    graph = column_sums()
    program = compiled(graph, dynamic=RANGE)
    for count in (3, 3, 5, 16, 7, 1):
        x = rows(count)
        np.testing.assert_allclose(program.run({"x": x})["y"], eager(graph, x=x), rtol=1e-5)
    assert program.stats().counters.padded_calls
    assert "masked by its real size" in program.stats().safety[0]


def test_a_dim_without_a_range_runs_eagerly() -> None:
    graph = block()
    program = compiled(graph)
    check(program, graph, 3)
    assert list(program.stats().counters.eager_reasons) == ["no range is given for B: dynamic={'B': (1, ...)}"]


def test_a_graph_of_fixed_sizes_has_one_bucket() -> None:
    b = Builder()
    x = b.input("x", "f32[3, 4]")
    graph = b.finish({"y": b.op("neg", b.op("exp", x))})
    program = compiled(graph)
    for call in range(3):
        check(program, graph, 3, call)
    assert program.stats().counters.replayed_calls == 2


@pytest.mark.parametrize(
    "bad", [np.zeros((2, 4)), np.zeros((2, 4, 1), F32), np.zeros((2, 5), F32), np.zeros((2, 4), np.int32)]
)
def test_bad_inputs_are_refused_and_the_next_call_works(bad: np.ndarray) -> None:
    graph = block()
    program = compiled(graph, dynamic=RANGE)
    check(program, graph, 2)
    with pytest.raises(InputError):
        program.run({"x": bad})
    check(program, graph, 2)
    assert program.stats().counters.calls == 2


def test_a_bad_index_is_the_callers_error_and_the_bucket_stays() -> None:
    program = compiled(picks(), dynamic={"B": (1, 4)})
    for _ in range(2):
        program.run({"i": np.array([0, 1, 2])})
    with pytest.raises(ExecutionError, match="out of range"):
        program.run({"i": np.array([0, 9, 2])})
    assert np.array_equal(program.run({"i": np.array([2])})["y"], np.exp(np.arange(8, 12, dtype=F32))[None])
    stats = program.stats()
    assert not stats.refused
    program.run({"i": np.array([0, 1, 2])})
    assert program.stats().counters.replayed_calls == stats.counters.replayed_calls + 1


def test_threads_get_their_own_results() -> None:
    graph = block()
    program = compiled(graph, dynamic=RANGE)
    expected = {seed: eager(graph, x=rows(1 + seed % 16, seed)) for seed in range(64)}
    wrong: list[int] = []

    def work(first: int) -> None:
        for seed in range(first, 64, 8):
            given = program.run({"x": rows(1 + seed % 16, seed)})["y"]
            if not np.allclose(given, expected[seed], rtol=1e-5, atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert program.stats().counters.calls == 64


def test_many_calls_take_no_memory() -> None:
    program = compiled(block(), dynamic=RANGE)
    inputs = [rows(1 + seed % 16, seed) for seed in range(16)]
    for x in inputs * 4:
        program.run({"x": x})
    gc.collect()
    tracemalloc.start()
    for x in inputs * 30:
        program.run({"x": x})
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for x in inputs * 625:  # ten thousand calls
        program.run({"x": x})
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 4096


def test_outputs_are_the_callers_own() -> None:
    program = compiled(block(), dynamic=RANGE)
    program.run({"x": rows(2)})
    first = program.run({"x": rows(2)})["y"]
    kept = first.copy()
    program.run({"x": rows(2, 5)})
    assert np.array_equal(first, kept)


def test_static_outputs_are_overwritten_and_debug_tells() -> None:
    program = compiled(block(), dynamic=RANGE, copy_outputs=False, debug=True)
    program.run({"x": rows(2)})
    first = program.run({"x": rows(2)})["y"]
    assert np.allclose(first, eager(block(), x=rows(2)), atol=1e-6)
    assert np.allclose(first + 0, first[...], atol=0)
    program.run({"x": rows(2, 5)})
    for read in (np.asarray, lambda y: y + 1, lambda y: y[0], len):
        with pytest.raises(ExecutionError, match="was overwritten"):
            read(first)


def test_a_closed_program_says_so() -> None:
    program = compiled(block(), dynamic=RANGE)
    program.run({"x": rows(2)})
    program.close()
    program.close()
    with pytest.raises(ExecutionError, match="closed"):
        program.run({"x": rows(2)})


def test_up_front_captures_the_largest_first() -> None:
    told: list[str] = []
    program = compiled(
        block(), dynamic=RANGE, up_front=True, progress=lambda done, count, what: told.append(f"{done}/{count} {what}")
    )
    assert told == ["0/5 B = 16", "1/5 B = 8", "2/5 B = 4", "3/5 B = 2", "4/5 B = 1", "5/5 "]
    program.run({"x": rows(3)})
    counters = program.stats().counters
    assert (counters.replayed_calls, counters.eager_calls, counters.captures) == (1, 0, 5)


def test_outputs_outside_the_arena_are_cut_as_well() -> None:
    b = Builder()
    x, shape = b.input("x", "f32[B, 4]"), b.input("shape", "i64[3]")
    graph = b.finish({"y": b.op("exp", b.op("dynamic_expand", x, shape))})
    program, oracle = compiled(graph, dynamic=RANGE), EagerExecutor().compile(graph)
    for count in (3, 3, 5, 2):
        inputs = {"x": rows(count), "shape": np.array([2, 1, 1])}
        np.testing.assert_allclose(program.run(inputs)["y"], oracle.run(inputs)["y"], rtol=1e-6)


def test_strings_are_not_padded() -> None:
    b = Builder()
    x, names = b.input("x", "f32[B, 4]"), b.input("names", "string[B]")
    graph = b.finish({"y": b.op("relu", b.op("exp", x)), "names": names})
    program = compiled(graph, dynamic=RANGE)
    for count in (4, 4, 3):
        given = program.run({"x": rows(count), "names": np.array(["a"] * count)})
        assert given["names"].tolist() == ["a"] * count
    assert "input names is no tensor of numbers" in program.stats().safety[0]
    assert program.stats().counters.replayed_calls == 1


def test_sizes_that_the_shapes_do_not_tell_run_eagerly() -> None:
    b = Builder()
    x = b.input("x", "f32[A*B]")
    graph = b.finish({"y": b.op("neg", b.op("exp", x))})
    program = compiled(graph, dynamic={"A": (1, 4), "B": (1, 4)}, beyond="exact")
    assert program.run({"x": np.zeros(6, F32)})["y"].tolist() == [-1] * 6
    assert list(program.stats().counters.eager_reasons) == ["the shapes of the inputs do not tell A"]


@pytest.mark.parametrize("policy", ["copy", "repoint", "auto"])
@pytest.mark.parametrize(
    "seen", [lambda y: y, lambda y: y.T, lambda y: y[::-1]], ids=["as it is", "turned", "reversed"]
)
@pytest.mark.parametrize("fed", ["x", "y"])
def test_a_static_result_may_be_an_input_of_the_next_call(
    fed: str, seen: Callable[[np.ndarray], np.ndarray], policy: str
) -> None:
    b = Builder()
    x, y = b.input("x", "f32[8, 8]"), b.input("y", "f32[8, 8]")
    h = b.op("softmax", b.op("matmul", x, y))
    graph = b.finish({"h": b.op("softmax", b.op("matmul", h, h))})  # may lie where x was
    program = compiled(graph, mode="full", inputs={"": policy}, copy_outputs=False)
    back = rows(8, 0, 8)
    for call in range(6):
        (other,) = {"x", "y"} - {fed}
        inputs = {fed: back, other: rows(8, call + 10, 8)}
        expected = eager(graph, **{name: each.copy() for name, each in inputs.items()})
        result = program.run(inputs)["h"]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        back = seen(result)
