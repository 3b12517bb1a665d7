"""Mistakes of the author of a rule or pass, as errors that name it."""

from ...ir.errors import CapgraphError, InternalError

FAULTS = Exception
"""What faulty code may raise: anything, an exception class of its own included; interrupts and exits are no faults."""


def fault(what: str, error: Exception, where: str | None) -> InternalError:
    """The error to raise when `what` (a rule or pass by name) raised one of `FAULTS`, at `where` if it does not say.

    Raises `error` itself when memory ran out, which is nobody's fault.
    """
    if isinstance(error, MemoryError):
        raise error
    if isinstance(error, CapgraphError):
        return InternalError(f"{what} failed: {error.message}", where=error.where or where)
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    return InternalError(f"{what} failed: {said}", where=where)
