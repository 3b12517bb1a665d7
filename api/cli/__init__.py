"""The command line: `capgraph COMMAND ...`, also as `python -m capgraph.cli`.

Exit codes: 0 done, 1 the command failed with a message on standard error, 2 the arguments make no sense. `--debug`
shows the traceback of a failure.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .. import __version__
from ..ir.errors import CapgraphError, out_of_memory
from ..ir.notices import CapgraphWarning
from .commands import COMMANDS

_FAILED = 1
_INTERRUPTED = 130  # what shells report for a process that SIGINT ended


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives the exit code. Raises `SystemExit` as argparse does, for --help and bad usage."""
    arguments = make_parser().parse_args(argv)
    if arguments.debug:
        return _run(arguments)
    try:
        return _run(arguments)
    except CapgraphError as error:
        return _fail(arguments.command, error)
    except MemoryError:
        return _fail(arguments.command, out_of_memory())
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`capgraph show MODEL | head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="capgraph", description="Runs, shows, optimizes and checks models from ONNX files.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"capgraph {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = commands.add_parser(
            command.name, help=command.summary, description=command.summary, parents=[_common()], allow_abbrev=False
        )
        command.configure(own)
        own.set_defaults(run=command.run)
    return parser


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="write JSON instead of text")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return common


def _run(arguments: argparse.Namespace) -> int:
    with warnings.catch_warnings():
        warnings.showwarning = partial(_warn, arguments.command, warnings.showwarning)
        arguments.run(arguments)
    sys.stdout.flush()  # so that a reader that has gone is noticed here
    return 0


def _warn(command: str, otherwise: Callable[..., None], message: Warning | str, *rest: Any) -> None:
    """Shows our own warnings as errors are shown, without the place in the code."""
    if isinstance(message, CapgraphWarning):
        print(f"capgraph {command}: warning: {message}", file=sys.stderr)
    else:
        otherwise(message, *rest)


def _fail(command: str, error: CapgraphError) -> int:
    print(f"capgraph {command}: {type(error).__name__}: {error}", file=sys.stderr)
    return _FAILED
