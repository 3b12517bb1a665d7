import numpy as np
import pytest
from capgraph.executors.host.recorder import HostRecording
from capgraph.executors.replay.executable import ReplayExecutable
from capgraph.ir.builder import Builder
from capgraph.ir.dims import symbol
from capgraph.ir.errors import InputError
from capgraph.ir.graph import Graph

from tests.executors.replay.programs import F32, compiled, rows


def weighted() -> Graph:
    """A reshaped input, so that recorded kernels read views of it, and a second one."""
    b = Builder()
    x, w = b.input("x", "f32[B, 4]"), b.input("w", "f32[4, 4]")
    h = b.op("matmul", b.op("reshape", b.op("transpose", x, perm=[1, 0]), shape=[4, symbol("B")]), b.op("neg", x))
    return b.finish({"y": b.op("add", h, w), "z": b.op("transpose", x, perm=[1, 0])})


def program(policy: str) -> ReplayExecutable:
    return compiled(weighted(), dynamic={"B": (1, 4)}, buckets={"B": [2, 4]}, inputs={"": policy})


def check(given: dict[str, np.ndarray], x: np.ndarray, w: np.ndarray) -> None:
    np.testing.assert_allclose(given["y"], x.T @ -x + w, rtol=1e-5, atol=1e-6)
    assert np.array_equal(given["z"], x.T)


@pytest.mark.parametrize("policy", ["auto", "copy", "repoint", "rerecord"])
def test_inputs_reach_the_recording_wherever_they_lie(policy: str) -> None:
    made = program(policy)
    w = rows(4, 9)
    for call, count in enumerate((2, 2, 4, 2, 3, 4, 4, 1, 2)):  # some fit a bucket, others are padded
        x = rows(count, call)
        check(made.run({"x": x, "w": w}), x, w)
        strided = np.repeat(x, 2, axis=1)[:, ::2]
        check(made.run({"x": strided, "w": w}), x, w)


def test_what_each_policy_does_is_counted() -> None:
    first, second, w = rows(2, 1), rows(2, 2), rows(4, 9)
    counted = {}
    for policy in ("copy", "repoint", "rerecord"):
        made = program(policy)
        made.run({"x": first, "w": w})
        for x in (first, first, second, first):
            check(made.run({"x": x, "w": w}), x, w)
        counters = made.stats().counters
        counted[policy] = (counters.input_copies, counters.input_repoints, counters.input_rerecords)
    # x moves three times and w once; the real size of B, which a mask takes, is always copied.
    assert counted == {"copy": (12, 0, 0), "repoint": (4, 4, 0), "rerecord": (4, 0, 4)}


def test_a_new_address_is_refused_on_request() -> None:
    made = program("refuse")
    x, w = rows(2, 1), rows(4, 9)
    made.run({"x": x, "w": w})
    check(made.run({"x": x, "w": w}), x, w)
    x[...] = rows(2, 5)
    check(made.run({"x": x, "w": w}), x, w)
    with pytest.raises(InputError, match="'x' lies at another address"):
        made.run({"x": x.copy(), "w": w})
    with pytest.raises(InputError, match="'x' lies at another address"):
        made.run({"x": np.repeat(x, 2, axis=1)[:, ::2], "w": w})
    check(made.run({"x": x, "w": w}), x, w)
    assert made.stats().counters.input_refusals == 2


def test_a_policy_for_an_input_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="a policy for the input 'nope'") as caught:
        compiled(weighted(), dynamic={"B": (1, 4)}, inputs={"nope": "copy", "": "copy"})
    assert "x, w" in (caught.value.remedy or "")


def test_a_padded_call_cannot_be_read_in_place() -> None:
    made = program("refuse")
    w = rows(4, 9)
    made.run({"x": rows(1), "w": w})
    with pytest.raises(InputError, match="cannot be read in place"):
        made.run({"x": rows(1), "w": w})


def test_a_recorder_that_cannot_repoint_records_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostRecording, "repoint", lambda _recording, _index: False)
    made = program("repoint")
    w = rows(4, 9)
    for call in range(5):
        x = rows(2, call)
        check(made.run({"x": x, "w": w}), x, w)


def test_inputs_that_are_read_in_place_take_no_arena() -> None:
    first, w = rows(2, 1), rows(4, 9)
    sizes: dict[str, int] = {}
    for policy in ("copy", "auto", "repoint", "rerecord", "refuse"):
        made = program(policy)
        made.run({"x": first, "w": w})
        sizes[policy] = made.stats().arena_bytes
    assert sizes["copy"] == sizes["auto"] > sizes["repoint"] == sizes["rerecord"] == sizes["refuse"]


def test_the_cheaper_policy_is_measured() -> None:
    b = Builder()
    small, large = b.input("small", "f32[4]"), b.input("large", "f32[4, 4096, 1024]")
    graph = b.finish({"y": b.op("reduce_sum", large, axes=[1, 2], keep_dims=False), "z": b.op("neg", small)})
    made = compiled(graph)
    made.run({"small": np.ones(4, F32), "large": np.ones((4, 4096, 1024), F32)})
    assert dict(made.stats().buckets[0].policies) == {"small": "copy", "large": "repoint"}


def test_states_are_always_copied() -> None:
    b = Builder()
    old, new = b.input("cache", "f32[4]"), b.input("x", "f32[4]")
    graph = b.finish({"cache_out": b.op("add", b.op("exp", old), new), "double": b.op("add", old, old)})
    graph.set_states([(0, 0)])
    made = compiled(graph, inputs={"": "repoint"})
    for call in range(3):
        cache, x = rows(4, call)[0], rows(4, call)[1]
        kept = cache.copy()
        given = made.run({"cache": cache, "x": x})
        np.testing.assert_allclose(given["cache_out"], np.exp(cache) + x, rtol=1e-6)
        assert np.array_equal(given["double"], 2 * cache)
        assert np.array_equal(cache, kept)


def test_outputs_that_are_views_of_a_state_show_what_it_was() -> None:
    b = Builder()
    old = b.input("cache", "f32[4]")
    row = b.op("unsqueeze", old, axes=[0])
    graph = b.finish({"cache_out": b.op("neg", b.op("exp", old)), "row": row})
    graph.set_states([(0, 0)])
    for copies in (True, False):
        made = compiled(graph, copy_outputs=copies)
        for call in range(3):
            cache = rows(1, call)[0]
            given = made.run({"cache": cache})
            assert np.array_equal(given["row"], cache[None])
            np.testing.assert_allclose(given["cache_out"], -np.exp(cache), rtol=1e-6)
