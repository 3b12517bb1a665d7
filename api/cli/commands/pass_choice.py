"""The arguments by which commands choose passes."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...passes.framework.base import Pass
    from ...passes.framework.pipeline import Pipeline

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
    from ...executors.request import pipeline_for
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
