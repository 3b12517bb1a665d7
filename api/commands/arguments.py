"""Forms of arguments that several commands take."""

from argparse import ArgumentParser, ArgumentTypeError


def add_dims(parser: ArgumentParser) -> None:
    """Adds `--dim NAME=N`, a list of pairs."""
    parser.add_argument(
        "--dim", metavar="NAME=N", type=size, action="append", default=[], help="the size of a symbolic dimension"
    )


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
