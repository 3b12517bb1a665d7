"""Philox: known answers, places that do not depend on how much is drawn, and distributions."""

import math

import numpy as np
import pytest
from capgraph.ir.constant import Array
from capgraph.ir.philox import fresh_state, long_words, normals, philox, uniforms, words

STATE = fresh_state(20)
COUNT = 100_000

# From Random123, https://github.com/DEShawResearch/random123, tests/kat_vectors
KNOWN = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: int, answer: tuple[int, ...]) -> None:
    made = philox(np.array(counter, np.uint32).reshape(4, 1), key)
    assert tuple(made[:, 0].tolist()) == answer


def test_a_word_follows_from_key_draw_and_place() -> None:
    state = np.array([2**40 + 5, 2**33], np.uint64)
    drawn = words(state, 7, 100_001)
    for place in (0, 3, 65_535, 65_536, 100_000):
        block = np.array([place // 4, 0, 7, 2], np.uint32).reshape(4, 1)
        assert drawn[place] == philox(block, 2**40 + 5)[place % 4, 0]
    low, high = (drawn[part : 20_000 + part : 2].astype(np.uint64) for part in (0, 1))
    np.testing.assert_array_equal(long_words(state, 7, 10_000), low | high << np.uint64(32))


@pytest.mark.parametrize("draw", [words, long_words, lambda *a: uniforms(*a, 24), lambda *a: normals(*a, 32)])
def test_elements_do_not_depend_on_how_many_there_are(draw: object) -> None:
    assert callable(draw)
    most = draw(STATE, 3, 200)
    for count in (0, 1, 2, 3, 4, 5, 199):
        np.testing.assert_array_equal(draw(STATE, 3, count), most[:count])
    ahead = np.array([STATE[0], 2], np.uint64)
    np.testing.assert_array_equal(draw(ahead, 1, 200), most)
    assert not np.array_equal(draw(STATE, 2, 200), most)


def test_keys() -> None:
    assert fresh_state(-1).tolist() == [2**64 - 1, 0]
    assert fresh_state().tolist() != fresh_state().tolist()


def distance(drawn: Array, cumulative: Array) -> float:
    """Kolmogorov's and Smirnov's: how far shares of `drawn`, sorted, are from those of a distribution."""
    steps = np.arange(len(drawn) + 1) / len(drawn)
    return float(max(np.max(steps[1:] - cumulative), np.max(cumulative - steps[:-1])))


LIMIT = 1.95 / COUNT**0.5
"""What the distance exceeds once in a thousand times."""


@pytest.mark.parametrize("bits", [24, 53])
def test_uniform_numbers(bits: int) -> None:
    drawn = np.sort(uniforms(STATE, 0, COUNT, bits).astype(np.float64))
    assert drawn[0] >= 0
    assert drawn[-1] < 1
    assert distance(drawn, drawn) < LIMIT


@pytest.mark.parametrize("bits", [8, 11, 24, 53])
def test_the_greatest_uniform_number_is_below_1(bits: int) -> None:
    width = 64 if bits > 24 else 32
    greatest = (2**width - 1 >> width - bits) * 2.0**-bits
    assert greatest == 1 - 2.0**-bits
    assert uniforms(STATE, 0, 1000, bits).max() <= greatest


@pytest.mark.parametrize("width", [32, 64])
def test_normal_numbers(width: int) -> None:
    drawn = normals(STATE, 1, COUNT, width)
    assert drawn.dtype == np.dtype(f"float{width}")
    ordered = np.sort(drawn.astype(np.float64))
    error = np.vectorize(math.erf)(ordered / 2**0.5)
    assert distance(ordered, (1 + error) / 2) < LIMIT
    pairs = ordered.size // 2
    assert abs(np.corrcoef(drawn[::2][:pairs], drawn[1::2][:pairs])[0, 1]) < 4 / pairs**0.5


@pytest.mark.parametrize(("width", "tolerance"), [(32, 6e-7), (64, 2e-15)])
def test_normal_numbers_are_those_of_box_and_muller(width: int, tolerance: float) -> None:
    drawn = (words if width == 32 else long_words)(STATE, 2, 2000).astype(np.float64).reshape(-1, 2) * 2.0**-width
    radius, angle = np.sqrt(-2 * np.log(drawn[:, 0] + 2.0 ** -(width + 1))), 2 * np.pi * drawn[:, 1]
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    np.testing.assert_allclose(normals(STATE, 2, 2000, width), expected, atol=5 * tolerance, rtol=0)
