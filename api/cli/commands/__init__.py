"""The commands of the command line, one file each: it has a `COMMAND`, which stands in the list below."""

from . import bisect, choices, compare, doctor, optimize, run, show
from .base import Command

COMMANDS: tuple[Command, ...] = (
    run.COMMAND,
    optimize.COMMAND,
    bisect.COMMAND,
    compare.COMMAND,
    show.COMMAND,
    doctor.COMMAND,
    choices.COMMAND,
)
