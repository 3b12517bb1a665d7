"""`capgraph choices`: the choices between kernels that were measured on a GPU, to be carried to other machines."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ...comparing.tables import json_text
from ...ir.errors import InputError
from .base import Command

if TYPE_CHECKING:
    from ...executors.cuda.run.selection import TuningCache

_REMEDY = "name a file that --export has written"


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph choices`."""
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--export", metavar="FILE", type=Path, help="write every choice that is kept here")
    files.add_argument("--import", dest="given", metavar="FILE", type=Path, help="keep the choices of such a file here")


def run(arguments: Namespace) -> None:
    """Reads or writes a file, and says how many choices are kept and where. Raises `InputError` for other files."""
    from ...executors.cuda.driver.cache import cache_folder
    from ...executors.cuda.run.selection import TuningCache

    choices = TuningCache(cache_folder() / "choices")
    taken = _taken_over(choices, arguments.given) if arguments.given is not None else 0
    kept = choices.read_all()
    if arguments.export is not None:
        _write(arguments.export, choices.export())
    report = {"folder": str(choices.folder), "kept": kept, "imported": taken}
    print(json_text(report) if arguments.json else f"{kept} choices in {choices.folder}, {taken} of them imported")


def _taken_over(choices: "TuningCache", path: Path) -> int:
    text = _read(path)
    try:
        return choices.take_over(text)
    except InputError as error:
        raise InputError(f"{path} cannot be imported: {error.message}", remedy=_REMEDY) from error


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", remedy=_REMEDY) from error


def _write(path: Path, text: str) -> None:
    _refuse_other_content(path)
    try:
        path.write_text(text + "\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}", remedy="name another file") from error


def _refuse_other_content(path: Path) -> None:
    """Raises `InputError` where a file is there that holds anything but choices: a model, its weights, a text."""
    from ...executors.cuda.run.selection import exported_choices

    if not path.is_file() or not path.stat().st_size:
        return
    try:
        with path.open("rb") as file:
            is_json = file.read(1) == b"{"  # what else there is may be large
        exported_choices(path.read_text() if is_json else "")
    except (InputError, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is there already, and is no file of choices", remedy="name a new file, or one of --export"
        ) from error


COMMAND = Command(
    "choices", "Count, export or import what was measured on a GPU: which kernel does a step fastest.", configure, run
)
