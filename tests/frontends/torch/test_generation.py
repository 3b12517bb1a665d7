"""transformers' own `generate` with this backend: eager's tokens, by one program for decoding."""

import pytest
import torch
from capgraph.pytorch.backend import CompiledFunction

from tests.frontends.torch.generation import compiled_text, small_llama, text

torch.set_num_threads(1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[CompiledFunction]:
    """The functions that are compiled from now on."""
    found: list[CompiledFunction] = []
    initialize = CompiledFunction.__init__
    monkeypatch.setattr(
        CompiledFunction, "__init__", lambda self, *args: (found.append(self), initialize(self, *args))[1]
    )
    torch._dynamo.reset()
    return found


def test_each_text_has_another_cache_and_the_same_program(made: list[CompiledFunction]) -> None:
    model = small_llama()
    for count in (20, 12, 20):  # transformers makes a new cache for each, of the greatest length so far
        written = compiled_text(model, count, executor="graph")
        assert written == text(model, count)
        assert len(set(written)) > 3
    (decode,) = made
    counters = decode.program.stats().counters
    assert (counters.captures, counters.state_moves, counters.eager_calls) == (1, 2, 1)
    assert counters.replayed_calls == counters.calls - 1 == 19 + 11 + 19 - 1
    assert "states: 2 x in other memory" in decode.program.explain()


def test_longer_texts_have_longer_caches(made: list[CompiledFunction]) -> None:
    """From the second length on PyTorch lets it vary: a program is made for each length, none for each text."""
    model = small_llama()
    for count in (8, 12, 16, 14):
        assert compiled_text(model, count, executor="graph") == text(model, count)
    assert len(made) == 2, "graphs of PyTorch: for the first length, and for all others"
    shapes = {tuple(tensor.shape) for tensor in made[1].program.states.values() if tensor.dim() == 4}
    assert shapes == {(1, 2, 5 + 16 - 1, 8)}
    assert len(made[1]._made) == 2
    assert made[1].program.stats().counters.state_moves == 1
