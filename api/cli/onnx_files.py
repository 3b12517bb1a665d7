"""ONNX files as commands read and write them: what is in one, and that none is overwritten by its own result."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..frontends.onnx.files.output_files import file_to_write
from ..ir.errors import InputError
from ..ir.graph import Graph
from ..sources import load_model, needs_onnx


@dataclass(frozen=True)
class OnnxFile:
    """A model that was read: its graph, remarks, nodes by ONNX operator, and all files that it consists of."""

    graph: Graph
    notes: Sequence[str]
    operators: Counter[str]
    files: tuple[Path, ...]


def read_onnx_file(path: Path) -> OnnxFile:
    """The model at `path`. Raises `ModelError` when it is broken, `MissingPackageError` without the package onnx."""
    with needs_onnx():
        from ..frontends.onnx.files.external_data import data_files
        from ..frontends.onnx.files.loading import load_proto
        from ..frontends.onnx.files.operator_counts import operator_counts
    proto, folder = load_proto(path)
    loaded = load_model(proto, folder=folder)
    return OnnxFile(loaded.graph, loaded.notes, operator_counts(proto), (path, *data_files(proto, path)))


def refuse_harming(model: Path, targets: Iterable[Path]) -> None:
    """As `refuse_overwriting` for the files of the model at `model`, which is read only where a target is there."""
    files: tuple[Path, ...] | None = None
    for target in targets:
        refuse_overwriting([model], target)
        if target.exists():
            files = _files_of(model) if files is None else files
            refuse_overwriting(files, target)


def _files_of(path: Path) -> tuple[Path, ...]:
    with needs_onnx():
        from ..frontends.onnx.files.external_data import data_files
        from ..frontends.onnx.files.loading import load_proto
    return tuple(data_files(load_proto(path)[0], path))


def refuse_overwriting(files: Sequence[Path], target: Path) -> None:
    """Raises `InputError` when writing to `target` would change one of `files`, also through a link, or cannot be."""
    written = file_to_write(target)
    for file in files:
        if _is_same(file, written):
            raise InputError(f"{target} is the model itself, {file}", remedy="write to another file")
    if not written.parent.is_dir():
        raise InputError(f"there is no folder {written.parent}", remedy="make it, or write elsewhere")


def _is_same(file: Path, written: Path) -> bool:
    try:
        return written.samefile(file)
    except (OSError, ValueError):  # one of them is not there, or cannot be
        return False
