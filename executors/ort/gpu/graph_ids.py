"""The numbers under which one session keeps its recorded graphs.

ONNX Runtime replays whatever it has recorded under a number, whatever is bound: with another shape or other memory it
would read and write the old one in silence. So a number is taken once, and checked on every replay.
"""

from typing import NamedTuple

from ....ir.errors import CaptureError

EAGER = -1
"""The number that records and replays nothing."""


class Bound(NamedTuple):
    """One input or output of a session: its shape, and the address of its memory."""

    name: str
    shape: tuple[int, ...]
    address: int


Signature = tuple[Bound, ...]


class GraphIds:
    """Hands out the numbers of one session, each for one signature. Numbers are never used again."""

    def __init__(self) -> None:
        self._taken: dict[int, Signature] = {}
        self._next = 1

    def take(self, signature: Signature) -> int:
        """A new number for graphs with these shapes and addresses."""
        number, self._next = self._next, self._next + 1
        self._taken[number] = signature
        return number

    def check(self, number: int, signature: Signature) -> None:
        """Raises `CaptureError` when `number` stands for other shapes or addresses, or for none any more."""
        known = self._taken.get(number)
        if known is signature:
            return
        if known is None:
            raise CaptureError(f"graph {number} of the session was given back", remedy="record it again")
        for old, new in zip(known, signature, strict=True):
            if old != new:
                raise CaptureError(f"graph {number} was recorded with {_text(old)}, not {_text(new)}")

    def release(self, number: int) -> None:
        """Gives a number back."""
        self._taken.pop(number, None)

    def __len__(self) -> int:
        return len(self._taken)


def _text(bound: Bound) -> str:
    return f"{bound.name} {list(bound.shape)} at {bound.address:#x}"
