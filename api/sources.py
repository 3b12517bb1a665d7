"""From what a caller has (a path, bytes, a `ModelProto`, a graph) to a graph of our own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from .ir.errors import InputError, MissingPackageError, UnsupportedError
from .ir.graph import Graph

if TYPE_CHECKING:
    import onnx

Model: TypeAlias = Union[str, Path, bytes, Graph, "onnx.ModelProto"]


@dataclass(frozen=True)
class LoadedModel:
    """A graph that nobody else holds, and what its import has to say, for `explain()`."""

    graph: Graph
    notes: list[str] = field(default_factory=list)


def load_model(model: Model, *, folder: Path | None = None, freeze_initializers: bool | None = None) -> LoadedModel:
    """The graph of `model`; a `Graph` is copied, its constants shared.

    `folder` is where external data lies (default: the folder of the path). Raises `ModelError` for a broken model,
    `MissingPackageError` when onnx is needed and not installed, `UnsupportedError` for a PyTorch module, `InputError`
    for anything else.
    """
    if isinstance(model, Graph):
        return LoadedModel(model.clone())
    if isinstance(model, str | Path | bytes) or _comes_from(model, "onnx"):
        return _load_onnx(model, folder, freeze_initializers)
    if _comes_from(model, "torch"):
        raise UnsupportedError(
            "PyTorch modules cannot be imported yet",
            remedy="export it first: torch.onnx.export(module, args, 'model.onnx', dynamo=True)",
        )
    raise InputError(
        f"a model cannot be a {type(model).__module__}.{type(model).__qualname__}",
        remedy="pass a path, the bytes of an ONNX file, an onnx.ModelProto or a capgraph graph",
    )


def _comes_from(model: Any, package: str) -> bool:
    """Whether the object's class, or one that it derives from, is of `package`; imports nothing."""
    return any(base.__module__.partition(".")[0] == package for base in type(model).__mro__)


@contextmanager
def needs_onnx() -> Iterator[None]:
    """Makes a failed import of the package onnx a `MissingPackageError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("onnx", "google"):
            raise
        raise MissingPackageError("ONNX models need the package onnx", remedy='pip install "capgraph[onnx]"') from error


def _load_onnx(model: Any, folder: Path | None, freeze_initializers: bool | None) -> LoadedModel:
    with needs_onnx():
        from .frontends.onnx.importer import import_model
    imported = import_model(model, folder=folder, freeze_initializers=freeze_initializers)
    return LoadedModel(imported.graph, imported.notes)
