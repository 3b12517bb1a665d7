"""One line on the terminal that says what is being done, and goes away when it is done; steps of plans in words."""

import sys
from types import TracebackType
from typing import Self, TextIO

from ..ir.graph import Node
from ..ir.ops.known import FUSED

_CLEAR = "\r\x1b[2K"


class Progress:
    """Shows `text` on standard error while the `with` block runs; silent when that is not a terminal.

    With a `total`, `advance` counts towards it.
    """

    def __init__(self, text: str, total: int | None = None, *, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._text = text
        self._total = total
        self._done = 0

    def __enter__(self) -> Self:
        self._show()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._write(_CLEAR)

    def advance(self, text: str | None = None) -> None:
        """One more is done; `text` replaces what is shown."""
        self._done += 1
        self._text = text or self._text
        self._show()

    def _show(self) -> None:
        counted = f" {self._done}/{self._total}" if self._total else ""
        self._write(f"{_CLEAR}{self._text}{counted} ...")

    def _write(self, text: str) -> None:
        if self._stream.isatty():
            self._stream.write(text)
            self._stream.flush()


class CaptureLine:
    """A line on the terminal that counts the buckets which are captured up front."""

    def __init__(self) -> None:
        self._line: Progress | None = None

    def __call__(self, done: int, total: int, what: str) -> None:
        """See `CaptureOptions.progress`."""
        if self._line is None:
            self._line = Progress("capturing", total)
            self._line.__enter__()
        elif done < total:
            self._line.advance(f"capturing {what}")
        if done == total:
            self._line.__exit__(None, None, None)
            self._line = None


SHOWN_NODES = 8
"""How many nodes of one step are named."""


def step_name(node: Node) -> str:
    """A step's op and origin; of a `fused` node, which is no node of the user's, those of the nodes that it joins."""
    if node.op is not FUSED:
        return node.op.name if node.origin is None else f"{node.op.name} ({node.origin})"
    names = [step_name(each) for each in node.attrs["body"].nodes if each.inputs]
    more = f" and {len(names) - SHOWN_NODES:,} more" if len(names) > SHOWN_NODES else ""
    return f"{', '.join(names[:SHOWN_NODES])}{more}"
