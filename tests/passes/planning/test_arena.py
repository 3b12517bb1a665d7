import random
from itertools import combinations

import pytest
from capgraph.passes.planning import arena
from capgraph.passes.planning.arena import ArenaLayout, Block, lower_bound, place
from hypothesis import given
from hypothesis import strategies as st

from tests.counted_work import lines_in

BLOCKS = st.lists(
    st.builds(
        lambda size, first, length: Block(64 * size, first, first + length),
        st.integers(0, 20),
        st.integers(-1, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


def _hold(blocks: list[Block], layout: ArenaLayout) -> None:
    assert len(layout.offsets) == len(blocks)
    for (a, at), (b, bt) in combinations(zip(blocks, layout.offsets, strict=True), 2):
        lives_together = a.first <= b.last and b.first <= a.last
        assert not (lives_together and at < bt + b.nbytes and bt < at + a.nbytes), f"{a} at {at} meets {b} at {bt}"
    ends = [at + block.nbytes for block, at in zip(blocks, layout.offsets, strict=True) if block.nbytes]
    assert layout.nbytes == max(ends, default=0)
    assert all(at >= 0 and at % 64 == 0 for at in layout.offsets)


@given(BLOCKS)
def test_blocks_that_live_together_never_overlap(blocks: list[Block]) -> None:
    layout = place(blocks)
    _hold(blocks, layout)
    assert layout.nbytes >= lower_bound(blocks)


@given(BLOCKS)
def test_the_bound_is_the_largest_sum_that_lives_at_one_step(blocks: list[Block]) -> None:
    sums = [sum(b.nbytes for b in blocks if b.first <= step <= b.last) for step in range(-1, 45)]
    assert lower_bound(blocks) == max(sums)


@given(BLOCKS)
def test_placing_is_deterministic(blocks: list[Block]) -> None:
    assert place(blocks) == place(blocks)


def test_no_blocks_need_no_arena() -> None:
    assert place([]) == ArenaLayout((), 0)
    assert place([Block(0, 0, 5)]) == ArenaLayout((0,), 0)


def test_a_chain_needs_two_blocks_at_a_time() -> None:
    blocks = [Block(64, i, i + 1) for i in range(50)]
    assert place(blocks).nbytes == lower_bound(blocks) == 128


def test_what_a_gap_order_misses_the_skyline_finds() -> None:
    blocks = [Block(64, 0, 1), Block(128, 1, 3), Block(64, 2, 5), Block(192, 4, 6), Block(128, 6, 7), Block(64, 0, 7)]
    assert place(blocks).nbytes == lower_bound(blocks)


def drawn_blocks(count: int, kind: str) -> list[Block]:
    """Blocks as graphs have them: mostly short lives (`short`), some long ones (`mixed`), any length (`long`)."""
    chosen = random.Random(count)
    blocks: list[Block] = []
    for _ in range(count):
        first = chosen.randrange(count)
        length = chosen.expovariate(1 / 3)
        if kind == "long" or (kind == "mixed" and chosen.random() < 0.1):
            length = chosen.expovariate(3 / count)
        blocks.append(Block(64 * int(2 ** chosen.uniform(0, 14)), first, min(first + int(length), count)))
    return blocks


@pytest.mark.parametrize("kind", ["short", "mixed", "long"])
@pytest.mark.parametrize("count", [30, 100, 300, 600])
def test_random_blocks_come_within_a_twentieth_of_the_bound(count: int, kind: str) -> None:
    blocks = drawn_blocks(count, kind)
    assert place(blocks).nbytes <= 1.05 * lower_bound(blocks)


@pytest.mark.parametrize("kind", ["short", "mixed", "long"])
def test_a_thousand_random_blocks_come_within_a_tenth(kind: str) -> None:
    blocks = drawn_blocks(1000, kind)
    assert place(blocks).nbytes <= 1.1 * lower_bound(blocks)


@pytest.mark.parametrize("kind", ["short", "mixed"])
def test_twenty_thousand_blocks_are_placed_once_in_linear_work(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    once = arena._Placement._try
    monkeypatch.setattr(arena._Placement, "_try", lambda self, attempt: (tried.append(attempt), once(self, attempt)))
    blocks = drawn_blocks(20_000, kind)
    layout = place(blocks)
    assert len(tried) == 1
    assert layout.nbytes <= 1.05 * lower_bound(blocks)
    few = drawn_blocks(5_000, kind)
    assert lines_in(lambda: place(blocks)) <= 4.5 * lines_in(lambda: place(few))
