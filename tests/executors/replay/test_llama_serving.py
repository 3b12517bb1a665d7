"""A Llama over flattened tokens: decode calls are captured whole, mixed ones in segments around attention."""

from collections import Counter
from itertools import groupby
from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.ir.plan import CutReason
from capgraph.ir.target import HOST
from capgraph.passes.planning.planner import make_plan

from tests.executors.replay.llama import CONTEXT, LAYERS, batch, llama

Sizes = tuple[int, int, int]
Inputs = dict[str, Any]

CALLS = 400
MOST_REQUESTS, MOST_TOKENS, LONGEST = 8, 64, 8
DECODE: list[Sizes] = [(size, size, 1) for size in (1, 2, 4, 8)]
MIXED: list[Sizes] = [(8, 4, LONGEST), (16, 4, LONGEST), (16, 8, LONGEST), (32, 8, LONGEST), (64, 8, LONGEST)]


def program(**options: Any) -> capgraph.Program:
    """The model, recorded: nothing but the sizes of a bucket says how its attention gets the lengths."""
    return capgraph.optimize(
        llama(),
        executor="graph",
        device="host",
        dynamic={"N": (1, MOST_TOKENS), "R": (1, MOST_REQUESTS), "T": (1, LONGEST)},
        buckets={("N", "R", "T"): DECODE + MIXED},
        **options,
    )


def drawn(random: np.random.Generator) -> Inputs:
    """Uniform decode, or a mix of prompts, parts of prompts and single tokens."""
    requests = int(random.integers(1, MOST_REQUESTS + 1))
    counts = np.ones(requests, int)
    if random.random() < 0.5:
        counts = random.integers(1, LONGEST + 1, requests)
        counts[random.integers(requests)] = random.integers(2, LONGEST + 1)
    past = [0 if random.random() < 0.3 else int(random.integers(1, CONTEXT - count + 1)) for count in counts]
    return batch(random, past, counts.tolist())


def sizes_of(inputs: Inputs) -> Sizes:
    return len(inputs["tokens"]), len(inputs["counts"]), len(inputs["longest"])


def bucket_of(sizes: Sizes) -> Sizes:
    fitting = [b for b in DECODE + MIXED if all(size >= real for size, real in zip(b, sizes, strict=True))]
    return min(fitting, key=lambda bucket: (np.prod(bucket), bucket))


def segments_around_attention(served: capgraph.Program, sizes: Sizes) -> int:
    """How many segments the steps make between those of attention, in the order of a plan."""
    plan = make_plan(served.graph, dict(zip("NRT", sizes, strict=True)), HOST)
    is_attention = [step.node.op.name == "varlen_attention" for step in plan.steps]
    assert sum(is_attention) == LAYERS
    return sum(not outside for outside, _ in groupby(is_attention))


def assert_equal(given: Inputs, expected: Inputs) -> None:
    assert given.keys() == expected.keys()
    for name, value in expected.items():
        assert given[name].shape == value.shape
        np.testing.assert_allclose(given[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_decode_is_captured_whole_and_mixed_calls_in_five_segments() -> None:
    served, oracle = program(), capgraph.optimize(llama(), executor="eager")
    random = np.random.default_rng(0)
    calls: Counter[Sizes] = Counter()
    padded = rows = 0
    for _ in range(CALLS):
        inputs = drawn(random)
        sizes = sizes_of(inputs)
        assert_equal(served.run(inputs), oracle.run(inputs))
        bucket = bucket_of(sizes)
        calls[bucket] += 1
        if calls[bucket] > 1:
            padded += bucket != sizes
            rows += int(np.prod(bucket) - np.prod(sizes))
    stats = served.stats()
    decode, mixed = (sum(calls[bucket] - 1 for bucket in calls if (bucket in DECODE) is full) for full in (True, False))
    assert min(decode, mixed) > CALLS // 3
    assert stats.counters.replayed_calls == decode + mixed
    assert stats.counters.eager_calls == len(calls)  # the first call of each bucket
    assert stats.counters.replays == decode + 5 * mixed
    assert stats.counters.padded_calls == padded > CALLS // 3
    assert stats.counters.padded_rows == rows > 0
    assert not stats.refused
    for report in stats.buckets:
        sizes = tuple(dict(report.sizes)[name] for name in "NRT")
        assert report.verified
        assert report.calls == calls[sizes] - 1
        if sizes in DECODE:
            assert (report.segments, report.eager_segments, report.cuts) == (1, 0, ())
        else:
            assert report.segments == segments_around_attention(served, sizes) == LAYERS + 1
            assert report.cuts == (f"varlen_attention: {CutReason.READS_ON_HOST.value}",) * LAYERS


@pytest.mark.parametrize(("mode", "decode", "mixed"), [("full", 1, 0), ("piecewise", 5, 5), ("none", 0, 0)])
def test_other_modes(mode: str, decode: int, mixed: int) -> None:
    served, oracle = program(mode=mode), capgraph.optimize(llama(), executor="eager")
    random = np.random.default_rng(1)
    for counts, segments in (([1, 1, 1], decode), ([1, 5, 1], mixed)):
        before = served.stats().counters.replays
        inputs = batch(random, [4, 0, 7], counts)
        for _ in range(3):
            assert_equal(served.run(inputs), oracle.run(inputs))
        assert served.stats().counters.replays - before == 2 * segments


def test_a_prompt_at_once_is_the_prompt_token_by_token() -> None:
    """The model itself: mixed calls and decode calls mean the same."""
    served, length = program(), 6
    whole = batch(np.random.default_rng(2), [0], [length])
    for _ in range(2):
        expected = served.run(whole)
    caches = {name: value for name, value in whole.items() if name in expected}
    for step in range(length):
        single = batch(np.random.default_rng(2), [step], [1])
        given = served.run({**single, **caches, "tokens": whole["tokens"][step : step + 1]})
        caches = {name: given[name] for name in caches}
        np.testing.assert_allclose(given["logits"][0], expected["logits"][step], rtol=1e-4, atol=1e-5)
    assert_equal(caches, {name: expected[name] for name in caches})
    assert served.stats().counters.replays == 5 + (length - 1)
