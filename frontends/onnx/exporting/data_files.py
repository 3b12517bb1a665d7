"""The files beside a model that hold its large weights.

Weights that are still the bytes of a data file of the model that came in go to a file of that name, in their order, and
to their offsets unless others before them are gone; all others follow. Another file that stands there is never written
over: then, and where no weight comes from a file, the file is named after its content, so that a model and its data
belong together whenever a call is interrupted.
"""

import filecmp
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto

from ....ir.constant import Array, Constant
from ....ir.types import DType
from ..files.loading import external_tensors
from ..files.writing import part_prefix
from ..tensors import constant_to_proto, element_number, packed_bytes

_ALIGNMENT = 4096  # so that readers can map a tensor straight from the file
_LARGEST_GAP = 1 << 16  # bytes between two tensors, which other writers align to at most
_INLINE_BYTES = 1024
_CHUNK_BYTES = 64 << 20


def stays_inside(content: Constant) -> bool:
    """Whether a tensor never lies outside of its model."""
    return content.nbytes < _INLINE_BYTES or content.dtype is DType.STRING


class MappedPlace(NamedTuple):
    """Where in a file an array's first element lies."""

    file: Path
    offset: int


def source_of(content: Constant) -> MappedPlace | None:
    """The place in a file that a constant is a view of."""
    array: Array | None = content.array
    while array is not None and not (isinstance(array, np.memmap) and not isinstance(array.base, np.ndarray)):
        array = array.base if isinstance(array.base, np.ndarray) else None
    if array is None or array.filename is None:
        return None
    return MappedPlace(Path(array.filename), array.offset + _address(content.array) - _address(array))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


class _Entry(NamedTuple):
    """A tensor to write: its number, its content, and where in a file of the same name it was."""

    number: int
    content: Constant
    offset: int | None


class _Place(NamedTuple):
    """Where a tensor is, in ONNX's words."""

    location: str
    offset: int
    length: int


class DataFiles:
    """A `Storage` that notes tensors while a model is written, and writes them when it is published.

    They lie beside `model`; `folder` is where they will be moved to, and where nothing else may be written over.
    """

    def __init__(self, model: Path, folder: Path, *, keeps_names: bool) -> None:
        self._model = model
        self._folder = folder
        self._keeps_names = keeps_names
        self._contents: list[Constant] = []

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """A tensor proto whose place `publish` fills in; small ones and strings stay inline."""
        if stays_inside(content):
            return constant_to_proto(content, name)
        proto = TensorProto(name=name, data_type=element_number(content.dtype), dims=content.shape)
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="offset", value=str(len(self._contents)))  # its number, until it is published
        self._contents.append(content)
        return proto

    def publish(self, model: ModelProto) -> None:
        """Writes the files and makes the model's tensors refer to their places."""
        places: dict[int, _Place] = {}
        for wish, entries in self._by_file().items():
            places |= self._write(wish, entries)
        for tensor in external_tensors(model):
            place = places[int(tensor.external_data[0].value)]
            del tensor.external_data[:]
            for key, value in place._asdict().items():
                tensor.external_data.add(key=key, value=str(value))

    def _by_file(self) -> dict[str, list[_Entry]]:
        """The tensors by the name of the file that they come from, in its order; the others at the end of the first."""
        found: dict[str, list[_Entry]] = {}
        fresh: list[_Entry] = []
        for number, content in enumerate(self._contents):
            source = source_of(content) if self._keeps_names else None
            if source is None:
                fresh.append(_Entry(number, content, None))
            else:
                found.setdefault(source.file.name, []).append(_Entry(number, content, source.offset))
        for entries in found.values():
            entries.sort(key=lambda entry: (entry.offset, entry.number))
        if fresh:
            found.setdefault(next(iter(found), ""), []).extend(fresh)
        return found

    def _write(self, wish: str, entries: Sequence[_Entry]) -> dict[int, _Place]:
        """Writes one file and gives the place of each of its tensors."""
        spans: dict[int, tuple[int, int]] = {}
        with temporary_file(self._model) as (file, part):
            writer = _Writer(file)
            for number, content, offset in entries:
                spans[number] = writer.append(content, offset)
            file.flush()
            os.fsync(file.fileno())
            is_free = wish not in ("", self._model.name) and self._is_free(wish, part, entries)
            name = wish if is_free else f"{self._model.name}.{writer.hash.hexdigest()}.data"
            share_like_new(part)
            part.replace(self._model.with_name(name))
        return {number: _Place(name, *span) for number, span in spans.items()}

    def _is_free(self, name: str, part: Path, entries: Sequence[_Entry]) -> bool:
        """Whether nothing stands under a name, or what was written, in a file that no weight is read from."""
        there = self._folder / name
        if not os.path.lexists(there):
            return True
        sources = (source_of(entry.content) for entry in entries)
        if not there.is_file() or any(source is not None and there.samefile(source.file) for source in sources):
            return False
        return filecmp.cmp(there, part, shallow=False)


class _Writer:
    """Streams tensors into a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.hash = hashlib.blake2b(digest_size=8)
        self._file = file
        self._end = 0

    def append(self, content: Constant, wish: int | None) -> tuple[int, int]:
        """Writes a tensor at the offset where it was if little is left free by that; gives its offset and length."""
        is_near = wish is not None and 0 <= wish - self._end <= _LARGEST_GAP
        start = wish if wish is not None and is_near else self._end - self._end % -_ALIGNMENT
        self._write(bytes(start - self._end))
        for chunk in _chunks(content):
            self._write(chunk)
        return start, self._end - start

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.hash.update(data)
        self._end += len(data)


def _chunks(content: Constant) -> Iterator[bytes]:
    """The packed bytes of a constant in pieces, so that a mapped weight is never copied as a whole."""
    array = content.array
    if content.dtype.bits < 8 or not array.flags.c_contiguous or content.nbytes <= _CHUNK_BYTES:
        yield packed_bytes(content)
        return
    flat = array.reshape(-1)
    step = max(1, _CHUNK_BYTES // flat.itemsize)
    for start in range(0, flat.size, step):
        part = flat[start : start + step]
        yield np.ascontiguousarray(part).astype(part.dtype.newbyteorder("<"), copy=False).tobytes()


@contextmanager
def temporary_file(target: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A new file in the folder of `target`, which is removed when the block ends, unless it was moved."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=part_prefix(target), suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, part
    finally:
        part.unlink(missing_ok=True)


def share_like_new(part: Path) -> None:
    """Gives a file of `temporary_file`, which its owner alone can read, the permissions of any other new file."""
    mask = os.umask(0)
    os.umask(mask)
    part.chmod(0o666 & ~mask)
