"""From fx graphs of torch or ATen calls to graphs, traced anew by torch.export."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...ir.errors import InputError
from .exported import from_torch
from .model import TorchModel


def from_fx(
    module: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> TorchModel:
    """Imports a `GraphModule`, whatever it calls: functions of torch, methods of tensors, modules, ATen operators.

    Without example inputs the fake tensors are taken that tracing has left on the graph's placeholders, as `make_fx`,
    Dynamo and torch.export do; their symbolic sizes vary. Raises `InputError` where there are neither, and as
    `from_torch`.
    """
    if args is not None or kwargs is not None:
        return from_torch(module, args or (), kwargs, dynamic_shapes=dynamic_shapes)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta.get("val", node.meta.get("example_value")) for node in placeholders]
    missing = next((node.name for node, fake in zip(placeholders, fakes, strict=True) if fake is None), None)
    if missing is not None:
        raise InputError(
            f"the fx graph does not tell the type of its input {missing!r}",
            remedy="pass args=(tensor, ...), and kwargs={...} where it takes some",
        )
    spec = getattr(module, "_in_spec", None)  # of graphs that take their arguments in a structure
    given, named = _in_structure([_example(fake) for fake in fakes], spec)
    dims, named_dims = _in_structure([_dims(fake) for fake in fakes], spec)
    return from_torch(module, given, named, dynamic_shapes=dynamic_shapes or (*dims, *named_dims.values()))


def _in_structure(leaves: list[Any], spec: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if spec is None:
        return tuple(leaves), {}
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)
    return tuple(args), dict(kwargs)


def _example(fake: Any) -> Any:
    """An input of the type of a fake tensor, its sizes those that it was traced with."""
    if not isinstance(fake, torch.Tensor):
        return int(fake.node.hint) if isinstance(fake, torch.SymInt) else fake
    sizes = [int(size.node.hint) if isinstance(size, torch.SymInt) else size for size in fake.shape]
    return torch.zeros(sizes, dtype=fake.dtype, device=fake.device)


def _dims(fake: Any) -> Any:
    """Which sizes of a fake tensor vary, as `dynamic_shapes` says it."""
    if not isinstance(fake, torch.Tensor):
        return torch.export.Dim.DYNAMIC if isinstance(fake, torch.SymInt) else None
    varying = ((axis, size) for axis, size in enumerate(fake.shape) if isinstance(size, torch.SymInt))
    return {axis: str(size) if str(size).isidentifier() else torch.export.Dim.DYNAMIC for axis, size in varying} or None
