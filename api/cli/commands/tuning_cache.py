"""`capgraph tuning-cache`: the candidates that measurements on a GPU have chosen, to be carried to other machines."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ...comparing.tables import json_text
from ...ir.errors import InputError
from .arguments import Command

if TYPE_CHECKING:
    from ...executors.cuda.run.selection import TuningCache

_REMEDY = "name a file that --export has written"


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph tuning-cache`."""
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--export", metavar="FILE", type=Path, help="write every entry that is kept here")
    files.add_argument("--import", dest="given", metavar="FILE", type=Path, help="keep the entries of such a file here")


def run(arguments: Namespace) -> None:
    """Reads or writes a file, and says how many entries are kept and where. Raises `InputError` for other files."""
    from ...executors.cuda.driver.cache import cache_folder
    from ...executors.cuda.run.selection import TuningCache

    cache = TuningCache(cache_folder() / "tuning")
    taken = _taken_over(cache, arguments.given) if arguments.given is not None else 0
    kept = cache.read_all()
    if arguments.export is not None:
        _write(arguments.export, cache.export())
    report = {"folder": str(cache.folder), "kept": kept, "imported": taken}
    print(json_text(report) if arguments.json else f"{kept} entries in {cache.folder}, {taken} of them imported")


def _taken_over(cache: "TuningCache", path: Path) -> int:
    text = _read(path)
    try:
        return cache.take_over(text)
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
    """Raises `InputError` where a file is there that is no tuning cache: a model, its weights, a text."""
    from ...executors.cuda.run.selection import exported_entries

    if not path.is_file() or not path.stat().st_size:
        return
    try:
        with path.open("rb") as file:
            is_json = file.read(1) == b"{"  # what else there is may be large
        exported_entries(path.read_text() if is_json else "")
    except (InputError, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is there already, and is no tuning cache", remedy="name a new file, or one of --export"
        ) from error


COMMAND = Command(
    "tuning-cache",
    "Count, export or import what was measured on a GPU: which kernel does a step fastest.",
    configure,
    run,
)
