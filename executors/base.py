"""What every executor is: it says where it can run, and makes graphs ready to run (`Executable`).

An executor that plans does so itself, for each set of sizes that a call brings: it is handed a planner. What runs a
single plan on a device is a `Device` (executors/replay/recorder.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..ir.analysis.contents import ROUNDS_NOTHING, Tf32
from ..ir.constant import Array
from ..ir.errors import UnsupportedError
from ..ir.graph import Graph
from ..ir.target import Target
from ..passes.catalog import launch_pipeline, level_pipeline
from ..passes.framework.pipeline import Pipeline
from .replay.options import ReplayOptions


class Executable(Protocol):
    """A graph made ready to run."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, in the order of the graph's outputs, for inputs by name.

        Raises `InputError` when an input does not fit, `ExecutionError` when a node fails, `ResourceError` when memory
        runs out.
        """
        ...

    def close(self) -> None:
        """Gives back what the executable holds. It must not run afterwards; closing twice is allowed."""
        ...


class Coverage(NamedTuple):
    """How a call ran: in `segments`, recordings or sessions, with `fallbacks` nodes outside of them or on the host."""

    segments: int
    fallbacks: int


@runtime_checkable
class Covered(Protocol):
    """An executable that runs graphs in segments, or on a device with the host behind it."""

    def coverage(self) -> Coverage:
        """How the latest call ran."""
        ...


@runtime_checkable
class Moving(Protocol):
    """An executable with states in memory of others."""

    def move_states(self, arrays: Mapping[str, Any]) -> None:
        """Has states, by the names of their inputs, in other arrays of the same shapes and dtypes from now on."""
        ...


@runtime_checkable
class Repeating(Protocol):
    """An executable that serves calls like the one before without looking for what they are."""

    def run_alike(self, inputs: Sequence[Any]) -> list[Any] | None:
        """The outputs in order, if the call is like the one before; None for another, of which nothing has run.

        Inputs are in the order of the graph's, without states that a store holds. Raises as `run`.
        """
        ...


@runtime_checkable
class Drawing(Protocol):
    """An executable whose random numbers follow from a state: u64[2], a key and how many draws were made with it."""

    @property
    def draws(self) -> int:
        """How many draws a call makes."""
        ...

    def set_random_state(self, state: Array) -> None:
        """Has the next call draw from that state."""
        ...


class Executor(Protocol):
    """A way of running graphs."""

    def target(self) -> Target:
        """Where it runs, or why it cannot run here."""
        ...

    def compile(self, graph: Graph) -> Executable:
        """`graph` made ready to run; it must not be edited while the executable is in use."""
        ...


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a program asks of its executor.

    `device`, `level`, `tune`, `strict` and `threads` are those of `optimize`. `tf32` says whose operands may be
    rounded, `check` what is checked after passes on the way to a plan, and `seeded` that random numbers follow from
    a seed. `replay` are the options of recording, and `reread` reads a graph with foreign nodes
    again, once more of it is known.
    """

    device: str = "auto"
    level: int = 2
    tune: bool | None = None
    tf32: Tf32 = ROUNDS_NOTHING
    check: str = "none"
    strict: bool = False
    threads: int | None = None
    seeded: bool = False
    replay: ReplayOptions | None = None
    reread: Callable[[Graph], Graph] | None = None

    @property
    def recording(self) -> ReplayOptions:
        """The options of recording, those that a user has who gives none."""
        return self.replay or ReplayOptions()


def is_cuda(device: str) -> bool:
    """Whether a device's name means a GPU."""
    return device == "cuda" or device.startswith("cuda:")


def check_device(device: str) -> None:
    """Raises `UnsupportedError` for a name that means neither the host nor a GPU."""
    if device not in ("auto", "host") and not is_cuda(device):
        raise UnsupportedError(f"device={device!r} is not known", remedy='use device="host" (or "auto"), or "cuda"')


def pipeline_for(level: int, device: str) -> Pipeline:
    """The passes of a level for a device."""
    return launch_pipeline(level) if is_cuda(device) else level_pipeline(level)
