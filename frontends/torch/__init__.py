"""PyTorch models in: modules, exported programs and fx graphs become graphs.

The functions load when they are first used: importing this package imports no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exported import from_exported, from_torch
    from .fx import from_fx

__all__ = ["from_exported", "from_fx", "from_torch"]

_HOMES = {"from_exported": ".exported", "from_fx": ".fx", "from_torch": ".exported"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found
