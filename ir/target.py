"""What a device can do, as plain data: how passes and planners learn of it without importing executors."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """One device as seen by planning.

    `alignment` is the alignment of buffers in bytes. `strided_views`: kernels take operands and results with any
    strides, so that transposes and slices cost nothing. `uncapturable` names ops whose kernels cannot be recorded
    there, beyond those that no device can record.
    """

    name: str
    alignment: int = 64
    strided_views: bool = True
    uncapturable: frozenset[str] = field(default_factory=frozenset[str])


HOST = Target("host")
CUDA = Target("cuda", alignment=256)
