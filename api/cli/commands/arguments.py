"""Forms of arguments that several commands take."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...comparing.tolerance import Tolerance


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
    from ...comparing.tolerance import Tolerance

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
