"""What stands for the names that need PyTorch where it is not installed: each says so when it is used."""

from typing import Any

from ..ir.errors import MissingPackageError


def compile_with(*_arguments: Any, **_options: Any) -> Any:
    """Raises `MissingPackageError`."""
    raise _missing("capgraph.compile")


def decoding_loop(*_arguments: Any, **_options: Any) -> Any:
    """Raises `MissingPackageError`."""
    raise _missing("capgraph.decoding_loop")


class TorchProgram:
    """The class of no object."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        raise _missing("capgraph.TorchProgram")


def _missing(name: str) -> MissingPackageError:
    return MissingPackageError(f"{name} needs the package torch", remedy='pip install "capgraph[torch]"')
