"""Writing models to disk: all or nothing, and with large weights in a file beside the model."""

import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from onnx import ModelProto, TensorProto

from ....ir.analysis import all_nodes
from ....ir.constant import Array, Constant
from ....ir.errors import InputError, ResourceError
from ....ir.graph import Graph
from ....ir.types import DType
from ..context.dialect import Dialect
from ..contrib import IN_FILES
from ..contrib.group import Operator
from ..files.external_data import external_tensors
from ..files.output_files import file_to_write, part_prefix
from ..files.storage import MAX_INLINE_BYTES
from ..files.versions import had_external_data
from ..tensors import constant_to_proto, element_number, packed_bytes
from .exporter import export_model

_ALIGNMENT = 4096  # so that readers can map a tensor straight from the file
_INLINE_BYTES = 1024
_CHUNK_BYTES = 64 << 20


def save_model(
    graph: Graph,
    path: str | Path,
    *,
    opset: int | None = None,
    ir_version: int | None = None,
    keep_form: bool = False,
    value_info: bool = True,
    check: bool = True,
    dialect: Dialect = Dialect.FAITHFUL,
    operators: Collection[Operator] = IN_FILES,
    external_over: int | None = None,
) -> ModelProto:
    """Writes `graph` to `path` as an ONNX model and gives what was written; see `export_model` for the options.

    When the constants take more than `external_over` bytes (default: 2 GB) they go into one file beside the model,
    called `<model>.<content hash>.data`, and are never all in memory. The model refers to it by name, so that the two
    belong together: an interrupted call leaves whatever stood at `path` before intact, with its own data. With
    `keep_form` the versions are those of the model that the graph came from, and weights lie outside if some of that
    model did.

    Where `path` is a link, the file that it leads to is written, with its data beside it. Raises `InputError` when
    `path` is no regular file, or one that holds weights of `graph`, `ResourceError` when the disk is full or the folder
    cannot be written to.
    """
    target = file_to_write(Path(path))
    _refuse_own_data(graph, target)
    export = partial(
        export_model,
        graph,
        opset=opset,
        ir_version=ir_version,
        keep_versions=keep_form,
        value_info=value_info,
        check=check,
        dialect=dialect,
        operators=operators,
    )
    most = external_over
    if most is None:
        most = 0 if keep_form and had_external_data(graph) else MAX_INLINE_BYTES
    try:
        if _large_bytes(graph) <= most:
            model = export()
            _write_model(model, target)
            return model
        with _DataFile(target) as data:
            model = export(storage=data)
            data.publish(model)
        _write_model(model, target)
        return model
    except OSError as error:
        raise ResourceError(f"{target} cannot be written: {error}", remedy="check the disk and the folder") from error


def _contents(graph: Graph) -> Iterator[Constant]:
    for node in all_nodes(graph):
        yield from (value for value in node.attrs.values() if isinstance(value, Constant))
    yield from graph.defaults.values()


def _large_bytes(graph: Graph) -> int:
    """The bytes of what may lie outside of a model's file."""
    return sum(content.nbytes for content in _contents(graph) if not _stays_inside(content))


def _stays_inside(content: Constant) -> bool:
    return content.nbytes < _INLINE_BYTES or content.dtype is DType.STRING


def _refuse_own_data(graph: Graph, target: Path) -> None:
    """Raises `InputError` where `target` is a file that weights of `graph` are read from."""
    if not target.exists():
        return
    for content in _contents(graph):
        file = None if _stays_inside(content) else _mapped_file(content.array)
        if file is not None and file.exists() and target.samefile(file):
            raise InputError(f"{target} holds weights of the model itself", remedy="write to another file")


def _mapped_file(array: Array | None) -> Path | None:
    """The file that an array is a view of."""
    while array is not None and not isinstance(array, np.memmap):
        array = array.base if isinstance(array.base, np.ndarray) else None
    return None if array is None or array.filename is None else Path(array.filename)


def _write_model(model: ModelProto, target: Path) -> None:
    with _replacing(target) as file:
        file.write(model.SerializeToString())


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `target` when the block ends well, and is removed otherwise."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=part_prefix(target), suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _share_like_new(name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _share_like_new(name: str) -> None:
    # mkstemp makes files that only their owner can read; a model gets the permissions of any other new file.
    mask = os.umask(0)
    os.umask(mask)
    Path(name).chmod(0o666 & ~mask)


class _DataFile:
    """The data file of a model while it is written: a `Storage` that streams tensors into it.

    It is named after its content, so it can be put in place before the model that refers to it.
    """

    def __init__(self, model: Path) -> None:
        self._model = model
        self._file: IO[bytes] | None = None
        self._hash = hashlib.blake2b(digest_size=8)
        self._offset = 0
        self._part: Path | None = None

    def __enter__(self) -> "_DataFile":
        handle, name = tempfile.mkstemp(dir=self._model.parent, prefix=part_prefix(self._model), suffix=".part")
        self._file, self._part = os.fdopen(handle, "wb"), Path(name)
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._file is not None  # set on entry
        assert self._part is not None
        self._file.close()
        self._part.unlink(missing_ok=True)

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """A tensor proto that refers to its place in the file; small ones and strings stay inline."""
        if _stays_inside(content):
            return constant_to_proto(content, name)
        self._append(bytes(-self._offset % _ALIGNMENT))
        start = self._offset
        for chunk in _chunks(content):
            self._append(chunk)
        proto = TensorProto(name=name, data_type=element_number(content.dtype), dims=content.shape)
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="offset", value=str(start))
        proto.external_data.add(key="length", value=str(self._offset - start))
        return proto

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._hash.update(data)
        self._offset += len(data)

    def publish(self, model: ModelProto) -> None:
        """Puts the file in its place and makes the model's tensors refer to it by name."""
        assert self._file is not None
        assert self._part is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        target = self._model.with_name(f"{self._model.name}.{self._hash.hexdigest()}.data")
        _share_like_new(str(self._part))
        self._part.replace(target)
        for tensor in external_tensors(model):
            if all(entry.key != "location" for entry in tensor.external_data):
                tensor.external_data.add(key="location", value=target.name)


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
