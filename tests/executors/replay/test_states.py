"""States in a store: two programs, prefill and decode, that share the caches of one model."""

import threading
from typing import Any

import numpy as np
import pytest
from capgraph.executors.replay.executable import ReplayExecutable
from capgraph.executors.replay.states import StateStore
from capgraph.ir.builder import Builder
from capgraph.ir.errors import ExecutionError, InputError, UnsupportedError
from capgraph.ir.graph import Graph

from tests.executors.replay.programs import F32, compiled, rows

SLOTS, WIDTH = 6, 4


def writer(*, reads_after: bool = True) -> Graph:
    """Writes rows `x` [N, 4] at slots `at` of a cache, and gives twice the cache."""
    b = Builder("writer")
    cache, x, at = b.input("cache", f"f32[{SLOTS}, {WIDTH}]"), b.input("x", "f32[N, 4]"), b.input("at", "u32[N, 1]")
    new = b.op("scatter_nd", cache, b.op("cast", at, to="i64"), x)
    seen = b.op("add", new if reads_after else cache, new)
    graph = b.finish({"seen": seen, "cache_out": new})
    graph.set_states([(0, 1)])
    return graph


def summer() -> Graph:
    """Adds `y` to the cache and gives its sums."""
    b = Builder("summer")
    y, cache = b.input("y", f"f32[{WIDTH}]"), b.input("cache", f"f32[{SLOTS}, {WIDTH}]")
    new = b.op("add", cache, y)
    graph = b.finish({"new": new, "sums": b.op("reduce_sum", new, axes=[0], keep_dims=False)})
    graph.set_states([(1, 0)])
    return graph


def fresh() -> StateStore:
    return StateStore({"cache": np.zeros((SLOTS, WIDTH), F32)})


def places(*slots: int) -> np.ndarray:
    return np.array(slots, np.uint32).reshape(-1, 1)


def sharing(store: StateStore, **options: Any) -> tuple[ReplayExecutable, ReplayExecutable]:
    return compiled(writer(), dynamic={"N": (1, 4)}, buckets={"N": [1, 2, 4]}, states=store, **options), compiled(
        summer(), states=store, **options
    )


@pytest.mark.parametrize("mode", ["full_and_piecewise", "none"])
@pytest.mark.parametrize("options", [{}, {"copy_outputs": False}, {"up_front": True}, {"budget": 0}])
def test_programs_share_what_they_write(options: dict[str, Any], mode: str) -> None:
    store = fresh()
    write, add = sharing(store, mode=mode, **options)
    expected = np.zeros((SLOTS, WIDTH), F32)
    random = np.random.default_rng(0)
    for call in range(24):
        count = int(random.integers(1, 5))
        slots, x = random.permutation(SLOTS)[:count], rows(count, call)
        expected[slots] = x
        given = write.run({"x": x, "at": places(*slots)})
        assert list(given) == ["seen"]
        np.testing.assert_array_equal(given["seen"], 2 * expected)
        y = rows(1, call)[0]
        expected += y
        given = add.run({"y": y})
        assert list(given) == ["sums"]
        np.testing.assert_allclose(given["sums"], expected.sum(0), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(store["cache"], expected)
    if not options and mode != "none":
        assert write.stats().counters.replayed_calls > 15
        assert add.stats().counters.replayed_calls == 23


def test_capturing_up_front_leaves_the_store_as_it_is() -> None:
    store = StateStore({"cache": rows(SLOTS, 1)})
    write, _ = sharing(store, up_front=True)
    assert write.stats().counters.captures == 3
    np.testing.assert_array_equal(store["cache"], rows(SLOTS, 1))


def test_the_store_is_written_and_read_by_name() -> None:
    store = fresh()
    _, add = sharing(store)
    for content in (rows(SLOTS, 3), rows(SLOTS, 4), rows(SLOTS, 5)):
        store["cache"] = content
        np.testing.assert_allclose(add.run({"y": np.ones(4, F32)})["sums"], (content + 1).sum(0), rtol=1e-5)
        held = store["cache"]
        held[...] = 0  # a copy
        np.testing.assert_array_equal(store["cache"], content + 1)
    assert store.names == ("cache",)
    assert store.nbytes == 4 * SLOTS * WIDTH
    for name, wrong in (("nope", rows(SLOTS)), ("cache", rows(2)), ("cache", np.zeros((SLOTS, WIDTH)))):
        with pytest.raises(InputError):
            store[name] = wrong


def test_a_stored_state_is_not_given_with_a_call() -> None:
    _, add = sharing(fresh())
    with pytest.raises(InputError, match="state 'cache' lives in the store"):
        add.run({"y": np.ones(4, F32), "cache": rows(SLOTS)})


@pytest.mark.parametrize("given", [None, [1], 3])
def test_what_is_no_mapping_is_refused_beside_a_store(given: Any) -> None:
    _, add = sharing(fresh())
    with pytest.raises(InputError):
        add.run(given)


def test_a_store_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="the store holds no state of summer"):
        compiled(summer(), states=StateStore({"kv": rows(2)}))
    with pytest.raises(InputError, match="the store holds float32"):
        compiled(summer(), states=StateStore({"cache": rows(2)}))
    b = Builder()
    old = b.input("cache", "f32[B, 4]")
    graph = b.finish([b.op("exp", old)])
    graph.set_states([(0, 0)])
    with pytest.raises(UnsupportedError, match="calls choose its shape"):
        compiled(graph, states=StateStore({"cache": rows(2)}))


def test_a_state_that_is_not_in_the_store_comes_and_goes_with_calls() -> None:
    b = Builder()
    one, two = b.input("one", "f32[4]"), b.input("two", "f32[4]")
    graph = b.finish({"next_one": b.op("add", one, two), "next_two": b.op("exp", two)})
    graph.set_states([(0, 0), (1, 1)])
    store = StateStore({"one": np.zeros(4, F32)})
    made = compiled(graph, states=store)
    for call in range(3):
        given = made.run({"two": np.full(4, 1, F32)})
        assert list(given) == ["next_two"]
        np.testing.assert_allclose(given["next_two"], np.e, rtol=1e-6)
        assert store["one"].tolist() == [call + 1] * 4


def test_a_call_that_fails_is_not_run_again_by_others() -> None:
    b = Builder()
    cache, index = b.input("cache", "f32[4]"), b.input("index", "i64[1]")
    new = b.op("add", cache, cache)
    graph = b.finish({"cache_out": new, "picked": b.op("exp", b.op("gather", cache, index, axis=0))})
    graph.set_states([(0, 0)])
    store = StateStore({"cache": np.ones(4, F32)})
    made = compiled(graph, states=store)
    for _ in range(2):
        made.run({"index": np.array([1])})
    with pytest.raises(ExecutionError, match="out of range"):
        made.run({"index": np.array([9])})
    store["cache"] = np.ones(4, F32)
    assert made.run({"index": np.array([1])})["picked"][0] == np.exp(F32(1))
    assert store["cache"].tolist() == [2] * 4


def test_threads_of_two_programs_wait_for_each_other() -> None:
    store = fresh()
    first, second = compiled(summer(), states=store), compiled(summer(), states=store)

    def work(program: ReplayExecutable) -> None:
        for _ in range(200):
            program.run({"y": np.ones(4, F32)})

    threads = [threading.Thread(target=work, args=(program,)) for program in (first, second, first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (store["cache"] == 800).all()


def test_a_store_over_arrays_that_others_own() -> None:
    array = np.zeros((2, 3), F32)
    store = StateStore.over({"cache": array})
    store["cache"] = np.ones((2, 3), F32)
    assert array.tolist() == [[1, 1, 1]] * 2, "its owner sees what is written"
    array[0] = 5
    assert store["cache"][0].tolist() == [5, 5, 5]
    frozen = np.zeros(3, F32)
    frozen.flags.writeable = False
    for other in (array.T, frozen):
        with pytest.raises(InputError, match="the memory of state 'cache' is not contiguous, or may not be written to"):
            StateStore.over({"cache": other})


@pytest.mark.parametrize("mode", ["full_and_piecewise", "none"])
def test_states_move_to_other_memory(mode: str) -> None:
    store = StateStore.over({"cache": np.zeros((SLOTS, WIDTH), F32)})
    add = compiled(summer(), states=store, mode=mode)
    for _ in range(3):
        add.run({"y": np.ones(WIDTH, F32)})
    kept, other = store["cache"], np.full((SLOTS, WIDTH), 7, F32)
    add.move_states({"cache": other})
    for call in range(3):
        given = add.run({"y": np.ones(WIDTH, F32)})
        np.testing.assert_array_equal(other, np.full((SLOTS, WIDTH), 8 + call, F32))
        np.testing.assert_array_equal(given["sums"], np.full(WIDTH, SLOTS * (8 + call), F32))
    np.testing.assert_array_equal(kept, np.full((SLOTS, WIDTH), 3, F32))
    np.testing.assert_array_equal(store["cache"], other)
    counters = add.stats().counters
    assert (counters.captures, counters.state_moves) == (int(mode != "none"), 1)


def test_states_move_where_they_fit_only() -> None:
    add = compiled(summer(), states=fresh())
    with pytest.raises(InputError, match=r"state 'cache' is float32\[6, 4\], not float32\[5, 4\]"):
        add.move_states({"cache": np.zeros((5, WIDTH), F32)})
    with pytest.raises(InputError, match="there is no state 'other'"):
        add.move_states({"other": np.zeros((SLOTS, WIDTH), F32)})
    assert add.stats().counters.state_moves == 0
