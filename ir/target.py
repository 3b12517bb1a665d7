"""Where a program runs, as plain data: what planners, reports and executors know of a device and its executor."""

from dataclasses import dataclass, field

from .ops import bounded


@dataclass(frozen=True, slots=True)
class Target:
    """An executor on a device, and what planning has to know of them.

    `captures` says whether it can record steps and replay them. `problem` says why it cannot run here (empty when it
    can), and `remedy` what to do about that. `alignment` is the alignment of buffers in bytes. `strided_views`: kernels
    take operands and results with any strides, so that transposes and slices cost nothing. `channels_last`: images
    between convolutions lie as [N, ..., C]. `joins_heads`: attention gives heads by step where that saves a copy.
    `keeps_orders`: elementwise and row by row results have their axes in the order of their operands' in memory.
    `uncapturable` names ops whose kernels cannot be recorded there, beyond those that no device can record.
    `plans_bodies`: its control flow runs bodies by plans of their own, which the plan has room for. `bounded` names the
    ops with a bound in place of an unknown size that it can run, `padded_flops` is how many operations one such bound
    may cost, and `padded_bytes` what all values that it makes larger may take together, views apart.
    """

    executor: str
    device: str
    captures: bool = False
    problem: str = ""
    remedy: str = ""
    alignment: int = 64
    strided_views: bool = True
    channels_last: bool = False
    joins_heads: bool = False
    keeps_orders: bool = False
    uncapturable: frozenset[str] = field(default_factory=frozenset[str])
    plans_bodies: bool = False
    bounded: frozenset[str] = field(default_factory=frozenset[str])
    padded_flops: int = 1 << 28
    padded_bytes: int = 1 << 30

    @property
    def is_available(self) -> bool:
        """Whether it can run here."""
        return not self.problem


_BOUNDED = frozenset(op.name for op in bounded.OPS)

HOST = Target("graph", "host", captures=True, keeps_orders=True, plans_bodies=True, bounded=_BOUNDED)
CUDA = Target(
    "graph",
    "cuda",
    captures=True,
    alignment=256,
    channels_last=True,
    joins_heads=True,
    bounded=_BOUNDED,
    padded_flops=1 << 36,
    padded_bytes=1 << 32,
)
