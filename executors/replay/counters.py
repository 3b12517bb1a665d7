"""What a recorded program counts, for `stats()` and `explain()`."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass
class Counters:
    """Since the program was made.

    `replayed_calls` ran through captured segments, `eager_calls` through eager steps only, for the reasons in
    `eager_reasons`, `exact_calls` in programs of their own (`exact_sizes.py`); `replays` counts segments. `rows` and
    `padded_rows` are the real and the added rows of replayed and padded calls, a row being one step along the padded
    dims. `stale_reads` counts static outputs read too late, `state_moves` how often states went over to other memory,
    `size_reads` the calls after which the host read sizes that only running tells. `refuted_proofs` are proofs that a
    dim may be padded which the checker did not accept, so that it is not.
    """

    calls: int = 0
    replayed_calls: int = 0
    eager_calls: int = 0
    eager_reasons: Counter[str] = field(default_factory=Counter[str])
    exact_calls: int = 0
    replays: int = 0
    padded_calls: int = 0
    rows: int = 0
    padded_rows: int = 0
    size_reads: int = 0
    captures: int = 0
    capture_seconds: float = 0.0
    evictions: int = 0
    refused_segments: int = 0
    refused_buckets: int = 0
    input_copies: int = 0
    input_repoints: int = 0
    input_rerecords: int = 0
    input_refusals: int = 0
    state_moves: int = 0
    refuted_proofs: int = 0

    @property
    def waste(self) -> float:
        """The share of rows that were computed for nothing."""
        total = self.rows + self.padded_rows
        return self.padded_rows / total if total else 0.0


@dataclass(frozen=True)
class BucketReport:
    """One captured bucket: its sizes, what its memory is besides the shared arena, segments and calls.

    `segments` are captured, `eager_steps` run in `eager_segments`. `refusals` says which run eagerly after all, and
    why; `verified` whether it was held against eager. `bounded` names the nodes of unknown size that were recorded,
    `rewrites` how many each pass made on the way to the plan.
    """

    sizes: tuple[tuple[str, int], ...]
    nbytes: int
    segments: int
    eager_segments: int
    eager_steps: int
    kernels: int
    calls: int
    seconds: float
    verified: bool
    refusals: tuple[str, ...]
    cuts: tuple[str, ...]
    policies: tuple[tuple[str, str], ...]
    bounded: tuple[str, ...] = ()
    rewrites: tuple[tuple[str, int], ...] = ()


@runtime_checkable
class Counting(Protocol):
    """An executable that counts."""

    def stats(self) -> "Stats":
        """A snapshot of what was counted."""
        ...


@dataclass(frozen=True)
class Stats:
    """A snapshot of a program's counters and buckets.

    `safety` has a line for each dim, `refused` one for each bucket that is not captured.
    """

    counters: Counters
    arena_bytes: int
    recording_bytes: int
    buckets: tuple[BucketReport, ...]
    safety: tuple[str, ...]
    refused: tuple[str, ...]
