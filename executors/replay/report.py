"""Recorded programs in words: the lines of `explain()` about segments, buckets, inputs, padding and fallbacks."""

from collections.abc import Iterator

from ..memory import size_text
from .counters import BucketReport, Stats

SHOWN_CUTS = 8


def remarks_on(stats: Stats) -> Iterator[str]:
    """The lines about one program."""
    counters = stats.counters
    yield (
        f"calls: {counters.calls:,}, of which {counters.replayed_calls:,} replayed in {counters.replays:,} segments "
        f"and {counters.eager_calls:,} ran eagerly"
    )
    yield from (f"  eager: {count:,} x {reason}" for reason, count in counters.eager_reasons.most_common())
    yield (
        f"padding: {counters.padded_calls:,} calls, {counters.padded_rows:,} rows beside {counters.rows:,} real ones: "
        f"{100 * counters.waste:.1f}% waste"
    )
    yield from (f"  {line}" for line in stats.safety)
    yield (
        f"inputs: {counters.input_copies:,} copied, {counters.input_repoints:,} re-pointed, "
        f"{counters.input_rerecords:,} recorded again, {counters.input_refusals:,} refused"
    )
    if counters.state_moves:
        yield f"states: {counters.state_moves:,} x in other memory than before, and recorded once more"
    yield (
        f"memory: {size_text(stats.arena_bytes)} arena, {size_text(stats.recording_bytes)} recordings; "
        f"{counters.captures:,} captures in {counters.capture_seconds:.2f} s, {counters.evictions:,} evictions"
    )
    if counters.size_reads:
        yield f"sizes: read by the host after {counters.size_reads:,} calls, to cut outputs to what was found"
    for bucket in stats.buckets:
        yield from _bucket_lines(bucket)
    yield from (f"refused bucket {line}" for line in stats.refused)


def _bucket_lines(bucket: BucketReport) -> Iterator[str]:
    sizes = ", ".join(f"{name} = {size}" for name, size in bucket.sizes) or "of fixed sizes"
    verified = "verified" if bucket.verified else "not verified (random ops)"
    yield (
        f"bucket {sizes}: {bucket.segments} segments with {bucket.kernels} kernels, {bucket.eager_segments} eager, "
        f"{bucket.calls:,} calls, {size_text(bucket.nbytes)}, captured in {bucket.seconds:.2f} s, {verified}"
    )
    if bucket.rewrites:
        yield f"  rewrites: {', '.join(f'{name} {count}' for name, count in bucket.rewrites)}"
    yield from (f"  refused segment: {line}" for line in bucket.refusals)
    yield from (f"  bounded: {line}" for line in bucket.bounded[:SHOWN_CUTS])
    if len(bucket.bounded) > SHOWN_CUTS:
        yield f"  and {len(bucket.bounded) - SHOWN_CUTS} more bounded"
    yield from (f"  outside: {line}" for line in bucket.cuts[:SHOWN_CUTS])
    if len(bucket.cuts) > SHOWN_CUTS:
        yield f"  and {len(bucket.cuts) - SHOWN_CUTS} more outside"
    placed = [f"{name} ({policy})" for name, policy in bucket.policies if policy != "copy"]
    if placed:
        yield f"  inputs in place: {', '.join(placed)}"
