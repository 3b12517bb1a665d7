"""How much memory a run may take before it would push the machine into swapping."""

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_OWN_PAGES = Path("/proc/self/statm")
_CONTROL_GROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """The main memory that can still be taken without swapping, in bytes; None where the system does not say.

    On Linux this is `MemAvailable`, or what is left of the control group's limit where that is less (cgroup v2).
    """
    known = [size for size in (_available_here(), _left_in_group()) if size is not None]
    return min(known, default=None)


def _available_here() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return _free_pages()
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _free_pages() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not a name there, or not a system with sysconf
        return None


def _left_in_group() -> int | None:
    try:
        limit = (_CONTROL_GROUP / "memory.max").read_text().strip()
        facts = dict(line.split() for line in (_CONTROL_GROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if not limit.isdigit():  # "max"
        return None
    return max(0, int(limit) - int(facts.get("anon", 0)))


def resident_bytes() -> int | None:
    """The main memory that this process holds, in bytes; None where the system does not say."""
    try:
        pages = int(_OWN_PAGES.read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def size_text(count: float) -> str:
    """A number of bytes for readers: `3.2 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.3g} EiB"
