"""What a command is."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One word of the command line.

    `configure` adds its arguments to a parser that has `--json` and `--debug` already. `run` does the work and writes
    to standard output; it raises a `CapgraphError` when it cannot. Heavy imports belong inside of it.
    """

    name: str
    summary: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], None]
