"""The errors that capgraph raises: few, and each says what happened, where, and what to do.

Everything a caller can trigger with a bad model, a bad input or a missing package derives from `CapgraphError`, so one
`except capgraph.CapgraphError` is enough. A bug in capgraph itself is `InternalError`: it asks for a report.
"""

from typing import Any


class CapgraphError(Exception):
    """Base of all errors for users.

    `message` says what is wrong, `where` names the place (a node and its origin, a file, a line), `remedy` what to do
    about it. `located` adds a place to an error that was raised without one, `of_model` the model that it is in.
    """

    def __init__(self, message: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [self.message]
        if self.where:
            parts.append(f"  at {self.where}")
        if self.remedy:
            parts.append(f"  try: {self.remedy}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.where, self.remedy))

    def located(self, where: str) -> "CapgraphError":
        """The same error with a place, unless it already has one; a bare `raise` sends it on."""
        if self.where is None:
            self.where = where
        return self

    def of_model(self, name: str, remedy: str) -> "CapgraphError":
        """The same error with the model's name behind the place, and with this remedy unless it has one."""
        model = f"model {name}" if name else "a model without a name"
        self.where = f"{self.where} of {model}" if self.where else model
        self.remedy = self.remedy or remedy
        return self


def cause_of(error: BaseException) -> BaseException | None:
    """What an error is raised from that stands for `error`: it, or the cause that it has when it is one for users.

    That one is sent on itself, with a place; as its own cause it would hide the one that it had.
    """
    return error.__cause__ if isinstance(error, CapgraphError) else error


def _rebuild(cls: type[CapgraphError], message: str, where: str | None, remedy: str | None) -> CapgraphError:
    return cls(message, where=where, remedy=remedy)


class ModelError(CapgraphError):
    """The model itself is broken: unreadable bytes, dangling or cyclic edges, a missing or escaping external file."""


class TypeRuleError(CapgraphError):
    """An op was applied to operands or attributes that its rule does not allow."""


class ShapeError(CapgraphError):
    """Shapes or dims that contradict each other, at build time or when symbols are bound to sizes."""


class InvalidGraphError(CapgraphError):
    """A graph breaks one of the invariants listed in `ir.verify`, or an edit would have broken one."""


class ParseError(CapgraphError):
    """The text form cannot be read; the message carries the line and a caret below the offending column."""


class InputError(CapgraphError):
    """A call's inputs do not fit the program: missing, surplus, of another dtype, rank, size or device."""


class UnsupportedError(CapgraphError):
    """What was asked for is valid, but cannot be done here; the remedy names the way around."""


class ExecutionError(CapgraphError, RuntimeError):
    """A node failed while running: its kernel raised, or it gave another type than the graph says.

    A `RuntimeError`, as what PyTorch's kernels raise.
    """


class CheckError(CapgraphError, RuntimeError):
    """What the model itself checks does not hold: `torch._check` or an assert, of sizes or data. PyTorch's message."""


class CaptureError(CapgraphError):
    """A recording broke a rule of capture (nothing is allocated, read on the host, moved or resized) or has ended.

    Also raised when a recording is replayed although memory that it refers to is gone or has moved, and by a strict
    program where a call, or a part of it, has no recording.
    """


class ResourceError(CapgraphError):
    """Memory, disk or a device ran out, or a size limit was passed."""


def out_of_memory(what: str = "", *, where: str | None = None, remedy: str = "use smaller sizes") -> ResourceError:
    """The error to raise from a `MemoryError`, for which `what` had no memory."""
    return ResourceError(f"out of memory for {what}" if what else "memory ran out", where=where, remedy=remedy)


class MissingPackageError(CapgraphError):
    """An optional package is needed and not installed; the remedy is the pip command."""


class InternalError(CapgraphError):
    """A bug in capgraph; please report it with the text form of the graph."""


class MiscompiledError(InternalError):
    """A pass was found to break a graph, or to change what it means; raised where passes are checked."""
