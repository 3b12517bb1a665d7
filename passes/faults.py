"""Mistakes of the author of a rule or pass, as errors that name it."""

from ..ir.errors import CapgraphError, InternalError

FAULTS = (
    CapgraphError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What faulty code may raise; memory that runs out and interrupts are nobody's fault."""


def fault(what: str, error: BaseException, where: str | None) -> InternalError:
    """The error to raise when `what` (a rule or pass by name) raised one of `FAULTS`, at `where` if it does not say."""
    if isinstance(error, CapgraphError):
        return InternalError(f"{what} failed: {error.message}", where=error.where or where)
    return InternalError(f"{what} failed: {type(error).__name__}: {error}", where=where)
