"""What a program asks of its executor, and what the names of devices mean."""

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.analysis.rounding import ROUNDS_NOTHING, Tf32
from ..ir.errors import UnsupportedError
from ..ir.graph import Graph
from ..passes.catalog import launch_pipeline, level_pipeline
from ..passes.framework.pipeline import Pipeline
from .replay.options import ReplayOptions


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
