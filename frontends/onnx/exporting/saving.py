"""Writing models to disk: all or nothing, and with large weights in a file beside the model."""

import os
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path

from onnx import ModelProto

from ....ir.analysis import all_nodes
from ....ir.constant import Constant
from ....ir.errors import InputError, ResourceError
from ....ir.graph import Graph
from ..context.dialect import Dialect
from ..contrib import IN_FILES
from ..contrib.group import Operator
from ..files.metadata import add_metadata
from ..files.writing import MAX_INLINE_BYTES, file_to_write, had_external_data
from .data_files import DataFiles, share_like_new, source_of, stays_inside, temporary_file
from .exporter import export_model


def save_model(  # noqa: PLR0913  # every choice there is, by keyword
    graph: Graph,
    path: str | Path,
    *,
    opset: int | None = None,
    ir_version: int | None = None,
    keep_form: bool = False,
    check: bool = True,
    dialect: Dialect = Dialect.FAITHFUL,
    operators: Collection[Operator] = IN_FILES,
    external_over: int | None = None,
    folder: Path | None = None,
    metadata: Mapping[str, str] | None = None,
) -> ModelProto:
    """Writes `graph` to `path` as an ONNX model and gives what was written; see `export_model` for the options.

    When the constants take more than `external_over` bytes (default: 2 GB) they go into one file beside the model,
    called `<model>.<content hash>.data`, and are never all in memory. The model refers to it by name, so that the two
    belong together: an interrupted call leaves whatever stood at `path` before intact, with its own data. With
    `keep_form` the versions are those of the model that the graph came from, and weights lie outside if some of that
    model did, in files of the same names where these are free (`data_files`). `folder` is where the files will be moved
    to, if that is not beside `path`, `metadata` what the model says beside what it said of itself.

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
            add_metadata(model, metadata or {})
            _write_model(model, target)
            return model
        data = DataFiles(target, target.parent if folder is None else folder, keeps_names=keep_form)
        model = export(storage=data)
        data.publish(model)
        add_metadata(model, metadata or {})
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
    return sum(content.nbytes for content in _contents(graph) if not stays_inside(content))


def _refuse_own_data(graph: Graph, target: Path) -> None:
    """Raises `InputError` where `target` is a file that weights of `graph` are read from."""
    if not target.exists():
        return
    for content in _contents(graph):
        source = None if stays_inside(content) else source_of(content)
        if source is not None and source.file.exists() and target.samefile(source.file):
            raise InputError(f"{target} holds weights of the model itself", remedy="write to another file")


def _write_model(model: ModelProto, target: Path) -> None:
    with temporary_file(target) as (file, part):
        file.write(model.SerializeToString())
        file.flush()
        os.fsync(file.fileno())
        share_like_new(part)
        part.replace(target)
