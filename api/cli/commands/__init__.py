"""The commands of the command line, one file each: it has a `COMMAND`, which stands in the list below."""

from . import bisect, compare, doctor, optimize, run, show, tuning_cache
from .arguments import Command

COMMANDS: tuple[Command, ...] = (
    run.COMMAND,
    optimize.COMMAND,
    bisect.COMMAND,
    compare.COMMAND,
    show.COMMAND,
    doctor.COMMAND,
    tuning_cache.COMMAND,
)
