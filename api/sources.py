"""From what a caller has (a path, bytes, a `ModelProto`, a graph) to a graph of our own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from .ir.dims.constraints import Constraint, collect_constraints
from .ir.errors import ExecutionError, InputError, MissingPackageError, UnsupportedError
from .ir.graph import Graph

if TYPE_CHECKING:
    import onnx
    import torch

    from .frontends.torch.model import TorchModel

Model: TypeAlias = Union[
    str,
    Path,
    bytes,
    Graph,
    "onnx.ModelProto",
    "torch.nn.Module",
    "torch.export.ExportedProgram",
    "torch.fx.GraphModule",
]

MOST_KEPT_BYTES = 64 << 20
"""Of a model that is no file: a larger one is not held to be read again."""


@dataclass(frozen=True)
class LoadedModel:
    """A graph that nobody else holds, and what its import has to say, for `explain()`."""

    graph: Graph
    notes: list[str] = field(default_factory=list)
    torch: "TorchModel | None" = None
    again: "Reread | None" = None


@dataclass(frozen=True)
class Reread:
    """What an import took to be equal without knowing, and `read`, which imports the model for shapes by input."""

    assumed: tuple[Constraint, ...]
    read: Callable[[Mapping[str, tuple[int, ...]]], LoadedModel]


@dataclass(frozen=True)
class Examples:
    """Example inputs of a PyTorch module, and which of their sizes vary (`dynamic_shapes` of torch.export)."""

    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None

    @property
    def are_given(self) -> bool:
        return self.args is not None or self.kwargs is not None


def load_model(
    model: Model,
    *,
    folder: Path | None = None,
    freeze_initializers: bool | None = None,
    examples: Examples = Examples(),  # frozen
) -> LoadedModel:
    """The graph of `model`; a `Graph` is copied, its constants shared.

    `folder` is where external data lies (default: the folder of the path). A PyTorch module needs `examples`. Raises
    `ModelError` for a broken model, `MissingPackageError` when onnx is needed and not installed, `UnsupportedError` for
    a module that torch.export refuses or an option that is not known, `InputError` for anything else.
    """
    if freeze_initializers is not None and not isinstance(freeze_initializers, bool):
        raise UnsupportedError(
            f"freeze_initializers={freeze_initializers!r} is not known", remedy="True, False, or None"
        )
    if _is_torch_model(model):
        return _load_torch(model, examples)
    if callable(model):
        raise InputError(
            f"a model cannot be the {'class' if isinstance(model, type) else 'function'} {_name_of(model)}",
            remedy="pass an instance of torch.nn.Module; capgraph.compile takes functions and classes of modules",
        )
    if examples.are_given:
        raise InputError("args are example inputs of a PyTorch module; this model needs none", remedy="leave args out")
    if isinstance(model, Graph):
        return LoadedModel(model.clone())
    if isinstance(model, str | Path | bytes) or (_comes_from(model, "onnx") and type(model).__name__ == "ModelProto"):
        return _load_onnx(model, folder, freeze_initializers)
    raise InputError(
        f"a model cannot be a {type(model).__module__}.{type(model).__qualname__}",
        remedy="pass a path, the bytes of an ONNX file, an onnx.ModelProto, a PyTorch module or a capgraph graph",
    )


def device_of(model: Model, examples: Examples) -> str:
    """The GPU that a PyTorch module's weights or examples lie on, "auto" for anything else."""
    if not _is_torch_model(model):
        return "auto"
    from .frontends.torch.exported import gpu_of

    return gpu_of(model, examples.args, examples.kwargs) or "auto"


def _name_of(model: Any) -> str:
    return str(getattr(model, "__qualname__", type(model).__qualname__))


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
        from .frontends.onnx.importing.importer import import_model
    stamp = _stamp(model)
    with collect_constraints() as found:
        imported = import_model(model, folder=folder, freeze_initializers=freeze_initializers)
    assumed = tuple(dict.fromkeys(found))
    source = _kept(model) if assumed else None
    if source is None:
        return LoadedModel(imported.graph, imported.notes)

    def read(shapes: Mapping[str, tuple[int, ...]]) -> LoadedModel:
        if _stamp(source) != stamp:
            raise ExecutionError(
                f"the file {model} has changed since it was read, and is needed again for the sizes of a call",
                remedy="call capgraph.optimize again",
            )
        exact = import_model(source, folder=folder, freeze_initializers=freeze_initializers, shapes=shapes)
        return LoadedModel(exact.graph, exact.notes)

    return LoadedModel(imported.graph, imported.notes, again=Reread(assumed, read))


def _kept(model: Any) -> Path | bytes | None:
    """What to read a model from again, whatever happens to the given one; None for a large one that is no file."""
    if isinstance(model, str | Path):
        return Path(model).absolute()
    if (len(model) if isinstance(model, bytes) else model.ByteSize()) > MOST_KEPT_BYTES:
        return None
    content: bytes = model if isinstance(model, bytes) else model.SerializeToString()
    return content


def _stamp(model: Any) -> tuple[int, int] | None:
    """When a file was written, and its size; None where there is no file."""
    try:
        found = Path(model).stat() if isinstance(model, str | Path) else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)


def _load_torch(model: Any, examples: Examples) -> LoadedModel:
    from .frontends.torch.exported import from_exported, from_torch
    from .frontends.torch.fx import from_fx

    _check_examples(examples)
    if hasattr(model, "run_decompositions"):  # an exported program has its inputs already
        if examples.dynamic_shapes is not None:
            raise InputError(
                "which sizes of an exported program vary is fixed", remedy="give dynamic_shapes to torch.export.export"
            )
        given = from_exported(model)
    elif _is_fx(model):
        given = from_fx(model, examples.args, examples.kwargs, dynamic_shapes=examples.dynamic_shapes)
    elif examples.are_given:
        given = from_torch(model, examples.args or (), examples.kwargs, dynamic_shapes=examples.dynamic_shapes)
    else:
        raise InputError(
            f"{type(model).__name__} is a PyTorch module, which is traced on example inputs",
            remedy="give capgraph.optimize args=(tensor, ...), and kwargs={...} where it takes some; elsewhere pass "
            "torch.export.export(module, (tensor, ...))",
        )
    return LoadedModel(given.graph, given.notes, given)


def _check_examples(examples: Examples) -> None:
    if not isinstance(examples.args, Sequence | None) or isinstance(examples.args, str):
        raise InputError(
            f"args is a {type(examples.args).__name__}, not the arguments in a tuple", remedy="pass args=(tensor, ...)"
        )
    if not isinstance(examples.kwargs, Mapping | None):
        raise InputError(
            f"kwargs is a {type(examples.kwargs).__name__}, not arguments by name", remedy='pass kwargs={"name": ...}'
        )


def _is_torch_model(model: Any) -> bool:
    if isinstance(model, str | Path | bytes | Graph) or not _comes_from(model, "torch"):
        return False
    import torch

    return isinstance(model, torch.nn.Module | torch.export.ExportedProgram)


def _is_fx(model: Any) -> bool:
    import torch

    return isinstance(model, torch.fx.GraphModule)


def read_again(graph: Graph) -> Graph:
    """What a graph with foreign nodes is when it is exported to ONNX and imported with what is known by now."""
    from .frontends.onnx.exporting.exporter import export_model
    from .frontends.onnx.importing.importer import import_model

    return import_model(export_model(graph)).graph
