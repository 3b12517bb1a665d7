"""What commands share: what one is, arguments that several take, and the table of two models compared."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...comparing.tables import Table

if TYPE_CHECKING:
    from ...comparing.closeness import Tolerance
    from ...passes.framework.base import Pass
    from ...passes.framework.pipeline import Pipeline


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


def add_dims(parser: ArgumentParser) -> None:
    """Adds `--dim NAME=N`, a list of pairs."""
    parser.add_argument(
        "--dim", metavar="NAME=N", type=size, action="append", default=[], help="the size of a symbolic dimension"
    )


def add_inputs(parser: ArgumentParser) -> None:
    """Adds `--input NAME=SOURCE`, a list of pairs."""
    parser.add_argument(
        "--input",
        metavar="NAME=SOURCE",
        type=assignment,
        action="append",
        default=[],
        help="a .npy file, a picture, a number for a scalar, or the word random, which is also the default",
    )


def add_tolerance(parser: ArgumentParser) -> None:
    """Adds `--rtol` and `--atol`, of what two models may differ by."""
    parser.add_argument(
        "--rtol",
        metavar="X",
        type=_fraction,
        help="what floats may differ by, of an output's largest value "
        "(default: by the narrowest float inside, the longest sum, and what the model is off by itself)",
    )
    parser.add_argument(
        "--atol", metavar="X", type=_fraction, default=0.0, help="what numbers may differ by (default 0)"
    )


def chosen_tolerance(arguments: Namespace) -> "Tolerance":
    """The tolerance that the arguments ask for."""
    from ...comparing.closeness import Tolerance

    return Tolerance(arguments.rtol, arguments.atol)


def _fraction(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def assignment(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def count(text: str) -> int:
    """A whole number of at least 0."""
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = count(text)
    if not number:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def size(text: str) -> tuple[str, int]:
    """NAME=N."""
    name, value = assignment(text)
    return name, count(value)


LEVELS = range(4)
DEFAULT_LEVEL = 2


def add_passes(parser: ArgumentParser) -> None:
    """Adds `--level`, `--passes` and `--without`."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--level",
        metavar="N",
        type=int,
        choices=LEVELS,
        help="0 nothing, 1 exact, 2 may re-associate sums (default), 3 approximations too",
    )
    choice.add_argument(
        "--passes", metavar="TEXT", help='these passes, as in "fold-constants{limit=64},cse;eliminate-dead-code"'
    )
    parser.add_argument(
        "--without", metavar="PASS", action="append", default=[], help="leave this pass out of the level or the text"
    )


def chosen_pipeline(
    arguments: Namespace, device: str = "host", further: "tuple[tuple[Pass, ...], ...]" = ()
) -> "Pipeline":
    """The pipeline that the arguments ask for, by levels as they are on `device`, and `further` stages.

    Raises `UnsupportedError` for an unknown pass or option, `InputError` for text that names no pass.
    """
    from ...executors.base import pipeline_for
    from ...ir.errors import InputError
    from ...passes.catalog import pipeline
    from ...passes.framework.pipeline import Pipeline

    if arguments.passes is not None:
        given = pipeline(arguments.passes)
        if not given.stages:
            raise InputError(f"--passes {arguments.passes!r} names no pass", remedy="--level 0 runs none")
    else:
        given = pipeline_for(DEFAULT_LEVEL if arguments.level is None else arguments.level, device)
    return Pipeline((*given.stages, *further)).without(arguments.without)


_SHOWN_OUTPUTS = 8


def check_text(check: Mapping[str, Any]) -> str:
    """What two models were compared on and by what, and the outputs that are furthest apart."""
    sizes = ", ".join(f"{name}={size}" for name, size in check["sizes"].items())
    many = "s" if check["inputs"] > 1 else ""
    head = f"compared on {check['inputs']} input{many} through {check['runtime']}{f', {sizes}' if sizes else ''}"
    outputs = check["outputs"]
    columns = ("output", "largest error", "of its largest value", "allowed", "held to")
    rows = [
        (each["name"], each["largest"], each["relative"], each["allowed"], each["held_to"] or "the first model")
        for each in outputs[:_SHOWN_OUTPUTS]
    ]
    more = f"\n{len(outputs) - _SHOWN_OUTPUTS} more outputs differ less" if len(outputs) > _SHOWN_OUTPUTS else ""
    return f"{head}\n\n{Table(columns, rows).text()}{more}"
