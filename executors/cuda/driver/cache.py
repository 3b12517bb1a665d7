"""Compiled kernels on disk: each kernel names the module that it is in, and modules lie under the hash of their bytes.

    modules/HASH           a cubin; the name is the SHA-256 of the content, so that damage shows
    kernels/KEY            the name of a module, for a kernel whose source, options, compiler and architecture are KEY
    failed/KEY.cu, .log    what did not compile, and what the compiler said

Files are written beside their place and moved there, which is atomic: several processes may share a folder. What cannot
be read, or is not what it says, counts as missing and is made again. A folder that cannot be written is no error.
"""

import hashlib
import os
import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "CAPGRAPH_CACHE"
"""The environment variable that names the folder of all caches."""

NOWHERE = Path(os.devnull) / "capgraph"
"""What cannot become a folder: nothing is kept there, and nothing is found."""

_HASH = re.compile(r"[0-9a-f]{64}")


def cache_folder() -> Path:
    """Where caches are kept: `$CAPGRAPH_CACHE`, else `capgraph` in the user's folder for caches.

    `NOWHERE` for users without a home: in a folder that others may write to, kernels could be somebody else's.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "capgraph"
    except RuntimeError:  # neither $HOME nor an entry of the user
        return NOWHERE


@dataclass(frozen=True, slots=True)
class Module:
    """Machine code of several kernels: a cubin, and its hash."""

    digest: str
    code: bytes

    @classmethod
    def of(cls, code: bytes) -> "Module":
        return cls(hashlib.sha256(code).hexdigest(), code)


class KernelCache:
    """The cache in `folder`. `damaged` counts entries that were not what they said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged = 0
        self._modules: dict[str, Module] = {}

    def find(self, key: str) -> Module | None:
        """The module with the kernel of that key."""
        named = read_file(self.folder / "kernels" / key)
        if named is None:
            return None
        digest = named.decode("ascii", errors="replace")
        module = self._module(digest) if _HASH.fullmatch(digest) else None
        if module is None:
            self.damaged += 1
        return module

    def _module(self, digest: str) -> Module | None:
        found = self._modules.get(digest)
        if found is not None:
            return found
        code = read_file(self.folder / "modules" / digest)
        if code is None or hashlib.sha256(code).hexdigest() != digest:
            return None
        return self._modules.setdefault(digest, Module(digest, code))

    def keep(self, keys: list[str], module: Module) -> None:
        """Keeps a module for the kernels in it."""
        self._modules[module.digest] = module
        if write_file(self.folder / "modules" / module.digest, module.code):
            for key in keys:
                write_file(self.folder / "kernels" / key, module.digest.encode())

    def keep_failure(self, key: str, source: str, log: str) -> Path | None:
        """Keeps what did not compile; where the source lies, None if it could not be written."""
        path = self.folder / "failed" / f"{key}.cu"
        written = write_file(path, source.encode()) and write_file(path.with_suffix(".log"), log.encode())
        return path if written else None


def read_file(path: Path) -> bytes | None:
    """The content of a file, None if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def write_file(path: Path, content: bytes) -> bool:
    """Writes a whole file or none; whether it could."""
    beside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            beside = Path(file.name)
            file.write(content)
        beside.replace(path)
    except OSError:
        if beside is not None:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
        return False
    return True
