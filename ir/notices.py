"""Warnings: a program that does not do what its name says tells of it once, by `warnings` and by `logging`."""

import inspect
import logging
import warnings

_LOG = logging.getLogger("capgraph")
_LOG.addHandler(logging.NullHandler())  # who configures no logging reads of it by `warnings` alone
_PACKAGE = __name__.partition(".")[0] + "."


class CapgraphWarning(UserWarning):
    """A program runs otherwise than it was asked to: nothing is recorded, or a part runs elsewhere."""


class Notices:
    """What has been said about one program; each subject is said once."""

    def __init__(self, name: str) -> None:
        self._where = f"model {name}" if name else "a model without a name"
        self._said: set[str] = set()

    def say(self, subject: str, message: str, remedy: str) -> None:
        """Warns (`CapgraphWarning`) and logs, unless something was said on `subject` before."""
        if subject in self._said:
            return
        self._said.add(subject)
        text = f"{message}\n  at {self._where}\n  try: {remedy}"
        _LOG.warning("%s", text)
        warnings.warn(text, CapgraphWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """The `stacklevel` of the first frame that is outside of the package, seen from `Notices.say`."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
