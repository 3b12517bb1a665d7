"""What every executor is: it says where it can run (`Target`), and makes graphs ready to run (`Executable`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Target:
    """Where an executor runs, as plain data: what passes, planners and `capgraph doctor` may know of it.

    `captures` says whether it can record steps and replay them. `problem` says why it cannot run here (empty when it
    can), and `remedy` what to do about that.
    """

    executor: str
    device: str
    captures: bool = False
    problem: str = ""
    remedy: str = ""

    @property
    def is_available(self) -> bool:
        return not self.problem


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


class Executor(Protocol):
    """A way of running graphs."""

    def target(self) -> Target:
        """Where it runs, or why it cannot run here."""
        ...

    def compile(self, graph: Graph) -> Executable:
        """`graph` made ready to run; it must not be edited while the executable is in use."""
        ...
