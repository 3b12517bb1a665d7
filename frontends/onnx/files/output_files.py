"""Where a file is written: a link is followed, and what is no regular file is never replaced."""

import stat
from pathlib import Path

from ....ir.errors import InputError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_SHOWN_NAME = 60


def file_to_write(path: Path) -> Path:
    """The file that writing to `path` makes or replaces: `path`, or what it links to, be that there or not.

    Raises `InputError` where that is no regular file, or where no file can have this name.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    except OSError as error:
        raise InputError(f"{_shown(path)} cannot be written: {error.strerror}", remedy="write elsewhere") from error
    except ValueError as error:  # a NUL
        raise InputError(f"{_shown(path)!r} is no name of a file: {error}", remedy="use another name") from error
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise InputError(f"{path} is {kind}", remedy="name the file to write")
    return path.resolve() if path.is_symlink() else path


def part_prefix(target: Path) -> str:
    """How the name of a file begins that will become `target`; short, so that it is valid whenever `target` is."""
    return f".{target.name[:32]}."


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 2 * _SHOWN_NAME else f"{text[:_SHOWN_NAME]}...{text[-_SHOWN_NAME:]}"
