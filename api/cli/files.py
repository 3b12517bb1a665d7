"""Files of commands: ONNX files as they are read and written, and what came out of a run, for readers and in files."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..frontends.onnx.files.writing import file_to_write
from ..ir.constant import Array
from ..ir.errors import InputError, ResourceError
from ..ir.graph import Graph
from ..ir.types import DType, TensorType
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
        from ..frontends.onnx.files.loading import data_files, load_proto
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
        from ..frontends.onnx.files.loading import data_files, load_proto
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


_SHOWN = 4  # elements


def summarize(value: Any) -> dict[str, Any]:
    """Type, finite minimum, mean and maximum, number of elements that are not finite, and the first elements."""
    if not isinstance(value, np.ndarray):
        return _row(_other_type(value), None, None, None, 0, [])
    dtype = DType.of(value.dtype)
    ty = str(TensorType(dtype, value.shape))
    first = [_plain(item) for item in value.reshape(-1)[:_SHOWN].tolist()]
    if value.dtype.kind in "Oc":
        return _row(ty, None, None, None, 0, first)
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return _row(ty, None, None, None, int(wide.size), first)
    return _row(ty, float(finite.min()), float(finite.mean()), float(finite.max()), wide.size - finite.size, first)


def _row(
    ty: str, least: float | None, mean: float | None, greatest: float | None, bad: int, first: list[Any]
) -> dict[str, Any]:
    return {"type": ty, "min": least, "mean": mean, "max": greatest, "not_finite": bad, "first": first}


def _other_type(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"sequence of {len(value)}" if isinstance(value, list | tuple) else type(value).__name__


def _plain(item: Any) -> Any:
    if isinstance(item, bytes):
        return item.decode(errors="replace")
    return item if isinstance(item, bool | int | float | str) else str(item)


def save_outputs(
    outputs: Mapping[str, Any], folder: Path, check: Callable[[Sequence[Path]], None] = lambda _paths: None
) -> list[Path]:
    """Writes each array as `NAME.npy` below `folder`, which is made; those of a sequence as `NAME_0.npy` and so on.

    A map is written as `NAME_keys.npy` and `NAME_values.npy`. Characters that do not belong into file names become `_`.
    Before the first is written `check` sees all paths; what it raises is passed on. Raises `ResourceError` when writing
    fails.
    """
    arrays: dict[Path, Array] = {}
    for name, value in outputs.items():
        for part, array in _arrays(name, value):
            arrays[_free_path(folder, part, arrays)] = array
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check(list(arrays))
        for path, array in arrays.items():
            np.save(path, _storable(array), allow_pickle=False)
    except OSError as error:
        raise ResourceError(f"the outputs cannot be written: {error}", remedy="choose another --output") from error
    return list(arrays)


def _arrays(name: str, value: Any) -> list[tuple[str, Array]]:
    if isinstance(value, np.ndarray):
        return [(name, value)]
    if isinstance(value, list | tuple):
        return [pair for index, item in enumerate(value) for pair in _arrays(f"{name}_{index}", item)]
    if isinstance(value, dict):
        return [(f"{name}_keys", np.array(list(value))), (f"{name}_values", np.array(list(value.values())))]
    return []


def _free_path(folder: Path, name: str, taken: Container[Path]) -> Path:
    stem = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "output"
    path, suffix = folder / f"{stem}.npy", 1
    while path in taken:
        path, suffix = folder / f"{stem}_{suffix}.npy", suffix + 1
    return path


def _storable(array: Array) -> Array:
    """An array that .npy can hold without pickling: strings as fixed-width text."""
    return array.astype(np.str_) if array.dtype.hasobject else array
