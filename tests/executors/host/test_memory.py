import pytest
from capgraph.executors.host import memory
from capgraph.executors.host.memory import POISON, HostArena, address_of
from capgraph.ir.errors import CaptureError, ResourceError


@pytest.mark.parametrize("alignment", [1, 64, 4096])
@pytest.mark.parametrize("nbytes", [0, 1, 1000])
def test_an_arena_is_aligned_and_full_of_poison(nbytes: int, alignment: int) -> None:
    arena = HostArena(nbytes, alignment)
    assert arena.address % alignment == 0
    assert arena.bytes.shape == (nbytes,)
    assert (arena.bytes == POISON).all()
    assert not nbytes or address_of(arena.bytes) == arena.address


def test_an_arena_that_was_given_back_is_not_used() -> None:
    arena = HostArena(10, 64)
    arena.close()
    assert arena.address == 0
    with pytest.raises(CaptureError, match="given back"):
        _ = arena.bytes


def test_an_arena_larger_than_memory_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 20)
    with pytest.raises(ResourceError, match=r"takes 2.0 MiB, but 1.0 MiB are available"):
        HostArena(2 << 20, 64)
