"""Which executors there are, which of them can run here, and which one a program gets."""

from collections.abc import Callable

from .executors.base import Executor
from .ir.errors import UnsupportedError
from .ir.target import Target


def _eager() -> Executor:
    from .executors.eager import EagerExecutor

    return EagerExecutor()


def _ort() -> Executor:
    from .executors.ort.executor import OrtExecutor

    return OrtExecutor()


def _graph() -> Executor:
    from .executors.replay.options import ReplayOptions
    from .recording import graph_executor

    return graph_executor("host", ReplayOptions())


# In the order in which "auto" tries them.
_EXECUTORS: dict[str, Callable[[], Executor]] = {"ort": _ort, "eager": _eager, "graph": _graph}

_DEVICES = ("auto", "host")


def targets() -> list[Target]:
    """Every executor, in the order in which "auto" tries them: where it runs, or why it cannot."""
    return [make().target() for make in _EXECUTORS.values()]


def _first_available() -> str:
    return next(name for name, make in _EXECUTORS.items() if make().target().is_available)


def choose_executor(executor: str, device: str) -> Executor:
    """The executor for these options of `optimize`. Raises `UnsupportedError` for what cannot run here."""
    if device not in _DEVICES:
        raise UnsupportedError(f"device={device!r} is not supported yet", remedy='use device="host" (or "auto")')
    name = _first_available() if executor == "auto" else executor
    if name not in _EXECUTORS:
        known = ", ".join(["auto", *_EXECUTORS])
        raise UnsupportedError(f"there is no executor {executor!r}", remedy=f"one of {known}")
    chosen = _EXECUTORS[name]()
    target = chosen.target()
    if not target.is_available:
        raise UnsupportedError(f"executor={name!r} cannot run here: {target.problem}", remedy=target.remedy)
    return chosen
